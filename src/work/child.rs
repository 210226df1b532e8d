//! A command that runs for a task, seen from the runner: its output, how it ends, and that it ends.

use std::ffi::OsString;
use std::io::{self, ErrorKind, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, kill_process_group};

use super::children;
use super::keeper::{WAIT_MAX_MS, this_program};
use super::line::{Ended, Line, News, Order};
use super::renewal::Renewal;
use super::stop::{Stop, Wish};
use super::transcript::Transcript;

/// How long the output may stay open when nothing of the command is left: whoever holds it then was handed it.
const OUTPUT_MAX: Duration = Duration::from_secs(1);

/// How long the processes of a command whose keeper was killed may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(10);

/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(5);

/// The variable that tells the processes of one command from all others.
const MARK: &str = "PM_CLAIM";

/// How much is read at once: what a pipe holds.
const PART: usize = 64 << 10;

/// What is to be run, where, and with which variables.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// The program and its arguments.
    pub command: &'a [OsString],
    /// Where it starts; else where the runner is.
    pub dir: Option<&'a Path>,
    /// What is set in its environment.
    pub set: Vec<(&'static str, OsString)>,
    /// What is taken out of its environment.
    pub unset: &'static [&'static str],
}

impl Call<'_> {
    /// The assignment that names the claim.
    fn mark(&self) -> Vec<u8> {
        let claim = self.set.iter().find(|(name, _)| *name == MARK);
        claim.map(|(name, value)| [name.as_bytes(), b"=", value.as_encoded_bytes()].concat()).unwrap_or_default()
    }
}

/// A command that runs.
#[derive(Debug)]
pub struct Running {
    keeper: Child,
    line: Line,
    /// `None` once it is at its end.
    output: Option<PipeReader>,
    group: Option<Pid>,
    /// What the environment of everything that the command starts holds, and nothing else's.
    mark: Vec<u8>,
}

/// What a wait was ended by.
#[derive(Debug)]
pub enum Woken {
    /// The time is up, or something was printed, or the runner is to stop.
    Go,
    /// Nothing runs any more.
    Over(End),
}

/// How it came that nothing runs any more.
#[derive(Debug)]
pub enum End {
    /// The command has ended, and everything that it started.
    Ended(Ended),
    /// The keeper was killed, and with it the command.
    KeeperKilled,
}

impl Running {
    /// Starts a command below a keeper that lets it run for as long as the claim is renewed.
    ///
    /// # Errors
    /// What the system says. That the command itself cannot be started comes as its end.
    pub fn start(call: &Call<'_>, renewal: &Renewal) -> io::Result<Running> {
        let (ours, keepers) = UnixStream::pair()?;
        let (output, printed) = io::pipe()?;
        let mut keeper = Command::new(this_program()?);
        keeper.arg0("pm").arg("work-child");
        keeper.arg(format!("--until-ms={}", renewal.lapses_ms())).arg(format!("--grace-ms={}", renewal.grace_ms()));
        keeper.arg("--").args(call.command);
        if let Some(dir) = call.dir {
            keeper.current_dir(dir);
        }
        for name in call.unset {
            keeper.env_remove(name);
        }
        keeper.envs(call.set.iter().map(|(name, value)| (name, value)));
        keeper.stdin(Stdio::from(OwnedFd::from(keepers)));
        keeper.stdout(Stdio::from(printed.try_clone()?)).stderr(Stdio::from(printed));
        // A signal to the terminal's processes is for the runner, which decides what becomes of its commands.
        let keeper = keeper.process_group(0).spawn()?;
        Ok(Running { keeper, line: Line::new(ours)?, output: Some(output), group: None, mark: call.mark() })
    }

    /// Lets the command run on.
    pub fn renew(&mut self, renewal: &Renewal) {
        self.line.send(&Order::Until(renewal.lapses_ms()));
    }

    /// Asks the command to end, and kills it when its grace is over.
    pub fn end(&mut self) {
        self.line.send(&Order::End);
    }

    /// Kills the command.
    pub fn kill(&mut self) {
        self.line.send(&Order::Kill);
    }

    /// Kills the keeper, which does not do as it was told: the command dies with it.
    pub fn kill_keeper(&mut self) {
        let _it_may_be_gone = self.keeper.kill();
    }

    /// Waits until something is to be done or the runner is to stop more urgently than was `seen`, at most for so long.
    /// What was printed meanwhile is in `transcript`.
    ///
    /// # Errors
    /// What the system says.
    pub fn wait(&mut self, time: Duration, stop: &Stop, seen: Wish, transcript: &mut Transcript) -> io::Result<Woken> {
        let time = time.min(Duration::from_millis(WAIT_MAX_MS));
        let time = rustix::time::Timespec::try_from(time).map_err(io::Error::other)?;
        let (has_news, has_output) = {
            let mut polled = vec![PollFd::new(&self.line, PollFlags::IN)];
            polled.extend(stop.awaited(seen).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            if let Some(output) = &self.output {
                polled.push(PollFd::new(output, PollFlags::IN));
            }
            match rustix::event::poll(&mut polled, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            let output = self.output.as_ref().and(polled.last());
            (is_ready(&polled[0]), output.is_some_and(is_ready))
        };
        if has_output {
            self.read(transcript)?;
        }
        if has_news {
            for news in self.line.receive::<News>()? {
                match news {
                    News::Started(group) => self.group = Pid::from_raw(group),
                    News::LeaderGone => self.group = None,
                    News::Ended(ended) => {
                        self.read_rest(transcript)?;
                        self.keeper.wait()?;
                        return Ok(Woken::Over(End::Ended(ended)));
                    }
                }
            }
            if self.line.is_closed() {
                self.bury()?;
                self.read_rest(transcript)?;
                return Ok(Woken::Over(End::KeeperKilled));
            }
        }
        Ok(Woken::Go)
    }

    /// Reads what is there.
    fn read(&mut self, transcript: &mut Transcript) -> io::Result<()> {
        let Some(output) = &mut self.output else { return Ok(()) };
        let mut part = [0; PART];
        match output.read(&mut part) {
            Ok(0) => self.output = None,
            Ok(length) => transcript.push(&part[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Reads to the end of the output.
    fn read_rest(&mut self, transcript: &mut Transcript) -> io::Result<()> {
        let started = Instant::now();
        while let Some(output) = &self.output {
            let left = OUTPUT_MAX.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            let time = rustix::time::Timespec::try_from(left).map_err(io::Error::other)?;
            match rustix::event::poll(&mut [PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)], Some(&time)) {
                Ok(0) => return Ok(()),
                Ok(_) => self.read(transcript)?,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Ends what a killed keeper left. The command itself died with it. Orphans become the runner's children: so the id
    /// of the group's leader belongs to nobody else until it is waited for here, and a process that left the group is
    /// found among the children, by its environment.
    fn bury(&mut self) -> io::Result<()> {
        self.keeper.wait()?;
        let started = Instant::now();
        let mut killed: Vec<Pid> = Vec::new();
        if let Some(group) = self.group {
            // Once, which reaches all that are in it: as soon as its leader is waited for, the id may be another's.
            let _group_may_be_empty = kill_process_group(group, Signal::KILL);
        }
        while started.elapsed() < GONE_MAX {
            if let Some(group) = self.group {
                match rustix::process::waitpgid(group, WaitOptions::NOHANG) {
                    Ok(Some(_)) => continue,
                    Err(rustix::io::Errno::CHILD) => self.group = None,
                    Ok(None) | Err(_) => {}
                }
            }
            for pid in self.strays() {
                let _may_have_ended = kill_process(pid, Signal::KILL);
                killed.push(pid);
            }
            killed.sort_unstable_by_key(|pid| pid.as_raw_pid());
            killed.dedup();
            killed.retain(|pid| matches!(rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
            if killed.is_empty() && self.group.is_none() && self.strays().is_empty() {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The children of this process that the command started.
    fn strays(&self) -> Vec<Pid> {
        let is_marked = |pid: &Pid| {
            let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| !self.mark.is_empty() && variable == self.mark)
        };
        children::living().into_iter().filter(is_marked).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Whatever went wrong here, the command must not run on; the keeper ends when that is so.
        self.kill();
        let started = Instant::now();
        while matches!(self.keeper.try_wait(), Ok(None)) {
            if started.elapsed() > GONE_MAX {
                self.kill_keeper();
                let _nothing_more_can_be_done = self.bury();
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}
