//! git's files backend for refs: reading, listing, and the compare-and-swap of one ref.
//!
//! gix's ref transaction is not used, since it loses updates while refs are being packed (`docs/decisions`). The
//! protocol is git's own: take `<ref>.lock`, read the loose file, else packed-refs opened after the lock, compare,
//! rename. So git and pm exclude each other. Under it lies the shard lock, which makes a leftover lock file provable.
//!
//! What must never happen here: a value read before the lock was taken decides a swap; a lock file that may be git's
//! is removed; a listing reads packed refs before loose ones.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::oid_of;
use super::prepared::{Prepared, heal};
use crate::id::{Oid, RefName, shown};
use crate::store::{Durability, RefRow, StoreError, Swap, durable, lock};

/// Below this size packed-refs is read, above it is mapped.
const MAP_ABOVE_BYTES: u64 = 32 * 1024;
/// How much of a loose ref is read: more than any object id, and enough to show what is there instead.
const LOOSE_BYTES: usize = 256;

/// The refs of one repository, shared by its worktrees.
#[derive(Debug)]
pub(super) struct Refs {
    pub(super) common_dir: PathBuf,
    pub(super) locks: PathBuf,
    pub(super) hash: gix::hash::Kind,
    pub(super) patience: Duration,
}

impl Refs {
    pub(super) fn new(common_dir: PathBuf, hash: gix::hash::Kind) -> Refs {
        Refs { locks: common_dir.join("pm").join("locks"), common_dir, hash, patience: lock::PATIENCE }
    }

    /// Where a ref points: its loose file, else packed-refs.
    pub(super) fn tip(&self, name: &RefName) -> Result<Option<Oid>, StoreError> {
        let path = self.path(name);
        match read_loose(&path).map_err(durable::unreadable("read", &path))? {
            Some(content) => self.parse(name, &content).map(Some),
            None => self.packed_tip(name),
        }
    }

    /// All refs below a prefix that ends in `/`, sorted by name.
    pub(super) fn tips(&self, prefix: &str) -> Result<Vec<RefRow>, StoreError> {
        let mut loose = Vec::new();
        let dir = self.common_dir.join(prefix);
        self.walk_loose(&dir, &mut prefix.to_owned(), &mut loose).map_err(durable::unreadable("list", &dir))?;
        loose.sort_by(|a, b| a.0.cmp(&b.0));
        // Only now: what a concurrent pack-refs took from the loose files is in the file opened here.
        let Some(packed) = self.open_packed()? else { return Ok(loose) };
        let path = self.packed_path();
        let damaged = |error: gix::Error| durable::unreadable("use", &path)(io::Error::other(error.to_string()));
        let mut rows = Vec::with_capacity(loose.len());
        let mut loose = loose.into_iter().peekable();
        for row in packed.iter_prefixed(prefix.into()).map_err(damaged)? {
            let row = row.map_err(damaged)?;
            let name = RefName::from_bytes(row.name.as_bstr());
            let mut is_hidden = false;
            while let Some(loose_row) = loose.next_if(|loose_row| loose_row.0 <= name) {
                is_hidden = loose_row.0 == name;
                rows.push(loose_row);
            }
            if !is_hidden {
                rows.push((name, Ok(oid_of(&row.target()))));
            }
        }
        rows.extend(loose);
        Ok(rows)
    }

    /// How many loose refs there are below a prefix that ends in `/`, without reading any.
    pub(super) fn count_loose(&self, prefix: &str) -> Result<usize, StoreError> {
        let dir = self.common_dir.join(prefix);
        count_files(&dir).map_err(durable::unreadable("list", &dir))
    }

    /// Moves a ref from `expected` to `new`, after `persist` has made durable what `new` leads to, and `along` has done
    /// under its lock what belongs to the move. The caller holds the ref's shard exclusively.
    pub(super) fn compare_and_swap(
        &self,
        name: &RefName,
        expected: Option<Oid>,
        new: Oid,
        durability: Durability,
        persist: impl FnOnce() -> Result<(), StoreError>,
        along: &mut dyn FnMut() -> Result<(), StoreError>,
    ) -> Result<Swap, StoreError> {
        self.check_name(name)?;
        self.heal_batch()?;
        // Under the shard lock but not git's, so only a no can be believed: it saves most losers every sync.
        let now = self.tip(name)?;
        if now != expected {
            return Ok(Swap::HeadMoved { actual: now });
        }
        let target = self.path(name);
        let mut prepared = self.prepare(name, &target)?;
        prepared.write(format!("{new}\n").as_bytes(), durability)?;
        // The system writes the value out while it waits for the objects.
        persist()?;
        prepared.sync(durability)?;
        prepared.link(self.patience, durability)?;
        let actual = self.tip(name)?;
        if actual != expected {
            return Ok(Swap::HeadMoved { actual });
        }
        along()?;
        prepared.rename_over(&target)?;
        if let Some(dir) = target.parent() {
            durable::sync_dir_io(dir, durability)
                .map_err(|source| StoreError::RecordedUnknown { name: name.clone(), source })?;
        }
        Ok(Swap::Done)
    }

    /// Removes a ref that is at `expected`: from packed-refs first, so that no older value shows through, then its loose
    /// file. The caller holds the ref's shard exclusively.
    pub(super) fn delete(&self, name: &RefName, expected: Oid, durability: Durability) -> Result<Swap, StoreError> {
        self.check_name(name)?;
        self.heal_batch()?;
        let target = self.path(name);
        let mut prepared = self.prepare(name, &target)?;
        prepared.link(self.patience, durability)?;
        let actual = self.tip(name)?;
        if actual != Some(expected) {
            return Ok(Swap::HeadMoved { actual });
        }
        if self.packed_tip(name)?.is_some() {
            self.unpack(name, durability)?;
        }
        durable::remove_if_there(&target).map_err(durable::failed("remove", &target))?;
        Ok(Swap::Done)
    }

    /// Removes the loose file of a ref if it still holds `expected`, under git's lock of it. Whether `packed` is what is seen
    /// then, which the caller has put into packed-refs. The caller holds the ref's shard exclusively.
    pub(super) fn remove_loose(
        &self,
        name: &RefName,
        expected: Option<Oid>,
        packed: Oid,
        durability: Durability,
    ) -> Result<bool, StoreError> {
        let target = self.path(name);
        let mut prepared = self.prepare(name, &target)?;
        prepared.link(self.patience, durability)?;
        let content = read_loose(&target).map_err(durable::unreadable("read", &target))?;
        let now = content.map(|content| self.parse(name, &content)).transpose()?;
        if now != expected {
            // Where it is gone, git has packed it meanwhile: over what was put there, or before.
            return Ok(now.is_none() && self.packed_tip(name)? == Some(packed));
        }
        durable::remove_if_there(&target).map_err(durable::failed("remove", &target))?;
        Ok(true)
    }

    /// Makes the prepared file of the ref's shard, after healing what a dead pm left there.
    fn prepare(&self, name: &RefName, target: &Path) -> Result<Prepared, StoreError> {
        let value = self.locks.join(format!("{:02x}.value", name.shard()));
        let lock = lock_of(target);
        if let Some(prepared) = Prepared::create(value.clone(), lock.clone())? {
            return Ok(prepared);
        }
        heal(&value, &lock, |same| find_lock(&self.common_dir.join("refs"), same, 0))?;
        // Nobody else makes this file while we hold the shard.
        Prepared::create(value.clone(), lock)?
            .ok_or_else(|| durable::failed("create", &value)(ErrorKind::AlreadyExists.into()))
    }

    /// The loose file of a ref.
    pub(super) fn path(&self, name: &RefName) -> PathBuf {
        self.common_dir.join(name.as_str())
    }

    pub(super) fn packed_path(&self) -> PathBuf {
        self.common_dir.join("packed-refs")
    }

    /// Refuses names that git would refuse: they become paths and lines here.
    pub(super) fn check_name(&self, name: &RefName) -> Result<(), StoreError> {
        match gix::validate::reference::name(name.as_str().into()) {
            Ok(_) if name.as_str().starts_with("refs/") => Ok(()),
            _ => Err(StoreError::Io {
                what: format!("'{}' is not a ref name", shown(name.as_str())),
                source: ErrorKind::InvalidInput.into(),
            }),
        }
    }

    pub(super) fn packed_tip(&self, name: &RefName) -> Result<Option<Oid>, StoreError> {
        let Some(packed) = self.open_packed()? else { return Ok(None) };
        let found = packed
            .try_find(name.as_str())
            .map_err(|error| durable::unreadable("use", &self.packed_path())(io::Error::other(error.to_string())))?;
        Ok(found.map(|found| oid_of(&found.target())))
    }

    /// Opens packed-refs anew: no snapshot is ever kept.
    fn open_packed(&self) -> Result<Option<gix::refs::packed::Buffer>, StoreError> {
        let path = self.packed_path();
        match gix::refs::packed::Buffer::open(path.clone(), MAP_ABOVE_BYTES, self.hash) {
            Ok(packed) => Ok(Some(packed)),
            Err(error) if is_io(&error, ErrorKind::NotFound) => Ok(None),
            Err(error) => Err(durable::unreadable("read", &path)(io::Error::other(error.to_string()))),
        }
    }

    /// Reads the value of a loose ref. A symbolic ref is as wrong here as garbage.
    pub(super) fn parse(&self, name: &RefName, content: &[u8]) -> Result<Oid, StoreError> {
        let text = std::str::from_utf8(content.trim_ascii_end()).ok();
        text.and_then(|hex| hex.to_ascii_lowercase().parse::<Oid>().ok())
            .filter(|id| id.as_bytes().len() == self.hash.len_in_bytes())
            .ok_or_else(|| StoreError::BrokenRef {
                name: name.clone(),
                found: shown(&String::from_utf8_lossy(content)),
            })
    }

    /// Collects the loose refs below `dir`, whose full name is `prefix`. Files and directories that vanish
    /// meanwhile are skipped: they are in packed-refs by then.
    fn walk_loose(&self, dir: &Path, prefix: &mut String, rows: &mut Vec<RefRow>) -> io::Result<()> {
        let entries = match fs::read_dir(dir) {
            Err(error) if is_absence(&error) => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let file_name = entry.file_name();
            let file_name = file_name.to_string_lossy();
            if file_name.ends_with(".lock") || file_name.starts_with('.') {
                continue;
            }
            let above = prefix.len();
            prefix.push_str(&file_name);
            if entry.file_type()?.is_dir() {
                prefix.push('/');
                self.walk_loose(&entry.path(), prefix, rows)?;
            } else if let Some(content) = read_loose(&entry.path())? {
                let name = RefName::from_full(prefix.clone());
                let value = self.parse(&name, &content);
                rows.push((name, value));
            }
            prefix.truncate(above);
        }
        Ok(())
    }
}

/// How many files there are in a directory and those below it. What vanishes meanwhile does not count.
fn count_files(dir: &Path) -> io::Result<usize> {
    let entries = match fs::read_dir(dir) {
        Err(error) if is_absence(&error) => return Ok(0),
        entries => entries?,
    };
    let mut count = 0;
    for entry in entries {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

/// The first bytes of a loose ref; `None` if there is no such file.
pub(super) fn read_loose(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Err(error) if is_absence(&error) => return Ok(None),
        file => file?,
    };
    let mut content = [0; LOOSE_BYTES];
    loop {
        return match file.read(&mut content) {
            // One read is enough: a regular file gives less than was asked for only at its end.
            Ok(len) => Ok(Some(content[..len].to_vec())),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A directory in the place of the file: the loose ref does not exist.
            Err(error) if is_absence(&error) => Ok(None),
            Err(error) => Err(error),
        };
    }
}

/// git's lock file for a path.
pub(super) fn lock_of(path: &Path) -> PathBuf {
    let mut lock = path.as_os_str().to_owned();
    lock.push(".lock");
    lock.into()
}

/// Whether an I/O error of this kind is at the bottom of a gix error.
pub(super) fn is_io(error: &gix::Error, kind: ErrorKind) -> bool {
    error.downcast_any_ref::<io::Error>().is_some_and(|error| error.kind() == kind)
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory)
}

/// Searches pm's ref namespaces for the lock file that passes `same`.
fn find_lock(dir: &Path, same: &dyn Fn(&Path) -> bool, depth: u32) -> io::Result<Option<PathBuf>> {
    /// Deeper than any ref of pm (`refs/pm-pending-branches/<queue>/<slug>/refs/heads/...` has a branch's name in it).
    const DEEPEST: u32 = 32;
    let entries = match fs::read_dir(dir) {
        Err(error) if is_absence(&error) => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let file_name = entry.file_name();
        let file_name = file_name.to_string_lossy();
        if depth == 0 && !file_name.starts_with("pm") {
            continue;
        }
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if depth < DEEPEST
                && let Some(found) = find_lock(&path, same, depth + 1)?
            {
                return Ok(Some(found));
            }
        } else if file_name.ends_with(".lock") && same(&path) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}
