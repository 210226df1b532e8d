//! Shard locks: 256 OS file locks that stand between the pm processes of one repository.
//!
//! The kernel frees a lock when its holder dies, so none is ever stale. git does not know these locks: they never
//! replace git's own ref locks, they only exclude other pm processes (design, section 5).
//!
//! What must never happen here: a lock file is unlinked (two processes would then lock two different files), or a
//! wait has no bound.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::{Duration, Instant};

use fs4::{FileExt, TryLockError};

use super::{Durability, Mode, StoreError, durable};

/// The bound of every wait for a lock.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The first pause of a wait; each pause may be twice the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
/// The longest pause of a wait.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// The shard locks that a caller holds; dropping it frees them.
#[derive(Debug)]
pub struct Held {
    shards: Vec<(u8, Mode)>,
    /// Open for as long as the locks are to be held; empty for the memory store.
    _files: Vec<File>,
}

impl Held {
    /// Whether this shard is held, at least in this mode.
    pub fn holds(&self, shard: u8, mode: Mode) -> bool {
        self.shards.iter().any(|&(held, held_mode)| held == shard && held_mode >= mode)
    }

    /// The same, with another lock, which is held as long.
    pub fn and(mut self, other: Option<File>) -> Held {
        self._files.extend(other);
        self
    }

    /// A holding without files, for the memory store: there are no other processes to exclude.
    pub(super) fn without_files(shards: &[(u8, Mode)]) -> Held {
        Held { shards: in_order(shards), _files: Vec::new() }
    }
}

/// Takes the locks of these shards below `dir`, in index order, waiting at most `patience` in all. A shard named
/// twice is taken once, in the stronger mode. `None` when `worthwhile` said no while it waited.
///
/// # Errors
/// `Locked`, naming the lock file, when the time ran out.
pub fn acquire(
    dir: &Path,
    shards: &[(u8, Mode)],
    patience: Duration,
    worthwhile: &dyn Fn() -> Result<bool, StoreError>,
) -> Result<Option<Held>, StoreError> {
    let shards = in_order(shards);
    let mut wait = Wait::new(patience);
    let mut files = Vec::with_capacity(shards.len());
    for &(shard, mode) in &shards {
        match acquire_while(&dir.join(format!("{shard:02x}")), mode, &mut wait, worthwhile)? {
            Some(file) => files.push(file),
            None => return Ok(None),
        }
    }
    Ok(Some(Held { shards, _files: files }))
}

/// Takes one lock file, created if need be. The lock lasts as long as the returned handle.
pub fn acquire_file(path: &Path, mode: Mode, wait: &mut Wait) -> Result<File, StoreError> {
    Ok(acquire_while(path, mode, wait, &|| Ok(true))?.expect("it is always worthwhile"))
}

fn acquire_while(
    path: &Path,
    mode: Mode,
    wait: &mut Wait,
    worthwhile: &dyn Fn() -> Result<bool, StoreError>,
) -> Result<Option<File>, StoreError> {
    let file = open(path, mode)?;
    loop {
        if try_lock(&file, mode).map_err(durable::unreadable("lock", path))? {
            return Ok(Some(file));
        }
        if !wait.pause() {
            return Err(wait.gave_up(path));
        }
        if !worthwhile()? {
            return Ok(None);
        }
    }
}

/// Tries to take a lock without waiting.
pub fn try_lock(file: &File, mode: Mode) -> io::Result<bool> {
    // Written out in full since std's own methods of the same names would be found first.
    let result = match mode {
        Mode::Shared => FileExt::try_lock_shared(file),
        Mode::Exclusive => FileExt::try_lock(file),
    };
    match result {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Opens a lock file. Writing is asked for only where it may be needed (to create it; NFS wants it for an
/// exclusive lock), so that readers can lock files of other users.
fn open(path: &Path, mode: Mode) -> Result<File, StoreError> {
    if mode == Mode::Shared {
        match File::open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result.map_err(durable::unreadable("open", path)),
        }
    }
    let create = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut result = create();
    if let (Err(error), Some(dir)) = (&result, path.parent())
        && error.kind() == ErrorKind::NotFound
    {
        durable::create_dir_all(dir, Durability::Process)?;
        result = create();
    }
    match result {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            File::open(path).map_err(|_| durable::failed("open", path)(error))
        }
        result => result.map_err(durable::failed("open", path)),
    }
}

fn in_order(shards: &[(u8, Mode)]) -> Vec<(u8, Mode)> {
    let mut shards = shards.to_vec();
    // The stronger mode first, so that it is the one that stays.
    shards.sort_by_key(|&(shard, mode)| (shard, std::cmp::Reverse(mode)));
    shards.dedup_by_key(|&mut (shard, _)| shard);
    shards
}

/// A bounded wait in short, jittered, growing pauses.
#[derive(Debug)]
pub struct Wait {
    started: Instant,
    patience: Duration,
    pause: Duration,
}

impl Wait {
    /// Starts the clock.
    pub fn new(patience: Duration) -> Wait {
        Wait { started: Instant::now(), patience, pause: FIRST_PAUSE }
    }

    /// Sleeps a little. `false`, at once, when the time has run out.
    pub fn pause(&mut self) -> bool {
        if self.started.elapsed() >= self.patience {
            return false;
        }
        // Between half and all of the pause, so that processes that collided once do not go on in step.
        let jitter = getrandom::u32().unwrap_or(0);
        let half = self.pause / 2;
        std::thread::sleep(half + half.mul_f64(f64::from(jitter) / f64::from(u32::MAX)));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }

    /// The error of having waited in vain for `path`.
    pub(super) fn gave_up(&self, path: &Path) -> StoreError {
        let waited_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        StoreError::Locked { path: path.to_owned(), waited_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn one_may_write_or_many_may_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let take_shard = |shard, mode| acquire_file(&dir.path().join(shard), mode, &mut Wait::new(SHORT));
        let take = |mode| acquire(dir.path(), &[(7, mode)], SHORT, &|| Ok(true)).map(Option::unwrap);
        let reader = take(Mode::Shared).expect("free");
        let _second = take(Mode::Shared).expect("shared");
        let error = take(Mode::Exclusive).expect_err("held by readers");
        assert!(matches!(&error, StoreError::Locked { path, .. } if path.ends_with("07")), "{error}");
        drop((reader, _second));
        let writer = take(Mode::Exclusive).expect("free again");
        assert!(take(Mode::Shared).is_err());
        assert!(take_shard("08", Mode::Exclusive).is_ok(), "another shard is free");
        assert!(writer.holds(7, Mode::Exclusive) && writer.holds(7, Mode::Shared) && !writer.holds(8, Mode::Shared));
    }

    #[test]
    fn whoever_waits_in_vain_is_told_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let take = |worthwhile| acquire(dir.path(), &[(7, Mode::Exclusive)], PATIENCE, &move || Ok(worthwhile));
        let held = take(true).expect("free");
        assert!(take(false).expect("no failure").is_none());
        drop(held);
        // A process that another test starts just now has the file open, too, until it runs its own program.
        let started = Instant::now();
        while take(false).expect("no failure").is_none() {
            assert!(started.elapsed() < PATIENCE, "nobody is asked where nobody waits");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_shard_named_twice_is_taken_once_in_the_stronger_mode() {
        let dir = tempfile::tempdir().expect("a directory");
        let shards = [(3, Mode::Shared), (1, Mode::Shared), (3, Mode::Exclusive)];
        let held = acquire(dir.path(), &shards, SHORT, &|| Ok(true)).expect("no deadlock").expect("with oneself");
        assert_eq!(held.shards, [(1, Mode::Shared), (3, Mode::Exclusive)]);
        assert_eq!(Held::without_files(&shards).shards, held.shards);
    }

    #[test]
    fn a_reader_can_lock_a_file_that_it_cannot_write() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("00");
        std::fs::write(&path, b"").expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).expect("read-only");
        for mode in [Mode::Shared, Mode::Exclusive] {
            assert!(acquire_file(&path, mode, &mut Wait::new(SHORT)).is_ok());
        }
    }
}
