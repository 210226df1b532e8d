//! Taking one of git's lock files so that a leftover is provably ours.
//!
//! The new content is prepared in a file of pm's own, and git's lock file is made as a hard link to it. Whoever
//! holds the same OS lock later and finds both names on one inode knows that a pm died there, and may remove the
//! lock. A lock file on any other inode may be git's, stalled in the middle of an update, and is never touched:
//! taking it over loses records (design, section 5).
//!
//! What must never happen here: a prepared file that exists already is opened for writing. It may be a second name
//! of a live ref.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::store::lock::Wait;
use crate::store::{Durability, StoreError, durable};

/// How often a directory that vanishes under us (`git pack-refs --prune` removes emptied ones) is made again.
const REMAKES: u32 = 100;

/// A prepared file, perhaps linked as git's lock file. Dropped, it removes both names, the lock file first.
#[derive(Debug)]
pub(super) struct Prepared {
    value: PathBuf,
    lock: PathBuf,
    file: File,
    linked: bool,
}

impl Prepared {
    /// Creates the prepared file. `None` if there is one: a pm died here, and the caller heals first.
    pub(super) fn create(value: PathBuf, lock: PathBuf) -> Result<Option<Prepared>, StoreError> {
        let create = || OpenOptions::new().write(true).create_new(true).open(&value);
        let mut result = create();
        if let (Err(error), Some(dir)) = (&result, value.parent())
            && error.kind() == ErrorKind::NotFound
        {
            durable::create_dir_all(dir, Durability::Process)?;
            result = create();
        }
        match result {
            Ok(file) => Ok(Some(Prepared { value, lock, file, linked: false })),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(durable::failed("create", &value)(error)),
        }
    }

    /// Writes the content.
    pub(super) fn write(&mut self, content: &[u8], durability: Durability) -> Result<(), StoreError> {
        self.file.write_all(content).map_err(durable::failed("write", &self.value))?;
        durable::begin_sync(&self.file, durability);
        Ok(())
    }

    /// Syncs the content.
    pub(super) fn sync(&self, durability: Durability) -> Result<(), StoreError> {
        durable::sync_file(&self.file, &self.value, durability)
    }

    /// Takes git's lock file, waiting at most `patience` for another holder. Its directory is created if need be.
    ///
    /// # Errors
    /// `Locked`, naming git's lock file, when the time ran out.
    pub(super) fn link(&mut self, patience: Duration, durability: Durability) -> Result<(), StoreError> {
        let mut wait = Wait::new(patience);
        let mut remakes = 0;
        loop {
            match (fs::hard_link(&self.value, &self.lock), self.lock.parent()) {
                (Ok(()), _) => break,
                (Err(error), _) if error.kind() == ErrorKind::AlreadyExists => {
                    if !wait.pause() {
                        return Err(wait.gave_up(&self.lock));
                    }
                }
                (Err(error), Some(dir))
                    if remakes < REMAKES && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
                {
                    remakes += 1;
                    match durable::create_dir_all(dir, durability) {
                        // An ancestor was removed while its child was being made.
                        Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
                        result => drop(result?),
                    }
                }
                (Err(error), _) => return Err(durable::failed("create", &self.lock)(error)),
            }
        }
        self.linked = true;
        Ok(())
    }

    /// Renames git's lock file over `target`, which ends the lock. An empty directory in its place, as git leaves
    /// them behind, is removed.
    pub(super) fn rename_over(mut self, target: &Path) -> Result<(), StoreError> {
        debug_assert!(self.linked);
        let mut result = fs::rename(&self.lock, target);
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::IsADirectory) {
            fs::remove_dir(target).map_err(durable::failed("replace the directory", target))?;
            result = fs::rename(&self.lock, target);
        }
        result.map_err(durable::failed("replace", target))?;
        self.linked = false;
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // What cannot be removed here is healed by the next one. The lock file goes first: without the prepared
        // file beside it nobody could tell whose it is.
        if self.linked && durable::remove_if_there(&self.lock).is_err() {
            return;
        }
        let _healed_by_the_next = durable::remove_if_there(&self.value);
    }
}

/// Removes what a dead pm left: the prepared file `value`, and first the lock file that is linked to it, looked for
/// among `likely` and, failing that, in `elsewhere` (a slow search, given the test for "is that inode").
///
/// The caller holds the OS lock under which `value` is made, so that its maker is certainly gone.
pub(super) fn heal(
    value: &Path,
    likely: &Path,
    elsewhere: impl FnOnce(&dyn Fn(&Path) -> bool) -> io::Result<Option<PathBuf>>,
) -> Result<(), StoreError> {
    let left = match fs::symlink_metadata(value) {
        Ok(left) => left,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(durable::unreadable("read", value)(error)),
    };
    if left.nlink() > 1 {
        // With no such lock file anywhere the other name is the ref itself: its maker died after the rename.
        let same = |path: &Path| is_same_file(path, &left);
        let lock = if same(likely) {
            Some(likely.to_owned())
        } else {
            elsewhere(&same).map_err(durable::unreadable("search for the lock of", value))?
        };
        if let Some(lock) = lock {
            durable::remove_if_there(&lock).map_err(durable::failed("remove", &lock))?;
        }
    }
    durable::remove_if_there(value).map_err(durable::failed("remove", value))
}

fn is_same_file(path: &Path, other: &Metadata) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.dev() == other.dev() && found.ino() == other.ino())
}
