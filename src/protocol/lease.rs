//! How old a claim is, and what a sweep makes of it (design, section 6).
//!
//! Wall clocks never decide who holds a lease, unless an operator asks for it. All times here are milliseconds
//! on this machine's monotonic clock, read by the caller.

use super::record::{ClockReading, Ttl};
use super::refusal::{HeldBy, Lapse, Refusal};
use super::state::TaskState;
use crate::id::{AgentId, RecordId};

/// The lease of claims that asked for none, unless `pm.ttl` or `--ttl` says otherwise.
pub const DEFAULT_TTL_MS: u64 = 300_000;

/// This machine's clock around the reading of a tip.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Before the tip was read.
    pub start: ClockReading,
    /// After it was read.
    pub end: ClockReading,
}

/// How long ago the tip of a task was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// Written on this very clock: the exact age.
    Measured(u64),
    /// Written elsewhere: for so long at least, since this machine first saw that tip.
    Observed(u64),
    /// Written elsewhere, and seen for the first time now.
    JustSeen,
}

impl Age {
    /// The age as far as it is known, in milliseconds.
    pub fn ms(self) -> u64 {
        match self {
            Age::Measured(ms) | Age::Observed(ms) => ms,
            Age::JustSeen => 0,
        }
    }
}

/// The age of a tip. `written` is the tip's own clock; `first_seen_ms` the end of the first reading that found
/// this very tip, on the clock of `now`.
///
/// A tip of this clock that lies ahead of `now` is not believed: after a restore, or in a fork of a virtual
/// machine, one clock id can stand for two clocks.
pub fn age(written: Option<ClockReading>, now: Reading, first_seen_ms: Option<u64>) -> Age {
    match (written, first_seen_ms) {
        (Some(written), _) if written.id == now.start.id && written.ms <= now.end.ms => {
            Age::Measured(now.start.ms.saturating_sub(written.ms))
        }
        (_, Some(first_seen)) => Age::Observed(now.start.ms.saturating_sub(first_seen)),
        (_, None) => Age::JustSeen,
    }
}

/// What this machine knows of a tip at an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// How old it was, at least, by the last reading there.
    pub age_ms: u64,
    /// When it was that old, in milliseconds on this machine's clock.
    pub read_ms: u64,
}

impl Watched {
    /// What a reading adds, by which the tip was found to be so old. It was there before the end of the first reading that
    /// found it, and at the start of any later one: what a reading takes is lost once, and not with every reading.
    pub fn after(age: Age, now: Reading) -> Watched {
        let at = if age == Age::JustSeen { now.end } else { now.start };
        Watched { age_ms: age.ms(), read_ms: at.ms }
    }
}

/// The age of a tip at an authority (design, section 6). It grows by the time from one successful reading to the next,
/// but by no more than a third of the TTL: what lies between may have been an outage, in which no heartbeat could get
/// through.
pub fn age_at_authority(watched: Option<Watched>, now: Reading, ttl: Ttl) -> Age {
    match watched {
        Some(Watched { age_ms, read_ms }) => {
            // At least a millisecond: else the shortest leases would never end.
            let passed = now.start.ms.saturating_sub(read_ms).min((ttl.ms() / 3).max(1));
            Age::Observed(age_ms.saturating_add(passed))
        }
        None => Age::JustSeen,
    }
}

/// The age by wall clocks, in seconds since 1970, where an operator trusts them (`--trust-clocks`).
pub fn age_by_wall_clock(written_at: i64, now: i64) -> Age {
    Age::Measured(u64::try_from(now.saturating_sub(written_at)).unwrap_or(0).saturating_mul(1000))
}

/// How the TTL of a claim is chosen.
#[derive(Debug, Clone, Copy)]
pub struct TtlRule {
    /// `--ttl`, else `pm.ttl`, else [`DEFAULT_TTL_MS`]: for claims that recorded none.
    pub default: Ttl,
    /// `--force`: for claims that recorded one, too.
    pub force: bool,
}

impl TtlRule {
    /// The TTL of a claim that recorded `claimed`: no sweep reclaims it sooner, but with `--force`.
    pub fn ttl(self, claimed: Option<Ttl>) -> Ttl {
        match claimed {
            Some(claimed) if !self.force => claimed,
            _ => self.default,
        }
    }
}

/// What a sweep makes of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Alive: for so many milliseconds more.
    Fresh {
        /// Milliseconds until it goes stale.
        left_ms: u64,
    },
    /// Silent for longer than its TTL.
    Stale,
    /// Not known to be stale: it must be watched for so many milliseconds more.
    Observing {
        /// Milliseconds until a later sweep can decide, if the tip stays.
        decides_in_ms: u64,
    },
}

/// Judges a claim.
pub fn judge(age: Age, ttl: Ttl) -> Verdict {
    let left_ms = ttl.ms().saturating_sub(age.ms());
    match age {
        Age::Measured(ms) | Age::Observed(ms) if ms > ttl.ms() => Verdict::Stale,
        Age::Measured(_) => Verdict::Fresh { left_ms },
        Age::Observed(_) | Age::JustSeen => Verdict::Observing { decides_in_ms: left_ms },
    }
}

/// Whether the claim that is named gives leave for an outside effect that takes `needed_ms`: it holds the task, and so
/// much of its lease is left, at least one millisecond. Returns what is left. `age` is that of the task's newest record.
///
/// Only an exact age counts: one that was merely observed is the least that it can be.
///
/// # Errors
/// `LeaseLost` where another claim holds the task, `LeaseLapsed` for any other reason; `NoStatus`.
pub fn fence(
    state: &TaskState,
    agent: &AgentId,
    named: RecordId,
    age: Age,
    rule: TtlRule,
    needed_ms: u64,
) -> Result<u64, Refusal> {
    let lapsed = |lapse| Refusal::LeaseLapsed { claim: named, lapse };
    let Some(claim) = state.claim() else {
        return Err(state.phase().map_or(Refusal::NoStatus, |phase| lapsed(Lapse::NotHeld(phase))));
    };
    if claim.id != named {
        let held = HeldBy { yours: claim.holder == *agent, holder: claim.holder, claim: claim.id };
        return Err(Refusal::LeaseLost { agent: agent.clone(), named: Some(named), held });
    }
    let left_ms = match judge(age, rule.ttl(claim.ttl)) {
        Verdict::Fresh { left_ms } => left_ms,
        Verdict::Stale => 0,
        Verdict::Observing { .. } => return Err(lapsed(Lapse::AnotherClock)),
    };
    let needed_ms = needed_ms.max(1);
    if left_ms < needed_ms {
        return Err(lapsed(Lapse::TooShort { left_ms, needed_ms }));
    }
    Ok(left_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: Option<(u64, u64)>, now: (u64, u64), first_seen: Option<u64>, expected: Age) {
        let clock = |(id, ms)| ClockReading { id, ms };
        let reading = Reading { start: clock(now), end: clock((now.0, now.1 + 5)) };
        assert_eq!(age(written.map(clock), reading, first_seen), expected);
    }

    #[test]
    fn the_same_clock_gives_the_exact_age_at_once() {
        check(Some((1, 400)), (1, 1000), None, Age::Measured(600));
        // Written while we were reading: no age at all, but not ahead either.
        check(Some((1, 1003)), (1, 1000), None, Age::Measured(0));
    }

    #[test]
    fn another_clock_or_one_ahead_is_observed_from_the_first_sight() {
        check(Some((2, 400)), (1, 1000), None, Age::JustSeen);
        check(Some((2, 400)), (1, 1000), Some(700), Age::Observed(300));
        check(None, (1, 1000), Some(700), Age::Observed(300));
        check(Some((1, 99_999)), (1, 1000), None, Age::JustSeen);
        check(Some((1, 99_999)), (1, 1000), Some(900), Age::Observed(100));
    }

    #[test]
    fn the_age_at_an_authority_grows_by_a_third_of_the_ttl_at_most_and_even_the_shortest_lease_ends() {
        let clock = |ms| ClockReading { id: 1, ms };
        let check = |watched: Option<(u64, u64)>, start, ttl, expected| {
            let watched = watched.map(|(age_ms, read_ms)| Watched { age_ms, read_ms });
            let now = Reading { start: clock(start), end: clock(start + 5) };
            assert_eq!(age_at_authority(watched, now, Ttl::from_ms(ttl).expect("a ttl")), expected);
        };
        check(None, 1000, 300, Age::JustSeen);
        check(Some((0, 1000)), 1099, 300, Age::Observed(99));
        check(Some((0, 1000)), 1100, 300, Age::Observed(100));
        check(Some((150, 1000)), 999_999, 300, Age::Observed(250));
        // Another sweep has read later than this one began to.
        check(Some((150, 1000)), 990, 300, Age::Observed(150));
        check(Some((1, 1000)), 1005, 1, Age::Observed(2));
        check(Some((2, 1000)), 1005, 2, Age::Observed(3));
    }

    #[test]
    fn slow_readings_of_an_authority_delay_no_sweep_but_by_the_first() {
        let ttl = Ttl::from_ms(3_000).expect("a ttl");
        let clock = |ms| ClockReading { id: 1, ms };
        // Every 900 ms a reading that takes 400 ms.
        let reading = |number: u64| Reading { start: clock(number * 900), end: clock(number * 900 + 400) };
        let mut watched = None;
        for number in 0..=3 {
            let age = age_at_authority(watched, reading(number), ttl);
            assert_eq!(age.ms(), (number * 900).saturating_sub(400), "reading {number}");
            watched = Some(Watched::after(age, reading(number)));
        }
        // An outage in between still counts for a third of the lease only.
        assert_eq!(age_at_authority(watched, reading(100), ttl), Age::Observed(2_300 + 1_000));
    }

    #[test]
    fn a_claim_is_stale_only_after_more_than_its_ttl() {
        let ttl = Ttl::from_ms(300).expect("a ttl");
        assert_eq!(judge(Age::Measured(300), ttl), Verdict::Fresh { left_ms: 0 });
        assert_eq!(judge(Age::Measured(301), ttl), Verdict::Stale);
        assert_eq!(judge(Age::Observed(100), ttl), Verdict::Observing { decides_in_ms: 200 });
        assert_eq!(judge(Age::Observed(301), ttl), Verdict::Stale);
        assert_eq!(judge(Age::JustSeen, ttl), Verdict::Observing { decides_in_ms: 300 });
    }

    #[test]
    fn a_claims_own_ttl_yields_only_to_force() {
        let ms = |ms| Ttl::from_ms(ms).expect("a ttl");
        let rule = |force| TtlRule { default: ms(5), force };
        assert_eq!(rule(false).ttl(Some(ms(900))), ms(900));
        assert_eq!(rule(false).ttl(None), ms(5));
        assert_eq!(rule(true).ttl(Some(ms(900))), ms(5));
    }

    #[test]
    fn a_wall_clock_that_jumped_back_makes_nothing_older() {
        assert_eq!(age_by_wall_clock(100, 90), Age::Measured(0));
        assert_eq!(age_by_wall_clock(90, 100), Age::Measured(10_000));
    }
}
