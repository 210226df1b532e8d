//! A runner and tasks that hang together: parents, contexts, verifiers.

use serde_json::json;

use crate::support::runner::{event, start, told, work};
use crate::support::{Repo, text, until};

/// Plans tasks from `[slug, parent, dependencies…]`.
fn plan(repo: &Repo, rows: &[&[&str]]) {
    let line = |row: &&[&str]| {
        let mut task = json!({"slug": row[0], "title": row[0], "depends_on_slugs": row[2..]});
        if !row[1].is_empty() {
            task["parent_slug"] = json!(row[1]);
        }
        task.to_string()
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    repo.pm_fed(&lines.join("\n"), &["bulk-plan", "--input", "-"]).ok();
}

#[test]
fn one_agent_alone_gets_through_a_tree() {
    let repo = Repo::new();
    plan(
        &repo,
        &[&["root", ""], &["a", "root"], &["b", "root", "a"], &["a1", "a"], &["a2", "a", "a1"], &["after", "", "root"]],
    );
    let outcome = work(&repo, &["--agents", "1"], "true").ok();
    let order: Vec<_> = told(&outcome);
    let at = |what: &str| order.iter().position(|told| told == what).unwrap_or_else(|| panic!("{what}: {order:?}"));
    for (before, after) in [
        ("started root", "started a"),
        ("started a", "started a1"),
        ("done a1", "started a2"),
        ("done a2", "done a"),
        ("done a", "started b"),
        ("done b", "done root"),
        ("done root", "started after"),
    ] {
        assert!(at(before) < at(after), "{before} comes before {after}: {order:?}");
    }
    for slug in ["root", "a", "b", "a1", "a2", "after"] {
        assert_eq!(repo.phase(slug), "done", "{slug}");
        assert_eq!(repo.state(slug)["attempt"], 1, "{slug}");
    }
    repo.assert_sound();
}

#[test]
fn children_that_nobody_will_settle_are_not_waited_for() {
    let repo = Repo::new();
    plan(&repo, &[&["never", ""], &["root", ""], &["child", "root", "never"], &["after", "", "root"]]);
    repo.pm(&["cancel", "--task", "never"]).ok();
    let outcome = work(&repo, &["--agents", "2"], "true").exits(1);
    let why = text(&event(&outcome, "failed")["why"]);
    assert!(why.contains("child is new"), "{why}");
    assert_eq!(repo.phase("root"), "new", "it is given back");
}

#[test]
fn children_that_somebody_else_works_on_are_waited_for_with_the_claim_kept_alive() {
    let repo = Repo::new();
    plan(&repo, &[&["root", ""], &["child", "root"]]);
    // The command lets somebody else take the child, before the runner can.
    let script = format!("PM_CLAIM= '{}' executing --task child --agent other >/dev/null", env!("CARGO_BIN_EXE_pm"));
    let runner = start(&repo, &["--ttl", "1s"], &script);
    let beats = || repo.pm(&["show", "--json", "--task", "root"]).json()["heartbeat_count"].as_u64();
    until("two leases have gone by", || (beats() >= Some(6)).then_some(()));
    assert_eq!(repo.phase("root"), "working");
    repo.pm_as("other", &["report", "--task", "child", "--title", "done"]).ok();
    repo.pm_as("other", &["finished", "--task", "child"]).ok();
    runner.outcome().ok();
    assert_eq!(repo.phase("root"), "done");
    assert_eq!(repo.state("root")["attempt"], 1);
}

#[test]
fn a_runner_takes_what_its_context_may_and_says_what_it_leaves() {
    let repo = Repo::new();
    repo.plan_with("mine", &["--sticky"]);
    repo.plan_with("also-mine", &["--sticky", "--depends-on", "mine"]);
    repo.plan_with("theirs", &["--sticky"]);
    repo.plan("anybodys");
    repo.pm_as("other", &["executing", "--task", "theirs", "--context-id", "c2"]).ok();
    repo.pm_as("other", &["release", "--task", "theirs"]).ok();
    let outcome = work(&repo, &[], "true").ok();
    assert_eq!(told(&outcome), ["started anybodys", "done anybodys", "left-blocked", "summary"]);
    assert!(outcome.stderr.contains("only in another context"), "{}", outcome.stderr);
    let outcome = work(&repo, &["--context-id", "c1"], "true").ok();
    assert!(told(&outcome).contains(&"done also-mine".to_owned()), "{:?}", told(&outcome));
    assert_eq!(repo.state("also-mine")["context_id"], "c1");
    assert_eq!((repo.phase("theirs"), repo.state("theirs")["context_id"].clone()), ("new".to_owned(), json!("c2")));
    work(&repo, &["--context-id", "c2"], "true").ok();
    assert_eq!(repo.phase("theirs"), "done");
    repo.assert_sound();
}

#[test]
fn a_runner_asks_verifiers_and_takes_a_no_for_a_failure() {
    let repo = Repo::new();
    let verifier = "test $PM_SLUG = good && echo seen";
    repo.plan_with("good", &["--verifier", verifier]);
    repo.plan_with("bad", &["--verifier", verifier]);
    let outcome = work(&repo, &["--max-tasks", "1"], "touch $OUT/ran").exits(1);
    let why = text(&event(&outcome, "not-started")["why"]);
    assert!(why.contains("git config --add pm.allowVerifier"), "{why}");
    assert!(!repo.outside().join("ran").exists(), "no work is done that could not be closed");

    repo.git(&["config", "--add", "pm.allowVerifier", verifier]);
    let outcome = work(&repo, &["--agents", "2"], "true").exits(1);
    assert_eq!(event(&outcome, "rejected")["why"], "the verifier failed with exit 1");
    let closed = |slug| {
        let shown = repo.pm(&["show", "--json", "--task", slug]).json();
        shown["statuses"].as_array().and_then(|all| all.last()).expect("a status")["attributes"].clone()
    };
    assert_eq!((&closed("good")["status"], &closed("good")["verifier_summary"]), (&json!("done"), &json!("seen")));
    assert_eq!((&closed("bad")["status"], &closed("bad")["verifier_exit"]), (&json!("rejected"), &json!(1)));
    repo.assert_sound();
}
