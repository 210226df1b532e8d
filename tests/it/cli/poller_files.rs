//! The poller's two files, tampered with: what is believed, what is left alone, and what is a reason not to run.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::confined::{Mounts, is_root, missing};
use crate::support::poller::{self, cycle, file, status};
use crate::support::{Repo, until};

#[test]
fn a_killed_poller_leaves_nothing_to_clean_up() {
    let repo = Repo::new();
    let mut poller = poller::run(&repo, &["--interval", "1ms"]);
    let pid = u64::from(poller.0.id());
    poller.signal(Signal::KILL);
    poller.0.wait().expect("killed");
    let status = repo.pm(&["poll", "status", "--json"]).exits(3).stdout_json();
    assert_eq!(
        (&status["running"], &status["pid"], &status["recordedPid"]),
        (&false.into(), &Value::Null, &pid.into())
    );
    let line = repo.pm(&["poll", "status"]).exits(3).stdout;
    assert!(line.contains(&format!("poll.pid names process {pid}, which is stale")), "{line}");
    assert!(file(&repo, "poll.pid").exists(), "asking changes nothing");
    repo.pm(&["poll", "run", "--once"]).ok();
    assert!(!file(&repo, "poll.pid").exists());
}

#[test]
fn a_forged_heartbeat_beside_no_lock_is_no_poller() {
    let repo = Repo::new();
    fs::create_dir_all(file(&repo, "")).expect("made");
    let now = repo.git(&[
        "log",
        "-1",
        "--format=%cI",
        &repo.git(&["commit-tree", "-m", "x", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"]),
    ]);
    let pid = std::process::id();
    let forged = format!(
        r#"{{"startedAt":"{now}","lastCycleAt":"{now}","intervalSeconds":60,"pid":{pid},"running":true,"lastCycle":{{"tasks":1}}}}"#
    );
    fs::write(file(&repo, "poll-status.json"), forged).expect("written");
    let status = repo.pm(&["poll", "status", "--json"]).exits(3).stdout_json();
    assert_eq!(
        (&status["running"], &status["pid"], &status["recordedPid"]),
        (&false.into(), &Value::Null, &Value::Null)
    );
    assert!(repo.pm(&["poll", "status"]).exits(3).stdout.starts_with("not running, stopped after the cycle of "));
    assert!(repo.pm(&["status"]).ok().stdout.contains("poller: not running, stopped after the cycle of "));
    assert_eq!(repo.pm(&["status", "--json"]).json()["poller"]["running"], false);
}

#[test]
fn a_stop_signals_nobody_whom_the_held_lock_does_not_vouch_for() {
    let repo = Repo::new();
    fs::create_dir_all(file(&repo, "")).expect("made");
    let mut stranger = repo.program("sleep", &["60"]).spawn().expect("a stranger");
    fs::write(file(&repo, "poll.pid"), format!("{}\n", stranger.id())).expect("written");
    assert_eq!(repo.pm(&["poll", "stop"]).ok().stdout, "no poller runs here\n");
    assert_eq!(status(&repo)["recordedPid"], stranger.id());
    fs::remove_file(file(&repo, "poll.pid")).expect("removed");

    // The lock is held, and the number in it is a stranger's.
    let _poller = poller::run(&repo, &["--interval", "1h"]);
    cycle(&repo);
    fs::write(file(&repo, "poll.pid"), format!("{}\n", stranger.id())).expect("written");
    repo.pm(&["poll", "stop"]).fails(1).says("does not have it open").says("Nothing was signalled");
    for gone in ["", "4194305\n", "99999999999\n"] {
        fs::write(file(&repo, "poll.pid"), gone).expect("written");
        repo.pm(&["poll", "stop"]).fails(1).says("Nothing was signalled");
    }
    assert!(stranger.try_wait().expect("asked").is_none(), "the stranger lives");
    stranger.kill().expect("killed");
    stranger.wait().expect("reaped");
}

#[test]
fn a_poller_of_another_pid_namespace_is_not_signalled() {
    if !is_root() && missing("root") {
        return;
    }
    let repo = Repo::new();
    let args = ["--pid", "--fork", "--kill-child", env!("CARGO_BIN_EXE_pm"), "poll", "run", "--interval", "1h"];
    let mut container = repo.program("unshare", &args).spawn().expect("a pid namespace");
    until("it runs", || (status(&repo)["running"] == true && status(&repo)["recordedPid"] == 1).then_some(()));
    // Process 1 of this machine is not the one that has the lock.
    repo.pm(&["poll", "stop"]).fails(1).says("Nothing was signalled");
    assert_eq!(status(&repo)["running"], true);
    container.kill().expect("killed");
    container.wait().expect("reaped");
    until("the kernel frees the lock", || (status(&repo)["running"] == false).then_some(()));
    repo.pm(&["poll", "run", "--once"]).ok();
}

#[test]
fn a_poller_whose_lock_file_is_taken_away_stops() {
    for tamper in [
        |path: &PathBuf| fs::remove_file(path),
        |path: &PathBuf| {
            fs::write(path.with_extension("new"), "1\n").and_then(|()| fs::rename(path.with_extension("new"), path))
        },
    ] {
        let repo = Repo::new();
        let poller = poller::run(&repo, &["--interval", "10ms"]);
        cycle(&repo);
        tamper(&file(&repo, "poll.pid")).expect("tampered with");
        let outcome = poller.outcome().exits(1);
        assert!(outcome.stderr.contains("is not the file any more that this poller has locked"), "{outcome:?}");
        let left = fs::read_to_string(file(&repo, "poll.pid")).unwrap_or_default();
        assert!(left.is_empty() || left == "1\n", "what stands there now is left alone: {left}");
    }
}

#[test]
fn a_heartbeat_that_cannot_be_written_is_said_once_and_the_work_goes_on() {
    let repo = Repo::new();
    fs::create_dir_all(file(&repo, "poll-status.json")).expect("a directory in its place");
    let mut poller = poller::run(&repo, &["--interval", "1ms", "--json"]);
    repo.plan("a");
    repo.pm_as("w2", &["executing", "--task", "a", "--ttl", "50ms"]).ok();
    until("it is reclaimed", || (repo.phase("a") == "new").then_some(()));
    let cycles = poller.lines().take(100).count();
    assert_eq!(cycles, 100, "one line a cycle");
    poller.signal(Signal::TERM);
    let outcome = poller.outcome().ok();
    assert_eq!(outcome.stderr.matches("cannot be written, the work goes on").count(), 1, "{outcome:?}");
}

#[test]
fn a_poller_that_its_configuration_dooms_never_holds_the_lock() {
    let repo = Repo::new();
    repo.git(&["config", "pm.interval", "soon"]);
    for args in [&["poll", "run"][..], &["poll", "run", "--once"], &["poll", "start"]] {
        repo.pm(args).fails(2).says("pm.interval = 'soon' cannot be used");
    }
    repo.git(&["config", "pm.interval", "1m"]);
    repo.git(&["config", "pm.pollQueue", "No Queue"]);
    repo.pm(&["poll", "start"]).fails(2).says("pm.pollQueue = 'No Queue' cannot be used");
    repo.pm(&["poll", "start", "--interval", "0"]).fails(2);
    assert!(!file(&repo, "poll.pid").exists() && !file(&repo, "poll-status.json").exists());
}

#[test]
fn a_poller_ends_when_its_files_are_to_be_elsewhere() {
    let repo = Repo::new();
    let poller = poller::run(&repo, &["--interval", "10ms"]);
    repo.git(&["config", "pm.stateRoot", "elsewhere"]);
    let outcome = poller.outcome().exits(1);
    assert!(outcome.stderr.contains(".git/elsewhere now, and was "), "{outcome:?}");
    assert!(!file(&repo, "poll.pid").exists());
}

#[test]
fn a_worktree_may_have_a_state_root_of_its_own() {
    let mut repo = Repo::new();
    repo.git(&["commit", "--allow-empty", "--quiet", "-m", "one"]);
    repo.git(&["config", "extensions.worktreeConfig", "true"]);
    repo.git(&["worktree", "add", "--quiet", "../tree"]);
    let common = repo.path().join(".git");
    repo.set_path(repo.outside().join("tree"));
    repo.git(&["config", "--worktree", "pm.stateRoot", "of-the-tree"]);
    let started = repo.pm(&["poll", "start", "--json", "--interval", "10ms"]).json();
    assert!(common.join("of-the-tree/poll.pid").exists() && !common.join("pm/poll.pid").exists());
    assert_eq!(status(&repo)["pid"], started["pid"]);
    assert_eq!(repo.pm(&["poll", "stop", "--json"]).json()["stopped"], started["pid"]);
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
    let repo = Repo::new();
    fs::create_dir_all(file(&repo, "")).expect("made");
    for name in ["poll.pid", "poll-status.json"] {
        let path = file(&repo, name).display().to_string();
        assert!(repo.program("mkfifo", &[&path]).status().expect("mkfifo runs").success());
    }
    repo.pm(&["poll", "status"]).fails(1).says("whether a poller runs cannot be told").says("it is no file");
    repo.pm(&["poll", "stop"]).fails(1).says("it is no file");
    assert!(repo.pm(&["status"]).ok().stdout.contains("poller: whether a poller runs cannot be told"));
    fs::remove_file(file(&repo, "poll.pid")).expect("removed");
    repo.pm(&["poll", "status"]).exits(3);
}

#[test]
fn the_state_root_may_be_missing_elsewhere_or_a_symbolic_link() {
    let repo = Repo::new();
    let outside = repo.outside().join("state/of/this");
    repo.git(&["config", "pm.stateRoot", &outside.display().to_string()]);
    assert!(repo.pm(&["poll", "status"]).exits(3).stdout.starts_with("not running"));
    repo.pm(&["poll", "run", "--once"]).ok();
    assert!(outside.join("poll-status.json").exists() && !file(&repo, "poll-status.json").exists());
    let link = repo.outside().join("link");
    std::os::unix::fs::symlink(&outside, &link).expect("linked");
    repo.git(&["config", "pm.stateRoot", &link.display().to_string()]);
    let poller = poller::run(&repo, &["--interval", "1h"]);
    // Its cycle over, it looks at the configuration no more for an hour: a changed one would end it.
    until("its first cycle is over", || {
        let status = status(&repo);
        (status["intervalSeconds"] == 3600 && !status["lastCycle"].is_null()).then_some(())
    });
    // By either name it is the same poller.
    repo.git(&["config", "pm.stateRoot", &outside.display().to_string()]);
    repo.pm(&["poll", "run", "--once"]).fails(1).says("a poller runs here already");
    drop(poller);
    repo.git(&["config", "pm.stateRoot", "beside"]);
    repo.pm(&["poll", "run", "--once"]).ok();
    assert!(repo.path().join(".git/beside/poll-status.json").exists(), "relative to the git directory");
    fs::write(repo.outside().join("file"), "").expect("written");
    repo.git(&["config", "pm.stateRoot", &repo.outside().join("file/below").display().to_string()]);
    for args in [&["poll", "run"][..], &["poll", "start"]] {
        repo.pm(args).fails(1).says("file/below/poll.pid cannot be used, so no poller was started");
    }
}

#[test]
fn a_state_root_that_cannot_be_written_is_a_reason_not_to_start() {
    if !is_root() && missing("root") {
        return;
    }
    let mut repo = Repo::new();
    let root = repo.outside().join("state");
    fs::create_dir(&root).expect("made");
    repo.git(&["config", "pm.stateRoot", &root.display().to_string()]);
    let sealed = "mkdir \"$1/sealed\"; mount -t tmpfs -o ro tmpfs \"$1/sealed\"";
    let mut elsewhere = Repo::new();
    let mounts = Mounts::new(sealed, elsewhere.outside());
    let dir = elsewhere.outside().join("sealed").display().to_string();
    elsewhere.git(&["config", "pm.stateRoot", &dir]);
    mounts.confine(&mut elsewhere);
    for args in [&["poll", "run"][..], &["poll", "run", "--once"]] {
        elsewhere.pm(args).fails(18).says("sealed/poll.pid cannot be used, so no poller was started");
    }
    elsewhere.pm(&["poll", "start"]).fails(1).says("sealed/poll.pid cannot be used, so no poller was started");
    drop(mounts);

    let mounts = Mounts::new("mount -t tmpfs -o size=64k,mode=755 tmpfs \"$1/state\"", repo.outside());
    mounts.confine(&mut repo);
    let inside = mounts.seen_from_outside(&root);
    // Everything but nothing fits, and an empty file always does.
    let mut size = 1 << 16;
    while size > 0 {
        // A part of it may have been written; then so be it.
        let _full = fs::write(inside.join(format!("filler-{size}")), vec![0; size]);
        size /= 2;
    }
    repo.pm(&["poll", "run", "--once"]).fails(1).says("writing the process id into it");
    assert!(!inside.join("poll.pid").exists(), "nothing is left of it");
    for entry in fs::read_dir(&inside).expect("listed").flatten() {
        fs::remove_file(entry.path()).expect("freed");
    }
    repo.pm(&["poll", "run", "--once"]).ok();
}
