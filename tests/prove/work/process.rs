//! The processes that a proof has started, by what their environment holds, as the system tells it.
//!
//! What must never happen here: a signal reaches a process that the proof did not start.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::Scene;

/// The variable that marks all that a proof starts.
pub const MARK: &str = "PROVE_WORK";

/// A process of the proof.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: i32,
    /// Of which claim; a runner has none.
    pub claim: Option<String>,
    /// Keeps a command, and is none.
    pub is_keeper: bool,
    pub parent: i32,
}

impl Process {
    /// Sends a signal. Whether there was still somebody to hear it.
    pub fn signal(&self, signal: Signal) -> bool {
        Pid::from_raw(self.pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
    }
}

/// All processes of this scene that live. One that has ended has no environment, also when nobody waited for it.
pub fn all(scene: &Scene) -> Result<Vec<Process>> {
    let mark = format!("{MARK}={}", scene.mark);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let environment = read("environ");
        let mut variables = environment.split(|byte| *byte == 0);
        if !variables.clone().any(|variable| variable == mark.as_bytes()) {
            continue;
        }
        let claim = variables.find_map(|variable| variable.strip_prefix(b"PM_CLAIM="));
        let claim = claim.map(|claim| String::from_utf8_lossy(claim).into_owned());
        let line = read("cmdline");
        let is_keeper = String::from_utf8_lossy(&line).contains("\0work-child\0--until-ms=");
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        found.push(Process { pid, claim, is_keeper, parent: parent.unwrap_or(0) });
    }
    Ok(found)
}

/// The processes that work under a claim, its keeper among them.
pub fn of_claim(scene: &Scene, claim: &str) -> Result<Vec<Process>> {
    Ok(all(scene)?.into_iter().filter(|process| process.claim.as_deref() == Some(claim)).collect())
}

/// Waits until no process of this claim, or of the whole scene, is left, and says how long that took.
pub fn wait_until_gone(scene: &Scene, claim: Option<&str>, limit: Duration) -> Result<Duration> {
    let started = Instant::now();
    loop {
        let left: Vec<_> =
            all(scene)?.into_iter().filter(|process| claim.is_none() || process.claim.as_deref() == claim).collect();
        if left.is_empty() {
            return Ok(started.elapsed());
        }
        ensure!(started.elapsed() < limit, "still there after {limit:?}: {}", shown(&left));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes with what they run, for messages.
fn shown(processes: &[Process]) -> String {
    let line = |process: &Process| {
        let words = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        format!("{} below {} ({})", process.pid, process.parent, words.chars().take(80).collect::<String>())
    };
    processes.iter().map(line).collect::<Vec<_>>().join(", ")
}

/// Kills what a broken proof has left, when dropped.
pub struct NoneLeft<'a>(pub &'a Scene);

impl Drop for NoneLeft<'_> {
    fn drop(&mut self) {
        // More than once: what is killed may just be starting another.
        for _ in 0..3 {
            for process in all(self.0).unwrap_or_default() {
                process.signal(Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
