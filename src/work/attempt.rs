//! One attempt at one task, from its claim to its end: run the command, keep the claim alive, record what came of it.
//!
//! What must never happen here: a command begins without a lease; anything is recorded for a claim that was lost.

use std::ffi::OsString;

use super::account::{self, Outcome};
use super::agent::Agent;
use super::child::{Call, End, Running};
use super::children;
use super::closing::Closing;
use super::desk::{Desk, Worktree};
use super::event::{Ending, Fate, Subject, Teller, What};
use super::family::{self, Parent, Waited};
use super::holding::Unrecorded;
use super::line::{Ended, How};
use super::stop::Wish;
use super::supply::Taken;
use super::vigil::{Cut, Vigil};
use crate::clock::since_boot_ms;
use crate::error::Error;
use crate::git_program::LEADS_ASTRAY;
use crate::id::RecordId;
use crate::ledger::resolve::place;
use crate::output::span;
use crate::protocol::decide::Intent;
use crate::protocol::record::{Phase, Report};
use crate::protocol::text::stripped;
use crate::store::Store;
use crate::verifier::case::is_permitted;

/// How a lease ended that nobody took away.
const LAPSED: &str = "no renewal of the lease got in for two thirds of it, so the command was ended";

/// Why a task goes back that nothing is wrong with.
pub(super) const STOPPED: &str = "the runner was told to stop";

/// An attempt at a task.
pub struct Attempt<'a> {
    pub(super) agent: &'a Agent<'a>,
    pub(super) taken: &'a Taken,
    tell: Teller,
    pub(super) vigil: Vigil<'a>,
    is_relieved: bool,
}

impl<'a> Attempt<'a> {
    /// At a task that `agent` has just claimed.
    pub fn new(agent: &'a Agent<'a>, taken: &'a Taken) -> Attempt<'a> {
        let tell = agent.tell.about(Subject {
            task: taken.state.id,
            place: place(&taken.state).to_string(),
            title: taken.state.task.title.clone(),
            claim: taken.claim,
            fence: taken.fence,
            attempt: taken.attempt,
        });
        Attempt { agent, taken, vigil: Vigil::new(agent, taken, tell.clone()), tell, is_relieved: false }
    }

    /// Carries it out, and tells how it ended, and whether somebody else goes on in the agent's name.
    pub fn run(mut self) -> (Ending, bool) {
        let (session, taken) = (&self.agent.session, self.taken);
        let worktree = self.agent.orders.worktree_root.as_ref().map(|root| Worktree::of(session, taken, root));
        let dir = worktree.as_ref().map(|worktree| worktree.dir.clone());
        let mut is_cleared = false;
        let mut ending = match self.set_up(worktree) {
            Ok(desk) => {
                let ending = self.work(&desk);
                is_cleared = ending.fate == Fate::Done && desk.clear();
                ending
            }
            Err(ending) => ending,
        };
        if dir.is_some() {
            // What hooks of git's had left in the background.
            children::reap_orphans();
        }
        ending.kept = dir.filter(|dir| !is_cleared && dir.exists());
        self.tell.say(What::Ended(ending.clone()));
        (ending, self.is_relieved)
    }

    /// Sets up the place where the command works, however long that takes. The claim stands when it begins.
    fn set_up(&mut self, worktree: Option<Worktree>) -> Result<Desk, Ending> {
        // A signal may have come while the claim was being written.
        if self.agent.stop.wish() > Wish::None {
            return Err(self.give_back(Fate::Released, STOPPED.to_owned()));
        }
        let (session, taken) = (&self.agent.session, self.taken);
        let opened = match worktree {
            Some(mut worktree) => {
                let opened = self.vigil.during(|stop| worktree.open(stop));
                opened
                    .map_err(|why| self.ending(Fate::Lost, why, None))?
                    .inspect_err(|_| worktree.undo())
                    .map(|()| Some(worktree))
            }
            None => Ok(None),
        };
        let desk = opened.and_then(|worktree| Desk::set_up(session, taken, worktree));
        self.vigil.renew_if_due().map_err(|why| self.ending(Fate::Lost, why, None))?;
        if self.vigil.is_unwanted() {
            return Err(self.give_back(Fate::Released, STOPPED.to_owned()));
        }
        desk.map_err(|error| self.give_back(Fate::NotStarted, format!("its place to work cannot be set up: {error}")))
    }

    fn work(&mut self, desk: &Desk) -> Ending {
        self.tell.say(What::Started { ends_ms: self.vigil.holding.renewal.ends_ms() });
        if let Err(error) = is_permitted(&self.taken.state, &self.agent.session.config.allow_verifier) {
            // What this machine does not allow is not taken; whoever took it with other settings finds out here.
            return self.give_back(Fate::NotStarted, error.to_string());
        }
        let from_body = ["sh".into(), desk.body_file.clone().into_os_string()];
        let command = if self.agent.orders.exec_body { &from_body[..] } else { &self.agent.orders.command };
        if self.agent.orders.exec_body && !desk.has_body {
            return self.conclude(desk, command, None, "the task has no text to run".to_owned(), false);
        }
        let call = Call {
            command,
            dir: desk.worktree.as_ref().map(|worktree| &*worktree.dir),
            set: desk.variables(self.taken, &self.agent.session),
            unset: if desk.worktree.is_some() { &LEADS_ASTRAY } else { &[] },
        };
        let mut running = match Running::start(&call, &self.vigil.holding.renewal) {
            Ok(running) => running,
            Err(error) => return self.give_back(Fate::NotStarted, format!("its keeper cannot be started: {error}")),
        };
        self.vigil.started_ms = since_boot_ms();
        let (end, cut) = match self.vigil.watch(&mut running) {
            Ok(end) => end,
            Err(error) => {
                // Ends the command first.
                drop(running);
                return self.give_back(Fate::Released, format!("its command cannot be watched: {error}"));
            }
        };
        self.judge(desk, command, end, cut)
    }

    /// What becomes of the task, now that the command has ended.
    fn judge(&mut self, desk: &Desk, command: &[OsString], end: End, cut: Option<Cut>) -> Ending {
        let ended = match end {
            End::Ended(ended) => ended,
            End::KeeperKilled => {
                let is_lapsed = since_boot_ms() >= self.vigil.holding.renewal.lapses_ms();
                return match cut {
                    Some(Cut::Lost(why)) => self.ending(Fate::Lost, why, None),
                    _ if is_lapsed => self.ending(Fate::Lost, LAPSED.to_owned(), None),
                    _ => self.give_back(Fate::Released, "its keeper was killed, and the command with it".to_owned()),
                };
            }
        };
        if ended.left > 0 {
            let place = place(&self.taken.state);
            let left = format!("{} processes of {place} could not be ended, or not be found to be ended", ended.left);
            self.tell.say(What::Warning(left));
        }
        if let Some(Cut::Lost(why)) = cut {
            return self.ending(Fate::Lost, why, Some(&ended));
        }
        let result = match &ended.how {
            How::NotStarted(reason) => format!("the command cannot be started: {reason}"),
            How::Exit(code) => format!("exit {code}"),
            How::Signal(signal) => signal_text(*signal),
        };
        if let Some(phase) = self.vigil.settled {
            return self.unrecorded(Unrecorded::Settled(phase), &result, Some(&ended));
        }
        if ended.lapsed {
            return self.ending(Fate::Lost, LAPSED.to_owned(), Some(&ended));
        }
        match (&ended.how, cut) {
            (How::NotStarted(_), _) => self.give_back(Fate::NotStarted, result),
            (_, Some(Cut::Stopped)) => self.give_back(Fate::Released, STOPPED.to_owned()),
            (_, Some(Cut::TimedOut)) => {
                let limit = self.agent.orders.timeout.map_or(0, |timeout| timeout.ms());
                self.conclude(desk, command, Some(&ended), format!("timed out after {}", span(limit)), false)
            }
            (how, _) => self.conclude(desk, command, Some(&ended), result, *how == How::Exit(0)),
        }
    }

    /// Reports, and closes the task or gives it back: once its children are settled.
    fn conclude(
        &mut self,
        desk: &Desk,
        command: &[OsString],
        ended: Option<&Ended>,
        why: String,
        is_success: bool,
    ) -> Ending {
        let report = match self.report(desk, command, &why) {
            Ok(report) => report,
            Err(unrecorded) => return self.unrecorded(unrecorded, &why, ended),
        };
        let (agent, taken) = (self.agent, self.taken);
        let mut is_relieved = false;
        let mut closing = Closing { attempt: self, desk, ended, report, why, is_success };
        let ending = match closing.close() {
            Ok(ending) => ending,
            Err(open) => match family::wait(agent, &mut closing, taken, open, &mut is_relieved) {
                Waited::Closed(ending) => ending,
                Waited::Lost(why) => self.ending(Fate::Lost, why, ended),
                Waited::Stopped => self.give_back(Fate::Released, STOPPED.to_owned()),
                Waited::InVain(why) => self.give_back(Fate::Failed, why),
            },
        };
        self.is_relieved = is_relieved;
        ending
    }

    fn report(&mut self, desk: &Desk, command: &[OsString], why: &str) -> Result<RecordId, Unrecorded> {
        let failed = |error: Error| Unrecorded::Failed(error.to_string());
        let result = Outcome { why, attempt: self.taken.attempt, duration_ms: since_boot_ms() - self.vigil.started_ms };
        let transcript = self.agent.orders.keeps_output.then_some(&self.vigil.transcript);
        let account = account::of(command, &result, transcript).map_err(|error| failed(error.into()))?;
        let commit = desk.moved_head(&self.agent.session);
        let mut report = Report { title: account.title, commit, synthetic: false, attachments: None };
        if let Some(log) = account.log {
            let tree = self.agent.session.store.write_files(&[(account::LOG_NAME.to_owned(), log)]);
            report.attachments = Some(tree.map_err(|error| failed(error.into()))?);
        }
        self.vigil.holding.record(&Intent::Report { claim: Some(self.taken.claim), report, body: account.body })
    }

    /// Gives the task back to the queue.
    pub(super) fn give_back(&mut self, fate: Fate, why: String) -> Ending {
        let reason = Some(stripped(&why).replace('\n', " ").trim().to_owned()).filter(|reason| !reason.is_empty());
        match self.vigil.holding.record(&Intent::Release { claim: Some(self.taken.claim), reason }) {
            Ok(_) => self.ending(fate, why, None),
            Err(unrecorded) => self.unrecorded(unrecorded, &why, None),
        }
    }

    /// How an attempt ends whose last record did not get in.
    pub(super) fn unrecorded(&self, unrecorded: Unrecorded, result: &str, ended: Option<&Ended>) -> Ending {
        match unrecorded {
            Unrecorded::Lost(why) => self.ending(Fate::Lost, why, ended),
            Unrecorded::Settled(phase) => {
                let fate = match phase {
                    Phase::Done => Fate::Done,
                    Phase::Rejected => Fate::Rejected,
                    _ => Fate::Released,
                };
                self.ending(fate, format!("{result}; the command settled the task itself"), ended)
            }
            unrecorded => {
                let why = format!("{result}, which cannot be recorded: {unrecorded}; a sweep brings the task back");
                self.ending(Fate::Lost, why, ended)
            }
        }
    }

    pub(super) fn ending(&self, fate: Fate, why: String, ended: Option<&Ended>) -> Ending {
        let (exit, signal) = match ended.map(|ended| &ended.how) {
            Some(How::Exit(code)) => (Some(*code), None),
            Some(How::Signal(signal)) => (None, Some(*signal)),
            _ => (None, None),
        };
        let duration_ms = since_boot_ms() - self.vigil.started_ms;
        Ending { fate, why, exit, signal, duration_ms, report: None, kept: None }
    }
}

/// How a signal is told.
fn signal_text(number: i32) -> String {
    let name = signal_hook::low_level::signal_name(number);
    name.map_or_else(|| format!("ended by signal {number}"), |name| format!("ended by {name} (signal {number})"))
}
