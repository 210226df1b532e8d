//! Chains that cannot be read, and what they may hide: a finish, a sticky claim and a cascade never take them for nothing.

use std::path::PathBuf;

use super::damage::object_file;
use crate::support::{Outcome, Repo, task_ref, text};

/// An object that was taken away, and can be put back.
struct Gone {
    file: PathBuf,
    bytes: Vec<u8>,
}

impl Gone {
    fn object(repo: &Repo, id: &str) -> Gone {
        let file = object_file(repo, id);
        let bytes = std::fs::read(&file).expect("a loose object");
        std::fs::remove_file(&file).expect("removed");
        Gone { file, bytes }
    }

    fn tip(repo: &Repo, slug: &str) -> Gone {
        Gone::object(repo, &repo.tip(slug))
    }

    fn put_back(self) {
        std::fs::write(self.file, self.bytes).expect("written");
    }
}

/// Every ref and where it is, whether there is such an object or not.
fn refs(repo: &Repo) -> String {
    repo.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/pm"])
}

/// Asserts that a call is refused since the chain of `slug` cannot be read, and that nothing was recorded.
#[track_caller]
fn hidden_by(repo: &Repo, slug: &str, call: impl Fn(&[&str]) -> Outcome) {
    let before = refs(repo);
    call(&[])
        .fails(19)
        .says(&task_ref(slug))
        .says("the object is missing")
        .says("pm verify")
        .says("nothing was recorded");
    let error = call(&["--json"]).fails(19).error();
    assert_eq!((&error["code"], &error["damaged"][0]["ref"]), (&"damaged".into(), &task_ref(slug).into()), "{error}");
    assert_eq!(refs(repo), before);
}

#[track_caller]
fn hidden(repo: &Repo, slug: &str, args: &[&str]) {
    hidden_by(repo, slug, |more| repo.pm(&[args, more].concat()));
}

/// A parent that is claimed and reported, with an open child that was claimed once, and one that is settled.
fn parent_and_child() -> Repo {
    let repo = Repo::new();
    repo.plan("p");
    repo.claim("p");
    repo.pm(&["report", "--task", "p", "--title", "Done"]).ok();
    repo.plan_with("c", &["--parent", "p"]);
    repo.claim("c");
    repo.plan_with("d", &["--parent", "p"]);
    repo.pm(&["cancel", "--task", "d"]).ok();
    repo
}

const FINISH: [&str; 3] = ["finished", "--task", "p"];

#[test]
fn a_child_that_cannot_be_read_keeps_its_parent_open_until_it_can() {
    let repo = parent_and_child();
    repo.pm(&FINISH).fails(14);
    let (below, tip) = (repo.git(&["rev-parse", &format!("{}~", task_ref("c"))]), repo.tip("c"));
    let gone = Gone::tip(&repo, "c");
    hidden(&repo, "c", &FINISH);
    hidden(&repo, "c", &["finished", "--task", "p", "--rejected"]);
    // A task of another queue has no children here.
    repo.plan_with("elsewhere", &["--queue", "other"]);
    repo.work_off("other/elsewhere");
    gone.put_back();
    repo.pm(&FINISH).fails(14);
    // The other way out: back to what is left of the chain.
    let _gone = Gone::tip(&repo, "c");
    repo.git(&["update-ref", &task_ref("c"), &below, &tip]);
    repo.pm(&FINISH).fails(14);
    repo.pm(&["cancel", "--task", "c"]).ok();
    repo.pm(&FINISH).ok();
}

#[test]
fn a_record_that_breaks_a_rule_is_rewound_and_then_its_parent_goes_on() {
    let repo = parent_and_child();
    let tip = repo.tip("c");
    let foreign = repo.git(&["commit-tree", &repo.git_fed(b"", &["mktree"]), "-p", &tip, "-m", "code"]);
    repo.git(&["update-ref", &task_ref("c"), &foreign]);
    repo.pm(&FINISH).fails(19).says("pm repair --rewind --task default/c");
    repo.pm(&["repair", "--rewind", "--task", "default/c", "--if-tip", &foreign]).ok();
    assert_eq!(repo.tip("c"), tip);
    repo.pm(&FINISH).fails(14);
}

#[test]
fn what_can_be_read_of_a_damaged_chain_shows_that_it_is_no_child() {
    let repo = Repo::new();
    repo.plan("p");
    repo.plan("other");
    let claim = repo.claim("other");
    repo.pm(&["heartbeat", "--task", "other"]).ok();
    let _gone = Gone::object(&repo, &claim);
    repo.pm(&["show", "--task", "other"]).fails(19);
    repo.work_off("p");
}

#[test]
fn a_child_of_a_replaced_parent_that_cannot_be_read_keeps_the_replacement_open() {
    let repo = Repo::new();
    repo.plan("p");
    repo.plan_with("c", &["--parent", "p"]);
    repo.pm(&["replan", "--task", "p", "--text", "otherwise"]).ok();
    repo.claim("p-r1");
    repo.pm(&["report", "--task", "p-r1", "--title", "Done"]).ok();
    let finish = ["finished", "--task", "p-r1"];
    repo.pm(&finish).fails(14);
    let task = repo.state("p");
    let first = text(&repo.pm(&["show", "--task", "p", "--json"]).json()["task"]["sha"]);
    assert_eq!(task["status"], "superseded");
    for (id, named) in [(repo.tip("p"), "p"), (first, "c")] {
        let gone = Gone::object(&repo, &id);
        hidden(&repo, named, &finish);
        gone.put_back();
    }
    let file = repo.git_dir().join(task_ref("p"));
    let value = std::fs::read(&file).expect("a loose ref");
    std::fs::write(&file, "garbage").expect("written");
    repo.pm(&finish)
        .fails(19)
        .says(&format!("{}: the ref does not hold an object id (found 'garbage')", task_ref("p")));
    std::fs::write(&file, value).expect("written");
    let _gone = Gone::tip(&repo, "p");
    repo.pm(&finish).fails(19).says("pm cancel --task default/c");
    // Whose child a settled task is does not matter. (The damaged one may be a child itself.)
    repo.pm(&["cancel", "--task", "c", "--no-cascade"]).ok();
    assert_eq!(repo.phase("c"), "rejected");
    let told = repo.pm(&finish).fails(19);
    assert!(!told.stderr.contains("default/c"), "{told:?}");
}

#[test]
fn a_runner_gives_a_task_back_at_once_whose_children_cannot_all_be_read() {
    let repo = parent_and_child();
    for slug in ["c", "p"] {
        repo.pm(&["release", "--task", slug]).ok();
    }
    repo.pm(&["cancel", "--task", "c"]).ok();
    let _gone = Gone::tip(&repo, "d");
    let told = repo.pm(&["work", "--max-tasks", "1", "--", "true"]).exits(1);
    assert!(told.stdout.contains("whether its children are settled cannot be told"), "{told:?}");
    assert!(!told.stdout.contains("lost"), "{told:?}");
    assert_eq!(repo.phase("p"), "new");
}

#[test]
fn a_sticky_task_is_not_claimed_while_what_may_tie_it_cannot_be_read() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan_with(slug, &["--sticky"]);
    }
    repo.plan_with("c", &["--sticky", "--depends-on", "a,b"]);
    repo.plan_with("lonely", &["--sticky"]);
    repo.plan("plain");
    repo.plan_with("far", &["--sticky", "--queue", "other"]);
    let claim = |context: &'static str, slug: &'static str| {
        let repo = &repo;
        move |more: &[&str]| {
            repo.pm_with(&[("PM_CONTEXT_ID", context)], &[&["executing", "--task", slug], more].concat())
        }
    };
    let offered = |context: &'static str| {
        let next = repo.pm_with(&[("PM_CONTEXT_ID", context)], &["next", "--all", "--json"]).json();
        let slugs = next["tasks"].as_array().expect("a list").iter().map(|task| text(&task["slug"]));
        slugs.collect::<Vec<_>>()
    };
    claim("c1", "a")(&[]).ok();
    claim("c2", "b")(&[]).fails(10);
    for lost in ["a", "c"] {
        let gone = Gone::tip(&repo, lost);
        hidden_by(&repo, lost, claim("c2", "b"));
        assert_eq!(offered("c2"), ["plain"], "{lost}");
        gone.put_back();
    }
    // What can be read of a chain may show that it ties nothing here.
    let status = claim("c3", "lonely")(&["--json"]).json();
    repo.pm_with(&[("PM_CONTEXT_ID", "c3")], &["heartbeat", "--task", "lonely"]).ok();
    let _gone = Gone::object(&repo, &text(&status["sha"]));
    assert_eq!(offered("c1"), ["b", "plain"]);
    claim("c1", "b")(&[]).ok();
    let _gone = Gone::tip(&repo, "a");
    repo.claim("plain");
    claim("c2", "other/far")(&[]).ok();
}

/// The slugs of the steps of one kind, and whether an id is told.
fn steps(told: &serde_json::Value, kind: &str) -> Vec<(String, bool)> {
    let row = |step: &serde_json::Value| (text(&step["slug"]), step["task"].is_string());
    told[kind].as_array().expect("a list").iter().map(row).collect()
}

fn named(slug: &str, has_id: bool) -> (String, bool) {
    (slug.to_owned(), has_id)
}

#[test]
fn a_cascade_names_what_it_could_not_read_and_goes_on_once_it_can() {
    let repo = parent_and_child();
    repo.plan("stranger");
    let (lost, stranger) = (Gone::tip(&repo, "c"), Gone::tip(&repo, "stranger"));
    let reclaimed = repo.pm(&["reclaim", "--task", "p", "--cascade", "--json"]).exits(19).stdout_json();
    assert_eq!(steps(&reclaimed, "changed"), [named("p", true)]);
    assert_eq!(steps(&reclaimed, "failed"), [named("c", false), named("stranger", false)], "nobody knows whose it is");
    stranger.put_back();
    repo.pm(&["reclaim", "--task", "p", "--cascade"]).exits(19).says("default/c: ");
    let told = repo.pm(&["cancel", "--task", "p", "--json"]).exits(19).stdout_json();
    assert_eq!(steps(&told, "changed"), [named("p", true)]);
    assert_eq!(steps(&told, "failed"), [named("c", false)]);
    assert_eq!(told["failed"][0]["error"]["ref"], task_ref("c"));
    let again = repo.pm(&["cancel", "--task", "p"]).exits(19).says("default/c: ").says("pm verify");
    assert!(again.stdout.contains("0 tasks cancelled, 2 left alone, 1 failed"), "{again:?}");
    lost.put_back();
    repo.pm(&["cancel", "--task", "p"]).ok();
    assert_eq!(repo.phase("c"), "rejected");
    repo.pm(&["cancel", "--task", "p"]).fails(6);
    repo.assert_sound();
}

#[test]
fn a_replan_names_what_it_could_not_read() {
    let repo = Repo::new();
    repo.plan("base");
    repo.plan_with("t", &["--depends-on", "base"]);
    repo.plan_with("after", &["--depends-on", "t"]);
    repo.plan("stranger");
    for slug in ["base", "t", "after", "stranger"] {
        repo.work_off(slug);
    }
    let replan = |spread: &str| repo.pm(&["replan", "--task", "t", spread, "--json"]).exits(19).stdout_json();
    let lost = Gone::tip(&repo, "base");
    assert_eq!(steps(&replan("--cascade-up"), "failed"), [named("base", false)]);
    lost.put_back();
    let lost = Gone::tip(&repo, "after");
    assert_eq!(steps(&replan("--cascade-down"), "failed"), [named("after", false)]);
    // Whatever it is, the task is not built on it.
    repo.pm(&["replan", "--task", "t", "--cascade-up"]).ok();
    lost.put_back();
    let _lost =
        Gone::object(&repo, &text(&repo.pm(&["show", "--task", "stranger", "--json"]).json()["statuses"][0]["sha"]));
    repo.pm(&["replan", "--task", "t", "--cascade-down"]).ok();
    assert_eq!((repo.phase("base"), repo.phase("after")), ("new".to_owned(), "new".to_owned()));
}
