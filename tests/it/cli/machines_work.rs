//! `pm work` on several machines of one hub.

use std::collections::BTreeMap;

use crate::support::fleet::{assert_level, far, join, own, refs_at, two};
use crate::support::process::Process;
use crate::support::runner::{events, file, life};
use crate::support::servers::{Behaviour, GitDaemon, Server};
use crate::support::{Outcome, Repo, text, until};

/// Starts a runner as this agent that works until nothing is left; `$OUT` is outside of the repository.
fn start(repo: &Repo, agent: &str, options: &[&str], script: &str) -> Process {
    let args = [&["work", "--json"], options, &["--", "sh", "-c", script]].concat();
    Process::start(repo.pm_command(&args).env("PM_AGENT_ID", agent).env("OUT", repo.outside()))
}

/// A plan of twenty tasks: four chains of five, and the last of each waits for the others' first.
fn plan(repo: &Repo) {
    let line = |chain: usize, step: usize| {
        let needs: Vec<String> = match step {
            0 => Vec::new(),
            4 => (0..4).map(|other| format!("\"c{other}-0\"")).chain([format!("\"c{chain}-3\"")]).collect(),
            _ => vec![format!("\"c{chain}-{}\"", step - 1)],
        };
        format!(
            "{{\"slug\":\"c{chain}-{step}\",\"title\":\"C{chain} {step}\",\"depends_on_slugs\":[{}]}}\n",
            needs.join(",")
        )
    };
    let lines: String = (0..20).map(|n| line(n / 5, n % 5)).collect();
    repo.pm_fed(&lines, &["bulk-plan", "--input", "-"]).ok();
}

#[test]
fn two_machines_do_a_plan_once_and_in_order() {
    let (hub, a, b) = two();
    plan(&a);
    b.pm(&["sync"]).ok();
    let script = "echo $PM_SLUG >>$OUT/done";
    let options = ["--agents", "2", "--until-empty"];
    let runners = [start(&a, "w1", &options, script), start(&b, "w2", &options, script)];
    let outcomes: Vec<Outcome> = runners.into_iter().map(|runner| runner.outcome().ok()).collect();
    let mut done = BTreeMap::new();
    for (outcome, machine) in outcomes.iter().zip(["a", "b"]) {
        for event in events(outcome).iter().filter(|event| event["event"] == "done") {
            let before = done.insert(text(&event["place"]), machine);
            assert_eq!(before, None, "{event} was done twice");
        }
    }
    assert_eq!(done.len(), 20, "{done:?}");
    let ran = [&a, &b].map(|repo| std::fs::read_to_string(file(repo, "done")).unwrap_or_default());
    assert_eq!(ran.iter().map(|ran| ran.lines().count()).sum::<usize>(), 20, "no command ran twice: {ran:?}");
    for repo in [&a, &b] {
        repo.pm(&["sync"]).ok();
        assert_eq!((repo.refs(), own(repo, "refs/pm-pending")), (refs_at(&hub), String::new()));
        repo.assert_sound();
    }
    assert_eq!((own(&a, "refs/pm-lost"), own(&b, "refs/pm-lost")), (String::new(), String::new()));
}

#[test]
fn a_runner_survives_an_outage_of_the_hub_that_is_shorter_than_its_lease() {
    if GitDaemon::lacks().is_some_and(crate::support::confined::missing) {
        return;
    }
    let far = far();
    let repo = far.machine();
    repo.plan("t");
    repo.plan_with("after", &["--depends-on", "t"]);
    let script = "echo $PM_SLUG >>$OUT/began; while [ ! -e $OUT/go ]; do sleep 0.02; done";
    let runner = start(&repo, "w1", &["--ttl", "6s", "--until-empty"], script);
    until("it works", || std::fs::read_to_string(file(&repo, "began")).ok().filter(|text| text == "t\n"));
    far.network(Behaviour::Cut);
    let cut = std::time::Instant::now();
    // The work is done in the midst of it.
    std::fs::write(file(&repo, "go"), "").expect("written");
    until("the outage has lasted", || (cut.elapsed().as_millis() > 2_000).then_some(()));
    far.network(Behaviour::Pass);
    let outcome = runner.outcome().ok();
    let done = events(&outcome).iter().filter(|event| event["event"] == "done").count();
    assert_eq!(done, 2, "{outcome:?}");
    for slug in ["t", "after"] {
        assert_level(&far.hub, &repo, slug);
        let claims = life(&repo, slug).iter().filter(|record| record.ends_with("working")).count();
        assert_eq!(claims, 1, "{slug} was claimed once");
    }
    repo.assert_sound();
}

#[test]
fn a_machine_that_joins_late_finds_what_there_is_to_do_without_a_sync() {
    let (hub, a, _) = two();
    let late = Repo::new();
    join(&late, &hub.path().display().to_string());
    a.plan("t");
    let pulled = late.pm_as("w2", &["pull", "--json"]).json();
    assert_eq!(pulled["task"]["attributes"]["slug"], "t");
    assert_level(&hub, &late, "t");
    assert_eq!(late.pm_as("w3", &["pull", "--json"]).ok().stdout, "null\n");
    a.pm(&["executing", "--task", "t"]).fails(8).says("w2");
}

/// The server is part of the world only by its address.
#[test]
fn a_server_that_is_gone_is_an_outage_like_any_other() {
    if GitDaemon::lacks().is_some_and(crate::support::confined::missing) {
        return;
    }
    let far = far();
    let repo = far.machine();
    let url = { GitDaemon::start(&far.hub).url() };
    repo.git(&["remote", "set-url", "origin", &url]);
    repo.pm(&["plan", "--title", "T"]).fails(20);
    assert_eq!((repo.refs(), own(&repo, "refs/pm-pending")), (String::new(), String::new()));
}
