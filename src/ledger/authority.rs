//! The authority, as the ledger sees it: the remote whose refs decide, when the ledger is shared between machines
//! (design, section 7). `sync` implements it.

use std::collections::{BTreeMap, BTreeSet};

use super::Ledger;
use super::append::{Along, Appended};
use super::create::NewTask;
use super::find::Found;
use crate::error::Result;
use crate::id::{Oid, RefName};
use crate::protocol::decide::Intent;
use crate::protocol::lease::Reading;
use crate::protocol::state::TaskState;
use crate::store::lock::Held;

/// Writes records so that they count everywhere, or not at all. Every method fails with `Unreachable` where nothing was
/// sent, and with `AnswerLost` where a record was sent and its fate is not known.
pub trait Authority {
    /// Carries out an intent as [`Ledger::append_along`] does; the branch moves at the authority.
    ///
    /// # Errors
    /// As [`Ledger::append_along`], and `Distrusted` where what the authority has cannot be believed.
    fn append(&self, ledger: &Ledger<'_>, found: Found, intent: Intent, branch: Option<&Along<'_>>)
    -> Result<Appended>;

    /// Creates a task as [`Ledger::create`] does.
    ///
    /// # Errors
    /// As [`Ledger::create`].
    fn create(&self, ledger: &Ledger<'_>, new: NewTask) -> Result<Appended>;

    /// Reads one task from the authority. `None` where it has no such task.
    ///
    /// # Errors
    /// `Distrusted`.
    fn read(&self, ledger: &Ledger<'_>, name: &RefName) -> Result<Option<TaskState>>;

    /// Reads all tasks below `prefix` from the authority, for a sweep, which counts this machine's own records: they are
    /// pushed first, but in a dry run.
    ///
    /// # Errors
    /// `Unreachable`. What is wrong with single tasks is in the survey.
    fn survey(&self, ledger: &Ledger<'_>, prefix: &str, dry_run: bool, stop: &dyn Fn() -> bool) -> Result<Survey>;

    /// Keeps the other processes of this repository from moving the status of tasks that a batch relies on, until it is
    /// published; where it could make a circle (`is_ordered`), also from planning what could make one with it.
    ///
    /// # Errors
    /// `Locked` where another process does not come to an end.
    fn hold(&self, ledger: &Ledger<'_>, names: &BTreeSet<RefName>, is_ordered: bool) -> Result<Held>;

    /// Creates the refs of new tasks at the authority: all, or none where one of them exists (`false`). The caller
    /// publishes them here. A batch whose answer was lost is simply planned again: what is there by then counts as done.
    ///
    /// # Errors
    /// `Unreachable`, `AnswerLost`.
    fn publish(&self, ledger: &Ledger<'_>, refs: &[(RefName, Oid)]) -> Result<bool>;

    /// Notes that the authority has what was just published there and here.
    ///
    /// # Errors
    /// Failures of the system.
    fn published(&self, ledger: &Ledger<'_>, refs: &[(RefName, Oid)]) -> Result<()>;

    /// The tasks below `prefix` which this agent holds, and of which something got in whose answer was lost: perhaps the very
    /// claim that is asked for again.
    ///
    /// # Errors
    /// Failures of the system.
    fn unanswered(&self, ledger: &Ledger<'_>, prefix: &str) -> Result<Vec<Found>>;

    /// Brings everything here that the authority has, and takes it over where nothing speaks against it.
    ///
    /// # Errors
    /// Failures of the system; what is wrong with single tasks does not stop it.
    fn catch_up(&self, ledger: &Ledger<'_>, prefix: &str) -> Result<()>;
}

/// What a reading of the authority found.
#[derive(Debug, Default)]
pub struct Survey {
    /// This machine's clock around the reading.
    pub reading: Option<Reading>,
    /// Where each task is there, as far as it is believed.
    pub tips: BTreeMap<RefName, Oid>,
    /// Tasks whose tip moved here.
    pub taken: usize,
    /// Tasks whose records were pushed.
    pub pushed: usize,
    /// Tasks of which something was recorded here and lost.
    pub lost: usize,
    /// What was left alone, in words.
    pub troubles: Vec<String>,
}
