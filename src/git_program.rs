//! Running git: the only file that does. Long, since every way in which pm runs it is here.
//!
//! Architecture invariant: no answer about a task ever comes from here. git is run to configure the repository, to
//! pack it, to show its own view of the ledger, and to carry objects and refs to a remote and back ([`network`]).

pub mod network;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Error, Result};

/// What is set where `core.fsync` is unset: without it, a power cut after a default `git gc` or `git pack-refs`
/// can lose every packed ref (design, section 5).
pub const FSYNC: &str = "committed,reference";

/// git's exit code for an option that it does not know.
const UNKNOWN_OPTION: i32 = 129;

/// How often a running git is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// How long a git may pack before it is told to end: what takes longer is no maintenance beside the work.
const PACKING_MAX: Duration = Duration::from_secs(3600);

/// How long a git that was told to end may clean up.
const ENDING_MAX: Duration = Duration::from_secs(10);

/// How much of what git says is kept, in bytes.
const SAID_MAX: u64 = 4096;

/// Variables that would lead git to another repository than the one that is meant.
pub const LEADS_ASTRAY: [&str; 5] =
    ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"];

/// How a git that may be stopped ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Ended {
    /// It did what it was asked.
    Done,
    /// It was told to stop, and cleaned up.
    Stopped,
}

/// A worktree, as git lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorktreeRow {
    /// Its directory.
    pub dir: PathBuf,
    /// The full name of the branch that is checked out there, or nothing.
    pub branch: String,
    /// A git that was killed never finished it.
    pub is_half_made: bool,
}

/// The beginning of what a program says, which is read to its end.
fn beginning(mut pipe: ChildStderr) -> String {
    let mut said = Vec::new();
    let _what_could_be_read = pipe.by_ref().take(SAID_MAX).read_to_end(&mut said);
    let _rest = std::io::copy(&mut pipe, &mut std::io::sink());
    String::from_utf8_lossy(&said).trim().to_owned()
}

fn program() -> Command {
    Command::new("git")
}

/// What `git --version` prints; `None` where git cannot be run.
pub fn version() -> Option<String> {
    let output = program().arg("--version").stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

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
        let mut command = program();
        // What a hook or a wrapper exported must not redirect it elsewhere.
        for name in LEADS_ASTRAY {
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
        // A signal to the terminal's processes is for pm, which decides what comes of it.
        let output = self.command().args(args).process_group(0).output().map_err(Error::io(what.clone()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Error::Io { what, source: std::io::Error::other(said) })
    }

    /// Packs the ledger's loose refs; with a git older than 2.42, all refs.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails.
    pub fn pack_refs(&self, stop: &dyn Fn() -> bool) -> Result<Ended> {
        match self.run_until(&["pack-refs", "--include", "refs/pm/*", "--include", "refs/pm-remote/*"], stop) {
            Err((Some(UNKNOWN_OPTION), _)) => self.run_until(&["pack-refs", "--all"], stop),
            result => result,
        }
        .map_err(|(_, error)| error)
    }

    /// Packs loose objects, and rolls small packs up; large ones and those that are kept stay. Deletes nothing but
    /// what is in the new pack.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails.
    pub fn repack(&self, stop: &dyn Fn() -> bool) -> Result<Ended> {
        self.run_until(&["repack", "--quiet", "-d", "-l", "--geometric=2"], stop).map_err(|(_, error)| error)
    }

    /// Runs git until it ends, or `stop` says yes: then it is told to end, and removes its temporary files and locks.
    /// A failure comes with git's exit code, where it has one.
    fn run_until(&self, args: &[&str], stop: &dyn Fn() -> bool) -> std::result::Result<Ended, (Option<i32>, Error)> {
        let what = format!("running git {}", args.join(" "));
        let failed = |error| (None, Error::io(what.clone())(error));
        let mut child = self
            .command()
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A signal to the terminal's processes is for pm, which passes it on.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        // Read all the while: git may say more than a pipe holds, and then waits for a reader.
        let stderr = child.stderr.take();
        let said = std::thread::spawn(move || stderr.map(beginning).unwrap_or_default());
        let group = Pid::from_child(&child);
        let started = Instant::now();
        let mut told_at: Option<Instant> = None;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            match told_at {
                None if stop() || started.elapsed() > PACKING_MAX => {
                    let _ended_by_itself = kill_process_group(group, Signal::TERM);
                    told_at = Some(Instant::now());
                }
                Some(at) if at.elapsed() > ENDING_MAX => {
                    let _ended_by_itself = kill_process_group(group, Signal::KILL);
                }
                _ => {}
            }
            std::thread::sleep(LOOK);
        };
        let said = said.join().unwrap_or_default();
        match (status.success(), told_at) {
            (true, _) => Ok(Ended::Done),
            (false, Some(_)) if stop() => Ok(Ended::Stopped),
            (false, Some(_)) => {
                let said = format!("it was ended after {} minutes", PACKING_MAX.as_secs() / 60);
                Err((None, Error::Io { what, source: std::io::Error::other(said) }))
            }
            (false, None) => Err((status.code(), Error::Io { what, source: std::io::Error::other(said) })),
        }
    }

    /// The value of a configuration key, of all scopes.
    pub fn get(&self, key: &str) -> Option<String> {
        self.output(&["config", "--get", key]).ok().map(|value| value.trim().to_owned())
    }

    /// Whether a switch of the configuration is on; `None` where it is unset, or set to nonsense.
    pub fn is_on(&self, key: &str) -> Option<bool> {
        self.output(&["config", "--type=bool", "--get", key]).ok().map(|value| value.trim() == "true")
    }

    /// Sets a configuration key in this repository.
    ///
    /// # Errors
    /// `Io` where the configuration cannot be written.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        self.output(&["config", "--local", key, value]).map(drop)
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

    /// The whole configuration, as `git config --list -z --show-scope` tells it.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails.
    pub fn settings(&self) -> Result<String> {
        self.output(&["config", "--list", "-z", "--show-scope"])
    }

    /// The names of the remotes.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails.
    pub fn remotes(&self) -> Result<Vec<String>> {
        Ok(self.output(&["remote"])?.lines().map(str::to_owned).collect())
    }

    /// Where a remote is read from, and all places that a push to it goes to.
    ///
    /// # Errors
    /// `Io` where there is no such remote, or git cannot be run or fails.
    pub fn urls(&self, remote: &str) -> Result<(String, Vec<String>)> {
        let read = self.output(&["remote", "get-url", remote])?;
        let written = self.output(&["remote", "get-url", "--push", "--all", remote])?;
        Ok((read.trim_end().to_owned(), written.lines().map(str::to_owned).collect()))
    }

    /// The commit that a ref leads to; `None` where there is no such ref.
    pub fn commit_of(&self, name: &str) -> Option<String> {
        let commit = format!("{name}^{{commit}}");
        self.output(&["rev-parse", "--quiet", "--verify", &commit]).ok().map(|id| id.trim().to_owned())
    }

    /// The worktrees.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails.
    pub fn worktrees(&self) -> Result<Vec<WorktreeRow>> {
        let listed = self.output(&["worktree", "list", "--porcelain"])?;
        let row = |block: &str| {
            let field = |key: &str| block.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
            Some(WorktreeRow {
                dir: PathBuf::from(field("worktree ")?),
                branch: field("branch ").unwrap_or_default(),
                is_half_made: field("locked ").is_some_and(|why| why == "initializing"),
            })
        };
        Ok(listed.split("\n\n").filter_map(row).collect())
    }

    /// Adds a worktree at `dir` with a branch that exists, or with a new one at `start`, unless `stop` says yes meanwhile.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails, with what it said.
    pub fn add_worktree(
        &self,
        dir: &Path,
        branch: &str,
        start: Option<&str>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Ended> {
        let dir = dir.to_string_lossy();
        match start {
            Some(start) => self.run_until(&["worktree", "add", "--quiet", "-b", branch, &dir, start], stop),
            None => self.run_until(&["worktree", "add", "--quiet", &dir, branch], stop),
        }
        .map_err(|(_, error)| error)
    }

    /// Removes a worktree, whatever is in it, also one that git itself left half made.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails.
    pub fn discard_worktree(&self, dir: &Path) -> Result<()> {
        self.output(&["worktree", "remove", "--force", "--force", &dir.to_string_lossy()]).map(drop)
    }

    /// Removes a worktree in which there is nothing that is not committed.
    ///
    /// # Errors
    /// `Io` where there is, or git cannot be run or fails.
    pub fn remove_worktree(&self, dir: &Path) -> Result<()> {
        // git asks its own status, which may be set to say nothing of new files.
        let all = "status.showUntrackedFiles=normal";
        self.output(&["-c", all, "worktree", "remove", &dir.to_string_lossy()]).map(drop)
    }

    /// Whether git takes this as the full name of a ref.
    pub fn is_ref_name(&self, name: &str) -> bool {
        self.output(&["check-ref-format", name]).is_ok()
    }

    /// Whether one commit leads to another.
    pub fn is_ancestor(&self, old: &str, new: &str) -> bool {
        self.output(&["merge-base", "--is-ancestor", old, new]).is_ok()
    }

    /// Moves a branch, given by its full name, forwards to `commit`, or creates it there. One that is there already stays.
    ///
    /// # Errors
    /// Why it was not moved: it has commits that `commit` has not, a worktree has it checked out, or git failed.
    pub fn advance_branch(&self, branch: &str, commit: &str) -> std::result::Result<(), String> {
        let old = self.commit_of(branch);
        if let Some(old) = &old {
            if old == commit {
                return Ok(());
            }
            if !self.is_ancestor(old, commit) {
                return Err(format!("it has moved on, to {old}: rebase onto it, and try again"));
            }
        }
        let rows = self.worktrees().map_err(|error| error.to_string())?;
        if let Some(row) = rows.iter().find(|row| row.branch == branch) {
            let dir = row.dir.display();
            return Err(format!("it is checked out in {dir}, whose files would not follow; deliver to another branch"));
        }
        let zeros = "0".repeat(commit.len());
        let old = old.as_deref().unwrap_or(&zeros);
        let message = "pm: delivered with a finished task";
        self.output(&["update-ref", "--create-reflog", "-m", message, branch, commit, old])
            .map(drop)
            .map_err(|error| format!("{error}: try again"))
    }

    /// Deletes a branch that is still at `commit`.
    ///
    /// # Errors
    /// `Io` where it is elsewhere, or git cannot be run or fails.
    pub fn delete_branch(&self, branch: &str, commit: &str) -> Result<()> {
        self.output(&["update-ref", "-d", &format!("refs/heads/{branch}"), commit]).map(drop)
    }

    /// Creates a repository at `dir`.
    ///
    /// # Errors
    /// `Io` where git cannot be run or fails.
    pub fn init(dir: &Path) -> Result<()> {
        let what = format!("running git init {}", dir.display());
        let status = program()
            .args(["-c", "init.defaultRefFormat=files", "init", "--quiet"])
            .arg(dir)
            .stdin(Stdio::null())
            .status()
            .map_err(Error::io(what.clone()))?;
        if status.success() { Ok(()) } else { Err(Error::Io { what, source: std::io::Error::other("git failed") }) }
    }
}
