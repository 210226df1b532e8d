//! The ways out of what a sync leaves alone, and the account of what lost.

use serde_json::Value;

use crate::support::fleet::{REMOTE, assert_level, hub, lost, machine, own, tip_at, two};
use crate::support::servers::Hub;
use crate::support::{Repo, task_ref, text};

/// A hub and two machines; the first has claimed `a`, and both know.
fn world() -> (Hub, Repo, Repo) {
    let (hub, a, b) = two();
    a.plan("a");
    a.claim("a");
    b.pm(&["sync"]).ok();
    (hub, a, b)
}

/// A commit at the hub that is no record, on top of a task there.
fn junk(hub: &Hub, slug: &str) -> String {
    let tree = hub.git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let identity = ["-c", "user.name=x", "-c", "user.email=x@example.com"];
    let tip = tip_at(hub, slug);
    let junk = hub.git(&[&identity[..], &["commit-tree", &tree, "-p", &tip, "-m", "x"]].concat());
    hub.git(&["update-ref", &task_ref(slug), &junk]);
    junk
}

#[test]
fn what_vanished_or_fell_back_is_pushed_back_and_nothing_else() {
    let (hub, a, b) = world();
    a.plan("b");
    b.pm(&["sync"]).ok();
    let tips = (a.tip("a"), a.tip("b"));
    hub.git(&["update-ref", "-d", &task_ref("b")]);
    hub.git(&["update-ref", &task_ref("a"), &format!("{}~1", task_ref("a"))]);
    b.pm(&["sync"]).exits(19);
    let back = b.pm(&["repair", "--push-back", "--json"]).json();
    assert_eq!(back["pushed_back"].as_array().map(Vec::len), Some(2), "{back}");
    assert_eq!((tip_at(&hub, "a"), tip_at(&hub, "b")), tips);
    for repo in [&a, &b] {
        repo.pm(&["sync"]).ok();
        assert_level(&hub, repo, "a");
    }
    let again = b.pm(&["repair", "--push-back", "--json"]).json();
    assert_eq!(again["pushed_back"], Value::Array(vec![]));
}

#[test]
fn a_repository_that_fell_back_itself_pushes_back_the_newest_that_it_has_seen() {
    let (hub, a, b) = world();
    a.pm(&["heartbeat", "--task", "a"]).ok();
    b.pm(&["sync"]).ok();
    let newest = b.tip("a");
    b.git(&["update-ref", &task_ref("a"), &format!("{newest}~1")]);
    hub.git(&["update-ref", "-d", &task_ref("a")]);
    b.pm(&["repair", "--push-back"]).ok();
    assert_eq!((tip_at(&hub, "a"), b.tip("a")), (newest.clone(), newest));
    b.pm(&["sync"]).ok();
}

#[test]
fn a_chain_that_was_replaced_is_not_pushed_back_over_what_is_there() {
    let (hub, a, _) = world();
    let other = Repo::new();
    other.plan("a");
    let path = other.path().display().to_string();
    hub.git(&["fetch", "--quiet", &path, &format!("+{0}:{0}", task_ref("a"))]);
    let there = tip_at(&hub, "a");
    let back = a.pm(&["repair", "--push-back", "--json"]).exits(19);
    assert!(back.stdout.contains("--rewind"), "{back:?}");
    assert_eq!(tip_at(&hub, "a"), there);
}

#[test]
fn a_rewind_wants_the_tip_that_was_seen_and_goes_to_the_last_good_record() {
    let (hub, a, b) = world();
    let good = tip_at(&hub, "a");
    let bad = junk(&hub, "a");
    a.pm(&["sync"]).exits(19);
    let plan = a.pm(&["repair", "--rewind", "--task", "a", "--json"]).json();
    assert_eq!(
        (text(&plan["tip"]), text(&plan["to"]), &plan["done"]),
        (bad.clone(), good.clone(), &Value::Bool(false))
    );
    assert_eq!(tip_at(&hub, "a"), bad, "it was only shown");
    a.pm(&["repair", "--rewind", "--task", "a", "--if-tip", &good]).fails(8).says(&bad);
    a.pm(&["repair", "--rewind", "--task", "a", "--if-tip", &bad]).ok();
    assert_eq!(tip_at(&hub, "a"), good);
    assert!(own(&a, "refs/pm-remote/origin/refused").contains(&bad), "what was taken away is kept");
    for repo in [&a, &b] {
        repo.pm(&["sync"]).ok();
        repo.pm(&["verify"]).ok();
    }
    a.pm(&["heartbeat", "--task", "a"]).ok();
    a.pm(&["repair", "--rewind", "--task", "a"]).fails(2).says("nothing is wrong");
}

#[test]
fn records_between_what_was_seen_and_the_fault_survive_a_rewind() {
    let (hub, a, b) = world();
    a.pm(&["heartbeat", "--task", "a"]).ok();
    let good = tip_at(&hub, "a");
    let bad = junk(&hub, "a");
    // The second machine has not seen that heartbeat.
    b.pm(&["repair", "--rewind", "--task", "a", "--if-tip", &bad]).ok();
    assert_eq!(tip_at(&hub, "a"), good);
}

#[test]
fn without_an_authority_a_chain_here_is_rewound_and_what_was_above_is_kept() {
    let repo = Repo::new();
    repo.plan("a");
    let good = repo.tip("a");
    let tree = repo.git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
    let bad = repo.git(&["commit-tree", &tree, "-p", &good, "-m", "x"]);
    repo.git(&["update-ref", &task_ref("a"), &bad]);
    repo.pm(&["show", "--task", "a"]).fails(19);
    repo.pm(&["repair", "--rewind", "--task", "a", "--if-tip", &bad]).ok();
    assert_eq!(repo.tip("a"), good);
    repo.pm(&["verify"]).ok();
    assert_eq!(own(&repo, "refs/pm-lost"), format!("refs/pm-lost/default/a/{bad} {bad}"));
}

#[test]
fn of_two_ledgers_that_existed_before_a_task_gives_way_under_a_new_name() {
    let hub = hub();
    let (a, b) = (machine(&hub), Repo::new());
    a.plan("same");
    b.plan("same");
    b.plan_with("after", &["--depends-on", "same"]);
    b.git(&["remote", "add", REMOTE, &hub.path().display().to_string()]);
    let init = b.pm(&["init", "--remote", REMOTE, "--json"]).json();
    assert_eq!(init["meeting"]["collisions"][0], task_ref("same").as_str(), "{init}");
    b.pm(&["sync"]).exits(19);
    b.pm(&["executing", "--task", "same"]).fails(19);
    let old = b.tip("same");
    b.pm(&["repair", "--set-aside", "--task", "same", "--slug", "same-b"]).ok().says("after");
    assert_level(&hub, &b, "same");
    assert_level(&hub, &b, "same-b");
    assert_eq!(lost(&b, "same")[0].0, old);
    b.pm(&["sync"]).ok();
    a.pm(&["repair", "--set-aside", "--task", "same", "--slug", "x"]).fails(2);
}

#[test]
fn what_lost_is_listed_with_the_reason_newest_first() {
    let (hub, a, b) = world();
    a.plan("c");
    b.pm(&["sync"]).ok();
    a.pm(&["executing", "--task", "c", "--offline"]).ok();
    b.claim_as("w2", "c");
    a.pm(&["sync"]).ok();
    let all = a.pm(&["lost", "--json"]).json();
    assert_eq!((all[0]["place"].as_str(), all[0]["remote"].as_str()), (Some("default/c"), Some(REMOTE)));
    let record = &all[0]["records"][0];
    assert_eq!((record["what"].as_str(), record["agent"].as_str()), (Some("TaskStatus(working)"), Some("w1")));
    assert!(record["why"].as_str().is_some_and(|why| why.contains("first push wins")), "{record}");
    assert_eq!(a.pm(&["lost", "--task", "c", "--json"]).json(), all);
    assert_eq!(a.pm(&["lost", "--task", "a", "--json"]).json(), Value::Array(vec![]));
    assert!(a.pm(&["lost"]).ok().stdout.contains("default/c"));
    assert_level(&hub, &a, "c");
}

#[test]
fn a_task_that_is_nowhere_is_unknown_to_a_repair() {
    let alone = Repo::new();
    alone.pm(&["repair", "--rewind", "--task", "absent"]).fails(17).says("no task 'default/absent'");
    let (_hub, a, b) = world();
    a.pm(&["repair", "--rewind", "--task", "absent"]).fails(17).says("no task 'default/absent'");
    a.pm(&["repair", "--set-aside", "--task", "absent", "--slug", "x"]).fails(17).says("no task 'default/absent'");
    // One that only the authority has is there.
    b.plan("there");
    a.pm(&["repair", "--rewind", "--task", "there"]).fails(2).says("nothing is wrong");
}
