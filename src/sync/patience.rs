//! How long errands to a remote may take.
//!
//! What must never happen here: an errand without a bound.

use std::time::{Duration, Instant};

use super::remote::Remote;
use crate::git_program::network::Bounds;

/// How much longer than a single task's errand one of a whole ledger may take.
const WHOLE_LEDGER: u32 = 20;

impl Remote {
    /// How long an errand for single tasks may take now.
    pub fn patience(&self) -> Duration {
        self.time.get().min(self.left())
    }

    /// How much time is left for everything that has to do with this remote.
    pub(super) fn left(&self) -> Duration {
        self.deadline.get().map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Lets no errand, and no waiting for somebody else's, last beyond this moment.
    pub fn end_by(&self, deadline: Instant) {
        self.deadline.set(Some(deadline));
    }

    /// Lets all errands of some work take no longer together than one for single tasks may.
    pub(super) fn as_one_errand<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.deadline.get();
        let own = Instant::now().checked_add(self.time.get());
        self.deadline.set(before.into_iter().chain(own).min());
        let done = work();
        self.deadline.set(before);
        done
    }

    /// Lets no errand for single tasks take longer than this from now on: for who has a lease to keep alive meanwhile.
    pub fn hurry(&self, most: Duration) {
        self.time.set(self.configured.min(most));
    }

    /// The bounds of an errand for single tasks.
    pub(super) fn single<'a>(&self, stop: &'a dyn Fn() -> bool) -> Bounds<'a> {
        Bounds { time: self.patience(), stop }
    }

    /// The bounds of an errand that may be about a whole ledger.
    pub(super) fn whole<'a>(&self, stop: &'a dyn Fn() -> bool) -> Bounds<'a> {
        Bounds { time: (self.time.get() * WHOLE_LEDGER).min(self.left()), stop }
    }
}
