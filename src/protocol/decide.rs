//! Deciding: which records an intent turns into, given the state of its task (design, section 4).
//!
//! The answer is a list of drafts. A draft lacks what only the moment of writing knows (links, seq, clock,
//! nonce); [`Draft::into_record`] adds those. Refusals are judged in one order: 16, 6, 12, then the others.

use super::record::{ClockReading, Content, Heartbeat, Links, Mark, Nonce, Phase, Record, Report, Status, Ttl};
use super::refusal::{HeldBy, Refusal, Unmet, Verb};
use super::state::{Claim, TaskState};
use crate::id::{AgentId, RecordId};

/// What is asked of one existing task. Creation needs no decision about a state: see [`creation`].
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
    },
    /// Take the task from a holder that was silent too long: only while the tip is the one that was observed.
    Sweep {
        /// The tip whose age was judged.
        observed: RecordId,
        /// Why, for the audit trail.
        reason: Option<String>,
        /// The limit for tasks that set none themselves (`pm.maxAttempts`); 0 is none.
        max_attempts: u32,
    },
    /// Take the task from its holder, by an operator's word.
    Reclaim {
        /// The claim that this is meant for, once it is known.
        claim: Option<RecordId>,
        /// Why.
        reason: Option<String>,
    },
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
        }
    }

    /// Pins the intent to the claim that it was first decided against: after a lost race it is never decided
    /// against a newer one. Only for an intent that `decide` has allowed: a named claim proves the holder by itself.
    pub fn pin(&mut self, current: RecordId) {
        match self {
            Intent::Claim { .. } | Intent::Sweep { .. } => {}
            Intent::Heartbeat { claim, .. }
            | Intent::Report { claim, .. }
            | Intent::Release { claim, .. }
            | Intent::Finish { claim, .. }
            | Intent::Reclaim { claim, .. } => *claim = Some(current),
        }
    }
}

/// What a decision needs to know besides the task's own chain.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Who asks.
    pub agent: &'a AgentId,
    /// The dependencies that are not done, as they were read; only a claim looks at them.
    pub unmet: &'a [Unmet],
}

/// A record before it is linked into its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Its author.
    pub agent: AgentId,
    /// What it holds.
    pub content: Content,
    /// Its text.
    pub body: Option<String>,
}

/// What only the moment of writing knows.
#[derive(Debug, Clone)]
pub struct Stamp<'a> {
    /// The author's email.
    pub email: &'a str,
    /// The wall clock, in seconds since 1970.
    pub at: i64,
    /// The monotonic clock.
    pub clock: Option<ClockReading>,
    /// Fresh random bits, for this record alone.
    pub nonce: Nonce,
}

impl Draft {
    /// Links the draft on top of `state`; `None` makes it the first record of a chain.
    ///
    /// A rejection without a proof closes the task over the synthetic report directly below it, whose id is not
    /// known before it is written.
    pub fn into_record(mut self, state: Option<&TaskState>, stamp: &Stamp<'_>) -> Record {
        if let (Content::Status(status), Some(state)) = (&mut self.content, state)
            && status.phase == Phase::Rejected
            && status.proof.is_none()
        {
            status.proof = state.report.map(|report| report.id);
        }
        Record {
            parent: state.map(|state| state.tip),
            agent: self.agent,
            email: stamp.email.to_owned(),
            at: stamp.at,
            links: state.map_or(Links::default(), |state| Links {
                task: Some(state.id),
                status: state.status.as_ref().map(|at| at.id),
                report: state.report.map(|report| report.id),
                heartbeat: state.heartbeat,
            }),
            seq: state.map_or(0, |state| state.seq + 1),
            clock: stamp.clock,
            nonce: stamp.nonce,
            body: self.body,
            content: self.content,
            unknown: Vec::new(),
        }
    }
}

/// The two records of a new task.
pub fn creation(agent: &AgentId, task: super::record::Task, body: Option<String>) -> [Draft; 2] {
    let status = Status::new(Phase::New, 0, 0);
    [
        Draft { agent: agent.clone(), content: Content::Task(Box::new(task)), body },
        Draft { agent: agent.clone(), content: Content::Status(Box::new(status)), body: None },
    ]
}

/// The records that an intent turns into, oldest first; all of them enter the chain together or not at all.
///
/// # Errors
/// The first [`Refusal`] in the order of section 4.
pub fn decide(state: &TaskState, intent: &Intent, facts: &Facts<'_>) -> Result<Vec<Draft>, Refusal> {
    let Some(at) = &state.status else { return Err(Refusal::NoStatus) };
    let now = &at.status;
    // Every status carries the counters and the bound context of the one before it.
    let next = |phase| Status { context: now.context.clone(), ..Status::new(phase, now.attempt, now.reclaims) };

    let Some(claim) = state.claim() else {
        return match intent {
            Intent::Claim { ttl } if now.phase == Phase::New => {
                judgeable(state)?;
                if !facts.unmet.is_empty() {
                    return Err(Refusal::DependenciesOpen { open: facts.unmet.to_vec() });
                }
                let status = Status { attempt: now.attempt + 1, ttl: ttl.or(state.task.ttl), ..next(Phase::Working) };
                Ok(vec![draft(facts.agent, status)])
            }
            _ => Err(Refusal::WrongPhase { verb: intent.verb(), phase: now.phase, held: None }),
        };
    };

    let held = || HeldBy { holder: claim.holder.clone(), claim: claim.id, yours: claim.holder == *facts.agent };
    match intent {
        Intent::Claim { .. } => {
            Err(Refusal::WrongPhase { verb: Verb::Claim, phase: Phase::Working, held: Some(held()) })
        }
        Intent::Heartbeat { claim: named, progress } => {
            let holder = holder(&claim, *named, facts, held)?;
            let beat = Heartbeat { preempt: false, progress: progress.clone() };
            Ok(vec![Draft { agent: holder, content: Content::Heartbeat(beat), body: None }])
        }
        Intent::Report { claim: named, report, body } => {
            let agent = holder(&claim, *named, facts, held)?;
            // A holder's own words are never synthetic: that would be a record which prepares nothing.
            let report = Report { synthetic: false, ..report.clone() };
            Ok(vec![Draft { agent, content: Content::Report(report), body: body.clone() }])
        }
        Intent::Release { claim: named, reason } => {
            let holder = holder(&claim, *named, facts, held)?;
            let mark = Some(Mark::Released);
            Ok(vec![draft(&holder, Status { reclaims: 0, mark, reason: reason.clone(), ..next(Phase::New) })])
        }
        Intent::Finish { claim: named, done, note } => {
            let holder = holder(&claim, *named, facts, held)?;
            judgeable(state)?;
            let proof = Some(state.proof().ok_or(Refusal::NoReport)?);
            let phase = if *done { Phase::Done } else { Phase::Rejected };
            Ok(vec![draft(&holder, Status { proof, reason: note.clone(), ..next(phase) })])
        }
        Intent::Sweep { observed, reason, max_attempts } => {
            if state.tip != *observed {
                return Err(Refusal::RaceLost { held: Some(held()) });
            }
            let next =
                Status { context: None, mark: Some(Mark::Reclaimed), reason: reason.clone(), ..next(Phase::New) };
            Ok(swept(state, next, facts.agent, *max_attempts))
        }
        Intent::Reclaim { claim: pinned, reason } => {
            if pinned.is_some_and(|pinned| pinned != claim.id) {
                return Err(Refusal::RaceLost { held: Some(held()) });
            }
            let mark = Some(Mark::Reclaimed);
            let status = Status { reclaims: 0, context: None, mark, reason: reason.clone(), ..next(Phase::New) };
            Ok(vec![draft(facts.agent, status)])
        }
    }
}

fn draft(agent: &AgentId, status: Status) -> Draft {
    Draft { agent: agent.clone(), content: Content::Status(Box::new(status)), body: None }
}

/// Rule 2. A named claim proves the holder by itself, and fences off even a process with the same agent id;
/// one that is not current is refused, never replaced by the name.
fn holder(
    claim: &Claim,
    named: Option<RecordId>,
    facts: &Facts<'_>,
    held: impl Fn() -> HeldBy,
) -> Result<AgentId, Refusal> {
    let holds = match named {
        Some(named) => named == claim.id,
        None => claim.holder == *facts.agent,
    };
    if holds {
        Ok(claim.holder.clone())
    } else {
        Err(Refusal::LeaseLost { agent: facts.agent.clone(), named, held: held() })
    }
}

/// What a sweep writes: the preempt heartbeat and the status that it prepares. A task that was swept too often
/// without a report in between is rejected, over a synthetic report: a task that kills every worker must not
/// kill them for ever (design, section 6).
fn swept(state: &TaskState, next: Status, sweeper: &AgentId, default_limit: u32) -> Vec<Draft> {
    let reclaims = if state.proof().is_some() { 0 } else { next.reclaims + 1 };
    let limit = state.task.max_attempts.unwrap_or(default_limit);
    let preempt = Draft {
        agent: sweeper.clone(),
        content: Content::Heartbeat(Heartbeat { preempt: true, progress: None }),
        body: None,
    };
    if limit == 0 || reclaims < u64::from(limit) {
        return vec![preempt, draft(sweeper, Status { reclaims, ..next })];
    }
    let report = Report {
        title: format!("Too many attempts: swept {reclaims} times in a row without a report"),
        commit: None,
        synthetic: true,
        attachments: None,
    };
    let report = Draft { agent: sweeper.clone(), content: Content::Report(report), body: None };
    vec![report, preempt, draft(sweeper, Status { phase: Phase::Rejected, reclaims, ..next })]
}

/// Refuses what this build has no rules for yet, rather than ignoring it.
fn judgeable(state: &TaskState) -> Result<(), Refusal> {
    match unsupported(state) {
        Some(what) => Err(Refusal::Unsupported { what }),
        None => Ok(()),
    }
}

/// What a task uses that this build has no rules for: such a task is never claimed or finished by it.
pub fn unsupported(state: &TaskState) -> Option<&'static str> {
    let task = &state.task;
    if task.parent.is_some() {
        Some("a parent")
    } else if task.verifier.is_some() {
        Some("a verifier")
    } else if task.sticky {
        Some("a sticky context")
    } else if task.workdir.is_some() {
        Some("a work directory")
    } else if state.context().is_some() {
        Some("a bound context")
    } else {
        state.status.as_ref().and_then(|at| at.status.replan_of).map(|_| "a replanned definition")
    }
}
