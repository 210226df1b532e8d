//! Planning many tasks at once: one pack, one rename of packed-refs, all or nothing (design, section 5).

use std::collections::HashSet;

use super::find::Found;
use super::order::Ordered;
use super::resolve::prefix;
use super::study::Study;
use super::{Ledger, Reach};
use crate::error::{Error, Fault, FaultKind, PlanError, Result, Spot};
use crate::id::{Oid, Queue, RefName, Slug, TaskId};
use crate::protocol::decide;
use crate::protocol::record::{Label, Priority};
use crate::protocol::state::TaskState;
use crate::store::{Mode, Publish};

/// How often a batch is checked again because somebody else created one of its slugs meanwhile.
const ATTEMPTS_MAX: u32 = 5;

/// One task of a batch.
#[derive(Debug, Clone)]
pub struct Planned {
    /// Its place in the input, for messages.
    pub spot: Spot,
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
    /// `Plan` with everything that is wrong with it; nothing was published.
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
        let (study, faults) = self.study(queue, batch, accept_existing)?;
        if !faults.is_empty() {
            return Err(PlanError::new("the plan", faults).into());
        }
        let Study { mut tasks, there, order, ordered, parents } = study;
        let mut pack = self.store.begin_pack()?;
        let existing = |state| Built { state, created: false };
        let mut built: Vec<Option<Built>> = there.into_iter().map(|there| there.map(existing)).collect();
        let mut refs = Vec::new();
        for (count, &index) in order.iter().enumerate() {
            if let Some(mut task) = tasks[index].take() {
                let planned = &batch[index];
                // What a task names was built before it: that is what the order is for.
                let state_of = |other: usize| built[other].as_ref().map(|built| &built.state);
                let id_of = |named: &Named| match named {
                    Named::Task(id) => Some(*id),
                    Named::Batch(other) => state_of(*other).map(|state| state.id),
                };
                task.depends_on = planned.depends_on.iter().filter_map(id_of).collect();
                if let Some(Named::Batch(other)) = planned.parent
                    && let Some(parent) = state_of(other)
                {
                    task.parent = Some(parent.id);
                    task.spawned_at = parent.status.as_ref().map(|status| status.id);
                }
                let drafts = decide::creation(self.agent, task, planned.body.clone(), None);
                let state = self
                    .link(None, drafts.into(), |commit| Ok(pack.add(commit)?), |_, _| {})
                    .map_err(|error| at_spot(planned.spot.clone(), error))?;
                refs.push((RefName::of_task(queue, &planned.slug), state.tip.0));
                built[index] = Some(Built { state, created: true });
            }
            progress(count + 1);
        }
        let placed =
            built.into_iter().flatten().map(|built| Placed { task: built.state.id, created: built.created }).collect();
        if refs.is_empty() {
            return Ok(Some(Batched { placed, shadowed: Vec::new() }));
        }
        pack.finish()?;
        let published = match self.reach {
            Reach::Through(authority) => {
                // Until the batch is here, too, where whoever finishes a parent sees it.
                let names = parents.iter().map(|parent| parent.name.clone()).collect();
                let _held = authority.hold(self, &names, ordered.is_some())?;
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
}

/// A task of a batch, once its turn has come.
struct Built {
    state: TaskState,
    /// Whether this batch makes it; else it was there.
    created: bool,
}

/// What is wrong with one task, with its place in the input.
fn at_spot(spot: Spot, error: Error) -> Error {
    match error {
        Error::Usage(found) => PlanError::new("the plan", vec![Fault { spot, kind: FaultKind::Input, found }]).into(),
        error => error,
    }
}
