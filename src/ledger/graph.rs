//! What other tasks have to say about one, read from the ledger (rules 8 and 9).
//!
//! Two ways to it, and both ask [`protocol::graph`](crate::protocol::graph) and [`Others`]: one task alone, before
//! something is recorded for it ([`Ledger::reliance`]), and all tasks of a listing ([`Neighbours`]).

use std::collections::{HashMap, HashSet};

use super::Ledger;
use super::find::Found;
use super::resolve::{place, prefix};
use crate::error::{Error, Result};
use crate::id::{Oid, PENDING, Queue, RecordId, RefName, TASKS, TaskId};
use crate::protocol::codec;
use crate::protocol::decide::{Intent, Others};
use crate::protocol::graph::{Graph, SUCCESSORS_MAX, Stand};
use crate::protocol::record::{Content, Phase, Task};
use crate::protocol::refusal::Unmet;
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
    /// Reads what a decision about `state` relies on. Costs nothing but for a claim and a finish; a finish reads the tasks
    /// of the queue, and a claim of a sticky task all tasks.
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
            _ => Ok(Reliance::default()),
        }
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
        let mut parents: HashMap<TaskId, bool> = HashMap::from([(state.id, true)]);
        for (name, tip) in self.store.tips(&family.prefix)? {
            family.known.insert(name.clone());
            let Some(task) = self.child_at(tip)? else { continue };
            let Some(parent) = task.parent else { continue };
            let is_ours = match parents.get(&parent) {
                Some(known) => *known,
                None => {
                    let is_ours = match self.successor(parent, &mut Reliance::default()) {
                        Ok(found) => found.is_some_and(|found| found.state.id == state.id),
                        Err(Error::Damaged { .. } | Error::Store(StoreError::BrokenRef { .. })) => false,
                        Err(error) => return Err(error),
                    };
                    parents.insert(parent, is_ours);
                    is_ours
                }
            };
            if !is_ours {
                continue;
            }
            family.names.insert(parent);
            let Some(child) = self.state(&name)? else { continue };
            out.read.push(Seen::new(&name, &child));
            if child.phase().is_none_or(|phase| !phase.is_settled()) {
                out.others.open_children.push(unmet(child.id, Some(&Found { name, state: child })));
            }
        }
        out.family = Some(family);
        Ok(out)
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
            if !family.known.contains(&name)
                && let Some(task) = self.child_at(tip)?
                && family.has(&task)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The definition of the task whose chain has this tip, if it is a child. `None`, too, where its chain is damaged:
    /// `verify` names that, and it does not keep every other task from being finished.
    ///
    /// # Errors
    /// Failures of the system: what could not be read now may well be a child.
    pub(crate) fn child_at(&self, tip: std::result::Result<Oid, StoreError>) -> Result<Option<Box<Task>>> {
        let read = |id: std::result::Result<Oid, StoreError>| match id.and_then(|id| self.store.read_commit(id)) {
            Ok(commit) => Ok(Some(commit)),
            Err(StoreError::Missing { .. } | StoreError::Damaged { .. } | StoreError::BrokenRef { .. }) => Ok(None),
            Err(error) => Err(Error::from(error)),
        };
        let Some(newest) = read(tip)? else { return Ok(None) };
        let definition = match codec::glance(&newest, "Record") {
            Some("Task") => Some(newest),
            _ => match codec::glance(&newest, "Task").and_then(|first| first.parse::<Oid>().ok()) {
                Some(first) => read(Ok(first))?,
                None => None,
            },
        };
        // Most tasks have no parent, and decoding all of them takes longer than reading them.
        let child = definition.filter(|definition| codec::glance(definition, "Parent").is_some());
        Ok(child.and_then(|child| match codec::decode(&child).ok()?.content {
            Content::Task(task) => Some(task),
            _ => None,
        }))
    }

    /// How the task stands that stands for `id` now.
    fn standing(&self, id: TaskId, out: &mut Reliance) -> Result<Unmet> {
        let found = self.successor(id, out)?;
        Ok(unmet(id, found.as_ref()))
    }

    /// The task that stands for `id` now: itself, or what superseded it. `None` where it cannot be found.
    pub(crate) fn successor(&self, id: TaskId, out: &mut Reliance) -> Result<Option<Found>> {
        let mut id = id;
        for _ in 0..SUCCESSORS_MAX {
            let Some(found) = self.read_by_id(id, out)? else { return Ok(None) };
            match found.state.superseded_by() {
                Some(next) => id = next,
                None => return Ok(Some(found)),
            }
        }
        Ok(None)
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
fn unmet(named: TaskId, found: Option<&Found>) -> Unmet {
    let place = found.map(|found| place(&found.state)).map(|place| (place.queue, place.slug));
    Unmet { task: named, place, phase: found.and_then(|found| found.state.phase()) }
}

/// What a parent keeps its children in `queue` from: they wait until it is claimed, or found. (A parent of another queue,
/// which pm itself never plans, holds nobody up: rule 8.)
fn gate(queue: &Queue, parent: Unmet) -> Option<Unmet> {
    let is_elsewhere = parent.place.as_ref().is_some_and(|(of_parent, _)| of_parent != queue);
    let is_past_new = parent.phase.is_some_and(|phase| phase != Phase::New);
    (!is_elsewhere && !is_past_new).then_some(parent)
}

/// What the tasks of one listing have to say about each other. What is named and not in it is read by itself, each once.
pub struct Neighbours<'a> {
    ledger: &'a Ledger<'a>,
    graph: Graph<'a>,
    elsewhere: HashMap<TaskId, Unmet>,
    /// The first failure of the system; the answers after it mean nothing.
    failure: Option<Error>,
}

impl<'a> Neighbours<'a> {
    /// Over the scanned tasks.
    pub fn new(ledger: &'a Ledger<'a>, tasks: &'a [(RefName, TaskState)]) -> Neighbours<'a> {
        let graph = Graph::new(tasks.iter().map(|(_, state)| state));
        Neighbours { ledger, graph, elsewhere: HashMap::new(), failure: None }
    }

    /// What the others have to say about a claim of this one, which is `new`; of sticky tasks that are tied to it, only
    /// those that were scanned.
    pub fn before_a_claim(&mut self, state: &TaskState) -> Others {
        let all = state.task.depends_on.iter();
        let unmet = all.map(|id| self.standing(*id)).filter(|unmet| unmet.phase != Some(Phase::Done)).collect();
        let parent = state.task.parent.and_then(|parent| gate(&state.task.queue, self.standing(parent)));
        let original = state.replan_of().and_then(|original| self.original(state.id, original));
        let tied = self.graph.find(state.id).map_or(Vec::new(), |at| self.graph.bindings(at).to_vec());
        Others { unmet, parent, original, tied, ..Others::default() }
    }

    /// The parent of a task, as far as it was scanned.
    pub fn parent(&self, state: &TaskState) -> Option<&'a TaskState> {
        state.task.parent.and_then(|parent| self.graph.here(parent)).map(|at| self.graph.tasks()[at])
    }

    /// Whether a task is `new` and cannot be claimed by anybody (`true`), or can be by somebody (`false`): whose context and
    /// directory fit is another question. `None` if it is not `new`.
    pub fn is_blocked(&mut self, state: &TaskState) -> Option<bool> {
        (state.phase() == Some(Phase::New)).then(|| self.before_a_claim(state).hindrances().next().is_some())
    }

    fn standing(&mut self, named: TaskId) -> Unmet {
        match self.graph.stand(named) {
            Stand::Here(at) => self.graph.told(named, at),
            // From the beginning, and not from there on: a claim follows it just so far.
            Stand::Elsewhere(_) => self.standing_elsewhere(named),
        }
    }

    fn standing_elsewhere(&mut self, id: TaskId) -> Unmet {
        if let Some(known) = self.elsewhere.get(&id) {
            return known.clone();
        }
        let answer = self.ledger.standing(id, &mut Reliance::default());
        let answer = self.unless_damaged(answer, unmet(id, None));
        self.elsewhere.insert(id, answer.clone());
        answer
    }

    fn original(&mut self, clone: TaskId, original: TaskId) -> Option<Unmet> {
        let found = self.ledger.read_by_id(original, &mut Reliance::default());
        let found = self.unless_damaged(found, None);
        let by = found.as_ref().and_then(|found| found.state.superseded_by());
        (by != Some(clone)).then(|| unmet(original, found.as_ref()))
    }

    /// What cannot be read is not known; which one it is, `verify` says.
    fn unless_damaged<T>(&mut self, answer: Result<T>, unknown: T) -> T {
        match answer {
            Ok(answer) => answer,
            Err(Error::Damaged { .. } | Error::Store(StoreError::BrokenRef { .. })) => unknown,
            Err(error) => {
                self.failure.get_or_insert(error);
                unknown
            }
        }
    }

    /// Ends the questions.
    ///
    /// # Errors
    /// The first failure of the system that met one of them.
    pub fn finish(self) -> Result<()> {
        self.failure.map_or(Ok(()), Err)
    }
}
