//! `pm`: a task ledger inside a git repository.

pub mod commit;
pub mod id;
pub mod protocol;
pub mod store;
