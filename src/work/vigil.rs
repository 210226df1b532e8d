//! Waiting while a claim is held: for the end of a command, or of something else, with the claim kept alive meanwhile.
//!
//! What must never happen here: the command runs on without a lease; the waiting has no end although the command should.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::OnStop;
use super::agent::Agent;
use super::child::{End, Running, Woken};
use super::event::{Teller, What};
use super::holding::{Holding, Unrecorded};
use super::keeper::WAIT_MAX_MS;
use super::stop::Wish;
use super::supply::Taken;
use super::transcript::Transcript;
use crate::clock::since_boot_ms;
use crate::protocol::record::Phase;

/// How often the live display hears of what a command prints, in milliseconds.
const PRINTED_MS: u64 = 200;

/// How long the keeper of a command that has to end may take, beyond the grace, before it is killed itself; in
/// milliseconds. One that works says after 3 s what it could not end.
const KEEPER_MAX_MS: u64 = 4_000;

/// How often it is looked at what is done before the command begins, in milliseconds.
const LOOK_MS: u64 = 50;

/// Why a command was ended before it ended itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// The lease is lost; what the ledger said.
    Lost(String),
    /// The command gave the task back, which anybody may take now.
    GivenBack,
    /// It took longer than it may.
    TimedOut,
    /// The runner was told to stop.
    Stopped,
}

/// The claim, and what is seen of the command while it runs.
pub struct Vigil<'a> {
    agent: &'a Agent<'a>,
    tell: Teller,
    /// The claim.
    pub holding: Holding<'a>,
    /// What the command printed.
    pub transcript: Transcript,
    /// When the command was started, in milliseconds since boot; before that, when its task was taken.
    pub started_ms: u64,
    /// Where the command itself brought the task, with pm.
    pub settled: Option<Phase>,
    /// How much of the output the live display has seen, in bytes, and when.
    shown: u64,
    shown_ms: u64,
}

impl<'a> Vigil<'a> {
    /// Over a task that `agent` has just claimed.
    pub fn new(agent: &'a Agent<'a>, taken: &'a Taken, tell: Teller) -> Vigil<'a> {
        Vigil {
            agent,
            tell,
            holding: Holding::new(&agent.session, agent.stop, agent.pulse, taken),
            transcript: Transcript::new(agent.orders.log_limit),
            started_ms: since_boot_ms(),
            settled: None,
            shown: 0,
            shown_ms: 0,
        }
    }

    /// Keeps the claim alive while something else is done, and asks at its end whether it still stands. The work is told
    /// to stop when the claim is lost, or nobody wants its result any more.
    ///
    /// # Errors
    /// Why the lease is lost.
    pub fn during<T: Send>(&mut self, work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> T + Send) -> Result<T, String> {
        let mut lost = None;
        let is_in_vain = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            let (done, is_done) = mpsc::channel();
            let stop = || is_in_vain.load(Ordering::SeqCst);
            let work = scope.spawn(move || {
                let result = work(&stop);
                let _somebody_waits = done.send(());
                result
            });
            while is_done.recv_timeout(Duration::from_millis(LOOK_MS)) == Err(RecvTimeoutError::Timeout) {
                if lost.is_none() && since_boot_ms() >= self.holding.renewal.due_ms() {
                    lost = self.beat_or_lose();
                }
                if lost.is_some() || self.is_unwanted() {
                    is_in_vain.store(true, Ordering::SeqCst);
                }
            }
            work.join().expect("nothing here panics")
        });
        match lost.or_else(|| self.beat_or_lose()) {
            Some(why) => Err(why),
            None => Ok(result),
        }
    }

    /// Whether signals say that what runs is to be ended.
    pub fn is_unwanted(&self) -> bool {
        match self.agent.stop.wish() {
            Wish::None => false,
            Wish::Drain => self.agent.orders.on_stop == OnStop::Release,
            Wish::Now => true,
        }
    }

    /// Renews the claim if that is due.
    ///
    /// # Errors
    /// Why the lease is lost.
    pub fn renew_if_due(&mut self) -> Result<(), String> {
        let is_due = since_boot_ms() >= self.holding.renewal.due_ms();
        if is_due { self.beat_or_lose().map_or(Ok(()), Err) } else { Ok(()) }
    }

    /// Sends a heartbeat while no command runs; returns why the lease is lost, if so.
    fn beat_or_lose(&mut self) -> Option<String> {
        match self.beat() {
            Ok(()) => None,
            Err(Unrecorded::Lost(why)) => Some(why),
            Err(Unrecorded::Settled(phase)) => Some(format!("the task is {phase}", phase = phase.as_str())),
            Err(unrecorded) => {
                self.holding.try_again_soon();
                (since_boot_ms() >= self.holding.renewal.lapses_ms()).then(|| unrecorded.to_string())
            }
        }
    }

    /// Waits for the end of the command, keeps the claim alive meanwhile, and ends the command when it has to be.
    ///
    /// # Errors
    /// What the system says.
    pub fn watch(&mut self, running: &mut Running) -> std::io::Result<(End, Option<Cut>)> {
        let orders = self.agent.orders;
        let mut cut: Option<Cut> = None;
        // When the command was first told to end.
        let mut told_ms: Option<u64> = None;
        let mut is_killed = false;
        loop {
            let now_ms = since_boot_ms();
            if !matches!(cut, Some(Cut::Lost(_))) && now_ms >= self.holding.renewal.due_ms() {
                cut = self.renew(running).or(cut);
            }
            let wish = self.agent.stop.wish();
            if self.is_unwanted() {
                cut.get_or_insert(Cut::Stopped);
            }
            let times_out_ms = orders.timeout.map_or(u64::MAX, |timeout| self.started_ms + timeout.ms());
            if now_ms >= times_out_ms {
                cut.get_or_insert(Cut::TimedOut);
            }
            if wish == Wish::Now && !is_killed {
                is_killed = true;
                cut.get_or_insert(Cut::Stopped);
                told_ms.get_or_insert(now_ms);
                running.kill();
            } else if cut.is_some() && told_ms.is_none() {
                told_ms = Some(now_ms);
                running.end();
            }
            let ends_ms = told_ms.unwrap_or(u64::MAX).min(self.holding.renewal.lapses_ms());
            if now_ms >= ends_ms + self.holding.renewal.grace_ms() + KEEPER_MAX_MS {
                // It is stopped, or worse.
                running.kill_keeper();
            }
            let mut next_ms = self.holding.renewal.due_ms();
            if cut.is_none() {
                next_ms = next_ms.min(times_out_ms);
            }
            if let Some(at) = self.show_printed(now_ms) {
                next_ms = next_ms.min(at);
            }
            if matches!(cut, Some(Cut::Lost(_))) {
                // The keeper's end is all that is waited for, with a look now and then.
                next_ms = u64::MAX;
            }
            let time = Duration::from_millis(next_ms.saturating_sub(since_boot_ms()).min(WAIT_MAX_MS));
            match running.wait(time, self.agent.stop, wish, &mut self.transcript)? {
                Woken::Go => {}
                Woken::Over(end) => return Ok((end, cut)),
            }
        }
    }

    /// Renews the claim, and lets the command run on. Returns why it must not, if so.
    fn renew(&mut self, running: &mut Running) -> Option<Cut> {
        let beat = if self.settled.is_some() { Ok(()) } else { self.beat() };
        match beat {
            // Nothing is held any more that could be lost: a command that closed its task may end in peace.
            Ok(()) if self.settled.is_some() => self.holding.pretend_renewal(),
            Ok(()) => {}
            Err(Unrecorded::Lost(why)) => return Some(Cut::Lost(why)),
            Err(Unrecorded::Settled(phase)) => {
                self.settled = Some(phase);
                self.holding.pretend_renewal();
                running.renew(&self.holding.renewal);
                return (phase == Phase::New).then_some(Cut::GivenBack);
            }
            Err(_) => {
                self.holding.try_again_soon();
                return None;
            }
        }
        running.renew(&self.holding.renewal);
        None
    }

    /// Tells the live display what was printed, now and then; returns when there will be something to tell.
    fn show_printed(&mut self, now_ms: u64) -> Option<u64> {
        if !self.agent.orders.is_watched || self.transcript.total() == self.shown {
            return None;
        }
        let at_ms = self.shown_ms + PRINTED_MS;
        if now_ms < at_ms {
            return Some(at_ms);
        }
        (self.shown, self.shown_ms) = (self.transcript.total(), now_ms);
        if let Some(line) = self.transcript.last_line() {
            self.tell.say(What::Printed(line));
        }
        None
    }

    /// Sends a heartbeat.
    fn beat(&mut self) -> Result<(), Unrecorded> {
        let progress = if self.agent.orders.progress_from_output { self.transcript.last_line() } else { None };
        self.holding.beat(progress)?;
        self.tell.say(What::Renewed { ends_ms: self.holding.renewal.ends_ms() });
        Ok(())
    }
}
