//! Starting and stopping a poller from outside.
//!
//! What must never happen here: a process is signalled that the held lock does not vouch for; a start is called a
//! success before the lock is held.

use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::Pid;

use super::{PollError, StateRoot, run_lock};

/// The first descriptor that is not standard input, output or error.
const FIRST_OTHER_FD: i32 = 3;

/// How long a poller may take from its start to the lock.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// A log that is longer than this, in bytes, is put aside as `poll.log.1` when a poller starts.
const LOG_MAX: u64 = 1 << 20;

/// Starts `program` as a poller in the background and waits until it holds the lock. Returns its process id.
///
/// The program's stderr is a pipe to us. It closes when the program has the lock and turns to its log
/// ([`turn_to_log`]), or when it ends; what it said until then is the reason.
///
/// # Errors
/// `Held` where one runs; `NotStarted` with what the program said.
pub fn start(root: &StateRoot, mut program: Command) -> Result<u32, PollError> {
    let not_started = |reason: &str| PollError::NotStarted { reason: format!("the poller did not start: {reason}") };
    let path = root.run_lock();
    // What else is open here, such as a lock of the calling script, is no business of a process that stays for months.
    close_fds::set_fds_cloexec(FIRST_OTHER_FD, &[]);
    let mut child = program
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| not_started(&error.to_string()))?;
    let said = read_until_closed(&mut child, START_PATIENCE).map_err(|error| not_started(&error.to_string()));
    let pid = child.id();
    match (said, run_lock::holder(&path)) {
        (Ok(_), Ok(Some(holder))) if holder == pid => Ok(pid),
        (said, _) => {
            let _already_gone = child.kill();
            let _ended = child.wait();
            if run_lock::held(&path).unwrap_or(false) {
                return Err(PollError::Held { pid: run_lock::noted_holder(&path).ok(), path });
            }
            match said?.trim() {
                "" => Err(not_started("it ended without a word")),
                said => Err(PollError::NotStarted { reason: said.trim_start_matches("error: ").to_owned() }),
            }
        }
    }
}

/// What the child says on stderr until it closes that.
fn read_until_closed(child: &mut Child, patience: Duration) -> io::Result<String> {
    let mut stderr = child.stderr.take().ok_or_else(|| io::Error::other("no pipe"))?;
    let started = Instant::now();
    let mut said = Vec::new();
    let mut part = [0; 4096];
    loop {
        if !wait_for(&stderr, patience.saturating_sub(started.elapsed()))? {
            return Err(io::Error::other("it did not take the lock in time"));
        }
        match stderr.read(&mut part)? {
            0 => return Ok(String::from_utf8_lossy(&said).into_owned()),
            length => said.extend_from_slice(&part[..length]),
        }
    }
}

/// Leaves the session of whoever started this process: what ends a terminal then does not end it.
///
/// # Errors
/// What the system says.
pub fn leave_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Turns stdout and stderr to the log, which tells the starting process that the lock is held.
///
/// # Errors
/// What the system says.
pub fn turn_to_log(root: &StateRoot) -> io::Result<()> {
    let path = root.log();
    if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_MAX) {
        fs::rename(&path, path.with_extension("log.1"))?;
    }
    let log = OpenOptions::new().append(true).create(true).open(path)?;
    rustix::stdio::dup2_stdout(&log)?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}

/// Tells the poller to stop, and waits until its process is gone and the lock is free. Returns its process id; `None`
/// where none runs.
///
/// # Errors
/// `Unknown` where the process in the lock file is not the one that holds the lock: nobody is then signalled.
/// `StillRunning` when `patience` has run out.
pub fn stop(root: &StateRoot, patience: Duration) -> Result<Option<u32>, PollError> {
    let path = root.run_lock();
    let unasked = || {
        let path = path.clone();
        move |source| PollError::Unasked { path, source }
    };
    let unknown = |why: String| PollError::Unknown { path: path.clone(), why };
    if !run_lock::held(&path).map_err(unasked())? {
        return Ok(None);
    }
    let number = run_lock::noted_holder(&path).map_err(&unknown)?;
    let Some(pid) = i32::try_from(number).ok().and_then(Pid::from_raw) else {
        return Err(unknown(format!("{number} is no process id")));
    };
    let handle = Handle::open(pid).map_err(|error| {
        unknown(format!("process {number} cannot be reached from here ({error}): it may live in another container"))
    })?;
    if let Some(why) = run_lock::why_not_holder(number, &path) {
        return Err(unknown(why));
    }
    // Asked again, now that the handle cannot come to mean another process any more.
    if run_lock::holder(&path).map_err(unasked())? != Some(number) {
        return Ok(None);
    }
    handle.terminate().map_err(|error| unknown(format!("process {number} cannot be told to stop: {error}")))?;
    let still_running =
        PollError::StillRunning { pid: number, waited_ms: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX) };
    let started = Instant::now();
    if !handle.wait(patience).map_err(unasked())? {
        return Err(still_running);
    }
    match run_lock::holder(&path).map_err(unasked())? {
        // Another one was started meanwhile: the one that was meant is gone.
        Some(other) if other != number => Ok(Some(number)),
        _ => {
            let left = patience.saturating_sub(started.elapsed());
            let is_free = run_lock::wait_until_free(&path, left).map_err(unasked())?;
            if is_free { Ok(Some(number)) } else { Err(still_running) }
        }
    }
}

/// A process that cannot be mistaken for a later one with the same id.
#[cfg(target_os = "linux")]
struct Handle(rustix::fd::OwnedFd);

#[cfg(target_os = "linux")]
impl Handle {
    fn open(pid: Pid) -> io::Result<Handle> {
        Ok(Handle(rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?))
    }

    fn terminate(&self) -> io::Result<()> {
        Ok(rustix::process::pidfd_send_signal(&self.0, rustix::process::Signal::TERM)?)
    }

    /// Waits until it is gone; whether that came.
    fn wait(&self, patience: Duration) -> io::Result<bool> {
        wait_for(&self.0, patience)
    }
}

/// A process by its id.
#[cfg(not(target_os = "linux"))]
struct Handle(Pid);

#[cfg(not(target_os = "linux"))]
impl Handle {
    fn open(pid: Pid) -> io::Result<Handle> {
        rustix::process::test_kill_process(pid)?;
        Ok(Handle(pid))
    }

    fn terminate(&self) -> io::Result<()> {
        Ok(rustix::process::kill_process(self.0, rustix::process::Signal::TERM)?)
    }

    /// Waits until it is gone; whether that came.
    fn wait(&self, patience: Duration) -> io::Result<bool> {
        let started = Instant::now();
        while rustix::process::test_kill_process(self.0).is_ok() {
            if started.elapsed() >= patience {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }
}

/// Waits until a file can be read or has reached its end; whether that came within `patience`.
pub(super) fn wait_for(file: &impl AsFd, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = rustix::time::Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
