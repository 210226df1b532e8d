//! Planning many tasks at once: one pack, one rename of packed-refs, all or nothing (design, section 5).

use std::collections::{HashMap, HashSet};

use super::resolve::{place, prefix};
use super::{Ledger, Reach};
use crate::error::{Error, Result};
use crate::id::{Oid, Queue, RecordId, RefName, Slug, TaskId};
use crate::protocol::decide;
use crate::protocol::record::{Label, Phase, Priority, Task};
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
    /// What it depends on.
    pub depends_on: Vec<DependsOn>,
}

/// A dependency of a planned task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DependsOn {
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
        let order = topological(batch)?;
        for _ in 0..ATTEMPTS_MAX {
            if let Reach::Through(authority) = self.reach {
                authority.catch_up(self, &prefix(Some(queue)))?;
            }
            if let Some(batched) = self.try_create_all(queue, batch, &order, accept_existing, progress)? {
                return Ok(batched);
            }
        }
        Err(Error::BatchRaced { times: ATTEMPTS_MAX })
    }

    /// One try; `None` when a slug was taken between the check and the publication.
    fn try_create_all(
        &self,
        queue: &Queue,
        batch: &[Planned],
        order: &[usize],
        accept_existing: bool,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Option<Batched>> {
        let existing: HashMap<RefName, _> = self.store.tips(&prefix(Some(queue)))?.into_iter().collect();
        let now = self.clock.wall_micros();
        let mut pack = self.store.begin_pack()?;
        let mut placed: Vec<Option<Placed>> = vec![None; batch.len()];
        let mut refs = Vec::new();
        let mut differences = Vec::new();
        let mut closed: HashMap<usize, String> = HashMap::new();
        for (built, &index) in order.iter().enumerate() {
            let planned = &batch[index];
            let name = RefName::of_task(queue, &planned.slug);
            let dependency = |depends_on: &DependsOn| match depends_on {
                DependsOn::Task(id) => Some(*id),
                // Built before: that is what the order is for.
                DependsOn::Batch(other) => placed[*other].as_ref().map(|placed| placed.task),
            };
            let task = Task {
                queue: queue.clone(),
                slug: planned.slug.clone(),
                title: planned.title.clone(),
                // A microsecond a line keeps the order of the input.
                created: now + index as i64,
                priority: planned.priority,
                depends_on: planned.depends_on.iter().filter_map(dependency).collect(),
                parent: None,
                spawned_at: None,
                verifier: None,
                sticky: false,
                workdir: None,
                ttl: None,
                max_attempts: None,
                labels: planned.labels.clone(),
            };
            placed[index] = Some(match existing.get(&name) {
                Some(Ok(tip)) => {
                    let state = self.state_at(&name, RecordId(*tip))?;
                    if !accept_existing && let Some(differs) = self.difference(&name, &state, &task, planned)? {
                        differences.push(format!("{} (task {}): {differs}", place(&state), state.id));
                    }
                    if let Err(error) = self.check_dependency(&state) {
                        closed.insert(index, error.to_string());
                    }
                    Placed { task: state.id, created: false }
                }
                Some(Err(_)) => {
                    // Reads it again for the error, which cannot be cloned.
                    self.state(&name)?;
                    return Ok(None);
                }
                None => {
                    let closed = planned.depends_on.iter().find_map(|depends_on| match depends_on {
                        DependsOn::Batch(other) => closed.get(other),
                        DependsOn::Task(_) => None,
                    });
                    if let Some(found) = closed {
                        let fault = LineFault { line: planned.line, found: found.clone() };
                        return Err(Error::InvalidGraph(format!("{fault}; nothing was written")));
                    }
                    let state = self.link(
                        None,
                        decide::creation(self.agent, task, planned.body.clone()).into(),
                        |commit| Ok(pack.add(commit)?),
                        |_, _| {},
                    )?;
                    refs.push((name, state.tip.0));
                    Placed { task: state.id, created: true }
                }
            });
            progress(built + 1);
        }
        if !differences.is_empty() {
            return Err(Error::SlugsTaken { differences });
        }
        let placed = placed.into_iter().flatten().collect();
        if refs.is_empty() {
            return Ok(Some(Batched { placed, shadowed: Vec::new() }));
        }
        pack.finish()?;
        if let Reach::Through(authority) = self.reach
            && !authority.publish(self, &refs)?
        {
            return Ok(None);
        }
        let published = self.publish(&mut refs)?;
        if let (Reach::Through(authority), Some(_)) = (self.reach, &published) {
            authority.published(self, &refs)?;
        }
        Ok(published.map(|shadowed| Batched { placed, shadowed }))
    }

    /// Publishes the refs under all their shard locks; `None` when some are taken.
    pub(crate) fn publish(&self, refs: &mut [(RefName, Oid)]) -> Result<Option<Vec<RefName>>> {
        refs.sort();
        let shards: HashSet<u8> = refs.iter().map(|(name, _)| name.shard()).collect();
        let shards: Vec<_> = shards.into_iter().map(|shard| (shard, Mode::Exclusive)).collect();
        let held = self.store.lock(&shards)?;
        match self.store.publish(&held, refs)? {
            Publish::Done { shadowed } => Ok(Some(shadowed)),
            Publish::Taken { .. } => Ok(None),
        }
    }

    /// How the definition of an existing task differs from a planned one: in any field of its Task record but
    /// `Created`, author and nonce.
    fn difference(&self, name: &RefName, state: &TaskState, task: &Task, planned: &Planned) -> Result<Option<String>> {
        let mut differs = Vec::new();
        let there = &*state.task;
        let same = Task { created: there.created, ..task.clone() };
        if *there != same {
            for (field, differ) in [
                ("title", there.title != task.title),
                ("priority", there.priority != task.priority),
                ("depends_on", there.depends_on != task.depends_on),
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

    /// Refuses a dependency that can never be done (commands.md, `plan`).
    ///
    /// # Errors
    /// `InvalidGraph` for a rejected or superseded one.
    pub fn check_dependency(&self, state: &TaskState) -> Result<()> {
        match state.phase() {
            Some(phase @ (Phase::Rejected | Phase::Superseded)) => {
                let successor = state.status.as_ref().and_then(|at| at.status.superseded_by);
                let hint = successor.map_or(String::new(), |task| format!("; its successor is task {task}"));
                Err(Error::InvalidGraph(format!("a task cannot depend on {}: it is {phase}{hint}", place(state))))
            }
            _ => Ok(()),
        }
    }
}

/// An order in which every task comes after what it depends on.
fn topological(batch: &[Planned]) -> Result<Vec<usize>> {
    let mut waiting = vec![0usize; batch.len()];
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); batch.len()];
    for (index, planned) in batch.iter().enumerate() {
        for depends_on in &planned.depends_on {
            if let DependsOn::Batch(other) = depends_on {
                waiting[index] += 1;
                dependents[*other].push(index);
            }
        }
    }
    let mut order: Vec<usize> = (0..batch.len()).filter(|index| waiting[*index] == 0).collect();
    let mut next = 0;
    while let Some(&index) = order.get(next) {
        next += 1;
        for &dependent in &dependents[index] {
            waiting[dependent] -= 1;
            if waiting[dependent] == 0 {
                order.push(dependent);
            }
        }
    }
    if order.len() == batch.len() { Ok(order) } else { Err(cycle(batch, &waiting)) }
}

/// Names one cycle among the tasks that still wait: following dependencies among them must come back.
fn cycle(batch: &[Planned], waiting: &[usize]) -> Error {
    let in_cycle = |index: &usize| waiting[*index] > 0;
    let mut path = Vec::new();
    let mut at = (0..batch.len()).find(in_cycle);
    while let Some(index) = at {
        if let Some(first) = path.iter().position(|seen| *seen == index) {
            path.drain(..first);
            break;
        }
        path.push(index);
        at = batch[index].depends_on.iter().find_map(|depends_on| match depends_on {
            DependsOn::Batch(other) if waiting[*other] > 0 => Some(*other),
            _ => None,
        });
    }
    let first = path.first().copied();
    let names: Vec<_> = path.into_iter().chain(first).map(|index| batch[index].slug.as_str()).collect();
    Error::InvalidGraph(format!("the plan has a cycle, nothing was written: {}", names.join(" -> ")))
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
