//! Verifiers at the command line: what runs, what is recorded, and whose the claim is meanwhile.

use std::fs;

use rustix::process::Signal;

use crate::support::process::Process;
use crate::support::{AGENT, Repo, text, until};

/// A repository in which `a` is claimed and reported on, and has a verifier that this machine allows.
fn reported(verifier: &str, options: &[&str]) -> Repo {
    let repo = Repo::new();
    repo.git(&["config", "--add", "pm.allowVerifier", verifier]);
    repo.plan_with("a", &[&["--verifier", verifier], options].concat());
    repo.claim("a");
    report(&repo, "first", "");
    repo
}

fn report(repo: &Repo, title: &str, body: &str) -> String {
    text(&repo.pm(&["report", "--json", "--task", "a", "--title", title, "--text", body]).json()["sha"])
}

/// The newest status of `a`.
fn status(repo: &Repo) -> serde_json::Value {
    let shown = repo.pm(&["show", "--json", "--task", "a"]).json();
    shown["statuses"].as_array().and_then(|statuses| statuses.last()).expect("a status").clone()
}

/// Starts `finished` and waits until its verifier has begun, which it says by making `$OUT/begun`.
fn finishing(repo: &Repo, options: &[&str]) -> Process {
    let begun = repo.outside().join("begun");
    let mut command = repo.pm_command(&[&["finished", "--json", "--task", "a"], options].concat());
    let process = Process::start(command.env("PM_AGENT_ID", AGENT));
    until("the verifier has begun", || begun.exists().then_some(()));
    process
}

/// A verifier that says that it has begun and waits until it is let go, or is ended.
fn waiting(outside: &std::path::Path) -> String {
    let dir = outside.display();
    // It gives up after half a minute, so that it outlives nobody for long.
    let wait = format!("test -e '{dir}/go' && break; tries=$((tries + 1)); test $tries -lt 1500 || exit 1; sleep 0.02");
    format!("echo $$ >'{dir}/begun'; tries=0; while true; do {wait}; done")
}

/// As [`reported`], with a verifier that waits.
fn waiting_repo(options: &[&str]) -> Repo {
    let repo = Repo::new();
    let verifier = waiting(repo.outside());
    repo.git(&["config", "--add", "pm.allowVerifier", &verifier]);
    repo.plan_with("a", &[&["--verifier", &verifier], options].concat());
    repo.claim("a");
    report(&repo, "first", "");
    repo
}

fn let_go(repo: &Repo) {
    fs::write(repo.outside().join("go"), "").expect("written");
}

/// Waits until nothing of the verifier runs any more.
fn is_gone(repo: &Repo) {
    let pid = fs::read_to_string(repo.outside().join("begun")).expect("it has begun");
    let pid = pid.trim().parse().expect("a pid");
    until("the verifier is gone", || (!crate::support::process::is_alive(pid)).then_some(()));
}

#[test]
fn a_task_is_done_only_once_its_verifier_passes_and_what_it_said_is_recorded() {
    let repo = reported("test -e built && echo fine", &[]);
    let error = repo.pm(&["finished", "--json", "--task", "a"]).fails(9).error();
    assert_eq!((&error["verifier_exit"], &error["timed_out"]), (&1.into(), &false.into()));
    assert_eq!(repo.phase("a"), "working");
    fs::write(repo.path().join("built"), "").expect("written");
    let done = repo.pm(&["finished", "--json", "--task", "a"]).json();
    let said = &done["attributes"];
    assert_eq!((&said["verifier_exit"], &said["verifier_summary"]), (&0.into(), &"fine".into()));
    assert_eq!(said["verifier"], "test -e built && echo fine");
    repo.assert_sound();
}

#[test]
fn nothing_of_the_ledger_runs_that_this_machine_does_not_allow() {
    let repo = Repo::new();
    let verifier = "touch ran; echo \"it's\"";
    repo.plan_with("a", &["--verifier", verifier]);
    repo.claim("a");
    report(&repo, "first", "");
    let remedy = r#"git config --add pm.allowVerifier 'touch ran; echo "it'\''s"'"#;
    for allowed in [None, Some("touch ran"), Some("touch ran; echo \"it's\" "), Some("?*")] {
        allowed.map(|allowed| repo.git(&["config", "--replace-all", "pm.allowVerifier", allowed]));
        let error = repo.pm(&["finished", "--json", "--task", "a"]).fails(9).error();
        assert_eq!(error["remedy"], remedy);
        assert!(!repo.path().join("ran").exists());
    }
    // What it says is what helps.
    assert!(repo.program("sh", &["-c", remedy]).status().expect("sh runs").success());
    repo.pm(&["finished", "--task", "a"]).ok();
    assert!(repo.path().join("ran").exists());
}

#[test]
fn show_and_log_tell_people_what_the_verifier_said() {
    let told = |repo: &Repo| [&["show", "--task", "a"][..], &["log", "--task", "a"]].map(|args| repo.pm(args).ok());
    let repo = reported("seq 9", &[]);
    for outcome in told(&repo) {
        assert!(!outcome.stdout.contains('→'), "it was not asked yet: {}", outcome.stdout);
    }
    repo.pm(&["finished", "--task", "a"]).ok();
    for outcome in told(&repo) {
        let lines =
            "    verifier: seq 9 → exit 0\n      1\n      2\n      3\n      4\n      5\n      6\n      … 3 more lines";
        assert!(outcome.stdout.contains(lines), "{}", outcome.stdout);
    }

    let repo = reported("exit 1\n# for ever", &[]);
    repo.pm(&["finished", "--task", "a", "--skip-verifier", "--note", "checked by hand"]).ok();
    for outcome in told(&repo) {
        assert!(outcome.stdout.contains("\n    verifier: exit 1 … → skipped\n"), "{}", outcome.stdout);
    }

    let repo = Repo::new();
    let verifier = "echo it does not build; exit 3";
    repo.git(&["config", "--add", "pm.allowVerifier", verifier]);
    repo.plan_with("a", &["--verifier", verifier]);
    repo.pm(&["work", "--until-empty", "--on-failure", "reject", "--", "true"]);
    for outcome in told(&repo) {
        let lines = format!("    verifier: {verifier} → exit 3\n      it does not build\n");
        assert!(outcome.stdout.contains(&lines), "{}", outcome.stdout);
    }
}

#[test]
fn a_rejection_asks_no_verifier_and_a_skip_needs_a_reason() {
    let repo = reported("touch ran", &[]);
    for options in [
        &["--skip-verifier"][..],
        &["--skip-verifier", "--note", "too short"],
        &["--skip-verifier", "--note", "         x         "],
    ] {
        repo.pm(&[&["finished", "--task", "a"], options].concat()).fails(13).says("10 characters");
    }
    repo.pm(&["finished", "--task", "a", "--skip-verifier", "--rejected"]).fails(2);
    repo.pm(&["finished", "--task", "a", "--skip-verifier", "--note", "checked by hand"]).ok();
    let said = &status(&repo)["attributes"];
    assert_eq!((&said["verifier_exit"], &said["reason"]), (&(-1).into(), &"checked by hand".into()));

    repo.plan_with("b", &["--verifier", "touch ran"]);
    repo.claim("b");
    repo.pm(&["report", "--task", "b", "--title", "no"]).ok();
    repo.pm(&["finished", "--task", "b", "--rejected"]).ok();
    assert!(!repo.path().join("ran").exists(), "it was asked");
    repo.plan("c");
    repo.claim("c");
    repo.pm(&["report", "--task", "c", "--title", "no"]).ok();
    repo.pm(&["finished", "--task", "c", "--skip-verifier"]).fails(13);
    repo.pm(&["finished", "--task", "c", "--skip-verifier", "--note", "there is none here"]).ok();
}

#[test]
fn an_attestation_is_read_from_the_report_that_is_the_proof() {
    let repo = Repo::new();
    repo.plan_with("a", &["--verifier", "prompt:all links work"]);
    repo.claim("a");
    let attested = "## Verifier Attestation\nverifier: prompt:all links work\nverdict: PASS\nevidence: 12 of 12 open\n";
    report(&repo, "checked", attested);
    report(&repo, "one more thing", "without an attestation");
    repo.pm(&["finished", "--task", "a"]).fails(9).says("## Verifier Attestation");
    report(&repo, "not quite", &attested.replace("PASS", "PASSED"));
    repo.pm(&["finished", "--task", "a"]).fails(9).says("verdict");
    report(&repo, "checked again", attested);
    let done = repo.pm(&["finished", "--json", "--task", "a"]).json();
    assert_eq!(done["attributes"]["verifier_summary"], "12 of 12 open");
}

#[test]
fn the_claim_is_kept_alive_while_the_verifier_runs() {
    let repo = waiting_repo(&["--ttl", "1s"]);
    let process = finishing(&repo, &[]);
    let beats = || repo.pm(&["show", "--json", "--task", "a"]).json()["heartbeat_count"].as_u64();
    until("it has outlived two leases", || (beats() >= Some(6)).then_some(()));
    let swept = repo.pm_as("op", &["sweep", "--json"]).json();
    assert_eq!(swept["stale"], 0, "{swept}");
    let_go(&repo);
    process.outcome().ok();
    assert_eq!(repo.phase("a"), "done");
}

#[test]
fn a_report_that_arrives_meanwhile_was_not_verified() {
    let repo = waiting_repo(&[]);
    let first = text(&repo.pm(&["show", "--json", "--task", "a"]).json()["reports"][0]["sha"]);
    let process = finishing(&repo, &[]);
    let second = report(&repo, "second", "");
    let_go(&repo);
    let error = process.outcome().fails(8).error();
    assert_eq!(error["code"], "race_lost");
    assert_eq!((&error["report"], &error["newest_report"]), (&first.as_str().into(), &second.as_str().into()));
    let message = text(&error["message"]);
    let parts = [first.as_str(), "not the newest", second.as_str(), "the same command again"];
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    assert_eq!(repo.phase("a"), "working");
    repo.pm(&["finished", "--task", "a"]).ok();
}

#[test]
fn a_claim_that_is_lost_meanwhile_ends_the_verifier_and_who_took_it_is_told() {
    let reclaimed = &["reclaim", "--task", "a", "--reason", "too slow"][..];
    let taken = &["executing", "--task", "a"][..];
    let cancelled = &["cancel", "--task", "a"][..];
    for (steps, exit, parts) in [
        (&[reclaimed][..], 6, &["reclaimed by op (too slow)"][..]),
        (&[reclaimed, taken], 12, &["reclaimed by op (too slow), then claimed by op, attempt 2"]),
        (&[cancelled], 6, &["cancelled by op"]),
    ] {
        let repo = waiting_repo(&["--ttl", "1s"]);
        let process = finishing(&repo, &[]);
        // So that it sees all of the steps or none.
        process.signal(Signal::STOP);
        steps.iter().for_each(|step| drop(repo.pm_as("op", step).ok()));
        let tip = repo.tip("a");
        process.signal(Signal::CONT);
        let error = process.outcome().fails(exit).error();
        let message = text(&error["message"]);
        let same = ["while its report was verified", "nothing was recorded", "stop working on it"];
        assert!(parts.iter().chain(&same).all(|part| message.contains(part)), "{message}");
        is_gone(&repo);
        assert_eq!(repo.tip("a"), tip);
    }
}

#[test]
fn a_claim_that_is_lost_just_before_the_verifier_passes_closes_nothing() {
    // So long a lease that no heartbeat comes in between.
    let repo = waiting_repo(&["--ttl", "1h"]);
    let process = finishing(&repo, &[]);
    repo.pm_as("op", &["reclaim", "--task", "a"]).ok();
    let_go(&repo);
    let error = process.outcome().fails(6).error();
    assert_eq!(error["status"], "new");
    let message = text(&error["message"]);
    assert!(message.contains("reclaimed by op; nothing was recorded"), "{message}");
}

#[test]
fn whoever_is_told_to_end_ends_the_verifier_and_records_nothing() {
    // Where the tests themselves run under `nohup`, what they start ignores a hang-up as well.
    let heeded = |signal: &Signal| pm::signals::heeded([signal.as_raw()]).next().is_some();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP].into_iter().filter(heeded) {
        let repo = waiting_repo(&[]);
        let process = finishing(&repo, &[]);
        let tip = repo.tip("a");
        process.signal(signal);
        process.outcome().fails(1);
        is_gone(&repo);
        assert_eq!((repo.tip("a"), repo.phase("a")), (tip, "working".to_owned()));
    }
}

/// Whether a process has started the guard of a verifier.
#[cfg(target_os = "linux")]
fn has_guard(pid: u32) -> bool {
    let is_guard = |entry: fs::DirEntry| {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let parent = read("stat").rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parent == Some(pid) && read("cmdline").contains("verifier-guard")
    };
    fs::read_dir("/proc").expect("listed").flatten().any(is_guard)
}

/// Kills whoever asks the verifier, once that has begun and is guarded, and waits until nothing of it runs.
#[cfg(target_os = "linux")]
fn killed(process: &Process, repo: &Repo) {
    let begun = repo.outside().join("begun");
    until("the verifier has begun", || fs::read_to_string(&begun).is_ok_and(|pid| pid.ends_with('\n')).then_some(()));
    until("it is guarded", || has_guard(process.0.id()).then_some(()));
    process.signal(Signal::KILL);
    is_gone(repo);
}

#[cfg(target_os = "linux")]
#[test]
fn a_verifier_ends_with_the_finish_that_was_killed() {
    let repo = waiting_repo(&[]);
    killed(&finishing(&repo, &[]), &repo);
    assert_eq!(repo.phase("a"), "working");
}

#[cfg(target_os = "linux")]
#[test]
fn a_verifier_that_is_deaf_and_left_its_group_ends_with_the_runner_that_was_killed() {
    let repo = Repo::new();
    // timeout makes a group of its own.
    let script = repo.outside().join("deaf.sh");
    fs::write(&script, format!("trap '' TERM\n{}", waiting(repo.outside()))).expect("written");
    let verifier = format!("timeout 1000 sh '{}'; true", script.display());
    repo.git(&["config", "--add", "pm.allowVerifier", &verifier]);
    repo.plan_with("a", &["--verifier", &verifier]);
    let process = Process::start(&mut repo.pm_command(&["work", "--until-empty", "--", "true"]));
    killed(&process, &repo);
    assert_eq!(repo.phase("a"), "working");
}

#[test]
fn a_signal_that_it_was_started_to_ignore_ends_neither_a_finish_nor_its_verifier() {
    let repo = waiting_repo(&["--ttl", "1s"]);
    let pm = repo.pm_command(&["finished", "--task", "a"]);
    let script = "trap '' HUP INT; exec \"$0\" \"$@\"";
    let mut nohup = repo.program("sh", &["-c", script]);
    nohup.arg(pm.get_program()).args(pm.get_args()).env("PM_AGENT_ID", AGENT);
    let process = Process::start(&mut nohup);
    let begun = repo.outside().join("begun");
    until("the verifier has begun", || begun.exists().then_some(()));
    process.signal(Signal::HUP);
    process.signal(Signal::INT);
    let beats = || repo.pm(&["show", "--json", "--task", "a"]).json()["heartbeat_count"].as_u64();
    let before = beats();
    until("it goes on", || (beats() > before).then_some(()));
    let_go(&repo);
    process.outcome().ok();
    assert_eq!(repo.phase("a"), "done");
}

#[test]
fn a_verifier_that_takes_too_long_is_ended_with_what_it_started() {
    let repo = Repo::new();
    let verifier = format!("{} & wait", waiting(repo.outside()));
    repo.git(&["config", "--add", "pm.allowVerifier", &verifier]);
    repo.plan_with("a", &["--verifier", &verifier]);
    repo.claim("a");
    report(&repo, "first", "");
    let error = repo.pm(&["finished", "--json", "--task", "a", "--verifier-timeout", "300ms"]).fails(9).error();
    assert_eq!((&error["verifier_exit"], &error["timed_out"]), (&124.into(), &true.into()));
    assert!(text(&error["verifier_summary"]).starts_with("timed out after 0.3 s"), "{error}");
    is_gone(&repo);
}

#[test]
fn what_speaks_against_closing_is_said_before_a_verifier_is_started() {
    let repo = reported("touch ran", &[]);
    repo.plan_with("child", &["--parent", "a"]);
    let error = repo.pm(&["finished", "--json", "--task", "a"]).fails(14).error();
    assert_eq!(error["children"][0]["slug"], "child");
    repo.pm_as("other", &["finished", "--task", "a"]).fails(12);
    assert!(!repo.path().join("ran").exists());
    repo.pm(&["cancel", "--task", "child"]).ok();
    repo.pm(&["finished", "--task", "a"]).ok();
}

#[test]
fn a_delivery_waits_for_the_verifier() {
    let repo = reported("test -e built", &[]);
    repo.git(&["commit", "-q", "--allow-empty", "-m", "work"]);
    let head = repo.git(&["rev-parse", "HEAD"]);
    repo.pm(&["finished", "--task", "a", "--deliver", "out"]).fails(9);
    assert_eq!(repo.git_outcome(&["rev-parse", "-q", "--verify", "refs/heads/out"]).code, 1);
    fs::write(repo.path().join("built"), "").expect("written");
    repo.pm(&["finished", "--task", "a", "--deliver", "out"]).ok();
    assert_eq!(repo.git(&["rev-parse", "refs/heads/out"]), head);
}
