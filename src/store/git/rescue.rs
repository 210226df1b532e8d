//! Keeping the objects of new records while `git gc` runs, and putting back those that it deleted.
//!
//! `git gc --prune=now` deletes every object that was unreachable when it looked, also those that a record's ref
//! points at since (git's own documentation warns of it). git tells nobody what it saw. But it holds `gc.pid` while
//! it works, so: whoever moves a ref while that file names a live process links the objects of the move into
//! `<git-common-dir>/pm/rescue/`, and writes again what is gone already. A reader that misses an object links all of
//! them back first; the first writer after the gc does so too, and empties the folder.
//!
//! What must never happen here: a file is taken out of the folder while a gc runs that may not have seen its ref. A
//! prune without `git gc` (no `gc.pid`) is not noticed: for that there is no remedy here.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::objects::Objects;
use crate::store::lock::{self, Wait};
use crate::store::{Durability, Mode, StoreError, durable};

/// After so long git itself no longer believes that a `gc.pid` is alive.
const GC_LASTS_AT_MOST: Duration = Duration::from_secs(12 * 3600);

/// The rescue folder of one repository.
#[derive(Debug)]
pub(super) struct Rescue {
    dir: PathBuf,
    lock: PathBuf,
    gc_pid: PathBuf,
}

impl Rescue {
    pub(super) fn new(common_dir: &Path) -> Rescue {
        let pm = common_dir.join("pm");
        Rescue { dir: pm.join("rescue"), lock: pm.join("locks").join("rescue"), gc_pid: common_dir.join("gc.pid") }
    }

    /// To be called after a ref was moved to objects that `objects` wrote, before the move is acknowledged. Two looks
    /// at the disk where no gc runs and none ran.
    pub(super) fn after_move(&self, objects: &Objects, durability: Durability) -> Result<(), StoreError> {
        let gc_runs = self.gc_runs();
        if !gc_runs {
            // In this order: a gc that is not running now has deleted what it would, or will see the ref.
            objects.write_missing_again()?;
        }
        if !gc_runs && !self.dir.exists() {
            objects.forget_written();
            return Ok(());
        }
        let _lock = self.lock()?;
        if gc_runs {
            durable::create_dir_all(&self.dir, durability)?;
            objects.each_written(|path| self.keep(path, objects.dir()))?;
            durable::sync_dir(&self.dir, durability)?;
        } else if !self.gc_runs() {
            // Asked again under the lock: a gc that started since has seen every ref that these files were kept for.
            self.put_back(objects.dir(), durability)?;
            self.empty().map_err(durable::failed("empty", &self.dir))?;
        }
        objects.forget_written();
        Ok(())
    }

    /// Puts back what a gc deleted. Returns whether that was anything.
    pub(super) fn restore(&self, objects: &Objects) -> Result<bool, StoreError> {
        if !self.dir.exists() {
            return Ok(false);
        }
        let _lock = self.lock()?;
        self.put_back(objects.dir(), objects.durability)
    }

    fn lock(&self) -> Result<fs::File, StoreError> {
        lock::acquire_file(&self.lock, Mode::Exclusive, &mut Wait::new(lock::PATIENCE))
    }

    /// Links one file of the object directory into the folder. `NotFound` where it is gone already.
    fn keep(&self, path: &Path, objects: &Path) -> io::Result<()> {
        let Ok(relative) = path.strip_prefix(objects) else { return Ok(()) };
        let name = relative.to_string_lossy().replace('/', "_");
        match fs::hard_link(path, self.dir.join(name)) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            result => result,
        }
    }

    /// Links everything back and syncs the directories that name it now. Returns whether anything was missing.
    fn put_back(&self, objects: &Path, durability: Durability) -> Result<bool, StoreError> {
        let failed = || durable::failed("restore objects from", &self.dir);
        let mut dirs = BTreeSet::new();
        durable::retry_vanished(|| {
            for entry in self.entries().map_err(failed())? {
                let entry = entry.map_err(failed())?;
                let target = objects.join(entry.file_name().to_string_lossy().replacen('_', "/", 1));
                if let Some(dir) = target.parent() {
                    durable::create_dir_all(dir, durability)?;
                }
                match fs::hard_link(entry.path(), &target) {
                    Ok(()) => dirs.extend(target.parent().map(Path::to_owned)),
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(failed()(error)),
                }
            }
            dirs.iter().try_for_each(|dir| durable::sync_dir(dir, durability))
        })?;
        Ok(!dirs.is_empty())
    }

    fn empty(&self) -> io::Result<()> {
        for entry in self.entries()? {
            durable::remove_if_there(&entry?.path())?;
        }
        match fs::remove_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    /// What is in the folder: nothing, where another process emptied it while this one waited for the lock.
    fn entries(&self) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
        match fs::read_dir(&self.dir) {
            Ok(entries) => Ok(Some(entries).into_iter().flatten()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None.into_iter().flatten()),
            Err(error) => Err(error),
        }
    }

    /// Whether `gc.pid` names a process that may still be at work.
    pub(super) fn gc_runs(&self) -> bool {
        let Ok(modified) = fs::metadata(&self.gc_pid).and_then(|metadata| metadata.modified()) else { return false };
        if SystemTime::now().duration_since(modified).is_ok_and(|age| age > GC_LASTS_AT_MOST) {
            return false;
        }
        let note = fs::read_to_string(&self.gc_pid).unwrap_or_default();
        let mut words = note.split_whitespace();
        let pid = words.next().and_then(|pid| pid.parse().ok()).and_then(rustix::process::Pid::from_raw);
        let here = rustix::system::uname();
        match (pid, words.next()) {
            // Only of a process of this machine can it be said that it is gone.
            (Some(pid), Some(host)) if host.as_bytes() == here.nodename().to_bytes() => {
                rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH)
            }
            _ => true,
        }
    }
}
