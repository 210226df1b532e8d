//! Where things are said: one JSON value on stdout, everything else on stderr, and nobody need listen.

use std::io::Read;
use std::process::Stdio;

use crate::support::{Outcome, Repo, until};

/// Runs pm with nobody reading its stdout.
fn unread(repo: &Repo, args: &[&str]) -> Outcome {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = repo.pm_command(args);
    Outcome::of(args, command.env("PM_AGENT_ID", "w1").stdout(writer))
}

#[test]
fn a_closed_stdout_is_no_failure_and_the_outcome_stands() {
    let repo = Repo::new();
    let lines: String = (0..60).map(|n| format!("{{\"slug\":\"t{n}\",\"title\":\"Task {n}\"}}\n")).collect();
    std::fs::write(repo.path().join("plan"), lines).expect("written");
    for (args, code) in [
        (&["bulk-plan", "--input", "plan"][..], 0),
        (&["list"], 0),
        (&["list", "--json"], 0),
        (&["log"], 0),
        (&["next", "--all"], 0),
        (&["pull"], 0),
        (&["owned", "--strict"], 1),
        (&["verify"], 0),
        (&["show", "--task", "t0"], 0),
        (&["--help"], 0),
        (&["completions", "bash"], 0),
        (&["man"], 0),
        (&["plan", "--title", "One more"], 0),
        (&["show", "--task", "absent"], 17),
    ] {
        let outcome = unread(&repo, args).exits(code);
        assert!(!outcome.stderr.contains("panic"), "{outcome:?}");
        assert_eq!(outcome.stderr.is_empty(), code != 17, "{outcome:?}");
    }
    assert_eq!(repo.pm(&["list", "--json"]).json()["total"], 61, "what was recorded is recorded");
    assert_eq!(repo.pm(&["owned", "--json"]).json()["count"], 1);
}

#[test]
fn a_closed_stderr_is_no_failure_either() {
    let repo = Repo::new();
    for (args, code) in [(&["next"][..], 0), (&["show", "--task", "absent"], 17), (&["frobnicate"], 2)] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = repo.pm_command(args);
        Outcome::of(args, command.stderr(writer)).exits(code);
    }
}

#[test]
fn a_follower_ends_when_nobody_reads_any_more() {
    let repo = Repo::new();
    repo.plan("a");
    let mut child =
        repo.pm_command(&["log", "--follow", "--oneline"]).stdout(Stdio::piped()).spawn().expect("pm starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let mut first = [0; 1];
    stdout.read_exact(&mut first).expect("it tells what there is");
    drop(stdout);
    // It notices at the latest when it has something to say.
    repo.claim("a");
    let status = until("the follower ends", || child.try_wait().expect("asked"));
    assert_eq!(status.code(), Some(0));
}

#[test]
fn quiet_keeps_notes_away_but_not_warnings_and_not_results() {
    let repo = Repo::bare_of_config(&[]);
    let planned = repo.pm(&["plan", "--title", "A", "--quiet"]).ok();
    assert_eq!(planned.stderr, "");
    assert!(planned.stdout.contains("planned default/a"));
    assert_eq!(repo.pm(&["next", "-q", "--queue", "empty"]).ok().stderr, "");
    repo.git(&["config", "pm.unknown", "1"]);
    repo.pm(&["list", "--quiet"]).ok().says("warning: ");
    repo.pm(&["show", "--quiet", "--task", "absent"]).fails(17);
}

#[test]
fn colour_is_used_only_when_it_is_asked_for_or_on_a_terminal() {
    let repo = Repo::new();
    repo.plan("a");
    let coloured = |env: &[(&str, &str)], args: &[&str]| repo.pm_with(env, args).ok().stdout.contains('\u{1b}');
    assert!(!coloured(&[], &["list"]), "a pipe is no terminal");
    assert!(coloured(&[], &["list", "--color", "always"]));
    assert!(coloured(&[("NO_COLOR", "1")], &["list", "--color", "always"]), "the option wins");
    assert!(!coloured(&[], &["list", "--color", "always", "--json"]));
    assert!(!coloured(&[], &["list", "--color", "never"]));
    repo.pm(&["list", "--color", "sometimes"]).fails(2);
}

#[test]
fn global_options_stand_before_or_after_the_subcommand() {
    let repo = Repo::new();
    repo.plan("a");
    let after = repo.pm(&["owned", "--json", "--agent", "x"]).ok().stdout;
    assert_eq!(repo.pm(&["--json", "--agent", "x", "owned"]).ok().stdout, after);
}

#[test]
fn warnings_of_a_json_command_stay_off_stdout() {
    let repo = Repo::new();
    repo.git(&["config", "pm.unknown", "1"]);
    std::fs::create_dir_all(repo.path().join(".git/refs/pm/tasks/default")).expect("created");
    std::fs::write(repo.path().join(".git/refs/pm/tasks/default/broken"), "x").expect("written");
    for args in [&["list"][..], &["next"], &["status"], &["sweep"], &["owned"], &["queues"]] {
        let outcome = repo.pm(&[args, &["--json"]].concat()).ok();
        outcome.stdout_json();
        assert_eq!(outcome.stderr.lines().filter(|line| line.starts_with("warning: ")).count(), 2, "{outcome:?}");
    }
}
