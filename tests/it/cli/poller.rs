//! The poller as a machine sees it: started, asked, stopped, and at work.

use std::fs;
use std::process::{Child, Stdio};

use pm::poll::heartbeat::Heartbeat;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::confined::{has, missing};
use crate::support::poller::{self, Background, cycle, file, status};
use crate::support::process::is_alive;
use crate::support::{Outcome, Repo, until};

#[test]
fn a_dead_workers_task_comes_back_by_itself() {
    let repo = Repo::new();
    repo.plan("a");
    repo.pm_as("w2", &["executing", "--task", "a", "--ttl", "300ms"]).ok();
    let poller = poller::run(&repo, &["--interval", "20ms"]);
    until("it is reclaimed", || (repo.phase("a") == "new").then_some(()));
    poller.signal(Signal::TERM);
    let said = poller.outcome().ok().stderr;
    assert!(said.contains("reclaimed default/a from w2, silent for "), "{said}");
    let log = repo.git(&["log", "-1", "--format=%an", &crate::support::task_ref("a")]);
    assert!(log.starts_with("poller@"), "the machine did it, not the worker that started it: {log}");
    repo.assert_sound();
}

#[test]
fn one_cycle_is_for_cron_and_takes_the_lock_too() {
    let repo = Repo::new();
    repo.plan("a");
    let cycle = repo.pm(&["poll", "run", "--once", "--json"]).json();
    assert_eq!((&cycle["tasks"], &cycle["errors"], &cycle["interrupted"]), (&1.into(), &0.into(), &false.into()));
    assert_eq!(status(&repo)["lastCycle"], cycle);
    assert!(!file(&repo, "poll.pid").exists());
    let _poller = poller::run(&repo, &["--interval", "1h"]);
    repo.pm(&["poll", "run", "--once"]).fails(1).says("a poller runs here already, as process ");
    let error = repo.pm(&["poll", "start", "--json"]).fails(1).error();
    assert_eq!(error["pid"], status(&repo)["pid"]);
}

#[test]
fn a_failing_part_is_counted_and_makes_one_cycle_exit_with_1() {
    let repo = Repo::new();
    repo.plan("good");
    let commit = repo.git(&["commit-tree", "-m", "foreign", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"]);
    repo.git(&["update-ref", "refs/pm/tasks/default/bad", &commit]);
    let outcome = repo.pm(&["poll", "run", "--once", "--json"]).exits(1);
    let cycle = outcome.stdout_json();
    assert_eq!((&cycle["tasks"], &cycle["errors"]), (&1.into(), &1.into()));
    assert!(outcome.stderr.contains("refs/pm/tasks/default/bad was left out"), "{outcome:?}");
    // What is wrong is said when it begins, not in every cycle, and stops nothing.
    let poller = poller::run(&repo, &["--interval", "1ms", "--json"]);
    let started = status(&repo)["startedAt"].clone();
    until("twenty cycles", || {
        let status = status(&repo);
        (status["startedAt"] == started && status["lastCycle"]["errors"] == 1).then_some(())
    });
    poller.signal(Signal::INT);
    let outcome = poller.outcome().ok();
    assert_eq!(outcome.stderr.matches("was left out").count(), 1, "{outcome:?}");
    assert!(outcome.stdout.lines().count() > 1, "one JSON value a cycle");
}

#[test]
fn a_start_returns_when_the_lock_is_held_and_a_stop_when_the_process_is_gone() {
    let repo = Repo::new();
    let _background = Background(&repo);
    for _ in 0..5 {
        let started = repo.pm(&["poll", "start", "--json", "--interval", "5ms"]).json();
        let status = repo.pm(&["poll", "status", "--json"]).json();
        assert_eq!((&status["running"], &status["pid"]), (&true.into(), &started["pid"]));
        let stopped = repo.pm(&["poll", "stop", "--json"]).json();
        assert_eq!(stopped["stopped"], started["pid"]);
        assert!(!is_alive(started["pid"].as_u64().expect("a number")));
        assert!(!file(&repo, "poll.pid").exists());
    }
    assert_eq!(repo.pm(&["poll", "stop"]).ok().stdout, "no poller runs here\n");
    assert_eq!(repo.pm(&["poll", "stop", "--json"]).json()["stopped"], Value::Null);
}

#[test]
fn a_started_poller_survives_the_shell_that_started_it_and_has_a_session_of_its_own() {
    let repo = Repo::new();
    let _background = Background(&repo);
    let pm = env!("CARGO_BIN_EXE_pm");
    let line = format!("cd .git && GIT_DIR=. {pm} poll start --interval 5ms --json; kill -9 $$");
    let shell = Outcome::of(&["sh"], &mut repo.program("setsid", &["--wait", "sh", "-c", &line]));
    let pid = serde_json::from_str::<Value>(&shell.stdout).unwrap_or_else(|error| panic!("{error}: {shell:?}"))["pid"]
        .as_u64()
        .expect("a number");
    cycle(&repo);
    assert!(is_alive(pid) && status(&repo)["pid"] == pid);
    // pid (comm) state ppid pgrp session
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("alive");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    assert_eq!(fields[3], pid.to_string(), "the leader of its own session");
    let files: Vec<String> =
        (0..3).map(|fd| fs::read_link(format!("/proc/{pid}/fd/{fd}")).expect("open").display().to_string()).collect();
    assert_eq!(files[0], "/dev/null");
    assert!(files[1..].iter().all(|path| path.ends_with(".git/pm/poll.log")), "{files:?}");
}

#[test]
fn of_starts_at_the_same_moment_one_runs_round_after_round() {
    let repo = Repo::new();
    let _background = Background(&repo);
    for round in 0..10 {
        let starts: Vec<Child> = (0..2)
            .map(|_| {
                let args = ["poll", "start", "--json", "--interval", "2ms"];
                repo.pm_command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pm starts")
            })
            .collect();
        let outcomes: Vec<Outcome> = starts
            .into_iter()
            .map(|child| Outcome::from_output(&["start"], child.wait_with_output().expect("ended")))
            .collect();
        let (won, lost): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|outcome| outcome.code == 0);
        assert_eq!((won.len(), lost.len()), (1, 1), "round {round}: {won:?} {lost:?}");
        assert_eq!(lost[0].code, 1);
        assert_eq!(lost[0].error()["pid"], won[0].stdout_json()["pid"], "{lost:?}");
        assert_eq!(status(&repo)["pid"], won[0].stdout_json()["pid"]);
        repo.pm(&["poll", "stop"]).ok();
    }
}

#[test]
fn a_stopped_process_makes_up_for_nothing_when_it_goes_on() {
    let repo = Repo::new();
    let interval = 100;
    let poller = poller::run(&repo, &["--json", "--interval", &format!("{interval}ms")]);
    cycle(&repo);
    poller.signal(Signal::STOP);
    let stopped = std::time::Instant::now();
    let line = until("ten intervals", || {
        let line = repo.pm(&["poll", "status"]).ok().stdout;
        (stopped.elapsed().as_millis() > 10 * interval).then_some(line)
    });
    assert!(line.starts_with("running (process "), "{line}");
    // It cannot end while it is stopped, and that is said.
    repo.pm(&["poll", "stop", "--timeout", "50ms"]).fails(1).says("has not ended after 50 ms");
    poller.signal(Signal::CONT);
    let outcome = poller.outcome().ok();
    let cycles = outcome.stdout.lines().count();
    // Those before the stop, the one that may have been cut by it, and one afterwards.
    let before = usize::try_from(stopped.elapsed().as_millis() / interval).expect("few");
    assert!(cycles <= 4 && before >= 10, "{cycles} cycles: {outcome:?}");
}

#[test]
fn a_signal_ends_the_cycle_and_the_heartbeat_stays() {
    for signal in [Signal::TERM, Signal::INT] {
        let repo = Repo::new();
        let poller = poller::run(&repo, &["--interval", "1h"]);
        cycle(&repo);
        poller.signal(signal);
        poller.outcome().ok();
        assert!(!file(&repo, "poll.pid").exists());
        let line = repo.pm(&["poll", "status"]).exits(3).stdout;
        assert!(line.starts_with("not running, stopped after the cycle of "), "{line}");
    }
}

#[test]
fn a_signal_in_the_middle_of_a_sweep_leaves_the_rest_to_the_next() {
    const TASKS: usize = 200;
    let repo = Repo::new();
    let plan: String = (0..TASKS).map(|i| format!("{{\"slug\":\"t{i}\",\"title\":\"T\",\"ttl\":1}}\n")).collect();
    let plan = plan.replace(",\"ttl\":1", "");
    repo.pm_fed(&plan, &["bulk-plan", "--input", "-"]).ok();
    repo.git(&["config", "pm.ttl", "1ms"]);
    for i in 0..TASKS / 4 {
        repo.pm_as("w2", &["executing", "--task", &format!("t{i}")]).ok();
    }
    // Strace makes every rename of the sweep slow enough to be in the middle of it.
    if !has("strace") && missing("strace") {
        return;
    }
    let args = [
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        "trace=rename",
        "-e",
        "inject=rename:delay_enter=20000",
        env!("CARGO_BIN_EXE_pm"),
        "poll",
        "run",
        "--interval",
        "1h",
    ];
    let mut tracer = repo.program("strace", &args).stderr(Stdio::null()).spawn().expect("strace starts");
    until("it reclaims", || (repo.phase("t0") == "new").then_some(()));
    repo.pm(&["poll", "stop"]).ok();
    tracer.wait().expect("ended");
    let status = status(&repo);
    assert_eq!(status["lastCycle"]["interrupted"], true, "{status}");
    let reclaimed = status["lastCycle"]["reclaimed"].as_u64().expect("a number");
    assert!(reclaimed > 0 && reclaimed < TASKS as u64 / 4, "{status}");
    let next = repo.pm(&["poll", "run", "--once", "--json"]).json();
    assert_eq!(next["reclaimed"].as_u64().expect("a number") + reclaimed, TASKS as u64 / 4);
    repo.assert_sound();
}

#[test]
fn the_configuration_is_read_again_in_every_cycle_and_a_wrong_one_is_not_taken() {
    let repo = Repo::new();
    repo.git(&["config", "pm.interval", "10ms"]);
    repo.git(&["config", "--add", "pm.pollQueue", "other"]);
    repo.plan("a");
    repo.pm_as("w2", &["executing", "--task", "a", "--ttl", "1ms"]).ok();
    let poller = poller::run(&repo, &[]);
    let heartbeat = || Heartbeat::read(&file(&repo, "poll-status.json"));
    let is = |what: &str, seconds: f64| {
        until(what, || heartbeat().filter(|heartbeat| heartbeat.interval_seconds == seconds));
    };
    is("the first interval", 0.01);
    assert_eq!(cycle(&repo)["tasks"], 0, "the other queue is empty");
    repo.git(&["config", "pm.interval", "soon"]);
    until("the wrong value is counted", || heartbeat()?.last_cycle.filter(|cycle| cycle.errors == 1));
    assert_eq!(status(&repo)["running"], true, "a poller can be asked whatever else is wrong");
    is("the old interval", 0.01);
    repo.git(&["config", "pm.interval", "20ms"]);
    is("the new interval", 0.02);
    repo.git(&["config", "pm.pollQueue", "default"]);
    until("the queue is swept now", || (repo.phase("a") == "new").then_some(()));
    poller.signal(Signal::TERM);
    let outcome = poller.outcome().ok();
    assert_eq!(outcome.stderr.matches("Z the last good configuration is kept").count(), 1, "{outcome:?}");
    assert!(outcome.stderr.contains("no longer: the last good configuration is kept"), "{outcome:?}");
}

#[test]
fn what_the_poller_packs_stays_what_it_was() {
    const REFS: usize = pm::poll::maintenance::LOOSE_REFS + 10;
    let repo = Repo::new();
    let plan: String = (0..REFS).map(|i| format!("{{\"slug\":\"t{i}\",\"title\":\"T\"}}\n")).collect();
    repo.pm_fed(&plan, &["bulk-plan", "--input", "-"]).ok();
    // As many loose refs and objects as thousands of heartbeats leave.
    let dir = repo.path().join(".git/refs/pm/tasks/default");
    fs::create_dir_all(&dir).expect("made");
    for line in repo.git(&["for-each-ref", "--format=%(objectname) %(refname)", "refs/pm"]).lines() {
        let (id, name) = line.split_once(' ').expect("two words");
        fs::write(repo.path().join(".git").join(name), format!("{id}\n")).expect("written");
    }
    let blobs: String = (0..REFS).map(|i| format!("blob\ndata {}\n{i}\n", i.to_string().len())).collect();
    let script = "set -e; git init -q --bare ../other; git --git-dir=../other fast-import --quiet; for p in ../other/objects/pack/*.pack; do git unpack-objects -q < $p; done";
    let outcome = {
        use std::io::Write;
        let mut child = repo
            .program("sh", &["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("sh starts");
        child.stdin.take().expect("a pipe").write_all(blobs.as_bytes()).expect("read");
        Outcome::from_output(&["sh"], child.wait_with_output().expect("ended"))
    };
    outcome.ok();
    let (refs, loose) = (repo.refs(), repo.git(&["count-objects"]));
    let outcome = repo.pm(&["poll", "run", "--once", "--json"]);
    let cycle = outcome.stdout_json();
    let packed = |what: &str| usize::try_from(cycle[what].as_u64().expect("a number")).expect("few");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(packed("refsPacked") == REFS && packed("objectsPacked") > REFS / 2, "{cycle} of {loose}");
    let said = repo.pm(&["poll", "status"]).exits(3).stdout;
    assert!(said.contains(&format!("; packed {REFS} refs and about ")), "{said}");
    assert_eq!(repo.refs(), refs);
    assert_eq!(fs::read_dir(&dir).map_or(0, Iterator::count), 0, "no loose ref left");
    assert_eq!(
        repo.git(&["cat-file", "-p", &repo.git_fed(b"7", &["hash-object", "--stdin"])]),
        "7",
        "unreachable, and kept"
    );
    // Not again at once, and nothing to pack is no fault.
    let cycle = repo.pm(&["poll", "run", "--once", "--json"]).json();
    assert_eq!((&cycle["refsPacked"], &cycle["objectsPacked"]), (&0.into(), &0.into()));
}

#[test]
fn a_git_that_says_more_than_a_pipe_holds_and_fails_is_a_fault_of_one_step() {
    const REFS: usize = pm::poll::maintenance::LOOSE_REFS + 10;
    let repo = Repo::new();
    repo.plan("a");
    repo.pm(&["poll", "run", "--once"]).ok();
    let dir = repo.path().join(".git/refs/pm/tasks/other");
    fs::create_dir_all(&dir).expect("made");
    for i in 0..REFS {
        fs::write(dir.join(format!("t{i}")), "no ref\n").expect("written");
    }
    let bin = repo.outside().join("bin");
    fs::create_dir(&bin).expect("made");
    let script =
        "#!/bin/sh\ncase \" $* \" in *pack-refs*) head -c 300000 /dev/zero | tr '\\0' x >&2; exit 1;; esac\nexit 2\n";
    fs::write(bin.join("git"), script).expect("written");
    fs::set_permissions(bin.join("git"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
    let args = ["poll", "run", "--once", "--json", "--queue", "default"];
    let outcome = Outcome::of(&args, repo.pm_command(&args).env("PATH", path)).exits(1);
    let cycle = outcome.stdout_json();
    assert_eq!((&cycle["errors"], &cycle["tasks"], &cycle["refsPacked"]), (&1.into(), &1.into(), &0.into()));
    assert!(outcome.stderr.contains("the maintenance failed: running git pack-refs"), "{}", &outcome.stderr[..200]);
    assert!(outcome.stderr.len() < 10_000, "not all of it is repeated");
}

#[test]
fn a_started_poller_keeps_no_file_of_its_caller_open() {
    let repo = Repo::new();
    let _background = Background(&repo);
    let line = format!("exec 9>held; exec 42>held-too; {} poll start --json --interval 1h", env!("CARGO_BIN_EXE_pm"));
    let shell = Outcome::of(&["bash"], &mut repo.program("bash", &["-c", &line])).ok();
    let pid = shell.stdout_json()["pid"].as_u64().expect("a number");
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("alive").flatten();
    let held: Vec<_> = open
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter(|path| path.ends_with("held") || path.ends_with("held-too"))
        .collect();
    assert_eq!(held, Vec::<std::path::PathBuf>::new());
}

#[test]
fn the_poller_speaks_to_programs_too() {
    let repo = Repo::new();
    let _background = Background(&repo);
    assert_eq!(
        status(&repo),
        serde_json::json!({"running": false, "stateRoot": file(&repo, "").display().to_string().trim_end_matches('/')})
    );
    repo.plan("a");
    repo.pm(&["poll", "run", "--once"]).ok();
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>().join(" ");
    let status = status(&repo);
    assert_eq!(
        keys(&status),
        "running stateRoot startedAt lastCycleAt intervalSeconds lastCycle startedAgeMs lastCycleAgeMs"
    );
    assert_eq!(
        keys(&status["lastCycle"]),
        "tasks reclaimed raced rejected observing taken pushed lost refsPacked objectsPacked errors durationMs interrupted"
    );
    let restarted = repo.pm(&["poll", "restart", "--json", "--interval", "1h"]).json();
    let again = repo.pm(&["poll", "restart", "--json", "--interval", "1h"]).json();
    assert_ne!(restarted["pid"], again["pid"]);
    assert!(!is_alive(restarted["pid"].as_u64().expect("a number")));
}
