//! Moving thousands of refs here at once, where nothing has to be decided about them but whether they hold.
//!
//! What is not as plain as that is left to be settled one by one.

use std::collections::{BTreeMap, BTreeSet};

use super::reconcile::{Action, reconcile};
use super::run::{Outcome, Watcher};
use super::settle::Link;
use crate::error::Result;
use crate::id::{Oid, RecordId, RefName};
use crate::ledger::Ledger;
use crate::store::{Mode, Move};

/// From so many tasks on it is worth it.
const MANY: usize = 32;

impl Link {
    /// Takes over the tasks that are only ahead at the remote, and notes what is the same here and there; what is left in
    /// `changed` is settled one by one. `had` is what was noted of each before the remote was listed.
    ///
    /// # Errors
    /// Failures of the system.
    pub(super) fn take_many(
        &self,
        ledger: &Ledger<'_>,
        changed: &mut BTreeMap<RefName, Option<RecordId>>,
        had: &BTreeMap<RefName, Oid>,
        outcome: &mut Outcome,
        watcher: Watcher<'_>,
    ) -> Result<()> {
        if changed.len() < MANY {
            return Ok(());
        }
        let mut moves: Vec<Move> = Vec::new();
        let mut ids = Vec::new();
        let mut counts = Vec::new();
        for (at, (name, remote)) in changed.iter().enumerate() {
            if (watcher.stop)() {
                break;
            }
            (watcher.tell)("taking", at, changed.len());
            let Some(remote) = *remote else { continue };
            // What cannot be read is named when it is settled by itself.
            let Ok(Ok(standing)) = self.standing(ledger, name, Some(remote)) else { continue };
            if !standing.ours.is_empty() || standing.had.map(|had| had.0) != had.get(name).copied() {
                continue;
            }
            match reconcile(&standing, |record| ledger.rewrite(record))? {
                Action::Nothing => {}
                Action::Take(_) => {
                    ids.extend(standing.theirs.iter().map(|(id, _)| id.0));
                    moves.push((name.clone(), standing.local.map(|tip| tip.0), remote.0));
                }
                _ => continue,
            }
            counts.push((name.clone(), standing.theirs.len()));
            moves.push((name.seen_at(&self.remote.name), standing.had.map(|tip| tip.0), remote.0));
        }
        if counts.len() < MANY {
            return Ok(());
        }
        ledger.store.make_durable(&ids)?;
        let moved = self.move_many(ledger, &moves)?;
        for (name, records) in counts {
            if !moved.contains(&name.seen_at(&self.remote.name)) || (records > 0 && !moved.contains(&name)) {
                continue;
            }
            changed.remove(&name);
            if records > 0 {
                outcome.taken.push((name, records));
            }
        }
        Ok(())
    }

    /// Notes where many tasks are at the remote now.
    ///
    /// # Errors
    /// Failures of the system.
    pub(super) fn note_many(&self, ledger: &Ledger<'_>, tips: &[(RefName, RecordId)]) -> Result<()> {
        if tips.len() < MANY {
            return tips.iter().try_for_each(|(name, tip)| self.note_seen(ledger, name, *tip));
        }
        let mut moves = Vec::with_capacity(tips.len());
        for (name, tip) in tips {
            moves.extend(self.news(ledger, name, *tip)?);
        }
        // Another process that notes something newer at the same time is right.
        self.move_many(ledger, &moves).map(drop)
    }

    /// The refs that were moved.
    fn move_many(&self, ledger: &Ledger<'_>, moves: &[Move]) -> Result<BTreeSet<RefName>> {
        let shards: BTreeSet<u8> = moves.iter().map(|(name, ..)| name.shard()).collect();
        let shards: Vec<_> = shards.into_iter().map(|shard| (shard, Mode::Exclusive)).collect();
        let held = ledger.store.lock(&shards)?;
        let moved = ledger.store.move_many(&held, moves)?;
        Ok(moves.iter().zip(moved).filter(|(_, moved)| *moved).map(|((name, ..), _)| name.clone()).collect())
    }
}
