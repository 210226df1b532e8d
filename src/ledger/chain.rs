//! Whole chains, from the tip down: for `show`, `log` and `verify` alone.

use super::Ledger;
use crate::error::{Error, Result};
use crate::id::{RecordId, RefName};
use crate::protocol::record::Record;
use crate::store::StoreError;

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
