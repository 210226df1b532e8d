//! What could be claimed now, in the order in which it is handed out, and what waits for what.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::Ledger;
use super::graph::Neighbours;
use super::resolve::{Damage, place};
use crate::error::{Error, Place, Result};
use crate::id::{RefName, TASKS};
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
    /// Open tasks that are not offered, and why.
    pub skipped: Vec<(TaskState, Hindrance)>,
    /// What could be claimed elsewhere.
    pub elsewhere: Elsewhere,
    /// The open children of tasks, whatever their labels, and in which phase they are.
    pub open_children: HashMap<Place, Vec<(Place, Phase)>>,
    /// Tasks that could not be read.
    pub damaged: Vec<Damage>,
}

/// How many tasks others could claim, but not this caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Elsewhere {
    /// Those that belong to another context, or need one.
    pub contexts: usize,
    /// Those that belong into another work directory.
    pub workdirs: usize,
}

impl Elsewhere {
    fn count(&mut self, why: &Hindrance) {
        match why {
            Hindrance::Refused(Refusal::Context(_)) => self.contexts += 1,
            Hindrance::Workdir(_) => self.workdirs += 1,
            Hindrance::Refused(_) => {}
        }
    }

    /// How many, and where they can be claimed.
    pub fn told(self) -> impl Iterator<Item = (usize, &'static str)> {
        let all = [(self.contexts, "in another context"), (self.workdirs, "in another work directory")];
        all.into_iter().filter(|(count, _)| *count > 0)
    }
}

/// A task that waits for others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocked {
    /// The task.
    pub place: Place,
    /// What it waits for: dependencies, its parent, the task that it is to replace.
    pub waits_for: Vec<Unmet>,
}

impl Ledger<'_> {
    /// Reads the tasks under a prefix of refs that carry all of these labels, for somebody who works in `dir`.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn runnable(&self, prefix: &str, labels: &[Label], dir: &Path) -> Result<Runnable> {
        let mut scan = self.scan(prefix)?;
        let may_be_tied = |(_, state): &(_, TaskState)| state.task.sticky && state.phase() == Some(Phase::New);
        if prefix != TASKS && scan.tasks.iter().any(may_be_tied) {
            // What a sticky task is tied to may be in other queues.
            scan = self.scan(TASKS)?;
            scan.damaged.retain(|damage| damage.name.as_str().starts_with(prefix));
        }
        let mut neighbours = Neighbours::new(self, &scan.tasks);
        let mut runnable: Vec<(usize, bool)> = Vec::new();
        let (mut blocked, mut skipped) = (Vec::new(), Vec::new());
        let mut elsewhere = Elsewhere::default();
        let mut open_children: HashMap<Place, Vec<_>> = HashMap::new();
        for (index, (name, state)) in scan.tasks.iter().enumerate() {
            if let (Some(phase), Some(parent)) =
                (state.phase().filter(|phase| !phase.is_settled()), neighbours.parent(state))
            {
                open_children.entry(place(parent)).or_default().push((place(state), phase));
            }
            if !name.as_str().starts_with(prefix) || !state.task.has_labels(labels) {
                continue;
            }
            let is_new = state.phase() == Some(Phase::New);
            let others = if is_new { neighbours.before_a_claim(state) } else { Default::default() };
            let facts = self.facts(&others);
            match select::runnable(state, &facts, dir) {
                Ok(()) => runnable.push((index, select::is_own(state, &facts))),
                Err(why) => {
                    if is_new && others.hindrances().next().is_some() {
                        let waits_for = others.hindrances().cloned().collect();
                        blocked.push(Blocked { place: place(state), waits_for });
                    } else {
                        elsewhere.count(&why);
                    }
                    if state.phase().is_some_and(|phase| !phase.is_settled()) {
                        skipped.push((state.clone(), why));
                    }
                }
            }
        }
        neighbours.finish()?;
        runnable.sort_by(|(a, a_own), (b, b_own)| {
            select::own_first((&scan.tasks[*a].1, *a_own), (&scan.tasks[*b].1, *b_own))
        });
        let mut tasks: Vec<_> = scan.tasks.into_iter().map(Some).collect();
        let tasks = runnable.into_iter().filter_map(|(index, _)| tasks[index].take()).collect();
        Ok(Runnable { tasks, blocked, skipped, elsewhere, open_children, damaged: scan.damaged })
    }
}

impl Runnable {
    /// Which of these tasks, which are claimed and wait for their children, will get to an end: those whose children are
    /// settled, or of which somebody works on one who does not wait in vain in turn.
    pub fn hopeful<'a>(&self, waiting: &'a HashSet<Place>) -> HashSet<&'a Place> {
        let mut hopeful: HashSet<&Place> = HashSet::new();
        loop {
            let before = hopeful.len();
            for place in waiting {
                let is_worked_on = |(child, phase): &(Place, Phase)| {
                    *phase == Phase::Working && (!waiting.contains(child) || hopeful.contains(child))
                };
                if self.open_children.get(place).is_none_or(|children| children.iter().any(is_worked_on)) {
                    hopeful.insert(place);
                }
            }
            if hopeful.len() == before {
                return hopeful;
            }
        }
    }

    /// Whether a blocked task becomes runnable when what is being worked on now gets done: then it is worth waiting.
    /// `is_stuck`: a claimed task that will not get done unless others do.
    pub fn more_may_come(&self, is_stuck: impl Fn(&Place) -> bool) -> bool {
        let mut hopeful: HashSet<&Place> = HashSet::new();
        let waiting: HashMap<&Place, &[Unmet]> =
            self.blocked.iter().map(|blocked| (&blocked.place, &*blocked.waits_for)).collect();
        loop {
            let before = hopeful.len();
            for (place, waits_for) in &waiting {
                let is_hopeful = |unmet: &Unmet| {
                    let place = unmet.place.clone().map(|(queue, slug)| Place { queue, slug });
                    match (place, unmet.phase) {
                        (Some(place), Some(Phase::Working)) => !is_stuck(&place),
                        (Some(place), Some(Phase::New)) => hopeful.contains(&place),
                        _ => false,
                    }
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

/// Whether a claim failed since somebody else was faster: what other tasks have come to forbid meanwhile
/// counts as that, too.
pub fn was_taken(error: &Error) -> bool {
    matches!(
        error,
        Error::Refused {
            refusal: Refusal::RaceLost { .. }
                | Refusal::WrongPhase { .. }
                | Refusal::DependenciesOpen { .. }
                | Refusal::ParentNotClaimed { .. }
                | Refusal::NotReplacedYet { .. }
                | Refusal::Context(_),
            ..
        }
    )
}
