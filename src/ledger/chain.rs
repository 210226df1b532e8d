//! Whole chains, from the tip down: for `show`, `log` and `verify` alone.

use super::Ledger;
use crate::error::{Error, Result};
use crate::id::{Oid, RecordId, RefName};
use crate::protocol::codec;
use crate::protocol::record::Record;
use crate::store::{Store, StoreError};

/// A chain, walked from a tip towards its `Task`.
pub struct Chain<'a> {
    ledger: &'a Ledger<'a>,
    name: &'a RefName,
    next: Option<RecordId>,
}

impl<'a> Ledger<'a> {
    /// Walks the chain at `name` from `tip` down. Ends after the first record that cannot be read.
    pub fn chain(&'a self, name: &'a RefName, tip: RecordId) -> Chain<'a> {
        Chain { ledger: self, name, next: Some(tip) }
    }
}

impl Iterator for Chain<'_> {
    type Item = Result<(RecordId, Record)>;

    fn next(&mut self) -> Option<Self::Item> {
        let id = self.next.take()?;
        let commit = match self.ledger.store.read_commit(id.0) {
            Ok(commit) => commit,
            Err(StoreError::Missing { id: missing }) => {
                let found = "the object is missing".to_owned();
                return Some(Err(Error::Damaged { name: self.name.clone(), commit: RecordId(missing), found }));
            }
            Err(StoreError::Damaged { id, found }) => {
                return Some(Err(Error::Damaged { name: self.name.clone(), commit: RecordId(id), found }));
            }
            Err(error) => return Some(Err(error.into())),
        };
        match self.ledger.decode(self.name, id, &commit) {
            Ok(record) => {
                self.next = record.parent;
                Some(Ok((id, record)))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

/// How many of these commits, at which a shallow repository ends, are records with others below them: chains that are cut
/// off. (A shallow clone of code cuts none.)
pub fn cut_off(store: &dyn Store, boundary: &[Oid]) -> usize {
    let is_record = |id: &&Oid| {
        let commit = store.read_commit(**id).ok();
        commit.is_some_and(|commit| !commit.parents.is_empty() && codec::decode(&commit).is_ok())
    };
    boundary.iter().filter(is_record).count()
}
