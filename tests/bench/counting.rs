//! A store that counts what is read from the one below it.

use std::cell::Cell;

use pm::id::{Oid, RefName};
use pm::store::lock::Held;
use pm::store::{Commit, Mode, Move, Pack, Publish, RefRow, Store, StoreError, Swap};

type Result<T> = std::result::Result<T, StoreError>;

/// What was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    pub commits: usize,
    /// Single refs.
    pub refs: usize,
    /// Listings of refs.
    pub listings: usize,
}

/// A store that counts reads, in this thread: it offers no readers for others, so nobody else reads.
pub struct Counting<'a> {
    inner: &'a dyn Store,
    reads: Cell<Reads>,
}

impl<'a> Counting<'a> {
    pub fn new(inner: &'a dyn Store) -> Counting<'a> {
        Counting { inner, reads: Cell::default() }
    }

    /// What was read since the last call.
    pub fn take(&self) -> Reads {
        self.reads.take()
    }

    fn count(&self, add: impl FnOnce(&mut Reads)) {
        let mut reads = self.reads.get();
        add(&mut reads);
        self.reads.set(reads);
    }
}

impl Store for Counting<'_> {
    fn read_commit(&self, id: Oid) -> Result<Commit> {
        self.count(|reads| reads.commits += 1);
        self.inner.read_commit(id)
    }

    fn write_commit(&self, commit: &Commit) -> Result<Oid> {
        self.inner.write_commit(commit)
    }

    fn write_files(&self, files: &[(String, Vec<u8>)]) -> Result<Oid> {
        self.inner.write_files(files)
    }

    fn file_names(&self, tree: Oid) -> Result<Vec<String>> {
        self.inner.file_names(tree)
    }

    fn check(&self, id: Oid) -> Result<()> {
        self.inner.check(id)
    }

    fn discard_commits(&self) {
        self.inner.discard_commits();
    }

    fn begin_pack(&self) -> Result<Box<dyn Pack + '_>> {
        self.inner.begin_pack()
    }

    fn commits_with_prefix(&self, prefix: &str) -> Result<Vec<Oid>> {
        self.inner.commits_with_prefix(prefix)
    }

    fn tip(&self, name: &RefName) -> Result<Option<Oid>> {
        self.count(|reads| reads.refs += 1);
        self.inner.tip(name)
    }

    fn tips(&self, prefix: &str) -> Result<Vec<RefRow>> {
        self.count(|reads| reads.listings += 1);
        self.inner.tips(prefix)
    }

    fn lock_while(&self, shards: &[(u8, Mode)], worthwhile: &dyn Fn() -> Result<bool>) -> Result<Option<Held>> {
        self.inner.lock_while(shards, worthwhile)
    }

    fn compare_and_swap_with(
        &self,
        held: &Held,
        name: &RefName,
        expected: Option<Oid>,
        new: Oid,
        along: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Swap> {
        self.inner.compare_and_swap_with(held, name, expected, new, along)
    }

    fn delete(&self, held: &Held, name: &RefName, expected: Oid) -> Result<Swap> {
        self.inner.delete(held, name, expected)
    }

    fn make_durable(&self, ids: &[Oid]) -> Result<()> {
        self.inner.make_durable(ids)
    }

    fn publish(&self, held: &Held, refs: &[(RefName, Oid)]) -> Result<Publish> {
        self.inner.publish(held, refs)
    }

    fn move_many(&self, held: &Held, moves: &[Move]) -> Result<Vec<bool>> {
        self.inner.move_many(held, moves)
    }
}
