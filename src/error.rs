//! Why a command could not do what was asked: data for callers, wording for people, one exit code each.

mod wait;

use std::io::ErrorKind;

use serde_json::{Map, Value, json};

pub use self::wait::{Known, WaitError};
use crate::exit_code::ExitCode;
use crate::id::{NameError, Queue, RecordId, RefName, Slug, TaskId};
use crate::poll::PollError;
use crate::protocol::decide::Verified;
use crate::protocol::refusal::{HeldBy, Lapse, Refusal, Unmet};
use crate::protocol::sticky::{Bound, Misfit};
use crate::protocol::text::TextError;
use crate::store::StoreError;
use crate::verifier::VerifierError;
use crate::verifier::allow::line_to_add;

/// The result of everything above the store.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call, its input or the configuration is wrong. Nothing was changed.
    #[error("{0}")]
    Usage(String),
    /// Many things are wrong with one input.
    #[error("{what} cannot be used, nothing was written:\n  {}", faults.join("\n  "))]
    BadInput {
        /// The input.
        what: String,
        /// Each fault with its line.
        faults: Vec<String>,
    },
    /// A rule said no.
    #[error("{place}: {refusal}")]
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
    /// Slugs of a batch are taken by tasks with other definitions.
    #[error("these slugs are taken by tasks with another definition; nothing was written (--accept-existing takes them as they are):\n  {}", differences.join("\n  "))]
    SlugsTaken {
        /// One line a slug.
        differences: Vec<String>,
    },
    /// Slugs of a batch were created by others each time that it was about to be published.
    #[error(
        "slugs of this batch were created by others {times} times while it was being written; nothing was published, run it again"
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
            Error::Usage(_) | Error::BadInput { .. } => ExitCode::Usage,
            Error::Refused { refusal, .. } => refusal_code(refusal),
            Error::UnknownTask { .. } => ExitCode::UnknownTask,
            Error::SlugTaken { .. } | Error::SlugsTaken { .. } => ExitCode::SlugTaken,
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

    /// The JSON object that `--json` prints on stderr.
    pub fn to_json(&self) -> Value {
        let code = self.exit_code();
        let mut map = Map::new();
        map.insert("code".to_owned(), json!(code.name()));
        map.insert("exit".to_owned(), json!(code.number()));
        map.insert("message".to_owned(), json!(self.to_string()));
        match self {
            Error::Refused { task, place, refusal } => {
                map.insert("task".to_owned(), json!(task));
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
                refusal_facts(refusal, &mut map);
            }
            Error::UnknownTask { candidates, .. } => {
                map.insert("candidates".to_owned(), json!(candidates));
            }
            Error::SlugTaken { place, task, .. } => {
                map.insert("task".to_owned(), json!(task));
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
            }
            Error::BadInput { faults, .. } => {
                map.insert("faults".to_owned(), json!(faults));
            }
            Error::SlugsTaken { differences } => {
                map.insert("differences".to_owned(), json!(differences));
            }
            Error::Damaged { name, commit, found } => {
                map.insert("ref".to_owned(), json!(name));
                map.insert("commit".to_owned(), json!(commit));
                map.insert("found".to_owned(), json!(found));
            }
            Error::Unreachable { remote, why } => {
                map.insert("remote".to_owned(), json!(remote));
                map.insert("why".to_owned(), json!(why));
            }
            Error::AnswerLost { place, record, remote, .. } => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
                map.insert("record".to_owned(), json!(record));
                map.insert("remote".to_owned(), json!(remote));
                map.insert("recorded".to_owned(), json!("unknown"));
            }
            Error::Busy { name, .. } => {
                map.insert("ref".to_owned(), json!(name));
            }
            Error::TipMoved { name, tip } => {
                map.insert("ref".to_owned(), json!(name));
                map.insert("tip".to_owned(), json!(tip));
            }
            Error::Distrusted { name, remote, found } => {
                map.insert("ref".to_owned(), json!(name));
                map.insert("remote".to_owned(), json!(remote));
                map.insert("found".to_owned(), json!(found));
            }
            Error::VerifierFailed { place, verified, timed_out } => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
                map.insert("report".to_owned(), json!(verified.report));
                map.insert("verifier".to_owned(), json!(verified.verification.verifier));
                map.insert("verifier_exit".to_owned(), json!(verified.verification.exit));
                map.insert("verifier_summary".to_owned(), json!(verified.verification.summary));
                map.insert("timed_out".to_owned(), json!(timed_out));
            }
            Error::Verifier(place, error) => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
                if let VerifierError::NotAllowed(not) = error {
                    map.insert("verifier".to_owned(), json!(not.verifier));
                    map.insert("remedy".to_owned(), json!(line_to_add(&not.verifier)));
                }
            }
            Error::ParentWithoutStatus { place } => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
            }
            Error::DeliveryRefused { place, branch, .. } => {
                map.insert("queue".to_owned(), json!(place.queue));
                map.insert("slug".to_owned(), json!(place.slug));
                map.insert("branch".to_owned(), json!(branch));
            }
            Error::Wait(error) => error.facts(&mut map),
            Error::Store(StoreError::BrokenRef { name, found }) => {
                map.insert("ref".to_owned(), json!(name));
                map.insert("found".to_owned(), json!(found));
            }
            Error::Store(StoreError::Locked { path, waited_ms }) => {
                map.insert("path".to_owned(), json!(path.display().to_string()));
                map.insert("waited_ms".to_owned(), json!(waited_ms));
            }
            Error::Store(StoreError::RecordedUnknown { name, .. }) => {
                map.insert("recorded".to_owned(), json!("unknown"));
                map.insert("ref".to_owned(), json!(name));
            }
            Error::Poll(PollError::Held { path, pid }) => {
                map.insert("path".to_owned(), json!(path.display().to_string()));
                map.extend(pid.map(|pid| ("pid".to_owned(), json!(pid))));
            }
            Error::Usage(_)
            | Error::Poll(_)
            | Error::BatchRaced { .. }
            | Error::InvalidGraph(_)
            | Error::NotStarted { .. }
            | Error::Tour(_)
            | Error::Store(_)
            | Error::Io { .. } => {}
        }
        json!({ "error": map })
    }
}

/// How the process ends after a refusal.
pub fn refusal_code(refusal: &Refusal) -> ExitCode {
    match refusal {
        Refusal::NoStatus => ExitCode::NoStatus,
        Refusal::Contradiction { .. } => ExitCode::Damaged,
        Refusal::WrongPhase { .. } => ExitCode::WrongPhase,
        Refusal::LeaseLost { .. } | Refusal::LeaseLapsed { .. } => ExitCode::LeaseLost,
        Refusal::NoReport => ExitCode::NoReport,
        Refusal::RaceLost { .. } => ExitCode::RaceLost,
        Refusal::DependenciesOpen { .. } | Refusal::NotReplacedYet { .. } => ExitCode::InvalidGraph,
        Refusal::ParentNotClaimed { .. } => ExitCode::ParentNotClaimed,
        Refusal::ChildrenOpen { .. } => ExitCode::ChildrenOpen,
        Refusal::Context(_) => ExitCode::ContextMismatch,
        Refusal::NotVerified { .. } => ExitCode::VerifierFailed,
        Refusal::SkipWithoutNote => ExitCode::SkipWithoutNote,
    }
}

fn refusal_facts(refusal: &Refusal, map: &mut Map<String, Value>) {
    let mut put_held = |held: &HeldBy| {
        map.insert("holder".to_owned(), json!(held.holder));
        map.insert("claim".to_owned(), json!(held.claim));
        map.insert("yours".to_owned(), json!(held.yours));
    };
    match refusal {
        Refusal::WrongPhase { phase, held, .. } => {
            held.iter().for_each(&mut put_held);
            map.insert("status".to_owned(), json!(phase.as_str()));
        }
        Refusal::LeaseLost { held, .. } => put_held(held),
        Refusal::LeaseLapsed { claim, lapse } => {
            map.insert("claim".to_owned(), json!(claim));
            match lapse {
                Lapse::NotHeld(phase) => map.insert("status".to_owned(), json!(phase.as_str())),
                Lapse::TooShort { left_ms, .. } => map.insert("lease_left_ms".to_owned(), json!(left_ms)),
                Lapse::AnotherClock => None,
            };
        }
        Refusal::RaceLost { held } => held.iter().for_each(put_held),
        Refusal::DependenciesOpen { open } => {
            map.insert("blocked_by".to_owned(), json!(open.iter().map(told).collect::<Vec<_>>()));
        }
        Refusal::ParentNotClaimed { parent: other } | Refusal::NotReplacedYet { original: other } => {
            map.insert("blocked_by".to_owned(), json!([told(other)]));
        }
        Refusal::ChildrenOpen { open } => {
            map.insert("children".to_owned(), json!(open.iter().map(told).collect::<Vec<_>>()));
        }
        Refusal::Context(misfit) => {
            let bound =
                |bound: &Bound| json!({"queue": bound.place.0, "slug": bound.place.1, "context_id": bound.context});
            let bound: Vec<_> = match misfit {
                Misfit::Missing { wanted } => wanted.iter().map(bound).collect(),
                Misfit::Other { wanted, .. } => vec![bound(wanted)],
                Misfit::Split { first, second } => vec![bound(first), bound(second)],
            };
            map.insert("bound".to_owned(), json!(bound));
        }
        Refusal::NotVerified { verifier } => {
            map.insert("verifier".to_owned(), json!(verifier));
        }
        Refusal::NoStatus | Refusal::Contradiction { .. } | Refusal::NoReport | Refusal::SkipWithoutNote => {}
    }
}

/// Another task, as a refusal tells of it.
fn told(unmet: &Unmet) -> Value {
    let place = unmet.place.as_ref();
    json!({
        "task": unmet.task,
        "queue": place.map(|(queue, _)| queue),
        "slug": place.map(|(_, slug)| slug),
        "status": unmet.phase.map(|phase| phase.as_str()),
    })
}
