//! Several machines and one hub: what is recorded on one counts on all of them, or nowhere.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::support::fleet::{REMOTE, assert_level, hub, join, lost, machine, own, records, refs_at, tip_at, two};
use crate::support::process::Process;
use crate::support::{AGENT, Repo, task_ref, text};

#[test]
fn more_tasks_than_are_fetched_at_once_come_whole_by_whatever_protocol() {
    let (hub, a, _) = two();
    let lines: String = (0..4_200).map(|n| format!("{{\"title\":\"T{n}\"}}\n")).collect();
    a.pm_fed(&lines, &["bulk-plan", "--quiet", "--input", "-"]).ok();
    for (version, is_disturbed) in [("0", false), ("2", true)] {
        let b = machine(&hub);
        b.git(&["config", "protocol.version", version]);
        if is_disturbed {
            // The listing is answered, the first part is not, and what comes after that is.
            let file = b.outside().join("upload-pack");
            let calls = b.outside().join("calls");
            let script = format!(
                "#!/bin/sh\necho >>{calls}; [ $(wc -l <{calls}) -ne 2 ] || exit 1\nexec git upload-pack \"$@\"\n",
                calls = calls.display()
            );
            std::fs::write(&file, script).expect("written");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("executable");
            b.git(&["config", &format!("remote.{REMOTE}.uploadpack"), &file.display().to_string()]);
        }
        b.pm(&["sync"]).ok();
        assert_eq!(b.refs(), a.refs());
    }
}

#[test]
fn a_fresh_clone_with_a_remote_and_one_sync_has_the_whole_ledger() {
    let (hub, a, _) = two();
    for slug in ["one", "two", "three.lock"] {
        a.plan(slug);
    }
    a.work_off("one");
    a.git(&["commit", "--quiet", "--allow-empty", "--message", "code"]);
    a.git(&["push", "--quiet", REMOTE, "HEAD:main"]);

    let clone = Repo::nowhere();
    clone.git(&["clone", "--quiet", &hub.path().display().to_string(), &clone.path().display().to_string()]);
    assert_eq!(own(&clone, "refs/pm*"), "", "a clone brings nothing of the ledger");
    for command in ["list", "status"] {
        clone
            .pm(&[command])
            .ok()
            .says("no tasks here; if origin has some, `pm init --remote origin` and then `pm sync`");
    }
    clone.git(&["config", "pm.remote", REMOTE]);
    clone.pm(&["list"]).ok().says("no tasks here; `pm sync` brings what origin has");
    let told = clone.pm(&["sync", "--json"]).json();
    assert_eq!((&told["tasks"], told["taken"].as_array().map(Vec::len)), (&3.into(), Some(3)), "{told}");
    assert_eq!(clone.refs(), a.refs());
    assert_level(&hub, &clone, "one");
    clone.assert_sound();
    assert_eq!(clone.pm(&["sync", "--json"]).json()["taken"], serde_json::json!([]), "nothing is taken twice");
}

/// Runs a command, and asserts that what it recorded counts at the hub and here.
#[track_caller]
fn through(hub: &crate::support::servers::Hub, repo: &Repo, slug: &str, args: &[&str]) {
    let before = hub.tip(&task_ref(slug));
    repo.pm(args).ok();
    assert_ne!(hub.tip(&task_ref(slug)), before, "{args:?} is recorded at the hub");
    assert_level(hub, repo, slug);
}

#[test]
fn every_command_that_records_does_so_at_the_hub_and_here_before_it_says_yes() {
    let (hub, a, b) = two();
    let work = a.outside().join("log");
    std::fs::write(&work, "output").expect("written");
    let log = work.display().to_string();
    a.git(&["commit", "--quiet", "--allow-empty", "--message", "code"]);
    let step = |args: &[&str]| through(&hub, &a, "a", args);
    step(&["plan", "--title", "A", "--slug", "a"]);
    step(&["executing", "--task", "a"]);
    step(&["heartbeat", "--task", "a", "--progress", "half"]);
    step(&["release", "--task", "a"]);
    step(&["pull"]);
    step(&["reclaim", "--task", "a"]);
    step(&["executing", "--task", "a", "--ttl", "40ms"]);
    step(&["sweep", "--wait"]);
    step(&["executing", "--task", "a"]);
    step(&["report", "--task", "a", "--title", "T", "--attach", &log, "--commit", "HEAD"]);
    let report = a.tip("a");
    step(&["finished", "--task", "a"]);
    assert_eq!(hub.git(&["show", &format!("{report}:log")]), "output", "the attachment is at the hub");

    a.pm_fed("{\"title\":\"B\"}\n{\"title\":\"C\",\"depends_on_slugs\":[\"b\"]}\n", &["bulk-plan", "--input", "-"])
        .ok();
    for slug in ["b", "c"] {
        assert_eq!(tip_at(&hub, slug), a.tip(slug));
    }
    assert_eq!(own(&a, "refs/pm-pending"), "");
    hub.git(&["fsck", "--strict"]);
    b.pm(&["sync"]).ok();
    assert_eq!(b.refs(), a.refs());
    assert_eq!(a.refs(), refs_at(&hub));
    assert_eq!(b.git(&["show", &format!("{report}:log")]), "output");
    b.assert_sound();
}

/// Starts pm as this agent.
fn start(repo: &Repo, agent: &str, args: &[&str]) -> Process {
    let mut command: Command = repo.pm_command(args);
    Process::start(command.env("PM_AGENT_ID", agent))
}

#[test]
fn of_two_machines_that_race_for_a_claim_exactly_one_gets_it_and_the_other_is_told_who() {
    let (hub, a, b) = two();
    let plan: String = (0..20).map(|n| format!("{{\"title\":\"T{n}\"}}\n")).collect();
    a.pm_fed(&plan, &["bulk-plan", "--input", "-"]).ok();
    b.pm(&["sync"]).ok();
    for round in 0..20 {
        let slug = format!("t{round}");
        let args = ["executing", "--json", "--task", &slug];
        let racers = [start(&a, "w1", &args), start(&b, "w2", &args)].map(Process::outcome);
        let codes = racers.each_ref().map(|racer| racer.code);
        assert!(codes == [0, 8] || codes == [8, 0], "{racers:?}");
        let (winner, loser) = if codes[0] == 0 { (0, 1) } else { (1, 0) };
        let error = racers[loser].error();
        assert_eq!((&error["code"], &error["exit"]), (&"race_lost".into(), &8.into()));
        assert_eq!(text(&error["holder"]), ["w1", "w2"][winner]);
        assert_eq!(error["claim"], racers[winner].stdout_json()["sha"]);
    }
    for repo in [&a, &b] {
        repo.pm(&["sync"]).ok();
        assert_eq!((repo.refs(), own(repo, "refs/pm-pending")), (refs_at(&hub), String::new()));
    }
    assert_eq!((own(&a, "refs/pm-lost"), own(&b, "refs/pm-lost")), (String::new(), String::new()));
}

#[test]
fn of_two_machines_that_race_for_a_slug_exactly_one_gets_it_and_the_other_is_told_which_task() {
    let (hub, a, b) = two();
    for round in 0..8 {
        let slug = format!("t{round}");
        let args = ["plan", "--json", "--title", "T", "--slug", &slug];
        let racers = [start(&a, "w1", &args), start(&b, "w2", &args)].map(Process::outcome);
        let codes = racers.each_ref().map(|racer| racer.code);
        assert!(codes == [0, 4] || codes == [4, 0], "{racers:?}");
        let (winner, loser) = if codes[0] == 0 { (0, 1) } else { (1, 0) };
        assert_eq!(racers[loser].error()["task"], racers[winner].stdout_json()["task"]["sha"]);
        assert_level(&hub, &a, &slug);
        assert_level(&hub, &b, &slug);
    }
}

#[test]
fn where_the_hub_cannot_be_reached_nothing_is_recorded_and_offline_records_say_so() {
    let (hub, a, b) = two();
    a.plan("held");
    a.plan("free");
    a.claim("held");
    b.pm(&["sync"]).ok();
    let elsewhere = hub.parent().join("elsewhere.git");
    std::fs::rename(hub.path(), &elsewhere).expect("moved");
    let before = own(&b, "refs");
    for args in [
        &["plan", "--title", "N"][..],
        &["executing", "--task", "free"],
        &["pull"],
        &["reclaim", "--task", "held"],
        &["sweep"],
        &["sync"],
    ] {
        let error = b.pm(&[args, &["--json"]].concat()).fails(20).error();
        assert_eq!(
            (&error["code"], &error["exit"], &error["remote"]),
            (&"unreachable".into(), &20.into(), &REMOTE.into())
        );
        assert_eq!(own(&b, "refs"), before, "{args:?} left nothing behind");
    }
    b.pm_fed("{\"title\":\"B\"}\n", &["bulk-plan", "--input", "-"]).fails(20);
    assert_eq!(own(&b, "refs"), before);

    let claim = b.pm_as("w2", &["--offline", "executing", "--task", "free", "--json"]).json();
    assert_eq!(claim["provisional"], true);
    let planned = b.pm(&["--offline", "plan", "--title", "Mine", "--slug", "mine", "--json"]).json();
    assert_eq!(planned["provisional"], true);
    std::fs::rename(&elsewhere, hub.path()).expect("moved back");
    let told = b.pm(&["sync", "--json"]).json();
    assert_eq!(told["pushed"], serde_json::json!([task_ref("free"), task_ref("mine")]));
    for slug in ["free", "mine", "held"] {
        assert_level(&hub, &b, slug);
    }
    assert_eq!(text(&b.state("free")["holder"]), "w2");
}

#[test]
fn an_offline_claim_that_lost_is_kept_with_its_reason_and_what_the_holder_said_offline_is_put_on_top() {
    let (hub, a, b) = two();
    for slug in ["mine", "lost"] {
        a.plan(slug);
    }
    b.pm(&["sync"]).ok();
    b.claim_as("w2", "mine");
    for args in
        [&["executing", "--task", "lost"][..], &["heartbeat", "--task", "lost"], &["heartbeat", "--task", "mine"]]
    {
        b.pm_as("w2", &[&["--offline"], args].concat()).ok();
    }
    b.pm_as("w2", &["--offline", "report", "--task", "mine", "--title", "T"]).ok();
    let (gone, kept) = (b.tip("lost"), b.tip("mine"));
    a.claim("lost");
    // Another machine of the same worker.
    let elsewhere = machine(&hub);
    elsewhere.pm_as("w2", &["heartbeat", "--task", "default/mine"]).ok();

    let outcome = b.pm(&["sync"]).ok();
    assert!(outcome.stdout.contains("the first push wins"), "{outcome:?}");
    for slug in ["mine", "lost"] {
        assert_level(&hub, &b, slug);
    }
    assert_eq!(text(&b.state("lost")["holder"]), AGENT);
    let [(tip, account)] = &lost(&b, "lost")[..] else { panic!("one suffix lost") };
    assert_eq!((tip, &account["remote"], &account["won"]), (&gone, &REMOTE.into(), &a.tip("lost").into()));
    let records_of = |account: &serde_json::Value| account["records"].as_array().cloned().expect("an array");
    let what: Vec<_> = records_of(account).iter().map(|record| text(&record["what"])).collect();
    assert_eq!(what, ["TaskStatus(working)", "TaskHeartbeat"]);
    assert!(records_of(account).iter().all(|record| record["why"].is_string() && record["agent"] == "w2"));

    let [(tip, account)] = &lost(&b, "mine")[..] else { panic!("one suffix was put on top") };
    assert_eq!(tip, &kept);
    assert!(records_of(account).iter().all(|record| record["kept_as"].is_string()), "{account}");
    assert_eq!(records(&b, "mine"), 6, "plan, status, claim, the other's heartbeat, ours and the report");
    b.git(&["gc", "--quiet", "--prune=now"]);
    b.git(&["cat-file", "-e", &gone]);
    b.assert_sound();
}

#[test]
fn a_claim_that_was_given_to_another_moves_nothing_for_who_held_it_before() {
    let (hub, a, b) = two();
    a.plan("t");
    let claim = a.claim("t");
    a.pm(&["report", "--task", "t", "--title", "T"]).ok();
    b.pm(&["sync"]).ok();
    b.pm_as("op", &["reclaim", "--task", "t"]).ok();
    b.claim_as("w2", "t");
    let (there, here) = (refs_at(&hub), a.tip("t"));
    let named = ["--claim", claim.as_str()];
    for args in
        [&["heartbeat", "--task", "t"][..], &["report", "--task", "t", "--title", "T"], &["finished", "--task", "t"]]
    {
        for more in [&[][..], &named] {
            let error = a.pm(&[args, more, &["--json"]].concat()).fails(12).error();
            assert_eq!((&error["code"], &error["holder"]), (&"lease_lost".into(), &"w2".into()));
            assert_eq!(refs_at(&hub), there);
        }
    }
    assert_ne!(here, a.tip("t"), "what the others did has come here");
    assert_eq!(a.tip("t"), tip_at(&hub, "t"));
    assert_level(&hub, &a, "t");
}

#[test]
fn two_ledgers_that_existed_before_are_brought_together_but_for_the_names_that_both_gave() {
    let hub = hub();
    let (a, b) = (Repo::new(), Repo::new());
    for (repo, own) in [(&a, "of-a"), (&b, "of-b")] {
        repo.plan("both");
        repo.plan(own);
        join(repo, &hub.path().display().to_string());
    }
    a.pm(&["sync"]).ok();
    let (mine, there) = (b.tip("both"), tip_at(&hub, "both"));
    for _ in 0..2 {
        let outcome = b.pm(&["sync", "--json"]).exits(19);
        let found = crate::support::fleet::only_trouble(&outcome, "both");
        assert!(found.contains("planned apart"), "{found}");
        assert_eq!((b.tip("both"), tip_at(&hub, "both")), (mine.clone(), there.clone()));
    }
    for slug in ["of-a", "of-b"] {
        assert_level(&hub, &b, slug);
    }
    b.pm(&["executing", "--task", "both"]).fails(19).says("planned apart");
    assert_eq!((b.tip("both"), tip_at(&hub, "both")), (mine, there));
}
