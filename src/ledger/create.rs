//! New tasks, and what they take over from their parents. That nobody waits for them in a circle is in [`order`](super::order).

use super::append::{Appended, pause, slug_taken, vanished};
use super::find::Found;
use super::graph::Reliance;
use super::order::Ordered;
use super::resolve::place;
use super::{Ledger, Reach};
use crate::error::{Error, Result};
use crate::id::{Queue, RecordId, RefName, Slug, TaskId};
use crate::protocol::decide;
use crate::protocol::record::{Phase, Record, Task};
use crate::protocol::state::TaskState;
use crate::store::{Mode, Swap};

/// How often a creation is tried again since the status of its parent changed meanwhile, or what it was checked against.
const ATTEMPTS_MAX: u32 = 40;

/// A task that is to be created.
#[derive(Debug, Clone)]
pub struct NewTask {
    /// Its definition. What it takes over from its parent is seen to when it is created.
    pub task: Task,
    /// Its text.
    pub body: Option<String>,
    /// The task that it is to replace.
    pub replan_of: Option<TaskId>,
}

impl Ledger<'_> {
    /// Creates a task: both of its first records, with one creation of its ref. Under the locks of the parent, so that
    /// the parent cannot finish meanwhile (rule 9).
    ///
    /// # Errors
    /// `SlugTaken`, naming the task that has the slug; `InvalidGraph` and `ParentWithoutStatus` for a parent that cannot
    /// be one; `InvalidGraph` where tasks would wait for each other.
    pub fn create(&self, mut new: NewTask) -> Result<Appended> {
        if let Reach::Through(authority) = self.reach {
            return authority.create(self, new);
        }
        let name = RefName::of_task(&new.task.queue, &new.task.slug);
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 {
                pause(attempt);
            }
            let ordered = self.check_order(&new.task)?;
            // Only a courtesy that saves objects: the compare-and-swap below decides.
            if let Some(state) = self.state(&name)? {
                return Err(slug_taken(&state));
            }
            let parent = self.adopt(&mut new)?;
            let (after, records) = self.write_creation(&new)?;
            let mut shards = vec![(name.shard(), Mode::Exclusive)];
            shards.extend(parent.iter().map(|parent| (parent.name.shard(), Mode::Shared)));
            shards.extend(ordered.iter().map(Ordered::shard));
            let absent = || Ok(self.store.tip(&name)?.is_none());
            let swap = match self.store.lock_while(&shards, &absent)? {
                Some(_) if !self.is_as_seen(parent.as_ref())? || !self.is_still_ordered(ordered.as_ref())? => continue,
                Some(held) => self.store.compare_and_swap(&held, &name, None, after.tip.0)?,
                None => Swap::HeadMoved { actual: self.store.tip(&name)? },
            };
            return match swap {
                Swap::Done => Ok(self.appended(after, records)),
                Swap::HeadMoved { .. } => {
                    let winner = self.state(&name)?.ok_or_else(|| vanished(&name, after.tip))?;
                    Err(slug_taken(&winner))
                }
            };
        }
        Err(Error::BatchRaced { times: ATTEMPTS_MAX })
    }

    /// Whether the status of a parent is the one that was read.
    pub(super) fn is_as_seen(&self, parent: Option<&Found>) -> Result<bool> {
        let Some(Found { name, state }) = parent else { return Ok(true) };
        let status = |state: &TaskState| state.status.as_ref().map(|at| at.id);
        Ok(self.state(name)?.as_ref().and_then(status) == status(state))
    }

    /// Reads the parent of a new task, if it has one, and lets it take over what is the parent's.
    ///
    /// # Errors
    /// As [`Ledger::create`].
    pub(crate) fn adopt(&self, new: &mut NewTask) -> Result<Option<Found>> {
        let Some(id) = new.task.parent else { return Ok(None) };
        let unknown = || Error::InvalidGraph(format!("the parent {id} of {} cannot be found", new.task.slug));
        let parent = self.find_by_task_id(id)?.ok_or_else(unknown)?;
        // A task that replaces another one takes its place, also under a parent that is closed.
        self.take_over(&mut new.task, &parent.state, new.replan_of.is_some())?;
        Ok(Some(parent))
    }

    /// The task with this id.
    pub(crate) fn find_by_task_id(&self, id: TaskId) -> Result<Option<Found>> {
        self.read_by_id(id, &mut Reliance::default())
    }

    /// Writes both records of a new task.
    pub(crate) fn write_creation(&self, new: &NewTask) -> Result<(TaskState, Vec<(RecordId, Record)>)> {
        let drafts = decide::creation(self.agent, new.task.clone(), new.body.clone(), new.replan_of);
        self.write(None, drafts.into())
    }
}

impl Ledger<'_> {
    /// Makes a task a child of `parent`, which exists: it is spawned at the status that the parent has now, and takes over
    /// what is the parent's.
    ///
    /// # Errors
    /// As [`Ledger::check_parent`].
    pub(super) fn take_over(&self, task: &mut Task, parent: &TaskState, despite_closed: bool) -> Result<()> {
        self.check_parent(&task.queue, &task.slug, parent, despite_closed)?;
        task.spawned_at = parent.status.as_ref().map(|status| status.id);
        inherit(task, &parent.task);
        Ok(())
    }

    /// Whether a task can be the parent of a new one.
    ///
    /// # Errors
    /// `InvalidGraph` for a parent in another queue, or one that is closed (but `despite_closed`); `ParentWithoutStatus`.
    pub fn check_parent(&self, queue: &Queue, slug: &Slug, parent: &TaskState, despite_closed: bool) -> Result<()> {
        let (child, place) = (format!("{queue}/{slug}"), place(parent));
        if parent.task.queue != *queue {
            return Err(Error::InvalidGraph(format!(
                "{child} cannot be a child of {place}: a parent and its children share a queue (a dependency may be in another one)"
            )));
        }
        let Some(phase) = parent.phase() else { return Err(Error::ParentWithoutStatus { place }) };
        if !phase.is_settled() || despite_closed {
            return Ok(());
        }
        let then = self.instead_of(parent)?;
        Err(Error::InvalidGraph(format!("{child} cannot be a child of {place}, which is {phase}; {then}")))
    }

    /// Refuses a dependency that can never be done (commands.md, `plan`).
    ///
    /// # Errors
    /// `InvalidGraph` for a rejected or superseded one.
    pub fn check_dependency(&self, state: &TaskState) -> Result<()> {
        match state.phase() {
            Some(phase @ (Phase::Rejected | Phase::Superseded)) => {
                let then = self.instead_of(state)?;
                Err(Error::InvalidGraph(format!("a task cannot depend on {}: it is {phase}; {then}", place(state))))
            }
            _ => Ok(()),
        }
    }

    /// What to name instead of a closed task.
    fn instead_of(&self, closed: &TaskState) -> Result<String> {
        let Some(next) = closed.superseded_by() else { return Ok("`pm replan` opens it again".to_owned()) };
        Ok(match self.successor(next, &mut Reliance::default())? {
            Some(found) => format!("its successor is {}, task {}", place(&found.state), found.state.id),
            None => format!("its successor is task {next}"),
        })
    }
}

/// Lets a task take over what is its parent's (commands.md, `plan`): a part of a sticky task is sticky, whatever it says
/// itself, and it is worked on where the parent is, unless it says where.
pub(super) fn inherit(task: &mut Task, parent: &Task) {
    task.sticky |= parent.sticky;
    if task.workdir.is_none() {
        task.workdir.clone_from(&parent.workdir);
    }
}
