//! What the tasks of one listing have to say about each other: what [`graph`](super::graph) reads for one task alone, for
//! all at once.

use std::collections::HashMap;

use super::Ledger;
use super::graph::{Reliance, gate, unmet};
use super::obscured::Obscuring;
use super::resolve::Damage;
use crate::error::{Error, Result};
use crate::id::{RefName, TaskId};
use crate::protocol::decide::Others;
use crate::protocol::graph::{Graph, Stand};
use crate::protocol::record::Phase;
use crate::protocol::refusal::Unmet;
use crate::protocol::state::TaskState;
use crate::store::StoreError;

/// What the tasks of one listing have to say about each other. What is named and not in it is read by itself, each once.
pub struct Neighbours<'a> {
    ledger: &'a Ledger<'a>,
    graph: Graph<'a>,
    elsewhere: HashMap<TaskId, Unmet>,
    /// What cannot be read, where that may tie sticky tasks.
    obscuring: Obscuring,
    /// The first failure of the system; the answers after it mean nothing.
    failure: Option<Error>,
}

impl<'a> Neighbours<'a> {
    /// Over the scanned tasks.
    pub fn new(ledger: &'a Ledger<'a>, tasks: &'a [(RefName, TaskState)]) -> Neighbours<'a> {
        let graph = Graph::new(tasks.iter().map(|(_, state)| state));
        Neighbours { ledger, graph, elsewhere: HashMap::new(), obscuring: Obscuring::default(), failure: None }
    }

    /// The same, of a listing whose damaged chains count in what is said of sticky tasks.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn with_damage(
        ledger: &'a Ledger<'a>,
        tasks: &'a [(RefName, TaskState)],
        damaged: &[Damage],
    ) -> Result<Neighbours<'a>> {
        let obscuring = Obscuring::new(ledger, tasks, damaged)?;
        Ok(Neighbours { obscuring, ..Neighbours::new(ledger, tasks) })
    }

    /// What the others have to say about a claim of this one, which is `new`; of sticky tasks that are tied to it, only
    /// those that were scanned.
    pub fn before_a_claim(&mut self, state: &TaskState) -> Others {
        let all = state.task.depends_on.iter();
        let unmet = all.map(|id| self.standing(*id)).filter(|unmet| unmet.phase != Some(Phase::Done)).collect();
        let parent = state.task.parent.and_then(|parent| gate(&state.task.queue, self.standing(parent)));
        let original = state.replan_of().and_then(|original| self.original(state.id, original));
        let tied = self.graph.find(state.id).map_or(Vec::new(), |at| self.graph.bindings(at).to_vec());
        let unread_ties = if state.task.sticky { self.obscuring.ties(state) } else { Vec::new() };
        Others { unmet, parent, original, tied, unread_ties, ..Others::default() }
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
