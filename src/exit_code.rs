//! How the process ends (design, section 9; `docs/exit-codes.md`, which a test holds against this file).

/// The meaning of an exit. The numbers are an interface: scripts branch on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExitCode {
    /// It was done.
    Done,
    /// An unexpected failure.
    Failure,
    /// The call, its input or the configuration is wrong.
    Usage,
    /// `poll status`: no poller runs.
    NotRunning,
    /// The slug is taken in this queue.
    SlugTaken,
    /// The parent has no status.
    ParentWithoutStatus,
    /// The task is in the wrong phase.
    WrongPhase,
    /// There is no report to serve as proof.
    NoReport,
    /// The race was lost.
    RaceLost,
    /// The verifier failed.
    VerifierFailed,
    /// The task is bound to another context.
    ContextMismatch,
    /// The graph of tasks does not allow it.
    InvalidGraph,
    /// The task is held by another agent or claim.
    LeaseLost,
    /// A verifier was to be skipped without a reason.
    SkipWithoutNote,
    /// Children are not settled.
    ChildrenOpen,
    /// The parent is not claimed yet.
    ParentNotClaimed,
    /// The chain has no status.
    NoStatus,
    /// No such task.
    UnknownTask,
    /// Not a repository that pm can use.
    UnusableRepository,
    /// The ledger is damaged, or of a newer format.
    Damaged,
    /// The authority is unreachable or refused.
    Unreachable,
    /// Timed out waiting for a lock.
    LockTimeout,
    /// The authority's answer was lost.
    AnswerLost,
    /// The branch moved; nothing was delivered.
    DeliveryRefused,
}

impl ExitCode {
    /// All codes, in order.
    pub const ALL: [ExitCode; 24] = [
        ExitCode::Done,
        ExitCode::Failure,
        ExitCode::Usage,
        ExitCode::NotRunning,
        ExitCode::SlugTaken,
        ExitCode::ParentWithoutStatus,
        ExitCode::WrongPhase,
        ExitCode::NoReport,
        ExitCode::RaceLost,
        ExitCode::VerifierFailed,
        ExitCode::ContextMismatch,
        ExitCode::InvalidGraph,
        ExitCode::LeaseLost,
        ExitCode::SkipWithoutNote,
        ExitCode::ChildrenOpen,
        ExitCode::ParentNotClaimed,
        ExitCode::NoStatus,
        ExitCode::UnknownTask,
        ExitCode::UnusableRepository,
        ExitCode::Damaged,
        ExitCode::Unreachable,
        ExitCode::LockTimeout,
        ExitCode::AnswerLost,
        ExitCode::DeliveryRefused,
    ];

    /// The number, and the name that JSON errors carry.
    pub fn row(self) -> (u8, &'static str) {
        match self {
            ExitCode::Done => (0, "done"),
            ExitCode::Failure => (1, "failure"),
            ExitCode::Usage => (2, "usage"),
            ExitCode::NotRunning => (3, "not_running"),
            ExitCode::SlugTaken => (4, "slug_taken"),
            ExitCode::ParentWithoutStatus => (5, "parent_without_status"),
            ExitCode::WrongPhase => (6, "wrong_phase"),
            ExitCode::NoReport => (7, "no_report"),
            ExitCode::RaceLost => (8, "race_lost"),
            ExitCode::VerifierFailed => (9, "verifier_failed"),
            ExitCode::ContextMismatch => (10, "context_mismatch"),
            ExitCode::InvalidGraph => (11, "invalid_graph"),
            ExitCode::LeaseLost => (12, "lease_lost"),
            ExitCode::SkipWithoutNote => (13, "skip_without_note"),
            ExitCode::ChildrenOpen => (14, "children_open"),
            ExitCode::ParentNotClaimed => (15, "parent_not_claimed"),
            ExitCode::NoStatus => (16, "no_status"),
            ExitCode::UnknownTask => (17, "unknown_task"),
            ExitCode::UnusableRepository => (18, "unusable_repository"),
            ExitCode::Damaged => (19, "damaged"),
            ExitCode::Unreachable => (20, "unreachable"),
            ExitCode::LockTimeout => (21, "lock_timeout"),
            ExitCode::AnswerLost => (22, "answer_lost"),
            ExitCode::DeliveryRefused => (23, "delivery_refused"),
        }
    }

    /// What the caller should do, in a few words.
    pub fn advice(self) -> &'static str {
        match self {
            ExitCode::Done => "go on",
            ExitCode::Failure => "look; what was recorded stands",
            ExitCode::Usage => "fix the call; nothing was changed",
            ExitCode::NotRunning => "start the poller",
            ExitCode::SlugTaken => "choose another slug",
            ExitCode::ParentWithoutStatus => "look at the parent",
            ExitCode::WrongPhase => "drop the task",
            ExitCode::NoReport => "report first",
            ExitCode::RaceLost => "pause, take another task",
            ExitCode::VerifierFailed => "fix the work, report again",
            ExitCode::ContextMismatch => "leave it to its context",
            ExitCode::InvalidGraph => "fix the plan, or wait",
            ExitCode::LeaseLost => "stop working on the task",
            ExitCode::SkipWithoutNote => "give the reason",
            ExitCode::ChildrenOpen => "finish the children first",
            ExitCode::ParentNotClaimed => "claim the parent first",
            ExitCode::NoStatus => "pm verify",
            ExitCode::UnknownTask => "check the id",
            ExitCode::UnusableRepository => "do as the message says",
            ExitCode::Damaged => "pm verify, or a newer pm",
            ExitCode::Unreachable => "try again later",
            ExitCode::LockTimeout => "try again",
            ExitCode::AnswerLost => "run the same command again",
            ExitCode::DeliveryRefused => "rebase, deliver again",
        }
    }

    /// The number.
    pub fn number(self) -> u8 {
        self.row().0
    }

    /// The name that JSON errors carry.
    pub fn name(self) -> &'static str {
        self.row().1
    }
}
