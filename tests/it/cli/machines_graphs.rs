//! Plans as graphs on several machines: what other tasks say counts as the hub has it.

use serde_json::json;

use crate::support::fleet::{REMOTE, assert_level, two};
use crate::support::{Repo, task_ref, text};

fn context(repo: &Repo, context: &str, args: &[&str]) -> crate::support::Outcome {
    repo.pm_with(&[("PM_CONTEXT_ID", context)], args)
}

#[test]
fn a_child_is_planned_and_claimed_by_what_the_hub_has_of_its_parent() {
    let (hub, a, b) = two();
    a.plan("parent");
    // The other machine does not know it yet.
    b.plan_with("child", &["--parent", "default/parent"]);
    assert_level(&hub, &b, "child");
    b.pm(&["executing", "--task", "child"]).fails(15);
    a.claim("parent");
    b.claim("child");
    assert_level(&hub, &b, "child");
    // Closed there, and not known here.
    a.pm(&["sync"]).ok();
    a.pm(&["cancel", "--task", "parent"]).ok();
    b.pm(&["plan", "--title", "late", "--parent", "parent"]).fails(11).says("parent, which is rejected");
    assert_eq!(hub.tip(&task_ref("late")), None);
}

#[test]
fn a_parent_is_finished_by_what_the_hub_has_of_its_children() {
    let (hub, a, b) = two();
    a.plan("parent");
    a.plan_with("child", &["--parent", "parent"]);
    a.claim("parent");
    a.pm(&["report", "--task", "parent", "--title", "done"]).ok();
    a.pm(&["finished", "--task", "parent"]).fails(14).says("default/child is new");
    b.pm(&["sync"]).ok();
    b.work_off("child");
    // Here the child is still new.
    assert_eq!(a.phase("child"), "new");
    a.pm(&["finished", "--task", "parent"]).ok();
    assert_level(&hub, &a, "parent");
    a.assert_sound();
}

#[test]
fn a_context_that_was_bound_elsewhere_is_the_one_that_counts() {
    let (hub, a, b) = two();
    a.plan_with("first", &["--sticky"]);
    a.plan_with("second", &["--sticky", "--depends-on", "first"]);
    b.pm(&["sync"]).ok();
    context(&a, "c1", &["executing", "--task", "first"]).ok();
    context(&a, "c1", &["report", "--task", "first", "--title", "done"]).ok();
    context(&a, "c1", &["finished", "--task", "first"]).ok();
    // As far as this machine knows, nothing is bound, and nothing is done.
    assert_eq!(b.phase("first"), "new");
    context(&b, "c2", &["executing", "--task", "second"]).fails(10).says("default/first is bound to c1");
    assert_eq!(hub.tip(&task_ref("second")), Some(b.tip("second")));
    context(&b, "c1", &["executing", "--task", "second"]).ok();
    assert_level(&hub, &b, "second");
}

#[test]
fn cascades_and_replacements_count_at_the_hub_and_see_what_it_has() {
    let (hub, a, b) = two();
    a.plan("root");
    a.plan_with("child", &["--parent", "root"]);
    b.pm(&["sync"]).ok();
    a.plan_with("grandchild", &["--parent", "child"]);
    // Planned after this machine has looked.
    let told = b.pm(&["cancel", "--json", "--task", "root"]).json();
    let slugs: Vec<_> = told["changed"].as_array().expect("a list").iter().map(|step| text(&step["slug"])).collect();
    assert_eq!(slugs, ["root", "child", "grandchild"]);
    for slug in ["root", "child", "grandchild"] {
        assert_level(&hub, &b, slug);
    }
    let told = b.pm(&["replan", "--json", "--task", "child", "--text", "otherwise"]).json();
    assert_eq!(told["clone"]["slug"], "child-r1");
    assert_level(&hub, &b, "child");
    assert_level(&hub, &b, "child-r1");
    a.pm(&["sync"]).ok();
    assert_eq!(a.phase("child"), "superseded");
    // The other machine counts on from there.
    let told = a.pm(&["replan", "--json", "--task", "child-r1", "--verifier", "prompt:well done"]).json();
    assert_eq!(told["clone"]["slug"], "child-r2");
    b.pm(&["replan", "--task", "child-r1"]).fails(6);
}

#[test]
fn a_cascade_without_the_hub_changes_nothing() {
    let (_hub, a, _) = two();
    a.plan("root");
    a.plan_with("child", &["--parent", "root"]);
    let before = a.refs();
    a.git(&["config", &format!("remote.{REMOTE}.url"), "/nowhere/at/all"]);
    for args in [
        &["cancel", "--task", "root"][..],
        &["replan", "--task", "root", "--text", "x"],
        &["cancel", "--task", "child"],
    ] {
        a.pm(args).fails(20);
    }
    assert_eq!(a.refs(), before);
}

#[test]
fn a_verifier_runs_once_although_the_answer_to_its_finish_is_late() {
    let (hub, a, _) = two();
    a.git(&["config", "--add", "pm.allowVerifier", "echo run >>runs"]);
    a.plan_with("task", &["--verifier", "echo run >>runs"]);
    a.claim("task");
    a.pm(&["report", "--task", "task", "--title", "done"]).ok();
    let done = a.pm(&["finished", "--json", "--task", "task"]).json();
    assert_eq!(done["attributes"]["verifier_exit"], json!(0));
    assert_level(&hub, &a, "task");
    assert_eq!(std::fs::read_to_string(a.path().join("runs")).expect("it ran"), "run\n");
}
