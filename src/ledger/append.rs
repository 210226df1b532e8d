//! The append: the one path that writes (design, section 5).
//!
//! Resolve the tip, decide, write the objects, take the shard lock, compare-and-swap the ref, make it durable,
//! acknowledge. A lost race is not the caller's error: the *intent* is decided again against the new tip, and
//! the old record is never replayed.

use std::time::Duration;

use super::find::Found;
use super::graph::Reliance;
use super::resolve::place;
use super::{Ledger, Reach};
use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::id::{Oid, RecordId, RefName, TASKS};
use crate::protocol::apply;
use crate::protocol::codec::{self, DecodeError};
use crate::protocol::decide::{self, Draft, Facts, Intent, Others};
use crate::protocol::record::{Content, Phase, Record};
use crate::protocol::refusal::{HeldBy, Refusal, Verb};
use crate::protocol::state::TaskState;
use crate::protocol::text::MESSAGE_MAX;
use crate::store::{Mode, StoreError, Swap};

/// How often one intent is decided again after lost races. Each time somebody else's record got in, so the
/// ledger as a whole moves on; a caller that loses so often had better pause (exit 8).
const ATTEMPTS_MAX: u32 = 40;

/// The longest pause between two attempts, in microseconds.
const PAUSE_MAX_US: u64 = 20_000;

/// What an append left behind.
#[derive(Debug)]
pub struct Appended {
    /// The task afterwards.
    pub state: TaskState,
    /// The records that were written, oldest first.
    pub records: Vec<(RecordId, Record)>,
    /// Nothing was written: another heartbeat of the same claim got in first, which is all a heartbeat wants.
    pub coalesced: bool,
    /// Recorded here only, while an authority decides: it may still lose.
    pub provisional: bool,
}

impl Appended {
    /// The record that matters: the last one.
    ///
    /// # Panics
    /// Never: an append has at least one record.
    pub fn last(&self) -> &(RecordId, Record) {
        self.records.last().expect("an append holds at least one record")
    }
}

impl Ledger<'_> {
    /// Whether the rules would allow an intent now: for callers that must prepare something before they append.
    ///
    /// # Errors
    /// What a rule says.
    pub fn allows(&self, found: &Found, intent: &Intent) -> Result<()> {
        self.decide(&found.state, &mut intent.clone(), false).map(drop)
    }

    /// Carries out an intent on the task at `found`, whose state was just read.
    ///
    /// # Errors
    /// What a rule says (nothing was written), `RaceLost` after too many lost races, or what the store says.
    pub fn append(&self, found: Found, intent: Intent) -> Result<Appended> {
        self.append_along(found, intent, None)
    }

    /// As [`Ledger::append`], together with the move of a branch: both happen, or neither.
    ///
    /// # Errors
    /// As [`Ledger::append`], and `DeliveryRefused` where the branch cannot be moved.
    pub fn append_along(&self, found: Found, mut intent: Intent, branch: Option<&Along<'_>>) -> Result<Appended> {
        match (self.reach, branch) {
            (Reach::Through(authority), _) => return authority.append(self, found, intent, branch),
            (Reach::Provisional, Some(_)) => {
                return Err(Error::Usage(
                    "a delivery cannot be offline: only the authority knows who holds the task".to_owned(),
                ));
            }
            _ => {}
        }
        let Found { name, state: first } = found;
        let was_new = first.phase() == Some(Phase::New);
        let mut state = first;
        for attempt in 0..ATTEMPTS_MAX {
            let Decided { drafts, relied_on } = self.decide(&state, &mut intent, was_new && attempt > 0)?;
            let tip = state.tip;
            let (after, records) = self.write(Some(state), drafts)?;
            match self.swap(&name, tip, &after, &relied_on, branch)? {
                Swap::Done => return Ok(self.appended(after, records)),
                Swap::HeadMoved { .. } => {}
            }
            state = self.state(&name)?.ok_or_else(|| vanished(&name, tip))?;
            if let Some(appended) = self.coalesce(&name, &intent, &state)? {
                return Ok(appended);
            }
            pause(attempt);
        }
        Err(self.outraced(&state))
    }

    /// Decides an intent, and pins it to the status that it was decided against. `was_free`: the task was new when it was
    /// first looked at, and that has changed since.
    pub(crate) fn decide(&self, state: &TaskState, intent: &mut Intent, was_free: bool) -> Result<Decided> {
        let relied_on = self.reliance(state, intent)?;
        let facts = self.facts(&relied_on.others);
        let drafts = decide::decide(state, intent, &facts).map_err(|refusal| match refusal {
            // Free when it was looked at, and taken since: that is a lost race, not a wrong phase.
            Refusal::WrongPhase { verb: Verb::Claim, held, .. } if was_free => {
                refused(state, Refusal::RaceLost { held })
            }
            refusal => refused(state, refusal),
        })?;
        if let Some(at) = &state.status {
            intent.pin(at.id);
        }
        Ok(Decided { drafts, relied_on })
    }

    /// What decisions here are made with.
    pub(crate) fn facts<'b>(&'b self, others: &'b Others) -> Facts<'b> {
        Facts { agent: self.agent, context: self.context, others }
    }

    /// What is said after too many lost races.
    pub(crate) fn outraced(&self, state: &TaskState) -> Error {
        let held = state.claim().map(|claim| HeldBy {
            yours: claim.holder == *self.agent,
            holder: claim.holder,
            claim: claim.id,
        });
        refused(state, Refusal::RaceLost { held })
    }

    /// Records that were just put in place.
    pub(crate) fn appended(&self, state: TaskState, records: Vec<(RecordId, Record)>) -> Appended {
        let provisional = matches!(self.reach, Reach::Provisional);
        Appended { state, records, coalesced: false, provisional }
    }

    /// Writes drafts on top of `state` as loose commits, in the place of those that lost their race.
    pub(crate) fn write(
        &self,
        state: Option<TaskState>,
        drafts: Vec<Draft>,
    ) -> Result<(TaskState, Vec<(RecordId, Record)>)> {
        self.store.discard_commits();
        let mut records = Vec::with_capacity(drafts.len());
        let put = |commit: &Commit| Ok(self.store.write_commit(commit)?);
        let state = self.link(state, drafts, put, |id, record| records.push((id, record)))?;
        Ok((state, records))
    }

    /// Links drafts on top of `state` and writes their commits through `put`; `each` is handed every record.
    /// Every record is judged by `apply` before any ref can point at it.
    pub(super) fn link(
        &self,
        state: Option<TaskState>,
        drafts: Vec<Draft>,
        mut put: impl FnMut(&Commit) -> Result<Oid>,
        mut each: impl FnMut(RecordId, Record),
    ) -> Result<TaskState> {
        let mut state = state;
        for draft in drafts {
            let record = draft.into_record(state.as_ref(), &self.stamp()?);
            let commit = codec::encode(&record, self.committer());
            // What cannot be read back must never be pointed at: it would make the task unusable for ever.
            match codec::decode(&commit) {
                Ok(read_back) if read_back == record => {}
                Err(DecodeError::TooLong { length }) => {
                    let hint = match record.content {
                        Content::Report(_) => "attach long texts as files",
                        Content::Task(_) => "keep long texts in files of the repository, and name them in the text",
                        Content::Status(_) | Content::Heartbeat(_) => "say it in fewer words",
                    };
                    return Err(Error::Usage(format!(
                        "the record would have {length} bytes, at most {MESSAGE_MAX} are allowed; {hint}"
                    )));
                }
                other => panic!("a record that cannot be read back: {record:?} became {other:?}"),
            }
            let id = RecordId(put(&commit)?);
            let next = apply::apply(state, id, &record)
                .unwrap_or_else(|invalid| panic!("decide emitted a record that apply refuses: {invalid}"));
            state = Some(next);
            each(id, record);
        }
        let state = state.expect("a decision has at least one draft");
        debug_assert_eq!(apply::end(&state), Ok(()));
        Ok(state)
    }

    /// Moves the ref while holding its shard, and the shards of every task that the decision relied on: those
    /// are read again under the locks, so that rules 8 and 9 are exact within one repository.
    fn swap(
        &self,
        name: &RefName,
        tip: RecordId,
        after: &TaskState,
        relied_on: &Reliance,
        branch: Option<&Along<'_>>,
    ) -> Result<Swap> {
        let mut shards = vec![(name.shard(), Mode::Exclusive)];
        shards.extend(relied_on.read.iter().map(|other| (other.name.shard(), Mode::Shared)));
        let unmoved = || Ok(self.store.tip(name)? == Some(tip.0));
        let Some(held) = self.store.lock_while(&shards, &unmoved)? else {
            return Ok(Swap::HeadMoved { actual: self.store.tip(name)? });
        };
        if !self.still_holds(relied_on)? {
            return Ok(Swap::HeadMoved { actual: Some(tip.0) });
        }
        let mut refused = None;
        let mut along = || match branch.map_or(Ok(()), |branch| (branch.move_here)()) {
            Ok(()) => Ok(()),
            Err(why) => {
                refused = Some(why);
                Err(StoreError::Prevented { name: name.clone() })
            }
        };
        let swap = self.store.compare_and_swap_with(&held, name, Some(tip.0), after.tip.0, &mut along);
        match (swap, branch, refused) {
            (Err(StoreError::Prevented { .. }), Some(branch), Some(why)) => {
                let (place, branch) = (place(after), branch.branch.to_owned());
                Err(Error::DeliveryRefused { place, branch, why })
            }
            (swap, ..) => Ok(swap?),
        }
    }

    /// A heartbeat that lost to another heartbeat of the same claim has what it wanted.
    pub(crate) fn coalesce(&self, name: &RefName, intent: &Intent, state: &TaskState) -> Result<Option<Appended>> {
        let Intent::Heartbeat { claim: Some(pinned), .. } = intent else { return Ok(None) };
        if state.claim().map(|claim| claim.id) != Some(*pinned) || state.heartbeat != Some(state.tip) {
            return Ok(None);
        }
        let record = self.record(name, state.tip)?;
        debug_assert!(matches!(record.content, Content::Heartbeat(_)));
        Ok(Some(Appended { coalesced: true, ..self.appended(state.clone(), vec![(state.tip, record)]) }))
    }

    /// Moves a ref without deciding anything: for what was decided elsewhere and judged by the caller.
    pub(crate) fn move_ref(&self, name: &RefName, expected: Option<RecordId>, new: RecordId) -> Result<Swap> {
        let held = self.store.lock(&[(name.shard(), Mode::Exclusive)])?;
        Ok(self.store.compare_and_swap(&held, name, expected.map(|tip| tip.0), new.0)?)
    }

    /// Removes a ref that only this machine has.
    pub(crate) fn drop_ref(&self, name: &RefName, expected: RecordId) -> Result<Swap> {
        assert!(!name.as_str().starts_with(TASKS), "the ref of a task is never removed");
        let held = self.store.lock(&[(name.shard(), Mode::Exclusive)])?;
        Ok(self.store.delete(&held, name, expected.0)?)
    }

    /// Gives a record that others made its place in a chain of ours: written as an object, no ref moves.
    pub(crate) fn rewrite(&self, record: &Record) -> Result<RecordId> {
        Ok(RecordId(self.store.write_commit(&codec::encode(record, self.committer()))?))
    }
}

/// A branch that moves together with a record.
pub struct Along<'a> {
    /// Its full name.
    pub branch: &'a str,
    /// Where it moves to.
    pub commit: Oid,
    /// Moves it in this repository, or says why not.
    pub move_here: &'a dyn Fn() -> std::result::Result<(), String>,
}

/// What a decision came to.
pub(crate) struct Decided {
    /// The records.
    pub drafts: Vec<Draft>,
    /// What it relied on.
    pub relied_on: Reliance,
}

pub(crate) fn refused(state: &TaskState, refusal: Refusal) -> Error {
    Error::Refused { task: state.id, place: place(state), refusal }
}

pub(crate) fn slug_taken(state: &TaskState) -> Error {
    Error::SlugTaken { place: place(state), task: state.id, differs: String::new() }
}

/// A task's ref was there a moment ago: nobody but an operator or a stray prune removes refs of the ledger.
pub(crate) fn vanished(name: &RefName, tip: RecordId) -> Error {
    let found = "the ref vanished while a record was being appended".to_owned();
    Error::Damaged { name: name.clone(), commit: tip, found }
}

/// Waits a random while that grows with the number of lost races, so that the losers come back one by one.
pub(crate) fn pause(attempt: u32) {
    let ceiling = PAUSE_MAX_US.min(200 << attempt.min(7));
    let micros = getrandom::u64().map_or(ceiling, |random| random % ceiling);
    std::thread::sleep(Duration::from_micros(micros));
}
