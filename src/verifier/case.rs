//! A task and its report, read from the ledger for its verifier.

use std::path::Path;
use std::time::Duration;

use super::form::Form;
use super::{Outcome, Subject, Terms, VerifierError, allow, verify};
use crate::error::{Error, Place, Result};
use crate::id::{RecordId, TaskId};
use crate::ledger::Ledger;
use crate::ledger::find::Found;
use crate::ledger::resolve::place;
use crate::protocol::apply::SKIPPED;
use crate::protocol::decide::Verified;
use crate::protocol::record::{Content, ContextId, Verification};
use crate::protocol::state::TaskState;
use crate::work::keeper::this_program;

/// What a verifier is asked about.
#[derive(Debug, Clone)]
pub struct Case {
    verifier: String,
    task: TaskId,
    place: Place,
    report: RecordId,
    task_title: String,
    task_body: Option<String>,
    report_title: String,
    report_body: Option<String>,
}

/// Where a verifier runs, and for how long it may.
#[derive(Debug, Clone, Copy)]
pub struct Room<'a> {
    /// The commands that this machine allows.
    pub allow: &'a [String],
    /// How long it may take.
    pub timeout: Duration,
    /// The directory; else where this process is.
    pub dir: Option<&'a Path>,
    /// What it does not inherit of the environment.
    pub unset: &'a [&'a str],
    /// The context of who closes the task, if in one.
    pub context: Option<&'a ContextId>,
}

impl Case {
    /// The case of a task whose newest report is to be its proof. `None` without a verifier, or without such a report.
    ///
    /// # Errors
    /// `Damaged` where task or report cannot be read.
    pub fn of(ledger: &Ledger<'_>, found: &Found) -> Result<Option<Case>> {
        let state = &found.state;
        let (Some(verifier), Some(report)) = (state.task.verifier.clone(), state.proof()) else { return Ok(None) };
        let task_body = ledger.record(&found.name, state.id.record())?.body;
        let record = ledger.record(&found.name, report)?;
        let report_title = match record.content {
            Content::Report(report) => report.title,
            _ => String::new(),
        };
        let task_title = state.task.title.clone();
        let (task, place) = (state.id, place(state));
        Ok(Some(Case { verifier, task, place, report, task_title, task_body, report_title, report_body: record.body }))
    }

    /// Asks the verifier; see [`verify`]. `None`: it was stopped.
    ///
    /// # Errors
    /// `VerifierFailed`, with what it said; `Verifier` where it is not allowed, or the system failed.
    pub fn ask(&self, room: &Room<'_>, stop: &(dyn Fn() -> bool + Sync)) -> Result<Option<Verified>> {
        let subject = Subject {
            verifier: &self.verifier,
            task: self.task,
            report: self.report,
            queue: &self.place.queue,
            slug: &self.place.slug,
            task_title: &self.task_title,
            task_body: self.task_body.as_deref(),
            report_title: &self.report_title,
            report_body: self.report_body.as_deref(),
        };
        let guard = Some(this_program().map_err(Error::io("finding the program that runs"))?);
        let (unset, context) = (room.unset, room.context);
        let terms = Terms { unset, context, guard, ..Terms::new(room.allow, room.timeout, room.dir) };
        let judgement =
            match verify(&subject, &terms, stop).map_err(|error| Error::Verifier(self.place.clone(), error))? {
                Outcome::Judged(judgement) => judgement,
                Outcome::Stopped => return Ok(None),
            };
        let (has_passed, timed_out) = (judgement.passed(), judgement.timed_out);
        let verified = Verified { report: self.report, verification: judgement.into_verification(&self.verifier) };
        match has_passed {
            true => Ok(Some(verified)),
            false => Err(Error::VerifierFailed { place: self.place.clone(), verified: Box::new(verified), timed_out }),
        }
    }

    /// As if it had passed: for asking whether anything else speaks against closing the task.
    pub fn as_passed(&self) -> Verified {
        self.judged(0)
    }

    /// Recorded instead, where the verifier is skipped.
    pub fn as_skipped(&self) -> Verified {
        self.judged(SKIPPED)
    }

    fn judged(&self, exit: i32) -> Verified {
        let verifier = self.verifier.clone();
        Verified { report: self.report, verification: Verification { verifier, exit, summary: None } }
    }
}

/// Whether this machine would ask the verifier of a task.
///
/// # Errors
/// `Verifier`, with the line to add.
pub fn is_permitted(state: &TaskState, allow: &[String]) -> Result<()> {
    match &state.task.verifier {
        Some(verifier) if Form::of(verifier).is_command() => {
            allow::permit(verifier, allow).map_err(|not| Error::Verifier(place(state), VerifierError::NotAllowed(not)))
        }
        _ => Ok(()),
    }
}
