//! Deciding: which records an intent turns into, given the state of its task (design, section 4).
//!
//! The answer is a list of drafts. A draft lacks what only the moment of writing knows (links, seq, clock,
//! nonce); [`Draft::into_record`] adds those. Refusals are judged in one order: 16, 6, 12, 10, then the others.

use super::apply;
pub use super::intent::{Intent, Verified};
use super::record::{
    ClockReading, Content, ContextId, Heartbeat, Links, Mark, Nonce, Phase, Record, Report, Status, Verification,
};
use super::refusal::{HeldBy, Obscured, Refusal, Role, Unmet, Unread, Verb, Wait};
use super::state::{Claim, TaskState};
use super::sticky::{self, Bound};
use crate::id::{AgentId, RecordId, TaskId};

/// What a decision needs to know besides the task's own chain.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Who asks.
    pub agent: &'a AgentId,
    /// In which context, if in one.
    pub context: Option<&'a ContextId>,
    /// What other tasks have to say; only a claim, a finish, a replacement and the refusal of a superseded task look at it.
    pub others: &'a Others,
}

/// What other tasks have to say about one, as they were read. Superseded ones are followed to their successors.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Others {
    /// The dependencies that are not done.
    pub unmet: Vec<Unmet>,
    /// The parent, if it is not claimed yet, or cannot be found.
    pub parent: Option<Unmet>,
    /// The task that this one is to replace, while it is not superseded by this one.
    pub original: Option<Unmet>,
    /// The children that are not settled.
    pub open_children: Vec<Unmet>,
    /// What stands for this one, if it is superseded.
    pub successor: Option<Unmet>,
    /// Chains that cannot be read and may be open children.
    pub unread_children: Vec<Unread>,
    /// Chains that cannot be read and may tie this task to a context.
    pub unread_ties: Vec<Unread>,
    /// The task that is to take this one's place, if it cannot any more.
    pub closed_successor: Option<Unmet>,
    /// The sticky tasks that are tied to this one and bound to a context.
    pub tied: Vec<Bound>,
}

impl Others {
    /// Everything that keeps a new task from being claimed by anybody.
    pub fn hindrances(&self) -> impl Iterator<Item = &Unmet> {
        self.unmet.iter().chain(&self.parent).chain(&self.original)
    }

    /// The same, and what each is to the task.
    pub fn waits(&self) -> Vec<Wait> {
        let wait = |role| move |on: &Unmet| Wait { role, on: on.clone() };
        let unmet = self.unmet.iter().map(wait(Role::Dependency));
        let parent = self.parent.iter().map(wait(Role::Parent));
        unmet.chain(parent).chain(self.original.iter().map(wait(Role::Original))).collect()
    }
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

/// The two records of a new task. `replan_of`: the task that it is to replace.
pub fn creation(
    agent: &AgentId,
    task: super::record::Task,
    body: Option<String>,
    replan_of: Option<TaskId>,
) -> [Draft; 2] {
    let status = Status { replan_of, ..Status::new(Phase::New, 0, 0) };
    [
        Draft { agent: agent.clone(), content: Content::Task(Box::new(task)), body },
        Draft { agent: agent.clone(), content: Content::Status(Box::new(status)), body: None },
    ]
}

/// Whether a task could be claimed now (rule 8). `next` asks the same question as the claim itself.
///
/// # Errors
/// The first [`Refusal`] in the order of section 4.
pub fn claimable(state: &TaskState, facts: &Facts<'_>) -> Result<(), Refusal> {
    let Some(at) = &state.status else { return Err(Refusal::NoStatus) };
    if !state.task.sticky && state.context().is_some() {
        return Err(Refusal::Contradiction { what: "it is bound to a context, and not sticky" });
    }
    if at.status.phase != Phase::New {
        let held = state.claim().map(|claim| held_by(&claim, facts));
        let successor = successor(state, facts);
        return Err(Refusal::WrongPhase { verb: Verb::Claim, phase: at.status.phase, held, successor });
    }
    let others = facts.others;
    in_context(state, &others.tied, facts.context)?;
    if let Some(original) = &others.original {
        return Err(Refusal::NotReplacedYet { original: original.clone() });
    }
    if !others.unmet.is_empty() {
        return Err(Refusal::DependenciesOpen { open: others.unmet.clone() });
    }
    if let Some(parent) = &others.parent {
        return Err(Refusal::ParentNotClaimed { parent: parent.clone() });
    }
    let ties: &[Unread] = if state.task.sticky { &others.unread_ties } else { &[] };
    unobscured(Obscured::Ties, ties)
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
    // Whoever takes a task away takes it from its context, too.
    let taken = |reason: &Option<String>| {
        let mark = Some(Mark::Reclaimed);
        Status { reclaims: 0, context: None, mark, reason: reason.clone(), ..next(Phase::New) }
    };
    let claim = state.claim();
    let held = claim.as_ref().map(|claim| held_by(claim, facts));

    // What does not need a holder.
    match (intent, now.phase) {
        (Intent::Reclaim { status: pinned, reason }, Phase::New) if now.context.is_some() => {
            if pinned.is_some_and(|pinned| pinned != at.id) {
                return Err(Refusal::RaceLost { held });
            }
            return Ok(vec![draft(facts.agent, taken(reason))]);
        }
        (Intent::Sweep { observed, reason, .. }, Phase::New) if now.context.is_some() => {
            if state.tip != *observed {
                return Err(Refusal::RaceLost { held });
            }
            return Ok(vec![draft(facts.agent, taken(reason))]);
        }
        (Intent::Claim { ttl }, _) => {
            claimable(state, facts)?;
            let context = if state.task.sticky { facts.context.cloned() } else { now.context.clone() };
            let (attempt, ttl) = (now.attempt + 1, ttl.or(state.task.ttl));
            return Ok(vec![draft(facts.agent, Status { attempt, ttl, context, ..next(Phase::Working) })]);
        }
        (Intent::Cancel { reason }, Phase::New | Phase::Working) => {
            let status = Status { mark: Some(Mark::Cancelled), reason: reason.clone(), ..next(Phase::Rejected) };
            return Ok(vec![synthetic(facts.agent, "Cancelled".to_owned()), draft(facts.agent, status)]);
        }
        (Intent::Replan { note }, Phase::Done | Phase::Rejected) => {
            let mark = Some(Mark::Replanned);
            return Ok(vec![draft(
                facts.agent,
                Status { reclaims: 0, mark, reason: note.clone(), ..next(Phase::New) },
            )]);
        }
        (Intent::Supersede { by, note }, Phase::New | Phase::Done | Phase::Rejected) => {
            if facts.others.closed_successor.is_some() {
                return Err(Refusal::RaceLost { held: None });
            }
            let superseded_by = Some(*by);
            return Ok(vec![draft(
                facts.agent,
                Status { superseded_by, reason: note.clone(), ..next(Phase::Superseded) },
            )]);
        }
        _ => {}
    }

    let successor = successor(state, facts);
    let wrong_phase = Refusal::WrongPhase { verb: intent.verb(), phase: now.phase, held: held.clone(), successor };
    let Some(claim) = claim else { return Err(wrong_phase) };
    match intent {
        Intent::Heartbeat { claim: named, progress } => {
            let agent = holder(state, &claim, *named, facts)?;
            let beat = Heartbeat { preempt: false, progress: progress.clone() };
            Ok(vec![Draft { agent, content: Content::Heartbeat(beat), body: None }])
        }
        Intent::Report { claim: named, report, body } => {
            let agent = holder(state, &claim, *named, facts)?;
            // A holder's own words are never synthetic: that would be a record which prepares nothing.
            let report = Report { synthetic: false, ..report.clone() };
            Ok(vec![Draft { agent, content: Content::Report(report), body: body.clone() }])
        }
        Intent::Release { claim: named, reason } => {
            let holder = claimant(&claim, *named, facts)?;
            let mark = Some(Mark::Released);
            Ok(vec![draft(&holder, Status { reclaims: 0, mark, reason: reason.clone(), ..next(Phase::New) })])
        }
        Intent::Finish { claim: named, done, note, verified } => {
            let holder = holder(state, &claim, *named, facts)?;
            let proof = state.proof().ok_or(Refusal::NoReport)?;
            if let Some(verified) = verified.as_ref().filter(|verified| verified.report != proof) {
                return Err(Refusal::Outdated { verified: verified.report, newest: proof });
            }
            if !facts.others.open_children.is_empty() {
                return Err(Refusal::ChildrenOpen { open: facts.others.open_children.clone() });
            }
            unobscured(Obscured::Children, &facts.others.unread_children)?;
            // What another verifier says proves nothing, and is not recorded (rule 6).
            let is_own = |said: &&Verification| Some(&said.verifier) == state.task.verifier.as_ref();
            let verification = verified.as_ref().map(|verified| &verified.verification).filter(is_own).cloned();
            if *done {
                passed(state.task.verifier.as_deref(), verification.as_ref(), note.as_deref())?;
            }
            let phase = if *done { Phase::Done } else { Phase::Rejected };
            let status = Status { proof: Some(proof), reason: note.clone(), verification, ..next(phase) };
            Ok(vec![draft(&holder, status)])
        }
        Intent::Sweep { observed, reason, max_attempts } => {
            if state.tip != *observed {
                return Err(Refusal::RaceLost { held });
            }
            Ok(swept(state, Status { reclaims: now.reclaims, ..taken(reason) }, facts.agent, *max_attempts))
        }
        Intent::Reclaim { status: pinned, reason } => {
            if pinned.is_some_and(|pinned| pinned != claim.id) {
                return Err(Refusal::RaceLost { held });
            }
            Ok(vec![draft(facts.agent, taken(reason))])
        }
        Intent::Claim { .. } | Intent::Cancel { .. } | Intent::Replan { .. } | Intent::Supersede { .. } => {
            Err(wrong_phase)
        }
    }
}

/// What cannot be read never counts as if it were not there. Judged after all that is known: whoever is refused for that has
/// something to do.
fn unobscured(what: Obscured, unread: &[Unread]) -> Result<(), Refusal> {
    if unread.is_empty() { Ok(()) } else { Err(Refusal::Obscured { what, unread: unread.to_vec() }) }
}

fn draft(agent: &AgentId, status: Status) -> Draft {
    Draft { agent: agent.clone(), content: Content::Status(Box::new(status)), body: None }
}

/// A report in the holder's stead, to close a task that has no other proof.
fn synthetic(agent: &AgentId, title: String) -> Draft {
    let report = Report { title, commit: None, synthetic: true, attachments: None };
    Draft { agent: agent.clone(), content: Content::Report(report), body: None }
}

fn held_by(claim: &Claim, facts: &Facts<'_>) -> HeldBy {
    HeldBy { holder: claim.holder.clone(), claim: claim.id, yours: claim.holder == *facts.agent }
}

/// What stands for a superseded task, as it was read; else as the task names it.
fn successor(state: &TaskState, facts: &Facts<'_>) -> Option<Box<Unmet>> {
    let named = || state.superseded_by().map(|task| Unmet { task, place: None, phase: None });
    facts.others.successor.clone().or_else(named).map(Box::new)
}

/// Rule 2, and that the holder acts in the context that its claim was bound to.
fn holder(state: &TaskState, claim: &Claim, named: Option<RecordId>, facts: &Facts<'_>) -> Result<AgentId, Refusal> {
    let holder = claimant(claim, named, facts)?;
    in_context(state, &[], facts.context)?;
    Ok(holder)
}

/// Rule 2. A named claim proves the holder by itself, and fences off even a process with the same agent id;
/// one that is not current is refused, never replaced by the name.
fn claimant(claim: &Claim, named: Option<RecordId>, facts: &Facts<'_>) -> Result<AgentId, Refusal> {
    let holds = match named {
        Some(named) => named == claim.id,
        None => claim.holder == *facts.agent,
    };
    if holds {
        Ok(claim.holder.clone())
    } else {
        Err(Refusal::LeaseLost { agent: facts.agent.clone(), named, held: held_by(claim, facts) })
    }
}

/// Whether a context may work on the task; any may, if it is not sticky.
fn in_context(state: &TaskState, tied: &[Bound], given: Option<&ContextId>) -> Result<(), Refusal> {
    if !state.task.sticky {
        return Ok(());
    }
    let own = state.bound();
    let bound: Vec<Bound> = own.into_iter().chain(tied.iter().cloned()).collect();
    sticky::fits(&bound, given).map_err(Refusal::Context)
}

/// Rule 6: whether the task's verifier has passed, if it has one. `verification`: what that one said.
fn passed(wanted: Option<&str>, verification: Option<&Verification>, note: Option<&str>) -> Result<(), Refusal> {
    match (wanted, verification) {
        (None, _) => Ok(()),
        (Some(_), Some(said)) if said.exit == 0 => Ok(()),
        (Some(_), Some(said)) if said.exit == apply::SKIPPED => {
            if apply::is_reason(note) {
                Ok(())
            } else {
                Err(Refusal::SkipWithoutNote)
            }
        }
        (Some(wanted), _) => Err(Refusal::NotVerified { verifier: wanted.to_owned() }),
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
    let report = synthetic(sweeper, format!("Too many attempts: swept {reclaims} times in a row without a report"));
    vec![report, preempt, draft(sweeper, Status { phase: Phase::Rejected, reclaims, ..next })]
}
