//! The end of an attempt whose command has ended and is reported: its task is closed, or given back.
//!
//! What must never happen here: a verifier is asked about a task whose children are known to be open.

use super::OnFailure;
use super::attempt::{Attempt, STOPPED};
use super::desk::Desk;
use super::event::{Ending, Fate};
use super::family::Parent;
use super::holding::Unrecorded;
use super::line::Ended;
use super::vigil::Vigil;
use crate::error::Error;
use crate::git_program::LEADS_ASTRAY;
use crate::id::RecordId;
use crate::ledger::find::Found;
use crate::protocol::decide::{Intent, Verified};
use crate::protocol::refusal::{Refusal, Unmet};
use crate::verifier::case::{Case, Room};

/// So often a verifier is asked again since there is a newer report than the one that it spoke of.
const VERDICTS_MAX: u32 = 3;

/// What is to be closed.
pub(super) struct Closing<'c, 'a> {
    pub(super) attempt: &'c mut Attempt<'a>,
    pub(super) desk: &'c Desk,
    /// How the command ended.
    pub(super) ended: Option<&'c Ended>,
    /// What was reported.
    pub(super) report: RecordId,
    /// The result of the command.
    pub(super) why: String,
    pub(super) is_success: bool,
}

/// What a verifier said, and what there is to complain of.
struct Judged {
    verified: Verified,
    complaint: Option<String>,
}

impl<'a> Parent<'a> for Closing<'_, 'a> {
    fn vigil(&mut self) -> &mut Vigil<'a> {
        &mut self.attempt.vigil
    }

    fn close(&mut self) -> Result<Ending, Vec<Unmet>> {
        let mut verdicts = 0;
        loop {
            self.require_settled()?;
            let (verified, why, is_success) = match self.verified() {
                Ok(None) => (None, self.why.clone(), self.is_success),
                Ok(Some(Judged { verified, complaint: None })) => (Some(verified), self.why.clone(), true),
                Ok(Some(Judged { verified, complaint: Some(complaint) })) => (Some(verified), complaint, false),
                Err(ending) => return Ok(ending),
            };
            verdicts += 1;
            match self.record(verified, &why, is_success) {
                Err(Unrecorded::ChildrenOpen(open)) => return Err(open),
                Err(Unrecorded::Outdated(_)) if verdicts < VERDICTS_MAX => {}
                Err(Unrecorded::Outdated(why)) => return Ok(self.attempt.give_back(Fate::Failed, why)),
                recorded => return Ok(self.ended(recorded, why, is_success)),
            }
        }
    }
}

impl Closing<'_, '_> {
    /// Whether this is the last attempt.
    fn is_last(&self) -> bool {
        let limit =
            self.attempt.taken.state.task.max_attempts.unwrap_or(self.attempt.agent.session.config.max_attempts);
        limit > 0 && self.attempt.taken.attempt >= u64::from(limit)
    }

    fn goes_back(&self, is_success: bool) -> bool {
        !is_success && self.attempt.agent.orders.on_failure == OnFailure::Release && !self.is_last()
    }

    /// That no children are open, as far as is known here; nothing is asked for a task that goes back anyway.
    fn require_settled(&mut self) -> Result<(), Vec<Unmet>> {
        if self.goes_back(self.is_success) {
            return Ok(());
        }
        self.attempt.vigil.holding.refresh();
        let found = self.found();
        // Of a task that is rejected no verdict is asked for, which nothing else speaks against.
        let intent = Intent::Finish { claim: Some(self.attempt.taken.claim), done: false, note: None, verified: None };
        match self.attempt.agent.session.ledger().allows(&found, &intent) {
            Err(Error::Refused { refusal: Refusal::ChildrenOpen { open }, .. }) => Err(open),
            // What else speaks against it is told when it is tried.
            _ => Ok(()),
        }
    }

    fn found(&self) -> Found {
        Found { name: self.attempt.taken.name.clone(), state: self.attempt.vigil.holding.state().clone() }
    }

    fn record(&mut self, verified: Option<Verified>, why: &str, is_success: bool) -> Result<RecordId, Unrecorded> {
        let claim = Some(self.attempt.taken.claim);
        let intent = if self.goes_back(is_success) {
            Intent::Release { claim, reason: Some(why.to_owned()) }
        } else {
            let note = (!is_success).then(|| why.to_owned());
            Intent::Finish { claim, done: is_success, note, verified }
        };
        let branch = self.attempt.agent.orders.deliver.as_deref().filter(|_| is_success);
        let session = &self.attempt.agent.session;
        let delivery = branch.and_then(|branch| Some((branch, self.desk.own_head(session)?)));
        self.attempt.vigil.holding.record_along(&intent, delivery)
    }

    /// How the attempt ends with what was recorded.
    fn ended(&mut self, recorded: Result<RecordId, Unrecorded>, why: String, is_success: bool) -> Ending {
        let fate = match is_success {
            true => Fate::Done,
            false if self.goes_back(false) => Fate::Failed,
            false => Fate::Rejected,
        };
        let (report, ended, is_last) = (Some(self.report), self.ended, self.is_last());
        let attempt = &mut *self.attempt;
        match recorded {
            Ok(_) => Ending { report, ..attempt.ending(fate, why, ended) },
            // The work is there, but not on top of what others delivered: that is for another attempt.
            Err(Unrecorded::Undelivered(why)) if !is_last => Ending { report, ..attempt.give_back(Fate::Failed, why) },
            Err(Unrecorded::Undelivered(why)) => {
                let claim = Some(attempt.taken.claim);
                let intent = Intent::Finish { claim, done: false, note: Some(why.clone()), verified: None };
                match attempt.vigil.holding.record(&intent) {
                    Ok(_) => Ending { report, ..attempt.ending(Fate::Rejected, why, ended) },
                    Err(unrecorded) => attempt.unrecorded(unrecorded, &why, ended),
                }
            }
            Err(Unrecorded::Refused(why)) => attempt.give_back(Fate::Failed, why),
            Err(unrecorded) => attempt.unrecorded(unrecorded, &why, ended),
        }
    }

    /// Asks the task's verifier about the report, if the command succeeded and the task has one.
    fn verified(&mut self) -> Result<Option<Judged>, Ending> {
        let session = &self.attempt.agent.session;
        let found = self.found();
        let case = if self.is_success { Case::of(&session.ledger(), &found) } else { Ok(None) };
        let case = match case {
            Ok(Some(case)) => case,
            Ok(None) => return Ok(None),
            Err(error) => return Err(self.attempt.give_back(Fate::Failed, error.to_string())),
        };
        let room = Room {
            allow: &session.config.allow_verifier,
            timeout: self.attempt.agent.orders.verifier_timeout,
            dir: self.desk.worktree.as_ref().map(|worktree| &*worktree.dir),
            unset: if self.desk.worktree.is_some() { &LEADS_ASTRAY } else { &[] },
            context: session.context.as_ref(),
        };
        match self.attempt.vigil.during(|stop| case.ask(&room, stop)) {
            Err(why) => Err(self.attempt.ending(Fate::Lost, why, None)),
            Ok(Ok(Some(verified))) => Ok(Some(Judged { verified, complaint: None })),
            Ok(Ok(None)) => Err(self.attempt.give_back(Fate::Released, STOPPED.to_owned())),
            Ok(Err(Error::VerifierFailed { verified, timed_out, .. })) => {
                let how = match timed_out {
                    true => "took too long".to_owned(),
                    false => format!("failed with exit {}", verified.verification.exit),
                };
                Ok(Some(Judged { verified: *verified, complaint: Some(format!("the verifier {how}")) }))
            }
            Ok(Err(error)) => Err(self.attempt.give_back(Fate::Failed, error.to_string())),
        }
    }
}
