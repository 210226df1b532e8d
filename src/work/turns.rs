//! What an agent does at the shelf, until it is dropped: with or without success, or by a panic.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::event::Teller;
use super::holding::hurry;
use super::supply::Supply;
use crate::error::{Place, Result};
use crate::id::TaskId;
use crate::protocol::record::{Phase, Ttl};
use crate::protocol::refusal::Unmet;
use crate::session::Session;

/// Whoever waits for children asks the authority for news of them so long after anybody here has.
const ASK_AFTER: Duration = Duration::from_secs(3);

impl Supply {
    /// Somebody takes tasks from now on, until what is returned is dropped.
    pub fn serve(&self) -> Serving<'_> {
        self.shelf().serving += 1;
        Serving { supply: self, goes_on: false }
    }

    /// Somebody takes tasks in the place of one who waits for children now, and counts no more.
    pub fn inherit(&self) -> Serving<'_> {
        Serving { supply: self, goes_on: false }
    }

    /// A task that is in hand waits for its children from now on.
    pub fn park(&self, place: Place) -> Parked<'_> {
        let mut shelf = self.shelf();
        shelf.parked.insert(place.clone());
        // Perhaps there is nothing more to wait for.
        shelf.is_stirred = true;
        drop(shelf);
        self.changed.notify_all();
        Parked { supply: self, place, silent: HashSet::new() }
    }

    /// Whoever waits for children may ask the authority for news of them, unless somebody here does, or has a moment ago.
    pub fn may_ask(&self) -> Option<Asking<'_>> {
        let mut shelf = self.shelf();
        if shelf.is_asked || shelf.asked.is_some_and(|asked| asked.elapsed() < ASK_AFTER) {
            return None;
        }
        shelf.is_asked = true;
        Some(Asking(self))
    }

    /// An agent has too many waiting tasks to wait with this one, too.
    pub fn give_up(&self, task: TaskId) {
        self.shelf().given_up.insert(task);
    }

    /// Whether some agent here is claiming one of these tasks, or working on it.
    pub fn has_in_hand(&self, tasks: &[Unmet]) -> bool {
        let shelf = self.shelf();
        tasks.iter().any(|unmet| shelf.in_hand.contains(&unmet.task))
    }

    /// When the authority was last asked of those times that it answered.
    pub fn heard(&self) -> Option<Instant> {
        self.shelf().heard
    }

    /// Whether it is in vain to wait for these children, which have been as they are `since` then: nobody works on one but
    /// those who keep `silent`, and nobody here will. (One that is waiting for its own children sees to that itself.) A runner
    /// that goes on for ever leaves it to others for so long (`patience`); so does one that hears nothing of a child, since
    /// what keeps it from its own end may last.
    pub fn is_in_vain(&self, open: &[Unmet], silent: &HashSet<TaskId>, since: Instant, patience: Duration) -> bool {
        if open.iter().any(|child| child.phase == Some(Phase::Working) && !silent.contains(&child.task)) {
            return false;
        }
        let shelf = self.shelf();
        if shelf.is_over || shelf.serving == 0 || self.has_enough(&shelf) {
            return !open.iter().any(|child| shelf.in_hand.contains(&child.task));
        }
        let will_get_on = |lively: &HashSet<Place>, child: &Unmet| {
            let place = child.place.clone().map(|(queue, slug)| Place { queue, slug });
            shelf.in_hand.contains(&child.task) || place.is_some_and(|place| lively.contains(&place))
        };
        let is_left_to_others = match &shelf.lively {
            Some((began, lively)) => *began > since && !open.iter().any(|child| will_get_on(lively, child)),
            None => false,
        };
        let may_leave = self.goes_on_for_ever() || !silent.is_empty();
        may_leave && is_left_to_others && since.elapsed() >= patience
    }
}

/// Somebody takes tasks, until this is dropped.
pub struct Serving<'a> {
    supply: &'a Supply,
    goes_on: bool,
}

impl Serving<'_> {
    /// Somebody else does so instead.
    pub fn hand_over(mut self) {
        self.goes_on = true;
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if !self.goes_on {
            self.supply.shelf().serving -= 1;
        }
    }
}

/// A task that waits for its children, until this is dropped.
pub struct Parked<'a> {
    supply: &'a Supply,
    place: Place,
    silent: HashSet<Place>,
}

impl Parked<'_> {
    /// It is about to come back, since nobody works on its children.
    pub fn leave(&self, task: TaskId) {
        let mut shelf = self.supply.shelf();
        if let Some(outlook) = shelf.outlooks.get(&self.place).cloned() {
            shelf.left.insert(task, outlook);
        }
    }

    /// The workers of these children of it keep silent.
    pub fn hears_nothing_of(&mut self, children: HashSet<Place>) {
        let mut shelf = self.supply.shelf();
        shelf.silent.retain(|place| !self.silent.contains(place));
        shelf.silent.extend(children.iter().cloned());
        self.silent = children;
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        let mut shelf = self.supply.shelf();
        shelf.parked.remove(&self.place);
        shelf.silent.retain(|place| !self.silent.contains(place));
        shelf.given_up.clear();
    }
}

/// Somebody asks the authority for what is not known here, until this is dropped.
pub struct Asking<'a>(&'a Supply);

impl Asking<'_> {
    /// Brings here what others wrote there, unless `stop` says yes meanwhile. That takes as long as the authority lets it: not
    /// for the thread that keeps a claim alive. No single errand takes longer than one may while this lease is held.
    pub fn catch_up(self, session: Result<Session>, lease: Ttl, stop: &dyn Fn() -> bool, tell: &Teller) {
        let asked = session.and_then(|session| match session.authority() {
            Some(authority) => {
                hurry(authority, lease);
                let began = Instant::now();
                authority.catch_up_unless(&session.finder()?, &self.0.prefix(), stop)?;
                if !stop() {
                    let mut shelf = self.0.shelf();
                    shelf.heard = shelf.heard.max(Some(began));
                }
                Ok(())
            }
            None => Ok(()),
        });
        if let Err(error) = asked
            && !stop()
        {
            self.0.shelf().warn(error.to_string(), tell);
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut shelf = self.0.shelf();
        (shelf.is_asked, shelf.asked) = (false, Some(Instant::now()));
    }
}

/// An agent is claiming a task, until this is dropped: with or without success, or by a panic.
pub(super) struct Claiming<'a> {
    pub(super) supply: &'a Supply,
    pub(super) task: TaskId,
    pub(super) has_claimed: bool,
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        let mut shelf = self.supply.shelf();
        shelf.claiming -= 1;
        if self.has_claimed {
            shelf.taken += 1;
        } else {
            shelf.in_hand.remove(&self.task);
        }
        self.supply.changed.notify_all();
    }
}

/// An agent reads the ledger for all of them, until this is dropped.
pub(super) struct Scouting<'a>(pub(super) &'a Supply);

impl Drop for Scouting<'_> {
    fn drop(&mut self) {
        self.0.shelf().is_scouted = false;
        self.0.changed.notify_all();
    }
}
