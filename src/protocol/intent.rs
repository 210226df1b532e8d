//! What is asked of a task, before anybody has decided whether it may be.

use super::record::{Report, Ttl, Verification};
use super::refusal::Verb;
use crate::id::{RecordId, TaskId};

/// What is asked of one existing task. Creation needs no decision about a state: see [`creation`](super::decide::creation).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Intent {
    /// Take the task.
    Claim {
        /// The lease that the worker asks for; the task's own otherwise.
        ttl: Option<Ttl>,
    },
    /// Keep the claim alive.
    Heartbeat {
        /// The claim that this is meant for.
        claim: Option<RecordId>,
        /// What the holder is doing.
        progress: Option<String>,
    },
    /// Say what was done.
    Report {
        /// The claim that this is meant for.
        claim: Option<RecordId>,
        /// What the report says.
        report: Report,
        /// Its text.
        body: Option<String>,
    },
    /// Give the task back.
    Release {
        /// The claim that this is meant for.
        claim: Option<RecordId>,
        /// Why.
        reason: Option<String>,
    },
    /// Close the task.
    Finish {
        /// The claim that this is meant for.
        claim: Option<RecordId>,
        /// Whether it was done (or rejected).
        done: bool,
        /// A note for the audit trail.
        note: Option<String>,
        /// The report that was verified, and what the verifier said; where the task has one and is to be done.
        verified: Option<Verified>,
    },
    /// Take the task from a holder that was silent too long: only while the tip is the one that was observed. A supervisor
    /// who observed a task that nobody holds frees it of its context; a sweep observes claims only.
    Sweep {
        /// The tip that was observed.
        observed: RecordId,
        /// Why, for the audit trail.
        reason: Option<String>,
        /// The limit for tasks that set none themselves (`pm.maxAttempts`); 0 is none.
        max_attempts: u32,
    },
    /// Take the task from its holder, by an operator's word; or, where nobody holds it, from the context that it is bound
    /// to.
    Reclaim {
        /// The status that this is meant for, once it is known: the claim, or the one that left the task bound.
        status: Option<RecordId>,
        /// Why.
        reason: Option<String>,
    },
    /// Call the task off, by an operator's word, whoever holds it.
    Cancel {
        /// Why.
        reason: Option<String>,
    },
    /// Open a closed task again.
    Replan {
        /// A note for the audit trail.
        note: Option<String>,
    },
    /// Put another task in the place of this one, for ever.
    Supersede {
        /// That task.
        by: TaskId,
        /// A note for the audit trail.
        note: Option<String>,
    },
}

/// A verifier that ran, or was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The report that it ran on: only that one can be the proof.
    pub report: RecordId,
    /// What it said.
    pub verification: Verification,
}

impl Intent {
    /// What is asked, in the words of the refusals.
    pub fn verb(&self) -> Verb {
        match self {
            Intent::Claim { .. } => Verb::Claim,
            Intent::Heartbeat { .. } => Verb::Heartbeat,
            Intent::Report { .. } => Verb::Report,
            Intent::Release { .. } => Verb::Release,
            Intent::Finish { .. } => Verb::Finish,
            Intent::Sweep { .. } => Verb::Sweep,
            Intent::Reclaim { .. } => Verb::Reclaim,
            Intent::Cancel { .. } => Verb::Cancel,
            Intent::Replan { .. } => Verb::Replan,
            Intent::Supersede { .. } => Verb::Supersede,
        }
    }

    /// Pins the intent to the status that it was first decided against, which is the claim of a task that is held: after a
    /// lost race it is never decided against a newer one. Only for an intent that `decide` has allowed: a named claim
    /// proves the holder by itself.
    pub fn pin(&mut self, current: RecordId) {
        match self {
            Intent::Claim { .. }
            | Intent::Sweep { .. }
            | Intent::Cancel { .. }
            | Intent::Replan { .. }
            | Intent::Supersede { .. } => {}
            Intent::Heartbeat { claim, .. }
            | Intent::Report { claim, .. }
            | Intent::Release { claim, .. }
            | Intent::Finish { claim, .. }
            | Intent::Reclaim { status: claim, .. } => *claim = Some(current),
        }
    }
}
