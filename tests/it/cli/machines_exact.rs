//! What relies on other tasks (rules 8 and 9) is exact in one repository, also where a remote decides; and a parent is
//! finished by all the children that the hub has.

use crate::support::fleet::{assert_level, killed_on_its_way, tip_at, two};
use crate::support::process::Process;
use crate::support::servers::Hub;
use crate::support::{AGENT, Outcome, Repo, task_ref, until};

/// Starts pm as [`AGENT`] in this context.
fn start(repo: &Repo, context: &str, args: &[&str]) -> Process {
    Process::start(repo.pm_command(args).envs([("PM_AGENT_ID", AGENT), ("PM_CONTEXT_ID", context)]))
}

/// Whether a process has a file open below the folder of the locks on what records rely on.
fn is_at_the_locks(repo: &Repo, process: &Process) -> bool {
    let locks = repo.git_dir().canonicalize().expect("there").join("pm/relied");
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.0.id()));
    let targets = open.into_iter().flatten().flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
    targets.into_iter().any(|target| target.starts_with(&locks))
}

/// Runs `first` until its push is at the hub, and `second` beside it, which must wait for its end. Returns how each ended.
fn beside(hub: &Hub, repo: &Repo, first: (&str, &[&str]), second: (&str, &[&str])) -> (Outcome, Outcome) {
    let gate = hub.close_gate();
    let first = start(repo, first.0, first.1);
    gate.wait_for_push();
    let second = start(repo, second.0, second.1);
    until("it waits for the other one", || is_at_the_locks(repo, &second).then_some(()));
    drop(gate);
    (first.outcome(), second.outcome())
}

/// A claimed task, with its report.
fn reported(repo: &Repo, slug: &str) {
    repo.claim(slug);
    repo.pm(&["report", "--task", slug, "--title", "done"]).ok();
}

#[test]
fn a_parent_is_not_finished_beside_the_plan_of_a_child() {
    let (hub, a, _) = two();
    a.plan("p");
    reported(&a, "p");
    let plan = ["plan", "--title", "Child", "--slug", "child", "--parent", "p"];
    let (planned, finished) = beside(&hub, &a, ("", &plan), ("", &["finished", "--task", "p"]));
    planned.ok();
    finished.fails(14).says("default/child is new");
    a.work_off("child");
    let late = ["plan", "--title", "Late", "--slug", "late", "--parent", "p"];
    let (finished, planned) = beside(&hub, &a, ("", &["finished", "--task", "p"]), ("", &late));
    finished.ok();
    planned.fails(11).says("p, which is done");
    assert_level(&hub, &a, "p");
    a.assert_sound();
}

#[test]
fn a_parent_is_not_finished_beside_a_batch_with_a_child() {
    let (hub, a, _) = two();
    a.plan("p");
    reported(&a, "p");
    let batch = a.outside().join("batch");
    let plan = |slug: &str| {
        std::fs::write(&batch, format!("{{\"slug\":\"{slug}\",\"title\":\"Child\",\"parent_slug\":\"p\"}}\n"))
            .expect("written");
    };
    let bulk = ["bulk-plan", "--input", batch.to_str().expect("UTF-8")];
    plan("child");
    let (planned, finished) = beside(&hub, &a, ("", &bulk), ("", &["finished", "--task", "p"]));
    planned.ok();
    finished.fails(14).says("default/child is new");
    a.work_off("child");
    plan("late");
    let (finished, planned) = beside(&hub, &a, ("", &["finished", "--task", "p"]), ("", &bulk));
    finished.ok();
    planned.fails(11).says("p, which is done");
    assert_eq!(hub.tip(&task_ref("late")), None);
}

#[test]
fn what_is_tied_goes_to_one_context_though_two_claim_it_at_once() {
    let (hub, a, _) = two();
    a.plan_with("left", &["--sticky"]);
    a.plan_with("right", &["--sticky"]);
    a.plan_with("both", &["--sticky", "--depends-on", "left", "--depends-on", "right"]);
    let (left, right) =
        beside(&hub, &a, ("c1", &["executing", "--task", "left"]), ("c2", &["executing", "--task", "right"]));
    left.ok();
    right.fails(10).says("is bound to c1");
}

#[test]
fn a_task_is_not_claimed_beside_the_reopening_of_what_it_depends_on() {
    let (hub, a, _) = two();
    a.plan("before");
    a.work_off("before");
    a.plan_with("after", &["--depends-on", "before"]);
    let (opened, claimed) =
        beside(&hub, &a, ("", &["replan", "--task", "before"]), ("", &["executing", "--task", "after"]));
    opened.ok();
    claimed.fails(11).says("default/before");
    a.work_off("before");
    let (claimed, opened) =
        beside(&hub, &a, ("", &["executing", "--task", "after"]), ("", &["replan", "--task", "before"]));
    claimed.ok();
    opened.ok();
}

#[test]
fn two_plans_at_once_make_no_circle() {
    let (hub, a, _) = two();
    a.plan("left");
    a.plan("right");
    let plan = |slug: &'static str, parent: &'static str, other: &'static str| {
        ["plan", "--title", "Circle", "--slug", slug, "--parent", parent, "--depends-on", other]
    };
    let (first, second) = beside(&hub, &a, ("", &plan("one", "left", "right")), ("", &plan("two", "right", "left")));
    first.ok();
    second.fails(11).says("cycle");
}

#[test]
fn a_parent_is_finished_by_the_children_that_the_hub_has_and_this_machine_has_not_seen() {
    for how in [&["finished", "--task", "p"][..], &["finished", "--task", "p", "--rejected"]] {
        let (hub, a, b) = two();
        a.plan("p");
        reported(&a, "p");
        let before = tip_at(&hub, "p");
        b.plan_with("child", &["--parent", "default/p"]);
        a.pm(how).fails(14).says("default/child is new");
        assert_eq!((tip_at(&hub, "p"), a.tip("p")), (before.clone(), before));
        b.pm(&["cancel", "--task", "child"]).ok();
        a.pm(how).ok();
        assert_level(&hub, &a, "p");
        a.assert_sound();
    }
}

#[test]
fn a_task_that_fell_back_or_is_gone_at_the_hub_is_not_finished() {
    let (hub, a, _) = two();
    a.plan("p");
    reported(&a, "p");
    let (name, tip) = (task_ref("p"), tip_at(&hub, "p"));
    hub.git(&["update-ref", &name, &format!("{tip}~")]);
    a.pm(&["finished", "--task", "p"]).fails(19).says("fell back");
    hub.git(&["update-ref", "-d", &name]);
    a.pm(&["finished", "--task", "p"]).fails(19).says("gone");
    hub.git(&["update-ref", &name, &tip]);
    a.pm(&["finished", "--task", "p"]).ok();
    assert_level(&hub, &a, "p");
}

#[test]
fn a_runner_closes_a_parent_after_the_child_that_another_machine_planned_meanwhile() {
    let (hub, a, b) = two();
    a.plan("p");
    let script = format!(
        "[ $PM_SLUG = child ] || (cd {} && {} plan --title Child --slug child --parent default/p)",
        b.path().display(),
        env!("CARGO_BIN_EXE_pm")
    );
    let args = ["work", "--until-empty", "--", "sh", "-c", &script];
    a.pm(&args).ok();
    for slug in ["p", "child"] {
        assert_eq!(a.phase(slug), "done", "{slug}");
        assert_level(&hub, &a, slug);
    }
    let closed = |slug: &str| a.git(&["log", "-1", "--format=%ct", &task_ref(slug)]);
    assert!(closed("child") <= closed("p"));
}

#[test]
fn nothing_is_decided_over_what_a_writer_that_died_left_on_its_way() {
    let (hub, a, _) = two();
    a.plan("p");
    reported(&a, "p");
    killed_on_its_way(&hub, &a, &["plan", "--title", "Child", "--slug", "child", "--parent", "p"]);
    a.pm(&["finished", "--task", "p"]).fails(14).says("default/child is new");
    a.work_off("child");
    killed_on_its_way(&hub, &a, &["finished", "--task", "p"]);
    a.pm(&["plan", "--title", "Late", "--slug", "late", "--parent", "p"]).fails(11).says("p, which is done");
    a.plan_with("after", &["--depends-on", "p"]);
    killed_on_its_way(&hub, &a, &["replan", "--task", "p"]);
    a.pm(&["executing", "--task", "after"]).fails(11).says("default/p");
    assert_level(&hub, &a, "p");
    a.assert_sound();
}

#[test]
fn a_parent_is_not_finished_while_it_is_not_known_whether_it_has_a_child() {
    let (hub, a, _) = two();
    a.plan("p");
    reported(&a, "p");
    a.git(&["config", "pm.networkTimeout", "1s"]);
    let gate = hub.close_gate();
    a.pm(&["plan", "--title", "Child", "--slug", "child", "--parent", "p"]).fails(22);
    a.pm(&["finished", "--task", "p"]).fails(20).says("default/child").says("its fate is not known");
    drop(gate);
    a.git(&["config", "pm.networkTimeout", "10s"]);
    a.pm(&["finished", "--task", "p"]).fails(14).says("default/child is new");
    assert_level(&hub, &a, "child");
}
