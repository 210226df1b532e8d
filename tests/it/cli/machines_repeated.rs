//! The same command again, after its answer was lost and somebody else found out what became of its record.

use super::machines_answers::{Lost, world};
use crate::support::fleet::{Far, assert_level, own, records, refs_at, two};
use crate::support::process::Process;
use crate::support::servers::{Behaviour, GitDaemon};
use crate::support::{AGENT, Repo, task_ref, text, until};

#[test]
fn a_creation_whose_answer_was_lost_is_the_answer_when_it_is_planned_again() {
    let Some((far, repo)) = world() else { return };
    planned_again(&far, &repo, "u", &[]);
    // By then somebody else has found out.
    planned_again(&far, &repo, "v", &["sync"]);
    assert_eq!(own(&repo, "refs/pm-answers"), "");
}

/// Loses the answer to a creation, heals the network, runs `between`, and creates it again.
#[track_caller]
fn planned_again(far: &Far<GitDaemon>, repo: &Repo, slug: &str, between: &[&str]) {
    let args = ["plan", "--title", "Do it", "--slug", slug, "--json"];
    let gate = far.hub.close_gate();
    let sending = Process::start(repo.pm_command(&args).env("PM_AGENT_ID", AGENT));
    gate.wait_for_push();
    far.network(Behaviour::DropToClient);
    drop(gate);
    until("the push is carried out", || far.hub.tip(&task_ref(slug)));
    far.network(Behaviour::Cut);
    let record = text(&sending.outcome().fails(22).error()["record"]);
    far.network(Behaviour::Pass);
    if !between.is_empty() {
        repo.pm(between).ok();
    }
    // Another definition is another task.
    let again = repo.pm(&args).json();
    assert_eq!(again["status"]["sha"], record.as_str());
    assert_level(&far.hub, repo, slug);
    repo.pm(&args).fails(4);
}

#[test]
fn a_record_that_others_found_to_be_accepted_is_still_the_answer_to_its_own_command() {
    let Some((far, repo)) = world() else { return };
    let mut world = (far, repo);
    let steps: [(&[&str], i32); 3] = [
        (&["executing", "--task", "t", "--ttl", "50m"], 6),
        (&["report", "--task", "t", "--title", "T", "--text", "what was done"], 12),
        (&["release", "--task", "t"], 6),
    ];
    for (args, another) in steps {
        let (lost, record) = Lost::after(world.0, world.1, args);
        lost.heal();
        // The poller, somebody who looks, and the sign of life of the same agent.
        lost.repo.pm(&["sync"]).ok();
        lost.repo.pm(&["sync"]).ok();
        if args[0] == "report" {
            lost.repo.pm(&["heartbeat", "--task", "t"]).ok();
        }
        let (before, answer) = (own(&lost.repo, "refs/pm/"), own(&lost.repo, "refs/pm-answers"));
        assert_eq!(answer, format!("refs/pm-answers/default/t {record}"));
        lost.repo.pm(&[&["--agent", "another"], args].concat()).fails(another);
        assert_eq!(lost.repo.pm(&[args, &["--json"]].concat()).json()["sha"], record.as_str());
        assert_eq!((own(&lost.repo, "refs/pm/"), own(&lost.repo, "refs/pm-answers")), (before, String::new()));
        assert_level(&lost.far.hub, &lost.repo, "t");
        world = (lost.far, lost.repo);
    }
    world.1.assert_sound();
}

#[test]
fn a_pull_whose_answer_was_lost_gets_its_own_claim_again() {
    let Some((far, repo)) = world() else { return };
    let pull = ["pull", "--ttl", "50m"];
    let (lost, claim) = Lost::after(far, repo, &pull);
    lost.heal();
    lost.repo.plan("another");
    let told = lost.repo.pm(&["sync", "--json"]).json();
    let ours = serde_json::json!([task_ref("t")]);
    assert_eq!((&told["pushed"], told["taken"][0]["records"].as_u64()), (&ours, Some(1)), "{told}");
    let labelled = lost.repo.pm(&[&pull[..], &["--label", "none-has-it", "--json"]].concat()).json();
    assert!(labelled["claim"].is_null(), "{labelled}");
    let again = lost.repo.pm(&[&pull[..], &["--json"]].concat()).json();
    assert_eq!(again["claim"]["sha"], claim.as_str(), "{again}");
    // Whoever has it goes on, and then a pull means another task.
    let next = lost.repo.pm(&[&pull[..], &["--json"]].concat()).json();
    assert_eq!(next["task"]["attributes"]["slug"], "another", "{next}");
}

#[test]
fn a_record_of_its_sender_makes_an_earlier_answer_void() {
    let Some((far, repo)) = world() else { return };
    let (lost, claim) = Lost::after(far, repo, &["executing", "--task", "t"]);
    lost.heal();
    lost.repo.pm(&["sync"]).ok();
    assert_eq!(own(&lost.repo, "refs/pm-answers"), format!("refs/pm-answers/default/t {claim}"));
    lost.repo.pm(&["heartbeat", "--task", "t"]).ok();
    assert_ne!(own(&lost.repo, "refs/pm-answers"), "", "a sign of life is nothing else");
    lost.repo.pm(&["report", "--task", "t", "--title", "T"]).ok();
    assert_eq!(own(&lost.repo, "refs/pm-answers"), "");
}

#[test]
fn who_went_on_after_a_lost_answer_repeats_nothing() {
    let Some((far, repo)) = world() else { return };
    repo.claim("t");
    let args = ["release", "--task", "t"];
    let (lost, record) = Lost::after(far, repo, &args);
    lost.heal();
    lost.repo.pm(&["sync"]).ok();
    lost.repo.claim("t");
    let again = lost.repo.pm(&[&args[..], &["--json"]].concat()).json();
    assert_ne!(again["sha"], record.as_str());
    assert_eq!(lost.repo.phase("t"), "new");
    assert_level(&lost.far.hub, &lost.repo, "t");
}

#[test]
fn the_answer_to_an_earlier_command_is_none_to_one_that_means_something_else() {
    let Some((far, repo)) = world() else { return };
    // Who takes a claim away, and gets no answer, does not mean the next one by that.
    repo.pm_as("w2", &["executing", "--task", "t"]).ok();
    let (lost, record) = Lost::after(far, repo, &["reclaim", "--task", "t"]);
    lost.heal();
    lost.repo.pm(&["sync"]).ok();
    lost.repo.pm_as("w3", &["executing", "--task", "t"]).ok();
    let again = lost.repo.pm(&["reclaim", "--task", "t", "--json"]).json();
    assert_ne!(again["sha"], record.as_str());
    assert_eq!(lost.repo.phase("t"), "new");

    // A claim whose answer was lost does not answer for the creation below it.
    let Lost { far, repo } = lost;
    let plan = ["plan", "--title", "Do u", "--slug", "u"];
    repo.pm(&plan).ok();
    planned_again(&far, &repo, "v", &["sync"]);
    let gate = far.hub.close_gate();
    let claiming = Process::start(repo.pm_command(&["executing", "--task", "u", "--json"]).env("PM_AGENT_ID", AGENT));
    gate.wait_for_push();
    far.network(Behaviour::DropToClient);
    let before = far.hub.tip(&task_ref("u"));
    drop(gate);
    until("the push is carried out", || (far.hub.tip(&task_ref("u")) != before).then_some(()));
    far.network(Behaviour::Cut);
    let claim = text(&claiming.outcome().fails(22).error()["record"]);
    far.network(Behaviour::Pass);
    repo.pm(&["sync"]).ok();
    repo.pm(&plan).fails(4);
    assert_eq!(repo.pm(&["executing", "--task", "u", "--json"]).json()["sha"], claim.as_str());
}

#[test]
fn the_answer_to_a_reclaim_is_none_to_one_of_a_task_that_was_bound_again() {
    let Some((far, repo)) = world() else { return };
    let claim = ["executing", "--task", "s", "--context-id"];
    repo.pm(&["plan", "--title", "Do s", "--slug", "s", "--sticky"]).ok();
    repo.pm_as("w2", &[&claim[..], &["c1"]].concat()).ok();
    repo.pm_as("w2", &["release", "--task", "s"]).ok();
    let (lost, record) = Lost::after(far, repo, &["reclaim", "--task", "s"]);
    lost.heal();
    lost.repo.pm(&["sync"]).ok();
    lost.repo.pm_as("w3", &[&claim[..], &["c2"]].concat()).ok();
    lost.repo.pm_as("w3", &["release", "--task", "s"]).ok();
    let again = lost.repo.pm(&["reclaim", "--task", "s", "--json"]).json();
    assert_ne!(again["sha"], record.as_str());
    assert_eq!(lost.repo.state("s")["context_id"], serde_json::Value::Null);
    assert_level(&lost.far.hub, &lost.repo, "s");
}

#[test]
fn an_answer_reaches_who_acts_for_the_holder_of_a_claim() {
    let Some((far, repo)) = world() else { return };
    let claim = repo.claim("t");
    let report = ["report", "--task", "t", "--title", "T", "--claim", &claim];
    let (lost, record) = Lost::after(far, repo, &report);
    lost.heal();
    lost.repo.pm(&["sync"]).ok();
    // The claim says whose record it is, whoever runs the command.
    let again = lost.repo.pm_as("another-shell", &[&report[..], &["--json"]].concat()).json();
    assert_eq!(again["sha"], record.as_str());
    assert_eq!(records(&lost.repo, "t"), 4);
}

#[test]
fn an_answer_that_cannot_be_read_or_is_old_stands_in_nobodys_way() {
    let (hub, a, _) = two();
    a.plan("t");
    let answer = a.git_dir().join("refs/pm-answers/default/t");
    std::fs::create_dir_all(answer.parent().expect("a directory")).expect("made");
    for garbage in ["", &format!("{}\n", "1".repeat(40))] {
        std::fs::write(&answer, garbage).expect("written");
        a.pm(&["sync"]).ok();
        a.claim("t");
        a.pm(&["release", "--task", "t"]).ok();
        assert_level(&hub, &a, "t");
    }
    assert!(!answer.exists(), "what names no record is forgotten");
    // Two days old, as git sees it: a claim that is kept as an answer.
    let raw = a.git(&["cat-file", "commit", &a.tip("t")]);
    let old = a
        .git_fed(raw.replace(&dated(&raw), "1000000000").as_bytes(), &["hash-object", "-t", "commit", "-w", "--stdin"]);
    a.git(&["update-ref", "refs/pm-answers/default/t", &old]);
    a.pm(&["sync"]).ok();
    assert_eq!(own(&a, "refs/pm-answers"), "");
}

/// The second since 1970 at which a commit was written, as it stands in it.
fn dated(commit: &str) -> String {
    let author = commit.lines().find(|line| line.starts_with("author ")).expect("an author");
    author.rsplit(' ').nth(1).expect("a time").to_owned()
}

/// Runs a cascade over `p`, the last push of which is carried out and never answered for.
fn cascade_without_answer(far: &Far<GitDaemon>, repo: &Repo, args: &[&str]) {
    let (gate, there) = (far.hub.close_gate(), refs_at(&far.hub));
    let sending = Process::start(repo.pm_command(args).env("PM_AGENT_ID", AGENT));
    gate.wait_for_push();
    far.network(Behaviour::DropToClient);
    drop(gate);
    until("the push is carried out", || (refs_at(&far.hub) != there).then_some(()));
    far.network(Behaviour::Cut);
    let told = sending.outcome().exits(22).stdout_json();
    assert_eq!(told["failed"][0]["error"]["code"], "answer_lost", "{told}");
    far.network(Behaviour::Pass);
}

#[test]
fn a_cascade_whose_answer_was_lost_below_counts_as_done_when_it_is_run_again() {
    for is_synced in [false, true] {
        let Some((far, repo)) = world() else { return };
        repo.plan("p");
        repo.claim("p");
        repo.plan_with("c", &["--parent", "p"]);
        repo.claim("c");
        // The task itself is taken, and then called off; what is asked for below it is not answered.
        for (first, cascade, phase) in [
            (&["reclaim", "--task", "p"][..], &["reclaim", "--task", "p", "--cascade", "--json"][..], "new"),
            (&["cancel", "--task", "p", "--no-cascade"], &["cancel", "--task", "p", "--json"], "rejected"),
        ] {
            repo.pm(first).ok();
            cascade_without_answer(&far, &repo, cascade);
            if is_synced {
                repo.pm(&["sync"]).ok();
            }
            let told = repo.pm(cascade).json();
            assert_eq!((&told["changed"][0]["slug"], repo.phase("c")), (&"c".into(), phase.to_owned()), "{told}");
            assert_level(&far.hub, &repo, "c");
            // Told once.
            repo.pm(cascade).fails(6);
        }
        repo.assert_sound();
    }
}
