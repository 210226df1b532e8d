//! Answers of the hub that were lost, and writers that were killed: what was sent is found again, and is there once.

use crate::support::confined::missing;
use crate::support::fleet::{
    Far, REMOTE, assert_level, far, far_by_http, killed_on_its_way, lost, own, records, refs_at, tip_at, two,
};
use crate::support::process::{Process, with_variable};
use crate::support::servers::{Behaviour, GitDaemon, HttpBackend, Server};
use crate::support::{AGENT, Repo, task_ref, text, until};

/// A far machine with this task claimed, and the task's id; its hub is out of reach from now on, but for one push that
/// is carried out and not answered for.
pub(super) struct Lost {
    pub(super) far: Far<GitDaemon>,
    pub(super) repo: Repo,
}

/// A world that git daemon serves; nothing where there is none.
pub(super) fn world() -> Option<(Far<GitDaemon>, Repo)> {
    if GitDaemon::lacks().is_some_and(missing) {
        return None;
    }
    let far = far();
    let repo = far.machine();
    repo.plan("t");
    Some((far, repo))
}

impl Lost {
    /// Runs a command that is carried out at the hub, and can never learn so: the network is gone right after.
    pub(super) fn after(far: Far<GitDaemon>, repo: Repo, args: &[&str]) -> (Lost, String) {
        let json = [args, &["--json"]].concat();
        // What names no task means the one that there is.
        let slug = args.iter().skip_while(|arg| **arg != "--task").nth(1).unwrap_or(&"t");
        let before = own(&repo, "refs/pm/");
        let gate = far.hub.close_gate();
        let there = refs_at(&far.hub);
        let sending = Process::start(repo.pm_command(&json).env("PM_AGENT_ID", AGENT));
        gate.wait_for_push();
        far.network(Behaviour::DropToClient);
        drop(gate);
        until("the push is carried out", || (refs_at(&far.hub) != there).then_some(()));
        far.network(Behaviour::Cut);
        let error = sending.outcome().fails(22).error();
        let record = text(&error["record"]);
        assert_eq!((&error["code"], &error["exit"]), (&"answer_lost".into(), &22.into()));
        assert_eq!((&error["remote"], &error["recorded"]), (&REMOTE.into(), &"unknown".into()));
        assert_eq!(own(&repo, "refs/pm-pending"), format!("refs/pm-pending/default/{slug} {record}"));
        assert_eq!(own(&repo, "refs/pm/"), before, "no ref of the ledger moved here");
        assert_eq!(tip_at(&far.hub, slug), record);
        (Lost { far, repo }, record)
    }

    pub(super) fn heal(&self) {
        self.far.network(Behaviour::Pass);
    }
}

#[test]
fn a_record_whose_answer_was_lost_is_the_answer_when_the_same_command_is_run_again() {
    let Some((far, repo)) = world() else { return };
    let mut world = (far, repo);
    let steps: [&[&str]; 4] = [
        &["executing", "--task", "t", "--ttl", "5m"],
        &["heartbeat", "--task", "t", "--progress", "half"],
        &["report", "--task", "t", "--title", "T", "--text", "what was done"],
        &["finished", "--task", "t"],
    ];
    for (step, args) in steps.into_iter().enumerate() {
        let (lost, record) = Lost::after(world.0, world.1, args);
        // As long as nobody can be asked, nothing is sent and nothing is known.
        lost.repo.pm(args).fails(22);
        assert_eq!(own(&lost.repo, "refs/pm-pending"), format!("refs/pm-pending/default/t {record}"));
        lost.heal();
        let again = lost.repo.pm(&[args, &["--json"]].concat()).json();
        assert_eq!(again["sha"], record.as_str(), "that same commit");
        assert_level(&lost.far.hub, &lost.repo, "t");
        assert_eq!(records(&lost.repo, "t"), 3 + step, "one record only");
        world = (lost.far, lost.repo);
    }
    world.1.assert_sound();
}

#[test]
fn what_is_on_its_way_is_settled_by_the_next_command_on_that_task_whatever_it_is() {
    let Some((far, repo)) = world() else { return };
    let (lost, claim) = Lost::after(far, repo, &["executing", "--task", "t"]);
    lost.heal();
    lost.repo.pm(&["heartbeat", "--task", "t"]).ok();
    assert_eq!(lost.repo.git(&["rev-parse", &format!("{}~", task_ref("t"))]), claim);
    assert_level(&lost.far.hub, &lost.repo, "t");
    assert_eq!(records(&lost.repo, "t"), 4);
}

#[test]
fn what_is_on_its_way_is_settled_by_a_sync_even_when_its_ref_was_packed() {
    let Some((far, repo)) = world() else { return };
    let (lost, claim) = Lost::after(far, repo, &["executing", "--task", "t"]);
    lost.heal();
    lost.repo.git(&["pack-refs", "--all"]);
    assert!(!lost.repo.git_dir().join("refs/pm-pending/default/t").exists(), "it is packed");
    lost.repo.pm(&["sync"]).ok();
    assert_eq!(lost.repo.tip("t"), claim);
    assert_level(&lost.far.hub, &lost.repo, "t");
    lost.repo.git(&["pack-refs", "--all"]);
    lost.repo.pm(&["heartbeat", "--task", "t"]).ok();
    assert_level(&lost.far.hub, &lost.repo, "t");
}

#[test]
fn what_is_on_its_way_with_records_of_this_machine_below_it_raises_no_false_alarm() {
    let (hub, repo, _) = two();
    repo.plan("t");
    repo.claim("t");
    repo.pm(&["--offline", "heartbeat", "--task", "t"]).ok();
    let record = killed_on_its_way(&hub, &repo, &["report", "--task", "t", "--title", "T"]);
    repo.pm(&["sync"]).ok();
    assert_eq!(repo.tip("t"), record);
    assert_level(&hub, &repo, "t");
    assert_eq!(records(&repo, "t"), 5);
}

#[test]
fn what_is_on_its_way_and_is_beaten_is_kept_with_its_reason() {
    let Some((far, repo)) = world() else { return };
    repo.claim("t");
    let near = far.near();
    near.pm(&["sync"]).ok();
    let gate = far.hub.close_gate();
    let sending = Process::start(repo.pm_command(&["report", "--task", "t", "--title", "T"]).env("PM_AGENT_ID", AGENT));
    gate.wait_for_push();
    far.network(Behaviour::Cut);
    sending.outcome().fails(22);
    // The push that waits at the gate comes too late.
    near.git(&[
        "push",
        "--quiet",
        "--receive-pack=git -c core.hooksPath=/dev/null receive-pack",
        REMOTE,
        &format!("{}:{}", beaten_by(&near), task_ref("t")),
    ]);
    drop(gate);
    let pending = text(&serde_json::json!(repo.git(&["rev-parse", "refs/pm-pending/default/t"])));
    far.network(Behaviour::Pass);
    repo.pm(&["heartbeat", "--task", "t"]).ok();
    assert_level(&far.hub, &repo, "t");
    let [(tip, account)] = &lost(&repo, "t")[..] else { panic!("one record lost") };
    assert_eq!(tip, &pending);
    assert_eq!(account["records"][0]["what"], "TaskReport");
    assert!(text(&account["records"][0]["why"]).contains("got in first"), "{account}");
}

/// A heartbeat of this machine that stands here only.
fn beaten_by(repo: &Repo) -> String {
    repo.pm(&["--offline", "heartbeat", "--task", "t"]).ok();
    repo.tip("t")
}

/// One answer lost, as git daemon and web servers lose it, and nothing else wrong.
fn once<S: Server>(far: &Far<S>, steps: &[&[&str]]) {
    let repo = far.machine();
    for (step, args) in steps.iter().enumerate() {
        far.network(Behaviour::DropAnswerOfNextPush);
        repo.pm(args).ok();
        assert_level(&far.hub, &repo, "t");
        assert_eq!(records(&repo, "t"), 2 + step, "{args:?} recorded once");
        assert_eq!(far.proxy.dropped_answers(), 1 + step as u64);
    }
    far.network(Behaviour::DropAnswerOfNextPush);
    repo.pm_fed("{\"title\":\"U\"}\n{\"title\":\"V\"}\n", &["bulk-plan", "--input", "-"]).ok();
    assert_level_but_seen(&far.hub, &repo);
    far.network(Behaviour::DropAnswerOfNextPush);
    repo.pm(&["--offline", "executing", "--task", "u"]).ok();
    repo.pm(&["sync"]).ok();
    assert_level(&far.hub, &repo, "u");
    assert_eq!(own(&repo, "refs/pm-lost"), "");
    repo.assert_sound();
}

#[track_caller]
fn assert_level_but_seen(hub: &crate::support::servers::Hub, repo: &Repo) {
    assert_eq!(refs_at(hub), repo.refs());
}

#[test]
fn an_answer_that_git_daemon_loses_is_made_up_for_within_the_command() {
    if !GitDaemon::lacks().is_some_and(missing) {
        once(
            &far(),
            &[
                &["plan", "--title", "T", "--slug", "t"],
                &["executing", "--task", "t"],
                &["heartbeat", "--task", "t"],
                &["report", "--task", "t", "--title", "T"],
                &["finished", "--task", "t"],
            ],
        );
    }
}

#[test]
fn an_answer_that_a_web_server_loses_is_made_up_for_although_libcurl_sends_it_again() {
    if !HttpBackend::lacks().is_some_and(missing) {
        once(&far_by_http(), &[&["plan", "--title", "T", "--slug", "t"], &["executing", "--task", "t"]]);
    }
}

#[test]
fn a_writer_that_is_killed_between_the_push_and_its_own_ref_leaves_one_record_that_the_next_command_finds() {
    let (hub, a, _) = two();
    a.plan("t");
    for (step, args) in [&["executing", "--task", "t"][..], &["heartbeat", "--task", "t"]].into_iter().enumerate() {
        let gate = hub.close_gate();
        let before = (a.tip("t"), tip_at(&hub, "t"));
        let sending = Process::start(a.pm_command(args).env("PM_AGENT_ID", AGENT));
        gate.wait_for_push();
        sending.signal(rustix::process::Signal::KILL);
        assert_eq!(sending.outcome().code, -9);
        drop(gate);
        until("the push is carried out", || (tip_at(&hub, "t") != before.1).then_some(()));
        assert_eq!(a.tip("t"), before.0);
        let again = a.pm(&[args, &["--json"]].concat()).json();
        assert_eq!(again["sha"], tip_at(&hub, "t").as_str());
        assert_level(&hub, &a, "t");
        assert_eq!(records(&a, "t"), 3 + step);
    }
    assert_eq!(own(&a, "refs/pm-lost"), "");
}

#[test]
fn a_writer_that_is_killed_before_the_hub_took_its_record_is_finished_by_a_sync() {
    let (hub, a, _) = two();
    a.plan("t");
    let record = killed_on_its_way(&hub, &a, &["executing", "--task", "t"]);
    a.pm(&["sync"]).ok();
    assert_eq!((text(&a.state("t")["holder"]), a.tip("t")), (AGENT.to_owned(), record));
    assert_level(&hub, &a, "t");
    assert_eq!(records(&a, "t"), 3);
}

/// The processes that a repository's programs left behind.
fn left_behind(repo: &Repo) -> Vec<u64> {
    with_variable(&format!("HOME={}", repo.outside().display()))
}

#[test]
fn a_hub_that_does_not_answer_is_waited_for_as_long_as_configured_and_nobody_stays_behind() {
    let Some((far, repo)) = world() else { return };
    repo.git(&["config", "pm.networkTimeout", "500ms"]);
    let before = own(&repo, "refs");
    far.network(Behaviour::DropToServer);
    repo.pm(&["executing", "--task", "t"]).fails(20).says("did not answer in time");
    assert_eq!(own(&repo, "refs"), before);
    far.network(Behaviour::Cut);
    far.network(Behaviour::Pass);

    // The push arrives, and waits there; asked again, it is still not known.
    let gate = far.hub.close_gate();
    let record = text(&repo.pm(&["executing", "--task", "t", "--json"]).fails(22).error()["record"]);
    assert_eq!(left_behind(&repo), Vec::<u64>::new(), "no git outlives its pm");
    let couriers = std::fs::read_dir(repo.git_dir().join("pm/couriers")).expect("listed").count();
    assert_eq!(couriers, 0, "every courier is gone");
    drop(gate);
    repo.git(&["config", "pm.networkTimeout", "10s"]);
    // Whichever of the pushes gets in, it is that record.
    let again = repo.pm(&["executing", "--task", "t", "--json"]).json();
    assert_eq!(again["sha"], record.as_str());
    assert_level(&far.hub, &repo, "t");
    assert_eq!(records(&repo, "t"), 3);
}

#[test]
fn a_sweep_that_was_cut_off_is_finished_by_whatever_is_asked_of_the_task_next() {
    let (hub, a, _) = two();
    a.plan("t");
    a.claim("t");
    // Two records, of which the first is valid only below the second.
    let record = killed_on_its_way(&hub, &a, &["reclaim", "--task", "t", "--if-tip", &a.tip("t")]);
    a.pm(&["heartbeat", "--task", "t"]).fails(6);
    assert_eq!((a.phase("t").as_str(), a.tip("t")), ("new", record));
    assert_level(&hub, &a, "t");
    a.assert_sound();
}
