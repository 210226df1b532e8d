//! What is said to whoever is refused, or is offered nothing: what was found, and a next command that works.

use crate::support::{Repo, text};

#[test]
fn whatever_is_refused_of_a_superseded_task_names_what_has_taken_its_place() {
    let repo = Repo::new();
    repo.plan("old");
    repo.pm(&["replan", "--task", "old", "--text", "Otherwise."]).ok();
    repo.pm(&["replan", "--task", "old-r1", "--text", "Once more."]).ok();
    repo.claim("old-r2");
    let last = text(&repo.pm(&["show", "--json", "--task", "old-r2"]).json()["task"]["sha"]);
    let report = ["report", "--task", "old", "--title", "Done"];
    for args in [
        &["executing", "--task", "old"][..],
        &["heartbeat", "--task", "old"],
        &report,
        &["finished", "--task", "old"],
        &["release", "--task", "old"],
        &["cancel", "--task", "old"],
        &["reclaim", "--task", "old"],
        &["reclaim", "--cascade", "--task", "old"],
    ] {
        repo.pm(args).fails(6).says(": default/old-r2 has taken its place");
        let error = repo.pm(&[args, &["--json"]].concat()).fails(6).error();
        let successor = serde_json::json!({"task": last, "queue": "default", "slug": "old-r2", "status": "working"});
        assert_eq!((&error["successor"], &error["status"]), (&successor, &"superseded".into()), "{error}");
    }
    // As far as it can be read; what cannot makes the refusal no other one.
    let clone = text(&repo.pm(&["show", "--json", "--task", "old-r1"]).json()["task"]["sha"]);
    repo.git(&["update-ref", "-d", "refs/pm/tasks/default/old-r1"]);
    repo.pm(&["executing", "--task", "old"]).fails(6).says(&format!(": task {clone} has taken its place"));
    repo.pm(&["executing", "--task", "old-r2"]).fails(6).says("held by");
}

#[test]
fn a_dependency_that_will_not_be_done_comes_with_the_same_remedy_everywhere() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    repo.plan_with("c", &["--depends-on", "a,b"]);
    let remedy = "`pm replan --task default/b` opens that again, `pm cancel --task default/c` calls off what waits";
    let explained = |repo: &Repo| text(&repo.pm(&["next", "--explain", "--json"]).json()["skipped"][0]["why"]);
    let waits = "the task waits for its dependencies: default/a is new, default/b is new";
    repo.pm(&["executing", "--task", "c"]).fails(11).says(&format!("{waits}\n"));
    assert_eq!(explained(&repo), waits, "it comes by itself");
    repo.pm(&["cancel", "--task", "b"]).ok();
    repo.pm(&["list", "--blocked"]).ok().says(remedy);
    repo.pm(&["executing", "--task", "c"]).fails(11).says(remedy).says("default/b will not be done by itself");
    assert!(explained(&repo).ends_with(remedy));
    let told = repo.pm(&["next", "--explain"]).ok();
    assert!(told.stdout.contains(remedy), "{told:?}");
    repo.pm(&["replan", "--task", "default/b"]).ok();
    repo.work_off("a");
    repo.work_off("b");
    repo.claim("c");
}
