//! Leave for an outside effect: only this very claim, and only while enough of its lease is left.

use crate::support::confined::{UNDER_ANOTHER_CLOCK, is_root, missing};
use crate::support::{Repo, until};

#[test]
fn a_claim_that_holds_its_task_for_long_enough_gives_leave() {
    let repo = Repo::new();
    let task = repo.plan("a");
    let claim = repo.claim("a");
    let leave = repo.pm(&["fence", "--json", "--task", "a", "--claim", &claim]).json();
    assert_eq!((&leave["task"], &leave["claim"], &leave["fence"]), (&task.into(), &claim.clone().into(), &2.into()));
    let left = leave["lease_left_ms"].as_u64().expect("a number");
    assert!((200_000..=300_000).contains(&left), "{leave}");
    // The claim proves the holder by itself, whoever asks, and may come from the environment.
    let said = repo.pm_with(&[("PM_CLAIM", &claim), ("PM_AGENT_ID", "w9")], &["fence", "--task", "a"]).ok().stdout;
    assert!(said.starts_with("default/a is held by this claim, for "), "{said}");
    repo.pm(&["fence", "--task", "a", "--claim", &claim, "--deadline", "200s"]).ok();
    let refused = ["fence", "--json", "--task", "a", "--claim", &claim, "--deadline", "301s"];
    let error = repo.pm(&refused).fails(12).error();
    assert!(error["lease_left_ms"].as_u64().expect("a number") <= 300_000, "{error}");
    assert_eq!(repo.refs(), repo.refs(), "it only reads");
}

#[test]
fn a_claim_that_is_over_gives_no_leave_and_neither_does_its_successor() {
    let repo = Repo::new();
    repo.plan("a");
    let first = repo.claim("a");
    let fence = |claim: &str| repo.pm(&["fence", "--json", "--task", "a", "--claim", claim]);
    repo.pm(&["reclaim", "--task", "a"]).ok();
    assert_eq!(fence(&first).fails(12).error()["status"], "new");
    let second = repo.claim_as("w2", "a");
    let error = fence(&first).fails(12).error();
    assert_eq!(
        (&error["holder"], &error["claim"], &error["yours"]),
        (&"w2".into(), &second.clone().into(), &false.into())
    );
    fence(&second).ok();
    repo.pm_as("w2", &["report", "--task", "a", "--title", "T"]).ok();
    repo.pm_as("w2", &["finished", "--task", "a"]).ok();
    let error = fence(&second).fails(12).error();
    assert_eq!((&error["code"], &error["status"]), (&"lease_lost".into(), &"done".into()));
    repo.pm(&["fence", "--task", "a"]).fails(2).says("no claim is named");
    repo.pm(&["fence", "--task", "nothing", "--claim", &first]).fails(17);
}

#[test]
fn a_lease_that_ran_out_gives_no_leave_until_the_next_heartbeat() {
    let repo = Repo::new();
    repo.plan("a");
    let claim = repo.pm(&["executing", "--json", "--task", "a", "--ttl", "2s"]).json();
    let claim = crate::support::text(&claim["sha"]);
    let fence = ["fence", "--task", "a", "--claim", &claim];
    repo.pm(&fence).ok();
    let outcome = until("the lease is over", || Some(repo.pm(&fence)).filter(|outcome| outcome.code != 0));
    outcome.fails(12).says("send a heartbeat first");
    repo.pm(&["heartbeat", "--task", "a"]).ok();
    repo.pm(&fence).ok();
}

#[test]
fn what_was_kept_alive_on_another_clock_gives_no_leave_here() {
    if !is_root() && missing("root") {
        return;
    }
    let mut repo = Repo::new();
    repo.plan("a");
    let claim = repo.claim("a");
    repo.set_prefix(&UNDER_ANOTHER_CLOCK);
    repo.pm(&["heartbeat", "--task", "a"]).ok();
    repo.set_prefix(&[]);
    let fence = ["fence", "--task", "a", "--claim", &claim];
    repo.pm(&fence).fails(12).says("another clock");
    // Also when it was watched for a while: that is the least that its age can be.
    repo.pm(&["sweep"]).ok();
    repo.pm(&fence).fails(12).says("another clock");
    repo.pm(&["heartbeat", "--task", "a"]).ok();
    repo.pm(&fence).ok();
}
