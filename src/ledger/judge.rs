//! Judging records that come from elsewhere, before any ref of ours may point at them: how two tips of one task
//! relate, and whether what lies between them keeps every rule.
//!
//! Used by the synchronisation, the hub's hook and `verify`. What must never happen here: what a record says
//! about its own place (its `Seq`, its links) leads from one record to the next; only parents do.

use std::collections::HashSet;

use super::Ledger;
use super::resolve::check_place;
use super::verify::ChainFault;
use crate::error::{Error, Result};
use crate::id::{Oid, RecordId, RefName};
use crate::protocol::apply::{self, Invalid};
use crate::protocol::record::Record;
use crate::protocol::state::TaskState;
use crate::store::StoreError;

/// A record and its commit.
pub type Row = (RecordId, Record);

/// Where two tips of one task part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The newest commit that both lead to; `None` where there is none.
    pub base: Option<RecordId>,
    /// What only the first tip leads to, oldest first.
    pub ours: Vec<RecordId>,
    /// What only the second tip leads to, oldest first.
    pub theirs: Vec<RecordId>,
}

/// One side of a fork that is being looked for: the commits seen so far, newest first.
struct Side {
    next: Option<RecordId>,
    seen: Vec<RecordId>,
    set: HashSet<RecordId>,
}

impl Side {
    fn new(tip: RecordId) -> Side {
        Side { next: Some(tip), seen: Vec::new(), set: HashSet::new() }
    }

    /// What was seen before `base`, oldest first.
    fn above(mut self, base: Option<RecordId>) -> Vec<RecordId> {
        if let Some(end) = base.and_then(|base| self.seen.iter().position(|id| *id == base)) {
            self.seen.truncate(end);
        }
        self.seen.reverse();
        self.seen
    }
}

impl Ledger<'_> {
    /// Where two tips part. Both are walked down step by step, so that the cost is what was added, not how long the
    /// chains are.
    ///
    /// # Errors
    /// `Damaged` where a commit is missing.
    pub fn fork(&self, name: &RefName, ours: RecordId, theirs: RecordId) -> Result<Fork> {
        let (mut a, mut b) = (Side::new(ours), Side::new(theirs));
        let base = loop {
            if a.next.is_none() && b.next.is_none() {
                break None;
            }
            if let Some(base) = self.step(name, &mut a, &b.set)? {
                break Some(base);
            }
            if let Some(base) = self.step(name, &mut b, &a.set)? {
                break Some(base);
            }
        };
        Ok(Fork { base, ours: a.above(base), theirs: b.above(base) })
    }

    /// Takes one step down on one side; returns the commit if the other side has been there.
    fn step(&self, name: &RefName, side: &mut Side, other: &HashSet<RecordId>) -> Result<Option<RecordId>> {
        let Some(id) = side.next else { return Ok(None) };
        if other.contains(&id) {
            return Ok(Some(id));
        }
        side.seen.push(id);
        side.set.insert(id);
        side.next = self.parent(name, id)?.filter(|parent| !side.set.contains(parent));
        Ok(None)
    }

    fn parent(&self, name: &RefName, id: RecordId) -> Result<Option<RecordId>> {
        let damaged = |id: Oid, found: String| Error::Damaged { name: name.clone(), commit: RecordId(id), found };
        match self.store.read_commit(id.0) {
            Ok(commit) => Ok(commit.parents.first().copied().map(RecordId)),
            Err(StoreError::Missing { id }) => Err(damaged(id, "the object is missing".to_owned())),
            Err(StoreError::Damaged { id, found }) => Err(damaged(id, found)),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads records, for [`judge`].
    ///
    /// # Errors
    /// `Damaged`, naming the first that is missing or none.
    pub fn rows(&self, name: &RefName, ids: &[RecordId]) -> Result<Vec<Row>> {
        ids.iter().map(|id| self.record(name, *id).map(|record| (*id, record))).collect()
    }

    /// Whether the ref at `name` may move from `old` (`None`: it is created) to `new`: only forwards, only by records
    /// that keep every rule. The chain up to `old` is believed. Returns the state at `new`.
    ///
    /// # Errors
    /// Failures of the system; what is wrong with the records is the inner result.
    pub fn judge_move(
        &self,
        name: &RefName,
        old: Option<RecordId>,
        new: RecordId,
    ) -> Result<std::result::Result<TaskState, ChainFault>> {
        let judged = self.try_judge_move(name, old, new);
        match judged {
            Ok(judged) => Ok(judged),
            Err(Error::Damaged { commit, found, .. }) => {
                Ok(Err(ChainFault { name: name.clone(), commit: Some(commit), rule: "unreadable".to_owned(), found }))
            }
            Err(error) => Err(error),
        }
    }

    fn try_judge_move(
        &self,
        name: &RefName,
        old: Option<RecordId>,
        new: RecordId,
    ) -> Result<std::result::Result<TaskState, ChainFault>> {
        let (base, added) = match old {
            Some(old) => {
                let fork = self.fork(name, old, new)?;
                if fork.base != Some(old) {
                    let found = format!("it does not descend from {old}, where the ref is");
                    let rule = "fast-forward".to_owned();
                    return Ok(Err(ChainFault { name: name.clone(), commit: Some(new), rule, found }));
                }
                (Some(self.state_at(name, old)?), fork.theirs)
            }
            None => {
                let mut side = Side::new(new);
                while side.next.is_some() {
                    self.step(name, &mut side, &HashSet::new())?;
                }
                (None, side.above(None))
            }
        };
        Ok(judge(name, base, &self.rows(name, &added)?))
    }
}

/// Folds records on top of a state that is believed already, and says what the whole is worth: every rule, a proper
/// end, and the one ref that the chain belongs to.
///
/// # Errors
/// The first fault.
pub fn judge(name: &RefName, base: Option<TaskState>, records: &[Row]) -> std::result::Result<TaskState, ChainFault> {
    let fault =
        |commit: Option<RecordId>, rule: String, found: String| ChainFault { name: name.clone(), commit, rule, found };
    let mut state = base;
    for (id, record) in records {
        let next = apply::apply(state, *id, record)
            .map_err(|Invalid { rule, found }| fault(Some(*id), rule.to_string(), found))?;
        state = Some(next);
    }
    let Some(state) = state else { return Err(fault(None, "beginning".to_owned(), "there is no record".to_owned())) };
    apply::end(&state).map_err(|Invalid { rule, found }| fault(Some(state.tip), rule.to_string(), found))?;
    match check_place(name, &state) {
        Err(Error::Damaged { found, .. }) => Err(fault(Some(state.tip), "place".to_owned(), found)),
        _ => Ok(state),
    }
}
