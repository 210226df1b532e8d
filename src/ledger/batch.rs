//! Planning many tasks at once: one pack, one rename of packed-refs, all or nothing (design, section 5).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::find::Found;
use super::order::Ordered;
use super::resolve::{place, prefix};
use super::{Ledger, Reach};
use crate::error::{Error, Result};
use crate::id::{Oid, Queue, RecordId, RefName, Slug, TaskId};
use crate::protocol::decide;
use crate::protocol::record::{Label, Priority, Task};
use crate::protocol::state::TaskState;
use crate::store::{Mode, Publish};

/// How often a batch is checked again because somebody else created one of its slugs meanwhile.
const ATTEMPTS_MAX: u32 = 5;

/// One task of a batch.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Its place in the input, for messages.
    pub line: usize,
    /// Its slug, unique in the batch.
    pub slug: Slug,
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: Option<String>,
    /// Its priority.
    pub priority: Priority,
    /// Its labels.
    pub labels: Vec<Label>,
    /// What must pass before it is done.
    pub verifier: Option<String>,
    /// Whether its first claim binds it to a context; its parent may say so, too.
    pub sticky: bool,
    /// Where the work must happen; else where its parent's must.
    pub workdir: Option<String>,
    /// The task that it is a part of.
    pub parent: Option<Named>,
    /// What it depends on.
    pub depends_on: Vec<Named>,
}

/// A task that a planned task names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Named {
    /// A task that exists.
    Task(TaskId),
    /// Another task of the batch, by its index.
    Batch(usize),
}

/// What became of one planned task.
#[derive(Debug, Clone)]
pub struct Placed {
    /// Its id.
    pub task: TaskId,
    /// Whether this batch created it; else it was there already.
    pub created: bool,
}

/// What became of a batch.
#[derive(Debug)]
pub struct Batched {
    /// In the order of the input.
    pub placed: Vec<Placed>,
    /// Refs that plain git created at the same moment: they hide the published ones.
    pub shadowed: Vec<RefName>,
}

impl Ledger<'_> {
    /// Creates all tasks of a batch, or none. `accept_existing` takes slugs that exist as they are, whatever
    /// their definition. `progress` is told how many tasks are built.
    ///
    /// # Errors
    /// `SlugsTaken` with every difference, `InvalidGraph` with a cycle; nothing was published.
    pub fn create_all(
        &self,
        queue: &Queue,
        batch: &[Planned],
        accept_existing: bool,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Batched> {
        for _ in 0..ATTEMPTS_MAX {
            if let Reach::Through(authority) = self.reach {
                authority.catch_up(self, &prefix(Some(queue)))?;
            }
            if let Some(batched) = self.try_create_all(queue, batch, accept_existing, progress)? {
                return Ok(batched);
            }
        }
        Err(Error::BatchRaced { times: ATTEMPTS_MAX })
    }

    /// One try; `None` when a slug was taken between the check and the publication, or what a parent or the order of the
    /// batch was judged by has changed.
    fn try_create_all(
        &self,
        queue: &Queue,
        batch: &[Planned],
        accept_existing: bool,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Option<Batched>> {
        let (order, ordered) = self.batch_order(queue, batch)?;
        let existing: HashMap<RefName, _> = self.store.tips(&prefix(Some(queue)))?.into_iter().collect();
        let now = self.clock.wall_micros();
        let mut pack = self.store.begin_pack()?;
        let mut built: Vec<Option<Built>> = batch.iter().map(|_| None).collect();
        let mut parents: HashMap<TaskId, Found> = HashMap::new();
        let mut refs = Vec::new();
        let mut differences = Vec::new();
        for (count, &index) in order.iter().enumerate() {
            let planned = &batch[index];
            let name = RefName::of_task(queue, &planned.slug);
            // What a task names was built before it: that is what the order is for.
            let id_of = |named: &Named| match named {
                Named::Task(id) => Some(*id),
                Named::Batch(other) => built[*other].as_ref().map(|built| built.state.id),
            };
            let mut task = Task {
                queue: queue.clone(),
                slug: planned.slug.clone(),
                title: planned.title.clone(),
                // A microsecond a line keeps the order of the input.
                created: now + index as i64,
                priority: planned.priority,
                depends_on: planned.depends_on.iter().filter_map(id_of).collect(),
                parent: planned.parent.as_ref().and_then(id_of),
                spawned_at: None,
                verifier: planned.verifier.clone(),
                sticky: planned.sticky,
                workdir: planned.workdir.clone(),
                ttl: None,
                max_attempts: None,
                labels: planned.labels.clone(),
            };
            let is_there = existing.contains_key(&name);
            match planned.parent {
                Some(Named::Batch(other)) => match &built[other] {
                    Some(Built { state, created }) => {
                        if !created && !is_there {
                            let name = RefName::of_task(queue, &batch[other].slug);
                            parents.insert(state.id, Found { name, state: state.clone() });
                        }
                        self.take_over(&mut task, state, is_there)
                    }
                    None => Ok(()),
                },
                Some(Named::Task(id)) => {
                    if let Entry::Vacant(parent) = parents.entry(id) {
                        let unknown = || Error::InvalidGraph(format!("the parent {id} cannot be found"));
                        parent.insert(self.find_by_task_id(id)?.ok_or_else(unknown)?);
                    }
                    self.take_over(&mut task, &parents[&id].state, is_there)
                }
                None => Ok(()),
            }
            .map_err(|error| at_line(planned.line, error))?;
            built[index] = Some(match existing.get(&name) {
                Some(Ok(tip)) => {
                    let state = self.state_at(&name, RecordId(*tip))?;
                    if !accept_existing && let Some(differs) = self.difference(&name, &state, &task, planned)? {
                        differences.push(format!("{} (task {}): {differs}", place(&state), state.id));
                    }
                    Built { state, created: false }
                }
                Some(Err(_)) => {
                    // Reads it again for the error, which cannot be cloned.
                    self.state(&name)?;
                    return Ok(None);
                }
                None => {
                    for named in &planned.depends_on {
                        // Those that exist by themselves were checked with the input.
                        if let Named::Batch(other) = named
                            && let Some(Built { state, created: false }) = &built[*other]
                        {
                            self.check_dependency(state).map_err(|error| at_line(planned.line, error))?;
                        }
                    }
                    let drafts = decide::creation(self.agent, task, planned.body.clone(), None);
                    let state = self.link(None, drafts.into(), |commit| Ok(pack.add(commit)?), |_, _| {})?;
                    refs.push((name, state.tip.0));
                    Built { state, created: true }
                }
            });
            progress(count + 1);
        }
        if !differences.is_empty() {
            return Err(Error::SlugsTaken { differences });
        }
        let placed =
            built.into_iter().flatten().map(|built| Placed { task: built.state.id, created: built.created }).collect();
        if refs.is_empty() {
            return Ok(Some(Batched { placed, shadowed: Vec::new() }));
        }
        pack.finish()?;
        let parents: Vec<Found> = parents.into_values().collect();
        let published = match self.reach {
            Reach::Through(authority) => {
                // Until the batch is here, too, where whoever finishes a parent sees it.
                let names = parents.iter().map(|parent| parent.name.clone()).collect();
                let _held = authority.hold(self, &names, ordered.as_ref().map(Ordered::shard))?;
                if !self.still_stand(&parents, ordered.as_ref())? || !authority.publish(self, &refs)? {
                    return Ok(None);
                }
                let published = self.publish(&mut refs, &[], None)?;
                if published.is_some() {
                    authority.published(self, &refs)?;
                }
                published
            }
            Reach::Alone | Reach::Provisional => self.publish(&mut refs, &parents, ordered.as_ref())?,
        };
        Ok(published.map(|shadowed| Batched { placed, shadowed }))
    }

    /// Publishes the refs under all their shard locks, and those of parents that exist already, so that none of these
    /// finishes meanwhile (rule 9); `None` when some refs are taken, a parent's status is not what was read, or somebody has
    /// planned what could make a circle with them.
    pub(crate) fn publish(
        &self,
        refs: &mut [(RefName, Oid)],
        parents: &[Found],
        ordered: Option<&Ordered>,
    ) -> Result<Option<Vec<RefName>>> {
        refs.sort();
        let shards: HashSet<u8> = refs.iter().map(|(name, _)| name.shard()).collect();
        let mut shards: Vec<_> = shards.into_iter().map(|shard| (shard, Mode::Exclusive)).collect();
        shards.extend(parents.iter().map(|parent| (parent.name.shard(), Mode::Shared)));
        shards.extend(ordered.map(Ordered::shard));
        let held = self.store.lock(&shards)?;
        if !self.still_stand(parents, ordered)? {
            return Ok(None);
        }
        match self.store.publish(&held, refs)? {
            Publish::Done { shadowed } => Ok(Some(shadowed)),
            Publish::Taken { .. } => Ok(None),
        }
    }

    /// Whether what a batch relies on is as it was read, now that its locks are held.
    fn still_stand(&self, parents: &[Found], ordered: Option<&Ordered>) -> Result<bool> {
        for parent in parents {
            if !self.is_as_seen(Some(parent))? {
                return Ok(false);
            }
        }
        self.is_still_ordered(ordered)
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

/// A task of a batch, once its turn has come.
struct Built {
    state: TaskState,
    /// Whether this batch makes it; else it was there.
    created: bool,
}

/// What is wrong with the plan, with its line.
fn at_line(line: usize, error: Error) -> Error {
    match error {
        Error::InvalidGraph(found) => {
            Error::InvalidGraph(format!("{}; nothing was written", LineFault { line, found }))
        }
        error => error,
    }
}

/// What is wrong with one line of a batch's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineFault {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub found: String,
}

impl std::fmt::Display for LineFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.found)
    }
}

/// Which tasks of a batch carry the same slug, by line.
pub fn repeated_slugs(batch: &[Planned]) -> Vec<LineFault> {
    let mut seen: HashMap<&Slug, usize> = HashMap::new();
    let mut faults = Vec::new();
    for planned in batch {
        if let Some(first) = seen.insert(&planned.slug, planned.line) {
            let found = format!("slug {} is on line {first} already", planned.slug);
            faults.push(LineFault { line: planned.line, found });
        }
    }
    faults
}
