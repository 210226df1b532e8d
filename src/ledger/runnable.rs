//! What could be claimed now, in the order in which it is handed out, and what waits for what.

use std::collections::{HashMap, HashSet};

use super::Ledger;
use super::graph::Graph;
use super::resolve::{Damage, place};
use crate::error::{Error, Place, Result};
use crate::id::RefName;
use crate::protocol::record::{Label, Phase};
use crate::protocol::refusal::{Refusal, Unmet};
use crate::protocol::select::{self, Hindrance};
use crate::protocol::state::TaskState;

/// The runnable tasks of a queue, in the order in which they are handed out, and what is left over.
#[derive(Debug)]
pub struct Runnable {
    /// The tasks.
    pub tasks: Vec<(RefName, TaskState)>,
    /// Tasks that wait for others.
    pub blocked: Vec<Blocked>,
    /// Tasks that could not be read.
    pub damaged: Vec<Damage>,
    /// How many tasks this build cannot judge.
    pub unsupported: usize,
}

/// A task that waits for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The task.
    pub place: Place,
    /// The dependencies that are not done.
    pub waits_for: Vec<Unmet>,
}

impl Ledger<'_> {
    /// Reads the tasks under a prefix of refs that carry all of these labels.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn runnable(&self, prefix: &str, labels: &[Label]) -> Result<Runnable> {
        let scan = self.scan(prefix)?;
        let mut graph = Graph::new(self, &scan.tasks);
        let mut runnable: Vec<usize> = Vec::new();
        let mut blocked = Vec::new();
        let mut unsupported = 0;
        for (index, (_, state)) in scan.tasks.iter().enumerate() {
            if !state.task.has_labels(labels) {
                continue;
            }
            match select::runnable(state, |ids| graph.unmet(ids)) {
                Ok(()) => runnable.push(index),
                Err(Hindrance::Unsupported(_)) => unsupported += 1,
                Err(Hindrance::Blocked(waits_for)) => blocked.push(Blocked { place: place(state), waits_for }),
                Err(Hindrance::NotNew) => {}
            }
        }
        graph.finish()?;
        runnable.sort_by(|a, b| select::order(&scan.tasks[*a].1, &scan.tasks[*b].1));
        let mut tasks: Vec<_> = scan.tasks.into_iter().map(Some).collect();
        let tasks = runnable.into_iter().filter_map(|index| tasks[index].take()).collect();
        Ok(Runnable { tasks, blocked, damaged: scan.damaged, unsupported })
    }
}

impl Runnable {
    /// What was left out, and why: a line for each.
    pub fn left_out(&self) -> Vec<String> {
        let damaged = self.damaged.iter().map(ToString::to_string);
        let unsupported = (self.unsupported > 0).then(|| {
            format!(
                "{} tasks use what this pm cannot judge (parents, verifiers, contexts, work directories) and were left out",
                self.unsupported
            )
        });
        damaged.chain(unsupported).collect()
    }

    /// Whether a blocked task becomes runnable when what is being worked on now gets done: then it is worth waiting.
    pub fn more_may_come(&self) -> bool {
        let mut hopeful: HashSet<&Place> = HashSet::new();
        let waiting: HashMap<&Place, &[Unmet]> =
            self.blocked.iter().map(|blocked| (&blocked.place, &*blocked.waits_for)).collect();
        loop {
            let before = hopeful.len();
            for (place, waits_for) in &waiting {
                let is_hopeful = |unmet: &Unmet| match (&unmet.place, unmet.phase) {
                    (_, Some(Phase::Working)) => true,
                    (Some((queue, slug)), Some(Phase::New)) => {
                        hopeful.contains(&Place { queue: queue.clone(), slug: slug.clone() })
                    }
                    _ => false,
                };
                if waits_for.iter().all(is_hopeful) {
                    hopeful.insert(place);
                }
            }
            if hopeful.len() == before {
                return before > 0;
            }
        }
    }
}

/// Whether a claim failed since somebody else was faster: a dependency that was reopened meanwhile counts as that, too.
pub fn was_taken(error: &Error) -> bool {
    matches!(
        error,
        Error::Refused {
            refusal: Refusal::RaceLost { .. } | Refusal::WrongPhase { .. } | Refusal::DependenciesOpen { .. },
            ..
        }
    )
}
