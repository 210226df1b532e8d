//! Real processes at the same moment. (Thousands of rounds of this are the work of the long proofs; here is that it
//! holds at all.)

use std::collections::BTreeSet;
use std::process::{Child, Stdio};

use crate::support::{Outcome, Repo, text};

/// Runs pm once for each agent, all at the same moment as nearly as can be.
fn at_once(repo: &Repo, agents: &[&str], args: &[&str]) -> Vec<Outcome> {
    let start = |agent: &&str| {
        let mut command = repo.pm_command(args);
        command.env("PM_AGENT_ID", agent).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("pm starts")
    };
    let children: Vec<Child> = agents.iter().map(start).collect();
    let end = |child: Child| Outcome::from_output(args, child.wait_with_output().expect("pm ends"));
    children.into_iter().map(end).collect()
}

#[test]
fn of_many_claims_of_one_task_exactly_one_wins() {
    let repo = Repo::new();
    for round in 0..3 {
        let slug = format!("t{round}");
        repo.plan(&slug);
        let agents = ["w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8"];
        let outcomes = at_once(&repo, &agents, &["executing", "--json", "--task", &slug]);
        let mut winners = Vec::new();
        for (agent, outcome) in agents.iter().zip(outcomes) {
            match outcome.code {
                0 => winners.push(*agent),
                6 | 8 => {
                    let error = outcome.clone().fails(outcome.code).error();
                    assert_eq!(error["yours"], false, "{outcome:?}");
                    assert!(error["holder"].is_string() && error["claim"].is_string(), "{outcome:?}");
                }
                _ => panic!("{outcome:?}"),
            }
        }
        assert_eq!(winners, [text(&repo.state(&slug)["holder"])]);
    }
    repo.assert_sound();
}

#[test]
fn of_processes_with_the_same_agent_name_one_wins_and_the_others_are_fenced_off() {
    let repo = Repo::new();
    repo.plan("a");
    let outcomes = at_once(&repo, &["w1"; 6], &["executing", "--json", "--task", "a"]);
    let claims: Vec<String> = outcomes
        .iter()
        .filter(|outcome| outcome.code == 0)
        .map(|outcome| text(&outcome.stdout_json()["sha"]))
        .collect();
    let [claim] = &claims[..] else { panic!("{outcomes:?}") };
    for loser in outcomes.iter().filter(|outcome| outcome.code != 0) {
        assert!([6, 8].contains(&loser.code), "{loser:?}");
        assert_eq!((&loser.error()["claim"], &loser.error()["yours"]), (&claim.as_str().into(), &true.into()));
    }
    // A loser that goes on with a claim which it never won is refused, for all that its name is right.
    let lost = repo.git(&["rev-parse", "refs/pm/tasks/default/a~"]);
    repo.pm(&["heartbeat", "--task", "a", "--claim", &lost]).fails(12);
    repo.pm(&["heartbeat", "--task", "a", "--claim", claim]).ok();
    repo.assert_sound();
}

#[test]
fn of_many_plans_of_one_slug_exactly_one_wins() {
    let repo = Repo::new();
    let agents = ["w1", "w2", "w3", "w4", "w5", "w6"];
    let outcomes = at_once(&repo, &agents, &["plan", "--json", "--title", "The one"]);
    let codes: Vec<i32> = outcomes.iter().map(|outcome| outcome.code).collect();
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 1, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 4).count(), 5, "{codes:?}");
    let task = repo.pm(&["show", "--json", "--task", "the-one"]).json()["task"]["sha"].clone();
    for loser in outcomes.iter().filter(|outcome| outcome.code == 4) {
        assert_eq!(loser.error()["task"], task);
    }
    repo.assert_sound();
}

#[test]
fn many_pulls_take_different_tasks() {
    let repo = Repo::new();
    let agents = ["w1", "w2", "w3", "w4", "w5", "w6"];
    for slug in ["a", "b", "c", "d", "e", "f", "g"] {
        repo.plan(slug);
    }
    let outcomes = at_once(&repo, &agents, &["pull", "--json", "--max-retries", "20"]);
    let taken: BTreeSet<String> =
        outcomes.into_iter().map(|outcome| text(&outcome.json()["task"]["attributes"]["slug"])).collect();
    assert_eq!(taken.len(), agents.len(), "{taken:?}");
    repo.assert_sound();
}

#[test]
fn heartbeats_of_one_claim_at_the_same_moment_all_succeed() {
    let repo = Repo::new();
    repo.plan("a");
    repo.claim("a");
    for outcome in at_once(&repo, &["w1"; 6], &["heartbeat", "--json", "--task", "a"]) {
        assert_eq!(outcome.json()["type"], "TaskHeartbeat");
    }
    let count = repo.pm(&["show", "--json", "--task", "a"]).json()["heartbeat_count"].as_u64().expect("a number");
    assert!((1..=6).contains(&count), "{count}");
    repo.assert_sound();
}

#[test]
fn two_batches_of_the_same_plan_at_the_same_moment_make_it_once() {
    let repo = Repo::new();
    let lines: String = (0..40).map(|n| format!("{{\"slug\":\"t{n}\",\"title\":\"Task {n}\"}}\n")).collect();
    std::fs::write(repo.path().join("plan"), lines).expect("written");
    let outcomes = at_once(&repo, &["w1", "w2", "w3"], &["bulk-plan", "--json", "--input", "plan"]);
    let created: u64 = outcomes.into_iter().map(|outcome| outcome.json()["created"].as_u64().expect("a number")).sum();
    assert_eq!(created, 40);
    assert_eq!(repo.pm(&["list", "--json"]).json()["total"], 40);
    repo.assert_sound();
}
