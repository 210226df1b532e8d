//! One attempt at one task, from its claim to its end: run the command, keep the claim alive, record what came of it.
//!
//! What must never happen here: the command runs on without a lease; anything is recorded for a claim that was lost.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::agent::Agent;
use super::child::{Call, Running, Woken};
use super::desk::Desk;
use super::event::{Ending, Fate, Subject, Teller, What};
use super::holding::{Holding, Unrecorded};
use super::line::{Ended, How};
use super::stop::Wish;
use super::supply::{Taken, named};
use super::transcript::Transcript;
use super::{OnFailure, OnStop};
use crate::clock::since_boot_ms;
use crate::error::Error;
use crate::git_program::LEADS_ASTRAY;
use crate::id::RecordId;
use crate::output::span;
use crate::protocol::decide::Intent;
use crate::protocol::record::{Phase, Report};
use crate::protocol::text::{TITLE_MAX, checked_body, checked_title, stripped};
use crate::store::Store;

/// The name under which the output is attached to the report.
const LOG_NAME: &str = "output.log";

/// How often the live display hears of what a command prints, in milliseconds.
const PRINTED_MS: u64 = 200;

/// Why a command was ended before it ended itself.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cut {
    /// The lease is lost; what the ledger said.
    Lost(String),
    /// It took longer than it may.
    TimedOut,
    /// The runner was told to stop.
    Stopped,
}

/// An attempt at a task.
pub struct Attempt<'a> {
    agent: &'a Agent<'a>,
    taken: &'a Taken,
    tell: Teller,
    holding: Holding<'a>,
    transcript: Transcript,
    started_ms: u64,
    /// How much of the output the live display has seen, in bytes, and when.
    shown: u64,
    shown_ms: u64,
}

impl<'a> Attempt<'a> {
    /// At a task that `agent` has just claimed.
    pub fn new(agent: &'a Agent<'a>, taken: &'a Taken) -> Attempt<'a> {
        let fence = taken.state.claim().map_or(taken.state.seq, |claim| claim.seq);
        let tell = agent.tell.about(Subject {
            task: taken.state.id,
            place: named(taken),
            title: taken.state.task.title.clone(),
            claim: taken.claim,
            fence,
            attempt: taken.attempt,
        });
        Attempt {
            agent,
            taken,
            tell,
            holding: Holding::new(&agent.session, taken),
            transcript: Transcript::new(agent.orders.log_limit),
            started_ms: since_boot_ms(),
            shown: 0,
            shown_ms: 0,
        }
    }

    /// Carries it out, and tells how it ended.
    pub fn run(mut self) -> Ending {
        let ending = match Desk::set_up(&self.agent.session, self.taken, self.agent.orders.worktree_root.as_deref()) {
            Ok(desk) => {
                let ending = self.work(&desk);
                let kept = if ending.fate == Fate::Done { desk.clear() } else { desk.kept() };
                Ending { kept, ..ending }
            }
            Err(error) => self.give_back(Fate::NotStarted, format!("its place to work cannot be set up: {error}")),
        };
        self.tell.say(What::Ended(ending.clone()));
        ending
    }

    fn work(&mut self, desk: &Desk) -> Ending {
        self.tell.say(What::Started { ends_ms: self.holding.renewal.ends_ms() });
        let from_body = ["sh".into(), desk.body_file.clone().into_os_string()];
        let command = if self.agent.orders.exec_body { &from_body[..] } else { &self.agent.orders.command };
        if self.agent.orders.exec_body && !desk.has_body {
            return self.conclude(desk, command, None, "the task has no text to run".to_owned(), false);
        }
        let call = Call {
            command,
            dir: desk.worktree.as_ref().map(|worktree| &*worktree.dir),
            set: self.variables(&desk.body_file),
            unset: if desk.worktree.is_some() { &LEADS_ASTRAY } else { &[] },
        };
        let mut running = match Running::start(&call, &self.holding.renewal) {
            Ok(running) => running,
            Err(error) => return self.give_back(Fate::NotStarted, format!("its keeper cannot be started: {error}")),
        };
        let (woken, cut) = match self.watch(&mut running) {
            Ok(end) => end,
            Err(error) => {
                // Ends the command first.
                drop(running);
                return self.give_back(Fate::Released, format!("its command cannot be watched: {error}"));
            }
        };
        self.judge(desk, command, woken, cut)
    }

    /// What the command is told.
    fn variables(&self, body_file: &Path) -> Vec<(&'static str, OsString)> {
        let (taken, task) = (self.taken, &self.taken.state.task);
        let fence = taken.state.claim().map_or(taken.state.seq, |claim| claim.seq);
        vec![
            ("PM_TASK", taken.state.id.to_string().into()),
            ("PM_SLUG", task.slug.as_str().into()),
            ("PM_QUEUE", task.queue.as_str().into()),
            ("PM_CLAIM", taken.claim.to_string().into()),
            ("PM_FENCE", fence.to_string().into()),
            ("PM_AGENT_ID", self.agent.session.agent.as_str().into()),
            ("PM_TITLE", task.title.as_str().into()),
            ("PM_BODY_FILE", body_file.into()),
            ("PM_ATTEMPT", taken.attempt.to_string().into()),
        ]
    }

    /// Waits for the end of the command, keeps the claim alive meanwhile, and ends the command when it has to be.
    fn watch(&mut self, running: &mut Running) -> std::io::Result<(Woken, Option<Cut>)> {
        let orders = self.agent.orders;
        let mut cut: Option<Cut> = None;
        let mut is_killed = false;
        loop {
            let now_ms = since_boot_ms();
            let is_lost = matches!(cut, Some(Cut::Lost(_)));
            if !is_lost && now_ms >= self.holding.renewal.due_ms() {
                match self.beat() {
                    Ok(()) => running.renew(&self.holding.renewal),
                    Err(Unrecorded::Lost(why)) => {
                        cut = Some(Cut::Lost(why));
                        running.end();
                    }
                    // Nothing is held any more that could be lost: the command may end in peace.
                    Err(Unrecorded::Settled(_)) => {
                        self.holding.pretend_renewal();
                        running.renew(&self.holding.renewal);
                    }
                    Err(Unrecorded::Failed(_)) => self.holding.try_again_soon(),
                }
            }
            let wish = self.agent.stop.wish();
            if wish == Wish::Now && !is_killed {
                is_killed = true;
                cut.get_or_insert(Cut::Stopped);
                running.kill();
            } else if wish == Wish::Drain && orders.on_stop == OnStop::Release && cut.is_none() {
                cut = Some(Cut::Stopped);
                running.end();
            }
            let times_out_ms = orders.timeout.map(|timeout| self.started_ms + timeout.ms()).filter(|_| cut.is_none());
            if times_out_ms.is_some_and(|at| now_ms >= at) {
                cut = Some(Cut::TimedOut);
                running.end();
            }
            let mut next_ms = self.holding.renewal.due_ms();
            if matches!(cut, Some(Cut::Lost(_))) {
                // The keeper's end is all that is waited for.
                next_ms = u64::MAX;
            } else if let Some(at) = times_out_ms.filter(|_| cut.is_none()) {
                next_ms = next_ms.min(at);
            }
            if let Some(at) = self.show_printed(now_ms) {
                next_ms = next_ms.min(at);
            }
            let time = Duration::from_millis(next_ms.saturating_sub(since_boot_ms()).min(u64::from(u32::MAX)));
            match running.wait(time, self.agent.stop, &mut self.transcript)? {
                Woken::Go => {}
                end => return Ok((end, cut)),
            }
        }
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

    /// What becomes of the task, now that the command has ended.
    fn judge(&mut self, desk: &Desk, command: &[OsString], end: Woken, cut: Option<Cut>) -> Ending {
        let ended = match end {
            Woken::Ended(ended) => ended,
            Woken::Go | Woken::KeeperKilled => {
                return match cut {
                    Some(Cut::Lost(why)) => self.ending(Fate::Lost, why, None),
                    _ => self.give_back(Fate::Released, "its keeper was killed, and the command with it".to_owned()),
                };
            }
        };
        if ended.left > 0 {
            let left = format!("{} processes of {} were killed and do not end", ended.left, named(self.taken));
            self.tell.say(What::Warning(left));
        }
        if let Some(Cut::Lost(why)) = cut {
            return self.ending(Fate::Lost, why, Some(&ended));
        }
        if ended.lapsed {
            let why = "no renewal of the lease got in for two thirds of it, so the command was ended".to_owned();
            return self.ending(Fate::Lost, why, Some(&ended));
        }
        match (&ended.how, cut) {
            (How::NotStarted(reason), _) => {
                self.give_back(Fate::NotStarted, format!("the command cannot be started: {reason}"))
            }
            (_, Some(Cut::Stopped)) => self.give_back(Fate::Released, "the runner was told to stop".to_owned()),
            (_, Some(Cut::TimedOut)) => {
                let limit = self.agent.orders.timeout.map_or(0, |timeout| timeout.ms());
                self.conclude(desk, command, Some(&ended), format!("timed out after {}", span(limit)), false)
            }
            (How::Exit(0), _) => self.conclude(desk, command, Some(&ended), "exit 0".to_owned(), true),
            (How::Exit(code), _) => self.conclude(desk, command, Some(&ended), format!("exit {code}"), false),
            (How::Signal(signal), _) => self.conclude(desk, command, Some(&ended), signal_text(*signal), false),
        }
    }

    /// Reports, and closes the task or gives it back.
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
        let claim = Some(self.taken.claim);
        let limit = self.taken.state.task.max_attempts.unwrap_or(self.agent.session.config.max_attempts);
        let is_last = limit > 0 && self.taken.attempt >= u64::from(limit);
        let goes_back = !is_success && self.agent.orders.on_failure == OnFailure::Release && !is_last;
        let (fate, intent) = if goes_back {
            (Fate::Failed, Intent::Release { claim, reason: Some(why.clone()) })
        } else {
            let fate = if is_success { Fate::Done } else { Fate::Rejected };
            let note = (!is_success).then(|| why.clone());
            (fate, Intent::Finish { claim, done: is_success, note })
        };
        match self.holding.record(&intent) {
            Ok(_) => Ending { report: Some(report), ..self.ending(fate, why, ended) },
            Err(unrecorded) => self.unrecorded(unrecorded, &why, ended),
        }
    }

    fn report(&mut self, desk: &Desk, command: &[OsString], why: &str) -> Result<RecordId, Unrecorded> {
        let failed = |error: Error| Unrecorded::Failed(error.to_string());
        let duration = span(since_boot_ms() - self.started_ms);
        // Not its arguments: they can hold secrets, and records are for ever.
        let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
        let title = format!("{}: {why} ({duration})", stripped(&program)).replace(['\n', '\t'], " ");
        let title =
            checked_title(&title.chars().take(TITLE_MAX).collect::<String>()).map_err(|error| failed(error.into()))?;
        let commit = desk.moved_head(&self.agent.session);
        let mut report = Report { title, commit, synthetic: false, attachments: None };
        let mut body = format!("Attempt: {}\nResult: {why}\nDuration: {duration}\n", self.taken.attempt);
        if self.agent.orders.keeps_output {
            let (text, is_cut) = self.transcript.text();
            let total = self.transcript.total();
            body.push_str(&format!(
                "Output: {total} bytes{}\n",
                if is_cut { ", of which this is the end" } else { "" }
            ));
            if total > 0 && self.agent.orders.log_limit > 0 {
                let (log, missing) = self.transcript.log();
                let cut = if missing > 0 { format!(", without {missing} bytes in its middle") } else { String::new() };
                body.push_str(&format!("Log: {LOG_NAME}{cut}\n"));
                let tree = self.agent.session.store.write_files(&[(LOG_NAME.to_owned(), log)]);
                report.attachments = Some(tree.map_err(|error| failed(error.into()))?);
            }
            body.push_str(&format!("\n{text}"));
        }
        let body = checked_body(&body).map_err(|error| failed(error.into()))?;
        let appended = self.holding.record(&Intent::Report { claim: Some(self.taken.claim), report, body })?;
        Ok(appended.last().0)
    }

    /// Sends a heartbeat.
    fn beat(&mut self) -> Result<(), Unrecorded> {
        let progress = if self.agent.orders.progress_from_output { self.transcript.last_line() } else { None };
        self.holding.append(&Intent::Heartbeat { claim: Some(self.taken.claim), progress })?;
        self.tell.say(What::Renewed { ends_ms: self.holding.renewal.ends_ms() });
        Ok(())
    }

    /// Gives the task back to the queue.
    fn give_back(&mut self, fate: Fate, why: String) -> Ending {
        let reason = Some(stripped(&why).replace('\n', " ").trim().to_owned()).filter(|reason| !reason.is_empty());
        match self.holding.record(&Intent::Release { claim: Some(self.taken.claim), reason }) {
            Ok(_) => self.ending(fate, why, None),
            Err(unrecorded) => self.unrecorded(unrecorded, &why, None),
        }
    }

    /// How an attempt ends whose last record did not get in.
    fn unrecorded(&self, unrecorded: Unrecorded, result: &str, ended: Option<&Ended>) -> Ending {
        match unrecorded {
            Unrecorded::Lost(why) => self.ending(Fate::Lost, why, ended),
            Unrecorded::Failed(why) => {
                let why = format!("{result}, which cannot be recorded: {why}; a sweep brings the task back");
                self.ending(Fate::Lost, why, ended)
            }
            Unrecorded::Settled(phase) => {
                let fate = match phase {
                    Phase::Done => Fate::Done,
                    Phase::Rejected => Fate::Rejected,
                    _ => Fate::Released,
                };
                self.ending(fate, format!("{result}; the command settled the task itself"), ended)
            }
        }
    }

    fn ending(&self, fate: Fate, why: String, ended: Option<&Ended>) -> Ending {
        let (exit, signal) = match ended.map(|ended| &ended.how) {
            Some(How::Exit(code)) => (Some(*code), None),
            Some(How::Signal(signal)) => (None, Some(*signal)),
            _ => (None, None),
        };
        let duration_ms = since_boot_ms() - self.started_ms;
        Ending { fate, why, exit, signal, duration_ms, report: None, kept: None }
    }
}

/// How a signal is told.
fn signal_text(number: i32) -> String {
    let name = signal_hook::low_level::signal_name(number);
    name.map_or_else(|| format!("ended by signal {number}"), |name| format!("ended by {name} (signal {number})"))
}
