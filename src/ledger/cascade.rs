//! One operator's word for many tasks: cancel and reclaim with all that hangs below (commands.md).
//!
//! Each task is moved by itself, as if it had been named alone, so there is nothing to undo: a cascade that was killed
//! half-way is completed by running it again. Everything that is met on the way is told, changed or not; so is every chain
//! that cannot be read and may belong there.

use std::collections::{HashMap, HashSet};

use super::append::{Appended, vanished};
use super::find::Found;
use super::obscured::unread;
use super::resolve::{Damage, place, prefix};
use super::{Ledger, Reach};
use crate::error::{Error, Place, Result};
use crate::id::{RecordId, RefName, TaskId};
use crate::protocol::decide::Intent;
use crate::protocol::graph::{Graph, Index};
use crate::protocol::record::{Mark, Phase};
use crate::protocol::refusal::Refusal;
use crate::protocol::state::TaskState;

/// How often it is looked for tasks that were planned below while the cascade ran. Below a task that is cancelled
/// nothing can be planned any more, so two looks are enough but for bad luck.
const LOOKS_MAX: usize = 8;

/// What a cascade did with one task.
#[derive(Debug)]
pub struct Step {
    /// Its id; `None` where its chain cannot be read.
    pub task: Option<TaskId>,
    /// Its place.
    pub place: Place,
    /// The phase that it was seen in.
    pub was: Option<Phase>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of one task.
#[derive(Debug)]
pub enum Outcome {
    /// It was moved by this status.
    Changed(RecordId),
    /// It was left alone: why.
    Skipped(String),
    /// It should have been moved, and could not be.
    Failed(Error),
}

impl Step {
    fn new(state: &TaskState, outcome: Outcome) -> Step {
        Step { task: Some(state.id), place: place(state), was: state.phase(), outcome }
    }

    /// A task that is left alone.
    pub(super) fn skipped(state: &TaskState, why: &str) -> Step {
        Step::new(state, Outcome::Skipped(why.to_owned()))
    }

    /// A task that an intent was carried out on. One that was meanwhile moved to where the intent does not apply is left
    /// alone: that is what looking first would have said.
    pub(super) fn of(state: &TaskState, result: Result<Appended>) -> Step {
        let outcome = match result {
            Ok(appended) => Outcome::Changed(appended.last().0),
            Err(Error::Refused { refusal: Refusal::WrongPhase { phase, .. }, .. }) => {
                Outcome::Skipped(format!("it is {phase}"))
            }
            Err(error) => Outcome::Failed(error),
        };
        Step::new(state, outcome)
    }

    /// A chain that cannot be read, at the ref of a task; at any other there never was one.
    pub(super) fn unreadable(damage: Damage) -> Option<Step> {
        let (queue, slug) = damage.name.task().ok()?;
        Some(Step { task: None, place: Place { queue, slug }, was: None, outcome: Outcome::Failed(damage.error) })
    }

    /// Whether it was moved.
    pub fn is_changed(&self) -> bool {
        matches!(self.outcome, Outcome::Changed(_))
    }

    /// Whether it was left alone.
    pub(super) fn is_skipped(&self) -> bool {
        matches!(self.outcome, Outcome::Skipped(_))
    }
}

/// What is below a task.
struct Below {
    /// The tasks, parents before their children.
    tasks: Vec<(RefName, TaskState)>,
    /// What cannot be read and may be among them.
    damaged: Vec<Damage>,
}

impl Ledger<'_> {
    /// Calls a task off, and with `cascade` every open task below it. From above to below: nothing can be planned under a
    /// task that is cancelled, so nothing escapes. It stops at tasks that were closed otherwise, and leaves alone what is
    /// below them.
    ///
    /// # Errors
    /// `WrongPhase` where the task is closed, and it is not that an earlier cascade left open tasks below it; what the
    /// store says of the task itself. What befell the others is in the steps.
    pub fn cancel(&self, found: Found, reason: Option<&str>, cascade: bool) -> Result<Vec<Step>> {
        let intent = || Intent::Cancel { reason: reason.map(str::to_owned) };
        let root = found.state.clone();
        let name = found.name.clone();
        let (mut steps, refusal) = match self.append(found, intent()) {
            Ok(appended) => (vec![Step::of(&root, Ok(appended))], None),
            Err(error @ Error::Refused { refusal: Refusal::WrongPhase { .. }, .. }) => {
                let now = self.state(&name)?.filter(is_cancelled);
                if !cascade || now.is_none() {
                    return Err(error);
                }
                (vec![Step::skipped(&root, "it was cancelled before")], Some(error))
            }
            Err(error) => return Err(error),
        };
        if !cascade {
            return Ok(steps);
        }
        let mut seen = HashSet::from([root.id]);
        let mut damaged = Vec::new();
        for _ in 0..LOOKS_MAX {
            let goes_on = |at: &TaskState| matches!(at.phase(), Some(Phase::New | Phase::Working)) || is_cancelled(at);
            let below = match self.below(&name, root.tip, goes_on) {
                Ok(below) => below,
                // Something is recorded, or may be, and that must not be told as if nothing had been.
                Err(error) if !steps.iter().all(Step::is_skipped) => {
                    steps.push(Step::of(&root, Err(error)));
                    break;
                }
                Err(error) => return Err(error),
            };
            damaged = below.damaged;
            let fresh: Vec<_> = below.tasks.into_iter().filter(|(_, state)| seen.insert(state.id)).collect();
            if fresh.is_empty() {
                break;
            }
            for (name, state) in fresh {
                steps.push(match state.phase() {
                    Some(Phase::New | Phase::Working) => {
                        Step::of(&state, self.append(Found { name, state: state.clone() }, intent()))
                    }
                    _ if is_cancelled(&state) => {
                        self.unless_answered(Found { name, state }, intent(), "it was cancelled before")
                    }
                    phase => Step::skipped(&state, &format!("{}, with what is below it", phase_told(phase))),
                });
            }
        }
        steps.extend(damaged.into_iter().filter_map(Step::unreadable));
        match refusal {
            Some(error) if steps.iter().all(Step::is_skipped) => Err(error),
            _ => Ok(steps),
        }
    }

    /// A task that is left alone, since it is where the intent would take it; unless something was recorded of it whose sender
    /// does not know so yet. That may be this very intent, the answer of the authority to which was lost.
    fn unless_answered(&self, found: Found, intent: Intent, why: &str) -> Step {
        let Found { name, state } = &found;
        if matches!(self.reach, Reach::Through(_)) && self.store.tip(&name.answer()).ok().flatten().is_some() {
            let step = Step::of(state, self.append(found.clone(), intent));
            if !step.is_skipped() {
                return step;
            }
        }
        Step::skipped(state, why)
    }

    /// Takes a task from its holder, or from the context that it is bound to, and every claimed task below it from its holder. From above to below: a task that nobody
    /// holds keeps those below it from being claimed (rule 8), so nothing that was taken is claimed again behind the
    /// cascade's back. What is bound below and not claimed stays bound: its context may well come back to it. Who claims a task anew after it was taken is left alone, with what is below it.
    ///
    /// # Errors
    /// `WrongPhase` where nothing there is claimed, and the task itself is not bound; what the store says of the task itself. What befell the others is in the
    /// steps.
    pub fn reclaim_all(&self, found: &Found, reason: Option<&str>) -> Result<Vec<Step>> {
        let found = &self.caught_up(found, &prefix(Some(&found.state.task.queue)))?;
        let is_bound = found.state.phase() == Some(Phase::New) && found.state.context().is_some();
        let first = self.reclaim_one(found, reason, is_bound || is_held(&found.state));
        if let Outcome::Failed(error) = first.outcome {
            return Err(error);
        }
        let mut steps = vec![first];
        // Where the step of each task is, and which tasks were taken: a claim of one of these is newer than this command.
        let mut met = HashMap::from([(found.state.id, 0)]);
        let mut taken = HashSet::from([found.state.id]);
        let mut damaged = Vec::new();
        for _ in 0..LOOKS_MAX {
            let is_held_anew = |at: &TaskState| is_held(at) && taken.contains(&at.id);
            let below = match self.below(&found.name, found.state.tip, |at| !is_held_anew(at)) {
                Ok(below) => below,
                Err(error) if !steps.iter().all(Step::is_skipped) => {
                    steps.push(Step::of(&found.state, Err(error)));
                    break;
                }
                Err(error) => return Err(error),
            };
            damaged = below.damaged;
            let mut is_quiet = true;
            for (name, state) in below.tasks {
                let is_held = is_held(&state);
                let at = *met.entry(state.id).or_insert(steps.len());
                if at < steps.len() && !(is_held && steps[at].is_skipped()) {
                    continue;
                }
                is_quiet &= !is_held;
                let id = state.id;
                let step = self.reclaim_one(&Found { name, state }, reason, is_held);
                taken.extend(step.is_changed().then_some(id));
                if at < steps.len() { steps[at] = step } else { steps.push(step) }
            }
            if is_quiet {
                break;
            }
        }
        steps.extend(damaged.into_iter().filter_map(Step::unreadable));
        if steps.iter().all(Step::is_skipped) {
            let intent = Intent::Reclaim { status: None, reason: None };
            return Err(self.allows(found, &intent).err().unwrap_or_else(|| self.outraced(&found.state)));
        }
        Ok(steps)
    }

    fn reclaim_one(&self, found: &Found, reason: Option<&str>, is_meant: bool) -> Step {
        let intent = Intent::Reclaim { status: None, reason: reason.map(str::to_owned) };
        if is_meant {
            return Step::of(&found.state, self.append(found.clone(), intent));
        }
        self.unless_answered(found.clone(), intent, &phase_told(found.state.phase()))
    }

    /// What is below the task at `root`, which was at `tip`, as far as it `goes_on` below each, freshly read.
    ///
    /// # Errors
    /// `Damaged` where the task itself cannot be read; failures of the system.
    fn below(&self, root: &RefName, tip: RecordId, goes_on: impl Fn(&TaskState) -> bool) -> Result<Below> {
        let (queue, _) = root.task()?;
        let prefix = prefix(Some(&queue));
        if let Reach::Through(authority) = self.reach {
            authority.catch_up(self, &prefix)?;
        }
        let mut scan = self.scan(&prefix)?;
        let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
        let Some(at) = scan.tasks.iter().position(|(name, _)| name == root) else {
            let damage = scan.damaged.into_iter().find(|damage| damage.name == *root);
            return Err(damage.map_or_else(|| vanished(root, tip), |damage| damage.error));
        };
        let next = |at: Index| if goes_on(graph.tasks()[at]) { graph.children(at).to_vec() } else { Vec::new() };
        let below = graph.reach(&[at], next);
        let parents: HashSet<Index> =
            below.iter().copied().chain([at]).filter(|at| goes_on(graph.tasks()[*at])).collect();
        let mut damaged = Vec::new();
        for damage in std::mem::take(&mut scan.damaged) {
            let child = match self.store.tip(&damage.name) {
                Ok(None) => continue,
                Ok(Some(tip)) => self.child_at(&damage.name, Ok(tip)),
                Err(error) => Err(error.into()),
            };
            let parent = match child.map_err(unread) {
                Ok(None) => continue,
                Ok(Some(child)) => child.parent.and_then(|parent| graph.here(parent)),
                Err(Ok(_)) => None,
                Err(Err(error)) => return Err(error),
            };
            if parent.is_none_or(|parent| parents.contains(&parent)) {
                damaged.push(damage);
            }
        }
        Ok(Below { tasks: below.into_iter().map(|at| scan.tasks[at].clone()).collect(), damaged })
    }
}

/// Whether a task was called off by an operator.
fn is_cancelled(state: &TaskState) -> bool {
    state.status.as_ref().is_some_and(|at| at.status.mark == Some(Mark::Cancelled))
}

fn is_held(state: &TaskState) -> bool {
    state.phase() == Some(Phase::Working)
}

fn phase_told(phase: Option<Phase>) -> String {
    phase.map_or("it has no status".to_owned(), |phase| format!("it is {phase}"))
}
