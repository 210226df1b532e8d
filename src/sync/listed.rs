//! Tasks as a listing of the remote told of them, and what this machine did while it was listed.
//!
//! A listing takes a while, in which other processes of this machine record things at that same remote. It is then older
//! than what they have noted there, which is no loss at the remote.
//!
//! What must never happen here: the alarm is raised over a listing that is older than what it is compared with.

use std::collections::BTreeMap;

use super::remote::NAMED_MAX;
use super::run::{Outcome, Watcher};
use super::settle::{Change, Link, Settled, Trouble};
use crate::error::Result;
use crate::id::{Oid, RecordId, RefName, TASKS};
use crate::ledger::Ledger;
use crate::protocol::lease::Reading;
use crate::store::StoreError;

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
    /// Lists both sides, and fetches what is new there.
    ///
    /// Most tasks of a large ledger are the same everywhere, so those are passed by without being copied or looked up.
    ///
    /// # Errors
    /// `Unreachable`, and failures of the system.
    pub(super) fn survey(
        &self,
        ledger: &Ledger<'_>,
        prefixes: &[String],
        watcher: Watcher<'_>,
        outcome: &mut Outcome,
    ) -> Result<Listed> {
        // Read before the remote is asked: what is noted meanwhile is newer than the answer.
        let seen_prefix = RefName::seen_prefix(&self.remote.name);
        let mut seen: Vec<(RefName, Oid)> = Vec::new();
        for prefix in prefixes {
            let below = prefix.strip_prefix(TASKS).unwrap_or_default();
            let rows = ledger.store.tips(&format!("{seen_prefix}{below}"))?.into_iter();
            // What was noted and cannot be read was never seen.
            seen.extend(rows.filter_map(|(name, tip)| Some((name.of_task_below(&seen_prefix), tip.ok()?))));
        }
        seen.sort();
        let start = ledger.clock.monotonic();
        // What moves here after this is seen by whoever settles the task.
        let mut own_rows = Vec::new();
        let mut read_here = || own_rows.extend(prefixes.iter().map(|prefix| ledger.store.tips(prefix)));
        let mut remote = self.remote.list(prefixes, watcher.stop, &mut read_here)?;
        let end = ledger.clock.monotonic();
        outcome.reading = start.zip(end).map(|(start, end)| Reading { start, end });
        let mut local: Vec<(RefName, Option<Oid>)> = Vec::new();
        for rows in own_rows {
            for (name, tip) in rows? {
                let tip = match tip {
                    Ok(tip) => Some(tip),
                    Err(error @ StoreError::BrokenRef { .. }) => {
                        outcome.damaged.push((name.clone(), error.into()));
                        None
                    }
                    Err(error) => return Err(error.into()),
                };
                local.push((name, tip));
            }
        }
        local.sort();
        let mut listed = Listed { changed: BTreeMap::new(), had: BTreeMap::new() };
        let mut missing = BTreeMap::new();
        let (mut there, mut here, mut noted) =
            (remote.iter().peekable(), local.iter().peekable(), seen.iter().peekable());
        loop {
            let names = [there.peek().map(|row| row.0), here.peek().map(|row| &row.0), noted.peek().map(|row| &row.0)];
            let Some(name) = names.into_iter().flatten().min() else { break };
            let tip = there.next_if(|row| row.0 == name).map(|row| *row.1);
            let own = here.next_if(|row| row.0 == *name).map(|row| row.1);
            let had = noted.next_if(|row| row.0 == *name).map(|row| row.1);
            match own {
                // What cannot be read here was named.
                Some(None) => continue,
                Some(own) if own == tip && own == had => continue,
                _ => {}
            }
            if name.task().is_err() {
                outcome.strangers.push(name.clone());
                continue;
            }
            missing.extend(tip.filter(|_| tip != had && tip != own.flatten()).map(|tip| (name.clone(), tip)));
            listed.had.extend(had.map(|had| (name.clone(), had)));
            listed.changed.insert(name.clone(), tip.map(RecordId));
        }
        for stranger in &outcome.strangers {
            remote.remove(stranger);
        }
        outcome.strangers.retain(|name| local.binary_search_by(|(own, _)| own.cmp(name)).is_err());
        outcome.listed = remote.len();
        let known = if missing.len() > NAMED_MAX {
            seen.into_iter().collect()
        } else {
            missing.keys().filter_map(|name| Some((name.clone(), *listed.had.get(name)?))).collect()
        };
        self.remote.fetch_objects(&missing, &known, prefixes, watcher)?;
        outcome.tips = remote;
        Ok(listed)
    }

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
