//! A claim that is held: what its holder records under it, and for how long it may.
//!
//! What must never happen here: a failed record is taken for a successful one; a claim that is not current any more is
//! recorded under.

use std::time::Duration;

use super::pulse::Pulse;
use super::renewal::Renewal;
use super::stop::{Stop, Wish};
use super::supply::Taken;
use crate::clock::since_boot_ms;
use crate::error::Error;
use crate::id::{AgentId, Oid, RecordId};
use crate::ledger::append::Appended;
use crate::ledger::find::Found;
use crate::protocol::decide::Intent;
use crate::protocol::record::{Mark, Phase, Ttl};
use crate::protocol::refusal::{Refusal, Unmet};
use crate::protocol::state::TaskState;
use crate::session::Session;
use crate::store::StoreError;
use crate::sync::delivery::deliver;
use crate::sync::settle::Link;

/// The longest pause between two tries of recording something, in milliseconds.
const PAUSE_MAX_MS: u64 = 1_000;

/// While a claim is held, a connection to the authority may take this part of its lease, but so long at least.
const ERRANDS_A_LEASE: u64 = 10;
const ERRAND_MIN: Duration = Duration::from_secs(1);

/// Why something could not be recorded.
#[derive(Debug)]
pub enum Unrecorded {
    /// The claim is not current any more.
    Lost(String),
    /// The command settled the task itself, with pm: it is in this phase now.
    Settled(Phase),
    /// It could not be written.
    Failed(String),
    /// Whether it was written is not known.
    Unsure(String),
    /// The branch that was to move with it cannot be moved.
    Undelivered(String),
    /// The task cannot be closed before these children are settled.
    ChildrenOpen(Vec<Unmet>),
    /// What a verifier said is not about the newest report any more.
    Outdated(String),
    /// A rule said no, and will again.
    Refused(String),
}

impl std::fmt::Display for Unrecorded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unrecorded::Lost(why)
            | Unrecorded::Failed(why)
            | Unrecorded::Unsure(why)
            | Unrecorded::Undelivered(why)
            | Unrecorded::Outdated(why)
            | Unrecorded::Refused(why) => f.write_str(why),
            Unrecorded::Settled(phase) => write!(f, "the task is {phase}"),
            Unrecorded::ChildrenOpen(open) => write!(f, "{} children are open", open.len()),
        }
    }
}

/// A branch, and the commit that it is to move to.
pub type Delivery<'a> = (&'a str, Oid);

/// A claim, seen from its holder.
pub struct Holding<'a> {
    session: &'a Session,
    stop: &'a Stop,
    pulse: &'a Pulse,
    taken: &'a Taken,
    /// The task as it was last seen: usually at its tip, since hardly anybody else appends to it.
    state: TaskState,
    /// When it has to be renewed, and when it lapses.
    pub renewal: Renewal,
    /// When a record was sent whose fate is not known: the next answer may be about that one.
    unsure_ms: Option<u64>,
}

impl<'a> Holding<'a> {
    /// What was just claimed.
    pub fn new(session: &'a Session, stop: &'a Stop, pulse: &'a Pulse, taken: &'a Taken) -> Holding<'a> {
        if let Some(authority) = session.authority() {
            hurry(authority, taken.ttl);
        }
        let renewal = Renewal::new(taken.ttl.ms(), taken.sent_ms, random());
        pulse.enter(taken.claim, &taken.name, taken.ttl.ms(), taken.sent_ms);
        Holding { session, stop, pulse, taken, state: taken.state.clone(), renewal, unsure_ms: None }
    }

    /// The task as it was last seen.
    pub fn state(&self) -> &TaskState {
        &self.state
    }

    /// Reads the task again: others may have written something under the same claim.
    pub fn refresh(&mut self) {
        if let Ok(Some(state)) = self.session.ledger().state(&self.taken.name) {
            self.state = state;
        }
    }

    /// Nothing is held any more, so nothing can be lost: the command may run on.
    pub fn pretend_renewal(&mut self) {
        self.renewal.succeeded(since_boot_ms(), random());
    }

    /// A renewal did not get in, for a reason that may pass.
    pub fn try_again_soon(&mut self) {
        self.renewal.failed(since_boot_ms(), random());
    }

    /// Records something, and tries again until it got in, the lease lapses, or the runner is to stop at once. Returns
    /// the record.
    ///
    /// # Errors
    /// Why it did not get in.
    pub fn record(&mut self, intent: &Intent) -> Result<RecordId, Unrecorded> {
        self.record_along(intent, None)
    }

    /// As [`Holding::record`], together with the move of a branch.
    ///
    /// # Errors
    /// As [`Holding::record`]; `Undelivered`.
    pub fn record_along(&mut self, intent: &Intent, delivery: Option<Delivery<'_>>) -> Result<RecordId, Unrecorded> {
        let mut may_be_in = false;
        loop {
            match self.append(intent, delivery) {
                Ok(appended) => return Ok(appended.last().0),
                // Its own record, and not the command's, has settled the task.
                Err(Unrecorded::Settled(phase)) if may_be_in => {
                    return self.state.status.as_ref().map(|at| at.id).ok_or(Unrecorded::Settled(phase));
                }
                Err(Unrecorded::Failed(_)) if self.may_try_again() => {}
                Err(Unrecorded::Unsure(_)) if self.may_try_again() => may_be_in = true,
                Err(unrecorded) => return Err(unrecorded),
            }
            let pause = Duration::from_millis((self.taken.ttl.ms() / 30).min(PAUSE_MAX_MS));
            self.stop.wait(pause, self.stop.wish());
        }
    }

    /// Keeps the claim alive.
    ///
    /// # Errors
    /// Why it could not be.
    pub fn beat(&mut self, progress: Option<String>) -> Result<(), Unrecorded> {
        let claim = self.taken.claim;
        if let Ok(Some(sent_ms)) = self.pulse.beat(self.session, claim, self.renewal.renewed_ms(), progress.as_deref())
        {
            self.renewal.succeeded(sent_ms, random());
            return Ok(());
        }
        self.append(&Intent::Heartbeat { claim: Some(claim), progress }, None).map(drop)
    }

    fn may_try_again(&self) -> bool {
        since_boot_ms() < self.renewal.lapses_ms() && self.stop.wish() < Wish::Now
    }

    /// Records something, once.
    fn append(&mut self, intent: &Intent, delivery: Option<Delivery<'_>>) -> Result<Appended, Unrecorded> {
        let sent_ms = since_boot_ms();
        let found = Found { name: self.taken.name.clone(), state: self.state.clone() };
        let appended = self.session.writer().and_then(|ledger| match delivery {
            Some((branch, commit)) => deliver(self.session, &ledger, found, intent.clone(), branch, commit),
            None => ledger.append(found, intent.clone()),
        });
        match appended {
            Ok(appended) => {
                self.renewal.succeeded(self.unsure_ms.take().unwrap_or(sent_ms), random());
                self.state = appended.state.clone();
                Ok(appended)
            }
            Err(error) => {
                let is_race = matches!(
                    error,
                    Error::Refused { refusal: Refusal::RaceLost { .. } | Refusal::Outdated { .. }, .. }
                );
                let unrecorded = self.explain(error, sent_ms);
                if is_race {
                    self.refresh();
                }
                match intent {
                    Intent::Finish { verified: Some(said), .. }
                        if is_race && self.state.proof().is_some_and(|proof| proof != said.report) =>
                    {
                        Err(Unrecorded::Outdated("there is a newer report than the one that was verified".to_owned()))
                    }
                    _ => Err(unrecorded),
                }
            }
        }
    }

    /// What a failed append means for this claim.
    fn explain(&mut self, error: Error, sent_ms: u64) -> Unrecorded {
        let why = error.to_string();
        match error {
            Error::DeliveryRefused { .. } => return Unrecorded::Undelivered(why),
            Error::Refused { refusal: Refusal::ChildrenOpen { open }, .. } => return Unrecorded::ChildrenOpen(open),
            Error::Refused {
                refusal:
                    Refusal::Context(_)
                    | Refusal::NotVerified { .. }
                    | Refusal::SkipWithoutNote
                    | Refusal::NoReport
                    | Refusal::Obscured { .. },
                ..
            } => return Unrecorded::Refused(why),
            _ => {}
        }
        let is_refused =
            matches!(error, Error::Refused { refusal: Refusal::WrongPhase { .. } | Refusal::LeaseLost { .. }, .. });
        let is_unsure = matches!(error, Error::Store(StoreError::RecordedUnknown { .. }) | Error::AnswerLost { .. });
        if !is_refused && !is_unsure {
            return Unrecorded::Failed(why);
        }
        if is_unsure {
            self.unsure_ms.get_or_insert(sent_ms);
        }
        self.refresh();
        match settled_by_holder(&self.state, self.taken, &self.session.agent) {
            _ if is_unsure => Unrecorded::Unsure(why),
            Some(phase) => Unrecorded::Settled(phase),
            None => Unrecorded::Lost(why),
        }
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.pulse.leave(self.taken.claim);
    }
}

/// Lets a connection to the authority take no longer than it may while a lease is held.
pub fn hurry(authority: &Link, lease: Ttl) {
    let most = Duration::from_millis(lease.ms() / ERRANDS_A_LEASE);
    authority.remote.hurry(most.max(ERRAND_MIN));
}

/// The phase of a task that the holder of this very claim closed or released, and nobody has claimed since.
fn settled_by_holder(state: &TaskState, taken: &Taken, holder: &AgentId) -> Option<Phase> {
    let at = state.status.as_ref()?;
    let by_holder = at.agent == *holder && matches!(at.status.mark, None | Some(Mark::Released));
    let same_attempt = at.status.attempt == taken.attempt && at.status.phase != Phase::Working;
    (by_holder && same_attempt).then_some(at.status.phase)
}

/// Random bits for jitter; without any, there is none.
fn random() -> u64 {
    getrandom::u64().unwrap_or(0)
}
