//! The rules in a page, without records: what becomes of every intent, or the exit code that refuses it.

use pm::id::{AgentId, RecordId};
use pm::protocol::decide::{Facts, Intent, Verified};
use pm::protocol::record::{ContextId, Phase};

use crate::protocol::chain::task;

/// One task, as the rules see it.
#[derive(Debug, Clone)]
pub struct Model {
    limit: Option<u32>,
    sticky: bool,
    verifier: bool,
    pub phase: Phase,
    pub holder: Option<(AgentId, RecordId)>,
    pub context: Option<ContextId>,
    /// The newest report under the claim.
    pub report: Option<RecordId>,
    pub attempt: u64,
    pub reclaims: u64,
}

/// What an intent comes to: what is recorded, or the exit code.
pub type Outcome = Result<&'static str, u8>;

impl Model {
    /// A new task with these options.
    pub fn new(options: &str) -> Model {
        let task = task(options);
        Model {
            limit: task.max_attempts,
            sticky: task.sticky,
            verifier: task.verifier.is_some(),
            phase: Phase::New,
            holder: None,
            context: None,
            report: None,
            attempt: 0,
            reclaims: 0,
        }
    }

    fn leave(&mut self, phase: Phase, reclaims: u64) {
        (self.phase, self.reclaims, self.holder, self.report) = (phase, reclaims, None, None);
    }

    /// What the intent does. `tip` is the newest record, `new` the id that the next one would get.
    pub fn step(&mut self, intent: &Intent, facts: &Facts<'_>, tip: RecordId, new: RecordId) -> Outcome {
        match intent {
            Intent::Claim { .. } => self.claim(facts, new),
            Intent::Cancel { .. } => {
                self.only_while(&[Phase::New, Phase::Working])?;
                self.leave(Phase::Rejected, self.reclaims);
                Ok("cancel")
            }
            Intent::Replan { .. } => {
                self.only_while(&[Phase::Done, Phase::Rejected])?;
                self.leave(Phase::New, 0);
                Ok("replan")
            }
            Intent::Supersede { .. } => {
                self.only_while(&[Phase::New, Phase::Done, Phase::Rejected])?;
                self.leave(Phase::Superseded, self.reclaims);
                Ok("supersede")
            }
            Intent::Heartbeat { claim, .. } => {
                self.held_by(facts, *claim)?;
                self.fits(facts)?;
                Ok("beat")
            }
            Intent::Report { claim, .. } => {
                self.held_by(facts, *claim)?;
                self.fits(facts)?;
                self.report = Some(new);
                Ok("report")
            }
            Intent::Release { claim, .. } => {
                self.held_by(facts, *claim)?;
                self.leave(Phase::New, 0);
                Ok("release")
            }
            Intent::Finish { claim, done, note, verified } => {
                self.held_by(facts, *claim)?;
                self.fits(facts)?;
                self.finish(facts, *done, note.as_deref(), verified.as_ref())
            }
            Intent::Sweep { observed: known, .. } | Intent::Reclaim { status: Some(known), .. } if self.is_bound() => {
                if *known == tip {
                    Ok(self.unbind())
                } else {
                    Err(8)
                }
            }
            Intent::Reclaim { status: None, .. } if self.is_bound() => Ok(self.unbind()),
            Intent::Sweep { observed, max_attempts, .. } => {
                self.only_while(&[Phase::Working])?;
                if *observed != tip {
                    return Err(8);
                }
                let reclaims = if self.report.is_some() { 0 } else { self.reclaims + 1 };
                let limit = u64::from(self.limit.unwrap_or(*max_attempts));
                let kill = limit > 0 && reclaims >= limit;
                self.leave(if kill { Phase::Rejected } else { Phase::New }, reclaims);
                self.context = None;
                Ok(if kill { "kill" } else { "sweep" })
            }
            Intent::Reclaim { status, .. } => {
                self.only_while(&[Phase::Working])?;
                let current = self.holder.as_ref().map(|(_, claim)| *claim);
                if status.is_some() && *status != current {
                    return Err(8);
                }
                self.leave(Phase::New, 0);
                self.context = None;
                Ok("reclaim")
            }
        }
    }

    /// Nobody holds the task, and yet it belongs to a context.
    fn is_bound(&self) -> bool {
        self.phase == Phase::New && self.context.is_some()
    }

    fn unbind(&mut self) -> &'static str {
        self.context = None;
        "unbind"
    }

    fn only_while(&self, phases: &[Phase]) -> Result<(), u8> {
        if phases.contains(&self.phase) { Ok(()) } else { Err(6) }
    }

    /// The caller must hold the task, by its name or by the claim that it names.
    fn held_by(&self, facts: &Facts<'_>, named: Option<RecordId>) -> Result<(), u8> {
        self.only_while(&[Phase::Working])?;
        let (holder, claim) = self.holder.as_ref().expect("somebody works on it");
        if named.map_or(holder == facts.agent, |named| named == *claim) { Ok(()) } else { Err(12) }
    }

    /// The caller must be in the context that the task is bound to.
    fn fits(&self, facts: &Facts<'_>) -> Result<(), u8> {
        if !self.sticky || (facts.context.is_some() && facts.context == self.context.as_ref()) {
            Ok(())
        } else {
            Err(10)
        }
    }

    fn claim(&mut self, facts: &Facts<'_>, new: RecordId) -> Outcome {
        self.only_while(&[Phase::New])?;
        if self.sticky {
            let given = facts.context.ok_or(10)?;
            let bound = self.context.iter().chain(facts.others.tied.iter().map(|tied| &tied.context));
            if bound.into_iter().any(|bound| bound != given) {
                return Err(10);
            }
        }
        if facts.others.original.is_some() || !facts.others.unmet.is_empty() {
            return Err(11);
        }
        if facts.others.parent.is_some() {
            return Err(15);
        }
        if self.sticky {
            self.context = facts.context.cloned();
        }
        (self.phase, self.holder, self.report) = (Phase::Working, Some((facts.agent.clone(), new)), None);
        self.attempt += 1;
        Ok("claim")
    }

    fn finish(&mut self, facts: &Facts<'_>, done: bool, note: Option<&str>, verified: Option<&Verified>) -> Outcome {
        let report = self.report.ok_or(7)?;
        if verified.is_some_and(|verified| verified.report != report) {
            return Err(8);
        }
        if !facts.others.open_children.is_empty() {
            return Err(14);
        }
        if done && self.verifier {
            match verified.map(|verified| verified.verification.exit) {
                Some(0) => {}
                Some(-1) if note.is_some_and(|note| note.len() >= 10) => {}
                Some(-1) => return Err(13),
                _ => return Err(9),
            }
        }
        self.leave(if done { Phase::Done } else { Phase::Rejected }, self.reclaims);
        Ok("finish")
    }
}
