//! Storage: objects, refs and locks of one git repository, in plain types.
//!
//! The store knows nothing of tasks or rules. It offers what the ledger is made of: reading and writing git
//! objects, a compare-and-swap of one ref, the all-or-nothing creation of many, and shard locks. Two
//! implementations: [`git`] for real repositories, [`memory`] for tests that count operations.
//!
//! Architecture invariant: nothing below `store/` imports `protocol` or `ledger`, and nothing outside
//! `store/git*` names gix.

pub mod durable;
pub mod git;
pub mod lock;
pub mod memory;

use std::path::PathBuf;

pub use crate::commit::{Commit, Signature};
use crate::id::{Oid, RefName};

/// How strongly an acknowledged record is kept (`pm.durability`; design, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Survives a power cut: objects, refs and the directories that name them are synced.
    #[default]
    Power,
    /// Survives the death of the process only; for throwaway ledgers.
    Process,
}

/// How a compare-and-swap ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Swap {
    /// The ref now holds the new value, durably.
    Done,
    /// The ref was not at the expected value, and was left alone.
    HeadMoved {
        /// Where the ref is instead; `None` when it does not exist.
        actual: Option<Oid>,
    },
}

/// How the creation of many refs ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Publish {
    /// All refs were created, durably. `shadowed` lists refs that plain git created at the same moment as
    /// loose files, with another value: those hide the published ones.
    Done {
        /// The hidden refs, normally none.
        shadowed: Vec<RefName>,
    },
    /// These refs exist already; nothing was published.
    Taken {
        /// The refs that exist.
        names: Vec<RefName>,
    },
}

/// How a shard is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Many may read what it guards.
    Shared,
    /// One may move what it guards.
    Exclusive,
}

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no repository that pm can use.
    #[error("{reason}")]
    Unusable {
        /// What was found, and the next safe step.
        reason: String,
    },
    /// The repository, or a part of it, may not be written (permissions, a read-only file system).
    #[error("{} cannot be written: {source}; nothing was recorded", path.display())]
    ReadOnly {
        /// What could not be written.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An object that something points at is not there.
    #[error("object {id} is missing from the object store")]
    Missing {
        /// The object.
        id: Oid,
    },
    /// An object is there but is not what it should be.
    #[error("object {id} cannot be used: {found}")]
    Damaged {
        /// The object.
        id: Oid,
        /// What is wrong with it.
        found: String,
    },
    /// What a person named is no commit here.
    #[error("'{rev}' names no commit: {found}")]
    NoCommit {
        /// What was given, shortened and made printable.
        rev: String,
        /// What was found instead.
        found: String,
    },
    /// A ref's file holds no object id.
    #[error("ref {name} does not hold an object id (found '{found}')")]
    BrokenRef {
        /// The ref.
        name: RefName,
        /// What it holds, shortened and made printable.
        found: String,
    },
    /// A lock was not free within the time allowed.
    #[error(
        "'{0}' is still there after {waited_ms} ms; nothing was recorded. `fuser '{0}'` tells who has it open: try again when that has ended. If nobody has, a git command died there, or holds it without having it open: `pm doctor` tells",
        path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited, in milliseconds.
        waited_ms: u64,
    },
    /// The new value was put in place but could not be made durable: it may not survive a power cut.
    #[error(
        "{name} was moved, but syncing it failed: {source}; a power cut may undo it. `pm log` shows what is there now"
    )]
    RecordedUnknown {
        /// The ref, or the first of a batch.
        name: RefName,
        /// What the system said.
        source: std::io::Error,
    },
    /// What was to happen together with a move did not, so nothing was moved.
    #[error("{name} was not moved, since what goes along with it failed")]
    Prevented {
        /// The ref.
        name: RefName,
    },
    /// Any other failure of the file system or of the object store.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with the path.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// One row of a listing: a ref, and its value or what is wrong with it.
pub type RefRow = (RefName, Result<Oid, StoreError>);

/// What a thread of its own needs to read commits.
pub trait ReadCommits {
    /// As [`Store::read_commit`].
    ///
    /// # Errors
    /// As [`Store::read_commit`]. One that is called missing should be asked of the store itself, which knows of more
    /// places.
    fn read_commit(&self, id: Oid) -> Result<Commit, StoreError>;
}

/// Makes a reader, in whichever thread it is called.
pub type OpenReader = Box<dyn Fn() -> Box<dyn ReadCommits> + Send + Sync>;

/// Objects, refs and locks of one repository.
///
/// Every method reads afresh: a store never answers from what it saw earlier.
pub trait Store {
    /// Reads one commit.
    ///
    /// # Errors
    /// `Missing`, or `Damaged` for an object of another kind or one that cannot be parsed.
    fn read_commit(&self, id: Oid) -> Result<Commit, StoreError>;

    /// Readers for other threads; `None` where the store has but one.
    fn reader(&self) -> Option<OpenReader> {
        None
    }

    /// Writes one commit as a loose object and returns its id. It can be read, and is durable, once a ref was moved:
    /// [`Store::compare_and_swap`] sees to that.
    fn write_commit(&self, commit: &Commit) -> Result<Oid, StoreError>;

    /// Writes a tree of plain files and returns its id. Durable once a ref was moved.
    /// Names must be unique, non-empty, and hold no `/` or NUL.
    fn write_files(&self, files: &[(String, Vec<u8>)]) -> Result<Oid, StoreError>;

    /// The names of the entries of a tree, in its order.
    fn file_names(&self, tree: Oid) -> Result<Vec<String>, StoreError>;

    /// Checks that the stored bytes of an object are those that its id was made of; of a tree, its files' too. Reading
    /// alone does not notice an object file that holds another object.
    ///
    /// # Errors
    /// `Missing` or `Damaged`, naming the object.
    fn check(&self, id: Oid) -> Result<(), StoreError>;

    /// Drops the commits that were written and that no ref was moved for: their race is lost. Files and trees stay,
    /// since the next try may need them.
    fn discard_commits(&self);

    /// Starts a pack, for batches of thousands of commits.
    fn begin_pack(&self) -> Result<Box<dyn Pack + '_>, StoreError>;

    /// The ids of the commits that start with these hex digits (at least four), sorted.
    fn commits_with_prefix(&self, prefix: &str) -> Result<Vec<Oid>, StoreError>;

    /// Where a ref points, read in git's own order: loose file first, then packed-refs.
    fn tip(&self, name: &RefName) -> Result<Option<Oid>, StoreError>;

    /// All refs below a prefix that ends in `/`, sorted by name. Loose refs are read before packed ones, so
    /// that a concurrent `pack-refs` hides none.
    fn tips(&self, prefix: &str) -> Result<Vec<RefRow>, StoreError>;

    /// Takes the locks of these shards in index order (each at most once), waiting at most [`lock::PATIENCE`] in all.
    /// While it waits it asks `worthwhile` before each new try, and gives up with `None` on a no: whoever lost the
    /// race meanwhile need not queue up to learn it.
    ///
    /// # Errors
    /// `Locked` when the time ran out, and what `worthwhile` returns.
    fn lock_while(
        &self,
        shards: &[(u8, Mode)],
        worthwhile: &dyn Fn() -> Result<bool, StoreError>,
    ) -> Result<Option<lock::Held>, StoreError>;

    /// Takes the locks of these shards as [`Store::lock_while`] does, for a caller that wants them in any case.
    ///
    /// # Errors
    /// `Locked` when the time ran out.
    fn lock(&self, shards: &[(u8, Mode)]) -> Result<lock::Held, StoreError> {
        let held = self.lock_while(shards, &|| Ok(true))?;
        Ok(held.expect("it is always worthwhile"))
    }

    /// Makes every object written so far durable, as far as [`Durability`] asks, then moves one ref from `expected`
    /// (`None`: it must not exist) to `new`, durably, too.
    ///
    /// The caller holds the ref's shard exclusively (`held`), which is asserted.
    fn compare_and_swap(
        &self,
        held: &lock::Held,
        name: &RefName,
        expected: Option<Oid>,
        new: Oid,
    ) -> Result<Swap, StoreError> {
        self.compare_and_swap_with(held, name, expected, new, &mut || Ok(()))
    }

    /// As [`Store::compare_and_swap`], together with something else: `along` is called when the ref is at `expected` for
    /// certain, under git's lock of it, directly before it moves; where `along` fails, it does not move.
    ///
    /// # Errors
    /// What `along` returns, too.
    fn compare_and_swap_with(
        &self,
        held: &lock::Held,
        name: &RefName,
        expected: Option<Oid>,
        new: Oid,
        along: &mut dyn FnMut() -> Result<(), StoreError>,
    ) -> Result<Swap, StoreError>;

    /// Removes one ref that is at `expected`. After a power cut it may be back.
    ///
    /// The caller holds the ref's shard exclusively (`held`), which is asserted.
    fn delete(&self, held: &lock::Held, name: &RefName, expected: Oid) -> Result<Swap, StoreError>;

    /// Makes objects durable that another program wrote into this store, as far as [`Durability`] asks.
    fn make_durable(&self, ids: &[Oid]) -> Result<(), StoreError>;

    /// Creates many refs with one rename, durably: all or nothing, whatever is killed when. The caller holds
    /// every shard of `refs` exclusively.
    fn publish(&self, held: &lock::Held, refs: &[(RefName, Oid)]) -> Result<Publish, StoreError>;

    /// Moves many refs, each only from where it is expected, durably, and much cheaper than one by one. Not all or
    /// nothing: whoever dies in the middle has moved some. Returns which were moved. The caller holds every shard of
    /// `moves` exclusively; no ref may come twice.
    fn move_many(&self, held: &lock::Held, moves: &[Move]) -> Result<Vec<bool>, StoreError>;
}

/// A ref to move: from where it must be (`None`: it must not exist), and where to.
pub type Move = (RefName, Option<Oid>, Oid);

/// A pack being written. Dropped unfinished, it leaves nothing behind.
pub trait Pack {
    /// Adds a commit and returns its id.
    fn add(&mut self, commit: &Commit) -> Result<Oid, StoreError>;

    /// Writes pack and index, durably, and makes their objects visible.
    fn finish(self: Box<Self>) -> Result<(), StoreError>;
}
