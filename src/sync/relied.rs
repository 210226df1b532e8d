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

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use super::repeated::asks_for;
use super::run::Watcher;
use super::settle::{Link, Settled};
use crate::error::{Error, Result};
use crate::id::{PENDING, RecordId, RefName, TASKS};
use crate::ledger::Ledger;
use crate::ledger::append::vanished;
use crate::ledger::graph::{Family, Reliance};
use crate::ledger::resolve::prefix;
use crate::protocol::decide::Intent;
use crate::protocol::record::{Content, Record};
use crate::protocol::state::TaskState;
use crate::store::lock::{self, Held};
use crate::store::{Mode, StoreError};

/// What an intent is decided on, held still until it is dropped.
pub(super) struct Ground {
    /// Where the task is at the authority, as far as that need not be asked.
    pub(super) known: Option<RecordId>,
    /// Whether that is only a guess.
    pub(super) is_guess: bool,
    relied: Held,
    /// Whether children of the task were looked for.
    has_family: bool,
    _turn: File,
}

impl Ground {
    /// Whether all that a decision relied on is held still.
    pub(super) fn bears(&self, reliance: &Reliance) -> bool {
        let is_held = reliance.read.iter().all(|seen| self.relied.holds(seen.name.shard(), Mode::Shared));
        is_held && (self.has_family || reliance.family.is_none())
    }
}

impl Link {
    /// Takes the turn of a task, and before that the locks of what an intent seems to rely on, and of what it did rely on
    /// when it was decided before. What the authority alone may know of it is asked for first.
    ///
    /// # Errors
    /// `Locked` where another process does not come to an end; `Unreachable`, also while it is not known what became of a
    /// record that the intent would rely on.
    pub(super) fn ground(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        state: &TaskState,
        intent: &Intent,
        before: &Reliance,
    ) -> Result<Ground> {
        let mut state = state.clone();
        let mut reliance = ledger.reliance(&state, intent)?;
        let is_finish = matches!(intent, Intent::Finish { .. });
        let mut is_told = false;
        if is_finish {
            let heard = self.remote.as_one_errand(|| self.ask_for_children(ledger, name, &state, &reliance));
            is_told = heard.map_err(|error| {
                let pending = ledger.store.tip(&name.pending()).ok().flatten().map(RecordId);
                let error = self.still_unknown(ledger, name, pending, error);
                self.still_open(ledger, name, error, |below, sent| asks_for(ledger, below, intent, sent))
            })?;
            state = ledger.state(name)?.ok_or_else(|| vanished(name, state.tip))?;
            reliance = ledger.reliance(&state, intent)?;
        }
        if reliance.is_incomplete {
            self.pull(ledger, &[TASKS.to_owned()], Watcher::patient())?;
            reliance = ledger.reliance(&state, intent)?;
        }
        let seen = reliance.read.iter().chain(&before.read);
        let names: BTreeSet<RefName> = seen.map(|seen| seen.name.clone()).filter(|other| other != name).collect();
        let own = moves_status(intent).then_some((name.shard(), Mode::Exclusive));
        let relied = self.hold_still(ledger, &names, own)?;
        if let Some(family) = &reliance.family {
            self.settle_births(ledger, family)?;
        }
        let turn = self.turn(name)?;
        let known = if is_finish && !is_told { None } else { self.known(ledger, name, intent)? };
        Ok(Ground { known, is_guess: !is_finish, relied, has_family: reliance.family.is_some(), _turn: turn })
    }

    /// Keeps the other processes of this repository from moving the status of some tasks, and takes the lock of one's own
    /// with theirs. What was left on its way by a process that is gone may still move it, so that is settled.
    ///
    /// # Errors
    /// As [`Link::ground`].
    pub(super) fn hold_still(
        &self,
        ledger: &Ledger<'_>,
        names: &BTreeSet<RefName>,
        own: Option<(u8, Mode)>,
    ) -> Result<Held> {
        let shards: Vec<_> = names.iter().map(|name| (name.shard(), Mode::Shared)).chain(own).collect();
        let held = lock::acquire(&self.state_dir.join("relied"), &shards, self.others_may_take(), &|| Ok(true))?;
        let held = held.expect("it is always worthwhile");
        for name in names {
            self.settle_move(ledger, name)?;
        }
        Ok(held)
    }

    /// Finds out what became of a record that was left on its way and moves the status of its task.
    fn settle_move(&self, ledger: &Ledger<'_>, name: &RefName) -> Result<()> {
        let Some(sent) = ledger.store.tip(&name.pending())?.map(RecordId) else { return Ok(()) };
        let is_move = |record: Record| matches!(record.content, Content::Status(_));
        // One that cannot be read moves nothing.
        if !ledger.record(name, sent).is_ok_and(is_move) {
            return Ok(());
        }
        let _turn = self.turn(name)?;
        if ledger.store.tip(&name.pending())? != Some(sent.0) {
            return Ok(());
        }
        let settled = self.finish_pending(ledger, name).map(drop);
        settled.map_err(|error| self.still_open(ledger, name, error, |_, _| false))
    }

    /// As [`Link::settle_move`], for children whose creation was left on its way.
    fn settle_births(&self, ledger: &Ledger<'_>, family: &Family) -> Result<()> {
        for (pending, tip) in ledger.store.tips(&family.pending_prefix())? {
            let name = pending.of_task_below(PENDING);
            let child = match ledger.child_at(&name, tip) {
                // One that cannot be read moves nothing.
                Err(Error::Damaged { .. } | Error::Store(StoreError::BrokenRef { .. })) => None,
                child => child?,
            };
            if child.is_some_and(|task| family.has(&task)) {
                self.settle_move(ledger, &name)?;
            }
        }
        Ok(())
    }

    /// Brings the task and its children as the authority has them, and what else of its queue is not known here: a parent does
    /// not name its children, and another machine may have planned one long ago. Whose child a task is never changes, so the
    /// others may be as they are. Returns whether the authority said where the task is,
    /// and can be believed.
    fn ask_for_children(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        state: &TaskState,
        reliance: &Reliance,
    ) -> Result<bool> {
        let queue = prefix(Some(&state.task.queue));
        if reliance.family.is_none() {
            // As far as is known here, nobody holds it: what its children are shows when that is put right.
            let (outcome, _) = self.pull(ledger, &[queue], Watcher::patient())?;
            return Ok(outcome.tips.contains_key(name));
        }
        // Read before the authority is asked: what is noted meanwhile is newer than the answer.
        let here: BTreeSet<RefName> = ledger.store.tips(&queue)?.into_iter().map(|(name, _)| name).collect();
        let family: BTreeSet<&RefName> = reliance.read.iter().map(|seen| &seen.name).chain([name]).collect();
        let mut had = BTreeMap::new();
        for name in &family {
            had.extend(ledger.store.tip(&name.seen_at(&self.remote.name))?.map(|tip| ((*name).clone(), tip)));
        }
        let mut there = self.remote.list(&[queue], &|| false, &mut || {})?;
        let mut is_told = there.contains_key(name);
        there.retain(|name, tip| {
            let is_news = had.get(name) != Some(tip) && name.task().is_ok();
            is_news && (family.contains(name) || !here.contains(name))
        });
        self.remote.fetch_objects(&there, &had, &[], Watcher::patient())?;
        for (other, tip) in there {
            let settled = self.settle_listed(ledger, &other, Some(RecordId(tip)), had.get(&other).copied())?.0;
            // What is wrong with another task is said where that one is asked about.
            is_told &= other != *name || !matches!(settled, Settled::Trouble(_));
        }
        Ok(is_told)
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
