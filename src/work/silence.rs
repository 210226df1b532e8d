//! Whether anybody still keeps a claim alive, as far as can be told by who waits for its task: pure.
//!
//! It is the rule of a sweep (design, section 6) for a question of less weight: nothing is taken from anybody, and who waits
//! only stops waiting. So it is counted from when this process first saw a tip, whatever the tip's own clock says.
//!
//! What must never happen here: a wall clock has a say; time in which an authority gave no answer counts as silence.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::id::{RecordId, TaskId};

/// A sweep brings the task of a dead worker back within its lease and so many cycles of a poller: in the first it may be
/// seen for the first time, in the last be found to be silent.
const CYCLES: u32 = 2;

/// How long a claim may be silent before nobody is expected to go on with it, or to bring its task back: its lease, and
/// then the time of a poller with this `interval`, or `patience` if that is longer.
pub fn limit(lease: Duration, interval: Duration, patience: Duration) -> Duration {
    lease.saturating_add(interval.saturating_mul(CYCLES).max(patience))
}

/// The tips of claimed tasks, and since when they are known.
#[derive(Debug, Default)]
pub struct Listening(HashMap<TaskId, (RecordId, Instant)>);

impl Listening {
    /// Whether the tip of a task, which was read until `read`, has been there for as long as `limit`. It is known to have
    /// been the newest at `heard`: when the reading began, or, where an authority decides, when it was last asked of those
    /// times that it answered.
    pub fn is_silent(
        &mut self,
        task: TaskId,
        tip: RecordId,
        limit: Duration,
        read: Instant,
        heard: Option<Instant>,
    ) -> bool {
        let known = self.0.entry(task).or_insert((tip, read));
        if known.0 != tip {
            *known = (tip, read);
        }
        heard.is_some_and(|heard| heard.saturating_duration_since(known.1) >= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Oid;

    const LIMIT: Duration = Duration::from_secs(12);

    fn id(digit: &str) -> Oid {
        digit.repeat(40).parse().expect("an id")
    }

    /// Looks at tips, each read and last heard of so many seconds after the beginning; whether each was silent.
    fn check(looks: &[(&str, u64, Option<u64>)]) -> Vec<bool> {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut listening = Listening::default();
        let task = TaskId(id("f"));
        let look = |(tip, read, heard): &(&str, u64, Option<u64>)| {
            listening.is_silent(task, RecordId(id(tip)), LIMIT, at(*read), heard.map(at))
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn a_tip_that_does_not_move_for_so_long_is_silent() {
        assert_eq!(check(&[("a", 0, Some(0)), ("a", 11, Some(11)), ("a", 12, Some(12))]), [false, false, true]);
    }

    #[test]
    fn every_record_begins_it_anew() {
        let looks =
            [("a", 0, Some(0)), ("b", 11, Some(11)), ("b", 22, Some(22)), ("b", 23, Some(23)), ("c", 24, Some(24))];
        assert_eq!(check(&looks), [false, false, false, true, false]);
    }

    #[test]
    fn what_no_authority_has_answered_since_is_no_silence() {
        let looks = [("a", 5, None), ("a", 100, None), ("a", 100, Some(3)), ("a", 100, Some(16)), ("a", 100, Some(17))];
        assert_eq!(check(&looks), [false, false, false, false, true]);
    }

    #[test]
    fn a_poller_has_the_time_to_bring_the_task_back() {
        let seconds = Duration::from_secs;
        assert_eq!(limit(seconds(2), seconds(60), seconds(5)), seconds(122));
        assert_eq!(limit(seconds(2), seconds(1), seconds(15)), seconds(17));
        assert_eq!(limit(Duration::MAX, seconds(60), seconds(5)), Duration::MAX);
    }
}
