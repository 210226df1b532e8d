//! Writing files so that they survive a power cut: whole, synced, and named by a synced directory.
//!
//! What must never happen here: a caller is told that something is durable while the file, or a directory that
//! leads to it, was not synced. With [`Durability::Process`] nothing is synced and nothing is promised.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{Durability, StoreError};

/// Turns the failure of a write into a store error that names the path. For `map_err`.
pub fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly { path: path.to_owned(), source }
        }
        _ => unreadable(doing, path)(source),
    }
}

/// Turns the failure of a read into a store error that names the path. For `map_err`.
pub fn unreadable(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io { what: format!("cannot {doing} {}", path.display()), source }
}

/// How often git may take something away under us before we give up.
const VANISHES_MAX: u32 = 100;

/// Tries again, a bounded number of times, while something that was there a moment ago is not: `git prune-packed`, which
/// every gc runs, removes loose objects that are in a pack by now, and the directories that this empties.
pub fn retry_vanished<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 1..VANISHES_MAX {
        match attempt() {
            Err(StoreError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            result => return result,
        }
    }
    attempt()
}

/// Creates a file that must not exist yet, with these bytes and this mode (less the umask). The caller syncs it and
/// its directory. The handle is returned, open for writing.
pub fn write_new_file(path: &Path, bytes: &[u8], mode: u32) -> Result<File, StoreError> {
    let create = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = create.map_err(failed("create", path))?;
    file.write_all(bytes).map_err(failed("write", path))?;
    Ok(file)
}

/// Asks the system to begin writing a file out, so that [`sync_file`] finds little left to wait for when several
/// files are synced one after the other. Promises nothing.
pub fn begin_sync(file: &File, durability: Durability) {
    // On Linux this advice starts writing what is dirty and does not wait for it.
    #[cfg(target_os = "linux")]
    if durability == Durability::Power {
        let _only_advice = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, durability);
}

/// Syncs the content of an open file.
pub fn sync_file(file: &File, path: &Path, durability: Durability) -> Result<(), StoreError> {
    match durability {
        Durability::Power => file.sync_all().map_err(failed("sync", path)),
        Durability::Process => Ok(()),
    }
}

/// Syncs a directory: the names in it, not what they name.
pub fn sync_dir(dir: &Path, durability: Durability) -> Result<(), StoreError> {
    sync_dir_io(dir, durability).map_err(failed("sync", dir))
}

/// As [`sync_dir`], for callers that report a failure in their own way.
pub fn sync_dir_io(dir: &Path, durability: Durability) -> io::Result<()> {
    if durability == Durability::Process {
        return Ok(());
    }
    match File::open(dir)?.sync_all() {
        // Some file systems (FUSE, SMB) cannot sync a directory and say so; there is nothing more to be had.
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        result => result,
    }
}

/// Creates a directory and its ancestors as needed, and syncs the parent of each one it created. Returns those,
/// outermost first.
pub fn create_dir_all(dir: &Path, durability: Durability) -> Result<Vec<PathBuf>, StoreError> {
    let mut missing: Vec<&Path> = Vec::new();
    for ancestor in dir.ancestors() {
        if ancestor.as_os_str().is_empty() || ancestor.is_dir() {
            break;
        }
        missing.push(ancestor);
    }
    let mut created = Vec::new();
    for dir in missing.into_iter().rev() {
        match fs::create_dir(dir) {
            Ok(()) => created.push(dir.to_owned()),
            // Somebody else was faster. Not ours to report, but its name must be durable all the same.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => {}
            Err(error) => return Err(failed("create the directory", dir)(error)),
        }
        if let Some(parent) = dir.parent() {
            sync_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent }, durability)?;
        }
    }
    Ok(created)
}

/// Renames a synced file over another name in the same directory, and syncs that directory.
pub fn rename(from: &Path, to: &Path, durability: Durability) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(failed("replace", to))?;
    match to.parent() {
        Some(dir) => sync_dir(dir, durability),
        None => Ok(()),
    }
}

/// Removes a file; one that is not there is no error.
pub fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_directories_that_were_missing_are_created_and_named() {
        let root = tempfile::tempdir().expect("a directory");
        let (a, b) = (root.path().join("a"), root.path().join("a/b"));
        assert_eq!(create_dir_all(&b, Durability::Power).expect("created"), [a, b.clone()]);
        assert!(create_dir_all(&b, Durability::Power).expect("there already").is_empty());
    }

    #[test]
    fn a_file_that_exists_is_never_overwritten_by_a_new_one() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("f");
        write_new_file(&path, b"one", 0o666).expect("written");
        assert!(matches!(write_new_file(&path, b"two", 0o666), Err(StoreError::Io { .. })));
        assert_eq!(fs::read(&path).expect("readable"), b"one");
    }

    #[test]
    fn what_may_not_be_written_is_named_as_such() {
        for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnlyFilesystem] {
            assert!(matches!(failed("write", Path::new("x"))(kind.into()), StoreError::ReadOnly { .. }));
        }
        let full = failed("write", Path::new("x"))(ErrorKind::StorageFull.into()).to_string();
        assert!(full.starts_with("cannot write x"), "{full}");
    }
}
