//! Taking stale claims away from workers that went silent (design, section 6).
//!
//! First a plan, which is pure: every claim with its age and what to do about it. Then the acts: each one an
//! append that succeeds only if nothing was recorded since the plan's reading.

use std::collections::HashMap;
use std::path::Path;

use super::authority::Survey;
use super::find::Found;
use super::observations::{Observations, Watching};
use super::resolve::Damage;
use super::{Ledger, Reach};
use crate::error::{Error, Result};
use crate::id::{AgentId, RecordId, RefName};
use crate::protocol::decide::{self, Draft, Intent, Others};
use crate::protocol::lease::{self, Age, Reading, TtlRule, Verdict, Watched};
use crate::protocol::record::{ClockReading, Content, Phase};
use crate::protocol::refusal::Refusal;
use crate::protocol::state::{Claim, TaskState};

/// How a sweep is to judge.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// How TTLs are chosen.
    pub ttl: TtlRule,
    /// Use the records' author dates instead of monotonic clocks (`--trust-clocks`).
    pub trust_clocks: bool,
    /// The limit of sweeps in a row for tasks that set none; 0 is none.
    pub max_attempts: u32,
    /// Show, but write nothing into the ledger.
    pub dry_run: bool,
}

/// One claim, as a sweep sees it.
#[derive(Debug)]
pub struct Judged {
    /// The ref.
    pub name: RefName,
    /// The state that was read.
    pub state: TaskState,
    /// The claim.
    pub claim: Claim,
    /// The age of its newest record, in milliseconds.
    pub age_ms: u64,
    /// What the sweep makes of it.
    pub verdict: Verdict,
}

/// A claim that was taken away.
#[derive(Debug)]
pub struct Swept {
    /// The claim as it was judged.
    pub judged: Judged,
    /// The status that took it away; `None` in a dry run.
    pub status: Option<RecordId>,
}

/// A claim that was stale, but could not be taken away.
#[derive(Debug)]
pub struct Missed {
    /// The claim as it was judged.
    pub judged: Judged,
    /// What came in between.
    pub error: Error,
}

/// What one sweep did.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Tasks read.
    pub scanned: usize,
    /// Claims older than their TTL.
    pub stale: usize,
    /// Tasks that are `new` again.
    pub reclaimed: Vec<Swept>,
    /// Tasks that were rejected after too many sweeps without a report.
    pub rejected: Vec<Swept>,
    /// Tasks whose tip moved in between.
    pub raced: Vec<Missed>,
    /// What the authority had, where one decides.
    pub survey: Option<Survey>,
    /// Tasks that could not be written.
    pub failed: Vec<Missed>,
    /// Claims that must be watched before they can be judged.
    pub observing: Vec<Judged>,
    /// Tasks that could not be read.
    pub damaged: Vec<Damage>,
    /// Why first sights could not be kept, if so: then this machine can only observe.
    pub forgetful: Option<String>,
    /// The largest TTL among the claims that were read, in milliseconds.
    pub largest_ttl_ms: u64,
}

impl Ledger<'_> {
    /// Sweeps every task below `prefix`. `state_dir` is where first sights are kept. While it reads, and between two
    /// claims, `stop` is asked: on a yes the rest is left to the next sweep.
    ///
    /// # Errors
    /// Failures of the system. Tasks that raced, failed or are damaged are in the outcome.
    pub fn sweep(&self, prefix: &str, state_dir: &Path, terms: &Terms, stop: &dyn Fn() -> bool) -> Result<Outcome> {
        let survey = match self.reach {
            Reach::Through(authority) => Some(authority.survey(self, prefix, terms.dry_run, stop)?),
            Reach::Alone | Reach::Provisional => None,
        };
        let start = self.clock.monotonic();
        let Some(mut scan) = self.scan_until(prefix, stop)? else { return Ok(Outcome::default()) };
        let end = self.clock.monotonic();
        let (start, end) = match &survey {
            // Only what was read from the authority counts, and the time of that reading.
            Some(survey) => {
                scan.tasks.retain(|(name, state)| survey.tips.get(name) == Some(&state.tip.0));
                (survey.reading.map(|reading| reading.start), survey.reading.map(|reading| reading.end))
            }
            None => (start, end),
        };
        let is_shared = survey.is_some();
        let mut outcome = Outcome { scanned: scan.tasks.len(), damaged: scan.damaged, survey, ..Outcome::default() };
        let mut observations = Observations::load(state_dir);
        let mut watched = Vec::new();
        let mut stale = Vec::new();
        let working: Vec<_> = scan
            .tasks
            .into_iter()
            .filter_map(|(name, state)| state.claim().map(|claim| (name, state, claim)))
            .collect();
        let mut tips: HashMap<&str, String> =
            working.iter().map(|(name, state, _)| (name.as_str(), state.tip.to_string())).collect();
        for (name, state, claim) in &working {
            let ttl = terms.ttl.ttl(claim.ttl);
            outcome.largest_ttl_ms = outcome.largest_ttl_ms.max(ttl.ms());
            let age = match (terms.trust_clocks, start, end) {
                (true, ..) => lease::age_by_wall_clock(state.at, self.clock.wall_seconds()),
                (false, Some(start), Some(end)) => {
                    let now = Reading { start, end };
                    let age = if is_shared {
                        lease::age_at_authority(observations.at_authority(end.id, name, state.tip), now, ttl)
                    } else {
                        lease::age(state.clock, now, observations.first_seen_ms(end.id, name, state.tip))
                    };
                    if !matches!(age, Age::Measured(_)) {
                        let at_authority = is_shared.then(|| Watched::after(age, now));
                        watched.push(Watching { name: name.clone(), tip: state.tip, at_authority });
                    }
                    age
                }
                // Without a monotonic clock nothing can be judged but by --trust-clocks.
                (false, ..) => Age::JustSeen,
            };
            let verdict = lease::judge(age, ttl);
            let judged =
                Judged { name: name.clone(), state: state.clone(), claim: claim.clone(), age_ms: age.ms(), verdict };
            match verdict {
                Verdict::Fresh { .. } => {}
                Verdict::Stale => stale.push(judged),
                Verdict::Observing { .. } => outcome.observing.push(judged),
            }
        }
        outcome.stale = stale.len();
        for judged in stale {
            if stop() {
                break;
            }
            self.take(judged, terms, &mut outcome);
        }
        for swept in outcome.reclaimed.iter().chain(&outcome.rejected).filter(|swept| swept.status.is_some()) {
            tips.remove(swept.judged.name.as_str());
        }
        if let Some(end) = end {
            let keep = |name: &str, tip: &str| {
                // A sweep of one queue knows nothing of the others.
                !name.starts_with(prefix) || tips.get(name).is_some_and(|current| current == tip)
            };
            outcome.forgetful = remember(&mut observations, end, &watched, keep);
        }
        Ok(outcome)
    }

    /// Takes one stale claim away, or notes why not.
    fn take(&self, judged: Judged, terms: &Terms, outcome: &mut Outcome) {
        let intent = sweep_intent(&judged, self.agent, terms.max_attempts);
        if terms.dry_run {
            let drafts = decide::decide(&judged.state, &intent, &self.facts(&Others::default())).unwrap_or_default();
            let rejects =
                |draft: &Draft| matches!(&draft.content, Content::Status(status) if status.phase == Phase::Rejected);
            let rejected = drafts.iter().any(rejects);
            let swept = Swept { judged, status: None };
            if rejected {
                outcome.rejected.push(swept)
            } else {
                outcome.reclaimed.push(swept)
            }
            return;
        }
        let found = Found { name: judged.name.clone(), state: judged.state.clone() };
        match self.append(found, intent) {
            Ok(appended) => {
                let rejected = appended.state.phase() == Some(Phase::Rejected);
                let swept = Swept { judged, status: Some(appended.last().0) };
                if rejected { outcome.rejected.push(swept) } else { outcome.reclaimed.push(swept) }
            }
            Err(error @ Error::Refused { refusal: Refusal::RaceLost { .. } | Refusal::WrongPhase { .. }, .. }) => {
                outcome.raced.push(Missed { judged, error });
            }
            Err(error) => outcome.failed.push(Missed { judged, error }),
        }
    }
}

fn sweep_intent(judged: &Judged, sweeper: &AgentId, max_attempts: u32) -> Intent {
    let holder = &judged.claim.holder;
    let reason = format!("{holder} was silent for {} ms, swept by {sweeper}", judged.age_ms);
    Intent::Sweep { observed: judged.state.tip, reason: Some(reason), max_attempts }
}

/// Keeps first sights; returns why they could not be kept, if so.
fn remember(
    observations: &mut Observations,
    now: ClockReading,
    watched: &[Watching],
    keep: impl Fn(&str, &str) -> bool,
) -> Option<String> {
    observations.update(now.id, now.ms, watched, keep).err().map(|error| error.to_string())
}
