//! Runners for tests, and what they told.

use std::path::PathBuf;

use serde_json::Value;

use super::process::{Process, with_variable};
use super::{AGENT, Outcome, Repo, text, until};

/// `pm work --json` with these options, running the script with `sh`; as [`AGENT`].
pub fn start(repo: &Repo, options: &[&str], script: &str) -> Process {
    Process::start(repo.pm_command(&line(options, script)).env("PM_AGENT_ID", AGENT).env("OUT", repo.outside()))
}

/// The same, to its end.
pub fn work(repo: &Repo, options: &[&str], script: &str) -> Outcome {
    let args = line(options, script);
    Outcome::of(&args, repo.pm_command(&args).env("PM_AGENT_ID", AGENT).env("OUT", repo.outside()))
}

fn line<'a>(options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    [&["work", "--json"], options, &["--", "sh", "-c", script]].concat()
}

/// The events on stdout.
pub fn events(outcome: &Outcome) -> Vec<Value> {
    let event = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    outcome.stdout.lines().map(event).collect()
}

/// The names of the events, with the slugs of their tasks.
pub fn told(outcome: &Outcome) -> Vec<String> {
    let name = |event: &Value| match event["place"].as_str() {
        Some(place) => format!("{} {}", text(&event["event"]), place.rsplit('/').next().unwrap_or(place)),
        None => text(&event["event"]),
    };
    events(outcome).iter().map(name).collect()
}

/// The one event of this name.
pub fn event(outcome: &Outcome, name: &str) -> Value {
    let found: Vec<Value> = events(outcome).into_iter().filter(|event| event["event"] == name).collect();
    assert_eq!(found.len(), 1, "{name} in {outcome:?}");
    found[0].clone()
}

/// A file that the scripts write, by way of `$OUT`.
pub fn file(repo: &Repo, name: &str) -> PathBuf {
    repo.outside().join(name)
}

/// Waits until a script has written a file, and returns what it holds.
pub fn written(repo: &Repo, name: &str) -> String {
    let read = || std::fs::read_to_string(file(repo, name)).ok().filter(|text| text.ends_with('\n'));
    until(&format!("{name} is written"), read).trim().to_owned()
}

/// The living processes that work under a claim, its keeper among them.
pub fn of_claim(claim: &str) -> Vec<u64> {
    with_variable(&format!("PM_CLAIM={claim}"))
}

/// The record kinds and agents of a task, oldest first, by git's word.
pub fn life(repo: &Repo, slug: &str) -> Vec<String> {
    let name = super::task_ref(slug);
    let log = repo.git(&[
        "log",
        "--reverse",
        "--format=%an %(trailers:key=Record,valueonly,separator=%x20) \
        %(trailers:key=Status,valueonly,separator=%x20)",
        &name,
    ]);
    log.lines().map(|line| line.trim().to_owned()).collect()
}
