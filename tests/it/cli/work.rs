//! The runner: what a command is told, what is recorded of it, and when there is nothing more to do.

use std::fs;

use crate::support::confined::{has, missing};
use crate::support::redact::Redactor;
use crate::support::runner::{event, events, life, start, told, work, written};
use crate::support::{AGENT, Outcome, Repo, snapshot, task_ref, text, until};
use rustix::process::Signal;

/// What `git show` prints of the log that the newest report of a task holds, byte for byte.
fn log(repo: &Repo, slug: &str) -> Vec<u8> {
    let report = text(&repo.pm(&["show", "--json", "--task", slug]).json()["reports"][0]["sha"]);
    repo.program("git", &["show", &format!("{report}:output.log")]).output().expect("git runs").stdout
}

/// The body of the newest report of a task.
fn report(repo: &Repo, slug: &str) -> String {
    text(&repo.pm(&["show", "--json", "--task", slug]).json()["reports"][0]["body"])
}

#[test]
fn a_command_is_told_its_task_and_what_it_printed_is_reported() {
    let repo = Repo::new();
    let task = repo.plan_with("a", &["--text", "Line one\nLine two", "--queue", "q"]);
    let script =
        "env | grep ^PM_ | grep -v BODY_FILE | sort >$OUT/env; cp $PM_BODY_FILE $OUT/body; echo out; echo err >&2";
    let outcome = work(&repo, &["--queue", "q"], script).ok();
    assert_eq!(told(&outcome), ["started a", "done a", "summary"]);
    let done = event(&outcome, "done");
    let claim = text(&done["claim"]);
    let expected = [
        format!("PM_AGENT_ID={AGENT}"),
        "PM_ATTEMPT=1".to_owned(),
        format!("PM_CLAIM={claim}"),
        "PM_FENCE=2".to_owned(),
        "PM_QUEUE=q".to_owned(),
        "PM_SLUG=a".to_owned(),
        format!("PM_TASK={task}"),
        "PM_TITLE=Do a".to_owned(),
    ];
    assert_eq!(written(&repo, "env").lines().collect::<Vec<_>>(), expected);
    assert_eq!(written(&repo, "body"), "Line one\nLine two");
    let shown = repo.pm(&["show", "--json", "--task", "q/a"]).json();
    let body = text(&shown["reports"][0]["body"]);
    assert!(body.starts_with("Attempt: 1\nResult: exit 0\nDuration: "), "{body}");
    assert!(body.ends_with("Output: 8 bytes\nLog: output.log\n\nout\nerr\n"), "{body}");
    assert_eq!(shown["reports"][0]["sha"], done["report"]);
    let closed = shown["statuses"].as_array().and_then(|statuses| statuses.last()).expect("a status");
    assert_eq!(closed["links"]["proof"], done["report"]);
    assert_eq!(log(&repo, "q/a"), b"out\nerr\n");
    assert_eq!(fs::read_dir(repo.git_dir().join("pm/work")).expect("listed").count(), 0, "the text is gone");
    repo.assert_sound();
}

#[test]
fn a_failing_command_rejects_its_task_or_gives_it_back_as_asked() {
    let repo = Repo::new();
    repo.plan("a");
    let outcome = work(&repo, &[], "exit 3").exits(1);
    assert_eq!(told(&outcome), ["started a", "rejected a", "summary"]);
    assert_eq!(
        (&event(&outcome, "rejected")["exit"], &event(&outcome, "rejected")["why"]),
        (&3.into(), &"exit 3".into())
    );
    assert_eq!(repo.state("a")["status"], "rejected");

    repo.plan_with("b", &["--max-attempts", "2"]);
    let outcome = work(&repo, &["--on-failure", "release"], "echo try $PM_ATTEMPT; exit 4").exits(1);
    assert_eq!(told(&outcome), ["started b", "failed b", "started b", "rejected b", "summary"]);
    let life = life(&repo, "b");
    let expected =
        ["Task", "TaskStatus new", "TaskStatus working", "TaskReport", "TaskStatus new", "TaskStatus working"];
    assert_eq!(life[..6], expected.map(|record| format!("{AGENT} {record}")));
    assert_eq!(life[6..], ["TaskReport", "TaskStatus rejected"].map(|record| format!("{AGENT} {record}")));
    repo.assert_sound();
}

#[test]
fn a_command_that_is_ended_by_a_signal_has_failed() {
    let repo = Repo::new();
    repo.plan("a");
    let outcome = work(&repo, &[], "kill -SEGV $$").exits(1);
    let rejected = event(&outcome, "rejected");
    assert_eq!((&rejected["exit"], &rejected["signal"]), (&().into(), &11.into()));
    assert_eq!(rejected["why"], "ended by SIGSEGV (signal 11)");
}

#[test]
fn a_command_that_cannot_be_started_does_not_burn_the_queue() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    let outcome = repo.pm(&["work", "--json", "--", "no-such-program", "x"]).exits(1);
    assert_eq!(told(&outcome).iter().filter(|event| event.starts_with("not-started")).count(), 3);
    let error: serde_json::Value = serde_json::from_str(outcome.stderr.lines().last().expect("said")).expect("JSON");
    let message = text(&error["error"]["message"]);
    assert!(message.contains("3 times in a row") && message.contains("no-such-program: No such file"), "{message}");
    assert_eq!((repo.phase("a"), repo.phase("b")), ("new".to_owned(), "new".to_owned()));
    // Each task that it could not be started for went back.
    work(&repo, &[], "true").ok();
    assert_eq!((repo.phase("a"), repo.phase("b")), ("done".to_owned(), "done".to_owned()));
}

#[test]
fn a_flood_of_output_is_cut_and_the_report_says_so() {
    let repo = Repo::new();
    repo.plan("a");
    let script = "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last";
    work(&repo, &["--log-limit", "1000"], script).ok();
    let body = report(&repo, "a");
    assert!(body.contains("Output: 100000012 bytes, of which this is the end\n"), "{}", &body[..200]);
    assert!(body.contains("Log: output.log, without 99999012 bytes in its middle\n"), "{}", &body[..200]);
    assert!(body.ends_with("x\nlast\n") && (65_000..67_000).contains(&body.len()), "{}", body.len());
    let log = String::from_utf8(log(&repo, "a")).expect("text");
    assert!(log.starts_with("first\nxxx") && log.ends_with("x\nlast\n"), "{log}");
    assert!(log.contains("x\n[pm: 99999012 bytes are left out here]\nx") && log.len() < 1_100, "{log}");
    repo.assert_sound();
}

#[test]
fn binary_output_is_kept_byte_for_byte_and_harmless_as_text() {
    let repo = Repo::new();
    repo.plan("a");
    work(&repo, &[], "printf 'a\\000\\377\\033[31mred\\nRecord: TaskStatus\\nStatus: done\\n'").ok();
    assert_eq!(log(&repo, "a"), b"a\0\xff\x1b[31mred\nRecord: TaskStatus\nStatus: done\n");
    let body = report(&repo, "a");
    assert!(body.ends_with("\n\na\u{fffd}[31mred\nRecord: TaskStatus\nStatus: done\n"), "{body:?}");
    repo.assert_sound();
}

#[test]
fn nothing_of_the_output_is_recorded_where_that_is_asked() {
    let repo = Repo::new();
    repo.plan("a");
    work(&repo, &["--no-output"], "echo secret").ok();
    assert!(report(&repo, "a").contains("Result: exit 0"));
    let all = repo.git(&["log", "-p", &task_ref("a")]);
    assert!(!all.contains("secret"), "{all}");
    // Nor are the arguments of the command ever.
    assert!(!all.contains("echo"), "{all}");
}

#[test]
fn a_command_may_settle_its_task_itself() {
    let repo = Repo::new();
    let pm = env!("CARGO_BIN_EXE_pm");
    for (slug, verb) in [("a", "finished"), ("b", "finished --rejected"), ("c", "release")] {
        repo.plan(slug);
        let script = format!("{pm} report --task $PM_TASK --title Mine && {pm} {verb} --task $PM_TASK");
        let outcome = work(&repo, &["--max-tasks", "1"], &script);
        let fate = ["done", "rejected", "released"][usize::from(slug.as_bytes()[0] - b'a')];
        assert_eq!(told(&outcome), [format!("started {slug}"), format!("{fate} {slug}"), "summary".to_owned()]);
        assert!(text(&event(&outcome, fate)["why"]).ends_with("the command settled the task itself"), "{outcome:?}");
        assert_eq!(outcome.code, i32::from(slug == "b"));
    }
}

#[test]
fn it_ends_when_nothing_is_runnable_and_nothing_will_be() {
    let repo = Repo::new();
    repo.plan("a");
    repo.plan_with("b", &["--depends-on", "a"]);
    repo.plan_with("c", &["--depends-on", "b"]);
    // Two agents, and at first work for one: the other waits for what the first will set free.
    let outcome = work(&repo, &["--agents", "2"], "[ $PM_SLUG != b ]").exits(1);
    let told = told(&outcome);
    assert_eq!(told, ["started a", "done a", "started b", "rejected b", "left-blocked", "summary"]);
    let left = event(&outcome, "left-blocked");
    assert_eq!(left["blocked"][0]["place"], "default/c");
    assert_eq!(left["blocked"][0]["waits_for"][0], "default/b is rejected");
}

#[test]
fn a_task_that_came_back_is_not_taken_again_at_once() {
    let repo = Repo::new();
    repo.plan("a");
    let release = format!("{} release --task $PM_TASK", env!("CARGO_BIN_EXE_pm"));
    let outcome = work(&repo, &["--max-tasks", "2"], &release).ok();
    assert_eq!(told(&outcome), ["started a", "released a", "started a", "released a", "summary"]);
    assert!(event(&outcome, "summary")["took_ms"].as_u64().expect("a number") >= 1_000, "{outcome:?}");
}

#[test]
fn an_attempt_that_succeeds_makes_up_for_one_that_failed() {
    let repo = Repo::new();
    repo.plan("a");
    let outcome = work(&repo, &["--on-failure", "release"], "[ $PM_ATTEMPT = 2 ]").ok();
    assert_eq!(told(&outcome), ["started a", "failed a", "started a", "done a", "summary"]);
}

#[test]
fn it_waits_for_what_others_are_working_on() {
    let repo = Repo::new();
    repo.plan("a");
    repo.plan_with("b", &["--depends-on", "a"]);
    repo.claim_as("w2", "a");
    let mut runner = start(&repo, &[], "true");
    let mut lines = runner.lines();
    let waits: serde_json::Value = serde_json::from_str(&lines.next().expect("a line")).expect("JSON");
    assert_eq!(
        (&waits["event"], &waits["blocked"][0]["waits_for"][0]),
        (&"waiting".into(), &"default/a is working".into())
    );
    repo.pm_as("w2", &["report", "--task", "a", "--title", "T"]).ok();
    repo.pm_as("w2", &["finished", "--task", "a"]).ok();
    let rest: Vec<String> = lines.collect();
    assert!(rest[0].contains("started") && rest[1].contains("done"), "{rest:?}");
    runner.outcome().ok();
}

#[test]
fn a_runner_for_ever_takes_what_is_planned_later() {
    let repo = Repo::new();
    let runner = start(&repo, &["--forever", "--agents", "3"], "echo $PM_SLUG >$OUT/$PM_SLUG");
    for slug in ["a", "b"] {
        repo.plan(slug);
        assert_eq!(written(&repo, slug), slug);
    }
    until("both are done", || (repo.phase("a") == "done" && repo.phase("b") == "done").then_some(()));
    runner.signal(Signal::TERM);
    runner.outcome().ok();
}

#[test]
fn it_takes_no_more_tasks_than_it_may_and_only_those_that_are_meant() {
    let repo = Repo::new();
    for slug in ["a", "b", "c", "d"] {
        repo.plan_with(slug, &["--label", if slug == "a" { "red" } else { "blue" }]);
    }
    let outcome = work(&repo, &["--agents", "2", "--max-tasks", "2", "--label", "blue"], "true").ok();
    assert_eq!(event(&outcome, "summary")["done"], 2);
    assert_eq!((repo.phase("a"), repo.phase("d")), ("new".to_owned(), "new".to_owned()));
}

#[test]
fn several_agents_have_names_of_their_own_and_one_has_the_callers() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    // Each waits for the other, so that both have one.
    let script = "echo >$OUT/$PM_SLUG; until [ -e $OUT/a -a -e $OUT/b ]; do sleep 0.01; done";
    let outcome = work(&repo, &["--agents", "2"], script).ok();
    let mut agents: Vec<String> =
        events(&outcome).iter().filter(|event| event["event"] == "done").map(|event| text(&event["agent"])).collect();
    agents.sort();
    assert_eq!(agents, ["w1-1", "w1-2"]);
}

#[test]
fn people_get_a_line_an_event_and_a_sum() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    repo.plan_with("c", &["--depends-on", "b"]);
    let script = ["sh", "-c", "[ $PM_SLUG = a ]"];
    let told = repo.pm(&[&["work", "--"], &script[..]].concat());
    let none = repo.pm(&[&["work", "--quiet", "--"], &script[..]].concat());
    assert_eq!(none.stdout, "");
    let mut redactor = Redactor::new();
    snapshot::check("work.txt", &snapshot::transcript(&mut redactor, &[told, none]));
}

#[test]
fn a_terminal_shows_a_line_an_agent_and_what_went_wrong() {
    if !has("script") && missing("script") {
        return;
    }
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    let pm = env!("CARGO_BIN_EXE_pm");
    let seen = |agents: &str, script: &str| {
        let line = format!("stty rows 8 cols 60; {pm} work --agents {agents} -- sh -c '{script}'");
        let mut command = repo.program("script", &["--quiet", "--command", &line, "/dev/null"]);
        Outcome::of(&[&line], command.env("PM_AGENT_ID", AGENT)).stdout
    };
    let screen = seen("2", "echo making $PM_SLUG; sleep 0.7; [ $PM_SLUG = a ]");
    for line in ["  default/a  ", "lease 4 min  making a", " rejected default/b after ", "1 done, 1 rejected in "] {
        assert!(screen.contains(line), "{line} in {screen}");
    }
    assert!(!screen.contains("started default/a"), "{screen}");
    // More agents than rows: each drawing stays on the screen.
    repo.plan("c");
    let screen = seen("20", "sleep 0.6");
    assert!(screen.contains("... and 15 more") && screen.contains("\u{1b}[7A"), "{screen}");
}

#[test]
fn a_command_cannot_ask_the_terminal_of_the_runner() {
    if !has("script") && missing("script") {
        return;
    }
    let repo = Repo::new();
    repo.plan("a");
    let line = format!("{} work -- sh -c 'read answer </dev/tty'", env!("CARGO_BIN_EXE_pm"));
    let mut command = repo.program("script", &["--quiet", "--return", "--command", &line, "/dev/null"]);
    // It would be stopped otherwise, as what runs in the background of a terminal is, and wait for ever.
    Outcome::of(&[&line], command.env("PM_AGENT_ID", AGENT)).exits(1);
    assert_eq!(repo.phase("a"), "rejected");
}

#[test]
fn a_runner_that_was_started_deaf_to_its_children_hears_them() {
    let repo = Repo::new();
    repo.plan("a");
    let line = format!("trap '' CHLD; exec {} work --quiet -- true", env!("CARGO_BIN_EXE_pm"));
    Outcome::of(&[&line], &mut repo.program("sh", &["-c", &line])).ok();
    assert_eq!(repo.phase("a"), "done");
}

#[test]
fn a_program_with_a_long_name_cannot_be_started_either() {
    let repo = Repo::new();
    repo.plan("a");
    let outcome = repo.pm(&["work", "--json", "--max-tasks", "1", "--", &"ä".repeat(1_000)]).exits(1);
    assert_eq!(told(&outcome), ["started a", "not-started a", "summary"]);
}

#[test]
fn the_text_of_a_long_task_is_not_taken_for_one_that_was_left_behind() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan_with(slug, &["--text", "Words"]);
    }
    let script = "touch -d '3 days ago' $PM_BODY_FILE; echo >$OUT/old; until [ -e $OUT/go ]; do sleep 0.02; done; cat $PM_BODY_FILE";
    let runner = start(&repo, &["--max-tasks", "1"], script);
    written(&repo, "old");
    let left = repo.git_dir().join("pm").join("work").join("left.txt");
    fs::write(&left, "").expect("written");
    repo.program("touch", &["-d", "3 days ago", &left.display().to_string()]).status().expect("touched");
    work(&repo, &["--max-tasks", "1"], "true").ok();
    assert!(!left.exists(), "what was left is gone");
    fs::write(repo.outside().join("go"), "").expect("written");
    runner.outcome().ok();
}

#[test]
fn wrong_calls_change_nothing() {
    let repo = Repo::new();
    repo.plan("a");
    let refs = repo.refs();
    for args in [
        &["work"][..],
        &["work", "--ttl", "500ms", "--", "true"],
        &["work", "--agents", "0", "--", "true"],
        &["work", "--forever", "--until-empty", "--", "true"],
        &["work", "--exec-body", "--", "true"],
        &["work", "--exec-body"],
        &["work", "--no-output", "--log-limit", "5", "--", "true"],
        &["work", "--worktree-root", "x", "--", "true"],
        &["work", "--on-failure", "ignore", "--", "true"],
        &["work", "true"],
    ] {
        repo.pm(args).fails(2);
    }
    assert_eq!(repo.refs(), refs);
}

#[test]
fn a_task_that_cannot_be_read_is_named_once_and_the_others_are_worked_off() {
    let repo = Repo::new();
    repo.plan("a");
    repo.git(&["commit", "--quiet", "--allow-empty", "--message", "no record"]);
    repo.git(&["update-ref", &task_ref("bad"), "HEAD"]);
    let outcome = work(&repo, &["--agents", "2"], "true").ok();
    assert_eq!(told(&outcome), ["started a", "done a", "summary"]);
    assert_eq!(outcome.stderr.matches("refs/pm/tasks/default/bad was left out").count(), 1, "{outcome:?}");
}

#[test]
fn texts_run_only_where_this_machine_allows_it() {
    let repo = Repo::new();
    repo.plan_with("a", &["--text", "echo ran $PM_SLUG"]);
    repo.plan("b");
    repo.pm(&["work", "--exec-body"]).fails(2).says("git config --add pm.allowVerifier '*'");
    repo.git(&["config", "--add", "pm.allowVerifier", "scripts/check.sh"]);
    repo.pm(&["work", "--exec-body"]).fails(2);
    repo.git(&["config", "--add", "pm.allowVerifier", "*"]);
    let outcome: Outcome = repo.pm(&["work", "--exec-body", "--json"]).exits(1);
    assert_eq!(told(&outcome), ["started a", "done a", "started b", "rejected b", "summary"]);
    assert_eq!(event(&outcome, "rejected")["why"], "the task has no text to run");
    assert!(report(&repo, "a").ends_with("ran a\n"));
}
