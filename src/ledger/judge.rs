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
use crate::id::{RecordId, RefName};
use crate::protocol::apply::{self, Invalid};
use crate::protocol::record::Record;
use crate::protocol::state::TaskState;
use crate::store::StoreError;

/// More records than any task has: whoever pushed the history of a large repository under a task's name is not walked to
/// the end of it.
const ANCESTORS_MAX: usize = 200_000;

/// A record and its commit.
pub type Row = (RecordId, Record);

/// Where two tips of one task part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// The newest record that both lead to; `None` where there is none.
    pub base: Option<RecordId>,
    /// What only the first tip leads to, oldest first.
    pub ours: Vec<Row>,
    /// What only the second tip leads to, oldest first.
    pub theirs: Vec<Row>,
}

/// One side of a fork that is being looked for: what was seen so far, newest first.
struct Side {
    next: Option<RecordId>,
    rows: Vec<Row>,
    seen: HashSet<RecordId>,
}

impl Side {
    fn new(tip: RecordId) -> Side {
        Side { next: Some(tip), rows: Vec::new(), seen: HashSet::new() }
    }

    /// What was seen before `base`, oldest first.
    fn above(mut self, base: Option<RecordId>) -> Vec<Row> {
        if let Some(end) = base.and_then(|base| self.rows.iter().position(|(id, _)| *id == base)) {
            self.rows.truncate(end);
        }
        self.rows.reverse();
        self.rows
    }
}

impl Ledger<'_> {
    /// Where two tips part. Both are walked down record by record, so that the cost is what was added, not how long the
    /// chains are; and a walk ends where something is no record.
    ///
    /// # Errors
    /// `Damaged`, naming the first commit that is missing or no record.
    pub fn fork(&self, name: &RefName, ours: RecordId, theirs: RecordId) -> Result<Fork> {
        let (mut a, mut b) = (Side::new(ours), Side::new(theirs));
        let base = loop {
            if a.next.is_none() && b.next.is_none() {
                break None;
            }
            // What came from elsewhere first: where that is no record, ours need not be read.
            if let Some(base) = self.step(name, &mut b, &a.seen)? {
                break Some(base);
            }
            if let Some(base) = self.step(name, &mut a, &b.seen)? {
                break Some(base);
            }
        };
        Ok(Fork { base, ours: a.above(base), theirs: b.above(base) })
    }

    /// Whether a commit has another one among its ancestors, whatever the commits between are: also where they break rules.
    ///
    /// # Errors
    /// `Damaged` where a commit is missing.
    pub fn leads_to(&self, name: &RefName, tip: RecordId, ancestor: RecordId) -> Result<bool> {
        let mut next = Some(tip);
        for _ in 0..ANCESTORS_MAX {
            match next {
                Some(id) if id == ancestor => return Ok(true),
                Some(id) => next = self.parent(name, id)?,
                None => break,
            }
        }
        Ok(false)
    }

    fn parent(&self, name: &RefName, id: RecordId) -> Result<Option<RecordId>> {
        match self.store.read_commit(id.0) {
            Ok(commit) => Ok(commit.parents.first().copied().map(RecordId)),
            Err(StoreError::Missing { id }) => {
                let found = "the object is missing".to_owned();
                Err(Error::Damaged { name: name.clone(), commit: RecordId(id), found })
            }
            Err(StoreError::Damaged { id, found }) => {
                Err(Error::Damaged { name: name.clone(), commit: RecordId(id), found })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes one step down on one side; returns the record if the other side has been there.
    fn step(&self, name: &RefName, side: &mut Side, other: &HashSet<RecordId>) -> Result<Option<RecordId>> {
        let Some(id) = side.next else { return Ok(None) };
        if other.contains(&id) {
            return Ok(Some(id));
        }
        let record = self.record(name, id)?;
        side.seen.insert(id);
        side.next = record.parent;
        side.rows.push((id, record));
        Ok(None)
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
        match self.try_judge_move(name, old, new) {
            Err(Error::Damaged { commit, found, .. }) => Ok(Err(ChainFault::unreadable(name, Some(commit), found))),
            judged => judged,
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
            None => (None, self.rows(name, new)?),
        };
        Ok(judge(name, base, &added))
    }

    /// A whole chain, oldest record first.
    ///
    /// # Errors
    /// `Damaged`, naming the first commit from the tip down that is missing or no record.
    pub fn rows(&self, name: &RefName, tip: RecordId) -> Result<Vec<Row>> {
        let mut rows = self.chain(name, tip).collect::<Result<Vec<_>>>()?;
        rows.reverse();
        Ok(rows)
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
