//! What tasks depend on, read from the ledger (rule 8).

use std::collections::HashMap;

use super::Ledger;
use super::find::Found;
use super::resolve::place;
use crate::error::{Error, Result};
use crate::id::{RecordId, RefName, TaskId};
use crate::protocol::record::{Content, Phase};
use crate::protocol::refusal::Unmet;
use crate::protocol::state::TaskState;
use crate::store::StoreError;

/// How many times a superseded task is followed to its successor before the chain of successors is called
/// damaged: nobody replans one task so often.
pub const SUCCESSORS_MAX: usize = 64;

/// What a task's dependencies looked like when they were read.
#[derive(Debug, Default)]
pub struct Dependencies {
    /// Those that are not done.
    pub unmet: Vec<Unmet>,
    /// Every ref that was read, with the tip that it had.
    pub read: Vec<(RefName, RecordId)>,
}

impl Ledger<'_> {
    /// Reads the dependencies of a task: where each stands now.
    pub fn dependencies(&self, ids: &[TaskId]) -> Result<Dependencies> {
        let mut out = Dependencies::default();
        for id in ids {
            match self.successor(*id, &mut out.read)? {
                Some(found) if found.state.phase() == Some(Phase::Done) => {}
                found => out.unmet.push(unmet(*id, found.as_ref().map(|found| &found.state))),
            }
        }
        Ok(out)
    }

    /// The task that stands for `id` now: itself, or what superseded it. `None` where it cannot be found.
    fn successor(&self, id: TaskId, read: &mut Vec<(RefName, RecordId)>) -> Result<Option<Found>> {
        let mut id = id;
        for _ in 0..SUCCESSORS_MAX {
            let Some(name) = self.ref_of(id)? else { return Ok(None) };
            let Some(state) = self.state(&name)? else { return Ok(None) };
            if state.id != id {
                return Ok(None);
            }
            read.push((name.clone(), state.tip));
            match superseded_by(&state) {
                Some(next) => id = next,
                None => return Ok(Some(Found { name, state })),
            }
        }
        Ok(None)
    }

    /// The ref that a task id leads to, in one object read.
    pub(crate) fn ref_of(&self, id: TaskId) -> Result<Option<RefName>> {
        let commit = match self.store.read_commit(id.0) {
            Ok(commit) => commit,
            Err(StoreError::Missing { .. } | StoreError::Damaged { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(match crate::protocol::codec::decode(&commit).map(|record| record.content) {
            Ok(Content::Task(task)) => Some(RefName::of_task(&task.queue, &task.slug)),
            _ => None,
        })
    }
}

/// The task that superseded this one, if one did.
pub fn superseded_by(state: &TaskState) -> Option<TaskId> {
    state.status.as_ref()?.status.superseded_by
}

fn unmet(id: TaskId, state: Option<&TaskState>) -> Unmet {
    Unmet {
        task: id,
        place: state.map(place).map(|place| (place.queue, place.slug)),
        phase: state.and_then(TaskState::phase),
    }
}

/// The dependencies of many tasks, from one scan. Tasks outside of it are read one by one, each once.
pub struct Graph<'a> {
    ledger: &'a Ledger<'a>,
    scanned: HashMap<TaskId, &'a TaskState>,
    elsewhere: HashMap<TaskId, Option<Unmet>>,
    /// The first failure of the system; the answers after it mean nothing.
    failure: Option<Error>,
}

impl<'a> Graph<'a> {
    /// A graph over the scanned tasks.
    pub fn new(ledger: &'a Ledger<'a>, tasks: &'a [(RefName, TaskState)]) -> Graph<'a> {
        let scanned = tasks.iter().map(|(_, state)| (state.id, state)).collect();
        Graph { ledger, scanned, elsewhere: HashMap::new(), failure: None }
    }

    /// The dependencies among `ids` that are not done.
    pub fn unmet(&mut self, ids: &[TaskId]) -> Vec<Unmet> {
        ids.iter().filter_map(|id| self.unmet_one(*id)).collect()
    }

    fn unmet_one(&mut self, id: TaskId) -> Option<Unmet> {
        let mut successor = id;
        for _ in 0..SUCCESSORS_MAX {
            let Some(state) = self.scanned.get(&successor) else { return self.unmet_elsewhere(id) };
            match superseded_by(state) {
                Some(next) => successor = next,
                None if state.phase() == Some(Phase::Done) => return None,
                None => return Some(unmet(id, Some(state))),
            }
        }
        Some(unmet(id, None))
    }

    fn unmet_elsewhere(&mut self, id: TaskId) -> Option<Unmet> {
        if let Some(known) = self.elsewhere.get(&id) {
            return known.clone();
        }
        let answer = match self.ledger.dependencies(&[id]) {
            Ok(mut dependencies) => dependencies.unmet.pop(),
            // A dependency that cannot be read is not done; which one, `verify` says.
            Err(Error::Damaged { .. } | Error::Store(StoreError::BrokenRef { .. })) => Some(unmet(id, None)),
            Err(error) => {
                self.failure.get_or_insert(error);
                Some(unmet(id, None))
            }
        };
        self.elsewhere.insert(id, answer.clone());
        answer
    }

    /// Ends the questions.
    ///
    /// # Errors
    /// The first failure of the system that met one of them.
    pub fn finish(self) -> Result<()> {
        self.failure.map_or(Ok(()), Err)
    }
}
