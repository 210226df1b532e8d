//! One operator's word for many tasks: cancel and reclaim with all that hangs below (commands.md).
//!
//! Each task is moved by itself, as if it had been named alone, so there is nothing to undo: a cascade that was killed
//! half-way is completed by running it again. Everything that is met on the way is told, changed or not.

use std::collections::HashSet;

use super::append::Appended;
use super::find::Found;
use super::resolve::{place, prefix};
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
    /// Its id.
    pub task: TaskId,
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
        Step { task: state.id, place: place(state), was: state.phase(), outcome }
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

    /// Whether it was moved.
    pub fn is_changed(&self) -> bool {
        matches!(self.outcome, Outcome::Changed(_))
    }
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
        for _ in 0..LOOKS_MAX {
            let below = match self.below(&root, |graph, at| match graph.tasks()[at].phase() {
                Some(Phase::New | Phase::Working) => graph.children(at).to_vec(),
                _ if is_cancelled(graph.tasks()[at]) => graph.children(at).to_vec(),
                _ => Vec::new(),
            }) {
                Ok(below) => below,
                // The task itself is closed, and that must not be told as if nothing had been recorded.
                Err(error) if steps.iter().any(Step::is_changed) => {
                    steps.push(Step::of(&root, Err(error)));
                    break;
                }
                Err(error) => return Err(error),
            };
            let fresh: Vec<_> = below.into_iter().filter(|(_, state)| seen.insert(state.id)).collect();
            if fresh.is_empty() {
                break;
            }
            for (name, state) in fresh {
                steps.push(match state.phase() {
                    Some(Phase::New | Phase::Working) => {
                        Step::of(&state, self.append(Found { name, state: state.clone() }, intent()))
                    }
                    _ if is_cancelled(&state) => Step::skipped(&state, "it was cancelled before"),
                    phase => Step::skipped(&state, &format!("{}, with what is below it", phase_told(phase))),
                });
            }
        }
        match refusal {
            Some(error) if !steps.iter().any(Step::is_changed) => Err(error),
            _ => Ok(steps),
        }
    }

    /// Takes a task from its holder, or from the context that it is bound to, and every claimed task below it from its
    /// holder; lower ones first, so that a cascade that was killed still finds its way. What is bound below and not claimed
    /// stays bound: its context may well come back to it.
    ///
    /// # Errors
    /// `WrongPhase` where nothing there is claimed, and the task itself is not bound; failures of the system.
    pub fn reclaim_all(&self, found: &Found, reason: Option<&str>) -> Result<Vec<Step>> {
        let found = &self.caught_up(found, &prefix(Some(&found.state.task.queue)))?;
        let below = self.below(&found.state, |graph, at| graph.children(at).to_vec())?;
        let mut steps = Vec::new();
        let intent = || Intent::Reclaim { status: None, reason: reason.map(str::to_owned) };
        for (name, state) in below.into_iter().rev() {
            steps.push(match state.phase() {
                Some(Phase::Working) => Step::of(&state, self.append(Found { name, state: state.clone() }, intent())),
                phase => Step::skipped(&state, &phase_told(phase)),
            });
        }
        steps.push(match self.allows(found, &intent()) {
            Ok(()) => Step::of(&found.state, self.append(found.clone(), intent())),
            Err(refusal) if !steps.iter().any(Step::is_changed) => return Err(refusal),
            Err(_) => Step::skipped(&found.state, &phase_told(found.state.phase())),
        });
        Ok(steps)
    }

    /// The tasks below one, as `next` leads to them: parents before their children, freshly read.
    fn below(
        &self,
        root: &TaskState,
        next: impl Fn(&Graph<'_>, Index) -> Vec<Index>,
    ) -> Result<Vec<(RefName, TaskState)>> {
        let prefix = prefix(Some(&root.task.queue));
        if let Reach::Through(authority) = self.reach {
            authority.catch_up(self, &prefix)?;
        }
        let scan = self.scan(&prefix)?;
        let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
        let Some(root) = graph.find(root.id) else { return Ok(Vec::new()) };
        let below = graph.reach(&[root], |at| next(&graph, at));
        Ok(below.into_iter().map(|at| scan.tasks[at].clone()).collect())
    }
}

/// Whether a task was called off by an operator.
fn is_cancelled(state: &TaskState) -> bool {
    state.status.as_ref().is_some_and(|at| at.status.mark == Some(Mark::Cancelled))
}

fn phase_told(phase: Option<Phase>) -> String {
    phase.map_or("it has no status".to_owned(), |phase| format!("it is {phase}"))
}
