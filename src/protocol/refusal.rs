//! How the rules say no (design, sections 4 and 9).
//!
//! A refusal carries what a caller needs to decide what to do next: the phase, the holder, the claim. The
//! wording is here and nowhere else.

use super::record::Phase;
use crate::id::{AgentId, Queue, RecordId, Slug, TaskId};

/// What was asked, in the words of the refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// `executing`, `pull`.
    Claim,
    /// `heartbeat`.
    Heartbeat,
    /// `report`.
    Report,
    /// `release`.
    Release,
    /// `finished`.
    Finish,
    /// `sweep`, and `reclaim --if-tip`.
    Sweep,
    /// `reclaim`.
    Reclaim,
}

impl std::fmt::Display for Verb {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verb::Claim => "be claimed",
            Verb::Heartbeat => "take a heartbeat",
            Verb::Report => "take a report",
            Verb::Release => "be released",
            Verb::Finish => "be finished",
            Verb::Sweep | Verb::Reclaim => "be reclaimed",
        })
    }
}

/// Who holds a task, as told to somebody who wanted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldBy {
    /// The holder.
    pub holder: AgentId,
    /// By which claim.
    pub claim: RecordId,
    /// Whether that is the caller's own agent id: a worker that was killed after its claim finds it again.
    pub yours: bool,
}

impl std::fmt::Display for HeldBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let whose = if self.yours { " (your own)" } else { "" };
        write!(f, "held by {}{whose} with claim {}", self.holder, self.claim)
    }
}

/// A dependency that is not done yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// The dependency, as the task names it.
    pub task: TaskId,
    /// Its place in the ledger, where it was found.
    pub place: Option<(Queue, Slug)>,
    /// Its phase; `None` where it cannot be found or read.
    pub phase: Option<Phase>,
}

impl std::fmt::Display for Unmet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            Some((queue, slug)) => write!(f, "{queue}/{slug}")?,
            None => write!(f, "{}", self.task)?,
        }
        match self.phase {
            Some(phase) => write!(f, " is {phase}"),
            None => f.write_str(" cannot be found"),
        }
    }
}

/// Why a claim gives no leave for an outside effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Lapse {
    /// Nobody holds the task.
    #[error("does not hold the task: it is {0}; do nothing in its name")]
    NotHeld(Phase),
    /// The lease is over, or nearly.
    #[error("has {left_ms} ms of its lease left, and {needed_ms} ms are needed; send a heartbeat first")]
    TooShort {
        /// What is left of the lease, in milliseconds.
        left_ms: u64,
        /// What the effect needs, in milliseconds.
        needed_ms: u64,
    },
    /// Its newest record was written on another clock.
    #[error(
        "was last kept alive on another clock: nobody here can tell what is left of its lease; send a heartbeat from this machine first"
    )]
    AnotherClock,
}

/// A rule said no. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// 16: the chain has no status.
    #[error("the task has no status; `pm verify` tells what its chain holds")]
    NoStatus,
    /// 6: the task is not in the phase that the request needs.
    #[error("the task is {phase} and cannot {verb}{}", held.as_ref().map(|held| format!(": it is {held}")).unwrap_or_default())]
    WrongPhase {
        /// What was asked.
        verb: Verb,
        /// The phase that it is in.
        phase: Phase,
        /// Who holds it, while it is working.
        held: Option<HeldBy>,
    },
    /// 12: the caller does not hold the task, or no longer does.
    #[error("{}{held}; stop working on it", named.map(|claim| format!("claim {claim} is not current: the task is ")).unwrap_or_else(|| format!("agent {agent} does not hold the task: it is ")))]
    LeaseLost {
        /// Who asked.
        agent: AgentId,
        /// The claim that was named, if one was.
        named: Option<RecordId>,
        /// Who holds it.
        held: HeldBy,
    },
    /// 12: a claim gives no leave for an outside effect: it does not hold the task, or not for long enough.
    #[error("claim {claim} {lapse}")]
    LeaseLapsed {
        /// The claim that was named.
        claim: RecordId,
        /// What is the matter with it.
        lapse: Lapse,
    },
    /// 7: no report under this claim that could be the proof.
    #[error("there is no report under this claim to serve as the proof; `pm report` first")]
    NoReport,
    /// 8: the task was free when it was looked at, and somebody else was faster.
    #[error("the race was lost{}", held.as_ref().map(|held| format!(": the task is {held}")).unwrap_or_default())]
    RaceLost {
        /// Who won, if the task is held now.
        held: Option<HeldBy>,
    },
    /// 11: a dependency is not done.
    #[error("the task waits for its dependencies: {}", join(open))]
    DependenciesOpen {
        /// What it waits for.
        open: Vec<Unmet>,
    },
    /// 19: the task uses something that this build cannot judge.
    #[error("the task uses {what}, which this pm cannot judge; use a newer pm for it")]
    Unsupported {
        /// The feature.
        what: &'static str,
    },
}

fn join(open: &[Unmet]) -> String {
    /// A task can depend on hundreds of others; a message names the first few.
    const NAMED: usize = 5;
    let mut text = open.iter().take(NAMED).map(Unmet::to_string).collect::<Vec<_>>().join(", ");
    if open.len() > NAMED {
        text.push_str(&format!(", and {} more", open.len() - NAMED));
    }
    text
}
