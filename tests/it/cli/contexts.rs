//! Sticky tasks and operators: how a binding ends, and that whoever is refused for one is told a way out that works.

use serde_json::Value;

use crate::support::{Outcome, Repo, text};

fn sticky(repo: &Repo, slug: &str, options: &[&str]) {
    repo.plan_with(slug, &[&["--sticky"], options].concat());
}

/// Runs a command in a context.
fn within(repo: &Repo, context: &str, args: &[&str]) -> Outcome {
    repo.pm_with(&[("PM_CONTEXT_ID", context)], args)
}

/// Claims, reports and finishes a task in a context.
fn work_off(repo: &Repo, slug: &str, context: &str) {
    within(repo, context, &["executing", "--task", slug]).ok();
    within(repo, context, &["report", "--task", slug, "--title", "Done"]).ok();
    within(repo, context, &["finished", "--task", slug]).ok();
}

fn context(repo: &Repo, slug: &str) -> Value {
    repo.state(slug)["context_id"].clone()
}

/// A sticky task that was claimed in c1 and given back.
fn bound() -> Repo {
    let repo = Repo::new();
    sticky(&repo, "s", &[]);
    within(&repo, "c1", &["executing", "--task", "s"]).ok();
    repo.pm(&["release", "--task", "s"]).ok();
    repo
}

/// Runs every command that a message names between backquotes, word by word as it is printed; all of them must work.
fn follow(repo: &Repo, refused: &Outcome) {
    let commands: Vec<&str> = refused.stderr.split('`').skip(1).step_by(2).collect();
    assert!(!commands.is_empty(), "{refused:?}");
    for command in commands {
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "pm", "{refused:?}");
        repo.pm(&words[1..]).ok();
    }
}

#[test]
fn a_reclaim_frees_a_task_that_was_given_back_or_opened_again() {
    let repo = bound();
    within(&repo, "c2", &["executing", "--task", "s"]).fails(10).says("default/s is bound to c1, not to c2");
    let reclaim = ["reclaim", "--task", "s", "--json", "--reason", "that session is over"];
    let record = repo.pm_as("boss", &reclaim).json();
    let said = |key: &str| record["attributes"][key].clone();
    assert_eq!([said("status"), said("reason")], ["new".into(), Value::from("that session is over")]);
    assert_eq!([said("reclaimed"), said("reclaimer")], [true.into(), Value::from("boss")]);
    assert_eq!([said("attempt"), said("reclaims"), said("context_id")], [1.into(), 0.into(), Value::Null]);
    work_off(&repo, "s", "c2");
    repo.pm(&["replan", "--task", "s"]).ok();
    assert_eq!(context(&repo, "s"), "c2");
    assert_eq!(repo.pm(&["reclaim", "--task", "s"]).ok().stdout, "reclaimed default/s from context c2\n");
    within(&repo, "c3", &["executing", "--task", "s"]).ok();
    repo.assert_sound();
}

#[test]
fn a_reclaim_of_a_task_that_nobody_has_in_any_way_is_refused() {
    let repo = bound();
    repo.pm(&["reclaim", "--task", "s"]).ok();
    repo.plan("plain");
    let before = repo.refs();
    for task in ["s", "plain"] {
        for options in [&[][..], &["--cascade"], &["--if-tip", &repo.tip(task)]] {
            let refused = repo.pm(&[&["reclaim", "--task", task], options].concat()).fails(6);
            refused.says("the task is new and cannot be reclaimed: nobody holds it, and it is bound to no context");
        }
    }
    assert_eq!(repo.refs(), before);
}

#[test]
fn a_supervisor_frees_a_task_only_at_the_tip_that_was_observed_and_a_sweep_never_does() {
    let repo = bound();
    let stale = text(&repo.pm(&["show", "--json", "--task", "s"]).json()["task"]["sha"]);
    let before = repo.refs();
    repo.pm(&["reclaim", "--task", "s", "--if-tip", &stale]).fails(8);
    let swept = repo.pm(&["sweep", "--all", "--force", "--ttl", "1ms", "--json"]).json();
    assert_eq!((&swept["scanned"], &swept["stale"]), (&1.into(), &0.into()));
    assert_eq!(repo.refs(), before);
    let told = repo.pm(&["reclaim", "--task", "s", "--if-tip", &repo.tip("s"), "--json"]).json();
    assert_eq!((&told["attributes"]["reclaims"], context(&repo, "s")), (&0.into(), Value::Null));
    repo.assert_sound();
}

#[test]
fn a_cascade_frees_the_task_that_is_named_and_takes_what_is_claimed_below() {
    let repo = Repo::new();
    sticky(&repo, "top", &[]);
    within(&repo, "c1", &["executing", "--task", "top"]).ok();
    for slug in ["held", "waiting"] {
        sticky(&repo, slug, &["--parent", "top"]);
        within(&repo, "c1", &["executing", "--task", slug]).ok();
    }
    for slug in ["waiting", "top"] {
        repo.pm(&["release", "--task", slug]).ok();
    }
    let told = repo.pm(&["reclaim", "--cascade", "--task", "top", "--json"]).json();
    let slugs = |key: &str| -> Vec<String> {
        told[key].as_array().expect("an array").iter().map(|row| text(&row["slug"])).collect()
    };
    assert_eq!((slugs("changed"), slugs("skipped")), (vec!["top".into(), "held".into()], vec!["waiting".to_owned()]));
    assert_eq!(["top", "held", "waiting"].map(|slug| context(&repo, slug)), [Value::Null, Value::Null, "c1".into()]);
    repo.assert_sound();
}

#[test]
fn whoever_follows_what_is_said_of_two_contexts_gets_the_task() {
    // How the two that the third one needs stand when it is found out.
    for v in ["done", "released", "held"] {
        let repo = Repo::new();
        ["u", "v"].iter().for_each(|slug| sticky(&repo, slug, &[]));
        work_off(&repo, "u", "cu");
        match v {
            "done" => work_off(&repo, "v", "cv"),
            _ => drop(within(&repo, "cv", &["executing", "--task", "v"]).ok()),
        }
        if v == "released" {
            repo.pm(&["release", "--task", "v"]).ok();
        }
        sticky(&repo, "j", &["--depends-on", "u,v"]);
        let refused = within(&repo, "cu", &["executing", "--task", "j"]).fails(10).says("no context fits both");
        assert!(refused.stderr.contains("to be worked on with --context-id cu"), "{refused:?}");
        follow(&repo, &refused);
        work_off(&repo, "v", "cu");
        work_off(&repo, "j", "cu");
        repo.assert_sound();
    }
}

#[test]
fn what_stays_is_the_callers_own_where_one_of_the_two_is() {
    let repo = Repo::new();
    ["u", "v"].iter().for_each(|slug| sticky(&repo, slug, &[]));
    work_off(&repo, "u", "cu");
    work_off(&repo, "v", "cv");
    sticky(&repo, "j", &["--depends-on", "u,v"]);
    for (given, freed) in [("cu", "v"), ("cv", "u")] {
        let told = within(&repo, given, &["executing", "--task", "j"]).fails(10);
        assert!(told.stderr.contains(&format!("`pm reclaim --task default/{freed}`")), "{told:?}");
        assert!(told.stderr.contains(&format!("--context-id {given}")), "{told:?}");
    }
}

#[test]
fn whoever_follows_what_is_said_of_a_context_that_is_gone_gets_the_task() {
    let repo = bound();
    follow(&repo, &within(&repo, "c2", &["executing", "--task", "s"]).fails(10));
    within(&repo, "c2", &["executing", "--task", "s"]).ok();

    // A child that was done there keeps everybody else from its parent.
    let repo = Repo::new();
    sticky(&repo, "top", &[]);
    within(&repo, "c1", &["executing", "--task", "top"]).ok();
    sticky(&repo, "part", &["--parent", "top"]);
    work_off(&repo, "part", "c1");
    repo.pm(&["reclaim", "--task", "top"]).ok();
    let refused = within(&repo, "c2", &["executing", "--task", "top"]).fails(10);
    follow(
        &repo,
        &refused.says("default/part is bound to c1, not to c2; leave it to that context, or, if that is gone"),
    );
    within(&repo, "c2", &["executing", "--task", "top"]).ok();
    work_off(&repo, "part", "c2");
    repo.assert_sound();
}

#[test]
fn what_another_context_works_on_is_left_to_it() {
    let repo = bound();
    within(&repo, "c1", &["executing", "--task", "s"]).ok();
    sticky(&repo, "t", &["--depends-on", "s"]);
    let refused = within(&repo, "c2", &["executing", "--task", "t"]).fails(10).says("leave it to that context");
    assert!(!refused.stderr.contains("reclaim"), "{refused:?}");
    assert_eq!(refused.stderr.matches('\n').count(), 1, "{refused:?}");
}
