//! The heartbeats of a runner's claims where an authority decides: together in one push.
//!
//! Whoever's heartbeat is due first records one for every claim of this runner that will soon need it, and pushes them
//! all. The others find their claim renewed when theirs would be due. So a machine with twenty agents pushes about as
//! often as one with one, which matters to hosts that count pushes.
//!
//! What must never happen here: a claim counts as renewed that the authority did not say so of; or from later than when
//! the push began.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::since_boot_ms;
use crate::error::Result;
use crate::id::{RecordId, RefName};
use crate::ledger::find::Found;
use crate::protocol::decide::Intent;
use crate::session::Session;

/// A claim is renewed along with others once this part of its lease has passed: half of the time after which its own
/// heartbeat is due.
const ALONG_AFTER: u64 = 6;

/// The claims of one runner.
#[derive(Debug, Default)]
pub struct Pulse {
    claims: Mutex<HashMap<RecordId, Beating>>,
    /// Held by the one who pushes.
    pushing: Mutex<()>,
}

#[derive(Debug, Clone)]
struct Beating {
    name: RefName,
    ttl_ms: u64,
    /// When the newest record that got in was sent, in milliseconds since boot.
    renewed_ms: u64,
}

impl Pulse {
    fn claims(&self) -> MutexGuard<'_, HashMap<RecordId, Beating>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A claim is held from now on.
    pub fn enter(&self, claim: RecordId, name: &RefName, ttl_ms: u64, renewed_ms: u64) {
        self.claims().insert(claim, Beating { name: name.clone(), ttl_ms, renewed_ms });
    }

    /// A claim is not held any more.
    pub fn leave(&self, claim: RecordId) {
        self.claims().remove(&claim);
    }

    /// Renews a claim, and those that will soon need it. Returns when what renewed it was sent; `None` where it was not
    /// renewed, or has no company: then its holder sees to it alone.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn beat(
        &self,
        session: &Session,
        claim: RecordId,
        known_ms: u64,
        progress: Option<&str>,
    ) -> Result<Option<u64>> {
        let Some(authority) = session.authority().filter(|_| !session.is_offline()) else { return Ok(None) };
        let _pushing = self.pushing.lock().unwrap_or_else(PoisonError::into_inner);
        let sent_ms = since_boot_ms();
        let due: Vec<(RecordId, RefName)> = {
            let claims = self.claims();
            if claims.len() < 2 {
                return Ok(None);
            }
            // Somebody else's push may just have renewed it.
            if let Some(renewed_ms) = claims.get(&claim).map(|own| own.renewed_ms).filter(|ms| *ms > known_ms) {
                return Ok(Some(renewed_ms));
            }
            let is_due = |(id, beating): &(&RecordId, &Beating)| {
                **id == claim || sent_ms.saturating_sub(beating.renewed_ms) > beating.ttl_ms / ALONG_AFTER
            };
            claims.iter().filter(is_due).map(|(id, beating)| (*id, beating.name.clone())).collect()
        };
        let ledger = session.provisional_writer();
        let mut beaten = Vec::new();
        let mut turns = Vec::new();
        for (id, name) in due {
            // Whoever has the turn of a task is recording something about it, which renews it as well.
            let Some(turn) = authority.try_turn(&name, Duration::ZERO)? else { continue };
            turns.push(turn);
            let progress = progress.filter(|_| id == claim).map(str::to_owned);
            let Some(state) = ledger.state(&name)? else { continue };
            // Its holder has something else to find out first.
            if ledger.store.tip(&name.pending())?.is_some() {
                continue;
            }
            let intent = Intent::Heartbeat { claim: Some(id), progress };
            // One that is refused is told to its own holder.
            if ledger.append(Found { name: name.clone(), state }, intent).is_ok() {
                beaten.push((id, name));
            }
        }
        let names: Vec<_> = beaten.iter().map(|(_, name)| name.clone()).collect();
        let accepted = authority.push_ahead(&ledger, &names)?;
        let mut claims = self.claims();
        for (id, _) in beaten.iter().filter(|(_, name)| accepted.contains(name)) {
            if let Some(beating) = claims.get_mut(id) {
                beating.renewed_ms = beating.renewed_ms.max(sent_ms);
            }
        }
        let own = beaten.iter().find(|(id, _)| *id == claim);
        Ok(own.filter(|(_, name)| accepted.contains(name)).map(|_| sent_ms))
    }
}
