//! A synchronisation: every task of some queues, listed at the remote, compared, settled here and pushed.
//!
//! What must never happen here: one bad task keeps the others from being synchronised; a push that was not answered for
//! counts as done.

use std::collections::BTreeMap;
use std::time::Duration;

use super::listed::Listed;
use super::reconcile::{Action, Rebased, reconcile};
use super::remote::Update;
use super::repeated::Resolved;
use super::settle::{Change, Link, Settled, Trouble};
use super::through::Level;
use crate::error::{Error, Result};
use crate::id::{Oid, PENDING, RecordId, RefName};
use crate::ledger::Ledger;
use crate::ledger::append::pause;
use crate::protocol::lease::Reading;
use crate::store::StoreError;

/// How often a synchronisation reads and pushes again what others moved meanwhile.
const ROUNDS_MAX: u32 = 6;

/// What a synchronisation did, or in a dry run would do.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Tasks at the remote.
    pub listed: usize,
    /// Tasks whose tip moved here, with the number of records that came.
    pub taken: Vec<(RefName, usize)>,
    /// Tasks whose records the remote took.
    pub pushed: Vec<RefName>,
    /// Tasks of which something was put on top of the remote's records, or lost.
    pub rebased: Vec<(RefName, Box<Rebased>)>,
    /// Records whose answer was lost, and that never got in.
    pub beaten: Vec<(RefName, RecordId)>,
    /// Tasks that were left alone.
    pub troubles: Vec<(RefName, Trouble)>,
    /// Tasks that the remote did not want, and what it said.
    pub refused: Vec<(RefName, String)>,
    /// Tasks that others kept moving.
    pub raced: Vec<RefName>,
    /// Tasks that were sent, with no answer.
    pub unknown: Vec<RefName>,
    /// Refs at the remote that are no tasks.
    pub strangers: Vec<RefName>,
    /// Tasks here that cannot be read.
    pub damaged: Vec<(RefName, Error)>,
    /// This machine's clock around the last listing of the remote.
    pub reading: Option<Reading>,
    /// Where each task is at the remote, as far as it is believed.
    pub tips: BTreeMap<RefName, Oid>,
}

impl Outcome {
    /// What is not the same here and there, one line a task.
    pub fn complaints(&self) -> Vec<String> {
        let troubles = self.troubles.iter().map(|(name, trouble)| format!("{name} was left alone: {trouble}"));
        let damaged = self.damaged.iter().map(|(name, error)| format!("{name} was left alone: {error}"));
        let refused = self.refused.iter().map(|(name, why)| format!("{name} was refused: {why}"));
        let unknown = self.unknown.iter().map(|name| format!("{name} was sent, and the answer was lost"));
        troubles.chain(damaged).chain(refused).chain(unknown).collect()
    }
}

/// Who waits for a synchronisation.
#[derive(Clone, Copy)]
pub struct Watcher<'a> {
    /// Asked again and again: on a yes, it ends early.
    pub stop: &'a dyn Fn() -> bool,
    /// Told what it is at, how many are done, and of how many.
    pub tell: &'a dyn Fn(&'static str, usize, usize),
}

impl<'a> Watcher<'a> {
    /// Somebody who may lose interest, and need not be told how far it is.
    pub fn silent(stop: &'a dyn Fn() -> bool) -> Watcher<'a> {
        Watcher { stop, tell: &|_, _, _| {} }
    }

    /// Somebody who waits for the end.
    pub fn patient() -> Watcher<'static> {
        Watcher::silent(&|| false)
    }
}

impl Link {
    /// Synchronises all tasks below `prefixes`.
    ///
    /// # Errors
    /// `Unreachable`, and failures of the system. What is wrong with single tasks is in the outcome.
    pub fn sync(&self, ledger: &Ledger<'_>, prefixes: &[String], watcher: Watcher<'_>) -> Result<Outcome> {
        let mut total = Outcome::default();
        for round in 0..ROUNDS_MAX {
            let (pulled, ahead) = self.pull(ledger, prefixes, watcher)?;
            total.absorb(pulled);
            if ahead.is_empty() || (watcher.stop)() {
                break;
            }
            if !self.push_all(ledger, &ahead, &mut total, watcher)? {
                break;
            }
            pause(round + 4);
        }
        Ok(total)
    }

    /// What a synchronisation would do, with nothing moved anywhere.
    ///
    /// # Errors
    /// As [`Link::sync`].
    pub fn plan(
        &self,
        ledger: &Ledger<'_>,
        prefixes: &[String],
        watcher: Watcher<'_>,
    ) -> Result<(Outcome, Vec<RefName>)> {
        let mut outcome = Outcome::default();
        let mut ahead = Vec::new();
        let Listed { changed, had } = self.survey(ledger, prefixes, watcher, &mut outcome)?;
        for (name, remote) in changed {
            let remote = self.place_there(ledger, &name, remote, had.get(&name).copied())?;
            let standing = match self.standing(ledger, &name, remote) {
                Ok(Ok(standing)) => standing,
                Ok(Err(fault)) => {
                    outcome.troubles.push((name, Trouble::Theirs(fault)));
                    continue;
                }
                Err(error) => {
                    outcome.damage(name, error)?;
                    continue;
                }
            };
            match reconcile(&standing, |record| ledger.rewrite(record))? {
                Action::Nothing => {}
                Action::Push => ahead.push(name),
                Action::Take(_) => outcome.taken.push((name, standing.theirs.len())),
                Action::Rebase(_) if !self.is_authority => outcome.troubles.push((name, Trouble::Diverged)),
                Action::Rebase(rebased) => outcome.rebased.push((name, rebased)),
                Action::Alarm(gone) => outcome.troubles.push((name, Trouble::Gone(gone))),
                Action::Refuse { theirs: true, fault } => outcome.troubles.push((name, Trouble::Theirs(fault))),
                Action::Refuse { theirs: false, fault } => outcome.troubles.push((name, Trouble::Ours(fault))),
                Action::Collision => outcome.troubles.push((name, Trouble::Collision)),
            }
            ledger.store.discard_commits();
        }
        Ok((outcome, ahead))
    }

    /// Fetches and settles, without a push. Returns what is to be pushed, each from where it is at the remote.
    ///
    /// # Errors
    /// As [`Link::sync`].
    pub(super) fn pull(
        &self,
        ledger: &Ledger<'_>,
        prefixes: &[String],
        watcher: Watcher<'_>,
    ) -> Result<(Outcome, Vec<Update>)> {
        let mut outcome = Outcome::default();
        let Listed { mut changed, had } = self.survey(ledger, prefixes, watcher, &mut outcome)?;
        self.resolve_pending(ledger, prefixes, &mut changed, &mut outcome)?;
        let ahead = self.settle_all(ledger, changed, &had, &mut outcome, watcher)?;
        Ok((outcome, ahead))
    }

    /// Fetches and settles, and sends nothing at all: not even a record whose answer was lost.
    ///
    /// # Errors
    /// As [`Link::sync`].
    pub(super) fn read_only(&self, ledger: &Ledger<'_>, prefixes: &[String], watcher: Watcher<'_>) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let Listed { changed, had } = self.survey(ledger, prefixes, watcher, &mut outcome)?;
        self.settle_all(ledger, changed, &had, &mut outcome, watcher)?;
        Ok(outcome)
    }

    /// Settles listed tasks; returns what is to be pushed.
    fn settle_all(
        &self,
        ledger: &Ledger<'_>,
        mut changed: BTreeMap<RefName, Option<RecordId>>,
        had: &BTreeMap<RefName, Oid>,
        outcome: &mut Outcome,
        watcher: Watcher<'_>,
    ) -> Result<Vec<Update>> {
        self.take_many(ledger, &mut changed, had, outcome, watcher)?;
        let mut ahead = Vec::new();
        for (name, remote) in changed {
            if (watcher.stop)() {
                break;
            }
            let (settled, change, remote) = match self.settle_listed(ledger, &name, remote, had.get(&name).copied()) {
                Ok(done) => done,
                Err(error) => {
                    outcome.tips.remove(&name);
                    outcome.damage(name, error)?;
                    continue;
                }
            };
            outcome.tips.extend(remote.map(|remote| (name.clone(), remote.0)));
            outcome.note(&name, change);
            match settled {
                Settled::Level => {}
                // What is on its way there comes first.
                Settled::Ahead if self.is_authority && ledger.store.tip(&name.pending())?.is_some() => {}
                Settled::Ahead => {
                    let new = ledger.store.tip(&name)?;
                    ahead.extend(new.map(|new| Update { name, expected: remote.map(|tip| tip.0), new }));
                }
                Settled::Trouble(trouble) => {
                    outcome.tips.remove(&name);
                    outcome.troubles.push((name, trouble));
                }
            }
        }
        Ok(ahead)
    }

    /// Settles the fate of records whose writer is gone. They were on their way to the authority, and to nobody else.
    fn resolve_pending(
        &self,
        ledger: &Ledger<'_>,
        prefixes: &[String],
        changed: &mut BTreeMap<RefName, Option<RecordId>>,
        outcome: &mut Outcome,
    ) -> Result<()> {
        if !self.is_authority {
            return Ok(());
        }
        self.forget_old_answers(ledger)?;
        for (pending, sent) in ledger.store.tips(PENDING)? {
            let name = pending.of_task_below(PENDING);
            let Ok(sent) = sent else { continue };
            let concerned = prefixes.iter().any(|prefix| name.as_str().starts_with(prefix));
            // Whoever holds the turn is at it.
            let Some(_turn) = self.try_turn(&name, Duration::ZERO)?.filter(|_| concerned) else { continue };
            if ledger.store.tip(&pending)? != Some(sent) {
                continue;
            }
            match self.finish_pending(ledger, &name) {
                Ok(Level { remote, resolved, change }) => {
                    outcome.tips.extend(remote.map(|remote| (name.clone(), remote.0)));
                    match resolved {
                        Some(Resolved { accepted: true, .. }) => outcome.pushed.push(name.clone()),
                        Some(Resolved { tip, .. }) => outcome.beaten.push((name.clone(), tip)),
                        None => {}
                    }
                    outcome.note(&name, change);
                    changed.insert(name, remote);
                }
                Err(Error::AnswerLost { .. }) => outcome.unknown.push(name),
                Err(error) => outcome.damage(name, error)?,
            }
        }
        Ok(())
    }
}

impl Outcome {
    /// Notes what came of a task here.
    fn note(&mut self, name: &RefName, change: Change) {
        match change {
            Change::None => {}
            Change::Taken(records) => self.taken.push((name.clone(), records)),
            Change::Rebased(rebased) => self.rebased.push((name.clone(), rebased)),
        }
    }

    /// Adds a later round: what was open is judged anew by it.
    fn absorb(&mut self, round: Outcome) {
        self.raced.clear();
        self.refused.clear();
        self.unknown = round.unknown;
        self.troubles = round.troubles;
        self.damaged = round.damaged;
        self.strangers = round.strangers;
        self.listed = round.listed;
        self.reading = round.reading;
        self.tips = round.tips;
        self.taken.extend(round.taken);
        self.pushed.extend(round.pushed);
        self.beaten.extend(round.beaten);
        self.rebased.extend(round.rebased);
    }

    /// Notes a task that cannot be read or written. A failure of the system is no fault of the task.
    fn damage(&mut self, name: RefName, error: Error) -> Result<()> {
        match error {
            Error::Damaged { .. }
            | Error::Distrusted { .. }
            | Error::Busy { .. }
            | Error::Store(StoreError::BrokenRef { .. } | StoreError::Locked { .. }) => {
                self.damaged.push((name, error));
                Ok(())
            }
            error => Err(error),
        }
    }
}
