//! The state of one task: what its chain, read to the tip, adds up to.
//!
//! There are two ways to it and they agree: folding every record with [`apply`](super::apply), and
//! [`from_tip`], which needs the tip and what the tip links to, however long the chain is.

use std::sync::Arc;

use super::record::{ClockReading, Content, ContextId, Phase, Record, Status, Task, Ttl};
use super::sticky::Bound;
use crate::id::{AgentId, RecordId, TaskId};

/// The state of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskState {
    /// The task's id.
    pub id: TaskId,
    /// Its definition.
    pub task: Arc<Task>,
    /// The newest record.
    pub tip: RecordId,
    /// The depth of the tip.
    pub seq: u64,
    /// The monotonic clock when the tip was written.
    pub clock: Option<ClockReading>,
    /// When the tip was written, in seconds since 1970 by its author's wall clock.
    pub at: i64,
    /// The newest status; `None` only between a `Task` and its first status.
    pub status: Option<StatusAt>,
    /// The newest report.
    pub report: Option<ReportAt>,
    /// The newest heartbeat.
    pub heartbeat: Option<RecordId>,
    /// Which records must follow, because the tip is valid only beneath them.
    pub pending: Pending,
}

/// A status record and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusAt {
    /// Its commit.
    pub id: RecordId,
    /// Its depth in the chain.
    pub seq: u64,
    /// Its author.
    pub agent: AgentId,
    /// When, in seconds since 1970 by its author's wall clock.
    pub at: i64,
    /// What it says.
    pub status: Status,
}

/// A report record and what it was made under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportAt {
    /// Its commit.
    pub id: RecordId,
    /// The status under which it was made.
    pub under: RecordId,
    /// Whether an operator or sweeper wrote it.
    pub synthetic: bool,
}

/// What must follow the tip (rule 2's two exceptions are valid only beneath the status they prepare).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pending {
    /// Nothing: the chain may end here.
    Nothing,
    /// The tip is a synthetic report by this agent. `reported`: the claim had a report of its own before.
    Synthetic {
        /// Who must write what follows.
        by: AgentId,
        /// Whether the holder had reported under this claim.
        reported: bool,
    },
    /// The tip is a preempt heartbeat by this agent.
    Preempt {
        /// Who must write what follows.
        by: AgentId,
        /// The synthetic report stands directly below.
        synthetic: bool,
        /// Whether the holder had reported under this claim.
        reported: bool,
    },
}

/// The claim that holds a task: with its seq, the fencing token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The claim's commit.
    pub id: RecordId,
    /// Its depth in the chain: grows strictly from claim to claim.
    pub seq: u64,
    /// Who holds the task.
    pub holder: AgentId,
    /// The lease that the claim recorded.
    pub ttl: Option<Ttl>,
}

impl TaskState {
    /// The phase; `None` while the chain has no status.
    pub fn phase(&self) -> Option<Phase> {
        self.status.as_ref().map(|at| at.status.phase)
    }

    /// The current claim, while the task is `working`.
    pub fn claim(&self) -> Option<Claim> {
        let at = self.status.as_ref().filter(|at| at.status.phase == Phase::Working)?;
        Some(Claim { id: at.id, seq: at.seq, holder: at.agent.clone(), ttl: at.status.ttl })
    }

    /// The holder's newest report under the current status, if there is one: what can close the task.
    pub fn proof(&self) -> Option<RecordId> {
        let status = self.status.as_ref()?.id;
        self.report.filter(|report| report.under == status && !report.synthetic).map(|report| report.id)
    }

    /// The context that the task is bound to.
    pub fn context(&self) -> Option<&ContextId> {
        self.status.as_ref()?.status.context.as_ref()
    }

    /// The context that the task is bound to, and that it is this task.
    pub fn bound(&self) -> Option<Bound> {
        let status = &self.status.as_ref()?.status;
        let place = (self.task.queue.clone(), self.task.slug.clone());
        status.context.clone().map(|context| Bound { place, context, phase: status.phase })
    }

    /// The task that has taken its place.
    pub fn superseded_by(&self) -> Option<TaskId> {
        self.status.as_ref()?.status.superseded_by
    }

    /// The task whose place it is to take; told by its first status alone, so only until it is claimed.
    pub fn replan_of(&self) -> Option<TaskId> {
        self.status.as_ref()?.status.replan_of
    }
}

/// Why a tip and the records that it links to do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {record} does not belong there: {found}")]
pub struct BrokenLink {
    /// The record that is wrong.
    pub record: RecordId,
    /// What is wrong with it.
    pub found: String,
}

/// The state at a tip, from the tip and the records that it names. `read` fetches one record; it is called at
/// most three times: for the task, the newest status and the newest report.
///
/// # Errors
/// What `read` returns, or a [`BrokenLink`] where the records contradict each other. A chain can be wrong
/// deeper down without this seeing it: that is `verify`'s work.
pub fn from_tip<E: From<BrokenLink>>(
    tip: RecordId,
    record: &Record,
    mut read: impl FnMut(RecordId) -> Result<Record, E>,
) -> Result<TaskState, E> {
    let broken = |record: RecordId, found: &str| E::from(BrokenLink { record, found: found.to_owned() });
    let id = record.links.task.unwrap_or(tip.as_task());
    let task = match &record.content {
        Content::Task(task) => task.clone(),
        _ => match read(id.record())?.content {
            Content::Task(task) => task,
            other => return Err(broken(id.record(), &format!("a {} where the Task should be", other.kind()))),
        },
    };
    // A linked record must be of the same task and lie below the tip.
    let mut linked = |link: RecordId| -> Result<Record, E> {
        let below = read(link)?;
        if below.links.task != Some(id) {
            return Err(broken(link, "it belongs to another task"));
        }
        if below.seq >= record.seq {
            return Err(broken(link, &format!("its seq {} is not below the tip's {}", below.seq, record.seq)));
        }
        Ok(below)
    };

    let at = |id: RecordId, record: &Record, status: &Status| StatusAt {
        id,
        seq: record.seq,
        agent: record.agent.clone(),
        at: record.at,
        status: status.clone(),
    };
    let status = match (&record.content, record.links.status) {
        (Content::Status(status), _) => Some(at(tip, record, status)),
        (_, Some(link)) => {
            let below = linked(link)?;
            match &below.content {
                Content::Status(status) => Some(at(link, &below, status)),
                other => return Err(broken(link, &format!("a {} where a TaskStatus should be", other.kind()))),
            }
        }
        (Content::Task(_), None) => None,
        (_, None) => return Err(broken(tip, "it names no status")),
    };
    let report = match (&record.content, record.links.report) {
        (Content::Report(report), _) => match record.links.status {
            Some(under) => Some(ReportAt { id: tip, under, synthetic: report.synthetic }),
            None => return Err(broken(tip, "it names no status")),
        },
        (_, Some(link)) => {
            let below = linked(link)?;
            match (&below.content, below.links.status) {
                (Content::Report(report), Some(under)) => {
                    Some(ReportAt { id: link, under, synthetic: report.synthetic })
                }
                (other, _) => return Err(broken(link, &format!("a {} where a TaskReport should be", other.kind()))),
            }
        }
        (_, None) => None,
    };
    let heartbeat = match &record.content {
        Content::Heartbeat(_) => Some(tip),
        _ => record.links.heartbeat,
    };
    match &record.content {
        Content::Heartbeat(heartbeat) if heartbeat.preempt => {
            return Err(broken(tip, "it is a preempt heartbeat without the reclaim that it prepares"));
        }
        Content::Report(report) if report.synthetic => {
            return Err(broken(tip, "it is a synthetic report without the status that it prepares"));
        }
        Content::Heartbeat(_) | Content::Report(_)
            if status.as_ref().is_none_or(|at| at.status.phase != Phase::Working) =>
        {
            return Err(broken(tip, "it was made under a status that is no claim"));
        }
        Content::Heartbeat(_) | Content::Report(_) if status.as_ref().is_none_or(|at| at.agent != record.agent) => {
            return Err(broken(tip, "its author does not hold the task"));
        }
        _ => {}
    }
    Ok(TaskState {
        id,
        task: Arc::from(task),
        tip,
        seq: record.seq,
        clock: record.clock,
        at: record.at,
        status,
        report,
        heartbeat,
        pending: Pending::Nothing,
    })
}
