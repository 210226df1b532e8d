//! All processes of one command: it leads a process group of its own, and is ended with everything that is in it.
//!
//! What must never happen here: a process of the command is left behind in its group; a signal reaches a stranger. (The
//! group is named by its leader, whose id nobody else can have until it was waited for. So that comes last, and then
//! nothing is signalled any more. What left the group: see `kin`.)

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::guard::Guard;
use super::kin::Kin;

/// How long a killed process may take to be gone. Only a kernel that hangs keeps it so long.
pub const GONE_MAX: Duration = Duration::from_secs(3);

/// How often a killed process is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// The processes of a running command.
#[derive(Debug)]
pub struct Group {
    child: Child,
    leader: Pid,
    /// How the leader ended, as an exit code.
    exit: Option<i32>,
    /// The leader was waited for: its id may be another's.
    is_reaped: bool,
    kin: Kin,
    guard: Option<Guard>,
}

impl Group {
    /// Starts a command as the leader of a new group. What this process holds of its pipes is closed with `command`.
    ///
    /// # Errors
    /// Why it cannot be started.
    pub fn start(mut command: Command) -> io::Result<(Group, Option<ChildStdin>)> {
        // A signal to the terminal's processes is for pm, which decides what becomes of its commands.
        let mut child = command.process_group(0).spawn()?;
        let input = child.stdin.take();
        let leader = Pid::from_child(&child);
        let kin = Kin::of(leader, None);
        Ok((Group { child, leader, exit: None, is_reaped: false, kin, guard: None }, input))
    }

    /// Has the command end with this process, however that ends: `program` is pm, which is started as the guard.
    ///
    /// # Errors
    /// Why that cannot be started.
    pub fn guard_with(&mut self, program: &Path) -> io::Result<()> {
        let guard = Guard::start(program, self.leader)?;
        self.kin.set_guard(guard.pid());
        self.guard = Some(guard);
        Ok(())
    }

    /// How the command itself ended: its exit code, or 128 and the signal that killed it. `None` while it runs.
    ///
    /// # Errors
    /// That somebody else was told, so that nobody knows.
    pub fn exit(&mut self) -> io::Result<Option<i32>> {
        if self.exit.is_none() {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let status = match rustix::process::waitid(WaitId::Pid(self.leader), options) {
                Ok(status) => status,
                Err(rustix::io::Errno::INTR) => None,
                Err(error) => {
                    self.is_reaped = error == rustix::io::Errno::CHILD;
                    return Err(error.into());
                }
            };
            self.exit = status.map(|status| match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => code,
                (None, signal) => 128 + signal.unwrap_or(Signal::KILL.as_raw()),
            });
        }
        Ok(self.exit)
    }

    /// Whether nothing of the command is known to run; what was found to run is known from now on. Where the system
    /// does not list its processes, that is so as soon as the command itself has ended.
    ///
    /// # Errors
    /// As [`Group::exit`].
    pub fn is_over(&mut self) -> io::Result<bool> {
        let has_ended = self.exit()?.is_some();
        // Asked in any case: it looks for what left the group.
        let are_gone = self.kin.are_gone().unwrap_or(true);
        Ok(has_ended && are_gone)
    }

    /// Signals the command's group, and what is known to have left it.
    pub fn signal(&self, signal: Signal) {
        if self.is_reaped {
            return;
        }
        self.kin.signal(signal);
    }

    /// Takes in the command itself and its guard, which are killed with their group before.
    pub fn reap(&mut self) {
        let started = Instant::now();
        self.signal(Signal::KILL);
        while !self.is_reaped && started.elapsed() < GONE_MAX {
            match self.exit() {
                // The leader last: so long the group is the command's.
                Ok(Some(_)) if self.guard.as_mut().is_none_or(Guard::has_ended) => {
                    self.is_reaped = self.child.wait().is_ok();
                }
                Ok(Some(_)) => std::thread::sleep(LOOK),
                Ok(None) => std::thread::sleep(LOOK),
                Err(_) => return,
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whatever went wrong, the command must not run on.
        if !self.is_reaped {
            let _for_its_strays = self.is_over();
            self.reap();
        }
    }
}
