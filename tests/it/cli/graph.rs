//! `pm graph`: a plan as a tree, as data, for Graphviz and for Mermaid; and what `list` and `show` say of the same tasks.

use serde_json::{Value, json};

use crate::support::confined::{has, missing};
use crate::support::redact::Redactor;
use crate::support::snapshot::{self, transcript};
use crate::support::{Outcome, Repo, text};

/// A house: one task done, one in work, two queues, a child and what is planned instead of another one.
fn house() -> Repo {
    let repo = Repo::new();
    repo.plan("ground");
    repo.plan_with("house", &["--depends-on", "ground"]);
    repo.work_off("ground");
    repo.pm(&["executing", "--task", "house", "--ttl", "1h"]).ok();
    repo.plan_with("walls", &["--parent", "house"]);
    repo.plan_with("roof", &["--parent", "house", "--depends-on", "walls", "--sticky", "--verifier", "make check"]);
    repo.plan_with("garden", &["--queue", "outside", "--depends-on", "default/house,default/ground"]);
    repo.plan_with("pond", &["--queue", "outside", "--depends-on", "garden", "--priority", "0"]);
    repo.pm(&["cancel", "--task", "walls"]).ok();
    repo.pm(&["replan", "--task", "walls", "--text", "Of bricks."]).ok();
    repo
}

fn check(repo: &Repo, name: &str, outcomes: &[Outcome]) {
    let mut redactor = Redactor::new().place(repo.path(), "<repo>");
    snapshot::check(&format!("shapes/{name}.txt"), &transcript(&mut redactor, outcomes));
}

fn ids(value: &Value) -> Vec<String> {
    value.as_array().expect("an array").iter().map(text).collect()
}

#[test]
fn graph_shows_what_waits_for_what_in_every_form() {
    let repo = house();
    let outcomes = [
        repo.pm(&["graph"]).ok(),
        repo.pm(&["graph", "--all"]).ok(),
        repo.pm(&["graph", "--queue", "outside"]).ok(),
        repo.pm(&["graph", "--dot", "--all"]).ok(),
        repo.pm(&["graph", "--mermaid", "--all"]).ok(),
        repo.pm(&["graph", "--json"]).ok(),
        repo.pm(&["graph", "--limit", "2"]).ok(),
        repo.pm(&["graph", "--limit", "1", "--json", "--queue", "outside"]).ok(),
    ];
    check(&repo, "graph", &outcomes);
}

#[test]
fn show_tells_of_the_tasks_around_one_and_of_what_binds_it() {
    let repo = house();
    repo.plan_with("paint", &["--queue", "outside", "--workdir", "..", "--ttl", "90", "--max-attempts", "3"]);
    repo.work_off("walls-r1");
    repo.pm(&["executing", "--task", "roof"]).fails(10).says("no context is given");
    repo.pm_with(&[("PM_CONTEXT_ID", "c1")], &["executing", "--task", "roof"]).ok();
    let outcomes =
        ["house", "walls", "walls-r1", "roof", "outside/garden"].map(|task| repo.pm(&["show", "--task", task]).ok());
    check(&repo, "show-kin", &outcomes);
    let paint = repo.pm(&["show", "--task", "outside/paint"]).ok().stdout;
    let above = repo.path().parent().expect("a directory").canonicalize().expect("there");
    for line in [
        format!("workdir   {}", above.display()),
        "ttl       90s".to_owned(),
        "attempts  rejected after 3 sweeps in a row without a report".to_owned(),
    ] {
        assert!(paint.lines().any(|found| found == line), "{line} is not in {paint}");
    }
}

#[test]
fn the_edges_lead_from_what_stands_to_what_waits_for_it() {
    let repo = house();
    let graph = repo.pm(&["graph", "--json"]).json();
    let id = |task: &str| text(&repo.pm(&["show", "--json", "--task", task]).json()["task"]["sha"]);
    let [ground, house, walls, roof] = ["ground", "house", "walls-r1", "roof"].map(id);
    let [garden, pond] = ["outside/garden", "outside/pond"].map(id);
    let edge = |from: &str, to: &str, kind: &str| json!({"from": from, "to": to, "kind": kind});
    let mut expected = vec![
        edge(&ground, &house, "dependency"),
        edge(&house, &walls, "parent"),
        edge(&house, &roof, "parent"),
        edge(&walls, &roof, "dependency"),
        edge(&house, &garden, "dependency"),
        edge(&ground, &garden, "dependency"),
        edge(&garden, &pond, "dependency"),
    ];
    let mut found = graph["edges"].as_array().expect("an array").clone();
    expected.sort_by_key(Value::to_string);
    found.sort_by_key(Value::to_string);
    assert_eq!(found, expected);
    assert_eq!(ids(&graph["critical_path"]), [&walls, &roof, &house, &garden, &pond].map(String::clone));
    assert_eq!((&graph["total"], &graph["truncated"]), (&json!(6), &json!(false)));
    // One queue: what its tasks name in others is there, and the path is the one to its own last task.
    let outside = repo.pm(&["graph", "--json", "--queue", "outside"]).json();
    assert_eq!(outside["critical_path"], graph["critical_path"]);
    assert_eq!(outside["total"], 6);
    let default = repo.pm(&["graph", "--json", "--queue", "default"]).json();
    assert_eq!(ids(&default["critical_path"]), [walls, roof, house].map(String::from));
    assert_eq!(default["total"], 5, "and the garden, which waits for two of them");
}

#[test]
fn forms_that_exclude_each_other_are_refused() {
    let repo = Repo::new();
    repo.pm(&["graph", "--dot", "--mermaid"]).fails(2);
    for form in ["--dot", "--mermaid"] {
        let error = repo.pm(&["graph", form, "--json"]).fails(2).error();
        assert_eq!(error["code"], "usage");
    }
    repo.pm(&["graph", "--limit", "some"]).fails(2);
}

#[test]
fn a_ledger_without_tasks_is_a_graph_too() {
    let repo = Repo::new();
    assert_eq!(repo.pm(&["graph"]).ok().stdout, "");
    let empty = json!({"tasks": [], "edges": [], "critical_path": [], "total": 0, "truncated": false, "damaged": []});
    assert_eq!(repo.pm(&["graph", "--json"]).json(), empty);
    repo.pm(&["graph", "--dot"]).ok();
    assert_eq!(repo.pm(&["graph", "--mermaid"]).ok().stdout, "flowchart LR\n");
    assert_eq!(repo.refs(), "", "it only reads");
}

#[test]
fn a_damaged_task_is_named_and_does_not_hide_the_others() {
    let repo = Repo::new();
    repo.plan("a");
    repo.plan_with("b", &["--depends-on", "a"]);
    let tree = repo.git_fed(b"", &["mktree"]);
    let foreign = repo.git(&["commit-tree", &tree, "-m", "not a record"]);
    repo.git(&["update-ref", "refs/pm/tasks/default/a", &foreign]);
    let outcome = repo.pm(&["graph"]).ok().says("refs/pm/tasks/default/a was left out");
    assert!(outcome.stdout.contains("waits for") && outcome.stdout.contains("(missing)"), "{outcome:?}");
    let graph = repo.pm(&["graph", "--json"]).json();
    assert_eq!(graph["damaged"].as_array().map(Vec::len), Some(1));
    assert_eq!(graph["tasks"][0]["waits_for"][0]["status"], Value::Null);
    assert_eq!(graph["edges"], json!([]));
    repo.pm(&["list", "--blocked"]).ok().says("`pm cancel --task default/b` calls off what waits");
}

#[test]
fn what_waits_for_ever_is_told_apart_and_how_it_goes_on() {
    let repo = Repo::new();
    repo.plan("a");
    repo.plan_with("b", &["--depends-on", "a"]);
    repo.plan_with("c", &["--depends-on", "a"]);
    assert_eq!(repo.pm(&["list", "--blocked"]).ok().stderr, "");
    repo.pm(&["cancel", "--task", "a"]).ok();
    let list = repo.pm(&["list", "--blocked"]).ok();
    assert!(list.stdout.contains("[waits for default/a (rejected)]"), "{list:?}");
    assert_eq!(
        list.stderr,
        "default/b and 1 other wait for what will not be done by itself, such as default/a (rejected); \
         `pm replan --task default/a` opens that again, `pm cancel --task default/b` calls off what waits\n"
    );
    assert_eq!(
        repo.pm(&["list", "--blocked", "--json"]).json()["tasks"][0]["state"]["blocked_by"],
        json!(["default/a"])
    );
    assert_eq!(repo.pm(&["list", "--blocked", "--quiet"]).ok().stderr, "");
    // Many are counted.
    for slug in ["d", "e", "f", "g", "h", "i"] {
        repo.plan(slug);
    }
    repo.plan_with("all", &["--depends-on", "d,e,f,g,h,i"]);
    let list = repo.pm(&["list", "--search", "all"]).ok().stdout;
    let told = "[waits for default/d (new), default/e (new), default/f (new), default/g (new) and 2 more]";
    assert!(list.contains(told), "{list}");
    repo.plan_with("part", &["--parent", "all"]);
    let list = repo.pm(&["list", "--search", "part"]).ok().stdout;
    assert!(list.contains("[waits for parent default/all (new)]"), "{list}");
}

#[test]
fn tasks_that_wait_for_each_other_are_named() {
    let repo = Repo::new();
    repo.plan("old");
    repo.plan_with("x", &["--depends-on", "old"]);
    let y = repo.plan_with("y", &["--depends-on", "x"]);
    repo.pm(&["cancel", "--task", "old"]).ok();
    let clone = text(&repo.pm(&["replan", "--json", "--task", "old", "--text", "New."]).json()["clone"]["task"]);
    // pm plans no circle: here plain git puts y, which waits for x, in the place of what x waits for.
    let bent = super::hook_hostile::bent(
        &repo,
        &repo.tip("old"),
        &format!("Superseded-By: {clone}"),
        &format!("Superseded-By: {y}"),
    );
    repo.git(&["update-ref", "refs/pm/tasks/default/old", &bent]);
    let outcome = repo.pm(&["graph"]).ok().says("these wait for each other in a circle: default/");
    assert!(outcome.stdout.contains("x  Do x") && outcome.stdout.contains("y  Do y"), "{outcome:?}");
    assert_eq!(ids(&repo.pm(&["graph", "--json"]).json()["critical_path"]), [clone]);
}

const GITOXIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/plans/gitoxide-workspace.plan.json");

#[test]
fn a_real_plan_is_usable_as_text_and_cut_where_that_is_asked_for() {
    let repo = Repo::new();
    repo.pm(&["bulk-plan", "--input", GITOXIDE]).ok();
    let tree = repo.pm(&["graph"]).ok();
    assert_eq!(tree.stderr, "");
    let rows = tree.stdout.lines().filter(|line| line.contains("─ new")).count();
    assert_eq!(rows, 71, "each once");
    assert!(tree.stdout.lines().all(|line| line.chars().count() < 240), "{}", tree.stdout);
    let cut = repo.pm(&["graph", "--json", "--limit", "10"]).json();
    assert_eq!(cut["tasks"].as_array().map(Vec::len), Some(10));
    assert_eq!((&cut["total"], &cut["truncated"]), (&json!(71), &json!(true)));
    let whole = repo.pm(&["graph", "--json"]).json();
    assert_eq!(whole["critical_path"], cut["critical_path"]);
    for form in ["--dot", "--mermaid"] {
        let cut = repo.pm(&["graph", form, "--limit", "10"]).ok().stdout;
        assert!(cut.contains("10 of 71 tasks shown"), "{cut}");
    }
}

#[test]
fn graphviz_takes_a_real_plan_and_whatever_titles_hold() {
    if !has("dot") {
        missing("dot, of Graphviz");
        return;
    }
    let repo = Repo::new();
    repo.pm(&["bulk-plan", "--input", GITOXIDE]).ok();
    let long = "x".repeat(200);
    let titles = [
        "say \"hi\" \\",
        "\\\"; } digraph evil {",
        "a --> b; end",
        "<b>&lt;script&gt;&amp;</b> &bogus; &#0;",
        "🦀 שלום \u{202e}evil",
        "\\N\\G\\L",
        &long,
    ];
    for title in titles {
        repo.pm(&["plan", "--title", title, "--queue", "hostile"]).ok();
    }
    for queue in [&[][..], &["--queue", "hostile"]] {
        let dot = repo.pm(&[&["graph", "--dot"], queue].concat()).ok().stdout;
        let file = repo.outside().join("graph.dot");
        std::fs::write(&file, &dot).expect("written");
        let file = file.display().to_string();
        let drawn =
            Outcome::of(&["dot"], repo.program("dot", &["-Tsvg", &file]).env("FONTCONFIG_PATH", "/etc/fonts")).ok();
        assert!(!drawn.stderr.contains("rror"), "{drawn:?}");
        let expected = if queue.is_empty() { 71 + titles.len() } else { titles.len() };
        assert_eq!(drawn.stdout.matches("<g id=\"node").count(), expected);
        for shown in ["say &quot;hi&quot; \\<", "&lt;b&gt;&amp;lt;script&amp;gt;&amp;amp;&lt;/b&gt;", "\\N\\G\\L<"] {
            assert!(drawn.stdout.contains(shown), "{shown} is not in {}", drawn.stdout);
        }
    }
}
