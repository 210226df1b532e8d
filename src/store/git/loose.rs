//! Writing the files of loose objects.
//!
//! What must never happen here: a file that is not synced stands under an object's name. A power cut would leave it
//! empty, and an empty object file makes every later `git gc` fail, even if nothing refers to it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use gix::objs::Kind;
use gix::zlib::Compression;
use gix::zlib::stream::deflate;

use super::pack::{KEEP, KEEP_CONTENT};
use super::stored::wrap;
use crate::store::{Durability, StoreError, durable};

/// The mode of an object file, less the umask: nobody writes to an object.
const READ_ONLY: u32 = 0o444;

/// How the names of temporary files begin; gix begins its own with the first four of these bytes.
const TEMPORARY: &str = ".tmp-pm-";

/// An object in a temporary file, without its name and not synced yet. Dropped, it is removed.
#[derive(Debug)]
pub(super) struct Nameless {
    path: PathBuf,
    file: File,
    has_name: bool,
}

impl Nameless {
    /// Writes an object into the object directory `objects`.
    pub(super) fn write(
        objects: &Path,
        kind: Kind,
        content: &[u8],
        durability: Durability,
    ) -> Result<Nameless, StoreError> {
        let mut whole = gix::objs::encode::loose_header(kind, content.len() as u64).to_vec();
        whole.extend_from_slice(content);
        let mut packed = Vec::with_capacity(whole.len() / 2 + 64);
        if kind == Kind::Blob {
            let mut deflate = deflate::Write::new(&mut packed, Compression::BEST_SPEED);
            deflate
                .write_all(&whole)
                .and_then(|()| deflate.flush())
                .map_err(durable::unreadable("compress for", objects))?;
        } else {
            // A commit fits into one disk block either way, and is read many times.
            wrap(&whole, &mut packed);
        }
        let path = temporary(objects)?;
        let file = durable::write_new_file(&path, &packed, READ_ONLY).inspect_err(|_| {
            let _swept_later = durable::remove_if_there(&path);
        })?;
        durable::begin_sync(&file, durability);
        Ok(Nameless { path, file, has_name: false })
    }

    /// Syncs the file and gives it the object's name, but does not sync the directory. Returns whether that directory
    /// had to be made.
    pub(super) fn give_name(&mut self, name: &Path, durability: Durability) -> Result<bool, StoreError> {
        durable::sync_file(&self.file, &self.path, durability)?;
        let rename = || fs::rename(&self.path, name);
        let dir_is_new = match (rename(), name.parent()) {
            (Ok(()), _) => false,
            // git removes a directory of objects when it is empty.
            (Err(error), Some(dir)) if error.kind() == ErrorKind::NotFound => {
                durable::create_dir_all(dir, Durability::Process)?;
                rename().map(|()| true).map_err(durable::failed("create", name))?
            }
            (Err(error), _) => return Err(durable::failed("create", name)(error)),
        };
        self.has_name = true;
        Ok(dir_is_new)
    }
}

impl Drop for Nameless {
    fn drop(&mut self) {
        if !self.has_name {
            let _swept_later = durable::remove_if_there(&self.path);
        }
    }
}

/// A name for a temporary file that nobody else uses.
fn temporary(objects: &Path) -> Result<PathBuf, StoreError> {
    let random = getrandom::u64().map_err(|error| StoreError::Io {
        what: "drawing random bits for a temporary file".to_owned(),
        source: io::Error::other(error.to_string()),
    })?;
    Ok(objects.join(format!("{TEMPORARY}{random:016x}")))
}

/// About how many loose objects there are: ids are spread evenly over 256 directories, and four of them are counted.
pub(super) fn estimate(objects: &Path) -> Result<usize, StoreError> {
    const SAMPLE: [&str; 4] = ["17", "5b", "9d", "e2"];
    let mut found = 0;
    for dir in SAMPLE {
        let dir = objects.join(dir);
        found += match fs::read_dir(&dir) {
            Ok(entries) => entries.count(),
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(durable::unreadable("list", &dir)(error)),
        };
    }
    Ok(found * 256 / SAMPLE.len())
}

/// See [`super::GitStore::sweep_temporaries`].
pub(super) fn sweep_temporaries(objects: &Path, max_age: Duration) -> Result<usize, StoreError> {
    each_temporary(objects, max_age, &|path| fs::remove_file(path).is_ok())
}

/// See [`super::GitStore::orphans`].
pub(super) fn count_temporaries(objects: &Path, max_age: Duration) -> Result<usize, StoreError> {
    each_temporary(objects, max_age, &|_| true)
}

/// Does something to each temporary file that is old enough; returns how often that went well.
fn each_temporary(objects: &Path, max_age: Duration, act: &dyn Fn(&Path) -> bool) -> Result<usize, StoreError> {
    let is_object = |name: &str, _: &Path| name.starts_with(".tmp");
    // Of the files that keep packs only pm's own: others are there because somebody wants them.
    let is_keep =
        |name: &str, path: &Path| name.ends_with(KEEP) && fs::read(path).is_ok_and(|content| content == KEEP_CONTENT);
    Ok(in_dir(objects, max_age, is_object, act)? + in_dir(&objects.join("pack"), max_age, is_keep, act)?)
}

fn in_dir(
    dir: &Path,
    max_age: Duration,
    is_ours: impl Fn(&str, &Path) -> bool,
    act: &dyn Fn(&Path) -> bool,
) -> Result<usize, StoreError> {
    let failed = || durable::unreadable("list", dir);
    let mut done = 0;
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(failed())?,
    };
    for entry in entries {
        let entry = entry.map_err(failed())?;
        if !is_ours(&entry.file_name().to_string_lossy(), &entry.path()) {
            continue;
        }
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let is_old = modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > max_age));
        if is_old && act(&entry.path()) {
            done += 1;
        }
    }
    Ok(done)
}
