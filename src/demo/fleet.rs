//! The tour's processes: runners with one agent each, and single commands.

use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::{PERIOD, note_path};
use crate::error::{Error, Result};

/// What is run for each task.
const JOB: &str = include_str!("job.sh");

/// At which of its tasks the victim hangs: not the first, so that it was seen to work before.
const HANG_AT: u32 = 2;

/// The processes of one tour.
pub struct Fleet {
    repository: PathBuf,
    program: PathBuf,
    lease: String,
    workers: Vec<Child>,
}

/// What the hung worker held.
#[derive(Debug, Clone)]
pub struct Hung {
    /// The task's id.
    pub task: String,
    /// Its claim.
    pub claim: String,
    /// The command that it ran.
    pub process: Pid,
}

impl Fleet {
    /// A fleet without workers yet.
    pub fn new(repository: &Path, lease_ms: u64) -> Result<Fleet> {
        let program = std::env::current_exe().map_err(Error::io("finding this program"))?;
        Ok(Fleet { repository: repository.to_owned(), program, lease: format!("{lease_ms}ms"), workers: Vec::new() })
    }

    /// The worker that hangs.
    pub fn victim(&self) -> &'static str {
        "w1"
    }

    /// A command in the repository, as an agent.
    fn command(&self, program: &Path, agent: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.repository).env("PM_AGENT_ID", agent).stdin(Stdio::null());
        command
    }

    /// Runs one pm command and returns what it printed.
    ///
    /// # Errors
    /// `Tour` where it fails.
    pub fn pm(&self, agent: &str, args: &[&str]) -> Result<String> {
        let failed = |why: String| Error::Tour(format!("pm {} failed: {why}", args.join(" ")));
        let output =
            self.command(&self.program, agent).args(args).output().map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// Starts the workers.
    pub fn start(&mut self, agents: usize) -> Result<()> {
        for number in 1..=agents {
            let hang_at = if number == 1 { HANG_AT } else { 0 };
            let worker = self
                .command(&self.program, &format!("w{number}"))
                .args(["work", "--forever", "--quiet", "--ttl", &self.lease, "--", "sh", "-c", JOB])
                .env("HUNG", note_path(&self.repository, "demo-hung"))
                .env("COUNT", note_path(&self.repository, &format!("demo-count-{number}")))
                .env("HANG_AT", hang_at.to_string())
                .stdout(Stdio::null())
                .spawn()
                .map_err(Error::io("starting a worker"))?;
            self.workers.push(worker);
        }
        Ok(())
    }

    /// Waits until the victim hangs in mid-claim.
    pub fn wait_for_hang(&self, patience: Duration) -> Result<Hung> {
        let started = Instant::now();
        while started.elapsed() < patience {
            let note = std::fs::read_to_string(note_path(&self.repository, "demo-hung")).unwrap_or_default();
            if let [task, claim, process] = note.split_whitespace().collect::<Vec<_>>()[..]
                && let Some(process) = process.parse().ok().and_then(Pid::from_raw)
            {
                return Ok(Hung { task: task.to_owned(), claim: claim.to_owned(), process });
            }
            std::thread::sleep(PERIOD);
        }
        Err(Error::Tour("the worker that was to be killed never got a second task".to_owned()))
    }

    /// Kills the victim with SIGKILL. What it started has to end without its help.
    pub fn kill_victim(&mut self) -> Result<()> {
        let victim = &mut self.workers[0];
        victim.kill().map_err(Error::io("killing a worker"))?;
        let status = victim.wait().map_err(Error::io("waiting for the killed worker"))?;
        if status.signal().is_some() {
            Ok(())
        } else {
            Err(Error::Tour("the victim ended before it was killed".to_owned()))
        }
    }

    /// Tells the workers to end, and waits until they have.
    pub fn stop(&mut self, patience: Duration) -> Result<()> {
        let started = Instant::now();
        for worker in self.workers.iter_mut().skip(1) {
            rustix::process::kill_process(Pid::from_child(worker), Signal::TERM)
                .map_err(|error| Error::io("telling a worker to stop")(error.into()))?;
        }
        for worker in self.workers.iter_mut().skip(1) {
            while worker.try_wait().map_err(Error::io("waiting for a worker"))?.is_none() {
                if started.elapsed() > patience {
                    return Err(Error::Tour("a worker did not end".to_owned()));
                }
                std::thread::sleep(PERIOD);
            }
        }
        Ok(())
    }

    /// Waits until the command that the victim ran is gone: its keeper ends it.
    pub fn wait_for_end_of(&self, hung: &Hung, patience: Duration) -> Result<()> {
        let started = Instant::now();
        while rustix::process::test_kill_process(hung.process).is_ok() {
            if started.elapsed() > patience {
                return Err(Error::Tour("the killed worker's command runs on".to_owned()));
            }
            std::thread::sleep(PERIOD);
        }
        Ok(())
    }

    /// What the dead worker's claim is told when it comes back and wants to finish.
    pub fn zombie(&self, hung: &Hung) -> Result<i32> {
        let status = self
            .command(&self.program, self.victim())
            .args(["finished", "--task", &hung.task, "--claim", &hung.claim])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(Error::io("running the zombie's command"))?;
        status.code().ok_or_else(|| Error::Tour("the zombie's command was killed".to_owned()))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Whatever ended the tour, no process of it stays behind: the keepers end what runs.
        for worker in &mut self.workers {
            if matches!(worker.try_wait(), Ok(None)) {
                let _ = worker.kill();
                let _ = worker.wait();
            }
        }
    }
}
