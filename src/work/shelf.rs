//! What a runner's agents share: the tasks that were found, the ones that are in hand, the ones that rest.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::event::{Teller, What};
use crate::error::Place;
use crate::id::{RefName, TaskId};
use crate::ledger::resolve::place;
use crate::ledger::runnable::{Outlook, Runnable};
use crate::protocol::state::TaskState;

/// A task that came back is left alone for so long by this runner, doubled each time, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);

/// The longest such pause.
const RETRY_MAX: Duration = Duration::from_secs(60);

/// The same for a task that was given back since nobody works on its children: each try costs a run of its command, and
/// nothing will be different before something has changed below it, which ends the pause.
const LEFT_MIN: Duration = Duration::from_secs(5);

/// For others may have come who take the children, where they are offered them.
const LEFT_MAX: Duration = Duration::from_secs(600);

/// Longer than any runner runs.
const FOR_GOOD: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long a task that came back is left alone.
#[derive(Debug)]
pub(super) struct Rest {
    until: Instant,
    /// The next such pause.
    next: Duration,
    /// How it stood with its children when it was given back for their sake. If that is different, the pause is over.
    left_at: Option<Outlook>,
}

#[derive(Debug)]
pub(super) struct Shelf {
    /// What the last listing found, in the order in which it is handed out.
    pub(super) candidates: VecDeque<(RefName, TaskState)>,
    /// Until when it is used.
    pub(super) fresh_until: Instant,
    /// An agent is reading the ledger, or waits for a change.
    pub(super) is_scouted: bool,
    /// Something has changed that the one who waits should look at.
    pub(super) is_stirred: bool,
    /// The tasks that agents are claiming or working on. Whatever the ledger says of them, no other agent here takes
    /// them before they have come back.
    pub(super) in_hand: HashSet<TaskId>,
    /// Those of them that wait for their children.
    pub(super) parked: HashSet<Place>,
    /// Claimed children of theirs whose workers keep silent: nobody goes on with those.
    pub(super) silent: HashSet<Place>,
    /// How many take tasks: each agent itself, or who goes on in its name.
    pub(super) serving: usize,
    /// Tasks that came back since too many of an agent's tasks wait already: not taken before one of those has ended.
    pub(super) given_up: HashSet<TaskId>,
    /// The tasks with open children, by the last listing.
    pub(super) parents: HashSet<Place>,
    /// The tasks that will get on by the last listing that told, and when that began.
    pub(super) lively: Option<(Instant, HashSet<Place>)>,
    /// How it stood with the children of the parked ones by that listing.
    pub(super) outlooks: HashMap<Place, Outlook>,
    /// Parked tasks that are about to come back since nobody works on their children, and how it stood with those.
    pub(super) left: HashMap<TaskId, Outlook>,
    /// How many of them are being claimed.
    pub(super) claiming: u64,
    /// How many tasks were claimed.
    pub(super) taken: u64,
    /// Tasks that came back, and are left alone for a while.
    pub(super) resting: HashMap<TaskId, Rest>,
    /// Others were faster at the authority: what is known here is old.
    pub(super) is_behind: bool,
    /// When the authority was last asked for what is not known here.
    pub(super) asked: Option<Instant>,
    /// When it was last asked of those times that it answered.
    pub(super) heard: Option<Instant>,
    /// Somebody who waits for children is asking it.
    pub(super) is_asked: bool,
    /// Since when the authority could not be reached, whoever tried.
    pub(super) unreachable_since: Option<Instant>,
    /// What listings had to leave out was said.
    pub(super) warned: HashSet<String>,
    /// There is nothing more to come.
    pub(super) is_over: bool,
}

impl Shelf {
    pub(super) fn new() -> Shelf {
        Shelf {
            candidates: VecDeque::new(),
            fresh_until: Instant::now(),
            is_scouted: false,
            is_stirred: false,
            in_hand: HashSet::new(),
            parked: HashSet::new(),
            silent: HashSet::new(),
            serving: 0,
            given_up: HashSet::new(),
            parents: HashSet::new(),
            lively: None,
            outlooks: HashMap::new(),
            left: HashMap::new(),
            claiming: 0,
            taken: 0,
            resting: HashMap::new(),
            is_behind: false,
            asked: None,
            heard: None,
            is_asked: false,
            unreachable_since: None,
            warned: HashSet::new(),
            is_over: false,
        }
    }

    /// The next candidate of a listing that is still fresh; where `leaves_first`, rather one without open children.
    pub(super) fn candidate(&mut self, leaves_first: bool) -> Option<(RefName, TaskState)> {
        if Instant::now() >= self.fresh_until {
            self.candidates.clear();
        }
        let is_leaf = |(_, state): &(RefName, TaskState)| !self.parents.contains(&place(state));
        let leaf = if leaves_first { self.candidates.iter().position(is_leaf) } else { None };
        self.candidates.remove(leaf.unwrap_or(0))
    }

    /// Whether a task may be taken now, as far as this runner is concerned.
    pub(super) fn is_free(&self, task: TaskId) -> bool {
        let has_rested = self.resting.get(&task).is_none_or(|rest| rest.until <= Instant::now());
        has_rested && !self.in_hand.contains(&task) && !self.given_up.contains(&task)
    }

    /// Whether a task is left alone until something has changed below it.
    pub(super) fn is_left(&self, task: TaskId) -> bool {
        self.resting.get(&task).is_some_and(|rest| rest.left_at.is_some() && rest.until > Instant::now())
    }

    /// Whether the rest of a task has ended since `before`.
    pub(super) fn somebody_has_rested(&self, before: Instant) -> bool {
        self.resting.values().any(|rest| before < rest.until && rest.until <= Instant::now())
    }

    /// Ends the pauses of tasks below which something has changed, by this listing.
    pub(super) fn wake(&mut self, runnable: &Runnable) {
        let left: Vec<(TaskId, Place)> = runnable
            .tasks
            .iter()
            .filter(|(_, state)| self.is_left(state.id))
            .map(|(_, state)| (state.id, place(state)))
            .collect();
        let now = runnable.outlooks(left.iter().map(|(_, place)| place));
        for (task, place) in left {
            let rest = self.resting.get_mut(&task).filter(|rest| rest.left_at.as_ref() != now.get(&place));
            if let Some(rest) = rest {
                (rest.until, rest.left_at) = (Instant::now(), None);
            }
        }
    }

    /// Says what is wrong, once.
    pub(super) fn warn(&mut self, warning: String, tell: &Teller) {
        if self.warned.insert(warning.clone()) {
            tell.say(What::Warning(warning));
        }
    }

    /// Leaves a task alone for a while, and for longer each time; `until_a_change` below it, where it was given back for the
    /// sake of its children.
    pub(super) fn rest(&mut self, task: TaskId, until_a_change: bool) {
        let left_at = self.left.remove(&task);
        let last = self.resting.get(&task).map(|rest| rest.next);
        let (pause, next) = pauses(last, left_at.is_some());
        let pause = if until_a_change && left_at.is_some() { FOR_GOOD } else { pause };
        // What has not come back for long, and is in nobody's hands here, is with others now, or closed.
        let in_hand = &self.in_hand;
        self.resting.retain(|task, rest| in_hand.contains(task) || rest.until.elapsed() < RETRY_MAX);
        self.resting.insert(task, Rest { until: Instant::now() + pause, next, left_at });
    }
}

/// The pause of a task that came back, and the one after that; whether it came back since it was left with open children.
fn pauses(last: Option<Duration>, is_left: bool) -> (Duration, Duration) {
    let (min, max) = if is_left { (LEFT_MIN, LEFT_MAX) } else { (RETRY_MIN, RETRY_MAX) };
    let pause = last.unwrap_or(min).clamp(min, max);
    (pause, (pause * 2).min(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(is_left: bool) -> Vec<u64> {
        let next = |last: &Option<Duration>| Some(Some(pauses(*last, is_left).1));
        std::iter::successors(Some(None), next).map(|last| pauses(last, is_left).0.as_secs()).take(10).collect()
    }

    #[test]
    fn pauses_double_and_are_longer_where_nothing_will_be_different() {
        assert_eq!(check(false), [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
        assert_eq!(check(true), [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(pauses(Some(Duration::from_secs(600)), false).0, RETRY_MAX);
    }
}
