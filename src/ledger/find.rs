//! From what a person typed to a task (design, section 2).
//!
//! Tried in this order: the full id, `<queue>/<slug>`, an exact slug in the queue, a prefix of four or more
//! digits that is unique among the tasks of the ledger. Nothing ever matches a substring.

use super::append::vanished;
use super::resolve::place;
use super::{Ledger, Reach};
use crate::error::{Error, Result};
use crate::id::{NameError, Oid, Queue, RecordId, RefName, Slug, TASKS, TaskId, shown};
use crate::protocol::codec;
use crate::protocol::record::{Content, Record};
use crate::protocol::state::TaskState;
use crate::store::StoreError;

/// The fewest digits that a prefix may have.
const PREFIX_MIN: usize = 4;

/// A task and its ref.
#[derive(Debug, Clone)]
pub struct Found {
    /// The ref.
    pub name: RefName,
    /// The state at its tip.
    pub state: TaskState,
}

impl Ledger<'_> {
    /// Finds the task that `asked` names; a bare slug is looked up in `queue`. What is not known here may be at the
    /// authority, if the ledger reaches so far.
    ///
    /// # Errors
    /// `UnknownTask`, with the candidates where there are several.
    pub fn find(&self, asked: &str, queue: &Queue) -> Result<Found> {
        match (self.find_here(asked, queue), self.reach) {
            (Err(Error::UnknownTask { candidates, .. }), Reach::Through(authority)) if candidates.is_empty() => {
                authority.catch_up(self, TASKS)?;
                self.find_here(asked, queue)
            }
            (found, _) => found,
        }
    }

    /// The task as the authority has it now, where there is one, and with it the others below `prefix`: what was last known
    /// here is no reason to start anything, nor to refuse it. What was left on its way is settled first.
    ///
    /// # Errors
    /// `AnswerLost` while that is not known; `Unreachable`.
    pub fn caught_up(&self, found: &Found, prefix: &str) -> Result<Found> {
        let Reach::Through(authority) = self.reach else { return Ok(found.clone()) };
        authority.read(self, &found.name)?;
        authority.catch_up(self, prefix)?;
        let state = self.state(&found.name)?.ok_or_else(|| vanished(&found.name, found.state.tip))?;
        Ok(Found { name: found.name.clone(), state })
    }

    fn find_here(&self, asked: &str, queue: &Queue) -> Result<Found> {
        let mut no_id = None;
        if let Ok(id) = asked.parse::<Oid>() {
            match self.find_by_id(asked, TaskId(id)) {
                // A slug may look like an id.
                Err(error @ Error::UnknownTask { .. }) => no_id = Some(error),
                result => return result,
            }
        }
        if let Some((queue, slug)) = asked.split_once('/') {
            let wrong = |error: NameError| unknown(asked, &error.to_string());
            let name = RefName::of_task(&queue.parse().map_err(wrong)?, &slug.parse().map_err(wrong)?);
            return self
                .state(&name)?
                .map(|state| Found { name, state })
                .ok_or_else(|| unknown(asked, "there is none"));
        }
        if let Ok(slug) = asked.parse::<Slug>() {
            let name = RefName::of_task(queue, &slug);
            if let Some(state) = self.state(&name)? {
                return Ok(Found { name, state });
            }
        }
        if let Some(error) = no_id {
            return Err(error);
        }
        let digits = asked.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if digits && asked.len() >= PREFIX_MIN {
            return self.find_by_prefix(asked, queue);
        }
        Err(unknown(
            asked,
            &format!("there is no such slug in queue {queue}, and it is no id (4 or more digits); `pm list` shows all"),
        ))
    }

    fn find_by_id(&self, asked: &str, id: TaskId) -> Result<Found> {
        let commit = match self.store.read_commit(id.0) {
            Ok(commit) => commit,
            Err(StoreError::Missing { .. } | StoreError::Damaged { .. }) => {
                return Err(unknown(asked, "this repository has no such record"));
            }
            Err(error) => return Err(error.into()),
        };
        let record = match codec::decode(&commit) {
            Ok(record) => record,
            Err(error) => return Err(unknown(asked, &format!("that commit is not a task: {error}"))),
        };
        let Record { content: Content::Task(task), .. } = record else {
            let of = record.links.task.map_or(String::new(), |task| format!(" of task {task}"));
            return Err(unknown(asked, &format!("that is a {}{of}, not a task", record.content.kind())));
        };
        let name = RefName::of_task(&task.queue, &task.slug);
        match self.state(&name)? {
            Some(state) if state.id == id => Ok(Found { name, state }),
            Some(state) => {
                let winner = state.id;
                Err(unknown(
                    asked,
                    &format!("its creation lost the race for {}, which is task {winner}", place(&state)),
                ))
            }
            None => Err(unknown(asked, &format!("its creation never completed ({name} does not exist)"))),
        }
    }

    fn find_by_prefix(&self, asked: &str, queue: &Queue) -> Result<Found> {
        let mut found = Vec::new();
        for id in self.store.commits_with_prefix(asked)? {
            match self.find_by_id(asked, RecordId(id).as_task()) {
                Ok(task) => found.push(task),
                // Most objects that share a prefix are no tasks.
                Err(Error::UnknownTask { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        match found.len() {
            0 => Err(unknown(asked, &format!("there is no such slug in queue {queue}, and no task id begins with it"))),
            1 => Ok(found.remove(0)),
            several => {
                let named: Vec<_> =
                    found.iter().map(|task| format!("{} {}", task.state.id, place(&task.state))).collect();
                Err(Error::UnknownTask {
                    asked: shown(asked),
                    because: format!("{several} task ids begin with it:\n  {}", named.join("\n  ")),
                    candidates: found.iter().map(|task| task.state.id).collect(),
                })
            }
        }
    }
}

fn unknown(asked: &str, because: &str) -> Error {
    Error::UnknownTask { asked: shown(asked), because: because.to_owned(), candidates: Vec::new() }
}
