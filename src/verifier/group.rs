//! All processes of one command: it leads a process group of its own, and is ended with everything that is in it.
//!
//! What must never happen here: a process of the command is left behind in its group; a signal reaches a stranger. (The
//! group is named by its leader, whose id nobody else can have until it was waited for. So that comes last, and then
//! nothing is signalled any more. A process that left the group is signalled by a handle, not by its id.)

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group};

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
    strays: Vec<Stray>,
}

/// A process that the command started and that left its group, as `timeout` does.
#[derive(Debug)]
struct Stray {
    process: Process,
    handle: OwnedFd,
}

/// A process, as `/proc` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    /// When it was started: with its id this names it for ever.
    begun: u64,
    is_zombie: bool,
}

impl Process {
    fn is_same(&self, other: &Process) -> bool {
        (self.pid, self.begun) == (other.pid, other.begun)
    }
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
        Ok((Group { child, leader, exit: None, is_reaped: false, strays: Vec::new() }, input))
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
        let living = self.living();
        for process in living.iter().filter(|process| process.group != self.leader.as_raw_pid()) {
            if !self.strays.iter().any(|stray| stray.process.is_same(process)) {
                self.strays.extend(handles::of(process).map(|handle| Stray { process: *process, handle }));
            }
        }
        Ok(has_ended && living.is_empty())
    }

    /// Signals the command's group, and what is known to have left it.
    pub fn signal(&self, signal: Signal) {
        if self.is_reaped {
            return;
        }
        let _group_may_be_empty = kill_process_group(self.leader, signal);
        for stray in &self.strays {
            handles::signal(&stray.handle, signal);
        }
    }

    /// Takes in the command itself, which is killed with its group before.
    pub fn reap(&mut self) {
        let started = Instant::now();
        self.signal(Signal::KILL);
        while !self.is_reaped && started.elapsed() < GONE_MAX {
            match self.exit() {
                Ok(Some(_)) => self.is_reaped = self.child.wait().is_ok(),
                Ok(None) => std::thread::sleep(LOOK),
                Err(_) => return,
            }
        }
    }

    /// The processes of the command that run: all of its group, what these started, and strays.
    fn living(&self) -> Vec<Process> {
        let Some(all) = processes() else { return Vec::new() };
        let leader = self.leader.as_raw_pid();
        let is_stray = |process: &Process| self.strays.iter().any(|stray| stray.process.is_same(process));
        let (mut family, mut others): (Vec<Process>, Vec<Process>) =
            all.into_iter().partition(|process| process.group == leader || is_stray(process));
        // Each round finds the children of the last one's.
        loop {
            let is_child = |process: &Process| family.iter().any(|parent| parent.pid == process.parent);
            let (found, rest): (Vec<Process>, Vec<Process>) = others.into_iter().partition(is_child);
            if found.is_empty() {
                break;
            }
            family.extend(found);
            others = rest;
        }
        family.retain(|process| !process.is_zombie);
        family
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

/// All processes; `None` where the system does not tell.
fn processes() -> Option<Vec<Process>> {
    // The numbers of another process id namespace name other processes here.
    let own = rustix::process::getpid().as_raw_pid().to_string();
    fs::read_link("/proc/self").ok().filter(|name| name.as_os_str() == own.as_str())?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    Some(processes.filter_map(|entry| process(entry.file_name().to_str()?.parse().ok()?)).collect())
}

/// One process.
fn process(pid: i32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, also parentheses.
    let stat = String::from_utf8_lossy(&stat);
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse().ok();
    Some(Process {
        pid,
        parent: number(1)?,
        group: number(2)?,
        begun: fields.get(19)?.parse().ok()?,
        is_zombie: matches!(*fields.first()?, "Z" | "X"),
    })
}

/// Handles of processes, which stay theirs when their ids become others'.
#[cfg(target_os = "linux")]
mod handles {
    use std::os::fd::OwnedFd;

    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    use super::{Process, process};

    /// The handle of this very process; `None` where it is gone.
    pub fn of(wanted: &Process) -> Option<OwnedFd> {
        let handle = pidfd_open(Pid::from_raw(wanted.pid)?, PidfdFlags::empty()).ok()?;
        process(wanted.pid).filter(|found| found.is_same(wanted)).map(|_| handle)
    }

    /// Signals it, if it is still there.
    pub fn signal(handle: &OwnedFd, signal: Signal) {
        let _may_have_ended = pidfd_send_signal(handle, signal);
    }
}

/// Elsewhere there are none, and no list of processes to find any.
#[cfg(not(target_os = "linux"))]
mod handles {
    use std::os::fd::OwnedFd;

    use rustix::process::Signal;

    use super::Process;

    pub fn of(_wanted: &Process) -> Option<OwnedFd> {
        None
    }

    pub fn signal(_handle: &OwnedFd, _signal: Signal) {}
}
