//! The store of a real repository: its configuration, and the [`Store`] trait over its parts. Long, since the trait has
//! many small methods.
//!
//! gix's object store, configuration and discovery are used; its ref transactions are not. Only this file and those
//! below `git/` name gix.

mod alternates;
mod discover;
mod glimpse;
mod layout;
mod loose;
mod objects;
mod pack;
mod prepared;
mod publish;
mod reading;
mod refs;
mod rescue;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::discover::absolute;
pub use self::glimpse::Glimpse;
use self::objects::Objects;
use self::refs::Refs;
use self::rescue::Rescue;
use super::{
    Commit, Durability, Mode, Move, OpenReader, Pack, Publish, ReadCommits, RefRow, Store, StoreError, Swap, durable,
    lock,
};
use crate::id::{Oid, RefName, SEEN, TASKS, shown};

/// After so long a temporary file belongs to nobody: no append takes a day.
pub const ORPHAN_AGE: Duration = Duration::from_secs(24 * 3600);

/// A git repository.
pub struct GitStore {
    repo: gix::Repository,
    git_dir: PathBuf,
    objects: Objects,
    refs: Refs,
    rescue: Rescue,
    durability: Durability,
    /// Whether it may put back what a gc deleted: whoever only judges must write nothing at all.
    restores: bool,
}

impl GitStore {
    /// Opens the repository that `dir` is in, or the one that `GIT_DIR` names.
    ///
    /// # Errors
    /// `Unusable` where there is none, or one that pm must not touch: another user's, or one with reftable refs.
    pub fn discover(dir: &Path) -> Result<GitStore, StoreError> {
        let repo = discover::repository(dir)?;
        let common_dir = absolute(repo.common_dir())?;
        Ok(GitStore {
            objects: Objects::new(common_dir.join("objects"), repo.object_hash()),
            rescue: Rescue::new(&common_dir),
            refs: Refs::new(common_dir, repo.object_hash()),
            git_dir: absolute(repo.git_dir())?,
            repo,
            durability: Durability::default(),
            restores: true,
        })
    }

    /// As [`GitStore::discover`], for whoever only reads: nothing is ever written, not even to restore an object. In a
    /// hook of a push, what was pushed is read from git's quarantine, and what was there before from the repository
    /// (githooks(5); `Objects::new` and `Reading` follow the variables that git sets).
    ///
    /// # Errors
    /// As [`GitStore::discover`].
    pub fn discover_for_reading(dir: &Path) -> Result<GitStore, StoreError> {
        Ok(GitStore { restores: false, ..GitStore::discover(dir)? })
    }

    /// How strongly acknowledged records are kept.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Changes how strongly acknowledged records are kept.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
        self.objects.durability = durability;
    }

    /// Changes how long to wait for locks, for tests ([`lock::PATIENCE`] otherwise).
    pub fn set_patience(&mut self, patience: Duration) {
        self.refs.patience = patience;
    }

    /// The directory that all worktrees share, absolute: refs, objects, and pm's own files in `pm/`.
    pub fn common_dir(&self) -> &Path {
        &self.refs.common_dir
    }

    /// The git directory of this worktree, absolute.
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    /// The worktree, absolute, unless the repository is bare.
    pub fn work_dir(&self) -> Option<PathBuf> {
        self.repo.workdir().and_then(|dir| absolute(dir).ok())
    }

    /// The length of an object id in bytes: 20 or 32.
    pub fn object_hash_len(&self) -> usize {
        self.objects.hash().len_in_bytes()
    }

    /// The value of a configuration key such as `pm.ttl`: of all scopes, the last one, as of the opening.
    pub fn config_string(&self, key: &str) -> Option<String> {
        self.repo.config_snapshot().string(key).map(|value| value.to_string())
    }

    /// All values of a configuration key, in git's order.
    pub fn config_strings(&self, key: &str) -> Vec<String> {
        let values = self.repo.config_snapshot().plumbing().strings(key).unwrap_or_default();
        values.into_iter().map(|value| value.to_string()).collect()
    }

    /// The value of a configuration key that is a path, with git's `~/` and `%(prefix)/` put in; `None` where it is
    /// unset or empty.
    ///
    /// # Errors
    /// The value, where it names the home of nobody.
    pub fn config_path(&self, key: &str) -> Result<Option<PathBuf>, String> {
        match self.repo.config_snapshot().trusted_path(key) {
            Ok(path) => Ok(path.filter(|path| !path.as_os_str().is_empty())),
            Err(_) => Err(self.config_string(key).unwrap_or_default()),
        }
    }

    /// The full names of the keys that are set in a section and its subsections (`pm.ttl`, `pm.sub.key`), sorted.
    pub fn config_keys(&self, section: &str) -> Vec<String> {
        let snapshot = self.repo.config_snapshot();
        let mut keys = BTreeSet::new();
        for part in snapshot.plumbing().sections_by_name(section).into_iter().flatten() {
            let subsection = part.header().subsection_name().map(|name| format!("{name}.")).unwrap_or_default();
            keys.extend(part.value_names().map(|name| format!("{section}.{subsection}{}", name.to_ascii_lowercase())));
        }
        keys.into_iter().collect()
    }

    /// The commits at which a shallow repository ends (`git clone --depth`): what is above them is not here.
    ///
    /// # Errors
    /// `Io` where git's list of them cannot be read.
    pub fn shallow_boundary(&self) -> Result<Vec<Oid>, StoreError> {
        let path = self.common_dir().join("shallow");
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(durable::unreadable("read", &path)(error)),
        }
    }

    /// The beginnings of URLs that are written elsewhere than they are read (`url.<base>.pushInsteadOf`).
    pub fn rewritten_for_pushes(&self) -> Vec<String> {
        let snapshot = self.repo.config_snapshot();
        let sections = snapshot.plumbing().sections_by_name("url").into_iter().flatten();
        sections.flat_map(|section| section.values("pushInsteadOf")).map(|value| value.to_string()).collect()
    }

    /// The names of the remotes that are configured, sorted.
    pub fn remotes(&self) -> Vec<String> {
        let snapshot = self.repo.config_snapshot();
        let sections = snapshot.plumbing().sections_by_name("remote").into_iter().flatten();
        let names: BTreeSet<_> =
            sections.filter_map(|section| section.header().subsection_name().map(ToString::to_string)).collect();
        names.into_iter().collect()
    }

    /// Name and email that git would put into a commit's committer line. `None` without a name; without an email it
    /// is `pm@<hostname>`.
    pub fn committer(&self) -> Option<(String, String)> {
        let env = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let config = |key| self.config_string(key).filter(|value| !value.is_empty());
        let name = env("GIT_COMMITTER_NAME").or_else(|| config("committer.name")).or_else(|| config("user.name"))?;
        let email = env("GIT_COMMITTER_EMAIL")
            .or_else(|| config("committer.email"))
            .or_else(|| config("user.email"))
            .or_else(|| env("EMAIL"))
            .unwrap_or_else(|| format!("pm@{}", rustix::system::uname().nodename().to_string_lossy()));
        Some((name, email))
    }

    /// `user.email`.
    pub fn user_email(&self) -> Option<String> {
        self.config_string("user.email").filter(|email| !email.is_empty())
    }

    /// The commit that a person names: an object id, a ref (`HEAD`, `main`, `refs/heads/main`), or a unique prefix
    /// of at least four hex digits, in git's order. Tags are peeled. No revision syntax (`~`, `^`, `@{}`).
    ///
    /// # Errors
    /// `NoCommit` says what was not found; `Missing` and `Damaged` for a full id.
    pub fn resolve_commit(&self, rev: &str) -> Result<Oid, StoreError> {
        let no_commit = |found: String| StoreError::NoCommit { rev: shown(rev), found };
        let named = match (rev.to_ascii_lowercase().parse::<Oid>(), self.repo.try_find_reference(rev)) {
            (Ok(id), _) => Some(id),
            (_, Ok(Some(mut reference))) => {
                let target = reference.follow_to_object().map_err(|error| no_commit(error.to_string()))?;
                Some(oid_of(&target))
            }
            _ => None,
        };
        if let Some(id) = named {
            return self.objects.peel(id)?.map_err(|kind| no_commit(format!("it is a {kind}")));
        }
        match self.commits_with_prefix(rev)?[..] {
            [id] => Ok(id),
            [] => Err(no_commit("there is no such ref, and no commit whose id starts so".to_owned())),
            ref ids => Err(no_commit(format!("the ids of {} commits start so", ids.len()))),
        }
    }

    /// How many refs of the ledger, and of what was seen of it elsewhere, are loose files.
    ///
    /// # Errors
    /// `Io` where they cannot be listed.
    pub fn loose_refs(&self) -> Result<usize, StoreError> {
        Ok(self.refs.count_loose(TASKS)? + self.refs.count_loose(SEEN)?)
    }

    /// About how many loose objects there are.
    ///
    /// # Errors
    /// `Io` where they cannot be listed.
    pub fn loose_objects(&self) -> Result<usize, StoreError> {
        loose::estimate(self.objects.dir())
    }

    /// Whether a `git gc` is at work.
    pub fn gc_runs(&self) -> bool {
        self.rescue.gc_runs()
    }

    /// Removes temporary object files that killed writers left (gix's `objects/.tmp*`, which `git gc` does not know)
    /// once they are older than `max_age` ([`ORPHAN_AGE`] but in tests). Returns how many.
    pub fn sweep_temporaries(&self, max_age: Duration) -> Result<usize, StoreError> {
        loose::sweep_temporaries(self.objects.dir(), max_age)
    }

    /// How many files [`GitStore::sweep_temporaries`] would remove.
    ///
    /// # Errors
    /// `Io` where they cannot be listed.
    pub fn orphans(&self, max_age: Duration) -> Result<usize, StoreError> {
        loose::count_temporaries(self.objects.dir(), max_age)
    }
}

impl ReadCommits for Objects {
    fn read_commit(&self, id: Oid) -> Result<Commit, StoreError> {
        Objects::read_commit(self, id)
    }
}

impl Store for GitStore {
    fn read_commit(&self, id: Oid) -> Result<Commit, StoreError> {
        self.rescuing(|| self.objects.read_commit(id))
    }

    fn reader(&self) -> Option<OpenReader> {
        let (dir, hash) = (self.objects.dir().to_owned(), self.objects.hash());
        Some(Box::new(move || Box::new(Objects::new(dir.clone(), hash))))
    }

    fn write_commit(&self, commit: &Commit) -> Result<Oid, StoreError> {
        self.objects.write_commit(commit)
    }

    fn write_files(&self, files: &[(String, Vec<u8>)]) -> Result<Oid, StoreError> {
        self.objects.write_files(files)
    }

    fn file_names(&self, tree: Oid) -> Result<Vec<String>, StoreError> {
        self.rescuing(|| self.objects.file_names(tree))
    }

    fn check(&self, id: Oid) -> Result<(), StoreError> {
        self.rescuing(|| self.objects.check(id))
    }

    fn discard_commits(&self) {
        self.objects.discard_commits();
    }

    fn begin_pack(&self) -> Result<Box<dyn Pack + '_>, StoreError> {
        self.objects.write_empty_tree()?;
        Ok(Box::new(pack::PackWriter::begin(&self.objects, self.durability)?))
    }

    fn commits_with_prefix(&self, prefix: &str) -> Result<Vec<Oid>, StoreError> {
        self.objects.commits_with_prefix(prefix)
    }

    fn tip(&self, name: &RefName) -> Result<Option<Oid>, StoreError> {
        self.refs.tip(name)
    }

    fn tips(&self, prefix: &str) -> Result<Vec<RefRow>, StoreError> {
        self.refs.tips(prefix)
    }

    fn lock_while(
        &self,
        shards: &[(u8, Mode)],
        worthwhile: &dyn Fn() -> Result<bool, StoreError>,
    ) -> Result<Option<lock::Held>, StoreError> {
        lock::acquire(&self.refs.locks, shards, self.refs.patience, worthwhile)
    }

    fn compare_and_swap_with(
        &self,
        held: &lock::Held,
        name: &RefName,
        expected: Option<Oid>,
        new: Oid,
        along: &mut dyn FnMut() -> Result<(), StoreError>,
    ) -> Result<Swap, StoreError> {
        assert!(held.holds(name.shard(), Mode::Exclusive), "the shard of {name} is not held");
        let persist = || self.objects.persist();
        let swap = self.refs.compare_and_swap(name, expected, new, self.durability, persist, along)?;
        if swap == Swap::Done {
            self.care_for_written(name)?;
        }
        Ok(swap)
    }

    fn delete(&self, held: &lock::Held, name: &RefName, expected: Oid) -> Result<Swap, StoreError> {
        assert!(held.holds(name.shard(), Mode::Exclusive), "the shard of {name} is not held");
        self.refs.delete(name, expected, self.durability)
    }

    fn move_many(&self, held: &lock::Held, moves: &[Move]) -> Result<Vec<bool>, StoreError> {
        assert!(moves.iter().all(|(name, ..)| held.holds(name.shard(), Mode::Exclusive)), "a shard is not held");
        self.objects.persist()?;
        let moved = self.refs.move_many(moves, self.durability)?;
        if let Some((first, ..)) = moves.first() {
            self.care_for_written(first)?;
        }
        Ok(moved)
    }

    fn make_durable(&self, ids: &[Oid]) -> Result<(), StoreError> {
        self.objects.make_durable(ids)
    }

    fn publish(&self, held: &lock::Held, refs: &[(RefName, Oid)]) -> Result<Publish, StoreError> {
        assert!(refs.iter().all(|(name, _)| held.holds(name.shard(), Mode::Exclusive)), "a shard is not held");
        self.objects.persist()?;
        let published = self.refs.publish(refs, self.durability);
        self.objects.drop_keeps();
        let published = published?;
        if let (Publish::Done { .. }, Some((first, _))) = (&published, refs.first()) {
            self.care_for_written(first)?;
        }
        Ok(published)
    }
}

impl GitStore {
    /// Reads, and where an object is missing puts back what a `git gc` deleted and reads again.
    fn rescuing<T>(&self, read: impl Fn() -> Result<T, StoreError>) -> Result<T, StoreError> {
        match read() {
            Err(StoreError::Missing { .. }) if self.restores && self.rescue.restore(&self.objects)? => read(),
            result => result,
        }
    }

    /// Sees to it that a `git gc` that runs now cannot take what `name` was just moved to.
    fn care_for_written(&self, name: &RefName) -> Result<(), StoreError> {
        self.rescue.after_move(&self.objects, self.durability).map_err(|error| StoreError::RecordedUnknown {
            name: name.clone(),
            source: io::Error::other(error.to_string()),
        })
    }
}

/// Our form of an id.
fn oid_of(id: &gix::hash::oid) -> Oid {
    Oid::from_bytes(id.as_bytes()).expect("gix knows ids of 20 and 32 bytes only")
}

/// Turns a failed write of gix's into a store error, keeping what the system said.
fn gix_failed(doing: &'static str, path: &Path, error: &gix::Error) -> StoreError {
    let source = match error.downcast_any_ref::<io::Error>() {
        Some(io) => io.raw_os_error().map_or_else(|| io.kind().into(), io::Error::from_raw_os_error),
        None => io::Error::other(error.to_string()),
    };
    durable::failed(doing, path)(source)
}
