//! Pushing many tasks at once.
//!
//! What must never happen here: a task counts as pushed that the other side did not say so of.

use std::collections::{BTreeMap, BTreeSet};

use super::remote::{Pushed, Update};
use super::report::Verdict;
use super::run::{Outcome, Watcher};
use super::settle::Link;
use crate::error::{Error, Result};
use crate::id::{RecordId, RefName};
use crate::ledger::Ledger;

/// So many tasks go in the first push; some hosts fail at more. A batch that fails as a whole is halved.
const BATCH_MIN: usize = 100;

/// So many tasks go in one push at most: each takes a part of the command line.
const BATCH_MAX: usize = 1_600;

/// When so many tasks failed alone, one after another, it is hardly the tasks: batches are not halved any more, until one
/// that is picked from them is taken. A host that takes nothing, of ten thousand, is asked some two hundred times then, and
/// not twenty thousand times.
const FAILED_ALONE_MAX: usize = 8;

/// How the batches of a synchronisation went so far.
#[derive(Default)]
struct Batches {
    accepted: Vec<(RefName, RecordId)>,
    /// Tasks that were pushed alone and not taken, since something was taken.
    failed_alone: usize,
}

impl Link {
    /// Pushes what a few tasks have here and the authority was not last seen to have, in one connection and without asking
    /// first. Returns the tasks that it took; the others are left to a synchronisation.
    ///
    /// # Errors
    /// Failures of the system here.
    pub fn push_ahead(&self, ledger: &Ledger<'_>, names: &[RefName]) -> Result<BTreeSet<RefName>> {
        let mut updates = Vec::new();
        for name in names {
            let seen = ledger.store.tip(&name.seen_at(&self.remote.name))?;
            let tip = ledger.store.tip(name)?;
            let (Some(seen), Some(tip)) = (seen, tip) else { continue };
            // What is on its way there comes first.
            if ledger.store.tip(&name.pending())?.is_some() {
                continue;
            }
            let fork = ledger.fork(name, RecordId(seen), RecordId(tip))?;
            if fork.base == Some(RecordId(seen)) && !fork.theirs.is_empty() {
                updates.push(Update { name: name.clone(), expected: Some(seen), new: tip });
            }
        }
        let mut accepted = BTreeSet::new();
        if updates.is_empty() {
            return Ok(accepted);
        }
        let Pushed::Answered { tasks, .. } = self.remote.push(&updates, None, false, &|| false)? else {
            return Ok(accepted);
        };
        for update in updates {
            if tasks.get(&update.name) == Some(&Verdict::Accepted) {
                self.note_seen(ledger, &update.name, RecordId(update.new))?;
                accepted.insert(update.name);
            }
        }
        Ok(accepted)
    }

    /// Pushes tasks, in batches that grow as long as the other side takes them; returns whether some must be looked at
    /// again. What was taken is noted in the end.
    pub(super) fn push_all(
        &self,
        ledger: &Ledger<'_>,
        updates: &[Update],
        total: &mut Outcome,
        watcher: Watcher<'_>,
    ) -> Result<bool> {
        let mut again = false;
        let mut batches = Batches::default();
        let mut rest = updates;
        let mut size = BATCH_MIN;
        while !rest.is_empty() && !(watcher.stop)() {
            (watcher.tell)("pushing", updates.len() - rest.len(), updates.len());
            let (batch, later) = rest.split_at(size.min(rest.len()));
            let taken_before = batches.accepted.len();
            let pushed = self.push_batch(batch, total, &mut batches, watcher);
            // What was taken so far is noted, whatever comes next.
            if pushed.is_err() {
                self.note_many(ledger, &batches.accepted)?;
            }
            again |= pushed?;
            let all_taken = batches.accepted.len() - taken_before == batch.len();
            size = if all_taken { (size * 2).min(BATCH_MAX) } else { BATCH_MIN };
            rest = later;
        }
        self.note_many(ledger, &batches.accepted)?;
        Ok(again)
    }

    /// Pushes tasks; returns whether some must be looked at again. A batch that is refused or lost as a whole is tried in
    /// parts, as long as one of its tasks may be why.
    fn push_batch(
        &self,
        batch: &[Update],
        total: &mut Outcome,
        batches: &mut Batches,
        watcher: Watcher<'_>,
    ) -> Result<bool> {
        let answer = match self.remote.push(batch, None, false, watcher.stop)? {
            Pushed::NotSent { why } => return Err(Error::Unreachable { remote: self.remote.name.clone(), why }),
            Pushed::Answered { tasks, said, .. } => (tasks, said),
        };
        let failed = |verdict: &Verdict| matches!(verdict, Verdict::Declined(_) | Verdict::Unknown);
        if !answer.0.values().all(failed) {
            batches.failed_alone = 0;
        } else if batch.len() == 1 {
            batches.failed_alone += 1;
        } else if (watcher.stop)() {
            // They are told of as they are.
        } else if batches.failed_alone < FAILED_ALONE_MAX {
            let (first, second) = batch.split_at(batch.len() / 2);
            let again = self.push_batch(first, total, batches, watcher)?;
            return Ok(again | self.push_batch(second, total, batches, watcher)?);
        } else {
            // Another one each time: this one may be one of the few that are not wanted.
            let mut batch = batch.to_vec();
            let picked = getrandom::u64().map_or(0, |random| random % batch.len() as u64);
            batch.swap(0, usize::try_from(picked).unwrap_or(0));
            let (one, others) = batch.split_at(1);
            let again = self.push_batch(one, total, batches, watcher)?;
            let others_again = match batches.failed_alone {
                0 => self.push_batch(others, total, batches, watcher)?,
                _ => note(others, &answer, total, batches),
            };
            return Ok(again | others_again);
        }
        Ok(note(batch, &answer, total, batches))
    }
}

/// Notes what became of each task of a batch; returns whether some must be looked at again.
fn note(
    batch: &[Update],
    (tasks, said): &(BTreeMap<RefName, Verdict>, String),
    total: &mut Outcome,
    batches: &mut Batches,
) -> bool {
    let mut again = false;
    for update in batch {
        let name = &update.name;
        match tasks.get(name).cloned().unwrap_or(Verdict::Unknown) {
            Verdict::Accepted => {
                batches.accepted.push((name.clone(), RecordId(update.new)));
                total.tips.insert(name.clone(), update.new);
                total.pushed.push(name.clone());
            }
            Verdict::Moved | Verdict::HeldBack => {
                again = true;
                total.raced.push(name.clone());
            }
            Verdict::Unknown => {
                again = true;
                total.unknown.push(name.clone());
            }
            Verdict::Declined(why) => total.refused.push((name.clone(), format!("{why}: {said}"))),
        }
    }
    again
}
