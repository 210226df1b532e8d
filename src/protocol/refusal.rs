//! How the rules say no (design, sections 4 and 9).
//!
//! A refusal carries what a caller needs to decide what to do next: the phase, the holder, the claim. The
//! wording is here and nowhere else.

use super::record::Phase;
use super::sticky::Misfit;
use crate::id::{AgentId, Queue, RecordId, RefName, Slug, TaskId};

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
    /// `cancel`.
    Cancel,
    /// `replan`.
    Replan,
    /// `replan` with a new text or verifier.
    Supersede,
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
            Verb::Cancel => "be cancelled",
            Verb::Replan => "be replanned",
            Verb::Supersede => "be replaced",
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

/// A task that another one waits for: a dependency that is not done, a parent that is not claimed, an open child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmet {
    /// The task, as the other one names it: what replaced it, if anything did, is told by its place and phase.
    pub task: TaskId,
    /// Its place in the ledger, where it was found.
    pub place: Option<(Queue, Slug)>,
    /// Its phase; `None` where it cannot be found or read.
    pub phase: Option<Phase>,
}

impl Unmet {
    /// Its place, else its id.
    pub fn named(&self) -> String {
        match &self.place {
            Some((queue, slug)) => format!("{queue}/{slug}"),
            None => self.task.to_string(),
        }
    }
}

/// A chain that cannot be read, while what it says could speak against what is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    /// Its ref.
    pub name: RefName,
    /// What is wrong with it.
    pub found: String,
}

impl Unread {
    /// What people call the task: `<queue>/<slug>`, or the ref where that is no task's.
    fn named(&self) -> String {
        self.name.task().map_or_else(|_| self.name.to_string(), |(queue, slug)| format!("{queue}/{slug}"))
    }
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.found)
    }
}

/// What cannot be told of a task, since chains cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obscured {
    /// Whether its children are settled (rule 9).
    Children,
    /// Which sticky tasks it is tied to (rule 8).
    Ties,
}

impl std::fmt::Display for Obscured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Obscured::Children => "whether its children are settled",
            Obscured::Ties => "to which context it is tied",
        })
    }
}

/// What a task is to a new one that waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A dependency, which is not done.
    Dependency,
    /// The parent, which is not claimed yet.
    Parent,
    /// What it is to replace, which is not superseded by it yet.
    Original,
}

impl Role {
    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Dependency => "dependency",
            Role::Parent => "parent",
            Role::Original => "original",
        }
    }
}

/// A task that keeps a new one from being claimed, and as what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// As what.
    pub role: Role,
    /// The task.
    pub on: Unmet,
}

impl Wait {
    /// Whether it takes an operator to end this: a dependency that is closed otherwise, a replacement that was cut short,
    /// a task that cannot be found.
    pub fn is_for_ever(&self) -> bool {
        self.role == Role::Original || !matches!(self.on.phase, Some(Phase::New | Phase::Working))
    }

    /// How an operator ends it for the task that waits, command by command.
    pub fn way_out(&self, waiting: &str) -> String {
        let replan = |what: &str| format!("`pm replan --task {}` {what}, ", self.on.named());
        let replan = match (self.role, self.on.phase) {
            (Role::Original, Some(_)) => replan("completes that"),
            (Role::Dependency, Some(Phase::Rejected)) => replan("opens that again"),
            _ => String::new(),
        };
        format!("{replan}`pm cancel --task {waiting}` calls off what waits")
    }

    /// For people: what is waited for, and how it stands. In `here`, its queue goes without saying.
    pub fn told(&self, here: Option<&Queue>) -> String {
        let name = match &self.on.place {
            Some((queue, slug)) if here == Some(queue) => slug.to_string(),
            Some((queue, slug)) => format!("{queue}/{slug}"),
            None => self.on.task.0.short(12),
        };
        let phase = self.on.phase.map_or("missing", Phase::as_str);
        match self.role {
            Role::Dependency => format!("{name} ({phase})"),
            Role::Parent => format!("parent {name} ({phase})"),
            Role::Original => format!("{name} ({phase}, to be superseded)"),
        }
    }
}

impl std::fmt::Display for Unmet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.named())?;
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
    /// 19: what the chain says of the task cannot be, so nothing can be decided on it.
    #[error("the task is damaged: {what}; `pm verify` names the record")]
    Contradiction {
        /// What cannot be.
        what: &'static str,
    },
    /// 6: the task is not in the phase that the request needs.
    #[error("the task is {phase} and cannot {verb}{}", wherefore(*verb, *phase, held.as_ref(), successor.as_deref()))]
    WrongPhase {
        /// What was asked.
        verb: Verb,
        /// The phase that it is in.
        phase: Phase,
        /// Who holds it, while it is working.
        held: Option<HeldBy>,
        /// What stands for it now, if it is superseded.
        successor: Option<Box<Unmet>>,
    },
    /// 6: another task stands for this one, and does not change with it.
    #[error("the task is superseded and cannot be replanned: {by} and stands for it; `pm replan --task {}` works on that", by.named())]
    Replaced {
        /// What stands for it.
        by: Unmet,
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
    /// 8: a report came in while another one was verified, and only the newest can be the proof (rule 6).
    #[error(
        "report {verified} was verified, and is not the newest any more: {newest} is; the same command again verifies that one (a verifier must not report itself)"
    )]
    Outdated {
        /// The report that was verified.
        verified: RecordId,
        /// The newest one.
        newest: RecordId,
    },
    /// 11: a dependency is not done.
    #[error("the task waits for its dependencies: {}", join(open))]
    DependenciesOpen {
        /// What it waits for.
        open: Vec<Unmet>,
    },
    /// 11: a clone is not runnable before the task that it replaces is superseded by it.
    #[error("the task is to replace {}, which {}`pm cancel` of this one calls it off", original.named(), match original.phase {
        Some(Phase::Superseded) => "was superseded by another task; ",
        Some(Phase::Working) => "is being worked on; `pm replan` of that one, once it is closed, completes this, and ",
        Some(_) => "is not superseded by it; `pm replan` of that one completes this, and ",
        None => "cannot be found; `pm verify` tells what is wrong here, and ",
    })]
    NotReplacedYet {
        /// The task that it is to replace.
        original: Unmet,
    },
    /// 15: the parent is not claimed yet.
    #[error("its parent {parent}{}", if parent.phase.is_some() { "; claim that one first" } else { "; `pm sync` may bring it, and `pm verify` tells what is wrong here" })]
    ParentNotClaimed {
        /// The parent.
        parent: Unmet,
    },
    /// 14: children are not settled.
    #[error("its children are not settled: {}; finish or cancel them first", join(open))]
    ChildrenOpen {
        /// The children that are open.
        open: Vec<Unmet>,
    },
    /// 19: what could speak against it cannot be read, so it is not known that nothing does.
    #[error(
        "{what} cannot be told, so nothing was recorded: {}; `pm verify` names each fault, and `pm repair --rewind --task {}` goes back to what can be read; a clone or a backup may have what is missing",
        join(unread),
        unread.first().map_or_else(String::new, Unread::named)
    )]
    Obscured {
        /// What cannot be told.
        what: Obscured,
        /// The chains; never none.
        unread: Vec<Unread>,
    },
    /// 10: the caller's context is not the one that the task needs.
    #[error("{0}")]
    Context(Misfit),
    /// 9: the task has a verifier, and it has not passed.
    #[error("the task's verifier has not passed: {verifier}")]
    NotVerified {
        /// The verifier.
        verifier: String,
    },
    /// 13: the verifier was to be skipped without a reason.
    #[error("the verifier cannot be skipped without a reason: give one of 10 characters or more with --note")]
    SkipWithoutNote,
}

impl Refusal {
    /// For people: what the rule says of the task at this place; and where it waits for what will not come by itself, how an
    /// operator ends that.
    pub fn told(&self, queue: &Queue, slug: &Slug) -> String {
        let Refusal::DependenciesOpen { open } = self else { return self.to_string() };
        let mut waits = open.iter().map(|on| Wait { role: Role::Dependency, on: on.clone() });
        match waits.find(Wait::is_for_ever) {
            Some(wait) => {
                let way_out = wait.way_out(&format!("{queue}/{slug}"));
                format!("{self}; {} will not be done by itself: {way_out}", wait.on.named())
            }
            None => self.to_string(),
        }
    }
}

/// What a phase has to do with it that something cannot be done: who holds the task, what has taken its place, or that
/// there is nobody to take it from.
fn wherefore(verb: Verb, phase: Phase, held: Option<&HeldBy>, successor: Option<&Unmet>) -> String {
    match (held, successor) {
        (Some(held), _) => format!(": it is {held}"),
        (None, Some(Unmet { place: None, task, .. })) => format!(": task {task} has taken its place"),
        (None, Some(successor)) => format!(": {} has taken its place", successor.named()),
        (None, None) if phase == Phase::New && matches!(verb, Verb::Sweep | Verb::Reclaim) => {
            ": nobody holds it, and it is bound to no context".to_owned()
        }
        (None, None) => String::new(),
    }
}

fn join(open: &[impl ToString]) -> String {
    /// A task can depend on hundreds of others; a message names the first few.
    const NAMED: usize = 5;
    let mut text = open.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if open.len() > NAMED {
        text.push_str(&format!(", and {} more", open.len() - NAMED));
    }
    text
}
