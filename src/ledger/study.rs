//! What is wrong with a batch, and what its tasks will be, found out by reading alone: all faults at once, so that a plan
//! needs to be mended only once.
//!
//! What must never happen here: something is written.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::Ledger;
use super::batch::{Named, Planned};
use super::create::inherit;
use super::find::Found;
use super::order::{Order, Ordered};
use super::resolve::{place, prefix};
use crate::error::{Error, Fault, FaultKind, Result};
use crate::id::{Oid, Queue, RecordId, RefName, Slug, TaskId};
use crate::protocol::record::Task;
use crate::protocol::state::TaskState;

/// What is known of a batch before anything of it is written. By index, where there is one a task.
pub(super) struct Study {
    /// The definitions of those that are to be created. They have no ids yet: [`unborn`] stands for them.
    pub(super) tasks: Vec<Option<Task>>,
    /// Those that exist already.
    pub(super) there: Vec<Option<TaskState>>,
    /// In which order they can be created.
    pub(super) order: Vec<usize>,
    /// What that was judged by, if others could change it.
    pub(super) ordered: Option<Ordered>,
    /// The tasks that exist and become parents of new ones.
    pub(super) parents: Vec<Found>,
}

impl Ledger<'_> {
    /// All that is wrong with a batch, as far as this repository knows.
    ///
    /// # Errors
    /// What cannot be read.
    pub fn faults(&self, queue: &Queue, batch: &[Planned], accept_existing: bool) -> Result<Vec<Fault>> {
        Ok(self.study(queue, batch, accept_existing)?.1)
    }

    /// Studies a batch; it can be created if there are no faults.
    pub(super) fn study(&self, queue: &Queue, batch: &[Planned], accept_existing: bool) -> Result<(Study, Vec<Fault>)> {
        let mut faults = repeated_slugs(batch);
        let Order { order, ordered, circles } = self.batch_order(queue, batch)?;
        faults.extend(circles);
        let names: Vec<_> = batch.iter().map(|planned| RefName::of_task(queue, &planned.slug)).collect();
        let there = self.those_there(queue, &names)?;
        let now = self.clock.wall_micros();
        let mut parents: HashMap<TaskId, Found> = HashMap::new();
        let mut tasks: Vec<Option<Task>> = vec![None; batch.len()];
        for &index in &order {
            let planned = &batch[index];
            let mut fault = |kind, found| faults.push(Fault { spot: planned.spot.clone(), kind, found });
            let id_of = |named: &Named| match named {
                Named::Task(id) => *id,
                Named::Batch(other) => there[*other].as_ref().map_or_else(unborn, |state| state.id),
            };
            // A microsecond a task keeps the order of the input.
            let mut task = planned.task(queue, now + index as i64, id_of);
            let is_there = there[index].is_some();
            let adopted = match planned.parent {
                None => Ok(()),
                Some(Named::Batch(other)) => match (&there[other], &tasks[other]) {
                    (Some(state), _) => {
                        if !is_there {
                            let parent = || Found { name: names[other].clone(), state: state.clone() };
                            parents.entry(state.id).or_insert_with(parent);
                        }
                        self.take_over(&mut task, state, is_there)
                    }
                    (None, Some(parent)) => {
                        inherit(&mut task, parent);
                        Ok(())
                    }
                    // Only where they wait for each other, which is told already.
                    (None, None) => Ok(()),
                },
                Some(Named::Task(id)) => {
                    if let Entry::Vacant(parent) = parents.entry(id) {
                        let unknown = || Error::InvalidGraph(format!("the parent {id} cannot be found"));
                        parent.insert(self.find_by_task_id(id)?.ok_or_else(unknown)?);
                    }
                    self.take_over(&mut task, &parents[&id].state, is_there)
                }
            };
            told(adopted, &mut fault)?;
            match &there[index] {
                Some(_) if accept_existing => {}
                Some(state) => {
                    if let Some(differs) = self.difference(&names[index], state, &task, planned)? {
                        let found = format!("{} exists already, as task {}, and {differs}", place(state), state.id);
                        fault(FaultKind::Taken, found);
                    }
                }
                None => {
                    for named in &planned.depends_on {
                        // Those that exist by themselves were checked with the input.
                        if let Named::Batch(other) = named
                            && let Some(state) = &there[*other]
                        {
                            told(self.check_dependency(state), &mut fault)?;
                        }
                    }
                }
            }
            tasks[index] = (!is_there).then_some(task);
        }
        let parents = parents.into_values().collect();
        Ok((Study { tasks, there, order, ordered, parents }, faults))
    }

    /// Which tasks of a queue exist.
    fn those_there(&self, queue: &Queue, names: &[RefName]) -> Result<Vec<Option<TaskState>>> {
        let existing: HashMap<RefName, _> = self.store.tips(&prefix(Some(queue)))?.into_iter().collect();
        let state = |name| match existing.get(name) {
            Some(Ok(tip)) => self.state_at(name, RecordId(*tip)).map(Some),
            // Reads it again for the error, which cannot be cloned.
            Some(Err(_)) => self.state(name),
            None => Ok(None),
        };
        names.iter().map(state).collect()
    }

    /// How the definition of an existing task differs from a planned one: in any field of its Task record but
    /// `Created`, `Spawned-At`, author and nonce.
    fn difference(&self, name: &RefName, state: &TaskState, task: &Task, planned: &Planned) -> Result<Option<String>> {
        let mut differs = Vec::new();
        let there = &*state.task;
        if !there.is_same_definition(task) {
            for (field, differ) in [
                ("title", there.title != task.title),
                ("priority", there.priority != task.priority),
                ("parent", there.parent != task.parent),
                ("depends_on", there.depends_on != task.depends_on),
                ("verifier", there.verifier != task.verifier),
                ("sticky", there.sticky != task.sticky),
                ("workdir", there.workdir != task.workdir),
                ("labels", there.labels != task.labels),
            ] {
                if differ {
                    differs.push(field);
                }
            }
            if differs.is_empty() {
                differs.push("other fields of the definition");
            }
        }
        if self.record(name, state.id.record())?.body != planned.body {
            differs.push("text");
        }
        Ok((!differs.is_empty()).then(|| format!("differs in {}", differs.join(", "))))
    }
}

impl Planned {
    /// Its definition, but for what it takes over from a parent. `id_of` tells the ids of the tasks that it names.
    fn task(&self, queue: &Queue, created: i64, id_of: impl Fn(&Named) -> TaskId) -> Task {
        Task {
            queue: queue.clone(),
            slug: self.slug.clone(),
            title: self.title.clone(),
            created,
            priority: self.priority,
            depends_on: self.depends_on.iter().map(&id_of).collect(),
            parent: self.parent.as_ref().map(&id_of),
            spawned_at: None,
            verifier: self.verifier.clone(),
            sticky: self.sticky,
            workdir: self.workdir.clone(),
            ttl: None,
            max_attempts: None,
            labels: self.labels.clone(),
        }
    }
}

/// What stands for the id of a task that is not created yet: git's null id, which no object has.
fn unborn() -> TaskId {
    TaskId(Oid::from_bytes(&[0; 20]).expect("the length of an id"))
}

/// Makes a fault of what is wrong with the plan; what is wrong with the system is none.
fn told(checked: Result<()>, fault: &mut impl FnMut(FaultKind, String)) -> Result<()> {
    match checked {
        Err(error @ Error::InvalidGraph(_)) => fault(FaultKind::Graph, error.to_string()),
        Err(error @ Error::ParentWithoutStatus { .. }) => fault(FaultKind::ParentWithoutStatus, error.to_string()),
        checked => return checked,
    }
    Ok(())
}

/// Which tasks of a batch carry a slug that one before them has.
fn repeated_slugs(batch: &[Planned]) -> Vec<Fault> {
    let mut seen: HashMap<&Slug, &Planned> = HashMap::new();
    let mut faults = Vec::new();
    for planned in batch {
        if let Some(first) = seen.insert(&planned.slug, planned) {
            let found = format!("slug {} is that of {} already", planned.slug, first.spot.short());
            faults.push(Fault { spot: planned.spot.clone(), kind: FaultKind::Input, found });
        }
    }
    faults
}
