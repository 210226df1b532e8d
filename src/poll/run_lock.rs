//! The lock that is the pidfile: an OS lock on `poll.pid`, held for the poller's life.
//!
//! The kernel frees the lock when its holder dies, so that nothing is ever stale but the number in the file: the pid is
//! a note of the holder's, written under the lock, and means something only while the lock is held.
//!
//! What must never happen here: two processes hold the lock of one path; a question ("is it held?") makes a start fail;
//! a file is unlinked that somebody else has locked.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{PollError, look_at};
use crate::store::lock::{self, Wait};
use crate::store::{Durability, Mode, durable};

/// How long a start goes on trying while others merely ask who holds the lock, or the file is replaced under it.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the file may be replaced between opening and locking it, within that time.
const REPLACED_MAX: u32 = 1000;

/// More than any process id needs.
const PID_BYTES: u64 = 32;

/// The lock, held. Dropped, it removes its file and frees the lock.
#[derive(Debug)]
pub struct RunLock {
    path: PathBuf,
    file: File,
}

impl RunLock {
    /// Takes the lock at `path`, whose directory exists, and notes this process in it.
    ///
    /// # Errors
    /// `Held` by another holder, with its pid; `Unlockable` for any other reason.
    pub fn acquire(path: &Path) -> Result<RunLock, PollError> {
        let unlockable =
            |doing| move |source: io::Error| PollError::Unlockable { path: path.to_owned(), doing, source };
        let mut wait = Wait::new(PATIENCE);
        for _ in 0..REPLACED_MAX {
            let file = open(path).map_err(unlockable("opening it"))?;
            if !lock::try_lock(&file, Mode::Exclusive).map_err(unlockable("locking it"))? {
                // Somebody who only asks has it shared, for a moment: then so can we, and it is worth another try.
                let is_asked = lock::try_lock(&file, Mode::Shared).map_err(unlockable("locking it"))?;
                drop(file);
                if is_asked {
                    if wait.pause() {
                        continue;
                    }
                    break;
                }
                return Err(PollError::Held { path: path.to_owned(), pid: noted_holder(path).ok() });
            }
            // The one that we have locked may have been unlinked by its last holder after we opened it.
            if !names(path, &file) {
                continue;
            }
            let mut lock = RunLock { path: path.to_owned(), file };
            lock.note_pid().map_err(unlockable("writing the process id into it"))?;
            return Ok(lock);
        }
        Err(unlockable("locking it")(io::Error::other("others asked for it, or replaced it, again and again")))
    }

    fn note_pid(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        writeln!(self.file, "{}", std::process::id())?;
        self.file.sync_all()?;
        match self.path.parent() {
            Some(dir) => durable::sync_dir_io(dir, Durability::Power),
            None => Ok(()),
        }
    }

    /// Whether the path still names the file that is locked. If not, another poller could lock what stands there now.
    pub fn is_ours(&self) -> bool {
        names(&self.path, &self.file)
    }

    /// The lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Before the lock is freed, so that nobody can have locked it: whoever opened it by now sees that it is gone.
        if self.is_ours() {
            let _a_stale_note_harms_nobody = fs::remove_file(&self.path);
        }
    }
}

/// Whether somebody holds the lock: whether it could not be shared. Where there is no file nobody does.
///
/// # Errors
/// What the system says of a file that cannot be opened.
pub fn held(path: &Path) -> io::Result<bool> {
    match look_at(path) {
        Ok(file) => Ok(!lock::try_lock(&file, Mode::Shared)? && names(path, &file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The pid in the file, whoever wrote it: a number that means nothing unless the lock is [`held`].
pub fn recorded(path: &Path) -> Option<u32> {
    let mut text = String::new();
    look_at(path).ok()?.take(PID_BYTES).read_to_string(&mut text).ok()?;
    text.strip_suffix('\n')?.parse().ok().filter(|pid| *pid > 0)
}

/// The holder's pid, as far as it is known. Advisory: it may have ended since.
///
/// # Errors
/// As [`held`].
pub fn holder(path: &Path) -> io::Result<Option<u32>> {
    Ok(if held(path)? { recorded(path) } else { None })
}

/// The pid of the holder of a lock that is held. Who has just taken it has not noted its pid yet, and what stands there
/// may be the note of one that was killed: then that is waited for, for a moment.
///
/// # Errors
/// Why what is noted cannot be the holder.
pub fn noted_holder(path: &Path) -> Result<u32, String> {
    let mut wait = Wait::new(PATIENCE);
    loop {
        let why_not = match recorded(path) {
            None => "it has not noted its process id".to_owned(),
            Some(pid) => match why_not_holder(pid, path) {
                None => return Ok(pid),
                Some(why) => why,
            },
        };
        if !wait.pause() {
            return Err(why_not);
        }
    }
}

/// Why a process cannot be the holder of the lock; `None` where it has the very file open: more cannot be seen of it.
#[cfg(target_os = "linux")]
pub fn why_not_holder(pid: u32, path: &Path) -> Option<String> {
    let id = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let lock = fs::metadata(path).map(id).ok();
    match fs::read_dir(format!("/proc/{pid}/fd")) {
        Err(error) => Some(format!("process {pid}, which it names, cannot be looked at: {error}")),
        Ok(files) => {
            let is_lock = |file: fs::DirEntry| lock.is_some() && fs::metadata(file.path()).map(id).ok() == lock;
            let has_it_open = files.flatten().any(is_lock);
            (!has_it_open).then(|| {
                format!("process {pid}, which it names, does not have it open: that number may be of another container")
            })
        }
    }
}

/// Elsewhere the lock and the note in it must do.
#[cfg(not(target_os = "linux"))]
pub fn why_not_holder(_pid: u32, _path: &Path) -> Option<String> {
    None
}

/// Waits until nobody holds the lock, at most `patience`; whether that came.
///
/// # Errors
/// As [`held`].
pub fn wait_until_free(path: &Path, patience: Duration) -> io::Result<bool> {
    let mut wait = Wait::new(patience);
    while held(path)? {
        if !wait.pause() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Opens the file, and makes it if need be. A symbolic link is refused: what it points at is not ours to lock.
fn open(path: &Path) -> io::Result<File> {
    let flags = (rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path)
}

/// Whether `path` names this open file.
fn names(path: &Path, file: &File) -> bool {
    let same = |a: &Metadata, b: &Metadata| a.dev() == b.dev() && a.ino() == b.ino();
    matches!((fs::symlink_metadata(path), file.metadata()), (Ok(named), Ok(open)) if same(&named, &open))
}
