//! Clocks that are apart: a claim that was made under another clock can only be watched, and wall clocks decide nothing.

use std::time::{Duration, Instant};

use pm::clock::{Clock, SystemClock};
use pm::id::AgentId;
use pm::ledger::{Identity, Ledger};
use pm::protocol::decide::Intent;
use pm::protocol::record::ClockReading;
use pm::store::git::GitStore;
use serde_json::Value;

use crate::support::confined::{UNDER_ANOTHER_CLOCK, has, is_root, missing};
use crate::support::redact::Redactor;
use crate::support::snapshot::{self, transcript};
use crate::support::{Outcome, Repo, text, until};

fn sweep(repo: &Repo, options: &[&str]) -> Value {
    repo.pm_as("sweeper", &[&["sweep", "--json"], options].concat()).json()
}

fn rows(told: &Value, list: &str) -> usize {
    told[list].as_array().expect("an array").len()
}

/// Runs pm in a time namespace, whose monotonic clock is more than a day ahead of ours.
fn elsewhere(repo: &Repo, args: &[&str]) -> Outcome {
    let line = [&UNDER_ANOTHER_CLOCK[1..], &[env!("CARGO_BIN_EXE_pm")], args].concat();
    Outcome::of(args, repo.program(UNDER_ANOTHER_CLOCK[0], &line).env("PM_AGENT_ID", "far"))
}

/// Whether time namespaces are to be had; says so where they are not.
fn no_time_namespaces() -> bool {
    let has_them = is_root() && has("unshare") && std::path::Path::new("/proc/self/ns/time").exists();
    !has_them && missing("root and time namespaces")
}

#[test]
fn a_claim_under_another_clock_is_watched_first_and_reclaimed_a_ttl_later() {
    if no_time_namespaces() {
        return;
    }
    let repo = Repo::new();
    repo.plan("far");
    repo.plan("near");
    elsewhere(&repo, &["executing", "--task", "far"]).ok();
    repo.claim("near");
    let clock = |slug: &str| {
        let clock = repo.git(&[
            "log",
            "-1",
            "--format=%(trailers:key=Clock,valueonly,separator=%x2C)",
            &crate::support::task_ref(slug),
        ]);
        let (id, ms) = clock.split_once(' ').expect("two fields");
        (id.to_owned(), ms.parse::<u64>().expect("milliseconds"))
    };
    assert_ne!(clock("far").0, clock("near").0);
    assert!(clock("far").1 > clock("near").1 + 99_000_000, "its clock is far ahead");

    let first_sweep = Instant::now();
    let told = sweep(&repo, &["--ttl", "500ms"]);
    assert_eq!((rows(&told, "observing"), &told["observing"][0]["slug"]), (1, &"far".into()));
    assert_eq!(told["observing"][0]["decides_in_ms"], 500);
    assert_eq!(rows(&told, "reclaimed"), 0);
    let told = until("the watched claim is reclaimed", || {
        let told = sweep(&repo, &["--ttl", "500ms"]);
        let taken = told["reclaimed"].as_array().expect("an array").iter().any(|row| row["slug"] == "far");
        // Any sweep in between says how long it must still watch.
        assert!(taken || told["observing"][0]["decides_in_ms"].as_u64().is_some_and(|left| left <= 500), "{told}");
        taken.then_some(told)
    });
    assert!(first_sweep.elapsed() > Duration::from_millis(500), "not sooner than the TTL");
    let far = told["reclaimed"].as_array().expect("an array").iter().find(|row| row["slug"] == "far");
    let age = far.expect("it was taken")["age_ms"].as_u64().expect("a number");
    assert!((500..20_000).contains(&age), "its age is counted from the first sight: {age}");
    repo.assert_sound();
}

#[test]
fn a_heartbeat_in_between_starts_the_watch_anew() {
    if no_time_namespaces() {
        return;
    }
    let repo = Repo::new();
    repo.plan("a");
    let claim = text(&elsewhere(&repo, &["executing", "--json", "--task", "a"]).json()["sha"]);
    sweep(&repo, &["--ttl", "300ms"]);
    let seen = Instant::now();
    elsewhere(&repo, &["heartbeat", "--task", "a", "--claim", &claim]).ok();
    until("the TTL has passed since the first sight", || (seen.elapsed() > Duration::from_millis(350)).then_some(()));
    let told = sweep(&repo, &["--ttl", "300ms"]);
    assert_eq!((rows(&told, "reclaimed"), rows(&told, "observing")), (0, 1), "{told}");
    assert_eq!(told["observing"][0]["decides_in_ms"], 300, "watched from the heartbeat's first sight");
    let observations = std::fs::read_to_string(repo.git_dir().join("pm/observations")).expect("kept");
    assert!(observations.contains(&repo.tip("a")) && !observations.contains(&claim), "{observations}");
}

#[test]
fn with_wait_one_sweep_is_enough() {
    if no_time_namespaces() {
        return;
    }
    let repo = Repo::new();
    repo.plan("a");
    elsewhere(&repo, &["executing", "--task", "a"]).ok();
    let started = Instant::now();
    let told = sweep(&repo, &["--ttl", "400ms", "--wait"]);
    let took = started.elapsed();
    assert_eq!((rows(&told, "reclaimed"), rows(&told, "observing")), (1, 0), "{told}");
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(10), "{took:?}");
    assert_eq!(repo.phase("a"), "new");
    sweep(&repo, &["--ttl", "400ms"]);
    let observations = std::fs::read_to_string(repo.git_dir().join("pm/observations")).expect("kept");
    assert_eq!(observations, "{}", "what is no longer working is no longer watched");
}

#[test]
fn a_dry_run_watches_too_but_reclaims_nothing() {
    if no_time_namespaces() {
        return;
    }
    let repo = Repo::new();
    repo.plan("a");
    elsewhere(&repo, &["executing", "--task", "a"]).ok();
    let before = repo.refs();
    let told = until("the watched claim is stale", || {
        let told = sweep(&repo, &["--ttl", "100ms", "--dry-run"]);
        (told["stale"] == 1).then_some(told)
    });
    assert_eq!((rows(&told, "reclaimed"), &told["dry_run"]), (1, &true.into()));
    assert_eq!(repo.refs(), before);
}

/// A clock of which every hand can be set.
struct Set {
    wall_seconds: i64,
    monotonic: Option<ClockReading>,
}

impl Clock for Set {
    fn wall_micros(&self) -> i64 {
        self.wall_seconds * 1_000_000
    }

    fn monotonic(&self) -> Option<ClockReading> {
        self.monotonic
    }
}

const TEN_YEARS: i64 = 10 * 365 * 24 * 3600;

/// Claims a task of the default queue in-process, by this clock.
fn claim_by(repo: &Repo, slug: &str, clock: &Set) {
    let store = GitStore::discover(repo.path()).expect("usable");
    let identity = Identity { committer: ("Ada".into(), "ada@example.com".into()), email: "ada@example.com".into() };
    let agent: AgentId = "w1".parse().expect("an agent");
    let ledger = Ledger {
        store: &store,
        clock,
        identity: &identity,
        agent: &agent,
        context: None,
        reach: pm::ledger::Reach::Alone,
    };
    let found = ledger.find(slug, &"default".parse().expect("a queue")).expect("found");
    ledger.append(found, Intent::Claim { ttl: None }).expect("claimed");
}

#[test]
fn a_wall_clock_that_is_ten_years_off_changes_no_age() {
    let repo = Repo::new();
    let (now, monotonic) = (SystemClock::new().wall_seconds(), SystemClock::new().monotonic());
    for (slug, wall_seconds) in [("past", now - TEN_YEARS), ("future", now + TEN_YEARS)] {
        repo.plan(slug);
        claim_by(&repo, slug, &Set { wall_seconds, monotonic });
        let year = repo.git(&["log", "-1", "--format=%ad", "--date=format:%Y", &crate::support::task_ref(slug)]);
        let this_year = repo.git(&[
            "log",
            "-1",
            "--format=%ad",
            "--date=format:%Y",
            &format!("{}~", crate::support::task_ref(slug)),
        ]);
        assert_ne!(year, this_year);
        let age = repo.state(slug)["age_ms"].as_u64().expect("a number");
        assert!(age < 60_000, "{slug}: {age}");
    }
    let told = sweep(&repo, &["--ttl", "10m"]);
    assert_eq!((&told["stale"], rows(&told, "observing")), (&0.into(), 0));
    let told = until("both are stale at the same time", || {
        let told = sweep(&repo, &["--ttl", "1ms"]);
        (told["stale"] != 0).then_some(told)
    });
    assert_eq!(rows(&told, "reclaimed"), 2, "by the monotonic clock both are equally old: {told}");
}

#[test]
fn dates_of_the_environment_have_no_influence() {
    let repo = Repo::new();
    let env = [
        ("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z"),
        ("GIT_COMMITTER_DATE", "2001-01-01T00:00:00Z"),
        ("GIT_AUTHOR_NAME", "X"),
    ];
    repo.pm_with(&env, &["plan", "--title", "A"]).ok();
    repo.pm_with(&env, &["executing", "--task", "a"]).ok();
    let told = repo.git(&["log", "-1", "--format=%at %ct %an", &crate::support::task_ref("a")]);
    let fields: Vec<&str> = told.split(' ').collect();
    let now = SystemClock::new().wall_seconds();
    for seconds in &fields[..2] {
        assert!((now - 60..=now).contains(&seconds.parse().expect("seconds")), "{told}");
    }
    assert_eq!(fields[2], "w1");
    assert_eq!(sweep(&repo, &["--ttl", "10m"])["stale"], 0);
}

#[test]
fn author_dates_count_only_for_an_operator_who_trusts_clocks() {
    let repo = Repo::new();
    let now = SystemClock::new().wall_seconds();
    for (slug, wall_seconds) in [("past", now - TEN_YEARS), ("future", now + TEN_YEARS)] {
        repo.plan(slug);
        claim_by(&repo, slug, &Set { wall_seconds, monotonic: None });
    }
    let outcomes =
        [&["sweep", "--json", "--ttl", "10m"][..], &["sweep", "--ttl", "10m"]].map(|args| repo.pm(args).ok());
    let told = outcomes[0].stdout_json();
    assert_eq!((rows(&told, "reclaimed"), rows(&told, "observing")), (0, 2), "without a clock they are watched");
    snapshot::check("shapes/sweep-observing.txt", &transcript(&mut Redactor::new(), &outcomes));
    let told = sweep(&repo, &["--ttl", "10m", "--trust-clocks", "--dry-run"]);
    assert_eq!((rows(&told, "reclaimed"), &told["reclaimed"][0]["slug"]), (1, &"past".into()));
    let told = sweep(&repo, &["--ttl", "10m", "--trust-clocks"]);
    assert_eq!(rows(&told, "reclaimed"), 1);
    assert_eq!((repo.phase("past"), repo.phase("future")), ("new".to_owned(), "working".to_owned()));
    repo.assert_sound();
}

#[test]
fn a_clock_of_this_boot_that_is_ahead_of_ours_is_not_believed() {
    let repo = Repo::new();
    let ours = SystemClock::new().monotonic().expect("a monotonic clock");
    repo.plan("a");
    let ahead = ClockReading { id: ours.id, ms: ours.ms + 3_600_000 };
    claim_by(&repo, "a", &Set { wall_seconds: SystemClock::new().wall_seconds(), monotonic: Some(ahead) });
    let told = sweep(&repo, &["--ttl", "1ms"]);
    assert_eq!((rows(&told, "reclaimed"), rows(&told, "observing")), (0, 1), "{told}");
    until("it is reclaimed after it was watched", || {
        (rows(&sweep(&repo, &["--ttl", "1ms"]), "reclaimed") == 1).then_some(())
    });
}

#[test]
fn observations_that_are_torn_or_foreign_cost_time_and_never_a_claim() {
    let repo = Repo::new();
    repo.plan("a");
    claim_by(&repo, "a", &Set { wall_seconds: SystemClock::new().wall_seconds(), monotonic: None });
    sweep(&repo, &["--ttl", "1ms"]);
    let path = repo.git_dir().join("pm/observations");
    let whole = std::fs::read_to_string(&path).expect("kept");
    for content in ["", "{", "[]", "{\"x\":{\"y\":{\"tip\":1}}}", &whole[..whole.len() / 2]] {
        std::fs::write(&path, content).expect("written");
        let told = sweep(&repo, &["--ttl", "1h"]);
        assert_eq!(
            (rows(&told, "reclaimed"), told["observing"][0]["decides_in_ms"].clone()),
            (0, 3_600_000.into()),
            "{content}"
        );
    }
    // A first sight of another boot says nothing about this one.
    let foreign = std::fs::read_to_string(&path).expect("kept");
    let (id, _) = foreign[2..].split_once('"').expect("a clock id");
    std::fs::write(&path, foreign.replace(id, "0000000000000001")).expect("written");
    assert_eq!(rows(&sweep(&repo, &["--ttl", "1ms"]), "observing"), 1);
}
