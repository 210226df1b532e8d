//! Where a command works: the file with the task's text, and with `--worktree` a git worktree of its own.
//!
//! What must never happen here: work that is not committed is removed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::supply::Taken;
use crate::error::{Error, Result};
use crate::git_program::{Ended, Git};
use crate::id::Oid;
use crate::session::Session;
use crate::store::{Mode, lock};

/// Text files that a killed runner left are removed by the next one after so long.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Where one command works.
#[derive(Debug)]
pub struct Desk {
    /// The task's text.
    pub body_file: PathBuf,
    /// Whether there is any.
    pub has_body: bool,
    /// The worktree.
    pub worktree: Option<Worktree>,
    /// The commit at HEAD before.
    before: Option<Oid>,
    /// Locked for as long as the text is in use, so that nobody takes it for one that was left behind.
    _in_use: File,
}

/// A worktree of one task.
#[derive(Debug)]
pub struct Worktree {
    /// Its directory.
    pub dir: PathBuf,
    branch: String,
    /// The commit that a new branch begins at; why there is none, where HEAD leads to no commit.
    start: std::result::Result<String, String>,
    /// git was asked to make it, where there was nothing before.
    is_being_made: bool,
    git: Git,
}

/// The directory for the tasks' texts.
fn texts(session: &Session) -> PathBuf {
    session.state_dir().join("work")
}

/// Removes texts that runners which were killed left behind.
pub fn sweep_texts(session: &Session) {
    for (path, _locked) in left_texts(&session.state_dir()) {
        let _another_may_have_been_faster = fs::remove_file(path);
    }
}

/// The texts below `<git-common-dir>/pm` that runners which were killed left behind: old, and in use by nobody. Each is
/// locked for as long as its file is open here.
pub fn left_texts(state_dir: &Path) -> Vec<(PathBuf, File)> {
    let Ok(entries) = fs::read_dir(state_dir.join("work")) else { return Vec::new() };
    let left = |path: PathBuf| {
        let age =
            fs::metadata(&path).and_then(|metadata| metadata.modified()).ok().and_then(|time| time.elapsed().ok());
        let file = age.filter(|age| *age > LEFT_AFTER).and_then(|_| File::open(&path).ok())?;
        lock::try_lock(&file, Mode::Exclusive).unwrap_or(false).then_some((path, file))
    };
    entries.flatten().filter_map(|entry| left(entry.path())).collect()
}

/// The directory for worktrees: beside the repository, so that no tool that walks it meets them.
pub fn worktree_root(session: &Session) -> PathBuf {
    let common = session.store.common_dir();
    let is_inside = common.file_name().is_some_and(|name| name == ".git");
    let repository = if is_inside { common.parent().unwrap_or(common) } else { common };
    let mut name = repository.file_name().unwrap_or_default().to_owned();
    name.push(".worktrees");
    repository.with_file_name(name)
}

impl Desk {
    /// Sets one up; with `worktree`, which is open, the command works there.
    ///
    /// # Errors
    /// `Io` where the text cannot be written.
    pub fn set_up(session: &Session, taken: &Taken, worktree: Option<Worktree>) -> Result<Desk> {
        let dir = texts(session);
        let body_file = dir.join(format!("{}.txt", taken.claim));
        let body = session.ledger().record(&taken.name, taken.state.id.record())?.body.unwrap_or_default();
        let failed = |path: &Path| Error::io(format!("writing {}", path.display()));
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        let mut file = File::create(&body_file).map_err(failed(&body_file))?;
        lock::try_lock(&file, Mode::Shared).map_err(failed(&body_file))?;
        file.write_all(body.as_bytes()).map_err(failed(&body_file))?;
        let has_body = !body.trim().is_empty();
        let mut desk = Desk { body_file, has_body, worktree, before: None, _in_use: file };
        desk.before = desk.head(session);
        Ok(desk)
    }

    /// What the command is told of its task.
    pub fn variables(&self, taken: &Taken, session: &Session) -> Vec<(&'static str, OsString)> {
        let task = &taken.state.task;
        let mut variables: Vec<(_, OsString)> = vec![
            ("PM_TASK", taken.state.id.to_string().into()),
            ("PM_SLUG", task.slug.as_str().into()),
            ("PM_QUEUE", task.queue.as_str().into()),
            ("PM_CLAIM", taken.claim.to_string().into()),
            ("PM_FENCE", taken.fence.to_string().into()),
            ("PM_AGENT_ID", session.agent.as_str().into()),
            ("PM_TITLE", task.title.as_str().into()),
            ("PM_BODY_FILE", self.body_file.clone().into()),
            ("PM_ATTEMPT", taken.attempt.to_string().into()),
        ];
        // Without it, pm in the hands of the command would be in no context, and be refused what the claim is bound to.
        variables.extend(session.context.as_ref().map(|context| ("PM_CONTEXT_ID", context.as_str().into())));
        variables
    }

    /// The commit at HEAD, where the command works.
    fn head(&self, session: &Session) -> Option<Oid> {
        match &self.worktree {
            Some(worktree) => worktree.head(),
            None => session.store.resolve_commit("HEAD").ok(),
        }
    }

    /// The commit at HEAD, if it is another one than before.
    pub fn moved_head(&self, session: &Session) -> Option<Oid> {
        self.head(session).filter(|head| Some(*head) != self.before)
    }

    /// The commit at HEAD, if there is something in it that the repository's own HEAD has not.
    pub fn own_head(&self, session: &Session) -> Option<Oid> {
        let head = self.head(session)?;
        let here = session.store.resolve_commit("HEAD").ok();
        let git = Git::new(session.store.git_dir());
        let is_known = here.is_some_and(|here| git.is_ancestor(&head.to_string(), &here.to_string()));
        (!is_known).then_some(head)
    }

    /// Clears it up after a task that was closed cleanly. Whether the worktree is gone: one stays in which something is
    /// not committed, or committed on no branch.
    pub fn clear(&self) -> bool {
        let Some(worktree) = &self.worktree else { return true };
        // git refuses where something is not committed. It does not mind commits that no branch holds.
        let is_held = worktree.is_on_a_branch() || worktree.head() == self.before;
        if !is_held || worktree.git.remove_worktree(&worktree.dir).is_err() {
            return false;
        }
        worktree.delete_empty_branch();
        true
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.body_file) {
            debug_assert_eq!(error.kind(), ErrorKind::NotFound);
        }
    }
}

impl Worktree {
    /// That of a task, below `root`. It may not be there yet: see [`Worktree::open`].
    pub fn of(session: &Session, taken: &Taken, root: &Path) -> Worktree {
        let branch = taken.name.branch();
        Worktree {
            dir: root.join(branch.strip_prefix("pm/").unwrap_or(&branch)),
            branch,
            // The HEAD of the worktree that the runner was started in.
            start: session.store.resolve_commit("HEAD").map(|id| id.to_string()).map_err(|error| error.to_string()),
            is_being_made: false,
            git: Git::new(session.store.common_dir()),
        }
    }

    /// Makes it, which takes as long as git takes to check out the files, unless `stop` says yes meanwhile. One that an
    /// earlier attempt left is taken up again, and so is its branch.
    ///
    /// # Errors
    /// `Io` where git fails, or was stopped: see [`Worktree::undo`].
    pub fn open(&mut self, stop: &dyn Fn() -> bool) -> Result<()> {
        let (git, dir, full_name) = (&self.git, &self.dir, self.full_name());
        let mut known = git.worktrees()?.into_iter().find(|row| row.dir == *dir);
        if known.as_ref().is_some_and(|row| row.is_half_made) {
            // Nothing has worked in it yet.
            git.discard_worktree(dir)?;
            known = None;
        }
        let has_branch = git.commit_of(&full_name).is_some();
        match known {
            Some(row) if row.branch == full_name && has_branch && dir.exists() => return Ok(()),
            // Somebody removed the directory by hand.
            Some(_) if !dir.exists() => git.remove_worktree(dir)?,
            _ => {}
        }
        let no_commit = |why: &String| Error::io("finding HEAD")(io::Error::other(why.clone()));
        let start = if has_branch { None } else { Some(self.start.as_ref().map_err(no_commit)?.as_str()) };
        self.is_being_made = !dir.exists();
        match git.add_worktree(dir, &self.branch, start, stop)? {
            Ended::Done => Ok(()),
            Ended::Stopped => Err(Error::io("making a worktree")(io::Error::other("it was stopped"))),
        }
    }

    /// Takes back what a failed [`Worktree::open`] left: git may have made all of it before it failed, as when a hook
    /// does. Only for who still holds the task: whoever holds it after him may be at work there.
    pub fn undo(&self) {
        let is_left = self.git.worktrees().is_ok_and(|rows| rows.iter().any(|row| row.dir == self.dir));
        if self.is_being_made && is_left {
            let _the_next_attempt_meets_it = self.git.discard_worktree(&self.dir);
        }
        self.delete_empty_branch();
    }

    /// Deletes a branch that is still where it would begin, and so has no commit of its own; any other stays, and so does
    /// one that is checked out.
    fn delete_empty_branch(&self) {
        let is_free = self.git.worktrees().is_ok_and(|rows| rows.iter().all(|row| row.branch != self.full_name()));
        if let (true, Ok(start)) = (is_free, &self.start) {
            let _it_is_elsewhere = self.git.delete_branch(&self.branch, start);
        }
    }

    fn full_name(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    /// git, as the command saw it.
    fn inside(&self) -> Git {
        Git::new(&self.dir.join(".git"))
    }

    fn head(&self) -> Option<Oid> {
        self.inside().commit_of("HEAD")?.parse().ok()
    }

    fn is_on_a_branch(&self) -> bool {
        self.inside().output(&["symbolic-ref", "--quiet", "HEAD"]).is_ok()
    }
}
