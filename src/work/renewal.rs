//! When a claim is renewed, and when it is let go of: pure arithmetic on a clock that counts suspended time.
//!
//! A sweep may take a claim one TTL after its newest record. The runner is gone well before: it renews after a third of
//! that time, counted from when the last *successful* renewal was sent, and lets go after two thirds. The last third is
//! for the command to end in, and for clocks that run at different speeds.

/// The longest time that a command is given to end by itself, in milliseconds.
const GRACE_MAX_MS: u64 = 10_000;

/// The shortest lease that a runner asks for, in milliseconds: a third of it must be enough for a few appends on a slow
/// disk.
pub const TTL_MIN_MS: u64 = 1_000;

/// A claim's lease, as its holder keeps it. All times are milliseconds since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    ttl_ms: u64,
    /// When the newest record that got in was sent.
    renewed_ms: u64,
    /// When the next heartbeat is due.
    due_ms: u64,
}

impl Renewal {
    /// A lease that was taken by a claim sent at `sent_ms`. `random` spreads the heartbeats of many runners.
    pub fn new(ttl_ms: u64, sent_ms: u64, random: u64) -> Renewal {
        let mut renewal = Renewal { ttl_ms, renewed_ms: sent_ms, due_ms: 0 };
        renewal.succeeded(sent_ms, random);
        renewal
    }

    /// A record that was sent at `sent_ms` got in: the next is due a third of the TTL later, or up to a tenth of that
    /// earlier.
    pub fn succeeded(&mut self, sent_ms: u64, random: u64) {
        let third = self.ttl_ms / 3;
        self.renewed_ms = self.renewed_ms.max(sent_ms);
        self.due_ms = self.renewed_ms + third - random % (third / 10 + 1);
    }

    /// A renewal did not get in, and may be tried again: soon, since only success counts.
    pub fn failed(&mut self, now_ms: u64, random: u64) {
        let pause = self.ttl_ms / 30;
        self.due_ms = now_ms + pause / 2 + random % (pause / 2 + 1);
    }

    /// When the newest record that got in was sent.
    pub fn renewed_ms(&self) -> u64 {
        self.renewed_ms
    }

    /// When the next heartbeat is due.
    pub fn due_ms(&self) -> u64 {
        self.due_ms
    }

    /// When the claim has to be let go of, unless it is renewed before.
    pub fn lapses_ms(&self) -> u64 {
        self.renewed_ms + self.ttl_ms * 2 / 3
    }

    /// When others may take the claim.
    pub fn ends_ms(&self) -> u64 {
        self.renewed_ms + self.ttl_ms
    }

    /// How long the command may take to end by itself.
    pub fn grace_ms(&self) -> u64 {
        GRACE_MAX_MS.min(self.ttl_ms / 6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_are_paced_from_the_last_success() {
        let mut renewal = Renewal::new(30_000, 1_000, 0);
        assert_eq!((renewal.due_ms(), renewal.lapses_ms()), (11_000, 21_000));
        renewal.failed(11_000, 0);
        assert_eq!((renewal.due_ms(), renewal.lapses_ms()), (11_500, 21_000), "a try renews nothing");
        renewal.succeeded(11_500, 0);
        assert_eq!((renewal.due_ms(), renewal.lapses_ms(), renewal.ends_ms()), (21_500, 31_500, 41_500));
    }

    #[test]
    fn jitter_only_ever_makes_a_heartbeat_earlier() {
        for random in [0, 1, 999, 1_000, u64::MAX] {
            let due = Renewal::new(30_000, 0, random).due_ms();
            assert!((9_000..=10_000).contains(&due), "{due}");
        }
    }

    #[test]
    fn the_command_is_gone_before_others_may_take_the_task() {
        for ttl_ms in [TTL_MIN_MS, 5_000, 300_000, 86_400_000] {
            let renewal = Renewal::new(ttl_ms, 0, 7);
            assert!(renewal.due_ms() < renewal.lapses_ms());
            let gone = renewal.lapses_ms() + renewal.grace_ms();
            assert!(gone <= renewal.ends_ms() - ttl_ms / 6, "{ttl_ms}: {gone}");
            assert!(renewal.grace_ms() <= 10_000);
        }
    }

    #[test]
    fn a_renewal_that_was_sent_earlier_than_another_shortens_nothing() {
        let mut renewal = Renewal::new(3_000, 5_000, 0);
        renewal.succeeded(4_000, 0);
        assert_eq!(renewal.lapses_ms(), 7_000);
    }
}
