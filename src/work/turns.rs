//! What an agent does at the shelf, until it is dropped: with or without success, or by a panic.

use super::supply::Supply;
use crate::error::Place;
use crate::id::TaskId;

/// A task that waits for its children, until this is dropped.
pub struct Parked<'a> {
    pub(super) supply: &'a Supply,
    pub(super) place: Place,
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.supply.shelf().parked.remove(&self.place);
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
