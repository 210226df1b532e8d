//! The shape of every command's JSON and text. The field names are an interface: other tools read them.

use serde_json::Value;

use crate::support::redact::Redactor;
use crate::support::snapshot::{self, transcript};
use crate::support::{Outcome, Repo, text, until};

/// Compares outcomes, all of exit code 0, with a snapshot. Ids are numbered in the order in which they appear.
fn check(repo: &Repo, name: &str, outcomes: Vec<Outcome>) {
    let mut redactor = Redactor::new().place(repo.path(), "<repo>");
    for outcome in &outcomes {
        let outcome = outcome.clone().ok();
        assert_eq!(outcome.stderr, "", "{outcome:?}");
        if outcome.args.iter().any(|arg| arg == "--json") && !outcome.args.iter().any(|arg| arg == "--follow") {
            outcome.stdout_json();
        }
    }
    snapshot::check(&format!("shapes/{name}.txt"), &transcript(&mut redactor, &outcomes));
}

#[test]
fn plan_prints_the_task_and_its_first_status() {
    let repo = Repo::new();
    let first = repo.pm(&["plan", "--json", "--title", "Prepare the ground"]);
    let all = [
        "plan",
        "--json",
        "--title",
        "Build the house",
        "--text",
        "Of bricks.\n\nAnd mortar.",
        "--slug",
        "house",
        "--queue",
        "village",
        "--depends-on",
        "default/prepare-the-ground",
        "--priority",
        "0",
        "--label",
        "b",
        "--label",
        "a",
        "--ttl",
        "90s",
        "--max-attempts",
        "3",
    ];
    let plain = repo.pm(&["plan", "--title", "Plant a tree"]);
    check(&repo, "plan", vec![first, repo.pm(&all), plain]);
}

#[test]
fn bulk_plan_prints_a_line_a_task() {
    let repo = Repo::new();
    repo.plan("here");
    std::fs::write(
        repo.path().join("plan"),
        "[{\"slug\":\"b\",\"title\":\"B\",\"depends_on_slugs\":[\"a\",\"here\"],\"priority\":1,\"labels\":[\"l\"]},\n\
         {\"slug\":\"a\",\"title\":\"A\",\"text\":\"First.\",\"depends_on\":[\"here\"]}]",
    )
    .expect("written");
    let json = repo.pm(&["bulk-plan", "--json", "--input", "plan"]);
    let again = repo.pm(&["bulk-plan", "--input", "plan"]);
    check(&repo, "bulk-plan", vec![json, again, repo.pm(&["show", "--json", "--task", "b"])]);
}

#[test]
fn next_prints_the_task_with_its_state_or_null() {
    let repo = Repo::new();
    let empty = repo.pm(&["next", "--json", "--quiet"]);
    repo.plan_with("b", &["--label", "x"]);
    repo.plan_with("a", &["--priority", "1"]);
    let outcomes = vec![
        empty,
        repo.pm(&["next", "--json"]),
        repo.pm(&["next", "--json", "--label", "x"]),
        repo.pm(&["next"]),
        repo.pm(&["next", "--all", "--json"]),
        repo.pm(&["next", "--all"]),
    ];
    check(&repo, "next", outcomes);
}

#[test]
fn pull_prints_the_task_the_claim_and_the_fence_or_null() {
    let repo = Repo::new();
    let empty = repo.pm(&["pull", "--json", "--quiet"]);
    let empty_shell = repo.pm(&["pull", "--shell", "--quiet"]);
    for slug in ["a", "b", "c"] {
        repo.plan(slug);
    }
    let outcomes = vec![
        empty,
        empty_shell,
        repo.pm(&["pull", "--json"]),
        repo.pm(&["pull", "--shell"]),
        repo.pm(&["pull", "--ttl", "90"]),
    ];
    check(&repo, "pull", outcomes);
}

#[test]
fn executing_prints_the_claim_with_fence_and_lease() {
    let repo = Repo::new();
    repo.plan("a");
    repo.plan_with("b", &["--ttl", "2m"]);
    repo.plan("c");
    let outcomes = vec![
        repo.pm(&["executing", "--json", "--task", "a"]),
        repo.pm(&["executing", "--json", "--task", "b"]),
        repo.pm(&["executing", "--json", "--task", "c", "--ttl", "1500ms"]),
        repo.pm(&["show", "--task", "b"]),
    ];
    check(&repo, "executing", outcomes);
}

#[test]
fn heartbeat_report_release_and_finished_print_the_record() {
    let repo = Repo::new();
    repo.plan("a");
    let work = repo.git(&["commit-tree", &repo.git_fed(b"", &["mktree"]), "-m", "the work"]);
    repo.git(&["update-ref", "refs/heads/main", &work]);
    std::fs::write(repo.path().join("log.txt"), "it went well\n").expect("written");
    std::fs::write(repo.path().join("a.bin"), [0, 159, 146, 150]).expect("written");
    let mut outcomes = vec![
        repo.pm(&["executing", "--json", "--task", "a"]),
        repo.pm(&["heartbeat", "--json", "--task", "a"]),
        repo.pm(&["heartbeat", "--json", "--task", "a", "--progress", "half of it"]),
        repo.pm(&["release", "--json", "--task", "a", "--reason", "it rains"]),
        repo.pm(&["executing", "--task", "a"]),
    ];
    let report = ["report", "--task", "a", "--title", "Built", "--text", "With a roof.", "--commit", "main"];
    outcomes.push(repo.pm(&[&report[..], &["--attach", "log.txt", "--attach", "a.bin", "--json"]].concat()));
    outcomes.push(repo.pm(&["heartbeat", "--task", "a"]));
    outcomes.push(repo.pm(&report));
    outcomes.push(repo.pm(&["finished", "--json", "--task", "a", "--note", "at last"]));
    repo.plan("b");
    outcomes.push(repo.pm(&["executing", "--task", "b"]));
    outcomes.push(repo.pm(&["release", "--task", "b"]));
    outcomes.push(repo.pm(&["executing", "--task", "b"]));
    outcomes.push(repo.pm(&["report", "--task", "b", "--title", "It cannot be done"]));
    outcomes.push(repo.pm(&["finished", "--task", "b", "--rejected"]));
    check(&repo, "work", outcomes);
    let report = text(&repo.pm(&["show", "--json", "--task", "a"]).json()["reports"][0]["sha"]);
    assert_eq!(repo.git(&["show", &format!("{report}:log.txt")]), "it went well");
    repo.assert_sound();
}

#[test]
fn show_prints_everything_about_one_task() {
    let repo = Repo::new();
    repo.plan("first");
    repo.plan_with("second", &["--depends-on", "first", "--text", "The text.", "--label", "l"]);
    let blocked = repo.pm(&["show", "--json", "--task", "second"]);
    let blocked_text = repo.pm(&["show", "--task", "second"]);
    repo.work_off("first");
    repo.claim("second");
    repo.pm(&["heartbeat", "--task", "second"]).ok();
    repo.pm(&["heartbeat", "--task", "second"]).ok();
    let held = repo.pm(&["show", "--json", "--task", "second"]);
    let held_text = repo.pm(&["show", "--task", "second"]);
    let done = repo.pm(&["show", "--json", "--task", "first"]);
    let done_text = repo.pm(&["show", "--task", "first"]);
    check(&repo, "show", vec![blocked, blocked_text, held, held_text, done, done_text]);
}

#[test]
fn list_prints_tasks_with_their_states_and_says_when_it_cuts() {
    let repo = Repo::new();
    repo.plan("first");
    repo.plan_with("second", &["--depends-on", "first"]);
    repo.plan_with("third", &["--queue", "other", "--label", "l"]);
    repo.claim("first");
    let cut = repo.pm(&["list", "--json", "--limit", "1"]);
    assert_eq!(cut.stderr, "", "JSON says it itself");
    let outcomes = vec![
        repo.pm(&["list", "--json"]),
        repo.pm(&["list"]),
        cut,
        repo.pm(&["list", "--queue", "other"]),
        repo.pm(&["list", "--blocked"]),
        repo.pm(&["list", "--status", "working", "--status", "done"]),
        repo.pm(&["list", "--label", "l"]),
        repo.pm(&["list", "--search", "SECOND"]),
        repo.pm(&["list", "--stale"]),
    ];
    check(&repo, "list", outcomes);
}

#[test]
fn owned_prints_the_claims_of_one_agent() {
    let repo = Repo::new();
    for slug in ["a", "b", "c"] {
        repo.plan(slug);
    }
    repo.claim("a");
    repo.claim_as("w2", "b");
    let outcomes = vec![
        repo.pm(&["owned", "--json"]),
        repo.pm(&["owned"]),
        repo.pm_as("w3", &["owned", "--json"]),
        repo.pm_as("w2", &["owned", "--json", "--queue", "other"]),
    ];
    check(&repo, "owned", outcomes);
}

#[test]
fn wait_prints_the_task_as_list_does() {
    let repo = Repo::new();
    repo.plan_with("a", &["--label", "l"]);
    repo.claim("a");
    let outcomes = vec![
        repo.pm(&["wait", "--json", "--task", "a", "--status", "working"]),
        repo.pm(&["wait", "--task", "a", "--status", "working", "--status", "done"]),
    ];
    check(&repo, "wait", outcomes);
}

#[test]
fn sweep_and_reclaim_print_what_they_took_and_what_they_only_watch() {
    let repo = Repo::new();
    for slug in ["old", "limited", "alive", "closed"] {
        repo.plan_with(slug, if slug == "limited" { &["--max-attempts", "1"] } else { &[] });
    }
    repo.claim("old");
    repo.claim("limited");
    repo.work_off("closed");
    let stale = |queue: &str| repo.pm(&["list", "--stale", "--json", "--queue", queue]).json()["total"] == 2;
    repo.git(&["config", "pm.ttl", "1ms"]);
    until("both claims are stale", || stale("default").then_some(()));
    repo.git(&["config", "--unset", "pm.ttl"]);
    repo.pm(&["executing", "--task", "alive", "--ttl", "1h"]).ok();
    let outcomes = vec![
        repo.pm_as("sweeper", &["sweep", "--ttl", "1ms", "--dry-run", "--json"]),
        repo.pm_as("sweeper", &["sweep", "--ttl", "1ms", "--dry-run"]),
        repo.pm_as("sweeper", &["sweep", "--ttl", "1ms", "--json"]),
        repo.pm_as("sweeper", &["sweep", "--ttl", "1ms"]),
        repo.pm_as("boss", &["reclaim", "--task", "alive", "--reason", "it is mine", "--json"]),
        repo.pm(&["show", "--task", "limited"]),
        repo.pm(&["show", "--json", "--task", "old"]),
    ];
    check(&repo, "sweep", outcomes);
    repo.assert_sound();
}

#[test]
fn status_and_queues_count() {
    let repo = Repo::new();
    let empty = vec![repo.pm(&["status", "--json"]), repo.pm(&["queues", "--json"]), repo.pm(&["queues"])];
    repo.plan("first");
    repo.plan_with("second", &["--depends-on", "first"]);
    repo.plan_with("third", &["--queue", "a-queue-with-a-long-name"]);
    repo.claim("first");
    repo.plan("fourth");
    repo.work_off("fourth");
    let full = vec![
        repo.pm(&["status", "--json"]),
        repo.pm(&["status"]),
        repo.pm(&["status", "--queue", "default"]),
        repo.pm(&["queues", "--json"]),
        repo.pm(&["queues"]),
    ];
    check(&repo, "status", [empty, full].concat());
}

#[test]
fn verify_prints_counts_and_faults() {
    let repo = Repo::new();
    repo.plan("a");
    repo.plan("b");
    repo.work_off("a");
    let outcomes = vec![
        repo.pm(&["verify", "--json"]),
        repo.pm(&["verify"]),
        repo.pm(&["verify", "--task", "a"]),
        repo.pm(&["verify", "--queue", "other"]),
    ];
    check(&repo, "verify", outcomes);
}

#[test]
fn log_tells_the_audit_trail() {
    let repo = Repo::new();
    repo.plan_with("a", &["--text", "The text.\nOf two lines."]);
    repo.claim("a");
    std::fs::write(repo.path().join("log.txt"), "it went well\n").expect("written");
    repo.pm(&["report", "--task", "a", "--title", "Built", "--text", "With a roof.", "--attach", "log.txt"]).ok();
    repo.pm(&["finished", "--task", "a"]).ok();
    let outcomes = vec![
        repo.pm(&["log", "--json"]),
        repo.pm(&["log"]),
        repo.pm(&["log", "--oneline", "--task", "a"]),
        repo.pm(&["log", "--oneline", "--since", "1h"]),
        repo.pm(&["log", "--oneline", "--since", "2999-01-01"]),
    ];
    check(&repo, "log", outcomes);
}

#[test]
fn log_follow_prints_one_value_a_line_oldest_first_and_goes_on() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let repo = Repo::new();
    repo.plan("a");
    let mut child = repo.pm_command(&["log", "--follow", "--json"]).stdout(Stdio::piped()).spawn().expect("pm starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("another line").expect("readable");
        serde_json::from_str(&line).expect("one value a line")
    };
    let mut records = vec![next(), next()];
    repo.claim("a");
    records.push(next());
    repo.pm(&["heartbeat", "--task", "a"]).ok();
    records.push(next());
    child.kill().expect("still following");
    child.wait().expect("ended");
    let kinds: Vec<String> = records.iter().map(|record| text(&record["type"])).collect();
    assert_eq!(kinds, ["Task", "TaskStatus", "TaskStatus", "TaskHeartbeat"]);
    let all = repo.pm(&["log", "--json"]).json();
    let newest_first: Vec<&Value> = all.as_array().expect("an array").iter().collect();
    assert_eq!(records.iter().rev().collect::<Vec<_>>(), newest_first);
}

#[test]
fn context_id_prints_32_fresh_digits() {
    let repo = Repo::nowhere();
    let json = repo.pm(&["context-id", "--json"]);
    let plain = repo.pm(&["context-id"]);
    assert_ne!(json.clone().json()["context_id"], plain.stdout.trim());
    check(&repo, "context-id", vec![json, plain]);
}
