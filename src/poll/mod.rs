//! The poller: the daemon of a machine, so that nobody has to remember `sweep` and maintenance (design, section 8).
//!
//! Two files below the state root tell of it, and they are two on purpose
//! (`docs/decisions/0013-the-lock-and-the-heartbeat-are-two-files.md`):
//!
//! - [`run_lock`]: `poll.pid`, the lock that is the pidfile. It alone says whether a poller runs, and which.
//! - [`heartbeat`]: `poll-status.json`, what the poller did and when. It names no process.
//!
//! [`daemon`] is the loop, [`maintenance`] one of its steps. From outside, [`control`] starts and stops it, and
//! [`status`] looks at it.

pub mod control;
pub mod daemon;
pub mod heartbeat;
pub mod maintenance;
pub mod run_lock;
pub mod status;

use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::error::Result;
use crate::store::git::GitStore;

/// Where the poller's files are: below `pm.stateRoot`, else `<git-common-dir>/pm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateRoot(PathBuf);

impl StateRoot {
    /// That of a repository, with what `pm.stateRoot` says; it need not exist. A relative path counts from the
    /// directory that all worktrees share, so that it is one for all of them.
    pub fn of(common_dir: &Path, set: Option<&Path>) -> StateRoot {
        StateRoot(common_dir.join(set.unwrap_or(Path::new("pm"))))
    }

    /// That of the repository that `dir` is in, whatever else its configuration says.
    ///
    /// # Errors
    /// `Unusable` where there is no repository, `Usage` where the path is none.
    pub fn find(dir: &Path) -> Result<StateRoot> {
        let store = GitStore::discover(dir)?;
        Ok(StateRoot::of(store.common_dir(), Config::state_root(&store)?.as_deref()))
    }

    /// This very directory.
    pub fn at(dir: PathBuf) -> StateRoot {
        StateRoot(dir)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.0
    }

    /// The lock that is the pidfile.
    pub fn run_lock(&self) -> PathBuf {
        self.0.join("poll.pid")
    }

    /// The heartbeat.
    pub fn heartbeat(&self) -> PathBuf {
        self.0.join("poll-status.json")
    }

    /// What a poller in the background says.
    pub fn log(&self) -> PathBuf {
        self.0.join("poll.log")
    }
}

/// Why a poller cannot be run, started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// Another poller holds the lock.
    #[error(
        "a poller runs here already{}; it holds {}. `pm poll status` tells of it, `pm poll stop` ends it",
        named(*pid),
        path.display()
    )]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The process, as far as it is known: it writes its number right after it took the lock.
        pid: Option<u32>,
    },
    /// The lock file cannot be used: a poller that cannot prove that it is alone must not run.
    #[error("the lock {} cannot be used, so no poller was started: {doing}: {source}", path.display())]
    Unlockable {
        /// The lock file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The lock cannot be asked whether it is held.
    #[error("whether a poller runs cannot be told: {}: {source}", path.display())]
    Unasked {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The poller's files are to be elsewhere from now on.
    #[error(
        "pm.stateRoot is {} now, and was {} when this poller started. It stopped, since nobody would find it there. `pm poll start` starts one anew",
        to.display(),
        from.display()
    )]
    Moved {
        /// Where they are.
        from: PathBuf,
        /// Where they should be.
        to: PathBuf,
    },
    /// The lock file was taken away or replaced while the poller ran.
    #[error(
        "{} is not the file any more that this poller has locked: somebody removed or replaced it. The poller stopped, since another one could start beside it. `pm poll start` starts one anew",
        path.display()
    )]
    Replaced {
        /// The lock file.
        path: PathBuf,
    },
    /// The poller that was started ended before it held the lock.
    #[error("{reason}")]
    NotStarted {
        /// What it said, or what became of it.
        reason: String,
    },
    /// The lock is held, but it cannot be told by whom.
    #[error(
        "{} is locked, so a poller runs, but {why}. Nothing was signalled. Where it was started it can be stopped",
        path.display()
    )]
    Unknown {
        /// The lock file.
        path: PathBuf,
        /// What does not fit.
        why: String,
    },
    /// The poller did not end in time.
    #[error(
        "the poller (process {pid}) was told to stop and has not ended after {waited_ms} ms: it ends after the step that it is in. `pm poll stop` waits again"
    )]
    StillRunning {
        /// The process.
        pid: u32,
        /// How long it was waited for, in milliseconds.
        waited_ms: u64,
    },
}

/// Opens a file of the poller's to look at it: without waiting for the other end of a pipe that stands in its place.
fn look_at(path: &Path) -> io::Result<std::fs::File> {
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(no_wait).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::new(ErrorKind::InvalidInput, "it is no file")) }
}

fn named(pid: Option<u32>) -> String {
    pid.map(|pid| format!(", as process {pid}")).unwrap_or_default()
}
