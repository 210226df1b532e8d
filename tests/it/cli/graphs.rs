//! Parents, children, contexts, cascades and replacements at the command line: what is refused, and what cascades tell.

use serde_json::Value;

use crate::support::redact::Redactor;
use crate::support::snapshot::{self, transcript};
use crate::support::{Outcome, Repo, task_ref, text};

/// Asserts a refusal by code and words, and that nothing was written.
#[track_caller]
fn refused(repo: &Repo, args: &[&str], code: i32, words: &[&str]) {
    let before = repo.refs();
    unchanged(repo, &before, repo.pm(args), code, words);
}

/// The same of a batch.
#[track_caller]
fn batch_refused(repo: &Repo, input: &str, options: &[&str], code: i32, words: &[&str]) {
    let before = repo.refs();
    unchanged(repo, &before, bulk(repo, input, options), code, words);
}

#[track_caller]
fn unchanged(repo: &Repo, before: &str, outcome: Outcome, code: i32, words: &[&str]) {
    let outcome = outcome.fails(code);
    for word in words {
        assert!(outcome.stderr.contains(word), "'{word}' is not in {outcome:?}");
    }
    assert_eq!(repo.refs(), before);
}

fn bulk(repo: &Repo, input: &str, options: &[&str]) -> Outcome {
    repo.pm_fed(input, &[&["bulk-plan", "--input", "-"], options].concat())
}

/// A task whose chain ends with its Task record, as a writer that was killed could not leave it, but plain git can.
fn half(repo: &Repo) {
    let task = repo.plan("half");
    repo.git(&["update-ref", &task_ref("half"), &task]);
}

/// A rejected task and the one that replaced it; returns the id of that.
fn replaced(repo: &Repo, slug: &str) -> String {
    repo.plan(slug);
    repo.pm(&["cancel", "--task", slug]).ok();
    text(&repo.pm(&["replan", "--json", "--task", slug, "--text", "Otherwise."]).json()["clone"]["task"])
}

#[test]
fn plan_refuses_parents_that_cannot_be_one() {
    let repo = Repo::new();
    repo.plan_with("elsewhere", &["--queue", "other"]);
    repo.plan("done");
    repo.work_off("done");
    repo.plan("off");
    repo.pm(&["cancel", "--task", "off"]).ok();
    let successor = replaced(&repo, "old");
    half(&repo);
    let plan = |parent: &'static str| ["plan", "--title", "T", "--slug", "t", "--parent", parent];
    refused(&repo, &plan("t"), 11, &["default/t cannot be its own parent"]);
    refused(&repo, &plan("default/t"), 11, &["its own parent"]);
    refused(&repo, &plan("absent"), 17, &["no task 'absent'"]);
    refused(&repo, &plan("half"), 5, &["default/half has no status yet"]);
    let in_default = [&plan("other/elsewhere")[..], &["--queue", "default"]].concat();
    refused(&repo, &in_default, 11, &["a child of other/elsewhere: a parent and its children share a queue"]);
    refused(&repo, &plan("done"), 11, &["which is done; `pm replan` opens it again"]);
    refused(&repo, &plan("off"), 11, &["which is rejected; `pm replan` opens it again"]);
    refused(&repo, &plan("old"), 11, &["which is superseded", &successor]);
    // Without --queue it is that of the parent.
    let planned = repo.pm(&[&plan("other/elsewhere")[..], &["--json"]].concat()).json();
    assert_eq!(planned["task"]["attributes"]["queue"], "other");
}

#[test]
fn plan_refuses_what_would_never_be_done() {
    let repo = Repo::new();
    let successor = replaced(&repo, "old");
    repo.plan("off");
    repo.pm(&["cancel", "--task", "off"]).ok();
    repo.plan("parent");
    repo.plan_with("after", &["--depends-on", "parent"]);
    let plan = |depends_on: &'static str| ["plan", "--title", "T", "--slug", "t", "--depends-on", depends_on];
    refused(&repo, &plan("t"), 11, &["cannot depend on itself"]);
    refused(&repo, &plan("absent"), 11, &["cannot depend on 'absent'"]);
    refused(&repo, &plan("off"), 11, &["it is rejected"]);
    refused(&repo, &plan("old"), 11, &["it is superseded; its successor is default/old-r1, task", &successor]);
    // The parent is finished after its child, which is claimed after what waits for the parent.
    let circle = [&plan("after")[..], &["--parent", "parent"]].concat();
    refused(&repo, &circle, 11, &["the plan has a cycle", "default/after -> "]);
}

#[test]
fn bulk_plan_refuses_them_with_their_lines() {
    let repo = Repo::new();
    repo.plan_with("elsewhere", &["--queue", "other"]);
    repo.plan("done");
    repo.work_off("done");
    let successor = replaced(&repo, "old");
    half(&repo);
    let faults = r#"{"slug":"a","title":"A","parent_slug":"a"}
        {"slug":"b","title":"B","parent":"absent"}
        {"slug":"c","title":"C","parent":"other/elsewhere"}
        {"slug":"d","title":"D","parent_slug":"old"}
        {"slug":"e","title":"E","parent_slug":"done"}
        {"slug":"f","title":"F","depends_on_slugs":["old"]}
        {"slug":"g","title":"G","parent_slug":"absent"}"#;
    let words = [
        "line 1: a is its own parent",
        "line 2: no task 'absent'",
        "line 3: default/c cannot be a child of other/elsewhere",
        "line 4: default/d cannot be a child of default/old, which is superseded",
        "line 5: default/e cannot be a child of default/done, which is done",
        "line 6: a task cannot depend on default/old: it is superseded",
        "line 7: its parent is absent, which is neither here nor in default",
        &successor,
    ];
    batch_refused(&repo, faults, &[], 11, &words);
    let both = r#"{"slug":"a","title":"A","parent":"done","parent_slug":"done"}"#;
    batch_refused(&repo, both, &[], 11, &["line 1: it has both parent and parent_slug"]);
    batch_refused(&repo, r#"{"title":"A","parent_slug":"half"}"#, &[], 5, &["default/half has no status yet"]);
    batch_refused(&repo, r#"{"title":"A","sticky":"yes"}"#, &[], 2, &["line 1"]);
    batch_refused(&repo, r#"{"title":"A","verifier":"x\u001b"}"#, &[], 2, &["line 1", "verifier"]);
}

#[test]
fn bulk_plan_refuses_circles_of_every_kind() {
    let repo = Repo::new();
    repo.plan("top");
    repo.plan_with("after", &["--depends-on", "top"]);
    for (input, options, circle) in [
        (r#"{"slug":"a","title":"A","parent_slug":"b"} {"slug":"b","title":"B","parent_slug":"a"}"#, &[][..], "a -> "),
        (r#"{"slug":"a","title":"A","parent_slug":"b"} {"slug":"b","title":"B","depends_on_slugs":["a"]}"#, &[], "b"),
        (r#"{"slug":"a","title":"A","depends_on_slugs":["b"]} {"slug":"b","title":"B","parent_slug":"a"}"#, &[], "b"),
        // Through tasks that exist: after top, which is finished after its child a.
        (r#"{"slug":"a","title":"A","parent":"top","depends_on":["after"]}"#, &[], "after"),
        (
            r#"{"slug":"p","title":"P"} {"slug":"a","title":"A","parent_slug":"p","depends_on_slugs":["b"]}
               {"slug":"b","title":"B","parent_slug":"p"}"#,
            &["--chain-siblings"],
            "a -> b",
        ),
    ] {
        let lines = input.replace("} {", "}\n{");
        batch_refused(&repo, &lines, options, 11, &["nothing was written", "the plan has a cycle: ", circle]);
    }
}

#[test]
fn bulk_plan_chains_siblings_and_adds_a_task_after_all_others() {
    let repo = Repo::new();
    let plan = "{\"slug\":\"p\",\"title\":\"P\",\"sticky\":true,\"workdir\":\".\"}\n\
                {\"slug\":\"a\",\"title\":\"A\",\"parent_slug\":\"p\"}\n\
                {\"slug\":\"b\",\"title\":\"B\",\"parent_slug\":\"p\",\"verifier\":\"make check\"}\n";
    let options = ["--chain-siblings", "--finalize-slug", "end", "--finalize-text", "Look at it."];
    bulk(&repo, plan, &options).ok();
    let before = repo.refs();
    let again = bulk(&repo, plan, &[&options[..], &["--json"]].concat()).json();
    assert_eq!((&again["created"], &again["skipped"]), (&0.into(), &4.into()));
    assert_eq!(repo.refs(), before);
    let task = |slug: &str| repo.pm(&["show", "--json", "--task", slug]).json()["task"].clone();
    let [p, a, b, end] = ["p", "a", "b", "end"].map(task);
    assert_eq!(b["links"]["dependsOn"], serde_json::json!([a["sha"]]));
    assert_eq!((&b["links"]["parentTask"], &b["attributes"]["verifier"]), (&p["sha"], &"make check".into()));
    assert_eq!((&a["attributes"]["sticky"], &a["attributes"]["workdir"]), (&true.into(), &p["attributes"]["workdir"]));
    assert_eq!(end["links"]["dependsOn"], serde_json::json!([p["sha"], a["sha"], b["sha"]]));
    assert_eq!(end["body"], "Look at it.\n");
    batch_refused(&repo, plan, &["--finalize-slug", "a"], 4, &["line 2: it has the slug a"]);
    batch_refused(&repo, plan, &["--finalize-text", "x"], 2, &["--finalize-slug"]);
    repo.assert_sound();
}

#[test]
fn cancel_replan_and_reclaim_refuse_what_does_not_apply() {
    let repo = Repo::new();
    repo.plan("new");
    repo.plan("done");
    repo.work_off("done");
    replaced(&repo, "old");
    half(&repo);
    for verb in ["cancel", "replan", "reclaim"] {
        let cascade: &[&str] = if verb == "reclaim" { &["--cascade"] } else { &[] };
        let call = |task: &'static str| [&[verb, "--task", task], cascade].concat();
        refused(&repo, &call("absent"), 17, &["no task 'absent'"]);
        refused(&repo, &call("half"), 16, &["default/half: the task has no status"]);
        refused(&repo, &call("old"), 6, &["default/old: the task is superseded and cannot be"]);
    }
    refused(&repo, &["cancel", "--task", "done"], 6, &["the task is done and cannot be cancelled"]);
    refused(&repo, &["cancel", "--task", "old-r1", "--reason", "bell\u{7}"], 2, &["reason"]);
    refused(&repo, &["reclaim", "--task", "new", "--cascade"], 6, &["the task is new and cannot be reclaimed"]);
    refused(&repo, &["reclaim", "--task", "done", "--cascade"], 6, &["the task is done"]);
    refused(&repo, &["reclaim", "--task", "new", "--cascade", "--if-tip", &repo.tip("new")], 2, &["--if-tip"]);
    refused(&repo, &["replan", "--task", "old", "--text", "x"], 6, &["superseded"]);
    refused(&repo, &["replan", "--task", "old", "--cascade-up"], 6, &["superseded"]);
    refused(&repo, &["replan", "--task", "done", "--text", "x", "--text-file", "y"], 2, &["--text-file"]);
    // What is in flight is left alone, which is no failure.
    repo.claim("new");
    let before = repo.refs();
    for change in [&[][..], &["--text", "x"], &["--verifier", "make check"]] {
        let left = repo.pm(&[&["replan", "--task", "new", "--json"], change].concat()).json();
        let why = text(&left["skipped"][0]["why"]);
        assert!(why.starts_with("it is working already") && left["clone"].is_null(), "{left}");
        // What was not recorded is said, and what to do.
        let is_dropped = why.contains("nothing was replanned and the change was not recorded");
        assert_eq!(
            (is_dropped, why.contains("`pm reclaim --task default/new`")),
            (!change.is_empty(), !change.is_empty()),
            "{why}"
        );
    }
    assert_eq!(repo.refs(), before);
}

#[test]
fn a_verifier_that_could_verify_nothing_is_not_planned() {
    let repo = Repo::new();
    for (verifier, why) in [("", "the verifier is empty"), (" ", "is empty"), ("verify-skill: ", "verify-skill:NAME")] {
        refused(&repo, &["plan", "--title", "T", "--verifier", verifier], 2, &[why]);
        let plan = serde_json::json!([{"title": "T", "verifier": verifier}]).to_string();
        repo.pm_fed(&plan, &["bulk-plan", "--input", "-"]).fails(2).says(why);
    }
    assert_eq!(repo.refs(), "");
}

#[test]
fn a_replacement_with_an_empty_verifier_has_none() {
    let repo = Repo::new();
    repo.plan_with("b", &["--verifier", "make check"]);
    let verifier =
        |task: &str| repo.pm(&["show", "--json", "--task", task]).json()["task"]["attributes"]["verifier"].clone();
    repo.pm(&["cancel", "--task", "b"]).ok();
    repo.pm(&["replan", "--task", "b", "--verifier", ""]).ok();
    assert_eq!([verifier("b"), verifier("b-r1")], ["make check".into(), Value::Null]);
    refused(&repo, &["replan", "--task", "b-r1", "--verifier", "skill:"], 2, &["skill:NAME"]);
}

/// A parent with two children, one of which has a child of its own, and something that depends on it.
fn family() -> Repo {
    let repo = Repo::new();
    repo.plan("top");
    repo.claim("top");
    repo.plan_with("left", &["--parent", "top"]);
    repo.plan_with("right", &["--parent", "top"]);
    repo.claim("left");
    repo.plan_with("leaf", &["--parent", "left"]);
    repo.plan_with("after", &["--depends-on", "top"]);
    repo.work_off("right");
    repo
}

#[test]
fn cascades_tell_of_every_task_that_they_met() {
    let mut outcomes = Vec::new();
    let mut redactor = Redactor::new();
    for json in [&[][..], &["--json"]] {
        let repo = family();
        let mut call = |args: &[&str]| outcomes.push(repo.pm_as("boss", &[args, json].concat()).ok());
        call(&["reclaim", "--task", "top", "--cascade", "--reason", "the machine is gone"]);
        call(&["cancel", "--task", "top", "--reason", "not needed"]);
        call(&["replan", "--task", "leaf", "--cascade-down-parents"]);
        call(&["replan", "--task", "right", "--text", "Otherwise."]);
        call(&["replan", "--task", "after", "--cascade-up", "--note", "once more"]);
        call(&["next", "--explain"]);
        repo.assert_sound();
    }
    snapshot::check("shapes/cascades.txt", &transcript(&mut redactor, &outcomes));
}

#[test]
fn a_cancel_that_was_cut_short_is_completed_by_the_same_command() {
    let repo = family();
    // The first step of a cascade, and no more.
    repo.pm(&["cancel", "--task", "top", "--no-cascade"]).ok();
    assert_eq!((repo.phase("left"), repo.phase("leaf")), ("working".to_owned(), "new".to_owned()));
    let rest = repo.pm(&["cancel", "--task", "top", "--json"]).json();
    let slugs = |key: &str| -> Vec<String> {
        rest[key].as_array().expect("an array").iter().map(|row| text(&row["slug"])).collect()
    };
    assert_eq!(
        (slugs("changed"), slugs("skipped")),
        (vec!["left".into(), "leaf".into()], vec!["top".into(), "right".into()])
    );
    refused(&repo, &["cancel", "--task", "top"], 6, &["the task is rejected"]);
    refused(&repo, &["plan", "--title", "T", "--parent", "left"], 11, &["which is rejected"]);
    repo.pm(&["list", "--blocked"]).ok().says("such as default/top (rejected)");
    repo.assert_sound();
}

#[test]
fn claims_and_ends_keep_to_parents_children_and_contexts() {
    let repo = Repo::new();
    repo.plan_with("top", &["--sticky"]);
    repo.plan_with("part", &["--parent", "top"]);
    repo.pm(&["executing", "--task", "top"]).fails(10).says("no context is given");
    let in_context = |context: &'static str, args: &[&str]| repo.pm_with(&[("PM_CONTEXT_ID", context)], args);
    in_context("c1", &["executing", "--task", "part"]).fails(15).says("its parent default/top is new");
    in_context("c1", &["executing", "--task", "top"]).ok();
    in_context("c2", &["executing", "--task", "part"]).fails(10).says("default/top is bound to c1, not to c2");
    in_context("c2", &["heartbeat", "--task", "top"]).fails(10);
    in_context("c1", &["report", "--task", "top", "--title", "Done"]).ok();
    in_context("c1", &["finished", "--task", "top"]).fails(14).says("default/part is new");
    repo.pm(&["cancel", "--task", "part"]).ok();
    in_context("c1", &["finished", "--task", "top"]).ok();
    repo.assert_sound();
}
