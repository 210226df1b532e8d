//! The end of a runner: when it is told to stop, once or twice, and when a command takes too long.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::runner::{event, life, of_claim, start, told, work, written};
use crate::support::{Repo, text};

/// A command that runs until it is let go by `$OUT/go`.
const PATIENT: &str = "echo $PM_CLAIM >$OUT/claim; until [ -e $OUT/go ]; do sleep 0.02; done";

#[test]
fn told_once_it_completes_what_runs_and_takes_nothing_new() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    for signal in [Signal::TERM, Signal::INT] {
        let runner = start(&repo, &["--forever"], PATIENT);
        written(&repo, "claim");
        runner.signal(signal);
        std::fs::write(repo.outside().join("go"), "").expect("written");
        let outcome = runner.outcome().ok();
        assert_eq!(told(&outcome).len(), 3, "{outcome:?}");
        assert_eq!(event(&outcome, "summary")["done"], 1);
        for name in ["go", "claim"] {
            std::fs::remove_file(repo.outside().join(name)).expect("removed");
        }
    }
}

#[test]
fn told_before_the_queue_is_empty_it_says_that_it_is_not() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    let runner = start(&repo, &[], PATIENT);
    written(&repo, "claim");
    runner.signal(Signal::TERM);
    std::fs::write(repo.outside().join("go"), "").expect("written");
    runner.outcome().exits(1);
    assert_eq!(repo.phase("b"), "new");
}

#[test]
fn told_twice_it_stops_at_once_and_gives_back_what_it_held() {
    let repo = Repo::new();
    repo.plan("a");
    let runner = start(&repo, &["--forever"], &format!("trap '' TERM; {PATIENT}"));
    let claim = written(&repo, "claim");
    let started = Instant::now();
    runner.signal(Signal::TERM);
    runner.signal(Signal::INT);
    let outcome = runner.outcome().ok();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(told(&outcome), ["started a", "released a", "summary"]);
    assert_eq!(of_claim(&claim), Vec::<u64>::new());
    assert_eq!(life(&repo, "a").last().map(String::as_str), Some("w1 TaskStatus new"));
    assert_eq!(repo.pm(&["owned", "--json"]).json()["count"], 0);
}

#[test]
fn told_once_it_gives_back_what_runs_where_that_is_asked() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    let script = format!("trap 'echo >$OUT/asked-$PM_SLUG; exit 0' TERM; echo >$OUT/$PM_SLUG; {PATIENT}");
    let runner = start(&repo, &["--forever", "--on-stop", "release", "--agents", "2"], &script);
    written(&repo, "a");
    written(&repo, "b");
    runner.signal(Signal::TERM);
    let outcome = runner.outcome().ok();
    assert_eq!(event(&outcome, "summary")["released"], 2);
    written(&repo, "asked-a");
    written(&repo, "asked-b");
    assert_eq!((repo.phase("a"), repo.phase("b")), ("new".to_owned(), "new".to_owned()));
    repo.assert_sound();
}

#[test]
fn idle_agents_end_when_they_are_told() {
    let repo = Repo::new();
    let runner = start(&repo, &["--forever", "--agents", "9"], "true");
    // Only a runner that catches signals is told anything by one.
    crate::support::until("it catches them", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", runner.0.id())).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim().to_owned();
        (u64::from_str_radix(&caught, 16).ok()? & (1 << 14) != 0).then_some(())
    });
    let started = Instant::now();
    runner.signal(Signal::TERM);
    runner.outcome().ok();
    assert!(started.elapsed() < Duration::from_millis(900), "{:?}", started.elapsed());
}

#[test]
fn a_command_that_takes_too_long_is_ended_and_has_failed() {
    let repo = Repo::new();
    repo.plan("a");
    let outcome =
        work(&repo, &["--timeout", "200ms", "--ttl", "1s"], "trap '' TERM; echo began; sleep 60 & wait; sleep 60");
    let rejected = event(&outcome.exits(1), "rejected");
    assert_eq!(rejected["why"], "timed out after 200 ms");
    let shown = repo.pm(&["show", "--json", "--task", "a"]).json();
    let body = text(&shown["reports"][0]["body"]);
    assert!(body.contains("Result: timed out after 200 ms") && body.ends_with("began\n"), "{body}");
}
