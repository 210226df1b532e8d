//! New tasks: what they take over from their parents, and that nobody waits for them in a circle.

use super::append::{Appended, slug_taken, vanished};
use super::find::Found;
use super::graph::Reliance;
use super::resolve::place;
use super::{Ledger, Reach};
use crate::error::{Error, Result};
use crate::id::{Queue, RecordId, RefName, Slug, TASKS, TaskId};
use crate::protocol::decide;
use crate::protocol::graph::{Graph, Waits, claim_order};
use crate::protocol::record::{Record, Task};
use crate::protocol::state::TaskState;
use crate::store::{Mode, Swap};

/// How often a creation is tried again since the status of its parent changed meanwhile.
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
        self.check_order(&new.task)?;
        if let Reach::Through(authority) = self.reach {
            return authority.create(self, new);
        }
        let name = RefName::of_task(&new.task.queue, &new.task.slug);
        for _ in 0..ATTEMPTS_MAX {
            // Only a courtesy that saves objects: the compare-and-swap below decides.
            if let Some(state) = self.state(&name)? {
                return Err(slug_taken(&state));
            }
            let parent = self.adopt(&mut new)?;
            let (after, records) = self.write_creation(&new)?;
            let mut shards = vec![(name.shard(), Mode::Exclusive)];
            shards.extend(parent.iter().map(|parent| (parent.name.shard(), Mode::Shared)));
            let absent = || Ok(self.store.tip(&name)?.is_none());
            let swap = match self.store.lock_while(&shards, &absent)? {
                Some(_) if !self.is_as_seen(parent.as_ref())? => continue,
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
        take_over(&mut new.task, &parent.state, new.replan_of.is_some())?;
        Ok(Some(parent))
    }

    /// The task with this id.
    pub(crate) fn find_by_task_id(&self, id: TaskId) -> Result<Option<Found>> {
        self.read_by_id(id, &mut Reliance::default())
    }

    /// Refuses a task that would wait for something that waits for it: one with a parent and dependencies may.
    fn check_order(&self, task: &Task) -> Result<()> {
        if task.parent.is_none() || task.depends_on.is_empty() {
            return Ok(());
        }
        let scan = self.scan(TASKS)?;
        let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
        let mut waits = waits_of(&graph);
        waits.push(waits_for(&graph, task));
        let name = |at: usize| match graph.tasks().get(at) {
            Some(state) => place(state).to_string(),
            None => format!("{}/{}", task.queue, task.slug),
        };
        claim_order(&waits).map(drop).map_err(|circle| circular(&circle, name))
    }

    /// Writes both records of a new task.
    pub(crate) fn write_creation(&self, new: &NewTask) -> Result<(TaskState, Vec<(RecordId, Record)>)> {
        let drafts = decide::creation(self.agent, new.task.clone(), new.body.clone(), new.replan_of);
        self.write(None, drafts.into())
    }
}

/// What the tasks that exist wait for.
pub(super) fn waits_of(graph: &Graph<'_>) -> Vec<Waits> {
    let waits = |at| Waits { parent: graph.parent(at), depends_on: graph.dependencies(at).to_vec() };
    (0..graph.tasks().len()).map(waits).collect()
}

/// What a new task waits for, among those that exist.
fn waits_for(graph: &Graph<'_>, task: &Task) -> Waits {
    Waits {
        parent: task.parent.and_then(|id| graph.here(id)),
        depends_on: task.depends_on.iter().filter_map(|id| graph.here(*id)).collect(),
    }
}

/// The refusal of a circle.
pub(super) fn circular(circle: &[usize], name: impl Fn(usize) -> String) -> Error {
    let names: Vec<_> = circle.iter().chain(circle.first()).map(|at| name(*at)).collect();
    Error::InvalidGraph(format!("the plan has a cycle, nothing was written: {}", names.join(" -> ")))
}

/// Makes a task a child of `parent`, which exists: it is spawned at the status that the parent has now, and takes over
/// what is the parent's.
///
/// # Errors
/// As [`check_parent`].
pub(super) fn take_over(task: &mut Task, parent: &TaskState, despite_closed: bool) -> Result<()> {
    check_parent(&task.queue, &task.slug, parent, despite_closed)?;
    task.spawned_at = parent.status.as_ref().map(|status| status.id);
    task.sticky |= parent.task.sticky;
    if task.workdir.is_none() {
        task.workdir.clone_from(&parent.task.workdir);
    }
    Ok(())
}

/// Whether a task can be the parent of a new one.
///
/// # Errors
/// `InvalidGraph` for a parent in another queue, or one that is closed (but `despite_closed`); `ParentWithoutStatus`.
pub fn check_parent(queue: &Queue, slug: &Slug, parent: &TaskState, despite_closed: bool) -> Result<()> {
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
    let then = match parent.superseded_by() {
        Some(successor) => format!("its successor is task {successor}"),
        None => "`pm replan` opens it again".to_owned(),
    };
    Err(Error::InvalidGraph(format!("{child} cannot be a child of {place}, which is {phase}; {then}")))
}
