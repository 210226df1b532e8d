//! From a ref to the state of its task, in at most four object reads.

use super::Ledger;
use crate::commit::Commit;
use crate::error::{Error, Place, Result};
use crate::id::{RecordId, RefName, TASKS};
use crate::protocol::codec::{self, DecodeError};
use crate::protocol::record::Record;
use crate::protocol::state::{self, BrokenLink, TaskState};
use crate::store::StoreError;

/// A task whose chain cannot be read: named, never skipped in silence.
#[derive(Debug)]
pub struct Damage {
    /// The ref.
    pub name: RefName,
    /// What is wrong.
    pub error: Error,
}

/// All tasks below a prefix, and the ones that cannot be read.
#[derive(Debug, Default)]
pub struct Scan {
    /// The readable tasks, by ref name.
    pub tasks: Vec<(RefName, TaskState)>,
    /// The others.
    pub damaged: Vec<Damage>,
}

/// Why a record cannot be read.
enum Fault {
    Store(StoreError),
    Decode(RecordId, DecodeError),
    Link(BrokenLink),
}

impl From<BrokenLink> for Fault {
    fn from(link: BrokenLink) -> Self {
        Fault::Link(link)
    }
}

impl Fault {
    /// Turns it into the error of the task at `name`.
    fn at(self, name: &RefName, tip: RecordId) -> Error {
        let damaged = |commit, found: String| Error::Damaged { name: name.clone(), commit, found };
        match self {
            Fault::Store(StoreError::Missing { id }) => damaged(RecordId(id), "the object is missing".to_owned()),
            Fault::Store(StoreError::Damaged { id, found }) => damaged(RecordId(id), found),
            Fault::Store(other) => Error::Store(other),
            Fault::Decode(commit, error) => damaged(commit, error.to_string()),
            Fault::Link(link) if link.record == tip => damaged(tip, link.found),
            Fault::Link(link) => damaged(link.record, link.found),
        }
    }
}

impl Ledger<'_> {
    fn try_record(&self, id: RecordId) -> std::result::Result<Record, Fault> {
        let commit = self.store.read_commit(id.0).map_err(Fault::Store)?;
        codec::decode(&commit).map_err(|error| Fault::Decode(id, error))
    }

    /// One record of the task at `name`.
    ///
    /// # Errors
    /// `Damaged` where it is missing or no record.
    pub fn record(&self, name: &RefName, id: RecordId) -> Result<Record> {
        self.try_record(id).map_err(|fault| fault.at(name, id))
    }

    /// The record of a commit that has been read already.
    pub(super) fn decode(&self, name: &RefName, id: RecordId, commit: &Commit) -> Result<Record> {
        codec::decode(commit).map_err(|error| Fault::Decode(id, error).at(name, id))
    }

    /// The state of the task at `name`; `None` where there is no such ref.
    pub fn state(&self, name: &RefName) -> Result<Option<TaskState>> {
        match self.store.tip(name)? {
            Some(tip) => self.state_at(name, RecordId(tip)).map(Some),
            None => Ok(None),
        }
    }

    /// The state of the task at `name`, whose tip was read already.
    pub fn state_at(&self, name: &RefName, tip: RecordId) -> Result<TaskState> {
        let state = self
            .try_record(tip)
            .and_then(|record| state::from_tip(tip, &record, |id| self.try_record(id)))
            .map_err(|fault| fault.at(name, tip))?;
        self.check_place(name, &state)?;
        Ok(state)
    }

    /// A chain is valid only under the ref that its own Task record names (design, section 2).
    pub(super) fn check_place(&self, name: &RefName, state: &TaskState) -> Result<()> {
        let named = RefName::of_task(&state.task.queue, &state.task.slug);
        if named == *name {
            return Ok(());
        }
        let found = format!("its chain belongs to {named}, this ref is a second one for it");
        Err(Error::Damaged { name: name.clone(), commit: state.tip, found })
    }

    /// Reads every task below `prefix` (which ends in `/`).
    pub fn scan(&self, prefix: &str) -> Result<Scan> {
        let mut scan = Scan::default();
        for (name, tip) in self.store.tips(prefix)? {
            let state = match tip {
                Ok(tip) => self.state_at(&name, RecordId(tip)),
                Err(error) => Err(Error::Store(error)),
            };
            match state {
                Ok(state) => scan.tasks.push((name, state)),
                // A failure of the system is not the task's fault: it ends the listing.
                Err(error @ (Error::Damaged { .. } | Error::Store(StoreError::BrokenRef { .. }))) => {
                    scan.damaged.push(Damage { name, error });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(scan)
    }
}

/// The prefix of the refs of a queue, or of all tasks.
pub fn prefix(queue: Option<&crate::id::Queue>) -> String {
    match queue {
        Some(queue) => RefName::queue_prefix(queue),
        None => TASKS.to_owned(),
    }
}

/// The place of a task.
pub fn place(state: &TaskState) -> Place {
    Place { queue: state.task.queue.clone(), slug: state.task.slug.clone() }
}
