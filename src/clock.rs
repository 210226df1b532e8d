//! The clocks of this machine: the only place that reads them.

use crate::protocol::record::ClockReading;

/// What time it is. A trait, so that tests can stand still or jump.
pub trait Clock {
    /// The wall clock, in microseconds since 1970 UTC. Recorded for people; decides nothing.
    fn wall_micros(&self) -> i64;

    /// The monotonic clock; `None` where the platform has none.
    fn monotonic(&self) -> Option<ClockReading>;

    /// The wall clock, in whole seconds since 1970 UTC, as git stores dates.
    fn wall_seconds(&self) -> i64 {
        self.wall_micros().div_euclid(1_000_000)
    }
}

/// The system's own clocks.
#[derive(Debug)]
pub struct SystemClock {
    id: Option<u64>,
}

impl SystemClock {
    /// Finds out which monotonic clock this process reads.
    pub fn new() -> SystemClock {
        SystemClock { id: clock_id() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn wall_micros(&self) -> i64 {
        jiff::Timestamp::now().as_microsecond()
    }

    /// `CLOCK_MONOTONIC`: time spent suspended does not count (design, section 3).
    fn monotonic(&self) -> Option<ClockReading> {
        let id = self.id?;
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).ok()?;
        Some(ClockReading { id, ms: seconds * 1000 + u64::try_from(time.tv_nsec).ok()? / 1_000_000 })
    }
}

/// The time since this machine was booted, in milliseconds, with the time that it was suspended (`CLOCK_BOOTTIME`): for
/// whoever must let go of something before others may take it. Elsewhere than on Linux suspended time is missing.
pub fn since_boot_ms() -> u64 {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    // Neither field is ever negative on these clocks.
    time.tv_sec.unsigned_abs() * 1000 + time.tv_nsec.unsigned_abs() / 1_000_000
}

/// Which monotonic clock this is: readings are comparable within one boot of one machine and one time
/// namespace. The boot id alone is not enough: a time namespace keeps it and shifts the clock.
#[cfg(target_os = "linux")]
fn clock_id() -> Option<u64> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(crate::id::stable_hash(format!("{}\n{}\n{}", boot.trim(), machine.trim(), namespace.display()).as_bytes()))
}

/// Elsewhere nothing tells one boot from another, so records carry no clock and every lease is observed.
#[cfg(not(target_os = "linux"))]
fn clock_id() -> Option<u64> {
    None
}
