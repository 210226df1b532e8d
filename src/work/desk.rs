//! Where a command works: the file with the task's text, and with `--worktree` a git worktree of its own.
//!
//! What must never happen here: work that is not committed is removed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::supply::Taken;
use crate::error::{Error, Result};
use crate::git_program::Git;
use crate::id::Oid;
use crate::session::Session;

/// Text files that a killed runner left are removed by the next one after so long.
const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Two agents of one runner do not make worktrees at once: git would let them, but writes its list of them unlocked.
static WORKTREES: Mutex<()> = Mutex::new(());

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
}

/// A worktree of one task.
#[derive(Debug)]
pub struct Worktree {
    /// Its directory.
    pub dir: PathBuf,
    branch: String,
    /// The commit that the branch began at, where this runner made it.
    began_at: Option<String>,
    git: Git,
}

/// The directory for the tasks' texts.
fn texts(session: &Session) -> PathBuf {
    session.state_dir().join("work")
}

/// Removes texts that runners which were killed left behind.
pub fn sweep_texts(session: &Session) {
    let Ok(entries) = fs::read_dir(texts(session)) else { return };
    for entry in entries.flatten() {
        let age = entry.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > LEFT_AFTER) {
            let _another_may_have_been_faster = fs::remove_file(entry.path());
        }
    }
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
    /// Sets one up. With `root`, the command works in a worktree below it.
    ///
    /// # Errors
    /// `Io` where a file cannot be written, or git fails.
    pub fn set_up(session: &Session, taken: &Taken, root: Option<&Path>) -> Result<Desk> {
        let dir = texts(session);
        let body_file = dir.join(format!("{}.txt", taken.claim));
        let body = session.ledger().record(&taken.name, taken.state.id.record())?.body.unwrap_or_default();
        let failed = |path: &Path| Error::io(format!("writing {}", path.display()));
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        fs::write(&body_file, &body).map_err(failed(&body_file))?;
        let mut desk = Desk { body_file, has_body: !body.trim().is_empty(), worktree: None, before: None };
        if let Some(root) = root {
            desk.worktree = Some(Worktree::open(session, taken, root)?);
        }
        desk.before = desk.head(session);
        Ok(desk)
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

    /// Clears it up after a task that was closed cleanly. Returns the worktree where it had to be kept, since something
    /// in it is not committed.
    pub fn clear(&self) -> Option<PathBuf> {
        let worktree = self.worktree.as_ref()?;
        let _one_at_a_time = WORKTREES.lock();
        // git refuses where something is not committed. It does not mind commits that no branch holds.
        let is_held = worktree.is_on_a_branch() || worktree.head() == self.before;
        if !is_held || worktree.git.remove_worktree(&worktree.dir).is_err() {
            return Some(worktree.dir.clone());
        }
        if let Some(commit) = &worktree.began_at {
            // A branch without a commit of its own says nothing; one that has moved stays.
            let _it_has_moved = worktree.git.delete_branch(&worktree.branch, commit);
        }
        None
    }

    /// The worktree, which is kept.
    pub fn kept(&self) -> Option<PathBuf> {
        self.worktree.as_ref().map(|worktree| worktree.dir.clone())
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
    /// The worktree of a task. One that an earlier attempt left is taken up again, and so is its branch.
    fn open(session: &Session, taken: &Taken, root: &Path) -> Result<Worktree> {
        let branch = taken.name.branch();
        let dir = root.join(branch.strip_prefix("pm/").unwrap_or(&branch));
        let git = Git::new(session.store.common_dir());
        let full_name = format!("refs/heads/{branch}");
        let _one_at_a_time = WORKTREES.lock();
        let at_dir = |path: &PathBuf| *path == dir || dir.canonicalize().is_ok_and(|dir| *path == dir);
        let known = git.worktrees()?.into_iter().find(|(path, _)| at_dir(path));
        let mut began_at = None;
        match known {
            Some((_, checked_out)) if checked_out == full_name && dir.exists() => {}
            known => {
                if known.is_some() && !dir.exists() {
                    // Somebody removed the directory by hand.
                    git.remove_worktree(&dir)?;
                }
                if git.commit_of(&full_name).is_some() {
                    git.add_worktree(&dir, &branch, None)?;
                } else {
                    // The HEAD of the worktree that the runner was started in.
                    let start = session.store.resolve_commit("HEAD")?.to_string();
                    git.add_worktree(&dir, &branch, Some(&start)).inspect_err(|_| {
                        // git makes the branch first.
                        let _there_may_be_none = git.delete_branch(&branch, &start);
                    })?;
                    began_at = Some(start);
                }
            }
        }
        Ok(Worktree { dir, branch, began_at, git })
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
