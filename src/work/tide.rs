//! When a runner with nothing to do asks the authority for what is not known here.

use std::time::{Duration, Instant};

use super::event::Teller;
use super::shelf::Shelf;
use crate::error::{Error, Result};

/// The shortest and the longest time between two askings of the authority by a runner that has nothing to do.
const CATCH_UP_MIN: Duration = Duration::from_millis(500);
const CATCH_UP_MAX: Duration = Duration::from_secs(10);

/// How long a runner that has nothing to do waits for an authority that cannot be reached.
const OUTAGE_MAX: Duration = Duration::from_secs(3600);

/// When a scout asks the authority for what it does not know here: as soon as there is nothing to do, and then less and
/// less often.
pub(super) struct Tide {
    is_idle: bool,
    /// Something came in with the last asking, or may have.
    pub(super) has_turned: bool,
    next: Instant,
    pause: Duration,
}

impl Tide {
    pub(super) fn new() -> Tide {
        Tide { is_idle: false, has_turned: false, next: Instant::now(), pause: CATCH_UP_MIN }
    }

    pub(super) fn ask_when_idle(&mut self) {
        (self.is_idle, self.has_turned) = (true, false);
    }

    pub(super) fn is_due(&self) -> bool {
        self.is_idle && Instant::now() >= self.next
    }

    /// Notes how asking went, which `began` then; says whether what is known here is current. An outage is waited for, but not for ever.
    pub(super) fn turn(&mut self, began: Instant, asked: Result<()>, shelf: &mut Shelf, tell: &Teller) -> Result<bool> {
        shelf.asked = Some(Instant::now());
        self.next = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(CATCH_UP_MAX);
        match asked {
            Ok(()) => {
                (self.has_turned, shelf.unreachable_since) = (true, None);
                shelf.heard = shelf.heard.max(Some(began));
                Ok(true)
            }
            Err(error @ Error::Unreachable { .. }) => {
                let since = *shelf.unreachable_since.get_or_insert_with(Instant::now);
                if since.elapsed() > OUTAGE_MAX {
                    return Err(error);
                }
                shelf.warn(error.to_string(), tell);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
