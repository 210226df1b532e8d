//! Pollers for tests: in the foreground and in the background, ended with the test whatever becomes of it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Outcome, Repo, until};

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

/// A poller in the foreground, killed at the end of the test.
pub struct Foreground(pub Child);

impl Foreground {
    /// Runs one, and waits until it holds the lock.
    pub fn run(repo: &Repo, options: &[&str]) -> Foreground {
        let args = [&["poll", "run"], options].concat();
        let child = repo.pm_command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pm starts");
        let poller = Foreground(child);
        until("it runs", || (status(repo)["pid"] == poller.0.id()).then_some(()));
        poller
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("signalled");
    }

    /// The lines of its stdout, to its end. What is read so is not in the outcome.
    pub fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().expect("a pipe")).lines().map(|line| line.expect("UTF-8"))
    }

    /// Waits for its end.
    pub fn outcome(mut self) -> Outcome {
        until("it ends", || self.0.try_wait().expect("asked"));
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if let Some(mut pipe) = self.0.stdout.take() {
            pipe.read_to_end(&mut stdout).expect("read");
        }
        self.0.stderr.take().expect("a pipe").read_to_end(&mut stderr).expect("read");
        let status = self.0.wait().expect("ended");
        Outcome::from_output(&["poll", "run"], std::process::Output { status, stdout, stderr })
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Stops a poller in the background at the end of the test, whatever became of it.
pub struct Background<'a>(pub &'a Repo);

impl Drop for Background<'_> {
    fn drop(&mut self) {
        let _stopped = self.0.pm(&["poll", "stop"]);
    }
}

/// Whether a process is there, and no zombie.
pub fn is_alive(pid: u64) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    // A zombie is gone, too: it waits only to be asked how it ended.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}
