//! The runner and its leases: kept alive while the command runs, and let go of the moment they are lost.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::process::Process;
use crate::support::runner::{event, file, life, of_claim, start, told, work, written};
use crate::support::{AGENT, Repo, task_ref, text, until};

/// A command that nobody ends by asking: it ignores SIGTERM, has a child in its group, one in a session of its own, and
/// one that closed its output. It says in `$OUT/claim` that all of them run.
const STUBBORN: &str = "trap '' TERM; sleep 60 & setsid sleep 60 & sh -c 'exec >&- 2>&-; sleep 60' & \
                        echo $PM_CLAIM >$OUT/claim; while :; do sleep 60; done";

/// Waits until everything that ran under a claim is gone.
fn wait_until_gone(claim: &str) {
    until("nothing runs under the claim", || of_claim(claim).is_empty().then_some(()));
}

/// The claim of a command that has just started its children.
fn claim_of_running(repo: &Repo) -> String {
    let claim = written(repo, "claim");
    // The keeper, the command and its children; the loop's own sleep may be about to start.
    until("all of them run", || (of_claim(&claim).len() >= 5).then_some(()));
    claim
}

/// A runner at its only task, `a`, under a lease of a second, and the claim that its stubborn command runs under.
fn at_work() -> (Repo, Process, String) {
    let repo = Repo::new();
    repo.plan("a");
    let runner = start(&repo, &["--ttl", "1s", "--max-tasks", "1"], STUBBORN);
    let claim = claim_of_running(&repo);
    (repo, runner, claim)
}

/// Sweeps until the task was taken from its holder.
fn until_swept(repo: &Repo) {
    until("it is swept", || {
        let swept = repo.pm_as("s", &["sweep", "--json"]).json();
        (swept["reclaimed"].as_array().map(Vec::len) == Some(1)).then_some(())
    });
}

/// The keeper of the command that runs under a claim.
fn keeper_of(claim: &str) -> u64 {
    let is_keeper = |pid: &u64| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.contains("work-child") && line.contains("--until-ms")
    };
    let keepers: Vec<u64> = of_claim(claim).into_iter().filter(is_keeper).collect();
    assert_eq!(keepers.len(), 1, "{keepers:?}");
    keepers[0]
}

fn signal_keeper(claim: &str, signal: Signal) {
    let pid = i32::try_from(keeper_of(claim)).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(pid, signal).expect("signalled");
}

#[test]
fn a_silent_command_is_kept_alive_for_many_leases() {
    let repo = Repo::new();
    repo.plan("a");
    let runner = start(&repo, &["--ttl", "1s"], "echo; echo $PM_CLAIM >$OUT/claim; sleep 3.3");
    written(&repo, "claim");
    let mut sweeps = 0;
    let outcome = {
        // Swept again and again meanwhile.
        while repo.phase("a") == "working" {
            assert_eq!(repo.pm_as("s", &["sweep", "--json"]).json()["stale"], 0);
            sweeps += 1;
        }
        runner.outcome().ok()
    };
    assert_eq!(told(&outcome), ["started a", "done a", "summary"]);
    let heartbeats = event(&outcome, "summary")["heartbeats"].as_u64().expect("a number");
    assert!((9..=14).contains(&heartbeats), "{heartbeats} heartbeats in 3.3 leases, {sweeps} sweeps");
    repo.assert_sound();
}

#[test]
fn heartbeats_carry_what_was_printed_only_where_that_is_asked() {
    let repo = Repo::new();
    repo.plan("a");
    let script = "echo half; printf 'way there\\n\\n'; sleep 0.7";
    work(&repo, &["--ttl", "1s"], script).ok();
    let log = || repo.git(&["log", "--format=%(trailers:key=Progress,valueonly)", &task_ref("a")]);
    assert_eq!(log().trim(), "");
    repo.plan("b");
    work(&repo, &["--ttl", "1s", "--progress-from-output"], script).ok();
    assert!(repo.git(&["log", &task_ref("b")]).contains("Progress: way there"));
}

#[test]
fn a_claim_that_is_taken_away_ends_its_command_whatever_that_does() {
    let (repo, runner, claim) = at_work();
    repo.pm_as("operator", &["reclaim", "--task", "a"]).ok();
    let taken_at = Instant::now();
    wait_until_gone(&claim);
    assert!(taken_at.elapsed() < Duration::from_millis(900), "gone after {:?}", taken_at.elapsed());
    let outcome = runner.outcome().exits(12).says("warning: w1 lost default/a (claim ");
    assert_eq!(told(&outcome), ["started a", "lost a", "summary"]);
    // Nothing of the old holder's is in the chain after the reclaim.
    assert_eq!(life(&repo, "a").last().map(String::as_str), Some("operator TaskStatus new"));
    assert_eq!(repo.phase("a"), "new");
    repo.assert_sound();
}

#[test]
fn a_task_that_is_held_by_another_now_is_left_alone() {
    let (repo, runner, claim) = at_work();
    repo.pm_as("operator", &["reclaim", "--task", "a"]).ok();
    // The same agent id as the runner's: the claim fences it off all the same.
    let second = repo.claim_as(AGENT, "a");
    wait_until_gone(&claim);
    runner.outcome().exits(12);
    assert_eq!(repo.state("a")["claim"], second);
}

#[test]
fn a_claim_that_cannot_be_renewed_is_let_go_of_before_others_may_take_it() {
    let (repo, runner, claim) = at_work();
    // A lock that may be git's: every append waits for it.
    let lock = repo.git_dir().join(format!("{}.lock", task_ref("a")));
    fs::write(&lock, "").expect("written");
    let locked_at = Instant::now();
    wait_until_gone(&claim);
    // Two thirds of the lease after the last renewal, and a sixth to end in.
    assert!(locked_at.elapsed() < Duration::from_millis(990), "gone after {:?}", locked_at.elapsed());
    fs::remove_file(&lock).expect("removed");
    let outcome = runner.outcome().exits(12);
    assert!(text(&event(&outcome, "lost")["why"]).contains("no renewal of the lease got in"), "{outcome:?}");
    assert!(life(&repo, "a").iter().all(|record| !record.contains("TaskReport")), "{:?}", life(&repo, "a"));
}

#[test]
fn a_runner_that_is_stopped_for_longer_than_the_lease_has_lost_it_when_it_wakes() {
    let (repo, runner, claim) = at_work();
    runner.signal(Signal::STOP);
    // Its keeper is awake.
    wait_until_gone(&claim);
    assert_eq!(repo.phase("a"), "working", "gone before anybody could take it");
    until_swept(&repo);
    repo.claim_as("w2", "a");
    let refs = repo.refs();
    runner.signal(Signal::CONT);
    let outcome = runner.outcome().exits(12);
    assert_eq!(told(&outcome), ["started a", "lost a", "summary"]);
    assert_eq!(repo.refs(), refs, "the zombie recorded nothing");
}

#[test]
fn a_whole_tree_that_was_stopped_ends_when_it_wakes() {
    let (repo, runner, claim) = at_work();
    let all = of_claim(&claim);
    let signal = |signal: Signal| {
        runner.signal(signal);
        for pid in &all {
            let pid = i32::try_from(*pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
            rustix::process::kill_process(pid, signal).expect("signalled");
        }
    };
    signal(Signal::STOP);
    until_swept(&repo);
    let refs = repo.refs();
    signal(Signal::CONT);
    let woken_at = Instant::now();
    wait_until_gone(&claim);
    assert!(woken_at.elapsed() < Duration::from_millis(500), "gone after {:?}", woken_at.elapsed());
    runner.outcome().exits(12);
    assert_eq!(repo.refs(), refs, "the zombie recorded nothing");
}

#[test]
fn a_keeper_that_is_stopped_keeps_nothing_alive() {
    let (repo, runner, claim) = at_work();
    signal_keeper(&claim, Signal::STOP);
    repo.pm_as("operator", &["reclaim", "--task", "a"]).ok();
    wait_until_gone(&claim);
    runner.outcome().exits(12);
}

#[test]
fn what_a_long_command_has_left_behind_does_not_pile_up() {
    let repo = Repo::new();
    repo.plan("a");
    let script = "for i in 1 2 3 4 5 6 7 8 9; do (true &); done; echo $PM_CLAIM >$OUT/claim; \
                  until [ -e $OUT/go ]; do sleep 0.02; done";
    let runner = start(&repo, &[], script);
    let keeper = keeper_of(&written(&repo, "claim"));
    until("the keeper has one child", || {
        let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).ok()?;
        (children.split_whitespace().count() == 1).then_some(())
    });
    fs::write(file(&repo, "go"), "").expect("written");
    runner.outcome().ok();
}

#[test]
fn a_command_that_gives_its_task_back_works_on_no_longer_than_to_the_next_heartbeat() {
    let repo = Repo::new();
    repo.plan("a");
    let script = format!(
        "echo $PM_CLAIM >$OUT/claim; {} release --task $PM_TASK >$OUT/released; trap '' TERM; while :; do sleep 1; done",
        env!("CARGO_BIN_EXE_pm")
    );
    let runner = start(&repo, &["--ttl", "1s", "--max-tasks", "1"], &script);
    written(&repo, "released");
    let released_at = Instant::now();
    wait_until_gone(&written(&repo, "claim"));
    assert!(released_at.elapsed() < Duration::from_millis(900), "gone after {:?}", released_at.elapsed());
    let outcome = runner.outcome().ok();
    assert_eq!(told(&outcome), ["started a", "released a", "summary"]);
}

#[test]
fn a_task_that_a_running_command_gave_back_is_taken_by_no_other_agent_of_the_runner() {
    let repo = Repo::new();
    repo.plan("a");
    let script = format!(
        "[ $PM_ATTEMPT = 1 ] || exit 0; {} release --task $PM_TASK; while :; do sleep 1; done",
        env!("CARGO_BIN_EXE_pm")
    );
    let outcome = work(&repo, &["--ttl", "1s", "--agents", "3", "--max-tasks", "2"], &script).ok();
    assert_eq!(told(&outcome), ["started a", "released a", "started a", "done a", "summary"]);
}

#[test]
fn a_command_that_ends_gracefully_is_given_the_time() {
    let repo = Repo::new();
    repo.plan("a");
    let script = "trap 'sleep 0.3; echo clean >$OUT/clean; exit' TERM; echo $PM_CLAIM >$OUT/claim; sleep 60 & wait";
    let runner = start(&repo, &["--ttl", "3s", "--max-tasks", "1"], script);
    written(&repo, "claim");
    repo.pm_as("operator", &["reclaim", "--task", "a"]).ok();
    assert_eq!(written(&repo, "clean"), "clean");
    runner.outcome().exits(12);
}

#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let repo = Repo::new();
    repo.plan("a");
    let started = Instant::now();
    let script = "trap '' TERM; setsid sleep 60 & sleep 60 >/dev/null 2>&1 & echo $PM_CLAIM >$OUT/claim";
    let outcome = work(&repo, &["--ttl", "60s"], script).ok();
    assert_eq!(told(&outcome), ["started a", "done a", "summary"]);
    assert_eq!(of_claim(&written(&repo, "claim")), Vec::<u64>::new());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[test]
fn nothing_survives_a_killed_runner_and_its_task_comes_back() {
    let repo = Repo::new();
    repo.plan("a");
    let runner = start(&repo, &["--ttl", "1s"], STUBBORN);
    let claim = claim_of_running(&repo);
    let started = Instant::now();
    runner.signal(Signal::KILL);
    wait_until_gone(&claim);
    assert!(started.elapsed() < Duration::from_millis(900), "gone after {:?}", started.elapsed());
    until_swept(&repo);
    work(&repo, &[], "true").ok();
    assert_eq!(repo.phase("a"), "done");
    repo.assert_sound();
}

#[test]
fn nothing_survives_a_killed_keeper_and_its_task_is_tried_again() {
    let repo = Repo::new();
    repo.plan("a");
    let script = format!("[ $PM_ATTEMPT = 1 ] || exit 0; {STUBBORN}");
    let runner = start(&repo, &[], &script);
    let claim = claim_of_running(&repo);
    signal_keeper(&claim, Signal::KILL);
    wait_until_gone(&claim);
    let outcome = runner.outcome().ok();
    assert_eq!(told(&outcome), ["started a", "released a", "started a", "done a", "summary"]);
    assert!(text(&event(&outcome, "released")["why"]).contains("its keeper was killed"));
}
