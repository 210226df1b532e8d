//! What the four kinds of record hold (design, section 3).
//!
//! Long, since all the fields of format 1 are here, each with its meaning.
//!
//! A record is one commit; these are its contents as values. How they are spelled in a commit is
//! [`codec`](super::codec)'s business, which of them may follow which is [`apply`](super::apply)'s.
//!
//! Architecture invariant: a value of these types has passed the checks that can be made without knowing any
//! other record. They are never built from text but by `codec` or through the checked constructors in `text`.

use std::fmt;
use std::str::FromStr;

use crate::id::{AgentId, Oid, Queue, RecordId, Slug, TaskId};

/// The record format that this build writes, and the newest that it reads.
pub const FORMAT: u64 = 1;

/// One record: what its commit says, and what it is linked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The record before it; `None` for a `Task`.
    pub parent: Option<RecordId>,
    /// The agent that did it: the commit's author name.
    pub agent: AgentId,
    /// The commit's author email.
    pub email: String,
    /// When it happened by the author's wall clock, in seconds since 1970 UTC. Never decides a lease.
    pub at: i64,
    /// The newest records of each kind before it.
    pub links: Links,
    /// Depth in the chain; `Task` is 0.
    pub seq: u64,
    /// The monotonic clock when it was written; absent where the platform has none.
    pub clock: Option<ClockReading>,
    /// Random bits that make any two records different commits.
    pub nonce: Nonce,
    /// The text below the subject: ends in exactly one newline, or is absent.
    pub body: Option<String>,
    /// What kind of record it is, with that kind's fields.
    pub content: Content,
    /// Trailers that this build does not know, in their order: kept and ignored.
    pub unknown: Vec<(String, String)>,
}

/// The links of a record: the newest record of each kind before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Links {
    /// The task; `None` in the `Task` record itself.
    pub task: Option<TaskId>,
    /// The newest status (`Prev-Status` in a status, `Claim-Status` elsewhere).
    pub status: Option<RecordId>,
    /// The newest report, also of earlier attempts.
    pub report: Option<RecordId>,
    /// The newest heartbeat, also of earlier attempts.
    pub heartbeat: Option<RecordId>,
}

/// A kind of record, with its own fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The definition of a task; the first record of every chain.
    Task(Box<Task>),
    /// A change of phase.
    Status(Box<Status>),
    /// What a worker says it did; the newest one under a claim is the proof that closes it.
    Report(Report),
    /// A sign of life, or a sweeper's preemption.
    Heartbeat(Heartbeat),
}

impl Content {
    /// The record kind, spelled as on the wire.
    pub fn kind(&self) -> &'static str {
        match self {
            Content::Task(_) => "Task",
            Content::Status(_) => "TaskStatus",
            Content::Report(_) => "TaskReport",
            Content::Heartbeat(_) => "TaskHeartbeat",
        }
    }
}

/// The definition of a task. Nothing in it ever changes; a replan makes a new task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The queue that it belongs to.
    pub queue: Queue,
    /// Its name within the queue.
    pub slug: Slug,
    /// One line, at most 200 characters.
    pub title: String,
    /// When it was planned, in microseconds since 1970 UTC: the order of creation.
    pub created: i64,
    /// 0 (most urgent) to 4.
    pub priority: Priority,
    /// Tasks that must be `done` before this one can be claimed.
    pub depends_on: Vec<TaskId>,
    /// The task that this one is a part of.
    pub parent: Option<TaskId>,
    /// The parent's status when this task was planned.
    pub spawned_at: Option<RecordId>,
    /// What must pass before this task is done.
    pub verifier: Option<String>,
    /// Whether the first claim binds the task to its context.
    pub sticky: bool,
    /// The directory that the work must happen in.
    pub workdir: Option<String>,
    /// The lease that every claim of this task gets, unless the claim asks for another.
    pub ttl: Option<Ttl>,
    /// After how many sweeps in a row without a report it is rejected; 0 is never.
    pub max_attempts: Option<u32>,
    /// Free tags, for filtering.
    pub labels: Vec<Label>,
}

impl Task {
    /// Whether two plans define the same task: in everything but the moment of planning, which is the date and the status
    /// that the parent had then.
    pub fn is_same_definition(&self, other: &Task) -> bool {
        Task { created: other.created, spawned_at: other.spawned_at, ..self.clone() } == *other
    }

    /// Whether it has all of these labels.
    pub fn has_labels(&self, labels: &[Label]) -> bool {
        labels.iter().all(|label| self.labels.contains(label))
    }
}

/// Where a task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Waiting to be claimed.
    New,
    /// Claimed.
    Working,
    /// Closed, with success.
    Done,
    /// Closed, without.
    Rejected,
    /// Replaced by another task; final.
    Superseded,
}

impl Phase {
    /// Every phase, in the order in which they are counted and shown.
    pub const ALL: [Phase; 5] = [Phase::New, Phase::Working, Phase::Done, Phase::Rejected, Phase::Superseded];

    /// The phase, spelled as on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::New => "new",
            Phase::Working => "working",
            Phase::Done => "done",
            Phase::Rejected => "rejected",
            Phase::Superseded => "superseded",
        }
    }

    /// Whether the task needs no more work: a parent may finish over it.
    pub fn is_settled(self) -> bool {
        matches!(self, Phase::Done | Phase::Rejected | Phase::Superseded)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Phase {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        Phase::ALL.into_iter().find(|phase| phase.as_str() == text).ok_or(BadValue("a status"))
    }
}

/// Why a status is what it is, where the phase alone does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Taken away from its holder, by a sweep or an operator.
    Reclaimed,
    /// Given back by its holder.
    Released,
    /// Called off.
    Cancelled,
    /// Opened again after it was closed.
    Replanned,
}

impl Mark {
    /// Every mark.
    pub const ALL: [Mark; 4] = [Mark::Reclaimed, Mark::Released, Mark::Cancelled, Mark::Replanned];

    /// The trailer key of the mark.
    pub fn key(self) -> &'static str {
        match self {
            Mark::Reclaimed => "Reclaimed",
            Mark::Released => "Released",
            Mark::Cancelled => "Cancelled",
            Mark::Replanned => "Replanned",
        }
    }
}

/// A change of phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The phase that the task enters.
    pub phase: Phase,
    /// Claims so far.
    pub attempt: u64,
    /// Sweeps in a row without a report in between.
    pub reclaims: u64,
    /// The context that a sticky task is bound to.
    pub context: Option<ContextId>,
    /// The lease that a claim asked for.
    pub ttl: Option<Ttl>,
    /// The report that closes the task.
    pub proof: Option<RecordId>,
    /// Why, in the author's words.
    pub reason: Option<String>,
    /// What kind of change this is, where the phase alone does not say.
    pub mark: Option<Mark>,
    /// In the first status of a clone: the task that it replaces.
    pub replan_of: Option<TaskId>,
    /// In a superseding status: the clone that replaces it.
    pub superseded_by: Option<TaskId>,
    /// What the verifier said, in a closing status.
    pub verification: Option<Verification>,
}

impl Status {
    /// A status with these counters and no other field set.
    pub fn new(phase: Phase, attempt: u64, reclaims: u64) -> Status {
        Status {
            phase,
            attempt,
            reclaims,
            context: None,
            ttl: None,
            proof: None,
            reason: None,
            mark: None,
            replan_of: None,
            superseded_by: None,
            verification: None,
        }
    }
}

/// The outcome of a verifier, as recorded on the closing status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// The verifier that ran.
    pub verifier: String,
    /// Its exit code: 0 passed, -1 skipped with a recorded reason.
    pub exit: i32,
    /// What it printed, cut to 4 KiB.
    pub summary: Option<String>,
}

/// What a worker says it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// One line, at most 200 characters.
    pub title: String,
    /// The commit that holds the work. Kept alive by its branch, not by this record.
    pub commit: Option<Oid>,
    /// Written by a sweeper or operator in the holder's stead, to close a task that has no other proof.
    pub synthetic: bool,
    /// The tree of attached files; `None` is the empty tree.
    pub attachments: Option<Oid>,
}

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heartbeat {
    /// Written by a sweeper, directly under the reclaim that it prepares.
    pub preempt: bool,
    /// What the holder is doing, in its words.
    pub progress: Option<String>,
}

/// A reading of a monotonic clock: comparable only with readings of the same clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// Which clock: a hash of boot, machine and time namespace.
    pub id: u64,
    /// Milliseconds on that clock.
    pub ms: u64,
}

/// 64 random bits. Without them two processes with one agent name and one parent in one second would write the
/// same commit, and the loser would believe that it had won.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nonce(pub u64);

/// How urgent a task is: 0 (most) to 4 (least), 2 by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The number, 0 to 4.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Priority(2)
    }
}

impl TryFrom<u64> for Priority {
    type Error = BadValue;

    fn try_from(number: u64) -> Result<Self, BadValue> {
        if number <= 4 { Ok(Priority(number as u8)) } else { Err(BadValue("a priority from 0 to 4")) }
    }
}

/// How long a claim lasts without a new record, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

impl Ttl {
    /// A year: longer leases would make a dead worker's task never come back.
    pub const MAX_MS: u64 = 366 * 24 * 3600 * 1000;

    /// Wraps a number of milliseconds between 1 and [`Ttl::MAX_MS`].
    pub fn from_ms(ms: u64) -> Result<Ttl, BadValue> {
        if (1..=Ttl::MAX_MS).contains(&ms) { Ok(Ttl(ms)) } else { Err(BadValue("a duration from 1ms to 366 days")) }
    }

    /// Milliseconds.
    pub fn ms(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Ttl {
    /// The one spelling that records use: whole seconds as `300s`, anything else as `1500ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) { write!(f, "{}s", self.0 / 1000) } else { write!(f, "{}ms", self.0) }
    }
}

impl FromStr for Ttl {
    type Err = BadValue;

    /// Reads `300s` or `1500ms`.
    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = BadValue("a duration such as 300s or 1500ms");
        let (digits, scale) = match text.strip_suffix("ms") {
            Some(digits) => (digits, 1),
            None => (text.strip_suffix('s').ok_or(bad)?, 1000),
        };
        Ttl::from_ms(decimal(digits)?.checked_mul(scale).ok_or(bad)?)
    }
}

macro_rules! tag_newtype {
    ($(#[$doc:meta])* $name:ident, $what:literal, $most:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = BadValue;

            fn from_str(text: &str) -> Result<Self, BadValue> {
                let legal = |b: u8| b.is_ascii_alphanumeric() || b"._@:/+-".contains(&b);
                if (1..=$most).contains(&text.len()) && text.bytes().all(legal) {
                    Ok($name(text.to_owned()))
                } else {
                    Err(BadValue($what))
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

tag_newtype! {
    /// A free tag of a task.
    Label, "a label: 1 to 64 characters of A-Z a-z 0-9 . _ @ : / + -", 64
}
tag_newtype! {
    /// The session that a sticky task is bound to.
    ContextId, "a context id: 1 to 128 characters of A-Z a-z 0-9 . _ @ : / + -", 128
}

/// A value that is not what it should be; holds what was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not {0}")]
pub struct BadValue(pub &'static str);

/// The greatest number in a record: JSON readers keep all its digits, and counting on from it never overflows.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Reads a decimal number of at most [`NUMBER_MAX`] in its one canonical spelling: no sign, no leading zero.
pub(super) fn decimal(digits: &str) -> Result<u64, BadValue> {
    let bad = BadValue("a decimal number below 2^53");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) || (digits.len() > 1 && digits.starts_with('0'))
    {
        return Err(bad);
    }
    digits.parse().ok().filter(|number| *number <= NUMBER_MAX).ok_or(bad)
}
