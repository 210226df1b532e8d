//! The tour's processes: workers that are shell loops, and single commands.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{PERIOD, note_path};
use crate::error::{Error, Result};

/// What a worker does.
const WORKER: &str = include_str!("worker.sh");

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

    /// Starts the workers, each in a process group of its own.
    pub fn start(&mut self, agents: usize) -> Result<()> {
        for number in 1..=agents {
            let hang_at = if number == 1 { HANG_AT } else { 0 };
            let worker = self
                .command(Path::new("sh"), &format!("w{number}"))
                .args(["-c", WORKER])
                .env("PM", &self.program)
                .env("LEASE", &self.lease)
                .env("STOP", note_path(&self.repository, "demo-stop"))
                .env("HUNG", note_path(&self.repository, "demo-hung"))
                .env("HANG_AT", hang_at.to_string())
                .stdout(Stdio::null())
                .process_group(0)
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
            if let [task, claim] = note.split_whitespace().collect::<Vec<_>>()[..] {
                return Ok(Hung { task: task.to_owned(), claim: claim.to_owned() });
            }
            std::thread::sleep(PERIOD);
        }
        Err(Error::Tour("the worker that was to be killed never got a second task".to_owned()))
    }

    /// Kills the victim and all that it started, with SIGKILL.
    pub fn kill_victim(&mut self) -> Result<()> {
        kill(&mut self.workers[0])?;
        let status = self.workers[0].wait().map_err(Error::io("waiting for the killed worker"))?;
        if status.signal().is_some() {
            Ok(())
        } else {
            Err(Error::Tour("the victim ended before it was killed".to_owned()))
        }
    }

    /// Lets the workers end, and waits until they have.
    pub fn stop(&mut self, patience: Duration) -> Result<()> {
        std::fs::write(note_path(&self.repository, "demo-stop"), b"")
            .map_err(Error::io("telling the workers to stop"))?;
        let started = Instant::now();
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
        // Whatever ended the tour, no process of it stays behind.
        for worker in &mut self.workers {
            if matches!(worker.try_wait(), Ok(None)) {
                let _ = kill(worker);
                let _ = worker.wait();
            }
        }
    }
}

/// Kills a worker's whole process group.
fn kill(worker: &mut Child) -> Result<()> {
    let pid = i32::try_from(worker.id()).ok().and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| Error::Tour("a worker has no process id".to_owned()))?;
    rustix::process::kill_process_group(pid, rustix::process::Signal::KILL)
        .map_err(|error| Error::Io { what: "killing a worker".to_owned(), source: error.into() })
}
