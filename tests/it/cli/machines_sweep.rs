//! Sweeps where a hub decides: claims are watched by readings of the hub, and what got in there in time blocks.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::fleet::{REMOTE, assert_level, own, records, refs_at, tip_at, two};
use crate::support::process::Process;
use crate::support::servers::Hub;
use crate::support::{Repo, text, until};

/// Sweeps as a supervisor.
#[track_caller]
fn sweep(repo: &Repo, options: &[&str]) -> Value {
    repo.pm_as("sweeper", &[&["sweep", "--json"], options].concat()).json()
}

fn rows(told: &Value, list: &str) -> usize {
    told[list].as_array().expect("an array").len()
}

/// Claims `t` as w1 on the first of two machines, with this lease.
fn world(ttl: &str) -> (Hub, Repo, Repo) {
    let (hub, a, b) = two();
    a.plan("t");
    b.pm(&["sync"]).ok();
    a.pm(&["executing", "--task", "t", "--ttl", ttl]).ok();
    (hub, a, b)
}

/// How old the sweeper knows the claim to be.
fn age(told: &Value) -> u64 {
    told["observing"][0]["age_ms"].as_u64().unwrap_or_else(|| panic!("{told}"))
}

#[test]
fn a_claim_is_first_watched_and_later_reclaimed_even_by_the_machine_that_made_it() {
    let (hub, a, b) = world("300ms");
    for repo in [&a, &b] {
        // The claim was made on this very clock, which says nothing about what got to the hub.
        until("the claim is older than its lease here", || (a.state("t")["age_ms"].as_u64() > Some(400)).then_some(()));
        let told = sweep(repo, &[]);
        assert_eq!((rows(&told, "observing"), rows(&told, "reclaimed"), age(&told)), (1, 0, 0), "{told}");
    }
    let mut last = 0;
    let told = until("it is reclaimed", || {
        let told = sweep(&b, &[]);
        if rows(&told, "reclaimed") == 1 {
            return Some(told);
        }
        let age = age(&told);
        assert!(age <= last + 100, "from {last} to {age} ms with one reading");
        last = age;
        None
    });
    assert!(last > 0 && told["reclaimed"][0]["age_ms"].as_u64() > Some(300), "{told}");
    assert_level(&hub, &b, "t");
    assert_eq!(sweep(&a, &[])["scanned"], 1);
    assert_eq!(a.phase("t"), "new");
    assert_level(&hub, &a, "t");
    a.assert_sound();
}

#[test]
fn time_in_which_the_hub_could_not_be_read_makes_no_claim_older() {
    let (hub, a, b) = world("900ms");
    assert_eq!(age(&sweep(&b, &[])), 0);
    let elsewhere = hub.parent().join("elsewhere.git");
    std::fs::rename(hub.path(), &elsewhere).expect("moved");
    until("the claim is older than two leases", || {
        b.pm(&["sweep"]).fails(20);
        (a.state("t")["age_ms"].as_u64() > Some(1_800)).then_some(())
    });
    std::fs::rename(&elsewhere, hub.path()).expect("moved back");
    let told = sweep(&b, &[]);
    assert_eq!((age(&told), rows(&told, "reclaimed")), (300, 0), "a third of the lease, {told}");
    assert_eq!(text(&b.state("t")["holder"]), "w1");
}

#[test]
fn a_heartbeat_that_got_to_the_hub_in_between_makes_the_claim_young_again() {
    let (hub, a, b) = world("10s");
    sweep(&b, &[]);
    until("it has grown older", || (age(&sweep(&b, &[])) > 0).then_some(()));
    a.pm(&["heartbeat", "--task", "t"]).ok();
    assert_eq!(age(&sweep(&b, &[])), 0, "another tip is watched from its own first sight");
    assert_level(&hub, &b, "t");
}

#[test]
fn what_this_machine_has_not_pushed_yet_is_pushed_before_anything_is_swept() {
    let (hub, a, b) = world("150ms");
    sweep(&a, &[]);
    until("the next reading would reclaim", || (age(&sweep(&a, &[])) > 100).then_some(()));
    a.pm(&["--offline", "heartbeat", "--task", "t"]).ok();
    let dry = sweep(&a, &["--dry-run"]);
    assert_eq!(rows(&dry, "reclaimed"), 0, "{dry}");
    assert_ne!(tip_at(&hub, "t"), a.tip("t"), "a dry run pushes nothing");
    let told = sweep(&a, &[]);
    assert_eq!((rows(&told, "reclaimed"), rows(&told, "observing"), age(&told)), (0, 1, 0), "{told}");
    assert_level(&hub, &a, "t");
    b.pm(&["sync"]).ok();
    assert_eq!(b.tip("t"), a.tip("t"));
}

#[test]
fn of_a_reclaim_and_a_heartbeat_on_two_machines_exactly_one_gets_in() {
    let (hub, a, b) = world("60ms");
    let (mut swept, mut beaten) = (0, 0);
    for round in 0..4 {
        // Watched until the next reading decides.
        until("it is about to be swept", || (age(&sweep(&b, &["--dry-run"])) > 40).then_some(()));
        let claim = text(&a.state("t")["claim"]);
        let mut beat = a.pm_command(&["heartbeat", "--task", "t"]);
        let beat = Process::start(beat.env("PM_AGENT_ID", "w1"));
        let mut sweeper = b.pm_command(&["sweep", "--json"]);
        let sweeper = Process::start(sweeper.env("PM_AGENT_ID", "sweeper"));
        let (beat, sweeper) = (beat.outcome(), sweeper.outcome().ok());
        let told = sweeper.stdout_json();
        let reclaimed = rows(&told, "reclaimed") == 1;
        // One that comes after the reclaim is told so, and one before it blocks it.
        assert!(beat.code == 0 || (reclaimed && [6, 12].contains(&beat.code)), "{beat:?} {told}");
        b.pm(&["sync"]).ok();
        let state = b.state("t");
        if reclaimed {
            swept += 1;
            assert_eq!(state["status"], "new", "round {round}: {told}");
            a.pm(&["executing", "--task", "t", "--ttl", "60ms"]).ok();
        } else {
            beaten += 1;
            assert_eq!(state["claim"], claim.as_str(), "round {round}: {told}");
        }
    }
    assert_eq!(swept + beaten, 4);
    for repo in [&a, &b] {
        repo.pm(&["sync"]).ok();
        assert_level(&hub, repo, "t");
        repo.assert_sound();
    }
}

#[test]
fn a_poller_that_runs_once_synchronises_and_sweeps_and_counts_both() {
    let (hub, a, b) = world("30ms");
    a.plan("more");
    b.pm(&["--offline", "plan", "--title", "Mine", "--slug", "mine"]).ok();
    let once = |repo: &Repo| repo.pm(&["poll", "run", "--once", "--json"]).json();
    let first = once(&b);
    let counters =
        ["tasks", "taken", "pushed", "lost", "observing", "reclaimed", "errors"].map(|key| first[key].clone());
    assert_eq!(counters, [3, 2, 1, 0, 1, 0, 0].map(|count| json!(count)), "{first}");
    let told = until("it reclaims", || Some(once(&b)).filter(|told| told["reclaimed"] == 1));
    assert_eq!((&told["errors"], &told["pushed"]), (&json!(0), &json!(0)), "{told}");
    for slug in ["t", "mine", "more"] {
        assert_level(&hub, &b, slug);
    }
    let elsewhere = hub.parent().join("elsewhere.git");
    std::fs::rename(hub.path(), &elsewhere).expect("moved");
    assert_eq!(b.pm(&["poll", "run", "--once", "--json"]).exits(1).stdout_json()["errors"], 1);
    std::fs::rename(&elsewhere, hub.path()).expect("moved back");
    assert_eq!(once(&b)["errors"], 0);
}

#[test]
fn a_sweep_that_waits_decides_within_the_lease_and_a_little() {
    let (hub, a, b) = world("600ms");
    let started = std::time::Instant::now();
    let told = sweep(&b, &["--wait"]);
    let took = started.elapsed();
    assert_eq!(rows(&told, "reclaimed"), 1, "{told}");
    assert!(took > Duration::from_millis(600), "{took:?}");
    assert_level(&hub, &b, "t");
    assert_eq!((records(&b, "t"), own(&b, "refs/pm-pending")), (5, String::new()));
    assert!(refs_at(&hub).contains(&b.tip("t")) && a.refs() != b.refs());
    assert_eq!(own(&b, &format!("refs/pm-remote/{REMOTE}")).lines().count(), 1);
}
