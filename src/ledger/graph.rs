//! What other tasks have to say about one, read from the ledger (rules 8 and 9).
//!
//! Two ways to it, and both ask [`protocol::graph`](crate::protocol::graph) and [`Others`]: one task alone, before
//! something is recorded for it ([`Ledger::reliance`]), and all tasks of a listing
//! ([`Neighbours`](super::neighbours::Neighbours)).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::Ledger;
use super::find::Found;
use super::obscured::{Obscuring, unread};
use super::resolve::{place, prefix};
use crate::error::{Error, Result};
use crate::id::{PENDING, Queue, RecordId, RefName, TASKS, TaskId};
use crate::protocol::codec;
use crate::protocol::decide::{Intent, Others};
use crate::protocol::graph::{Graph, SUCCESSORS_MAX};
use crate::protocol::record::{Content, Phase, Task};
use crate::protocol::refusal::{Unmet, Unread};
use crate::protocol::state::TaskState;
use crate::store::StoreError;

/// What a decision about one task relies on, as it was read.
#[derive(Debug, Default)]
pub struct Reliance {
    /// What the other tasks have to say.
    pub others: Others,
    /// Every task that was read.
    pub read: Vec<Seen>,
    /// That the task has no children but those that were read.
    pub family: Option<Family>,
    /// Something that is named could not be found here.
    pub is_incomplete: bool,
}

/// A task as it was read. Only its status matters to others: heartbeats and reports come and go.
#[derive(Debug)]
pub struct Seen {
    /// Its ref.
    pub name: RefName,
    tip: RecordId,
    status: Option<RecordId>,
}

impl Seen {
    fn new(name: &RefName, state: &TaskState) -> Seen {
        Seen { name: name.clone(), tip: state.tip, status: state.status.as_ref().map(|at| at.id) }
    }
}

/// The children of a task, and how a new one would be known.
#[derive(Debug)]
pub struct Family {
    prefix: String,
    /// Every ref that was there.
    known: HashSet<RefName>,
    /// The ids by which children name the parent: its own, and those of the tasks that it has superseded.
    names: HashSet<TaskId>,
}

impl Family {
    /// Whether a task is one of the children.
    pub(crate) fn has(&self, task: &Task) -> bool {
        task.parent.is_some_and(|parent| self.names.contains(&parent))
    }

    /// Where records on their way to the authority would create more of them.
    pub(crate) fn pending_prefix(&self) -> String {
        self.prefix.replacen(TASKS, PENDING, 1)
    }
}

impl Ledger<'_> {
    /// Reads what a decision about `state` relies on. Costs nothing but for a claim, a finish and a superseded task; a finish
    /// reads the tasks of the queue, and a claim of a sticky task all tasks.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn reliance(&self, state: &TaskState, intent: &Intent) -> Result<Reliance> {
        match (intent, state.phase()) {
            (Intent::Claim { .. }, Some(Phase::New)) => self.before_a_claim(state),
            (Intent::Finish { .. }, Some(Phase::Working)) => self.before_a_finish(state),
            (Intent::Supersede { by, .. }, Some(phase)) if phase != Phase::Superseded => {
                let mut out = Reliance::default();
                let by = (*by, self.read_by_id(*by, &mut out)?);
                let phase = by.1.as_ref().and_then(|found| found.state.phase());
                let is_usable = phase.is_some_and(|phase| phase != Phase::Rejected);
                out.others.closed_successor = (!is_usable).then(|| unmet(by.0, by.1.as_ref()));
                Ok(out)
            }
            (_, Some(Phase::Superseded)) => self.before_a_refusal(state),
            _ => Ok(Reliance::default()),
        }
    }

    /// What stands for a superseded task. That it cannot be read makes the refusal no other one.
    fn before_a_refusal(&self, state: &TaskState) -> Result<Reliance> {
        let mut out = Reliance::default();
        let Some(by) = state.superseded_by() else { return Ok(out) };
        let found = match self.successor(by, &mut out) {
            Err(Error::Damaged { .. } | Error::Store(StoreError::BrokenRef { .. })) => None,
            found => found?,
        };
        out.others.successor = found.map(|found| unmet(found.state.id, Some(&found)));
        Ok(out)
    }

    fn before_a_claim(&self, state: &TaskState) -> Result<Reliance> {
        let mut out = Reliance::default();
        for id in &state.task.depends_on {
            let dependency = self.standing(*id, &mut out)?;
            out.others.unmet.extend((dependency.phase != Some(Phase::Done)).then_some(dependency));
        }
        if let Some(parent) = state.task.parent {
            let parent = self.standing(parent, &mut out)?;
            out.others.parent = gate(&state.task.queue, parent);
        }
        if let Some(original) = state.replan_of() {
            let found = self.read_by_id(original, &mut out)?;
            let by = found.as_ref().and_then(|found| found.state.superseded_by());
            out.others.original = (by != Some(state.id)).then(|| unmet(original, found.as_ref()));
        }
        if state.task.sticky {
            let scan = self.scan(TASKS)?;
            out.others.unread_ties = Obscuring::new(self, &scan.tasks, &scan.damaged)?.ties(state);
            let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
            for at in graph.find(state.id).map_or(Vec::new(), |at| graph.tied(at)) {
                let (name, state) = &scan.tasks[at];
                out.others.tied.extend(state.bound());
                out.read.push(Seen::new(name, state));
            }
        }
        Ok(out)
    }

    fn before_a_finish(&self, state: &TaskState) -> Result<Reliance> {
        let mut out = Reliance::default();
        let prefix = prefix(Some(&state.task.queue));
        let mut family = Family { prefix, known: HashSet::new(), names: HashSet::from([state.id]) };
        // Whether each parent is this task; what cannot be read of it, where that cannot be told.
        let mut parents: HashMap<TaskId, std::result::Result<bool, Unread>> = HashMap::from([(state.id, Ok(true))]);
        // Chains of which not even the parent can be told.
        let mut strays = Vec::new();
        for (name, tip) in self.store.tips(&family.prefix)? {
            family.known.insert(name.clone());
            let parent = match self.child_at(&name, tip) {
                Ok(child) => child.and_then(|task| task.parent),
                Err(error) => {
                    strays.push(unread(error)?);
                    continue;
                }
            };
            let Some(parent) = parent else { continue };
            let is_ours = match parents.entry(parent) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(match self.stands_for(parent, state.id, &name) {
                    Ok(is_ours) => Ok(is_ours),
                    Err(error) => {
                        let unread = unread(error)?;
                        // Nothing stands for another task that was not made to.
                        if self.is_replacement(state)? { Err(unread) } else { Ok(false) }
                    }
                }),
            };
            if matches!(is_ours, Ok(false)) {
                continue;
            }
            family.names.insert(parent);
            let child = match self.state(&name) {
                Ok(Some(child)) => child,
                Ok(None) => continue,
                Err(error) => {
                    out.others.unread_children.push(unread(error)?);
                    continue;
                }
            };
            out.read.push(Seen::new(&name, &child));
            if child.phase().is_some_and(Phase::is_settled) {
                continue;
            }
            match is_ours {
                Ok(_) => out.others.open_children.push(unmet(child.id, Some(&Found { name, state: child }))),
                Err(Unread { name: broken, found }) => {
                    // With an authority, that may have it.
                    out.is_incomplete = true;
                    let child = place(&child);
                    let found =
                        format!("{found} ({child} names it as its parent; `pm cancel --task {child}` settles that)");
                    out.others.unread_children.push(Unread { name: broken.clone(), found });
                }
            }
        }
        // A stray may be a child of anybody. It holds up those that have children, and not a whole fleet.
        if !out.read.is_empty() || !out.others.unread_children.is_empty() {
            out.others.unread_children.append(&mut strays);
        }
        out.family = Some(family);
        Ok(out)
    }

    /// Whether the task `other`, which is not superseded, stands for `id` now, which the task at `named_by` names.
    ///
    /// # Errors
    /// `Damaged` where a chain on the way there cannot be read.
    fn stands_for(&self, id: TaskId, other: TaskId, named_by: &RefName) -> Result<bool> {
        match self.follow(id, &mut Reliance::default())? {
            Ok(found) => Ok(found.state.id == other),
            // A task whose creation was never completed has no successor; one whose first record is gone may have.
            Err(unknown) => self.record(named_by, unknown.record()).map(|_| false),
        }
    }

    /// Whether a decision still holds, now that the shards of all that it relies on are held: nothing of that has moved, and
    /// no child was planned meanwhile.
    pub(super) fn still_holds(&self, reliance: &Reliance) -> Result<bool> {
        for seen in &reliance.read {
            let is_unmoved = self.store.tip(&seen.name)? == Some(seen.tip.0);
            if !is_unmoved {
                let now = self.state(&seen.name)?;
                if now.and_then(|state| state.status).map(|at| at.id) != seen.status {
                    return Ok(false);
                }
            }
        }
        let Some(family) = &reliance.family else { return Ok(true) };
        for (name, tip) in self.store.tips(&family.prefix)? {
            if family.known.contains(&name) {
                continue;
            }
            match self.child_at(&name, tip).map_err(unread) {
                Ok(None) => {}
                Ok(Some(child)) if !family.has(&child) => {}
                Err(Err(error)) => return Err(error),
                // A child, or what may be one.
                Ok(Some(_)) | Err(Ok(_)) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// How the task stands that stands for `id` now.
    pub(super) fn standing(&self, id: TaskId, out: &mut Reliance) -> Result<Unmet> {
        let found = self.successor(id, out)?;
        Ok(unmet(id, found.as_ref()))
    }

    /// The task that stands for `id` now: itself, or what superseded it. `None` where it cannot be found.
    ///
    /// # Errors
    /// `Damaged` where a chain cannot be read, or more tasks superseded each other than pm makes.
    pub(crate) fn successor(&self, id: TaskId, out: &mut Reliance) -> Result<Option<Found>> {
        Ok(self.follow(id, out)?.ok())
    }

    /// As [`Ledger::successor`], with the task that cannot be found.
    fn follow(&self, id: TaskId, out: &mut Reliance) -> Result<std::result::Result<Found, TaskId>> {
        let mut id = id;
        for followed in 0.. {
            let Some(found) = self.read_by_id(id, out)? else { return Ok(Err(id)) };
            match found.state.superseded_by() {
                None => return Ok(Ok(found)),
                Some(_) if followed == SUCCESSORS_MAX => {
                    let found_there =
                        format!("it is one of more than {SUCCESSORS_MAX} tasks that superseded each other");
                    return Err(Error::Damaged { name: found.name, commit: found.state.tip, found: found_there });
                }
                Some(next) => id = next,
            }
        }
        unreachable!("the loop ends at its bound")
    }

    /// Reads a task by its id, and notes that.
    pub(super) fn read_by_id(&self, id: TaskId, out: &mut Reliance) -> Result<Option<Found>> {
        let found = match self.ref_of(id)? {
            Some(name) => self.state(&name)?.filter(|state| state.id == id).map(|state| Found { name, state }),
            None => None,
        };
        match &found {
            Some(found) => out.read.push(Seen::new(&found.name, &found.state)),
            None => out.is_incomplete = true,
        }
        Ok(found)
    }

    /// The ref that a task id leads to, in one object read.
    pub(crate) fn ref_of(&self, id: TaskId) -> Result<Option<RefName>> {
        let commit = match self.store.read_commit(id.0) {
            Ok(commit) => commit,
            Err(StoreError::Missing { .. } | StoreError::Damaged { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(match codec::decode(&commit).map(|record| record.content) {
            Ok(Content::Task(task)) => Some(RefName::of_task(&task.queue, &task.slug)),
            _ => None,
        })
    }
}

/// A task that is named, as it was found.
pub(super) fn unmet(named: TaskId, found: Option<&Found>) -> Unmet {
    let place = found.map(|found| place(&found.state)).map(|place| (place.queue, place.slug));
    Unmet { task: named, place, phase: found.and_then(|found| found.state.phase()) }
}

/// What a parent keeps its children in `queue` from: they wait until it is claimed, or found. (A parent of another queue,
/// which pm itself never plans, holds nobody up: rule 8.)
pub(super) fn gate(queue: &Queue, parent: Unmet) -> Option<Unmet> {
    let is_elsewhere = parent.place.as_ref().is_some_and(|(of_parent, _)| of_parent != queue);
    let is_past_new = parent.phase.is_some_and(|phase| phase != Phase::New);
    (!is_elsewhere && !is_past_new).then_some(parent)
}
