//! Why a command could not do what was asked: data for callers, wording for people, one exit code each.

mod facts;
mod plan;
mod wait;

use std::io::ErrorKind;

pub use self::plan::{Fault, FaultKind, PlanError, Spot};
pub use self::wait::{Known, WaitError};
use crate::exit_code::ExitCode;
use crate::id::{NameError, Queue, RecordId, RefName, Slug, TaskId};
use crate::poll::PollError;
use crate::protocol::decide::Verified;
use crate::protocol::refusal::Refusal;
use crate::protocol::text::TextError;
use crate::store::StoreError;
use crate::verifier::VerifierError;
use crate::verifier::form::FormError;

/// The result of everything above the store.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call, its input or the configuration is wrong. Nothing was changed.
    #[error("{0}")]
    Usage(String),
    /// Something is wrong with a plan of many tasks.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A rule said no.
    #[error("{place}: {}", refusal.told(&place.queue, &place.slug))]
    Refused {
        /// The task.
        task: TaskId,
        /// Where it is.
        place: Place,
        /// What the rule said.
        refusal: Refusal,
    },
    /// No task answers to that name.
    #[error("no task '{asked}': {because}")]
    UnknownTask {
        /// What was asked for, made printable.
        asked: String,
        /// Why it is none, and what was found instead.
        because: String,
        /// Tasks that could have been meant.
        candidates: Vec<TaskId>,
    },
    /// The slug is taken.
    #[error("{place} exists already, as task {task}; choose another slug{differs}")]
    SlugTaken {
        /// Where.
        place: Place,
        /// The task that has it.
        task: TaskId,
        /// How its definition differs, or nothing.
        differs: String,
    },
    /// Slugs of a batch were created by others each time that it was about to be published.
    #[error(
        "others planned what this plan names or would create {times} times while it was being written; nothing was published, run it again"
    )]
    BatchRaced {
        /// How often it was tried.
        times: u32,
    },
    /// The graph does not allow it.
    #[error("{0}")]
    InvalidGraph(String),
    /// A chain cannot be read, or stands where it must not.
    #[error("{name} is damaged: commit {commit}: {found}; nothing was moved, `pm verify` lists every fault")]
    Damaged {
        /// The ref.
        name: RefName,
        /// The commit.
        commit: RecordId,
        /// What is wrong with it.
        found: String,
    },
    /// A poller cannot be run, started or stopped.
    #[error(transparent)]
    Poll(#[from] PollError),
    /// The command of a runner cannot be started.
    #[error(
        "the work on a task could not be begun {times} times in a row, so this agent ended; the tasks are back in the queue. The last time: {why}"
    )]
    NotStarted {
        /// How often it was tried.
        times: u32,
        /// What the system said.
        why: String,
    },
    /// The tour broke a rule.
    #[error("the tour failed: {0}")]
    Tour(String),
    /// The authority cannot be reached, or does not want it. Nothing was recorded.
    #[error(
        "the authority '{remote}' cannot be used: {why}; nothing was recorded, try again later (`--offline` records here only)"
    )]
    Unreachable {
        /// The remote.
        remote: String,
        /// What git complained of.
        why: String,
    },
    /// A record was sent to the authority, and its answer was lost.
    #[error(
        "{place}: the record {record} was sent to the authority '{remote}', and its answer was lost ({why}). Whether it was accepted is not known yet: run the same command again, it sends the same record"
    )]
    AnswerLost {
        /// The task.
        place: Place,
        /// The record.
        record: RecordId,
        /// The remote.
        remote: String,
        /// What git complained of.
        why: String,
    },
    /// What is at the authority cannot be believed, so this task is left alone.
    #[error("{name} at the authority '{remote}': {found}")]
    Distrusted {
        /// The ref.
        name: RefName,
        /// The remote.
        remote: String,
        /// What is wrong, and what to do.
        found: String,
    },
    /// Others kept recording something of a task here while it was compared with a remote's.
    #[error("{name} was moved here {times} times while it was compared with the remote; nothing was moved, try again")]
    Busy {
        /// The ref.
        name: RefName,
        /// How often it was looked at.
        times: u32,
    },
    /// An operator's order was given for another tip.
    #[error("{name} is at {tip}, not where you have seen it; nothing was moved, look again")]
    TipMoved {
        /// The ref.
        name: RefName,
        /// Where it is.
        tip: RecordId,
    },
    /// The branch of a delivery is not where it may be moved from. This command recorded nothing.
    #[error("{place}: the branch {branch} was not moved, and this command recorded nothing: {why}")]
    DeliveryRefused {
        /// The task.
        place: Place,
        /// The branch.
        branch: String,
        /// Why not.
        why: String,
    },
    /// A parent whose chain has no status.
    #[error("{place} has no status yet, so it cannot be a parent; `pm verify` tells what its chain holds")]
    ParentWithoutStatus {
        /// The parent.
        place: Place,
    },
    /// The verifier of a task did not pass. Nothing was recorded.
    #[error(
        "{place}: the verifier {}: {}{}\nthe task is as it was: mend the work, report again, and finish it then",
        if *timed_out { "took too long".to_owned() } else { format!("failed with exit {}", verified.verification.exit) },
        verified.verification.verifier,
        verified.verification.summary.as_ref().map(|summary| format!("\n{summary}")).unwrap_or_default()
    )]
    VerifierFailed {
        /// The task.
        place: Place,
        /// Which report was verified, and what the verifier said.
        verified: Box<Verified>,
        /// It took too long, and was ended.
        timed_out: bool,
    },
    /// The claim ended while the verifier of its report ran. Nothing was recorded.
    #[error(
        "{place}: the claim ended while its report was verified: the task was {how}; nothing was recorded, stop working on it"
    )]
    LostMeanwhile {
        /// The task.
        task: TaskId,
        /// Where it is.
        place: Place,
        /// What the rule said to whoever went on.
        refusal: Box<Refusal>,
        /// What others recorded since, oldest first, in words.
        how: String,
    },
    /// The verifier of a task was not asked to the end. Nothing was recorded.
    #[error("{0}: {1}")]
    Verifier(Place, VerifierError),
    /// A wait ended without what was waited for.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The store could not do it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Any other failure of the system.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A task's place in the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The queue.
    pub queue: Queue,
    /// The slug.
    pub slug: Slug,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.queue, self.slug)
    }
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        Error::Usage(error.to_string())
    }
}

impl From<FormError> for Error {
    fn from(error: FormError) -> Self {
        Error::Usage(error.to_string())
    }
}

impl From<TextError> for Error {
    fn from(error: TextError) -> Self {
        Error::Usage(error.to_string())
    }
}

impl Error {
    /// Wraps a system error with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }

    /// How the process ends.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Error::Usage(_) => ExitCode::Usage,
            Error::Plan(error) => error.exit_code(),
            Error::Refused { refusal, .. } => refusal_code(refusal),
            Error::LostMeanwhile { refusal, .. } => refusal_code(refusal),
            Error::UnknownTask { .. } => ExitCode::UnknownTask,
            Error::SlugTaken { .. } => ExitCode::SlugTaken,
            Error::BatchRaced { .. } | Error::Busy { .. } | Error::TipMoved { .. } => ExitCode::RaceLost,
            Error::InvalidGraph(_) => ExitCode::InvalidGraph,
            Error::ParentWithoutStatus { .. } => ExitCode::ParentWithoutStatus,
            Error::VerifierFailed { .. } | Error::Verifier(_, VerifierError::NotAllowed(_)) => ExitCode::VerifierFailed,
            Error::Verifier(_, VerifierError::Io { .. }) => ExitCode::Failure,
            Error::Damaged { .. } | Error::Distrusted { .. } => ExitCode::Damaged,
            Error::Unreachable { .. } => ExitCode::Unreachable,
            Error::AnswerLost { .. } => ExitCode::AnswerLost,
            Error::DeliveryRefused { .. } => ExitCode::DeliveryRefused,
            Error::Wait(error) => error.exit_code(),
            Error::Poll(PollError::Unlockable { source, .. })
                if matches!(source.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
            {
                ExitCode::UnusableRepository
            }
            Error::Poll(_) | Error::NotStarted { .. } | Error::Tour(_) | Error::Io { .. } => ExitCode::Failure,
            Error::Store(error) => match error {
                StoreError::Unusable { .. } | StoreError::ReadOnly { .. } => ExitCode::UnusableRepository,
                StoreError::Missing { .. } | StoreError::Damaged { .. } | StoreError::BrokenRef { .. } => {
                    ExitCode::Damaged
                }
                StoreError::NoCommit { .. } => ExitCode::Usage,
                StoreError::Locked { .. } => ExitCode::LockTimeout,
                StoreError::RecordedUnknown { .. } | StoreError::Prevented { .. } | StoreError::Io { .. } => {
                    ExitCode::Failure
                }
            },
        }
    }
}

/// How the process ends after a refusal.
pub fn refusal_code(refusal: &Refusal) -> ExitCode {
    match refusal {
        Refusal::NoStatus => ExitCode::NoStatus,
        Refusal::Contradiction { .. } | Refusal::Obscured { .. } => ExitCode::Damaged,
        Refusal::WrongPhase { .. } | Refusal::Replaced { .. } => ExitCode::WrongPhase,
        Refusal::LeaseLost { .. } | Refusal::LeaseLapsed { .. } => ExitCode::LeaseLost,
        Refusal::NoReport => ExitCode::NoReport,
        Refusal::RaceLost { .. } | Refusal::Outdated { .. } => ExitCode::RaceLost,
        Refusal::DependenciesOpen { .. } | Refusal::NotReplacedYet { .. } => ExitCode::InvalidGraph,
        Refusal::ParentNotClaimed { .. } => ExitCode::ParentNotClaimed,
        Refusal::ChildrenOpen { .. } => ExitCode::ChildrenOpen,
        Refusal::Context(_) => ExitCode::ContextMismatch,
        Refusal::NotVerified { .. } => ExitCode::VerifierFailed,
        Refusal::SkipWithoutNote => ExitCode::SkipWithoutNote,
    }
}
