//! How tests wait: for something that can be asked for, and never for longer than the deadline.
//!
//! This is the only place of the tests that sleeps.

use std::time::{Duration, Instant};

/// How long anything that is waited for may take.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Asks again and again until there is an answer, with a deadline instead of a sleep of some length.
#[track_caller]
pub fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(started.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
