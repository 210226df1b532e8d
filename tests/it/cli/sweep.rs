//! `sweep` on one machine and one boot: exact ages, leases that are honoured, and tasks that kill every worker.

use serde_json::Value;

use crate::support::{Repo, text, until};

/// Sweeps as a supervisor.
fn sweep(repo: &Repo, options: &[&str]) -> Value {
    repo.pm_as("sweeper", &[&["sweep", "--json"], options].concat()).json()
}

/// Sweeps until something is taken.
fn sweep_until_taken(repo: &Repo, options: &[&str]) -> Value {
    until("a stale claim is taken", || {
        let told = sweep(repo, options);
        let taken = |list: &str| told[list].as_array().is_some_and(|list| !list.is_empty());
        (taken("reclaimed") || taken("rejected")).then_some(told)
    })
}

fn rows(told: &Value, list: &str) -> usize {
    told[list].as_array().expect("an array").len()
}

/// Claims a task, kills the worker in thought, and sweeps it.
fn swept_once(repo: &Repo, task: &str) -> Value {
    repo.claim(task);
    sweep_until_taken(repo, &["--ttl", "1ms"])
}

#[test]
fn a_claim_that_was_silent_for_longer_than_its_ttl_comes_back_at_once() {
    let repo = Repo::new();
    repo.plan("a");
    repo.plan("b");
    let claim = repo.claim("a");
    let young = sweep(&repo, &["--ttl", "1h"]);
    assert_eq!((rows(&young, "reclaimed"), rows(&young, "observing"), &young["stale"]), (0, 0, &0.into()));
    let told = sweep_until_taken(&repo, &["--ttl", "100ms"]);
    let row = &told["reclaimed"][0];
    assert_eq!((&row["claim"], &row["holder"], &told["ttl_ms"]), (&claim.as_str().into(), &"w1".into(), &100.into()));
    assert!(row["age_ms"].as_u64().expect("a number") > 100, "{told}");
    assert_eq!(rows(&told, "observing"), 0, "the same boot needs no watching");
    let state = repo.state("a");
    assert_eq!((&state["status"], &state["holder"], &state["reclaims"]), (&"new".into(), &Value::Null, &1.into()));
    // The preempt heartbeat and the reclaim moved the ref once.
    assert_eq!(row["status"], repo.tip("a").as_str());
    let log = repo.git(&[
        "log",
        "-3",
        "--format=%(trailers:key=Record,valueonly,separator=%x2C) %(trailers:key=Preempt,valueonly,separator=%x2C)",
        "refs/pm/tasks/default/a",
    ]);
    let log: Vec<&str> = log.lines().map(str::trim_end).collect();
    assert_eq!(log, ["TaskStatus", "TaskHeartbeat true", "TaskStatus"]);
    repo.work_off("a");
    repo.assert_sound();
}

#[test]
fn a_heartbeat_makes_a_claim_young_again() {
    let repo = Repo::new();
    repo.plan("a");
    repo.claim("a");
    let age = || repo.state("a")["age_ms"].as_u64().expect("a number");
    until("the claim is a quarter of a second old", || (age() > 250).then_some(()));
    repo.pm(&["heartbeat", "--task", "a"]).ok();
    let told = sweep(&repo, &["--ttl", "10s"]);
    assert_eq!(rows(&told, "reclaimed"), 0);
    let left = repo.state("a")["lease_left_ms"].as_u64().expect("a number");
    assert!((290_000..=300_000).contains(&left), "{left}");
}

#[test]
fn a_claim_that_recorded_its_own_ttl_is_protected_but_from_force() {
    let repo = Repo::new();
    repo.plan("asked");
    repo.plan_with("by-task", &["--ttl", "1h"]);
    repo.plan("plain");
    repo.pm(&["executing", "--task", "asked", "--ttl", "2h"]).ok();
    repo.claim("by-task");
    repo.claim("plain");
    let told = sweep_until_taken(&repo, &["--ttl", "1ms"]);
    assert_eq!((rows(&told, "reclaimed"), &told["reclaimed"][0]["slug"]), (1, &"plain".into()));
    let told = sweep_until_taken(&repo, &["--ttl", "1ms", "--force"]);
    assert_eq!(rows(&told, "reclaimed"), 2);
    assert_eq!(repo.pm(&["list", "--json", "--status", "new"]).json()["total"], 3);
}

#[test]
fn a_dry_run_writes_nothing() {
    let repo = Repo::new();
    repo.plan("a");
    repo.claim("a");
    let before = (repo.refs(), repo.git(&["count-objects", "-v"]));
    let told = sweep_until_taken(&repo, &["--ttl", "1ms", "--dry-run"]);
    assert_eq!((&told["dry_run"], &told["stale"]), (&true.into(), &1.into()));
    assert_eq!(told["reclaimed"][0]["status"], Value::Null, "there is no record of it");
    assert_eq!((repo.refs(), repo.git(&["count-objects", "-v"])), before);
    assert_eq!(repo.phase("a"), "working");
}

#[test]
fn a_sweep_keeps_to_its_queue() {
    let repo = Repo::new();
    repo.plan("a");
    repo.plan_with("a", &["--queue", "q"]);
    repo.claim("default/a");
    repo.claim("q/a");
    let told = sweep_until_taken(&repo, &["--ttl", "1ms", "--queue", "q"]);
    assert_eq!((&told["scanned"], rows(&told, "reclaimed")), (&1.into(), 1));
    assert_eq!(repo.phase("default/a"), "working");
    repo.git(&["config", "pm.queue", "q"]);
    assert_eq!(sweep(&repo, &["--ttl", "1ms"])["scanned"], 1);
    assert_eq!(sweep_until_taken(&repo, &["--ttl", "1ms", "--all"])["scanned"], 2);
}

#[test]
fn a_task_that_kills_every_worker_is_rejected_and_show_tells_why() {
    let repo = Repo::new();
    repo.plan_with("deadly", &["--max-attempts", "2"]);
    let first = swept_once(&repo, "deadly");
    assert_eq!((rows(&first, "reclaimed"), rows(&first, "rejected")), (1, 0));
    let second = swept_once(&repo, "deadly");
    assert_eq!((rows(&second, "reclaimed"), rows(&second, "rejected")), (0, 1));
    let shown = repo.pm(&["show", "--json", "--task", "deadly"]).json();
    assert_eq!((&shown["state"]["status"], &shown["state"]["reclaims"]), (&"rejected".into(), &2.into()));
    let report = &shown["reports"][0];
    assert_eq!((&report["attributes"]["synthetic"], &report["attributes"]["agent"]), (&true.into(), &"sweeper".into()));
    let statuses = shown["statuses"].as_array().expect("an array");
    let last = &statuses[statuses.len() - 1];
    assert_eq!(last["links"]["proof"], report["sha"]);
    assert_eq!((&last["attributes"]["reclaimed"], &last["attributes"]["reclaimer"]), (&true.into(), &"sweeper".into()));
    let told = repo.pm(&["show", "--task", "deadly"]).ok().stdout;
    assert!(told.contains("swept 2 times in a row without a report") && told.contains("rejected"), "{told}");
    repo.pm(&["executing", "--task", "deadly"]).fails(6);
    repo.assert_sound();
}

#[test]
fn the_limit_of_the_configuration_holds_for_tasks_that_set_none() {
    let repo = Repo::new();
    repo.git(&["config", "pm.maxAttempts", "1"]);
    repo.plan("plain");
    repo.plan_with("unlimited", &["--max-attempts", "0"]);
    assert_eq!(rows(&swept_once(&repo, "plain"), "rejected"), 1);
    for _ in 0..3 {
        assert_eq!(rows(&swept_once(&repo, "unlimited"), "reclaimed"), 1);
    }
    assert_eq!(repo.state("unlimited")["reclaims"], 3);
    repo.assert_sound();
}

#[test]
fn a_report_a_release_or_an_operator_starts_the_count_anew() {
    let repo = Repo::new();
    repo.plan_with("a", &["--max-attempts", "2"]);
    swept_once(&repo, "a");
    repo.claim("a");
    repo.pm(&["report", "--task", "a", "--title", "Some progress"]).ok();
    assert_eq!(rows(&sweep_until_taken(&repo, &["--ttl", "1ms"]), "reclaimed"), 1);
    assert_eq!(repo.state("a")["reclaims"], 0, "a report under the swept claim");
    swept_once(&repo, "a");
    assert_eq!(repo.state("a")["reclaims"], 1);
    repo.claim("a");
    repo.pm(&["release", "--task", "a"]).ok();
    assert_eq!(repo.state("a")["reclaims"], 0, "a release");
    swept_once(&repo, "a");
    repo.claim("a");
    repo.pm_as("boss", &["reclaim", "--task", "a"]).ok();
    assert_eq!(repo.state("a")["reclaims"], 0, "an operator");
    assert_eq!((&repo.state("a")["attempt"], &repo.state("a")["status"]), (&6.into(), &"new".into()));
    repo.assert_sound();
}

#[test]
fn a_supervisor_can_preempt_by_the_tip_that_it_observed() {
    let repo = Repo::new();
    repo.plan_with("a", &["--max-attempts", "1"]);
    repo.claim("a");
    let observed = text(&repo.pm(&["show", "--json", "--task", "a"]).json()["tip"]);
    repo.pm(&["heartbeat", "--task", "a"]).ok();
    repo.pm_as("boss", &["reclaim", "--task", "a", "--if-tip", &observed]).fails(8);
    let observed = repo.tip("a");
    let told = repo.pm_as("boss", &["reclaim", "--task", "a", "--if-tip", &observed]).ok().stdout;
    assert!(told.contains("rejected after too many attempts"), "{told}");
    repo.plan("b");
    repo.claim("b");
    repo.pm_as("boss", &["reclaim", "--task", "b", "--if-tip", &repo.tip("b")]).ok();
    assert_eq!(repo.phase("b"), "new");
    repo.assert_sound();
}

#[test]
fn the_lease_that_a_worker_is_told_is_the_one_that_the_sweep_honours() {
    let repo = Repo::new();
    repo.git(&["config", "pm.ttl", "50ms"]);
    repo.plan("a");
    assert_eq!(repo.pm(&["executing", "--json", "--task", "a"]).json()["lease_ms"], 50);
    until("its lease runs out", || (repo.state("a")["lease_left_ms"] == 0).then_some(()));
    assert_eq!(repo.pm(&["list", "--stale", "--json"]).json()["total"], 1);
    assert_eq!(repo.pm(&["status", "--json"]).json()["stale"], 1);
    let told = sweep_until_taken(&repo, &[]);
    assert_eq!((&told["ttl_ms"], rows(&told, "reclaimed")), (&50.into(), 1));
}
