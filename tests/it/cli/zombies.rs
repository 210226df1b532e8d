//! Workers that come back from the dead: what they still try to record is refused, whatever they call themselves.

use crate::support::{Outcome, Repo, text};

/// Asserts that nothing that a worker does under this claim gets in.
fn check_refused(repo: &Repo, agent: &str, claim: &str, code: i32) {
    let before = repo.refs();
    for args in [
        &["heartbeat", "--task", "a"][..],
        &["report", "--task", "a", "--title", "It is done, I swear"],
        &["finished", "--task", "a"],
        &["finished", "--task", "a", "--rejected"],
        &["release", "--task", "a"],
    ] {
        let named = [args, &["--claim", claim]].concat();
        repo.pm_as(agent, &named).fails(code);
        repo.pm_with(&[("PM_AGENT_ID", agent), ("PM_CLAIM", claim)], args).fails(code);
    }
    assert_eq!(repo.refs(), before, "nothing was recorded");
}

#[test]
fn a_zombie_is_refused_after_a_reclaim_with_6_and_after_another_claim_with_12() {
    let repo = Repo::new();
    repo.plan("a");
    let old = repo.claim_as("zombie", "a");
    repo.pm_as("zombie", &["report", "--task", "a", "--title", "Half of it"]).ok();
    repo.pm_as("boss", &["reclaim", "--task", "a"]).ok();
    check_refused(&repo, "zombie", &old, 6);
    let new = repo.claim_as("w2", "a");
    check_refused(&repo, "zombie", &old, 12);
    repo.pm_as("zombie", &["heartbeat", "--task", "a"]).fails(12);
    let error = repo.pm_as("zombie", &["heartbeat", "--json", "--task", "a", "--claim", &old]).fails(12).error();
    assert_eq!((&error["holder"], &error["claim"]), (&"w2".into(), &new.as_str().into()));
    // What the zombie reported under its own claim proves nothing for the next one.
    repo.pm_as("w2", &["finished", "--task", "a"]).fails(7);
    repo.pm_as("w2", &["report", "--task", "a", "--title", "All of it"]).ok();
    repo.pm_as("w2", &["finished", "--task", "a"]).ok();
    check_refused(&repo, "zombie", &old, 6);
    repo.assert_sound();
}

#[test]
fn a_zombie_with_the_name_of_the_new_holder_is_refused_by_its_claim() {
    let repo = Repo::new();
    repo.plan("a");
    let old = repo.claim("a");
    repo.pm(&["release", "--task", "a"]).ok();
    let new = repo.claim("a");
    check_refused(&repo, "w1", &old, 12);
    repo.pm(&["heartbeat", "--task", "a", "--claim", &new]).ok();
}

#[test]
fn a_worker_that_was_killed_after_its_claim_finds_it_again() {
    let repo = Repo::new();
    repo.plan("a");
    let claim = repo.claim("a");
    let error = repo.pm(&["executing", "--json", "--task", "a"]).fails(6).error();
    assert_eq!((&error["claim"], &error["yours"]), (&claim.as_str().into(), &true.into()));
    let owned = repo.pm(&["owned", "--json"]).json();
    assert_eq!(owned["tasks"][0]["state"]["claim"], claim.as_str());
    repo.pm(&["owned", "--strict"]).exits(1);
    repo.pm(&["release", "--task", "a"]).ok();
    repo.pm(&["owned", "--strict"]).ok();
}

#[test]
fn a_shell_loop_over_pull_works_a_queue_off_and_ends() {
    let repo = Repo::new();
    for slug in ["a", "b", "c"] {
        repo.plan(slug);
    }
    let script = r#"
        set -eu
        pm() { "$PM" "$@" >/dev/null; }
        while eval "$("$PM" pull --shell)" && [ -n "$TASK" ]; do
            echo "$SLUG"
            pm heartbeat --task "$TASK"
            pm report --task "$TASK" --title "Did $SLUG"
            pm finished --task "$TASK"
        done
        echo "end:$TASK:$SLUG:$PM_CLAIM:"
    "#;
    let mut shell = repo.program("sh", &["-c", script]);
    let outcome = Outcome::of(&["sh"], shell.env("PM", env!("CARGO_BIN_EXE_pm"))).ok();
    assert_eq!(outcome.stdout, "a\nb\nc\nend::::\n");
    assert_eq!(repo.pm(&["list", "--json", "--status", "done"]).json()["total"], 3);
    repo.assert_sound();
}

#[test]
fn what_pull_prints_for_a_shell_is_what_json_would_say() {
    let repo = Repo::new();
    let task = repo.plan("a");
    let shell = repo.pm(&["pull", "--shell"]).ok().stdout;
    let claim = text(&repo.state("a")["claim"]);
    assert_eq!(shell, format!("export TASK={task} SLUG=a PM_CLAIM={claim} PM_AGENT_ID=w1\n"));
    for wrong in [&["pull", "--shell", "--json"][..], &["pull", "--shell", "--ttl", "9x"]] {
        // A loop that evaluates this must not run the old task again.
        let outcome = repo.pm(wrong);
        assert_eq!((outcome.code, &*outcome.stdout), (2, "export TASK= SLUG= PM_CLAIM=\n"), "{outcome:?}");
    }
}

#[test]
fn an_empty_queue_is_no_failure() {
    let repo = Repo::new();
    let next = repo.pm(&["next"]).ok().says("nothing is runnable");
    assert_eq!(next.stdout, "");
    assert_eq!(repo.pm(&["pull"]).ok().stdout, "");
    assert_eq!(repo.pm(&["pull", "--json"]).stdout_json(), serde_json::Value::Null);
    assert_eq!(repo.pm(&["pull", "--quiet"]).ok().stderr, "");
    repo.plan_with("blocked-by-nothing", &["--queue", "other"]);
    assert_eq!(repo.pm(&["next", "--json"]).stdout_json(), serde_json::Value::Null);
}
