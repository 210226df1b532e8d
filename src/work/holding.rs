//! A claim that is held: what its holder records under it, and for how long it may.
//!
//! What must never happen here: a failed record is taken for a successful one; a claim that is not current any more is
//! recorded under.

use std::time::Duration;

use super::renewal::Renewal;
use super::supply::Taken;
use crate::clock::since_boot_ms;
use crate::error::Error;
use crate::id::AgentId;
use crate::ledger::append::Appended;
use crate::ledger::find::Found;
use crate::protocol::decide::Intent;
use crate::protocol::record::{Mark, Phase};
use crate::protocol::refusal::Refusal;
use crate::protocol::state::TaskState;
use crate::session::Session;
use crate::store::StoreError;

/// The longest pause between two tries of recording something, in milliseconds.
const PAUSE_MAX_MS: u64 = 1_000;

/// Why something could not be recorded.
#[derive(Debug)]
pub enum Unrecorded {
    /// The claim is not current any more.
    Lost(String),
    /// The command settled the task itself, with pm: it is in this phase now.
    Settled(Phase),
    /// It could not be written, or not known to be.
    Failed(String),
}

/// A claim, seen from its holder.
pub struct Holding<'a> {
    session: &'a Session,
    taken: &'a Taken,
    /// The task as it was last seen: usually at its tip, since hardly anybody else appends to it.
    state: TaskState,
    /// When it has to be renewed, and when it lapses.
    pub renewal: Renewal,
}

impl<'a> Holding<'a> {
    /// What was just claimed.
    pub fn new(session: &'a Session, taken: &'a Taken) -> Holding<'a> {
        let renewal = Renewal::new(taken.ttl.ms(), taken.sent_ms, random());
        Holding { session, taken, state: taken.state.clone(), renewal }
    }

    /// Nothing is held any more, so nothing can be lost: the command may run on.
    pub fn pretend_renewal(&mut self) {
        self.renewal.succeeded(since_boot_ms(), random());
    }

    /// A renewal did not get in, for a reason that may pass.
    pub fn try_again_soon(&mut self) {
        self.renewal.failed(since_boot_ms(), random());
    }

    /// Records something, and tries again until it got in or the lease lapses.
    ///
    /// # Errors
    /// Why it did not.
    pub fn record(&mut self, intent: &Intent) -> Result<Appended, Unrecorded> {
        loop {
            match self.append(intent) {
                Err(Unrecorded::Failed(_)) if since_boot_ms() < self.renewal.lapses_ms() => {
                    let pause_ms = (self.taken.ttl.ms() / 30).min(PAUSE_MAX_MS);
                    std::thread::sleep(Duration::from_millis(pause_ms));
                }
                result => return result,
            }
        }
    }

    /// Records something, once.
    ///
    /// # Errors
    /// Why it could not be.
    pub fn append(&mut self, intent: &Intent) -> Result<Appended, Unrecorded> {
        let sent_ms = since_boot_ms();
        let found = Found { name: self.taken.name.clone(), state: self.state.clone() };
        match self.session.writer().append(found, intent.clone()) {
            Ok(appended) => {
                self.renewal.succeeded(sent_ms, random());
                self.state = appended.state.clone();
                Ok(appended)
            }
            Err(error) => Err(self.explain(error)),
        }
    }

    /// What a failed append means for this claim.
    fn explain(&mut self, error: Error) -> Unrecorded {
        let why = error.to_string();
        let is_refused =
            matches!(error, Error::Refused { refusal: Refusal::WrongPhase { .. } | Refusal::LeaseLost { .. }, .. });
        if !is_refused && !matches!(error, Error::Store(StoreError::RecordedUnknown { .. })) {
            return Unrecorded::Failed(why);
        }
        let now = match self.session.ledger().state(&self.taken.name) {
            Ok(Some(state)) => state,
            Ok(None) | Err(_) => return if is_refused { Unrecorded::Lost(why) } else { Unrecorded::Failed(why) },
        };
        let settled = settled_by_holder(&now, self.taken, &self.session.agent);
        self.state = now;
        match settled {
            Some(phase) => Unrecorded::Settled(phase),
            None if is_refused => Unrecorded::Lost(why),
            None => Unrecorded::Failed(why),
        }
    }
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
