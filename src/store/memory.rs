//! A store in memory, for tests: it counts operations and breaks on demand, and needs no disk.
//!
//! It must behave as a real repository does in everything that the [`Store`] trait promises; the tests of the trait run
//! against both. It excludes nobody: there are no other processes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;

use super::lock::Held;
use super::{Commit, Mode, Move, Pack, Publish, RefRow, Store, StoreError, Swap};
use crate::id::{Oid, RefName, stable_hash};

/// What runs before a swap looks at the ref.
type Hook = Box<dyn FnOnce(&MemoryStore)>;

/// The names and contents of a tree, sorted by name.
type Files = Vec<(String, Vec<u8>)>;

/// Commits, trees and refs of one imagined repository.
#[derive(Default)]
pub struct MemoryStore {
    commits: RefCell<HashMap<Oid, Commit>>,
    trees: RefCell<HashMap<Oid, Files>>,
    refs: RefCell<BTreeMap<RefName, Oid>>,
    reads: Cell<usize>,
    listings: Cell<usize>,
    hook: RefCell<Option<Hook>>,
    failure: RefCell<Option<StoreError>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> MemoryStore {
        MemoryStore::default()
    }

    /// How many commits were read since [`MemoryStore::reset_counts`].
    pub fn reads(&self) -> usize {
        self.reads.get()
    }

    /// How often refs were listed since [`MemoryStore::reset_counts`].
    pub fn listings(&self) -> usize {
        self.listings.get()
    }

    /// Starts counting anew.
    pub fn reset_counts(&self) {
        self.reads.set(0);
        self.listings.set(0);
    }

    /// Runs `hook` once, just before the next swap or publication looks at its refs: the place of a competitor.
    pub fn on_next_swap(&self, hook: Hook) {
        self.hook.replace(Some(hook));
    }

    /// Makes the next swap or publication fail, with nothing moved.
    pub fn fail_next_swap(&self, error: StoreError) {
        self.failure.replace(Some(error));
    }

    /// Sets or removes a ref without any rule, as a person might with git.
    pub fn force(&self, name: &RefName, tip: Option<Oid>) {
        match tip {
            Some(tip) => self.refs.borrow_mut().insert(name.clone(), tip),
            None => self.refs.borrow_mut().remove(name),
        };
    }

    /// Loses a commit, as a careless gc might.
    pub fn lose(&self, id: Oid) {
        self.commits.borrow_mut().remove(&id);
    }

    fn before_swap(&self) -> Result<(), StoreError> {
        // Taken out first: the hook may swap too.
        let hook = self.hook.take();
        if let Some(hook) = hook {
            hook(self);
        }
        self.failure.take().map_or(Ok(()), Err)
    }

    fn insert(&self, commit: &Commit) -> Oid {
        let id = digest(&format!("{commit:?}").into_bytes());
        self.commits.borrow_mut().insert(id, commit.clone());
        id
    }
}

impl Store for MemoryStore {
    fn read_commit(&self, id: Oid) -> Result<Commit, StoreError> {
        self.reads.set(self.reads.get() + 1);
        if self.trees.borrow().contains_key(&id) {
            return Err(StoreError::Damaged { id, found: "it is a tree, not a commit".to_owned() });
        }
        self.commits.borrow().get(&id).cloned().ok_or(StoreError::Missing { id })
    }

    fn write_commit(&self, commit: &Commit) -> Result<Oid, StoreError> {
        Ok(self.insert(commit))
    }

    fn write_files(&self, files: &[(String, Vec<u8>)]) -> Result<Oid, StoreError> {
        let mut files: Files = files.to_vec();
        files.sort();
        let refused = |name: &str| name.is_empty() || name.contains(['/', '\0']);
        let twice = files.windows(2).any(|pair| pair[0].0 == pair[1].0);
        if twice || files.iter().any(|(name, _)| refused(name)) {
            let what = "a tree cannot hold these file names".to_owned();
            return Err(StoreError::Io { what, source: ErrorKind::InvalidInput.into() });
        }
        let id = digest(&format!("{files:?}").into_bytes());
        self.trees.borrow_mut().insert(id, files);
        Ok(id)
    }

    fn file_names(&self, tree: Oid) -> Result<Vec<String>, StoreError> {
        let trees = self.trees.borrow();
        let files = trees.get(&tree).ok_or(StoreError::Missing { id: tree })?;
        Ok(files.iter().map(|(name, _)| name.clone()).collect())
    }

    fn check(&self, id: Oid) -> Result<(), StoreError> {
        let known = self.commits.borrow().contains_key(&id) || self.trees.borrow().contains_key(&id);
        if known { Ok(()) } else { Err(StoreError::Missing { id }) }
    }

    fn discard_commits(&self) {}

    fn begin_pack(&self) -> Result<Box<dyn Pack + '_>, StoreError> {
        Ok(Box::new(MemoryPack { store: self, commits: Vec::new() }))
    }

    fn commits_with_prefix(&self, prefix: &str) -> Result<Vec<Oid>, StoreError> {
        let commits = self.commits.borrow();
        let mut found: Vec<Oid> = match prefix.len() {
            0..4 => Vec::new(),
            _ => commits.keys().copied().filter(|id| id.to_string().starts_with(&prefix.to_lowercase())).collect(),
        };
        found.sort();
        Ok(found)
    }

    fn tip(&self, name: &RefName) -> Result<Option<Oid>, StoreError> {
        Ok(self.refs.borrow().get(name).copied())
    }

    fn tips(&self, prefix: &str) -> Result<Vec<RefRow>, StoreError> {
        self.listings.set(self.listings.get() + 1);
        let refs = self.refs.borrow();
        let below = refs.iter().filter(|(name, _)| name.as_str().starts_with(prefix));
        Ok(below.map(|(name, &id)| (name.clone(), Ok(id))).collect())
    }

    fn lock_while(
        &self,
        shards: &[(u8, Mode)],
        _worthwhile: &dyn Fn() -> Result<bool, StoreError>,
    ) -> Result<Option<Held>, StoreError> {
        Ok(Some(Held::without_files(shards)))
    }

    fn compare_and_swap_with(
        &self,
        held: &Held,
        name: &RefName,
        expected: Option<Oid>,
        new: Oid,
        along: &mut dyn FnMut() -> Result<(), StoreError>,
    ) -> Result<Swap, StoreError> {
        assert!(held.holds(name.shard(), Mode::Exclusive), "the shard of {name} is not held");
        self.before_swap()?;
        let actual = self.tip(name)?;
        if actual != expected {
            return Ok(Swap::HeadMoved { actual });
        }
        along()?;
        self.force(name, Some(new));
        Ok(Swap::Done)
    }

    fn delete(&self, held: &Held, name: &RefName, expected: Oid) -> Result<Swap, StoreError> {
        assert!(held.holds(name.shard(), Mode::Exclusive), "the shard of {name} is not held");
        let actual = self.tip(name)?;
        if actual != Some(expected) {
            return Ok(Swap::HeadMoved { actual });
        }
        self.force(name, None);
        Ok(Swap::Done)
    }

    fn move_many(&self, held: &Held, moves: &[Move]) -> Result<Vec<bool>, StoreError> {
        let swap = |(name, expected, new): &Move| {
            self.compare_and_swap(held, name, *expected, *new).map(|swap| swap == Swap::Done)
        };
        moves.iter().map(swap).collect()
    }

    fn make_durable(&self, _ids: &[Oid]) -> Result<(), StoreError> {
        Ok(())
    }

    fn publish(&self, held: &Held, refs: &[(RefName, Oid)]) -> Result<Publish, StoreError> {
        assert!(refs.iter().all(|(name, _)| held.holds(name.shard(), Mode::Exclusive)), "a shard is not held");
        self.before_swap()?;
        let mut taken: Vec<RefName> = refs.iter().map(|(name, _)| name.clone()).collect();
        taken.retain(|name| self.refs.borrow().contains_key(name));
        taken.sort();
        if !taken.is_empty() {
            return Ok(Publish::Taken { names: taken });
        }
        for (name, id) in refs {
            self.force(name, Some(*id));
        }
        Ok(Publish::Done { shadowed: Vec::new() })
    }
}

struct MemoryPack<'a> {
    store: &'a MemoryStore,
    commits: Vec<Commit>,
}

impl Pack for MemoryPack<'_> {
    fn add(&mut self, commit: &Commit) -> Result<Oid, StoreError> {
        self.commits.push(commit.clone());
        Ok(digest(&format!("{commit:?}").into_bytes()))
    }

    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        for commit in &self.commits {
            self.store.insert(commit);
        }
        Ok(())
    }
}

/// A stable id of any content.
fn digest(content: &[u8]) -> Oid {
    let mut bytes = Vec::with_capacity(24);
    for salt in 0..3u8 {
        let salted: Vec<u8> = [&[salt], content].concat();
        bytes.extend_from_slice(&stable_hash(&salted).to_be_bytes());
    }
    Oid::from_bytes(&bytes[..20]).expect("twenty bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::Signature;

    #[test]
    fn competitors_and_failures_come_once_and_just_before_a_swap() {
        let store = MemoryStore::new();
        let name = RefName::from_full("refs/pm/tasks/q/a".to_owned());
        let by = Signature { name: b"w".to_vec(), email: Vec::new(), seconds: 0, offset: 0 };
        let message = b"x\n".to_vec();
        let commit = Commit { tree: None, parents: Vec::new(), author: by.clone(), committer: by, message };
        let id = store.write_commit(&commit).expect("written");
        let held = store.lock(&[(name.shard(), Mode::Exclusive)]).expect("locked");
        let swap = |expected| store.compare_and_swap(&held, &name, expected, id);

        let competitor = name.clone();
        store.on_next_swap(Box::new(move |store| store.force(&competitor, Some(id))));
        assert_eq!(swap(None).expect("decided"), Swap::HeadMoved { actual: Some(id) });
        store.fail_next_swap(StoreError::Missing { id });
        assert!(swap(Some(id)).is_err());
        assert_eq!(swap(Some(id)).expect("decided"), Swap::Done);

        store.lose(id);
        assert!(store.read_commit(id).is_err());
        assert_eq!((store.reads(), store.listings()), (1, 0));
        store.reset_counts();
        assert_eq!(store.reads(), 0);
    }
}
