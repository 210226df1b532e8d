//! What is said to whoever is refused, or is offered nothing: what was found, and a next command that works.

use serde_json::Value;

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

#[test]
fn a_task_for_another_directory_is_told_as_meant_for_that_and_may_be_claimed_here() {
    let repo = Repo::new();
    let dir = repo.outside().join("web").display().to_string();
    let other = repo.outside().join("api").display().to_string();
    repo.plan_with("a", &["--workdir", &dir]);
    for args in [&["next"][..], &["pull"], &["pull", "--shell"]] {
        let told = repo.pm(args).ok().says(&format!("1 more task is meant for {dir}; `pm next --explain` tells which"));
        assert!(told.stderr.contains("nothing is runnable here\n"), "{told:?}");
    }
    let why = text(&repo.pm(&["next", "--explain", "--json"]).json()["skipped"][0]["why"]);
    assert_eq!(why, format!("it is meant for {dir}, and for what is below; `pm executing` takes it anywhere"));
    repo.plan_with("b", &["--workdir", &dir]);
    repo.pm(&["next"]).ok().says(&format!("2 more tasks are meant for {dir};"));
    repo.plan_with("c", &["--workdir", &other, "--sticky"]);
    repo.pm(&["next"]).ok().says("1 more task can be claimed only in another context;");
    repo.plan_with("d", &["--workdir", &other]);
    repo.pm(&["next"]).ok().says("3 more tasks are meant for other work directories;");
    repo.pm(&["executing", "--task", "a"]).ok();
    repo.plan("e");
    let told = repo.pm(&["pull"]).ok();
    assert!(!told.stderr.contains("nothing is runnable"), "{told:?}");
}

#[test]
fn an_empty_queue_is_told_apart_from_one_that_is_for_others() {
    let repo = Repo::new();
    for args in ["next", "pull"] {
        let told = repo.pm(&[args]).ok();
        assert_eq!(told.stderr, "nothing is runnable\n");
    }
    repo.plan_with("a", &["--sticky"]);
    for args in ["next", "pull"] {
        repo.pm(&[args]).ok().says("nothing is runnable here\n");
    }
    let told = repo.pm(&["prime"]).ok();
    assert!(told.stdout.contains("1 runnable (1 of them not here: `pm next --explain` tells why), 0 blocked"));
    repo.plan_with("b", &["--depends-on", "a"]);
    for (context, elsewhere) in [("", 1), ("c1", 0)] {
        let counts = repo.pm_with(&[("PM_CONTEXT_ID", context)], &["prime", "--json"]).json()["counts"].clone();
        let seen = ["runnable", "elsewhere", "blocked"].map(|key| counts[key].clone());
        assert_eq!(seen, [1, elsewhere, 1].map(Value::from));
    }
    repo.pm_with(&[("PM_CONTEXT_ID", "c1")], &["pull"]).ok();
}

#[test]
fn a_text_that_cannot_be_planned_comes_with_advice_for_plans() {
    let repo = Repo::new();
    let big = "0123456789abcdef".repeat(1 << 16);
    std::fs::write(repo.path().join("binary"), [0xff, 0xfe, 0]).expect("written");
    std::fs::write(repo.path().join("plan.json"), format!("{{\"title\":\"T\",\"text\":\"{big}\"}}")).expect("written");
    repo.plan("old");
    let before = repo.refs();
    let name_it = "keep the rest in a file of the repository, and name that in the text";
    for (args, fed, advice) in [
        (&["plan", "--title", "T", "--text-file", "-"][..], &big[..], name_it),
        (&["plan", "--title", "T", "--text-file", "-"], &big[1..], "keep long texts in files of the repository"),
        (&["bulk-plan", "--input", "plan.json"], "", name_it),
        (&["replan", "--task", "old", "--text-file", "-"], &big, name_it),
        (&["plan", "--title", "T", "--text-file", "binary"], "", "binary is not UTF-8 text; keep it in the repository"),
        (&["bulk-plan", "--input", "binary"], "", "nothing was written:\n  line 1: it is not UTF-8 text"),
    ] {
        let told = repo.pm_fed(fed, args).fails(2).says(advice);
        assert!(!told.stderr.contains("attach"), "{told:?}");
    }
    assert_eq!(repo.refs(), before);
    repo.claim("old");
    let report = ["report", "--task", "old", "--title", "T", "--text-file"];
    repo.pm_fed(&big, &[&report[..], &["-"]].concat()).fails(2).says("attach it as a file instead (--attach FILE)");
    let told = repo.pm(&[&report[..], &["binary"]].concat()).fails(2);
    told.says("binary is not UTF-8 text; attach it as a file instead (--attach FILE)");
    let state: Value = repo.state("old");
    assert_eq!(state["status"], "working");
}
