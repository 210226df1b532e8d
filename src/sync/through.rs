//! Writing through: a record counts when the authority has it (design, section 7).
//!
//! Fetch, decide on what the authority has (and what of ours is still on its way there), push the new record from exactly
//! the tip that was read, and only then move the ref here.
//!
//! What must never happen here: an intent is decided on anything older than what the authority has just said.

use std::collections::{BTreeMap, BTreeSet};

use super::remote::{Delivery, Pushed, Update};
use super::repeated::{Resolved, asks_for, same_creation};
use super::report::Verdict;
use super::run::Watcher;
use super::sending::{ASKS_MAX, Fate};
use super::settle::{Change, Link, Settled};
use crate::error::{Error, Result};
use crate::id::{ANSWERS, Oid, RecordId, RefName};
use crate::ledger::append::{Along, Appended, Decided, pause, slug_taken, vanished};
use crate::ledger::authority::Survey;
use crate::ledger::create::NewTask;
use crate::ledger::find::Found;
use crate::ledger::graph::Reliance;
use crate::ledger::resolve::place;
use crate::ledger::{Authority, Ledger};
use crate::protocol::decide::Intent;
use crate::protocol::record::Phase;
use crate::protocol::state::TaskState;
use crate::store::Mode;
use crate::store::lock::{self, Held, Wait};

/// How often one intent is decided again after lost races. Each time another machine's record got in.
const ATTEMPTS_MAX: u32 = 12;

/// What the authority has of a task, and what was found on the way.
pub(super) struct Level {
    pub(super) remote: Option<RecordId>,
    pub(super) resolved: Option<Resolved>,
    /// What came of it here.
    pub(super) change: Change,
}

impl Authority for Link {
    fn append(
        &self,
        ledger: &Ledger<'_>,
        found: Found,
        mut intent: Intent,
        branch: Option<&Along<'_>>,
    ) -> Result<Appended> {
        let delivery = branch.map(|along| Delivery { branch: along.branch.to_owned(), commit: along.commit });
        let delivery = delivery.as_ref();
        let Found { name, state: first } = found;
        let was_new = first.phase() == Some(Phase::New);
        let mut state = first.clone();
        let mut ground = self.ground(ledger, &name, &state, &intent, &Reliance::default())?;
        let mut has_read = false;
        for attempt in 0..ATTEMPTS_MAX {
            let known = ground.known.take();
            let is_guess = known.is_some() && ground.is_guess;
            let level = match known {
                Some(seen) => Level { remote: Some(seen), resolved: None, change: Change::None },
                None => {
                    let read = ledger.reliance(&state, &intent)?.read;
                    let also: BTreeSet<_> = read.into_iter().map(|seen| seen.name).collect();
                    self.level(ledger, &name, &also).map_err(|error| {
                        self.still_open(ledger, &name, error, |below, sent| asks_for(ledger, below, &intent, sent))
                    })?
                }
            };
            state = ledger.state(&name)?.ok_or_else(|| vanished(&name, state.tip))?;
            if state.id != first.id {
                return Err(Error::Distrusted {
                    name,
                    remote: self.remote.name.clone(),
                    found: format!("it is another task, {}", state.id),
                });
            }
            if let Some((appended, delivered)) = self.answered(ledger, &name, level.resolved, &intent, &state)? {
                return match delivery {
                    Some(wanted) if delivered.as_ref() != Some(wanted) => {
                        let why = "the task was closed by an earlier call whose answer was lost, and that did not deliver this; push the branch by itself".to_owned();
                        Err(Error::DeliveryRefused { place: place(&state), branch: wanted.branch.clone(), why })
                    }
                    _ => Ok(appended),
                };
            }
            // What has not reached the authority renews nothing.
            if has_read
                && level.remote == Some(state.tip)
                && let Some(appended) = ledger.coalesce(&name, &intent, &state)?
            {
                return Ok(appended);
            }
            // Only what got in after that is newer than this command.
            has_read = !is_guess;
            let was_free = was_new && state.tip != first.tip;
            let Decided { drafts, relied_on } = match ledger.decide(&state, &mut intent, was_free) {
                Ok(decided) => decided,
                // A no is only worth something on what the authority has now.
                Err(_) if is_guess => continue,
                Err(refusal) => return Err(refusal),
            };
            if !ground.bears(&relied_on) {
                // Its locks come before those that are held.
                drop(ground);
                ground = self.ground(ledger, &name, &state, &intent, &relied_on)?;
                continue;
            }
            let tip = state.tip;
            let (after, records) = ledger.write(Some(state.clone()), drafts)?;
            match self.send(ledger, &name, level.remote, after.tip, delivery)? {
                Fate::Accepted => {
                    self.accept(ledger, &name, Some(tip), after.tip)?;
                    // It is recorded, whatever becomes of notes that nobody needs any more.
                    if delivery.is_some() {
                        let _swept_later = self.note_delivery(ledger, &name, None);
                    }
                    let _counts_as_none = self.forget_superseded(ledger, &name);
                    return Ok(ledger.appended(after, records));
                }
                Fate::Beaten => pause(attempt),
                fate => return Err(self.failed(&after, after.tip, fate, delivery)),
            }
            if matches!(intent, Intent::Finish { .. }) {
                // While the task moved there, children may have been planned.
                drop(ground);
                ground = self.ground(ledger, &name, &state, &intent, &relied_on)?;
            }
        }
        Err(ledger.outraced(&state))
    }

    fn create(&self, ledger: &Ledger<'_>, mut new: NewTask) -> Result<Appended> {
        let name = RefName::of_task(&new.task.queue, &new.task.slug);
        let parent = new.task.parent.map(|parent| ledger.ref_of(parent)).transpose()?.flatten();
        for attempt in 0..ATTEMPTS_MAX {
            let ordered = ledger.check_order(&new.task)?;
            let relied = parent.iter().cloned().collect();
            let _relied = self.hold(ledger, &relied, ordered.is_some())?;
            let _turn = self.turn(&name)?;
            if !ledger.is_still_ordered(ordered.as_ref())? {
                pause(attempt);
                continue;
            }
            let level = self.level(ledger, &name, &relied).map_err(|error| {
                let asks = |below: &TaskState| below.seq == 0 && new.task.is_same_definition(&below.task);
                self.still_open(ledger, &name, error, |below, _| asks(below))
            })?;
            ledger.adopt(&mut new)?;
            if let Some(state) = ledger.state(&name)? {
                let resolved = level.resolved.into_iter().chain(self.answer(ledger, &name)?);
                for Resolved { tip, .. } in resolved.filter(|resolved| resolved.accepted) {
                    if let Some(appended) = same_creation(ledger, &name, &state, tip, &new)? {
                        self.forget_answer(ledger, &name, tip)?;
                        return Ok(appended);
                    }
                }
                return Err(slug_taken(&state));
            }
            let (after, records) = ledger.write_creation(&new)?;
            return match self.send(ledger, &name, None, after.tip, None)? {
                Fate::Accepted => {
                    self.accept(ledger, &name, None, after.tip)?;
                    Ok(ledger.appended(after, records))
                }
                Fate::Beaten => {
                    self.level(ledger, &name, &BTreeSet::new())?;
                    let winner = ledger.state(&name)?.ok_or_else(|| vanished(&name, after.tip))?;
                    Err(slug_taken(&winner))
                }
                fate => Err(self.failed(&after, after.tip, fate, None)),
            };
        }
        Err(Error::BatchRaced { times: ATTEMPTS_MAX })
    }

    fn hold(&self, ledger: &Ledger<'_>, names: &BTreeSet<RefName>, is_ordered: bool) -> Result<Held> {
        // Not the lock of a shard, as without an authority: tasks of that would wait for each slow push of a plan.
        let plans = self.state_dir.join("relied/plans");
        let mut wait = Wait::new(self.others_may_take());
        let plans = is_ordered.then(|| lock::acquire_file(&plans, Mode::Exclusive, &mut wait)).transpose()?;
        Ok(self.hold_still(ledger, names, None)?.and(plans))
    }

    fn read(&self, ledger: &Ledger<'_>, name: &RefName) -> Result<Option<TaskState>> {
        let _turn = self.turn(name)?;
        let level = self.level(ledger, name, &BTreeSet::new());
        let level = level.map_err(|error| self.still_open(ledger, name, error, |_, _| false))?;
        level.remote.map(|remote| ledger.state_at(name, remote)).transpose()
    }

    fn survey(&self, ledger: &Ledger<'_>, prefix: &str, dry_run: bool, stop: &dyn Fn() -> bool) -> Result<Survey> {
        let prefixes = [prefix.to_owned()];
        let outcome = if dry_run {
            self.read_only(ledger, &prefixes, Watcher::silent(stop))?
        } else {
            self.sync(ledger, &prefixes, Watcher::silent(stop))?
        };
        Ok(Survey {
            troubles: outcome.complaints(),
            reading: outcome.reading,
            tips: outcome.tips,
            taken: outcome.taken.len(),
            pushed: outcome.pushed.len(),
            lost: outcome.rebased.iter().filter(|(_, rebased)| rebased.has_losses()).count(),
        })
    }

    fn published(&self, ledger: &Ledger<'_>, refs: &[(RefName, Oid)]) -> Result<()> {
        let seen = |(name, tip): &(RefName, Oid)| (name.seen_at(&self.remote.name), *tip);
        let mut noted: Vec<_> = refs.iter().map(seen).collect();
        if ledger.publish(&mut noted, &[], None)?.is_none() {
            for (name, tip) in refs {
                self.note_seen(ledger, name, RecordId(*tip))?;
            }
        }
        Ok(())
    }

    fn publish(&self, ledger: &Ledger<'_>, refs: &[(RefName, Oid)]) -> Result<bool> {
        let updates: Vec<_> =
            refs.iter().map(|(name, new)| Update { name: name.clone(), expected: None, new: *new }).collect();
        let names: Vec<_> = refs.iter().map(|(name, _)| name.clone()).collect();
        let mut why = String::new();
        let mut may_be_there = false;
        for attempt in 0..ASKS_MAX {
            let tasks = match self.remote.push(&updates, None, true, &|| false)? {
                Pushed::NotSent { why } if !may_be_there => {
                    return Err(Error::Unreachable { remote: self.remote.name.clone(), why });
                }
                Pushed::NotSent { why: now } => {
                    why = now;
                    pause(attempt);
                    continue;
                }
                Pushed::Answered { tasks, said, .. } => {
                    why = said;
                    tasks
                }
            };
            if tasks.values().all(|verdict| *verdict == Verdict::Accepted) {
                return Ok(true);
            }
            may_be_there |= tasks.values().any(|verdict| *verdict == Verdict::Unknown);
            let declined = tasks.values().find_map(|verdict| match verdict {
                Verdict::Declined(why) => Some(why.clone()),
                _ => None,
            });
            // As with a single record, only what is there now tells. All of them are there, or none.
            let there = match self.remote.list_names(&names[..1], &|| false) {
                Ok(there) => there.get(&names[0]).copied(),
                Err(Error::Unreachable { .. }) => {
                    pause(attempt);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if there == Some(refs[0].1) {
                return Ok(true);
            }
            if let Some(declined) = declined.filter(|_| !may_be_there) {
                let why = format!("it refused the tasks: {declined}: {why}");
                return Err(Error::Unreachable { remote: self.remote.name.clone(), why });
            }
            if tasks.values().any(|verdict| *verdict == Verdict::Moved) {
                return Ok(false);
            }
            pause(attempt);
        }
        let place = place(&ledger.state_at(&names[0], RecordId(refs[0].1))?);
        Err(Error::AnswerLost { place, record: RecordId(refs[0].1), remote: self.remote.name.clone(), why })
    }

    fn unanswered(&self, ledger: &Ledger<'_>, prefix: &str) -> Result<Vec<Found>> {
        let mut found = Vec::new();
        for (answer, _) in ledger.store.tips(ANSWERS)? {
            let name = answer.of_task_below(ANSWERS);
            let is_own = |state: &TaskState| state.claim().is_some_and(|claim| claim.holder == *ledger.agent);
            // One that cannot be read keeps nobody from another task.
            let state = ledger.state(&name).ok().flatten().filter(is_own);
            if name.as_str().starts_with(prefix)
                && let Some(state) = state
            {
                found.push(Found { name, state });
            }
        }
        Ok(found)
    }

    fn catch_up(&self, ledger: &Ledger<'_>, prefix: &str) -> Result<()> {
        self.catch_up_unless(ledger, prefix, &|| false)
    }
}

impl Link {
    /// As [`Authority::catch_up`], for somebody who may lose interest.
    ///
    /// # Errors
    /// As there.
    pub fn catch_up_unless(&self, ledger: &Ledger<'_>, prefix: &str, stop: &dyn Fn() -> bool) -> Result<()> {
        self.pull(ledger, &[prefix.to_owned()], Watcher::silent(stop)).map(drop)
    }

    /// Fetches a task, and others that matter to it; settles the fate of a record that an earlier command left on its
    /// way; and sees to it that the tip here descends from the authority's.
    fn level(&self, ledger: &Ledger<'_>, name: &RefName, also: &BTreeSet<RefName>) -> Result<Level> {
        let mut names = vec![name.clone()];
        names.extend(also.iter().filter(|other| *other != name).cloned());
        let pending = ledger.store.tip(&name.pending())?.map(RecordId);
        let tips = self.fetch(ledger, &names).map_err(|error| self.still_unknown(ledger, name, pending, error))?;
        let (resolved, tips) = match pending {
            // A task that vanished at the authority, or fell back, is not brought back by what was on its way there.
            Some(sent) if self.still_has(ledger, name, tips.get(name).copied())? => {
                let remote = tips.get(name).copied().map(RecordId);
                let delivery = self.noted_delivery(ledger, name)?;
                let accepted = self.resolve(ledger, name, remote, sent)?;
                let tips =
                    self.fetch(ledger, &names).map_err(|error| self.still_unknown(ledger, name, pending, error))?;
                (Some(Resolved { tip: sent, accepted, delivery }), tips)
            }
            _ => (None, tips),
        };
        for other in &names[1..] {
            // What is wrong with another task is said where that one is asked about.
            self.settle(ledger, other, tips.get(other).copied().map(RecordId))?;
        }
        let remote = tips.get(name).copied().map(RecordId);
        let (settled, change) = self.settle(ledger, name, remote)?;
        if let Settled::Trouble(trouble) = settled {
            return Err(Error::Distrusted {
                name: name.clone(),
                remote: self.remote.name.clone(),
                found: trouble.to_string(),
            });
        }
        if let Some(resolved) = &resolved {
            if resolved.accepted {
                self.keep_answer(ledger, name, resolved.tip)?;
            }
            ledger.drop_ref(&name.pending(), resolved.tip).map(drop)?;
        }
        Ok(Level { remote, resolved, change })
    }

    /// Whether the authority still has what it was seen to have of a task.
    fn still_has(&self, ledger: &Ledger<'_>, name: &RefName, remote: Option<Oid>) -> Result<bool> {
        match (remote, ledger.store.tip(&name.seen_at(&self.remote.name))?) {
            (_, None) => Ok(true),
            (None, Some(_)) => Ok(false),
            (Some(remote), Some(seen)) => ledger.leads_to(name, RecordId(remote), RecordId(seen)),
        }
    }

    /// While the fate of a record is not known, nobody may say that nothing was recorded.
    pub(super) fn still_unknown(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        pending: Option<RecordId>,
        error: Error,
    ) -> Error {
        match (pending, error) {
            (Some(record), Error::Unreachable { remote, why }) => match ledger.state_at(name, record) {
                Ok(state) => Error::AnswerLost { place: place(&state), record, remote, why },
                Err(_) => Error::Unreachable { remote, why },
            },
            (_, error) => error,
        }
    }

    pub(super) fn fetch(&self, ledger: &Ledger<'_>, names: &[RefName]) -> Result<BTreeMap<RefName, Oid>> {
        let mut known = BTreeMap::new();
        for name in names {
            known.extend(ledger.store.tip(&name.seen_at(&self.remote.name))?.map(|tip| (name.clone(), tip)));
        }
        if known.is_empty() {
            // Nothing of it was ever there: asking is cheaper than a fetch that fails.
            let tips = self.remote.list_names(names, &|| false)?;
            self.remote.fetch_objects(&tips, &known, &[], Watcher::patient())?;
            return Ok(tips);
        }
        self.remote.fetch(names, &known, &|| false)
    }

    /// As [`Link::level`], for a task whose turn is held, whatever it was that was left on its way.
    ///
    /// # Errors
    /// `AnswerLost`, `Distrusted`.
    pub(super) fn finish_pending(&self, ledger: &Ledger<'_>, name: &RefName) -> Result<Level> {
        self.level(ledger, name, &BTreeSet::new())
    }
}
