//! The processes of one command, as `/proc` tells them: its process group, what these started, and what left the group.
//!
//! What must never happen here: a signal reaches a stranger. (The group is signalled only while whoever asks knows that it
//! is the command's. What left it is signalled by handles.)

use std::fs;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, kill_process_group};

/// What is known of a command's processes.
#[derive(Debug)]
pub struct Kin {
    group: Pid,
    /// The process in the group that guards it: it is no part of the command.
    guard: Option<Pid>,
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

impl Kin {
    /// Those of a group.
    pub fn of(group: Pid, guard: Option<Pid>) -> Kin {
        Kin { group, guard, strays: Vec::new() }
    }

    /// From now on this process of the group is no part of the command.
    pub fn set_guard(&mut self, guard: Pid) {
        self.guard = Some(guard);
    }

    /// Whether none of them is known to run; what was found to run is known from now on. `None` where the system does not
    /// list its processes.
    pub fn are_gone(&mut self) -> Option<bool> {
        let living = self.living(processes()?);
        for process in living.iter().filter(|process| process.group != self.group.as_raw_pid()) {
            if !self.strays.iter().any(|stray| stray.process.is_same(process)) {
                self.strays.extend(handles::of(process).map(|handle| Stray { process: *process, handle }));
            }
        }
        Some(living.is_empty())
    }

    /// Signals what is known to have left the group, and the group, with its guard. Only while the group is the command's.
    pub fn signal(&self, signal: Signal) {
        for stray in &self.strays {
            handles::signal(&stray.handle, signal);
        }
        let _group_may_be_empty = kill_process_group(self.group, signal);
    }

    /// Those that run: all of the group, what these started, and strays.
    fn living(&self, all: Vec<Process>) -> Vec<Process> {
        let group = self.group.as_raw_pid();
        let is_stray = |process: &Process| self.strays.iter().any(|stray| stray.process.is_same(process));
        let (mut family, mut others): (Vec<Process>, Vec<Process>) =
            all.into_iter().partition(|process| process.group == group || is_stray(process));
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
        let guard = self.guard.map(Pid::as_raw_pid);
        family.retain(|process| !process.is_zombie && Some(process.pid) != guard);
        family
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
