//! `pm prime`: what an agent must know, in at most 60 lines, whatever the ledger holds.

use pm::exit_code::ExitCode;
use serde_json::{Value, json};

use crate::support::fleet::two;
use crate::support::{Outcome, Repo, text};

/// Asserts what holds in every case, and returns the text and the JSON of the same moment.
fn check(repo: &Repo, env: &[(&str, &str)], options: &[&str]) -> (String, Value) {
    let args = [&["prime"], options].concat();
    let mut command = repo.pm_command(&args);
    let outcome = Outcome::of(&args, command.envs(env.iter().copied())).ok();
    let told = outcome.stdout;
    assert!(told.lines().count() <= 60, "{} lines:\n{told}", told.lines().count());
    for line in told.lines() {
        assert!(line.chars().count() <= 160 && line.trim_end() == line, "'{line}'");
    }
    for code in ExitCode::ALL {
        let cell = format!("{:>2} {} ", code.number(), code.name());
        assert!(told.contains(&cell) && told.contains(code.advice()), "{cell}");
    }
    for what in ["pm pull --shell", "pm heartbeat", "pm report", "pm finished", "pm release", "docs/skills/"] {
        assert!(told.contains(what), "{what}");
    }
    let args = [&args[..], &["--json"]].concat();
    let json = Outcome::of(&args, repo.pm_command(&args).envs(env.iter().copied())).json();
    let same =
        |text: &str| text.lines().filter(|line| !line.contains("of its lease left")).collect::<Vec<_>>().join("\n");
    assert_eq!(same(&text(&json["text"])), same(&told));
    (told, json)
}

/// The line of the text that begins with this.
#[track_caller]
fn line<'a>(told: &'a str, beginning: &str) -> &'a str {
    told.lines().find(|line| line.starts_with(beginning)).unwrap_or_else(|| panic!("no {beginning} in:\n{told}"))
}

#[test]
fn an_empty_repository_is_enough() {
    let repo = Repo::bare_of_config(&[]);
    let (told, json) = check(&repo, &[], &[]);
    assert!(told.contains("\n## You hold nothing\n"), "{told}");
    assert!(line(&told, "you").contains("(from host and calling process); changes with the shell"), "{told}");
    assert!(line(&told, "context id").contains("none is set"), "{told}");
    assert!(line(&told, "queue").contains("default (pm.queue is not set)"), "{told}");
    assert!(line(&told, "authority").contains("none"), "{told}");
    assert!(line(&told, "tasks").contains("0 runnable, 0 blocked; 0 new, 0 working"), "{told}");
    let facts = json!([json["context_id"], json["queue"], json["remote"], json["claims"]]);
    assert_eq!(facts, json!([null, "default", null, []]));
    assert_eq!(repo.git_outcome(&["config", "core.fsync"]).code, 1, "it reads only");
    assert!(!repo.git_dir().join("pm").exists(), "it reads only");
    Repo::nowhere().pm(&["prime"]).fails(18);
}

#[test]
fn who_asks_is_told_with_how_that_is_known() {
    let repo = Repo::new();
    repo.git(&["config", "pm.agent", "configured"]);
    repo.git(&["config", "pm.queue", "nightly"]);
    let context = ("PM_CONTEXT_ID", "0123456789abcdef");
    let said = |env: &[(&str, &str)], options: &[&str], agent: &str, from: &str| {
        let (told, json) = check(&repo, env, options);
        assert!(line(&told, "you").ends_with(&format!("{agent} (from {from})")), "{told}");
        assert_eq!((&json["agent"], &json["agent_from"]), (&json!(agent), &json!(from)));
        (told, json)
    };
    said(&[], &[], "configured", "pm.agent");
    let (told, json) = said(&[context], &[], "worker-0123456789ab", "the context id");
    assert!(line(&told, "context id").ends_with("0123456789abcdef"), "{told}");
    assert_eq!(json["context_id"], "0123456789abcdef");
    said(&[context, ("PM_AGENT_ID", "w7")], &[], "w7", "$PM_AGENT_ID");
    let (told, json) = said(&[("PM_AGENT_ID", "w7")], &["--agent", "w8"], "w8", "--agent");
    assert!(line(&told, "queue").contains("nightly (pm.queue)"), "{told}");
    assert_eq!(json["queue"], "nightly");
}

#[test]
fn open_claims_are_listed_with_what_to_export_and_tasks_are_counted() {
    let repo = Repo::new();
    for slug in ["a", "b", "other"] {
        repo.plan(slug);
    }
    repo.plan_with("c", &["--depends-on", "a"]);
    repo.plan_with("d", &["--queue", "elsewhere"]);
    let task = text(&repo.pm(&["show", "--json", "--task", "a"]).json()["task"]["sha"]);
    let (claim, far) = (repo.claim("a"), repo.claim("elsewhere/d"));
    repo.claim_as("w2", "other");
    let (told, json) = check(&repo, &[("PM_AGENT_ID", "w1")], &[]);
    assert!(told.contains("## You hold 2:"), "{told}");
    assert!(told.contains(&format!("export TASK={task} PM_CLAIM={claim}\n")), "{told}");
    assert!(told.contains(&format!("PM_CLAIM={far}\n")), "{told}");
    assert!(line(&told, "- default/a").ends_with("of its lease left: Do a"), "{told}");
    assert!(
        line(&told, "tasks").ends_with("1 runnable, 1 blocked; 2 new, 2 working, 0 done, 0 rejected, 0 superseded")
    );
    let counts = json!({"runnable": 1, "elsewhere": 0, "blocked": 1, "new": 2, "working": 2, "done": 0, "rejected": 0, "superseded": 0});
    assert_eq!(json["counts"], counts);
    let slugs: Vec<&Value> = json["claims"].as_array().expect("an array").iter().map(|claim| &claim["slug"]).collect();
    assert_eq!(slugs, ["a", "d"]);
    repo.git(&["config", "pm.ttl", "1ms"]);
    let (told, _) = check(&repo, &[("PM_AGENT_ID", "w1")], &[]);
    assert!(line(&told, "- default/a").contains("its lease is over"), "{told}");
}

#[test]
fn a_hundred_claims_and_the_longest_names_fit_into_sixty_lines() {
    let repo = Repo::init(&["--object-format=sha256"]);
    repo.git(&["config", "pm.durability", "process"]);
    let (queue, agent) = ("q".repeat(128), "a".repeat(128));
    repo.git(&["config", "pm.queue", &queue]);
    let line = |n: usize| {
        let slug = format!("{n:03}{}", "s".repeat(125));
        format!("{}\n", json!({"slug": slug, "title": "T".repeat(200)}))
    };
    repo.pm_fed(&(0..100).map(line).collect::<String>(), &["bulk-plan", "--input", "-"]).ok();
    for _ in 0..100 {
        repo.pm_as(&agent, &["pull", "--shell"]).ok();
    }
    let (told, json) = check(&repo, &[("PM_AGENT_ID", &agent), ("PM_CONTEXT_ID", &"c".repeat(128))], &[]);
    assert_eq!(json["claims"].as_array().map(Vec::len), Some(100));
    let shown: Vec<&str> = told.lines().filter(|line| line.starts_with("  export TASK=")).collect();
    assert!(shown.len() >= 5 && !shown.iter().any(|line| line.contains('…')), "{told}");
    assert!(told.contains(&format!("- and {} more: `pm owned --json`", 100 - shown.len())), "{told}");
}

#[test]
fn where_a_remote_decides_it_is_named() {
    let (_hub, a, _) = two();
    let (told, json) = check(&a, &[("PM_AGENT_ID", "w1")], &[]);
    assert!(line(&told, "authority").contains("origin (pm.remote)"), "{told}");
    assert_eq!(json["remote"], "origin");
    let (told, _) = check(&a, &[("PM_AGENT_ID", "w1")], &["--offline"]);
    assert!(line(&told, "authority").contains("provisional"), "{told}");
}
