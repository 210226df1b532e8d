//! What a runner's agents share: the tasks that were found, the ones that are in hand, the ones that rest.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use super::event::{Teller, What};
use crate::error::Place;
use crate::id::{RefName, TaskId};
use crate::ledger::resolve::place;
use crate::protocol::state::TaskState;

/// A task that came back is left alone for so long by this runner, doubled each time, up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);

/// The longest such pause.
const RETRY_MAX: Duration = Duration::from_secs(60);

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
    /// How many of them are being claimed.
    pub(super) claiming: u64,
    /// How many tasks were claimed.
    pub(super) taken: u64,
    /// Tasks that came back: until when they are left alone, and the next such pause.
    pub(super) resting: HashMap<TaskId, (Instant, Duration)>,
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
        let has_rested = self.resting.get(&task).is_none_or(|(until, _)| *until <= Instant::now());
        has_rested && !self.in_hand.contains(&task) && !self.given_up.contains(&task)
    }

    /// Says what is wrong, once.
    pub(super) fn warn(&mut self, warning: String, tell: &Teller) {
        if self.warned.insert(warning.clone()) {
            tell.say(What::Warning(warning));
        }
    }

    /// Leaves a task alone for a while, and for longer each time.
    pub(super) fn rest(&mut self, task: TaskId) {
        let pause = self.resting.get(&task).map_or(RETRY_MIN, |(_, next)| *next);
        // What has not come back for long, and is in nobody's hands here, is with others now, or closed.
        let in_hand = &self.in_hand;
        self.resting.retain(|task, (until, _)| in_hand.contains(task) || until.elapsed() < RETRY_MAX);
        self.resting.insert(task, (Instant::now() + pause, (pause * 2).min(RETRY_MAX)));
    }
}
