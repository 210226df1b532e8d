//! Folding: which record may follow which (design, section 4).
//!
//! `apply` judges one chain by itself. Resolve, verify, sync and the server hook all use it, so it must accept
//! exactly what any correct pm could have written, whatever that pm's configuration was.

use std::fmt;
use std::sync::Arc;

use super::record::{Content, Heartbeat, Mark, Phase, Record, Report, Status};
use super::state::{Pending, ReportAt, StatusAt, TaskState};
use crate::id::RecordId;

/// A rule that a record can break. The names are printed by `verify` and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A chain begins with one `Task`, directly followed by its `TaskStatus(new)`.
    Beginning,
    /// Parent, seq and links name exactly the records below.
    Links,
    /// Only the transitions of section 4 exist.
    Transition,
    /// Rule 2: only the holder heartbeats, reports, releases or finishes.
    Holder,
    /// Rule 2: preempt heartbeats and synthetic reports stand directly under the status that they prepare.
    Prepared,
    /// Attempt, Reclaims and Context follow from the records below.
    Counters,
    /// Rule 5: a closed task carries a report made under the claim that closed it.
    Proof,
    /// Rule 6: a task with a verifier is done only if the verifier passed or was skipped with a reason.
    Verifier,
    /// A field stands only where it has a meaning.
    Fields,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Beginning => "beginning",
            Rule::Links => "links",
            Rule::Transition => "transition",
            Rule::Holder => "holder",
            Rule::Prepared => "prepared",
            Rule::Counters => "counters",
            Rule::Proof => "proof",
            Rule::Verifier => "verifier",
            Rule::Fields => "fields",
        })
    }
}

/// A record that may not stand where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule '{rule}' is broken: {found}")]
pub struct Invalid {
    /// The rule.
    pub rule: Rule,
    /// What was found.
    pub found: String,
}

fn broken<T>(rule: Rule, found: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid { rule, found: found.into() })
}

fn require(holds: bool, rule: Rule, found: impl FnOnce() -> String) -> Result<(), Invalid> {
    if holds { Ok(()) } else { broken(rule, found()) }
}

/// The state after `record` (whose commit is `id`) was put on top of `state`.
///
/// # Errors
/// [`Invalid`] names the first rule that the record breaks.
pub fn apply(state: Option<TaskState>, id: RecordId, record: &Record) -> Result<TaskState, Invalid> {
    let Some(state) = state else { return begin(id, record) };
    links(&state, record)?;
    let mut next = match &record.content {
        Content::Task(_) => return broken(Rule::Beginning, "a Task record in the middle of a chain"),
        Content::Heartbeat(beat) => heartbeat(state, id, record, beat)?,
        Content::Report(content) => report(state, id, record, content)?,
        Content::Status(content) => status(state, id, record, content)?,
    };
    next.tip = id;
    next.seq = record.seq;
    next.clock = record.clock;
    next.at = record.at;
    Ok(next)
}

/// Whether the chain may end here.
///
/// # Errors
/// [`Invalid`] where a preparing record has nothing above it, or the task has no status.
pub fn end(state: &TaskState) -> Result<(), Invalid> {
    require(state.status.is_some(), Rule::Beginning, || "the chain ends before its first TaskStatus".to_owned())?;
    match state.pending {
        Pending::Nothing => Ok(()),
        Pending::Synthetic { .. } => broken(Rule::Prepared, "the chain ends in a synthetic report"),
        Pending::Preempt { .. } => broken(Rule::Prepared, "the chain ends in a preempt heartbeat"),
    }
}

fn begin(id: RecordId, record: &Record) -> Result<TaskState, Invalid> {
    let Content::Task(task) = &record.content else {
        return broken(Rule::Beginning, format!("the chain begins with a {}", record.content.kind()));
    };
    require(record.parent.is_none(), Rule::Links, || "a Task with a parent".to_owned())?;
    require(record.seq == 0, Rule::Links, || format!("a Task has seq 0, not {}", record.seq))?;
    require(task.parent.is_some() || task.spawned_at.is_none(), Rule::Fields, || {
        "Spawned-At without a Parent".to_owned()
    })?;
    Ok(TaskState {
        id: id.as_task(),
        task: Arc::from(task.clone()),
        tip: id,
        seq: 0,
        clock: record.clock,
        at: record.at,
        status: None,
        report: None,
        heartbeat: None,
        pending: Pending::Nothing,
    })
}

fn links(state: &TaskState, record: &Record) -> Result<(), Invalid> {
    let shown = |id: Option<RecordId>| id.map_or("none".to_owned(), |id| id.to_string());
    require(record.parent == Some(state.tip), Rule::Links, || {
        format!("its parent is {}, the record below is {}", shown(record.parent), state.tip)
    })?;
    require(Some(record.seq) == state.seq.checked_add(1), Rule::Links, || {
        format!("its seq is {}, the record below has {}", record.seq, state.seq)
    })?;
    require(record.links.task == Some(state.id), Rule::Links, || format!("it names another task than {}", state.id))?;
    let status = state.status.as_ref().map(|at| at.id);
    let report = state.report.map(|at| at.id);
    for (what, link, newest) in [
        ("status", record.links.status, status),
        ("report", record.links.report, report),
        ("heartbeat", record.links.heartbeat, state.heartbeat),
    ] {
        require(link == newest, Rule::Links, || {
            format!("it names the {what} {}, the newest below is {}", shown(link), shown(newest))
        })?;
    }
    Ok(())
}

/// The newest status, which must be a claim.
fn claim<'a>(state: &'a TaskState, what: &str) -> Result<&'a StatusAt, Invalid> {
    match &state.status {
        Some(at) if at.status.phase == Phase::Working => Ok(at),
        Some(at) => broken(Rule::Transition, format!("a {what} while the task is {}", at.status.phase)),
        None => broken(Rule::Beginning, format!("a {what} before the first status")),
    }
}

fn held_by(at: &StatusAt, record: &Record) -> Result<(), Invalid> {
    require(at.agent == record.agent, Rule::Holder, || {
        format!("a {} by {} while {} holds the task", record.content.kind(), record.agent, at.agent)
    })
}

fn heartbeat(mut state: TaskState, id: RecordId, record: &Record, beat: &Heartbeat) -> Result<TaskState, Invalid> {
    let at = claim(&state, "heartbeat")?;
    state.pending = match (&state.pending, beat.preempt) {
        (Pending::Nothing, false) => {
            held_by(at, record)?;
            Pending::Nothing
        }
        (Pending::Nothing, true) => {
            Pending::Preempt { by: record.agent.clone(), synthetic: false, reported: state.proof().is_some() }
        }
        (Pending::Synthetic { by, reported }, true) if *by == record.agent => {
            Pending::Preempt { by: by.clone(), synthetic: true, reported: *reported }
        }
        _ => return broken(Rule::Prepared, "a heartbeat where a prepared status should stand"),
    };
    state.heartbeat = Some(id);
    Ok(state)
}

fn report(mut state: TaskState, id: RecordId, record: &Record, report: &Report) -> Result<TaskState, Invalid> {
    require(state.pending == Pending::Nothing, Rule::Prepared, || {
        "a report where a prepared status should stand".to_owned()
    })?;
    let under = if report.synthetic {
        match &state.status {
            Some(at) if matches!(at.status.phase, Phase::New | Phase::Working) => at.id,
            _ => return broken(Rule::Transition, "a synthetic report on a task that is not open"),
        }
    } else {
        let at = claim(&state, "report")?;
        held_by(at, record)?;
        at.id
    };
    if report.synthetic {
        state.pending = Pending::Synthetic { by: record.agent.clone(), reported: state.proof().is_some() };
    }
    state.report = Some(ReportAt { id, under, synthetic: report.synthetic });
    Ok(state)
}

fn status(mut state: TaskState, id: RecordId, record: &Record, status: &Status) -> Result<TaskState, Invalid> {
    // Whoever follows a task to its successor must not run in a circle of one.
    require(status.superseded_by != Some(state.id) && status.replan_of != Some(state.id), Rule::Fields, || {
        "the task replaces itself".to_owned()
    })?;
    match &state.status {
        None => first_status(status)?,
        Some(at) => {
            let next = transition(&state, at, record, status)?;
            counters(&next, status)?;
            fields(status)?;
        }
    }
    state.pending = Pending::Nothing;
    state.status =
        Some(StatusAt { id, seq: record.seq, agent: record.agent.clone(), at: record.at, status: status.clone() });
    Ok(state)
}

fn first_status(status: &Status) -> Result<(), Invalid> {
    let mut expected = Status::new(Phase::New, 0, 0);
    expected.replan_of = status.replan_of;
    expected.reason.clone_from(&status.reason);
    require(*status == expected, Rule::Beginning, || {
        "the first status must be new, with Attempt 0, Reclaims 0 and nothing else".to_owned()
    })
}

/// What the counters of a status must be.
struct Expected {
    attempt: u64,
    reclaims: u64,
    /// `None`: a claim may bind a context, or not.
    context: Option<Option<super::record::ContextId>>,
}

/// Checks that the transition exists, that its author may make it, and that its proof is right.
fn transition(state: &TaskState, at: &StatusAt, record: &Record, next: &Status) -> Result<Expected, Invalid> {
    let now = &at.status;
    let same = Expected { attempt: now.attempt, reclaims: now.reclaims, context: Some(now.context.clone()) };
    match (&state.pending, now.phase, next.phase, next.mark) {
        (Pending::Nothing, Phase::New, Phase::Working, None) => claimed(state, now, next),
        (Pending::Nothing, Phase::Working, Phase::New, Some(Mark::Released)) => {
            held_by(at, record)?;
            Ok(Expected { reclaims: 0, ..same })
        }
        (Pending::Nothing, Phase::Working, Phase::New, Some(Mark::Reclaimed)) => {
            Ok(Expected { reclaims: 0, context: Some(None), ..same })
        }
        // Nobody holds it, and so there must be a context to take it from.
        (Pending::Nothing, Phase::New, Phase::New, Some(Mark::Reclaimed)) if now.context.is_some() => {
            Ok(Expected { reclaims: 0, context: Some(None), ..same })
        }
        (Pending::Preempt { by, synthetic, reported }, Phase::Working, _, Some(Mark::Reclaimed)) => {
            prepared_by(by, record)?;
            let reclaims = if *reported { 0 } else { now.reclaims.saturating_add(1) };
            let limit = state.task.max_attempts.unwrap_or(0);
            let over = limit > 0 && reclaims >= u64::from(limit);
            match (next.phase, synthetic) {
                (Phase::New, false) => require(!over, Rule::Transition, || {
                    format!("swept {reclaims} times in a row with Max-Attempts {limit}, yet returned to the queue")
                })?,
                (Phase::Rejected, true) => {
                    // Where the Task sets no limit, the sweeper's own configuration had one.
                    let allowed = over || state.task.max_attempts.is_none();
                    require(reclaims > 0 && allowed, Rule::Transition, || {
                        format!("rejected after {reclaims} sweeps in a row with Max-Attempts {limit}")
                    })?;
                    proven(state, next, true)?;
                }
                _ => return broken(Rule::Transition, "a reclaim that neither returns nor rejects the task"),
            }
            Ok(Expected { reclaims, context: Some(None), ..same })
        }
        (Pending::Synthetic { by, .. }, Phase::New | Phase::Working, Phase::Rejected, Some(Mark::Cancelled)) => {
            prepared_by(by, record)?;
            proven(state, next, true)?;
            Ok(same)
        }
        (Pending::Nothing, Phase::Working, Phase::Done | Phase::Rejected, None) => {
            held_by(at, record)?;
            proven(state, next, false)?;
            verified(state, next)?;
            Ok(same)
        }
        (Pending::Nothing, Phase::Done | Phase::Rejected, Phase::New, Some(Mark::Replanned)) => {
            Ok(Expected { reclaims: 0, ..same })
        }
        (Pending::Nothing, Phase::New | Phase::Done | Phase::Rejected, Phase::Superseded, None) => Ok(same),
        (Pending::Nothing, from, to, mark) => {
            let mark = mark.map_or(String::new(), |mark| format!(" ({})", mark.key()));
            broken(Rule::Transition, format!("from {from} to {to}{mark}"))
        }
        (_, from, to, _) => {
            broken(Rule::Prepared, format!("from {from} to {to} over a record that prepares something else"))
        }
    }
}

fn claimed(state: &TaskState, now: &Status, next: &Status) -> Result<Expected, Invalid> {
    require(state.task.sticky || next.context.is_none(), Rule::Fields, || {
        "Context on a claim of a task that is not sticky".to_owned()
    })?;
    let bound = &now.context;
    require(bound.is_none() || *bound == next.context, Rule::Counters, || {
        "a claim from another context than the one the task is bound to".to_owned()
    })?;
    require(!state.task.sticky || next.context.is_some(), Rule::Counters, || {
        "a claim of a sticky task without a context".to_owned()
    })?;
    Ok(Expected { attempt: now.attempt.saturating_add(1), reclaims: now.reclaims, context: None })
}

fn prepared_by(by: &crate::id::AgentId, record: &Record) -> Result<(), Invalid> {
    require(*by == record.agent, Rule::Prepared, || format!("prepared by {by}, but written by {}", record.agent))
}

/// Rule 5: the proof is the newest report, made under the claim that is being closed.
fn proven(state: &TaskState, next: &Status, synthetic: bool) -> Result<(), Invalid> {
    let under = state.status.as_ref().map(|at| at.id);
    match (next.proof, state.report) {
        (None, _) => broken(Rule::Proof, format!("{} without a proof", next.phase)),
        (Some(proof), Some(report)) if proof == report.id => {
            require(Some(report.under) == under, Rule::Proof, || {
                "its proof is a report of an earlier attempt".to_owned()
            })?;
            require(report.synthetic == synthetic, Rule::Proof, || {
                "its proof is a synthetic report where the holder's is needed, or the other way round".to_owned()
            })
        }
        (Some(proof), _) => broken(Rule::Proof, format!("its proof {proof} is not the newest report")),
    }
}

/// The exit code of a verifier that was skipped.
pub const SKIPPED: i32 = -1;

/// The fewest characters of a reason for skipping a verifier.
const REASON_MIN: usize = 10;

/// Whether a note is reason enough for skipping a verifier.
pub fn is_reason(note: Option<&str>) -> bool {
    note.is_some_and(|note| note.trim().chars().count() >= REASON_MIN)
}

/// Rule 6. Only the task's own verifier proves anything; a rejection may record what it said.
fn verified(state: &TaskState, next: &Status) -> Result<(), Invalid> {
    let wanted = state.task.verifier.as_ref();
    match &next.verification {
        Some(verification) if Some(&verification.verifier) != wanted => {
            broken(Rule::Verifier, "it records a verifier that is not the task's")
        }
        None if next.phase == Phase::Done && wanted.is_some() => {
            broken(Rule::Verifier, "done without the verifier that the task asks for")
        }
        Some(verification) if next.phase == Phase::Done && verification.exit == SKIPPED => {
            require(is_reason(next.reason.as_deref()), Rule::Verifier, || {
                format!("the verifier was skipped without a reason of {REASON_MIN} characters or more")
            })
        }
        Some(verification) if next.phase == Phase::Done && verification.exit != 0 => {
            broken(Rule::Verifier, format!("done with verifier exit {}", verification.exit))
        }
        _ => Ok(()),
    }
}

fn counters(expected: &Expected, next: &Status) -> Result<(), Invalid> {
    require(next.attempt == expected.attempt, Rule::Counters, || {
        format!("Attempt is {}, it must be {}", next.attempt, expected.attempt)
    })?;
    require(next.reclaims == expected.reclaims, Rule::Counters, || {
        format!("Reclaims is {}, it must be {}", next.reclaims, expected.reclaims)
    })?;
    let context = expected.context.as_ref().is_none_or(|context| *context == next.context);
    require(context, Rule::Counters, || "Context is not what the status below says".to_owned())
}

/// Fields that would mean nothing are refused, so that nobody can read a meaning into them later.
fn fields(next: &Status) -> Result<(), Invalid> {
    let closed = matches!(next.phase, Phase::Done | Phase::Rejected);
    for (key, present, allowed) in [
        ("Ttl", next.ttl.is_some(), next.phase == Phase::Working),
        ("Proof", next.proof.is_some(), closed),
        ("Superseded-By", next.superseded_by.is_some(), next.phase == Phase::Superseded),
        ("Replan-Of", next.replan_of.is_some(), false),
        ("Verifier-Exit", next.verification.is_some(), closed && next.mark.is_none()),
    ] {
        require(allowed || !present, Rule::Fields, || format!("{key} on a status that is {}", next.phase))?;
    }
    require(next.phase != Phase::Superseded || next.superseded_by.is_some(), Rule::Fields, || {
        "superseded without Superseded-By".to_owned()
    })
}
