//! Lost answers to what moves several records or asks a verifier: the same command again is answered with what was recorded.

use serde_json::json;

use super::machines_answers::{Lost, world};
use super::replan_races::begin_a_replacement;
use crate::support::fleet::{assert_level, refs_at, two};
use crate::support::process::Process;
use crate::support::servers::Behaviour;
use crate::support::{AGENT, Repo, text, until};

/// The same command again, at once and after a sync has found out about it. While the hub is out of reach it ends with
/// `unknown`: 22, or 20 where it has to read from there first; that the fate of a record is not known is said in any case.
fn again(prepare: impl Fn(&Repo), args: &[&str], unknown: i32, check: impl Fn(&Repo, serde_json::Value, &str)) {
    for is_synced in [false, true] {
        let Some((far, repo)) = world() else { return };
        prepare(&repo);
        let (lost, record) = Lost::after(far, repo, args);
        lost.repo.pm(args).fails(unknown).says("not known");
        lost.heal();
        if is_synced {
            lost.repo.pm(&["sync"]).ok();
        }
        let told = lost.repo.pm(&[args, &["--json"]].concat()).json();
        check(&lost.repo, told, &record);
        assert_level(&lost.far.hub, &lost.repo, "t");
        lost.repo.assert_sound();
    }
}

#[test]
fn a_cancel_goes_on_where_its_answer_was_lost() {
    let prepare = |repo: &Repo| drop(repo.plan_with("child", &["--parent", "t"]));
    again(prepare, &["cancel", "--task", "t", "--reason", "enough"], 22, |repo, told, record| {
        assert_eq!(repo.tip("t"), record, "once");
        let changed: Vec<_> =
            told["changed"].as_array().expect("a list").iter().map(|step| text(&step["slug"])).collect();
        assert!(changed.contains(&"child".to_owned()), "{told}");
        assert_eq!(repo.phase("child"), "rejected");
    });
}

#[test]
fn a_finish_with_a_verifier_is_recorded_once_and_answered_for() {
    finished_again(&[], 1);
}

#[test]
fn a_finish_that_skips_the_verifier_is_answered_for_as_well() {
    finished_again(&["--skip-verifier", "--note", "checked by hand"], 0);
}

/// Finishes a task with a verifier, loses the answer, and gets it by the same command, at once and after a sync.
/// `runs_wanted`: how often the verifier runs in all.
fn finished_again(options: &[&str], runs_wanted: usize) {
    for is_synced in [false, true] {
        let Some((far, repo)) = world() else { return };
        // The task of the world has no verifier: this one takes its place.
        let verifier = "echo run >>runs; date +%N";
        repo.git(&["config", "--add", "pm.allowVerifier", verifier]);
        repo.pm(&["replan", "--task", "t", "--verifier", verifier]).ok();
        repo.claim("t-r1");
        repo.pm(&["report", "--task", "t-r1", "--title", "done"]).ok();
        let runs = || std::fs::read_to_string(repo.path().join("runs")).map_or(0, |runs| runs.lines().count());
        let gate = far.hub.close_gate();
        let args = [&["finished", "--json", "--task", "t-r1"], options].concat();
        let sending = Process::start(repo.pm_command(&args).env("PM_AGENT_ID", AGENT));
        gate.wait_for_push();
        far.network(Behaviour::DropToClient);
        let there = refs_at(&far.hub);
        drop(gate);
        until("the push is carried out", || (refs_at(&far.hub) != there).then_some(()));
        far.network(Behaviour::Cut);
        let record = text(&sending.outcome().fails(22).error()["record"]);
        assert_eq!(runs(), runs_wanted);
        far.network(Behaviour::Pass);
        if is_synced {
            repo.pm(&["sync"]).ok();
        }
        let told = repo.pm(&args).json();
        assert_eq!(told["sha"], json!(record));
        assert_eq!(runs(), runs_wanted, "what is closed is not verified again");
        assert_eq!(repo.tip("t-r1"), record);
        // Told once: whoever asks for something else has come too late.
        repo.pm(&["finished", "--task", "t-r1", "--rejected"]).fails(6);
    }
}

#[test]
fn a_replacement_is_made_once_though_an_answer_was_lost() {
    // The clone is there; that the old task is superseded by it is what is not answered for.
    let prepare = |repo: &Repo| {
        begin_a_replacement(repo, "t");
        repo.pm(&["sync"]).ok();
    };
    again(prepare, &["replan", "--task", "t", "--text", "otherwise"], 20, |repo, told, record| {
        assert_eq!(told["clone"]["slug"], "t-r1", "{told}");
        assert_eq!((repo.tip("t").as_str(), repo.refs().lines().count()), (record, 2), "once");
        // Told once; and whoever wants something else hears that there is another task now.
        repo.pm(&["replan", "--task", "t", "--text", "otherwise"]).fails(6);
        repo.pm(&["replan", "--task", "t", "--text", "yet otherwise"]).fails(6);
    });
}

#[test]
fn what_the_hub_knows_counts_before_a_verifier_is_started_and_a_parent_closed() {
    let (hub, a, b) = two();
    a.git(&["config", "--add", "pm.allowVerifier", "touch ran; false"]);
    a.plan_with("task", &["--verifier", "touch ran; false"]);
    a.claim("task");
    a.pm(&["report", "--task", "task", "--title", "done"]).ok();
    b.pm(&["sync"]).ok();
    b.pm_as("op", &["reclaim", "--task", "task"]).ok();
    b.pm_as("w2", &["executing", "--task", "task"]).ok();
    a.pm(&["finished", "--task", "task"]).fails(12);
    assert!(!a.path().join("ran").exists(), "nothing runs for a task that is lost");

    a.plan("parent");
    a.plan_with("child", &["--parent", "parent"]);
    a.claim("parent");
    a.work_off("child");
    a.pm(&["report", "--task", "parent", "--title", "done"]).ok();
    b.pm(&["sync"]).ok();
    b.pm(&["replan", "--task", "child"]).ok();
    a.pm(&["finished", "--task", "parent"]).fails(14);
    b.claim("child");
    let told = a.pm(&["reclaim", "--json", "--cascade", "--task", "parent"]).json();
    let changed = told["changed"].as_array().expect("a list").len();
    assert_eq!(changed, 2, "the claim of another machine, too: {told}");
    assert_level(&hub, &a, "child");
}
