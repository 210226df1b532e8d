//! Who works a plan off: processes that pm or a shell is run in, each of them killed when dropped.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::plan::LABEL;
use crate::coherence::Ledger;
use crate::support::{Repo, STUCK, isolated, pm, poll_until, run_within};

const WORKER: &str = include_str!("worker.sh");
/// What a runner runs: something that takes long enough to be killed in.
const JOB: &str = r#"sleep 0.03 && echo "$PM_SLUG $PM_CLAIM $PM_AGENT_ID" >>"$JOBS""#;
/// The lease of all claims. Sweeps come five times in it.
pub const TTL: &str = "3s";
const SWEEP_EVERY: Duration = Duration::from_millis(600);
pub const SWEEPER: &str = "sweeper";
/// Of a runner.
const AGENTS: &str = "2";
pub const CONTEXTS: usize = 3;

/// How a plan is worked off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// Six shell loops, two in each context; two of them are killed, of two contexts
    Loops,
    /// Three `pm work`, each of two agents and one context; one of them is killed, and another one started in its context
    Runners,
}

/// A worker of one context.
pub struct Worker {
    pub number: usize,
    pub name: String,
    pub context: String,
    child: Child,
    out: PathBuf,
    err: PathBuf,
    /// A shell is stopped and killed with what it runs. What a runner runs ends by itself.
    is_group: bool,
}

impl Worker {
    /// Starts a shell loop.
    pub fn start_loop(repo: &Repo, log: &Path, number: usize) -> Result<Worker> {
        let (name, context) = (format!("w{number}"), context(number));
        let mut command = isolated("sh");
        command.args(["-c", WORKER]).env("PM", pm()).env("REPO", &repo.dir).env("LABEL", LABEL);
        command.env("LOG", log).env("STOP", log.join("stop"));
        command.env("PM_AGENT_ID", &name).env("PM_CONTEXT_ID", &context);
        Worker::start(command, log, (number, name, context), true)
    }

    /// Starts a runner, which ends when it finds nothing more to do, unless it is to run for ever.
    pub fn start_runner(repo: &Repo, log: &Path, number: usize, is_for_ever: bool) -> Result<Worker> {
        let (name, context) = (format!("r{number}"), context(number));
        let until = if is_for_ever { "--forever" } else { "--until-empty" };
        let mut command = repo.pm_command(["work", "--json", "--agent", &name, "--context-id", &context]);
        command.args(["--agents", AGENTS, "--label", LABEL, "--ttl", TTL, until, "--", "sh", "-c", JOB]);
        command.env("JOBS", log.join("jobs"));
        Worker::start(command, log, (number, name, context), false)
    }

    fn start(mut command: Command, log: &Path, who: (usize, String, String), is_group: bool) -> Result<Worker> {
        let (number, name, context) = who;
        let [out, err] = ["out", "err"].map(|kind| log.join(format!("{name}.{kind}")));
        command.process_group(0).stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
        Ok(Worker { number, name, context, child: command.spawn()?, out, err, is_group })
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_child(&self.child);
        let sent = if self.is_group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
        sent.with_context(|| format!("{signal:?} for {}", self.name))
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        poll_until(&format!("the end of {}", self.name), STUCK, || Ok(self.ended()?.is_some()))?;
        self.ended()?.context("it has ended")
    }

    /// What it told.
    pub fn told(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.out)?)
    }

    /// What it complained of last.
    pub fn complaint(&self) -> String {
        let said = fs::read_to_string(&self.err).unwrap_or_default();
        said.lines().last().unwrap_or_default().to_owned()
    }

    /// Whether this is its name, or that of one of its agents.
    fn is(&self, agent: &str) -> bool {
        agent == self.name || agent.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with('-'))
    }

    /// Stops it at once, and kills it if it holds a task then, or one with children if it has to be one. Returns the claims
    /// that it left behind.
    pub fn kill_with_a_claim(&mut self, repo: &Repo, is_to_hold_a_parent: bool) -> Result<Vec<String>> {
        self.signal(Signal::STOP)?;
        let held = poll_until(&format!("{} stops", self.name), STUCK, || Ok(is_stopped(self.child.id())))
            .and_then(|()| self.held(repo, is_to_hold_a_parent))?;
        if held.is_empty() {
            self.signal(Signal::CONT)?;
        } else {
            self.signal(Signal::KILL)?;
            self.wait()?;
        }
        Ok(held)
    }

    /// The claims that it holds, as git tells; none, if none of them is of a task with children but has to be.
    fn held(&self, repo: &Repo, is_to_hold_a_parent: bool) -> Result<Vec<String>> {
        let ledger = Ledger::read(&repo.dir)?;
        let (mut held, mut holds_a_parent) = (Vec::new(), false);
        for task in &ledger.tasks {
            let last = task.records.iter().rev().find(|record| record.one("Record") == Some("TaskStatus"));
            if let Some(claim) = last.filter(|last| last.what() == "working" && self.is(&last.author)) {
                held.push(claim.sha.clone());
                holds_a_parent |= ledger.tasks.iter().any(|child| child.one("Parent") == Some(task.id()));
            }
        }
        Ok(if holds_a_parent || !is_to_hold_a_parent { held } else { Vec::new() })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ended = self.signal(Signal::KILL);
        let _reaped = self.child.wait();
    }
}

/// The context of a worker.
fn context(number: usize) -> String {
    format!("c{}", number % CONTEXTS + 1)
}

/// Whether the system says that a process does nothing until it is told to.
fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

/// Sweeps until it is told to stop.
pub fn sweep(repo: &Repo, stop: &AtomicBool) -> Result<()> {
    while !stop.load(Ordering::SeqCst) {
        let done = run_within(&mut repo.pm_command(["sweep", "--ttl", TTL, "--agent", SWEEPER]), STUCK)?;
        ensure!(done.code() == 0, "the sweep: exit {}: {}", done.code(), done.stderr.trim());
        std::thread::sleep(SWEEP_EVERY);
    }
    Ok(())
}
