//! `pm work` on several machines of one hub.

use std::collections::BTreeMap;

use crate::support::confined::missing;
use crate::support::fleet::{assert_level, far, join, own, refs_at, two};
use crate::support::process::Process;
use crate::support::runner::{events, file, life};
use crate::support::servers::{Behaviour, GitDaemon, Hub};
use crate::support::{Outcome, Repo, task_ref, text, until};

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
    if GitDaemon::lacks().is_some_and(missing) {
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

#[test]
fn a_claim_goes_by_what_the_hub_says_of_the_tasks_it_depends_on() {
    let (hub, a, b) = two();
    a.plan("first");
    a.plan_with("second", &["--depends-on", "first"]);
    b.pm(&["sync"]).ok();
    b.pm(&["executing", "--task", "second"]).fails(11);
    a.work_off("first");
    // Nothing of that is here yet.
    assert_eq!(b.phase("first"), "new");
    b.claim_as("w2", "second");
    assert_level(&hub, &b, "second");
    assert_level(&hub, &b, "first");
}

#[test]
fn processes_that_record_and_synchronise_at_the_same_time_get_in_each_others_way_on_no_machine() {
    let (hub, a, _) = two();
    for slug in ["s", "t"] {
        a.plan(slug);
        a.claim(slug);
    }
    let run = |args: &[&str]| Process::start(a.pm_command(args).env("PM_AGENT_ID", "w1"));
    for round in 0..3 {
        let running: Vec<Process> = [
            &["heartbeat", "--task", "s"][..],
            &["sync"],
            &["heartbeat", "--task", "t"],
            &["sync"],
            &["--offline", "heartbeat", "--task", "t"],
            &["sweep"],
        ]
        .map(run)
        .into();
        for process in running {
            let outcome = process.outcome().ok();
            assert!(!outcome.stderr.contains("left alone"), "round {round}: {outcome:?}");
        }
    }
    a.pm(&["sync"]).ok();
    for slug in ["s", "t"] {
        assert_level(&hub, &a, slug);
    }
    a.assert_sound();
}

/// When each heartbeat of a task was written, by the clock of its record, in milliseconds.
fn beats(hub: &Hub) -> Vec<u64> {
    let log = hub.git(&[
        "log",
        "--reverse",
        "--format=%(trailers:key=Record,valueonly,separator=%x20) %(trailers:key=Clock,valueonly,separator=%x20)",
        &task_ref("t"),
    ]);
    let beat = |line: &str| line.strip_prefix("TaskHeartbeat ")?.split(' ').nth(1)?.parse().ok();
    log.lines().filter_map(beat).collect()
}

#[test]
fn a_heartbeat_whose_answer_was_lost_counts_from_when_it_was_sent_and_not_from_when_that_was_found_out() {
    if GitDaemon::lacks().is_some_and(missing) {
        return;
    }
    let far = far();
    let repo = far.machine();
    repo.plan("t");
    let runner = start(&repo, "w1", &["--ttl", "9s"], "while [ ! -e $OUT/go ]; do sleep 0.05; done");
    until("it is claimed", || (far.hub.git(&["rev-list", "--count", &task_ref("t")]) == "3").then_some(()));
    let gate = far.hub.close_gate();
    gate.wait_for_push();
    far.network(Behaviour::DropToClient);
    drop(gate);
    until("the heartbeat is there", || (beats(&far.hub).len() == 1).then_some(()));
    far.network(Behaviour::Cut);
    let lost = std::time::Instant::now();
    until("the outage has lasted", || (lost.elapsed().as_millis() > 1_500).then_some(()));
    far.network(Behaviour::Pass);
    let beats = until("the next heartbeat", || Some(beats(&far.hub)).filter(|beats| beats.len() == 2));
    let apart = beats[1] - beats[0];
    assert!(apart < 3_900, "{apart} ms apart, with a lease of 9 s");
    std::fs::write(file(&repo, "go"), "").expect("written");
    runner.outcome().ok();
    assert_level(&far.hub, &repo, "t");
}

/// Lets the hub answer this machine's questions only once a file is gone, which is there from now on. Pushes get through.
fn silence(repo: &Repo) -> std::path::PathBuf {
    let (silent, script) = (file(repo, "silent"), file(repo, "upload-pack"));
    std::fs::write(&silent, "").expect("written");
    let wait = format!("while [ -e '{}' ]; do sleep 0.02; done", silent.display());
    std::fs::write(&script, format!("#!/bin/sh\n{wait}\nexec git upload-pack \"$@\"\n")).expect("written");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it can be run");
    repo.git(&["config", "remote.origin.uploadpack", &script.display().to_string()]);
    silent
}

#[test]
fn who_waits_for_children_renews_its_claim_in_time_however_long_the_hub_takes_to_answer() {
    let (hub, a, _) = two();
    a.plan("t");
    a.plan_with("child", &["--parent", "t"]);
    // Somebody else has the child before the runner can take it.
    let script = format!(
        "PM_CLAIM= '{}' executing --task child --agent w2 --ttl 1h >/dev/null && echo >$OUT/began && \
         until [ -e $OUT/go ]; do sleep 0.02; done",
        env!("CARGO_BIN_EXE_pm")
    );
    let runner = start(&a, "w1", &["--ttl", "3s", "--agents", "1"], &script);
    until("the child is taken", || file(&a, "began").exists().then_some(()));
    let silent = silence(&a);
    std::fs::write(file(&a, "go"), "").expect("written");
    let reported = || hub.git(&["log", "--format=%(trailers:key=Record,valueonly)", &task_ref("t")]);
    until("the command has ended", || reported().contains("TaskReport").then_some(()));
    let before = beats(&hub).len();
    let beats = until("two leases have gone by", || Some(beats(&hub)).filter(|beats| beats.len() >= before + 6));
    let longest = beats.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(longest < Some(3_000), "nobody could have swept it: {beats:?}");
    std::fs::remove_file(silent).expect("removed");
    a.pm_as("w2", &["report", "--task", "child", "--title", "done"]).ok();
    a.pm_as("w2", &["finished", "--task", "child"]).ok();
    runner.outcome().ok();
    assert_eq!(["t", "child"].map(|slug| a.phase(slug)), ["done"; 2]);
    assert_level(&hub, &a, "t");
}
