//! What a record relies on in other tasks, while it is on its way to the authority.
//!
//! In one repository rules 8 and 9 are exact (design, section 4): whoever relies on the status of other tasks holds their
//! locks from before it reads them until its record is accepted, and whoever moves the status of a task holds that one's
//! alone. They are taken in index order and before the turn of the task, which nobody waits for who holds another one.
//!
//! They are not the turns: a heartbeat moves no status, and must not wait for each claim of a child.
//!
//! What must never happen here: a record is sent that relies on what another process of this repository may be moving; two
//! processes wait for each other, or one waits without a bound.

use std::collections::BTreeSet;
use std::fs::File;

use super::repeated::asks_for;
use super::run::{Outcome, Watcher};
use super::settle::Link;
use crate::error::Result;
use crate::id::{RecordId, RefName, TASKS};
use crate::ledger::Ledger;
use crate::ledger::append::vanished;
use crate::ledger::graph::Reliance;
use crate::ledger::resolve::prefix;
use crate::protocol::decide::Intent;
use crate::protocol::state::TaskState;
use crate::store::Mode;
use crate::store::lock::{self, Held};

/// What an intent is decided on, held still until it is dropped.
pub(super) struct Ground {
    /// Where the task is at the authority, as far as that need not be asked.
    pub(super) known: Option<RecordId>,
    /// Whether that is only a guess.
    pub(super) is_guess: bool,
    relied: Held,
    _turn: File,
}

impl Ground {
    /// Whether all that a decision relied on is held still.
    pub(super) fn bears(&self, reliance: &Reliance) -> bool {
        reliance.read.iter().all(|seen| self.relied.holds(seen.name.shard(), Mode::Shared))
    }
}

impl Link {
    /// Takes the turn of a task, and before that the locks of what an intent seems to rely on, and of what it did rely on
    /// when it was decided before. What the authority alone may know of it is asked for first.
    ///
    /// # Errors
    /// `Locked` where another process does not come to an end; `Unreachable`.
    pub(super) fn ground(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        state: &TaskState,
        intent: &Intent,
        before: &Reliance,
    ) -> Result<Ground> {
        let mut state = state.clone();
        let mut is_told = false;
        if matches!(intent, Intent::Finish { .. }) {
            is_told = self.ask_for_children(ledger, name, &state, intent)?.tips.contains_key(name);
            state = ledger.state(name)?.ok_or_else(|| vanished(name, state.tip))?;
        }
        let mut reliance = ledger.reliance(&state, intent)?;
        if reliance.is_incomplete {
            self.pull(ledger, &[TASKS.to_owned()], Watcher::patient())?;
            reliance = ledger.reliance(&state, intent)?;
        }
        let seen = reliance.read.iter().chain(&before.read);
        let names: BTreeSet<RefName> = seen.map(|seen| seen.name.clone()).filter(|other| other != name).collect();
        let own = moves_status(intent).then_some((name.shard(), Mode::Exclusive));
        let relied = self.hold_still(&names, own)?;
        let turn = self.turn(name)?;
        let known = self.known(ledger, name, intent)?;
        Ok(Ground { known, is_guess: !is_told, relied, _turn: turn })
    }

    /// Keeps the other processes of this repository from moving the status of some tasks, and takes another lock together
    /// with theirs.
    ///
    /// # Errors
    /// As [`Link::ground`].
    pub(super) fn hold_still(&self, names: &BTreeSet<RefName>, also: Option<(u8, Mode)>) -> Result<Held> {
        let shards: Vec<_> = names.iter().map(|name| (name.shard(), Mode::Shared)).chain(also).collect();
        let held = lock::acquire(&self.state_dir.join("relied"), &shards, self.others_may_take(), &|| Ok(true))?;
        let held = held.expect("it is always worthwhile");
        Ok(held)
    }

    /// Brings everything of a task's queue that the authority has: a parent does not name its children, and another machine
    /// may have planned one long ago.
    fn ask_for_children(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        state: &TaskState,
        intent: &Intent,
    ) -> Result<Outcome> {
        let pending = ledger.store.tip(&name.pending())?.map(RecordId);
        let queue = prefix(Some(&state.task.queue));
        // Its holder has a lease to keep.
        let pulled = self.remote.as_one_errand(|| self.pull(ledger, &[queue], Watcher::patient()));
        pulled.map(|(outcome, _)| outcome).map_err(|error| {
            let error = self.still_unknown(ledger, name, pending, error);
            self.still_open(ledger, name, error, |below, sent| asks_for(ledger, below, intent, sent))
        })
    }

    /// Where a task is at the authority: where it was last seen, if that is what is here, too. A holder is hardly ever wrong
    /// about that, and saves a connection; if it is wrong, nothing but the push is lost.
    fn known(&self, ledger: &Ledger<'_>, name: &RefName, intent: &Intent) -> Result<Option<RecordId>> {
        let is_holders = matches!(
            intent,
            Intent::Heartbeat { .. } | Intent::Report { .. } | Intent::Release { .. } | Intent::Finish { .. }
        );
        // What was left on its way comes first, and what its sender does not know of yet.
        if !is_holders || ledger.store.tip(&name.pending())?.is_some() || self.answer(ledger, name)?.is_some() {
            return Ok(None);
        }
        let seen = ledger.store.tip(&name.seen_at(&self.remote.name))?;
        Ok(seen.filter(|seen| ledger.store.tip(name).is_ok_and(|tip| tip == Some(*seen))).map(RecordId))
    }
}

/// Whether an intent moves the status of its task, by which others are judged.
fn moves_status(intent: &Intent) -> bool {
    !matches!(intent, Intent::Heartbeat { .. } | Intent::Report { .. })
}
