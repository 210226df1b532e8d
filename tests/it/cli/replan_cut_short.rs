//! Replans that were cut short, and what is said and done when they are asked for again.

use serde_json::Value;

use super::replan_races::begin_a_replacement;
use crate::support::{Repo, text};

fn slugs(told: &Value, kind: &str) -> Vec<String> {
    told[kind].as_array().expect("a list").iter().map(|step| text(&step["slug"])).collect()
}

/// The tasks that anybody could claim now.
fn runnable(repo: &Repo) -> Vec<String> {
    let next = repo.pm(&["next", "--all", "--json"]).json();
    next["tasks"].as_array().expect("a list").iter().map(|task| text(&task["slug"])).collect()
}

#[test]
fn a_cascade_that_was_cut_short_behind_its_clone_is_completed_by_the_same_command() {
    let repo = Repo::new();
    repo.plan("n0");
    for slug in ["n1", "n2"] {
        repo.plan_with(slug, &["--depends-on", "n0"]);
    }
    for slug in ["n0", "n1", "n2"] {
        repo.work_off(slug);
    }
    let same = ["replan", "--task", "n0", "--text", "better", "--cascade-down"];
    // The first step of it, and no more.
    repo.pm(&same[..5]).ok();
    let other = ["replan", "--task", "n0", "--text", "yet better", "--cascade-down"];
    for refused in [&other[..], &["replan", "--task", "n0", "--cascade-down"]] {
        repo.pm(refused).fails(6).says("default/n0-r1").says("pm replan --task default/n0-r1");
    }
    let error = repo.pm(&[&other[..], &["--json"]].concat()).fails(6).error();
    assert_eq!((&error["code"], &error["successor"]["slug"]), (&"wrong_phase".into(), &"n0-r1".into()));
    let told = repo.pm(&[&same[..], &["--json"]].concat()).json();
    assert_eq!((slugs(&told, "changed"), slugs(&told, "skipped")), (vec!["n1".into(), "n2".into()], vec!["n0".into()]));
    assert_eq!(told["skipped"][0]["why"], "it was replaced before, by default/n0-r1");
    assert_eq!(told["clone"]["slug"], "n0-r1");
    assert_eq!(runnable(&repo), ["n0-r1"]);
    // Nothing is left to do.
    repo.pm(&same).fails(6);
    // What was built on the clone is not done again for nothing.
    for slug in ["n0-r1", "n1", "n2"] {
        repo.work_off(slug);
    }
    repo.pm(&same).fails(6);
    repo.pm(&["replan", "--task", "default/n0-r1", "--text", "yet better", "--cascade-down"]).ok();
    assert_eq!(runnable(&repo), ["n0-r2"]);
    repo.assert_sound();
}

#[test]
fn a_clone_is_put_in_its_place_before_it_is_replanned_itself() {
    for change in [&[][..], &["--text", "two"], &["--verifier", "true"]] {
        let repo = Repo::new();
        repo.git(&["config", "pm.allowVerifier", "true"]);
        repo.plan("a");
        repo.plan_with("after", &["--depends-on", "a"]);
        begin_a_replacement(&repo, "a");
        let told = repo.pm(&[&["replan", "--task", "a-r1", "--json"], change].concat()).json();
        let newest = if change.is_empty() { "a-r1" } else { "a-r2" };
        assert_eq!((&slugs(&told, "changed")[0], &told["clone"]["slug"]), (&"a".to_owned(), &newest.into()), "{told}");
        assert_eq!((repo.phase("a"), runnable(&repo)), ("superseded".to_owned(), vec![newest.to_owned()]));
        repo.work_off(newest);
        assert_eq!(runnable(&repo), ["after"]);
        repo.assert_sound();
    }
}

#[test]
fn a_clone_that_cannot_take_its_place_yet_is_not_replanned() {
    let repo = Repo::new();
    repo.plan("a");
    begin_a_replacement(&repo, "a");
    let replan = |task: &str| repo.pm(&["replan", "--task", task, "--text", "two"]);
    repo.claim("a");
    let before = repo.refs();
    replan("a-r1").fails(11).says("default/a, which is being worked on").says("pm cancel");
    repo.pm(&["replan", "--task", "a-r1"]).fails(11);
    assert_eq!(repo.refs(), before);
    repo.pm(&["release", "--task", "a"]).ok();
    // Once that is no longer being worked on, what was begun is completed.
    replan("a-r1").ok();
    assert_eq!(runnable(&repo), ["a-r2"]);
    repo.assert_sound();
}
