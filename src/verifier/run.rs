//! Running one command of a verifier: its input, its output, and that all of it ends.
//!
//! Everything is done in the calling thread, which waits for the pipes, asks whether to stop, and counts the time. So
//! neither a command that does not read, nor one that never stops printing, nor a process that keeps a pipe open can
//! hold it up.

use std::io::{self, ErrorKind, PipeReader, Read, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use rustix::time::Timespec;

use super::GRACE;
use super::Terms;
use super::group::{GONE_MAX, Group};
use super::printed::Printed;

/// How often `stop` is asked, and the longest wait.
const LOOK: Duration = Duration::from_millis(50);

/// The shortest wait, where nothing wakes it any more: a command that closed its output mostly ends at once.
const LOOK_SHORT: Duration = Duration::from_millis(1);

/// How often processes that have to end are looked at.
const LOOK_ENDING: Duration = Duration::from_millis(20);

/// How long what a command left behind may take to end by itself, before it is told to: mostly it writes a last line.
const LEFT_BEHIND: Duration = Duration::from_millis(500);

/// How long the output is read on when nothing of the command is left: whoever holds it then was handed it.
const OUTPUT_MAX: Duration = Duration::from_millis(500);

/// How much is read at once: what a pipe holds.
const PART: usize = 64 << 10;

/// How a command came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this exit code; by a signal: 128 and its number.
    Exit(i32),
    /// It took too long.
    TimedOut,
    /// It was to stop.
    Stopped,
}

/// A command that has run.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub ended: Ended,
    /// What it wrote to stdout and stderr, in the order in which it was written.
    pub printed: Printed,
    /// For a command with an input, what it wrote to stdout alone; the order of the two in `printed` is then about
    /// right.
    pub answer: Printed,
}

/// Why a command did not run to an end.
#[derive(Debug)]
pub enum NotRun {
    /// It cannot be started.
    NotStarted(io::Error),
    /// The system failed. The command was killed.
    Failed(io::Error),
}

/// Runs a command with this input (else none) until it ends, `stop` says yes, or its time is over. Then nothing of it
/// is left: what is in its process group is asked to end, and killed after a grace of 2 s.
///
/// # Errors
/// That it cannot be started, and what the system says.
pub fn run(
    command: Command,
    input: Option<String>,
    terms: &Terms<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Ran, NotRun> {
    if stop() {
        return Ok(Ran { ended: Ended::Stopped, printed: Printed::default(), answer: Printed::default() });
    }
    let (mut group, mut pipes) = start(command, input)?;
    // Else it is ended as it goes out of scope.
    terms.guard.as_ref().map_or(Ok(()), |program| group.guard_with(program)).map_err(NotRun::Failed)?;
    let ended = watch(&mut group, &mut pipes, terms.timeout, stop).map_err(NotRun::Failed)?;
    end(&mut group, &mut pipes, ended).map_err(NotRun::Failed)?;
    Ok(Ran { ended, printed: pipes.printed, answer: pipes.answer })
}

fn start(mut command: Command, input: Option<String>) -> Result<(Group, Pipes), NotRun> {
    let (reader, printed) = io::pipe().map_err(NotRun::Failed)?;
    let mut outputs = vec![Output { reader, is_answer: false }];
    if input.is_some() {
        // What it answers is apart from what else it says.
        let (reader, answer) = io::pipe().map_err(NotRun::Failed)?;
        outputs.push(Output { reader, is_answer: true });
        command.stdin(Stdio::piped()).stdout(answer).stderr(printed);
    } else {
        // One pipe keeps the order.
        let also_printed = printed.try_clone().map_err(NotRun::Failed)?;
        command.stdin(Stdio::null()).stdout(also_printed).stderr(printed);
    }
    let (group, stdin) = Group::start(command).map_err(NotRun::NotStarted)?;
    let input = stdin.map(|pipe| Input { pipe, text: input.unwrap_or_default().into_bytes(), written: 0 });
    if let Some(input) = &input {
        rustix::io::ioctl_fionbio(&input.pipe, true).map_err(|error| NotRun::Failed(error.into()))?;
    }
    Ok((group, Pipes { outputs, input, printed: Printed::default(), answer: Printed::default() }))
}

/// Waits until the command has ended by itself, or has to be ended.
fn watch(
    group: &mut Group,
    pipes: &mut Pipes,
    timeout: Duration,
    stop: &(dyn Fn() -> bool + Sync),
) -> io::Result<Ended> {
    let started = Instant::now();
    let mut asked = started;
    let mut pause = LOOK_SHORT;
    loop {
        if let Some(exit) = group.exit()? {
            return Ok(Ended::Exit(exit));
        }
        let left = timeout.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Ok(Ended::TimedOut);
        }
        if asked.elapsed() >= LOOK {
            if stop() {
                return Ok(Ended::Stopped);
            }
            asked = Instant::now();
        }
        // Its end closes the output, and so wakes this; where that is closed already, it is looked for.
        let time = if pipes.are_closed() { pause } else { LOOK };
        pause = if pipes.are_closed() { LOOK.min(pause * 2) } else { LOOK_SHORT };
        pipes.exchange(time.min(left))?;
    }
}

/// Ends what is left of the command, and reads what is left of its output.
fn end(group: &mut Group, pipes: &mut Pipes, ended: Ended) -> io::Result<()> {
    // An input that was not taken by now is not missed.
    pipes.input = None;
    let started = Instant::now();
    let tell_at = if matches!(ended, Ended::Exit(_)) { LEFT_BEHIND } else { Duration::ZERO };
    let mut is_told = false;
    let mut is_over = group.is_over()?;
    while !is_over && started.elapsed() < tell_at + GRACE {
        if !is_told && started.elapsed() >= tell_at {
            is_told = true;
            group.signal(Signal::TERM);
            // One that was stopped could not hear it.
            group.signal(Signal::CONT);
        }
        pipes.exchange(LOOK_ENDING)?;
        is_over = group.is_over()?;
    }
    // Whatever is left, also where it cannot be seen.
    group.signal(Signal::KILL);
    let killed = Instant::now();
    while !is_over && killed.elapsed() < GONE_MAX {
        pipes.exchange(LOOK_ENDING)?;
        is_over = group.is_over()?;
        group.signal(Signal::KILL);
    }
    pipes.drain()?;
    group.reap();
    Ok(())
}

/// Where output comes from.
struct Output {
    reader: PipeReader,
    is_answer: bool,
}

/// What is written to a command, as far as it takes it.
struct Input {
    pipe: ChildStdin,
    text: Vec<u8>,
    written: usize,
}

/// The pipes to and from a command.
struct Pipes {
    /// Those that are not at their end.
    outputs: Vec<Output>,
    /// `None` when all is written, or nobody reads any more.
    input: Option<Input>,
    printed: Printed,
    answer: Printed,
}

impl Pipes {
    fn are_closed(&self) -> bool {
        self.outputs.is_empty() && self.input.is_none()
    }

    /// Waits for something to read or to write, at most for so long, and does that. Whether there was anything.
    fn exchange(&mut self, time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        let mut polled: Vec<PollFd<'_>> =
            self.outputs.iter().map(|output| PollFd::new(&output.reader, PollFlags::IN)).collect();
        polled.extend(self.input.iter().map(|input| PollFd::new(&input.pipe, PollFlags::OUT)));
        match rustix::event::poll(&mut polled, Some(&time)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(polled);
        if self.input.is_some() && ready.last() == Some(&true) {
            self.write();
        }
        // From the last one, so that one that is at its end can be taken away.
        for at in (0..self.outputs.len()).rev().filter(|at| ready[*at]) {
            self.read(at)?;
        }
        Ok(ready.contains(&true))
    }

    fn read(&mut self, at: usize) -> io::Result<()> {
        let mut part = [0; PART];
        let output = &mut self.outputs[at];
        match output.reader.read(&mut part) {
            Ok(0) => drop(self.outputs.remove(at)),
            Ok(length) => {
                self.printed.push(&part[..length]);
                if output.is_answer {
                    self.answer.push(&part[..length]);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn write(&mut self) {
        let Some(input) = &mut self.input else { return };
        match input.pipe.write(&input.text[input.written..]) {
            Ok(written) => {
                input.written += written;
                if input.written == input.text.len() {
                    self.input = None;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            // Nobody reads it, which is the command's own affair.
            Err(_) => self.input = None,
        }
    }

    /// Reads what is there.
    fn drain(&mut self) -> io::Result<()> {
        let started = Instant::now();
        while !self.outputs.is_empty() && started.elapsed() < OUTPUT_MAX && self.exchange(Duration::ZERO)? {}
        Ok(())
    }
}
