//! What could be claimed now, in the order in which it is handed out, and what waits for what.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use super::Ledger;
use super::neighbours::Neighbours;
use super::resolve::{Damage, place};
use crate::error::{Error, Place, Result};
use crate::id::{Queue, RefName, Slug, TASKS, TaskId};
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
    /// Open tasks that are not offered, and why; only [`Ledger::explained`] tells.
    pub skipped: Vec<(TaskState, Hindrance)>,
    /// What could be claimed elsewhere.
    pub elsewhere: Elsewhere,
    /// The open children of tasks, whatever their labels, and in which phase they are.
    pub open_children: HashMap<Place, Vec<(Place, Phase)>>,
    /// Tasks that could not be read.
    pub damaged: Vec<Damage>,
}

/// How many tasks are offered to others, but not to this caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Elsewhere {
    /// Those that belong to another context, or need one.
    pub contexts: usize,
    /// Those that are meant for other work directories, by these. A claim takes them anywhere.
    pub workdirs: BTreeMap<String, usize>,
}

impl Elsewhere {
    fn count(&mut self, why: &Hindrance) {
        match why {
            Hindrance::Refused(Refusal::Context(_)) => self.contexts += 1,
            Hindrance::Workdir(workdir) => *self.workdirs.entry(workdir.clone()).or_default() += 1,
            Hindrance::Refused(_) => {}
        }
    }

    /// How many, and why they are not offered here.
    pub fn told(&self) -> Vec<(usize, String)> {
        let mut told = Vec::new();
        if self.contexts > 0 {
            told.push((self.contexts, "can be claimed only in another context".to_owned()));
        }
        let count = self.workdirs.values().sum();
        let are = if count == 1 { "is" } else { "are" };
        match (self.workdirs.keys().next(), self.workdirs.len()) {
            (Some(workdir), 1) => told.push((count, format!("{are} meant for {workdir}"))),
            (Some(_), _) => told.push((count, format!("{are} meant for other work directories"))),
            (None, _) => {}
        }
        told
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
        self.listed(prefix, labels, dir, false)
    }

    /// As [`Ledger::runnable`], with the reason why each other open task is not offered.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn explained(&self, prefix: &str, labels: &[Label], dir: &Path) -> Result<Runnable> {
        self.listed(prefix, labels, dir, true)
    }

    fn listed(&self, prefix: &str, labels: &[Label], dir: &Path, is_explained: bool) -> Result<Runnable> {
        let mut scan = self.scan(prefix)?;
        let may_be_tied = |(_, state): &(_, TaskState)| state.task.sticky && state.phase() == Some(Phase::New);
        if prefix != TASKS && scan.tasks.iter().any(may_be_tied) {
            // What a sticky task is tied to may be in other queues.
            scan = self.scan(TASKS)?;
        }
        let mut neighbours = Neighbours::with_damage(self, &scan.tasks, &scan.damaged)?;
        scan.damaged.retain(|damage| damage.name.as_str().starts_with(prefix));
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
                    if is_explained && state.phase().is_some_and(|phase| !phase.is_settled()) {
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

/// What it hangs on whether the children of a task can be worked on once it is claimed: all that are open below it, in
/// which phase each is, and for what it waits beside those and the task itself.
pub type Outlook = HashMap<Place, (Phase, Vec<Unmet>)>;

/// A place, borrowed.
type Key<'a> = (&'a Queue, &'a Slug);

fn key(place: &Place) -> Key<'_> {
    (&place.queue, &place.slug)
}

impl Runnable {
    /// The outlook of these tasks. Whether they are claimed themselves makes no difference to it.
    pub fn outlooks<'p>(&self, parents: impl Iterator<Item = &'p Place>) -> HashMap<Place, Outlook> {
        let waits_for: HashMap<&Place, &[Unmet]> =
            self.blocked.iter().map(|blocked| (&blocked.place, &blocked.waits_for[..])).collect();
        parents.map(|parent| (parent.clone(), self.outlook(parent, &waits_for))).collect()
    }

    fn outlook(&self, parent: &Place, waits_for: &HashMap<&Place, &[Unmet]>) -> Outlook {
        let mut below: HashMap<Place, Phase> = HashMap::new();
        let mut next = vec![parent];
        while let Some(above) = next.pop() {
            for (child, phase) in self.open_children.get(above).into_iter().flatten() {
                if below.insert(child.clone(), *phase).is_none() {
                    next.push(child);
                }
            }
        }
        let is_outside = |unmet: &&Unmet| {
            let place = unmet.place.clone().map(|(queue, slug)| Place { queue, slug });
            place.is_none_or(|place| place != *parent && !below.contains_key(&place))
        };
        let child = |(place, phase): (&Place, &Phase)| {
            let outside = waits_for.get(place).into_iter().copied().flatten().filter(is_outside).cloned().collect();
            (place.clone(), (*phase, outside))
        };
        below.iter().map(child).collect()
    }

    /// Which tasks will get on while those that can are worked on: the runnable ones, but not those that were `given_up`;
    /// blocked ones that wait for nothing but such tasks, and for claimed ones; and of the `parked` ones, which are claimed
    /// and wait for their children, those that have such a child, or none that is open. The `silent` ones are claimed, too, but
    /// nobody works on them.
    pub fn lively(
        &self,
        parked: &HashSet<Place>,
        silent: &HashSet<Place>,
        given_up: &HashSet<TaskId>,
    ) -> HashSet<Place> {
        let is_ready = |(_, state): &&(RefName, TaskState)| !given_up.contains(&state.id);
        let ready: Vec<Place> = self.tasks.iter().filter(is_ready).map(|(_, state)| place(state)).collect();
        let blocked = self.blocked.iter().map(|blocked| &blocked.place);
        let places: Vec<&Place> = ready.iter().chain(blocked).chain(parked).collect();
        let at: HashMap<Key<'_>, usize> = places.iter().enumerate().map(|(at, place)| (key(place), at)).collect();
        let waits: HashSet<Key<'_>> = parked.iter().chain(silent).map(key).collect();
        // For how many others each of them still waits, and which ones wait for it.
        let mut missing = vec![0_usize; places.len()];
        let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
        for (blocked, index) in self.blocked.iter().zip(ready.len()..) {
            for unmet in &blocked.waits_for {
                let key = unmet.place.as_ref().map(|(queue, slug)| (queue, slug));
                if unmet.phase == Some(Phase::Working) && key.is_some_and(|key| !waits.contains(&key)) {
                    continue;
                }
                missing[index] += 1;
                let is_open = unmet.phase.is_some_and(|phase| !phase.is_settled());
                if let Some(before) = key.filter(|_| is_open).and_then(|key| at.get(&key)) {
                    waiting[*before].push(index);
                }
            }
        }
        for (place, index) in parked.iter().zip(ready.len() + self.blocked.len()..) {
            let Some(children) = self.open_children.get(place) else { continue };
            if children.iter().any(|(child, phase)| *phase == Phase::Working && !waits.contains(&key(child))) {
                continue;
            }
            // Any one of them.
            missing[index] = 1;
            for before in children.iter().filter_map(|(child, _)| at.get(&key(child))) {
                waiting[*before].push(index);
            }
        }
        let mut next: Vec<usize> = (0..places.len()).filter(|index| missing[*index] == 0).collect();
        let mut lively = HashSet::new();
        while let Some(index) = next.pop() {
            lively.insert(places[index].clone());
            for after in &waiting[index] {
                if missing[*after] == 1 {
                    next.push(*after);
                }
                missing[*after] = missing[*after].saturating_sub(1);
            }
        }
        lively
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
