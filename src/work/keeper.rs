//! The keeper: a process between the runner and one command, which outlives neither the command nor the lease.
//!
//! The runner cannot be trusted with the end of its commands, since it may be killed, or stopped for longer than the
//! lease. So each command has a keeper, a process of its own, that ends it when the runner says so, when the runner is
//! gone, and when the claim was not renewed in time, which it counts itself. It is in no group that anybody signals, and
//! the subreaper of whatever the command starts: a process whose parent ends becomes the keeper's child, also one in a
//! session of its own, so that none can be lost sight of.
//!
//! What must never happen here: the keeper ends while a process of the command lives; a signal reaches a process that
//! is no descendant. (A process id is only signalled while its process cannot have been reaped: as the group of a
//! leader that was not waited for yet, or as a child of the keeper, which nobody else can wait for.)

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions};

use super::children;
use super::line::{Ended, How, Line, News, Order};
use crate::clock::since_boot_ms;

/// How often what has to end is looked at, in milliseconds.
const LOOK_MS: u64 = 20;

/// The longest wait, in milliseconds. The system measures waits without the time that it was suspended, which counts for
/// leases: so nobody sleeps through the end of one.
pub const WAIT_MAX_MS: u64 = 1_000;

/// How long processes that a command left behind may take to end by themselves, at most; in milliseconds.
const LEFT_BEHIND_MS: u64 = 1_000;

/// How long to wait for killed processes to be gone, in milliseconds. Only a kernel that hangs keeps them so long.
const GONE_MAX_MS: u64 = 3_000;

/// The longest reason for which a command cannot be started, in bytes.
const REASON_MAX: u64 = 1_000;

/// This very program, also when its file was replaced meanwhile.
///
/// # Errors
/// What the system says.
pub fn this_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

/// Makes this process the one that orphans below it become children of. Elsewhere than on Linux they are lost.
///
/// # Errors
/// What the system says.
pub fn adopt_orphans() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// The part of the process that is to become the command: the leader of a session, and so of a group, of its own, which
/// dies with its parent, the keeper. Returns only if it could not become the command; the reason has then been written
/// to standard input, which is a pipe to the keeper.
///
/// # Errors
/// That the reason could not be told.
pub fn become_command(command: &[OsString], keeper: i32) -> io::Result<()> {
    let mut reason = File::from(rustix::stdio::stdin().try_clone_to_owned()?);
    let error = match detach(keeper) {
        Ok(()) => command.split_first().map(|(program, args)| {
            let error = Command::new(program).args(args).exec();
            format!("{}: {error}", program.display())
        }),
        Err(error) => Some(error.to_string()),
    };
    write!(reason, "{}", error.unwrap_or_default())
}

/// Prepares this process for becoming the command of a keeper.
fn detach(keeper: i32) -> io::Result<()> {
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    // A command in the background of a terminal would be stopped when it asks for anything there, and wait for ever.
    rustix::process::setsid()?;
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The keeper may have died before its death could be a signal.
    if rustix::process::getppid().map(Pid::as_raw_pid) != Some(keeper) {
        return Err(io::Error::other("its keeper is gone"));
    }
    Ok(())
}

/// A running keeper.
struct Keeper {
    line: Line,
    /// Readable when a child has ended.
    children: UnixStream,
    /// The command's process group, named by its leader.
    group: Pid,
    /// Says why the command could not be started.
    reason: PipeReader,
    /// How the command ended.
    how: Option<How>,
    /// Until when it may run, in milliseconds since boot.
    until_ms: u64,
    grace_ms: u64,
    /// When what still runs is killed.
    kill_at_ms: Option<u64>,
    /// When waiting for what was killed is given up.
    give_up_at_ms: Option<u64>,
    lapsed: bool,
    /// When children other than the command are asked whether they have ended, since one has.
    reap_at_ms: Option<u64>,
}

/// Runs a command until it ends or has to. Standard input is the [`Line`] to the runner, which is told of everything.
///
/// # Errors
/// That there is no line.
pub fn keep(command: &[OsString], until_ms: u64, grace_ms: u64) -> io::Result<()> {
    let mut line = Line::new(UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?))?;
    if since_boot_ms() >= until_ms {
        // It took too long to come here.
        let how = How::NotStarted("the lease is over".to_owned());
        line.send(&News::Ended(Ended { how, lapsed: true, left: 0 }));
        return Ok(());
    }
    let ended = match start(command) {
        Ok((group, children, reason)) => {
            line.send(&News::Started(group.as_raw_pid()));
            let (how, kill_at_ms, give_up_at_ms) = (None, None, None);
            let keeper = Keeper {
                line,
                children,
                group,
                reason,
                how,
                until_ms,
                grace_ms,
                kill_at_ms,
                give_up_at_ms,
                lapsed: false,
                reap_at_ms: None,
            };
            return keeper.watch();
        }
        Err(error) => Ended { how: How::NotStarted(error.to_string()), lapsed: false, left: 0 },
    };
    line.send(&News::Ended(ended));
    Ok(())
}

/// Starts the process that becomes the command. Returns its id, what is readable when a child has ended, and what says
/// why it could not become the command.
fn start(command: &[OsString]) -> io::Result<(Pid, UnixStream, PipeReader)> {
    adopt_orphans()?;
    let (children, ended) = UnixStream::pair()?;
    children.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal_hook::consts::SIGCHLD, ended)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let (reason, tell) = io::pipe()?;
    let mut child = Command::new(this_program()?);
    child.arg0("pm").arg("work-child").arg(format!("--keeper={}", std::process::id())).arg("--").args(command);
    let child = child.stdin(Stdio::from(OwnedFd::from(tell))).spawn()?;
    // The output ends when nobody of the command's can write to it any more.
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok((Pid::from_child(&child), children, reason))
}

impl Keeper {
    /// Returns when everything has ended.
    fn watch(mut self) -> io::Result<()> {
        let left = loop {
            if self.reap() {
                break 0;
            }
            let now_ms = since_boot_ms();
            if now_ms >= self.until_ms && !self.lapsed && self.how.is_none() {
                self.lapsed = true;
                // The grace counts from when the claim lapsed: whoever was stopped for long has had it.
                self.end(self.until_ms + self.grace_ms);
            }
            if self.kill_at_ms.is_some_and(|at| now_ms >= at) {
                self.signal(Signal::KILL);
                let give_up_at_ms = *self.give_up_at_ms.get_or_insert(now_ms + GONE_MAX_MS);
                if now_ms >= give_up_at_ms {
                    break children::living().len().max(1);
                }
            }
            let wait_ms = match self.kill_at_ms {
                Some(_) => LOOK_MS,
                None => self.until_ms.saturating_sub(now_ms).min(WAIT_MAX_MS),
            };
            if self.wait(wait_ms).is_err() {
                // Nothing can be waited for, and so it is looked at again and again.
                std::thread::sleep(Duration::from_millis(LOOK_MS));
            }
        };
        let how = self.how.unwrap_or(How::Signal(Signal::KILL.as_raw()));
        self.line.send(&News::Ended(Ended { how, lapsed: self.lapsed, left }));
        Ok(())
    }

    /// Asks everything to end, and notes when it will be killed.
    fn end(&mut self, kill_at_ms: u64) {
        let kill_at_ms = self.kill_at_ms.map_or(kill_at_ms, |earlier| earlier.min(kill_at_ms));
        self.kill_at_ms = Some(kill_at_ms);
        self.signal(Signal::TERM);
        // One that was stopped could not hear it.
        self.signal(Signal::CONT);
    }

    /// Waits for orders, for the end of a child, or for so long.
    fn wait(&mut self, time_ms: u64) -> io::Result<()> {
        let time = rustix::time::Timespec::try_from(Duration::from_millis(time_ms)).map_err(io::Error::other)?;
        let line_is_open = !self.line.is_closed();
        let (has_orders, has_ended) = {
            let mut polled = vec![PollFd::new(&self.children, PollFlags::IN)];
            if line_is_open {
                polled.push(PollFd::new(&self.line, PollFlags::IN));
            }
            match rustix::event::poll(&mut polled, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            (polled.get(1).is_some_and(|fd| !fd.revents().is_empty()), !polled[0].revents().is_empty())
        };
        if has_ended {
            let mut bytes = [0; 64];
            while matches!((&self.children).read(&mut bytes), Ok(read) if read > 0) {}
            // Not at once: mostly it is the command, and the looking takes a while.
            self.reap_at_ms.get_or_insert(since_boot_ms() + WAIT_MAX_MS);
        }
        if has_orders {
            self.obey();
        }
        Ok(())
    }

    fn obey(&mut self) {
        let now_ms = since_boot_ms();
        let Ok(orders) = self.line.receive::<Order>() else {
            // What it says is not understood: it is as good as gone.
            self.line.close();
            return self.end(now_ms + self.grace_ms);
        };
        for order in orders {
            match order {
                Order::Until(until_ms) => self.until_ms = self.until_ms.max(until_ms),
                Order::End => self.end(now_ms + self.grace_ms),
                Order::Kill => self.end(now_ms),
            }
        }
        if self.line.is_closed() {
            self.end(now_ms + self.grace_ms);
        }
    }

    /// Takes in the children that have ended. Whether none are left.
    fn reap(&mut self) -> bool {
        if self.how.is_none() {
            // Looked at before it is waited for: so long nobody else can have its id, which is the group's.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let Ok(Some(status)) = rustix::process::waitid(WaitId::Pid(self.group), options) else {
                if self.reap_at_ms.is_some_and(|at| since_boot_ms() >= at) {
                    self.reap_at_ms = None;
                    children::reap_all_but(self.group);
                }
                return false;
            };
            let mut reason = Vec::new();
            // Its other end closed with the command's beginning, or its death.
            let _what_came = self.reason.by_ref().take(REASON_MAX).read_to_end(&mut reason);
            self.how = Some(match (status.exit_status(), status.terminating_signal()) {
                _ if !reason.is_empty() => How::NotStarted(String::from_utf8_lossy(&reason).into_owned()),
                (Some(code), _) => How::Exit(code),
                (None, signal) => How::Signal(signal.unwrap_or(Signal::KILL.as_raw())),
            });
            let leave = if cfg!(target_os = "linux") { Signal::TERM } else { Signal::KILL };
            let _group_may_be_empty = rustix::process::kill_process_group(self.group, leave);
            self.line.send(&News::LeaderGone);
            let _there_it_is = rustix::process::waitpid(Some(self.group), WaitOptions::NOHANG);
        }
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => {
                    if self.kill_at_ms.is_none() {
                        self.end(since_boot_ms() + self.grace_ms.min(LEFT_BEHIND_MS));
                    }
                    return false;
                }
                // There is no child; no other error can be.
                Err(_) => return true,
            }
        }
    }

    /// Signals the command's group, and every child that the keeper was left with.
    fn signal(&self, signal: Signal) {
        if self.how.is_none() && rustix::process::kill_process_group(self.group, signal).is_err() {
            // It has not begun its session yet.
            let _may_have_ended = rustix::process::kill_process(self.group, signal);
        }
        for pid in children::living().into_iter().filter(|pid| self.how.is_some() || *pid != self.group) {
            let _may_have_ended = rustix::process::kill_process(pid, signal);
        }
    }
}
