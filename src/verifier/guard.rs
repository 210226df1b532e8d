//! The guard of a command: a process of pm's own that ends the command when whoever asked for it is gone, killed perhaps.
//!
//! Its standard input is a pipe to that process, to which nothing is ever written: its end says that nobody is there any
//! more. The guard is in the command's process group. So the group is the command's as long as the guard lives, whoever
//! takes in the command meanwhile; and the end of the group is the end of the guard.
//!
//! What must never happen here: the guard lives on when the command has ended, and is seen to have; it ends a command whose
//! process is there.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgrp, getpid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::GRACE;
use super::kin::Kin;

/// How often processes that have to end are looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A running guard, as whoever asked for the command has it.
#[derive(Debug)]
pub struct Guard {
    /// With the pipe, which ends with this process.
    process: Child,
}

impl Guard {
    /// Starts one in the group that this process leads, which must not have been waited for.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(program: &Path, leader: Pid) -> io::Result<Guard> {
        let mut command = Command::new(program);
        command.arg0("pm").arg("verifier-guard").arg(format!("--group={}", leader.as_raw_pid()));
        command.process_group(leader.as_raw_pid()).current_dir("/");
        let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Guard { process })
    }

    /// Which process it is.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Whether it has ended, and was taken in, here or by whoever takes in orphans.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.process.try_wait(), Ok(None))
    }
}

/// What the guard does: waits until whoever started it is gone, asks everything of its group to end, and kills it after a
/// grace of 2 s, and itself with it. `group`: the group that it was started in, which another process leads.
///
/// # Errors
/// That this is another group, such as the one of a shell; that signals cannot be caught.
pub fn keep(group: i32) -> io::Result<()> {
    if getpgrp().as_raw_pid() != group || getpid() == getpgrp() {
        return Err(io::Error::other("it is not in the group of a verifier"));
    }
    // What the command is told, or tells its own group, is not meant for its guard.
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let _nothing_is_said = io::stdin().lock().read_to_end(&mut Vec::new());
    let mut kin = Kin::of(getpgrp(), Some(getpid()));
    let started = Instant::now();
    let mut is_told = false;
    while kin.are_gone() != Some(true) && started.elapsed() < GRACE {
        if !is_told {
            is_told = true;
            kin.signal(Signal::TERM);
            // One that was stopped could not hear it.
            kin.signal(Signal::CONT);
        }
        std::thread::sleep(LOOK);
    }
    kin.signal(Signal::KILL);
    Ok(())
}
