//! How a task is named: ids, prefixes, places and slugs, and the names that must not get in.

use std::collections::HashMap;

use serde_json::Value;

use crate::support::{AGENT, Outcome, Repo, text};

/// Runs a task through its whole life by this name.
fn works(repo: &Repo, task: &str) {
    repo.pm(&["executing", "--task", task]).ok();
    repo.pm(&["heartbeat", "--task", task]).ok();
    repo.pm(&["report", "--task", task, "--title", "Done"]).ok();
    repo.pm(&["finished", "--task", task]).ok();
}

/// Plans this many tasks and returns their ids with all ids of their statuses.
fn plan_many(repo: &Repo, from: usize, to: usize) -> (Vec<String>, Vec<String>) {
    let lines: String = (from..to).map(|n| format!("{{\"slug\":\"t{n}\",\"title\":\"Task {n}\"}}\n")).collect();
    repo.pm_fed(&lines, &["bulk-plan", "--input", "-"]).ok();
    let list = repo.pm(&["list", "--json"]).json();
    let tasks = list["tasks"].as_array().expect("an array").iter().map(|task| text(&task["task"])).collect();
    let statuses =
        repo.git(&["for-each-ref", "--format=%(objectname)", "refs/pm/"]).lines().map(str::to_owned).collect();
    (tasks, statuses)
}

#[test]
fn an_ambiguous_prefix_is_refused_with_its_candidates_and_a_unique_one_is_enough() {
    let repo = Repo::new();
    // 1,200 ids give some eleven pairs that share four digits; should they not, more are planned.
    let mut found = None;
    for round in 0..5 {
        let (tasks, statuses) = plan_many(&repo, round * 1200, (round + 1) * 1200);
        let mut by_prefix: HashMap<&str, Vec<&String>> = HashMap::new();
        for task in &tasks {
            by_prefix.entry(&task[..4]).or_default().push(task);
        }
        let shared = by_prefix.values().find(|tasks| tasks.len() == 2).map(|pair| [pair[0].clone(), pair[1].clone()]);
        // Objects that are no tasks do not make a prefix ambiguous.
        let alone = by_prefix
            .iter()
            .find(|(prefix, tasks)| tasks.len() == 1 && statuses.iter().any(|status| status.starts_with(*prefix)))
            .map(|(_, tasks)| tasks[0].clone());
        if let (Some(shared), Some(alone)) = (shared, alone) {
            found = Some((shared, alone));
            break;
        }
    }
    let (pair, alone) = found.expect("6,000 random ids hold such prefixes");

    let outcome = repo.pm(&["executing", "--json", "--task", &pair[0][..4]]).fails(17);
    let mut candidates: Vec<String> =
        outcome.error()["candidates"].as_array().expect("candidates").iter().map(text).collect();
    candidates.sort();
    let mut expected = pair.to_vec();
    expected.sort();
    assert_eq!(candidates, expected);
    let message = repo.pm(&["show", "--task", &pair[0][..4]]).fails(17).stderr;
    assert!(pair.iter().all(|task| message.contains(task)), "{message}");

    let unique = (5..40).find(|digits| pair[0][..*digits] != pair[1][..*digits]).expect("they differ");
    let found = repo.pm(&["show", "--json", "--task", &pair[0][..unique]]).json();
    assert_eq!(found["task"]["sha"], pair[0].as_str());
    let found = repo.pm(&["show", "--json", "--task", &alone[..4]]).json();
    assert_eq!(found["task"]["sha"], alone.as_str());
}

#[test]
fn three_digits_and_substrings_match_nothing() {
    let repo = Repo::new();
    let task = repo.plan("build-login");
    repo.pm(&["show", "--task", &task[..3]]).fails(17);
    repo.pm(&["show", "--task", &task[1..20]]).fails(17);
    repo.pm(&["show", "--task", "login"]).fails(17);
    repo.pm(&["show", "--task", "build-"]).fails(17);
    repo.pm(&["show", "--task", ""]).fails(17);
    repo.pm(&["show", "--task", &task[..4]]).ok();
}

#[test]
fn a_slug_wins_over_a_prefix_of_the_same_digits() {
    let repo = Repo::new();
    let other = repo.plan("other");
    let named = repo.plan(&other[..4]);
    assert_eq!(repo.pm(&["show", "--json", "--task", &other[..4]]).json()["task"]["sha"], named.as_str());
}

#[test]
fn a_record_that_is_no_task_is_no_task_and_the_message_says_what_it_is() {
    let repo = Repo::new();
    let task = repo.plan("a");
    let claim = repo.claim(&task);
    repo.pm(&["heartbeat", "--task", "a"]).ok();
    repo.pm(&["show", "--task", &claim]).fails(17).says(&format!("a TaskStatus of task {task}"));
    repo.pm(&["show", "--task", &repo.tip("a")]).fails(17).says("a TaskHeartbeat");
    let tree = repo.git_fed(b"", &["mktree"]);
    let foreign = repo.git(&["commit-tree", &tree, "-m", "code"]);
    repo.pm(&["show", "--task", &foreign]).fails(17).says("not a task");
    repo.pm(&["show", "--task", &tree]).fails(17);
}

#[test]
fn a_task_that_lost_its_creation_race_is_unknown_and_the_winner_is_named() {
    let repo = Repo::new();
    let loser = repo.plan("a");
    repo.git(&["update-ref", "-d", "refs/pm/tasks/default/a"]);
    repo.pm(&["show", "--task", &loser]).fails(17).says("never completed");
    let winner = repo.plan("a");
    repo.pm(&["show", "--task", &loser])
        .fails(17)
        .says(&format!("lost the race for default/a, which is task {winner}"));
}

#[test]
fn names_that_could_leave_their_place_are_refused() {
    let repo = Repo::new();
    let long = "a".repeat(129);
    for slug in [
        "../x",
        "a/b",
        "A",
        ".lock",
        "",
        "..",
        ".",
        "-a",
        "a..b",
        "a b",
        "ä",
        "a\nb",
        "a\0",
        "%2e",
        "refs/heads/main",
        &long,
    ] {
        if slug.contains('\0') {
            continue; // No argument can hold it.
        }
        let slug = format!("--slug={slug}");
        repo.pm(&["plan", "--title", "T", &slug]).fails(2).says("slug");
        let queue = slug.replace("--slug", "--queue");
        repo.pm(&["plan", "--title", "T", &queue]).fails(2).says("queue");
    }
    assert_eq!(repo.refs(), "");
    for task in ["../x", "a/../b", "A", "/", "a/", "/a", ".lock", "a/b/c", "\u{1b}[31m"] {
        let outcome = repo.pm(&["show", "--task", task]);
        assert!([2, 17].contains(&outcome.code), "{outcome:?}");
        assert!(!outcome.stderr.contains('\u{1b}'), "{outcome:?}");
    }
}

#[test]
fn names_that_git_or_windows_forbid_in_a_ref_work_all_the_same() {
    let repo = Repo::new();
    for (slug, component) in [
        ("con", "%63on"),
        ("nul.x", "%6eul.x"),
        ("python3-flufl.lock", "python3-flufl%2elock"),
        ("ends.", "ends%2e"),
        ("libstdc++6", "libstdc++6"),
        ("0", "0"),
    ] {
        let task = repo.plan(slug);
        let name = format!("refs/pm/tasks/default/{component}");
        repo.git(&["check-ref-format", &name]);
        assert_eq!(repo.git(&["log", "--format=%H", "--reverse", &name]).lines().next(), Some(task.as_str()), "{slug}");
        works(&repo, slug);
        assert_eq!(repo.phase(&format!("default/{slug}")), "done");
    }
    let queue = ["--queue", "aux"];
    repo.plan_with("prn.lock", &queue);
    works(&repo, "aux/prn.lock");
    assert_eq!(
        repo.git(&["for-each-ref", "--format=%(refname)", "refs/pm/tasks/%61ux/"]),
        "refs/pm/tasks/%61ux/%70rn%2elock"
    );
    repo.git(&["pack-refs", "--all"]);
    repo.git(&["gc", "--quiet"]);
    assert_eq!(repo.pm(&["list", "--json", "--status", "done"]).json()["total"], 7);
    repo.assert_sound();
}

#[test]
fn a_slug_is_made_of_the_title_and_the_same_title_twice_is_refused() {
    let repo = Repo::new();
    for (title, slug) in [
        ("Build the Login page!", "build-the-login-page"),
        ("Übergröße prüfen", "ubergrosse-prufen"),
        ("  spaces  ", "spaces"),
        ("../../etc/passwd", "etc-passwd"),
        ("CON", "con"),
    ] {
        let planned = repo.pm(&["plan", "--json", "--title", title]).json();
        assert_eq!(planned["task"]["attributes"]["slug"], slug);
        repo.pm(&["plan", "--title", title]).fails(4).says(slug);
    }
    let slug = text(&repo.pm(&["plan", "--json", "--title", "???"]).json()["task"]["attributes"]["slug"]);
    assert!(slug.starts_with("t-") && slug.len() == 10, "{slug}");
    let slug = text(&repo.pm(&["plan", "--json", "--title", &"x".repeat(200)]).json()["task"]["attributes"]["slug"]);
    assert_eq!(slug, "x".repeat(64));
    repo.assert_sound();
}

#[test]
fn the_same_slug_in_two_queues_is_two_tasks() {
    let repo = Repo::new();
    let here = repo.plan("a");
    let there = repo.plan_with("a", &["--queue", "q"]);
    assert_ne!(here, there);
    let id = |outcome: Outcome| -> Value { outcome.json()["task"]["sha"].clone() };
    assert_eq!(id(repo.pm(&["show", "--json", "--task", "a"])), here.as_str());
    assert_eq!(id(repo.pm(&["show", "--json", "--task", "a", "--queue", "q"])), there.as_str());
    assert_eq!(id(repo.pm(&["show", "--json", "--task", "q/a"])), there.as_str());
    repo.claim_as(AGENT, "q/a");
    assert_eq!(repo.phase("a"), "new");
}
