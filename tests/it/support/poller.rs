//! Pollers for tests: in the foreground and in the background, ended with the test whatever becomes of it.

use std::path::PathBuf;

use serde_json::Value;

use super::process::Process;
use super::{Repo, until};

/// The file of this name in the state root.
pub fn file(repo: &Repo, name: &str) -> PathBuf {
    repo.path().join(".git/pm").join(name)
}

/// What `pm poll status` says.
pub fn status(repo: &Repo) -> Value {
    repo.pm(&["poll", "status", "--json"]).stdout_json()
}

/// What the heartbeat says, once a cycle was ended.
pub fn cycle(repo: &Repo) -> Value {
    until("a cycle", || Some(status(repo)["lastCycle"].clone()).filter(|cycle| !cycle.is_null()))
}

/// Runs a poller in the foreground, and waits until it holds the lock.
pub fn run(repo: &Repo, options: &[&str]) -> Process {
    let poller = Process::start(&mut repo.pm_command(&[&["poll", "run"], options].concat()));
    until("it runs", || (status(repo)["pid"] == poller.0.id()).then_some(()));
    poller
}

/// Stops a poller in the background at the end of the test, whatever became of it.
pub struct Background<'a>(pub &'a Repo);

impl Drop for Background<'_> {
    fn drop(&mut self) {
        let _stopped = self.0.pm(&["poll", "stop"]);
    }
}
