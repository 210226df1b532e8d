//! Running git: the only file that does.
//!
//! Architecture invariant: no answer about a task ever comes from here. git is run to configure the repository
//! and to show its own view of the ledger.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::{Error, Result};

/// What is set where `core.fsync` is unset: without it, a power cut after a default `git gc` or `git pack-refs`
/// can lose every packed ref (design, section 5).
pub const FSYNC: &str = "committed,reference";

/// The `git` program, working on one repository.
#[derive(Debug, Clone)]
pub struct Git {
    git_dir: PathBuf,
}

impl Git {
    /// git on the repository at `git_dir`.
    pub fn new(git_dir: &Path) -> Git {
        Git { git_dir: git_dir.to_owned() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        // What a hook or a wrapper exported must not redirect it elsewhere.
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"] {
            command.env_remove(name);
        }
        command.arg("--git-dir").arg(&self.git_dir).stdin(Stdio::null());
        command
    }

    /// Runs git and returns what it printed.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails, with what it said.
    pub fn output(&self, args: &[&str]) -> Result<String> {
        let what = format!("running git {}", args.join(" "));
        let output = self.command().args(args).output().map_err(Error::io(what.clone()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Io { what, source: std::io::Error::other(said) })
    }

    /// Makes git's own maintenance safe for the ledger's refs, in this repository only, unless `core.fsync` is set
    /// to anything. Returns whether this call set it.
    ///
    /// # Errors
    /// `Io` where the configuration cannot be written.
    pub fn set_fsync_if_unset(&self) -> Result<bool> {
        let is_set = || self.output(&["config", "--get", "core.fsync"]).is_ok();
        if is_set() {
            return Ok(false);
        }
        match self.output(&["config", "--local", "core.fsync", FSYNC]) {
            Ok(_) => Ok(true),
            // git does not wait for the lock of its configuration; whoever held it wanted the same.
            Err(_) if is_set() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a repository at `dir`.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails.
    pub fn init(dir: &Path) -> Result<()> {
        let what = format!("running git init {}", dir.display());
        let status = Command::new("git")
            .args(["-c", "init.defaultRefFormat=files", "init", "--quiet"])
            .arg(dir)
            .stdin(Stdio::null())
            .status()
            .map_err(Error::io(what.clone()))?;
        if status.success() { Ok(()) } else { Err(Error::Io { what, source: std::io::Error::other("git failed") }) }
    }
}
