//! The ledger: tasks found, read and appended to, over any store.
//!
//! It joins the two halves that must not know each other: `protocol` has the rules, `store` has the objects and
//! refs. Every write goes through [`append`]; nothing else moves a ref.
//!
//! Architecture invariant: no chain is walked to answer a question about a task's state; only `verify`, `show`
//! and `log` read whole chains.

pub mod append;
pub mod authority;
pub mod batch;
pub mod cascade;
pub mod chain;
pub mod create;
pub mod find;
pub mod graph;
pub mod judge;
pub mod neighbours;
mod obscured;
pub mod observations;
pub mod order;
mod replacement;
pub mod replan;
pub mod resolve;
pub mod runnable;
mod study;
pub mod sweep;
pub mod verify;

pub use self::authority::Authority;
use crate::clock::Clock;
use crate::commit::Signature;
use crate::error::{Error, Result};
use crate::id::AgentId;
use crate::protocol::decide::Stamp;
use crate::protocol::record::{ContextId, Nonce};
use crate::store::Store;

/// Who writes, as git sees it.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Name and email of the committer: the repository's git identity.
    pub committer: (String, String),
    /// The email of the author: `user.email`, else one made of the host's name.
    pub email: String,
}

/// One repository's ledger.
pub struct Ledger<'a> {
    /// Where it is kept.
    pub store: &'a dyn Store,
    /// What time it is.
    pub clock: &'a dyn Clock,
    /// Through which git identity records enter it.
    pub identity: &'a Identity,
    /// Who acts.
    pub agent: &'a AgentId,
    /// In which context, if in one: what a sticky task is bound to.
    pub context: Option<&'a ContextId>,
    /// Who decides, where the ledger is shared between machines.
    pub reach: Reach<'a>,
}

/// How far a record must get before it counts.
#[derive(Clone, Copy)]
pub enum Reach<'a> {
    /// The ledger is in this repository alone.
    Alone,
    /// There is an authority, which decides about every record.
    Through(&'a dyn Authority),
    /// There is an authority, and it is not asked: what is recorded here is provisional until a sync.
    Provisional,
}

impl Ledger<'_> {
    /// The stamp of a record that is written now.
    fn stamp(&self) -> Result<Stamp<'_>> {
        let nonce = getrandom::u64().map_err(|error| Error::Io {
            what: "drawing random bits for a record".to_owned(),
            source: std::io::Error::other(error.to_string()),
        })?;
        Ok(Stamp {
            email: &self.identity.email,
            at: self.clock.wall_seconds(),
            clock: self.clock.monotonic(),
            nonce: Nonce(nonce),
        })
    }

    /// The committer of a record that enters its chain now.
    fn committer(&self) -> Signature {
        let (name, email) = &self.identity.committer;
        Signature {
            name: name.clone().into_bytes(),
            email: email.clone().into_bytes(),
            seconds: self.clock.wall_seconds(),
            offset: 0,
        }
    }
}
