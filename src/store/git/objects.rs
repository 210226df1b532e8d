//! The objects of one repository: commits, and the trees and blobs of attachments.
//!
//! Everything is written as loose objects (batches go to [`super::pack`]). Commits get their names, and everything
//! becomes durable, in [`Objects::persist`]. Reading goes through gix.
//!
//! What must never happen here: a file that is not synced stands under an object's name.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gix::objs::{FindHeader, Kind, WriteTo};

use super::loose::Nameless;
use super::reading::Reading;
use super::{gix_failed, layout, oid_of};
use crate::id::{Oid, shown};
use crate::store::{Commit, Durability, Signature, StoreError, durable};

/// The object stores of one repository.
pub(super) struct Objects {
    hash: gix::hash::Kind,
    reading: Reading,
    /// How strongly objects are kept.
    pub(super) durability: Durability,
    /// Commits written since the last [`Objects::persist`], which syncs and names them.
    nameless: RefCell<Vec<(Nameless, Written)>>,
    /// Objects that were given their names since then.
    pending: RefCell<Vec<Written>>,
    /// Persisted since the last [`Objects::forget_written`].
    persisted: RefCell<Vec<Written>>,
    /// The files that keep packs alive until their refs are published.
    keeps: RefCell<Vec<PathBuf>>,
}

impl Drop for Objects {
    fn drop(&mut self) {
        // A batch that failed before it was published.
        self.drop_keeps();
    }
}

/// An object or pack that was written.
#[derive(Clone)]
struct Written {
    path: PathBuf,
    dir_is_new: bool,
    /// What to write again should a `git gc` delete the file; `None` for the files of a pack.
    content: Option<(Kind, Vec<u8>)>,
}

impl Objects {
    /// Uses a repository's object directory, or the one that `GIT_OBJECT_DIRECTORY` names, as git does for the hooks of
    /// a push. gix does not heed that variable.
    pub(super) fn new(own_dir: PathBuf, hash: gix::hash::Kind) -> Objects {
        let dir = std::env::var_os("GIT_OBJECT_DIRECTORY").map_or(own_dir, PathBuf::from);
        Objects {
            hash,
            reading: Reading::new(dir, hash),
            durability: Durability::default(),
            nameless: RefCell::default(),
            pending: RefCell::default(),
            persisted: RefCell::default(),
            keeps: RefCell::default(),
        }
    }

    pub(super) fn hash(&self) -> gix::hash::Kind {
        self.hash
    }

    /// The object directory that is written to.
    pub(super) fn dir(&self) -> &Path {
        self.reading.loose().path()
    }

    pub(super) fn read_commit(&self, id: Oid) -> Result<Commit, StoreError> {
        let mut content = Vec::new();
        self.find(id, Kind::Commit, &mut content)?;
        layout::commit(id, &content, self.hash)
    }

    pub(super) fn write_commit(&self, commit: &Commit) -> Result<Oid, StoreError> {
        if commit.tree.is_none() {
            self.write_empty_tree()?;
        }
        let mut content = Vec::new();
        self.encode(commit, &mut content)?;
        self.write(Kind::Commit, &content)
    }

    /// Writes the empty tree if it has no loose file. gix and git know that object without reading it, but `git fsck`
    /// misses it. No pack is searched for it: that costs more than writing it once again after a gc.
    pub(super) fn write_empty_tree(&self) -> Result<(), StoreError> {
        // Where it is there it is not synced again: its loss in a power cut harms nothing but fsck's report.
        if self.reading.loose().contains(&gix::ObjectId::empty_tree(self.hash)) {
            return Ok(());
        }
        self.write(Kind::Tree, b"").map(drop)
    }

    pub(super) fn write_files(&self, files: &[(String, Vec<u8>)]) -> Result<Oid, StoreError> {
        let refused = |name: &str| StoreError::Io {
            what: format!("a tree cannot hold a file named '{}'", shown(name)),
            source: ErrorKind::InvalidInput.into(),
        };
        let mut entries = Vec::with_capacity(files.len());
        for (name, _) in files {
            // git's own rules for what may be checked out: no slash, no NUL, no `.git` in any of its disguises.
            gix::validate::path::component(name.as_str().into(), None, Default::default())
                .map_err(|_| refused(name))?;
        }
        for (name, content) in files {
            entries.push(gix::objs::tree::Entry {
                mode: gix::objs::tree::EntryKind::Blob.into(),
                filename: name.as_str().into(),
                oid: self.object_id(self.write(Kind::Blob, content)?)?,
            });
        }
        entries.sort();
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].filename == pair[1].filename) {
            return Err(refused(&pair[0].filename.to_string()));
        }
        let mut content = Vec::new();
        gix::objs::Tree { entries }
            .write_to(&mut content)
            .map_err(durable::unreadable("encode a tree for", self.dir()))?;
        self.write(Kind::Tree, &content)
    }

    pub(super) fn file_names(&self, tree: Oid) -> Result<Vec<String>, StoreError> {
        let mut content = Vec::new();
        self.find(tree, Kind::Tree, &mut content)?;
        let parsed = gix::objs::TreeRef::from_bytes(&content, self.hash)
            .map_err(|error| StoreError::Damaged { id: tree, found: error.to_string() })?;
        Ok(parsed.entries.iter().map(|entry| entry.filename.to_string()).collect())
    }

    /// See [`crate::store::Store::check`].
    pub(super) fn check(&self, id: Oid) -> Result<(), StoreError> {
        let mut content = Vec::new();
        let kind = self.find_any(id, &mut content)?;
        let actual = self.hash_of(kind, &content)?;
        if actual != id {
            return Err(StoreError::Damaged { id, found: format!("its bytes are those of object {actual}") });
        }
        if kind == Kind::Tree {
            let tree = gix::objs::TreeRef::from_bytes(&content, self.hash)
                .map_err(|error| StoreError::Damaged { id, found: error.to_string() })?;
            for entry in tree.entries.iter().filter(|entry| entry.mode.is_blob()) {
                self.check(oid_of(entry.oid))?;
            }
        }
        Ok(())
    }

    /// Makes what was written since the last call durable: files, their names, the directories that hold those.
    pub(super) fn persist(&self) -> Result<(), StoreError> {
        for (mut nameless, mut written) in self.nameless.take() {
            written.dir_is_new = durable::retry_vanished(|| nameless.give_name(&written.path, self.durability))?;
            self.pending.borrow_mut().push(written);
        }
        let pending = self.pending.take();
        self.sync_names(&pending.iter().collect::<Vec<_>>())?;
        self.persisted.borrow_mut().extend(pending);
        Ok(())
    }

    /// Makes durable what another program (a `git fetch`) wrote: loose files with the directories that name them, and the
    /// directory of packs for what is in one. What is in a pack, git has synced itself.
    pub(super) fn make_durable(&self, ids: &[Oid]) -> Result<(), StoreError> {
        if self.durability == Durability::Process {
            return Ok(());
        }
        let mut dirs: BTreeSet<PathBuf> = BTreeSet::new();
        for id in ids {
            let path = self.reading.loose().object_path(&self.object_id(*id)?);
            match fs::File::open(&path) {
                Ok(file) => {
                    durable::sync_file(&file, &path, self.durability)?;
                    dirs.extend(path.parent().map(Path::to_owned));
                    // git may just have made that directory.
                    dirs.insert(self.dir().to_owned());
                }
                Err(error) if error.kind() == ErrorKind::NotFound => drop(dirs.insert(self.dir().join("pack"))),
                Err(error) => return Err(durable::unreadable("open", &path)(error)),
            }
        }
        // A `git gc` may remove a directory that has become empty: what was in it is in a pack then.
        for dir in dirs {
            match durable::sync_dir_io(&dir, self.durability) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(durable::unreadable("sync", &dir)(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Drops the commits that wait for [`Objects::persist`].
    pub(super) fn discard_commits(&self) {
        self.nameless.take();
    }

    /// Syncs the directories that name these objects, and writes again what a gc took away meanwhile.
    fn sync_names(&self, objects: &[&Written]) -> Result<(), StoreError> {
        let mut dirs: BTreeSet<&Path> = objects.iter().filter_map(|object| object.path.parent()).collect();
        if objects.iter().any(|object| object.dir_is_new) {
            dirs.insert(self.dir());
        }
        durable::retry_vanished(|| {
            for object in objects {
                // A `git gc` may have moved it into a pack of unreachable objects, or deleted it.
                if !object.path.exists() && self.write_again(object)? {
                    dirs.insert(self.dir());
                }
            }
            dirs.iter().try_for_each(|dir| durable::sync_dir(dir, self.durability))
        })
    }

    fn write_again(&self, object: &Written) -> Result<bool, StoreError> {
        let Some((kind, content)) = &object.content else {
            return Err(durable::unreadable("open", &object.path)(ErrorKind::NotFound.into()));
        };
        Nameless::write(self.dir(), *kind, content, self.durability)?.give_name(&object.path, self.durability)
    }

    /// Notes the files of a pack as written and synced.
    pub(super) fn note_pack(&self, files: [PathBuf; 2]) {
        let note = |path| Written { path, dir_is_new: false, content: None };
        self.persisted.borrow_mut().extend(files.map(note));
    }

    /// Notes a file that keeps a pack alive.
    pub(super) fn note_keep(&self, keep: PathBuf) {
        self.keeps.borrow_mut().push(keep);
    }

    /// Leaves the packs that were written to git: their refs are published, or never will be.
    pub(super) fn drop_keeps(&self) {
        for keep in self.keeps.take() {
            let _swept_later = durable::remove_if_there(&keep);
        }
    }

    /// Writes again what is gone of the objects that were persisted: a gc that has ended by now may have deleted them
    /// before their ref was moved.
    pub(super) fn write_missing_again(&self) -> Result<(), StoreError> {
        let persisted = self.persisted.borrow();
        // A pack that was repacked is gone, too; its objects are in the new one.
        let missing = persisted.iter().filter(|object| object.content.is_some() && !object.path.exists());
        self.sync_names(&missing.collect::<Vec<_>>())
    }

    /// Hands every file that was written and persisted to `each`. Where that finds one gone it is written again.
    pub(super) fn each_written(&self, mut each: impl FnMut(&Path) -> io::Result<()>) -> Result<(), StoreError> {
        for object in self.persisted.borrow().iter() {
            durable::retry_vanished(|| {
                let result = each(&object.path);
                if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                    self.sync_names(&[object])?;
                }
                result.map_err(durable::failed("link", &object.path))
            })?;
        }
        Ok(())
    }

    /// Ends the care for what was written so far.
    pub(super) fn forget_written(&self) {
        self.persisted.take();
    }

    pub(super) fn commits_with_prefix(&self, prefix: &str) -> Result<Vec<Oid>, StoreError> {
        let padded = format!("{:0<width$}", prefix.to_ascii_lowercase(), width = self.hash.len_in_hex());
        let id = gix::ObjectId::from_hex(padded.as_bytes());
        // Too short, too long, or not hex: nothing has such an id.
        let Some(prefix) = id.ok().and_then(|id| gix::hash::Prefix::new(&id, prefix.len()).ok()) else {
            return Ok(Vec::new());
        };
        let failed = |error| gix_failed("search", self.dir(), &error);
        let mut found = HashSet::new();
        let mut commits = BTreeSet::new();
        for store in self.reading.stores()? {
            store.lookup_prefix(prefix, Some(&mut found)).map_err(failed)?;
            for id in found.drain() {
                let header = store.try_header(&id).map_err(failed)?;
                if header.is_some_and(|header| header.kind == Kind::Commit) {
                    commits.insert(oid_of(&id));
                }
            }
        }
        Ok(commits.into_iter().collect())
    }

    /// Appends the content of a commit object.
    pub(super) fn encode(&self, commit: &Commit, out: &mut Vec<u8>) -> Result<(), StoreError> {
        let signature = |by: &Signature| gix::actor::Signature {
            name: by.name.as_slice().into(),
            email: by.email.as_slice().into(),
            time: gix::date::Time::new(by.seconds, by.offset),
        };
        let tree = commit.tree.map_or_else(|| Ok(gix::ObjectId::empty_tree(self.hash)), |tree| self.object_id(tree))?;
        gix::objs::Commit {
            tree,
            parents: commit.parents.iter().map(|&parent| self.object_id(parent)).collect::<Result<_, _>>()?,
            author: signature(&commit.author),
            committer: signature(&commit.committer),
            encoding: None,
            message: commit.message.as_slice().into(),
            extra_headers: Vec::new(),
        }
        .write_to(out)
        .map_err(durable::unreadable("encode a commit for", self.dir()))
    }

    pub(super) fn hash_of(&self, kind: Kind, content: &[u8]) -> Result<Oid, StoreError> {
        let id = gix::objs::compute_hash(self.hash, kind, content);
        Ok(oid_of(&id.map_err(|error| gix_failed("hash an object for", self.dir(), &error))?))
    }

    /// Writes a loose object unless it is there, and notes that it is to be made durable.
    fn write(&self, kind: Kind, content: &[u8]) -> Result<Oid, StoreError> {
        let id = self.hash_of(kind, content)?;
        let object = self.object_id(id)?;
        let path = self.reading.loose().object_path(&object);
        let mut written = Written { path, dir_is_new: false, content: Some((kind, content.to_vec())) };
        durable::retry_vanished(|| {
            // An empty file is what a power cut leaves of an object that was not synced.
            if fs::metadata(&written.path).is_ok_and(|metadata| metadata.len() > 0) {
                // Whoever wrote it may not have synced it.
                let file = fs::File::open(&written.path).map_err(durable::unreadable("open", &written.path))?;
                return durable::sync_file(&file, &written.path, self.durability);
            }
            let mut nameless = Nameless::write(self.dir(), kind, content, self.durability)?;
            if kind == Kind::Commit {
                // Synced together with the ref, and only if its race is not lost before. A report may have more files
                // than may be open.
                self.nameless.borrow_mut().push((nameless, written.clone()));
            } else {
                written.dir_is_new = nameless.give_name(&written.path, self.durability)?;
            }
            Ok(())
        })?;
        if kind != Kind::Commit {
            self.pending.borrow_mut().push(written);
        }
        Ok(id)
    }

    /// Peels tags down to a commit. What is neither is returned as its kind.
    pub(super) fn peel(&self, mut id: Oid) -> Result<Result<Oid, Kind>, StoreError> {
        /// Deeper than anybody nests tags.
        const DEEPEST: u32 = 16;
        for _ in 0..DEEPEST {
            let mut content = Vec::new();
            match self.find_any(id, &mut content)? {
                Kind::Commit => return Ok(Ok(id)),
                Kind::Tag => {
                    let tag = gix::objs::TagRefIter::from_bytes(&content, self.hash).target_id();
                    id = oid_of(&tag.map_err(|error| StoreError::Damaged { id, found: error.to_string() })?);
                }
                kind => return Ok(Err(kind)),
            }
        }
        Ok(Err(Kind::Tag))
    }

    /// Reads an object of one kind into `out`.
    fn find(&self, id: Oid, kind: Kind, out: &mut Vec<u8>) -> Result<(), StoreError> {
        match self.find_any(id, out)? {
            found if found == kind => Ok(()),
            found => Err(StoreError::Damaged { id, found: format!("it is a {found}, not a {kind}") }),
        }
    }

    /// Reads an object into `out`.
    fn find_any(&self, id: Oid, out: &mut Vec<u8>) -> Result<Kind, StoreError> {
        let object = self.object_id(id)?;
        self.reading.find(id, &object, out)
    }

    /// gix's form of an id. One of the wrong length names nothing here.
    fn object_id(&self, id: Oid) -> Result<gix::ObjectId, StoreError> {
        let object = gix::ObjectId::try_from(id.as_bytes()).ok();
        object.filter(|object| object.kind() == self.hash).ok_or(StoreError::Missing { id })
    }
}
