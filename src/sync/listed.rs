//! Tasks as a listing of the remote told of them, and what this machine did while it was listed.
//!
//! A listing takes a while, in which other processes of this machine record things at that same remote. It is then older
//! than what they have noted there, which is no loss at the remote.
//!
//! What must never happen here: the alarm is raised over a listing that is older than what it is compared with.

use std::collections::BTreeMap;

use super::settle::{Change, Link, Settled, Trouble};
use crate::error::Result;
use crate::id::{Oid, RecordId, RefName};
use crate::ledger::Ledger;

/// How often a task is asked for again that others keep recording something of.
const ASKS_MAX: u32 = 5;

/// What a listing found.
pub(super) struct Listed {
    /// The tasks that are not the same here and there, each with its tip there.
    pub changed: BTreeMap<RefName, Option<RecordId>>,
    /// What each of them was seen to have there, before it was listed.
    pub had: BTreeMap<RefName, Oid>,
}

impl Link {
    /// Where a listed task is at the remote: asked for again if something was noted of it since the listing began.
    ///
    /// # Errors
    /// `Unreachable`.
    pub(super) fn place_there(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        remote: Option<RecordId>,
        had: Option<Oid>,
    ) -> Result<Option<RecordId>> {
        if ledger.store.tip(&name.seen_at(&self.remote.name))? == had {
            return Ok(remote);
        }
        Ok(self.fetch(ledger, std::slice::from_ref(name))?.get(name).copied().map(RecordId))
    }

    /// As [`Link::settle`], for a listed task; also returns where it is at the remote.
    ///
    /// # Errors
    /// As [`Link::settle`], and `Unreachable`.
    pub(super) fn settle_listed(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        mut remote: Option<RecordId>,
        had: Option<Oid>,
    ) -> Result<(Settled, Change, Option<RecordId>)> {
        let seen = name.seen_at(&self.remote.name);
        let mut turn = None;
        for ask in 1.. {
            remote = self.place_there(ledger, name, remote, had)?;
            let (settled, change) = self.settle(ledger, name, remote)?;
            let noted = ledger.store.tip(&seen)?;
            let is_alarm = matches!(settled, Settled::Trouble(Trouble::Gone(_)));
            if !is_alarm || noted == had || turn.is_some() || ask == ASKS_MAX {
                return Ok((settled, change, remote));
            }
            // Nobody else of this machine writes through while it is asked for again.
            turn = self.try_turn(name, self.remote.patience())?;
        }
        unreachable!("the last ask returns")
    }
}
