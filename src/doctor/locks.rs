//! git's lock files that somebody left behind: whoever meets one waits in vain.
//!
//! A lock is removed only where nobody can hold it: it is older than any wait of pm's, no process has it open, no git is
//! at work in the repository, and all of that is seen again directly before. Where one of these cannot be known, the lock
//! stays (design, section 5).

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::Finding;
use super::processes::{self, Asked, Seen};
use crate::error::Result;
use crate::git_program::Git;
use crate::output::span;
use crate::store::durable;
use crate::store::git::GitStore;

/// Deeper than any ref of pm's.
const DEEPEST: u32 = 8;

/// What is known of a lock file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lock {
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
    owner: u32,
    modified: SystemTime,
    /// `None` where its time is in the future.
    age: Option<Duration>,
    /// It is a second name of what a pm prepared.
    is_prepared: bool,
    /// Its file system is one that other hosts write, too.
    is_shared: bool,
    /// `None` where nothing can be known of processes.
    seen: Option<Seen>,
}

/// Finds the locks that are older than `patience`, and with `fix` removes those that nobody can hold.
///
/// # Errors
/// `Io` where the refs cannot be listed.
pub fn findings(store: &GitStore, git: &Git, patience: Duration, fix: bool) -> Result<Vec<Finding>> {
    let common = store.common_dir();
    let mut paths: Vec<PathBuf> = ["config.lock", "packed-refs.lock"].map(|name| common.join(name)).into();
    let refs = common.join("refs");
    collect(&refs, 0, &mut paths).map_err(durable::unreadable("list", &refs))?;
    let is_old = |path: &PathBuf| {
        let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|modified| modified.elapsed().map_or(true, |age| age > patience))
    };
    paths.retain(is_old);
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    paths.sort();
    let places = places(store, git);
    let mut findings = Vec::new();
    for path in paths {
        let Some(lock) = Lock::look(&path, common, &places) else { continue };
        let finding = lock.judge();
        if !fix || !lock.is_nobodys(patience) {
            findings.push(finding);
            continue;
        }
        match lock.remove(common, &places, patience) {
            Ok(()) => {
                let found = format!("removed {}, which nobody held", path.display());
                findings.push(Finding::fixed(finding.check, found));
            }
            Err(why) => findings.push(Finding { found: format!("{} (not removed: {why})", finding.found), ..finding }),
        }
    }
    Ok(findings)
}

/// The directories in which a git at work in this repository may be.
fn places(store: &GitStore, git: &Git) -> Vec<PathBuf> {
    let mut places = vec![store.common_dir().to_owned()];
    places.extend(store.common_dir().parent().filter(|_| store.common_dir().ends_with(".git")).map(Path::to_owned));
    places.extend(store.work_dir());
    places.extend(git.worktrees().unwrap_or_default().into_iter().map(|row| row.dir));
    // As /proc shows them.
    let canonical: Vec<PathBuf> = places.iter().filter_map(|place| place.canonicalize().ok()).collect();
    places.extend(canonical);
    places
}

/// Collects the lock files in pm's namespaces.
fn collect(dir: &Path, depth: u32, paths: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if depth == 0 && !name.starts_with("pm") {
            continue;
        }
        if entry.file_type()?.is_dir() {
            if depth < DEEPEST {
                collect(&entry.path(), depth + 1, paths)?;
            }
        } else if name.ends_with(".lock") {
            paths.push(entry.path());
        }
    }
    Ok(())
}

impl Lock {
    /// Looks at a lock file; `None` where it is gone.
    fn look(path: &Path, common: &Path, places: &[PathBuf]) -> Option<Lock> {
        let metadata = fs::symlink_metadata(path).ok()?;
        let modified = metadata.modified().ok()?;
        let id = (metadata.dev(), metadata.ino());
        let asked = Asked { path, id, owner: metadata.uid(), places };
        Some(Lock {
            path: path.to_owned(),
            id,
            owner: metadata.uid(),
            modified,
            age: modified.elapsed().ok(),
            is_prepared: metadata.nlink() > 1 && is_prepared(common, id),
            is_shared: is_shared(path),
            seen: processes::look(asked),
        })
    }

    /// What there is to say of it.
    fn judge(&self) -> Finding {
        let check = "stale-lock";
        let (path, age) = (self.path.display(), self.age.map_or(0, |age| age.as_millis()));
        let age = span(u64::try_from(age).unwrap_or(u64::MAX));
        let by_hand = format!(
            "`fuser '{path}'` tells who has it open; if nobody has, and no git is at work in this repository on any host or in any container, remove it by hand"
        );
        if self.is_prepared {
            let found = format!("{path} is what a pm was about to record {age} ago");
            return Finding::note(check, found)
                .with("nothing: if that pm is dead, the next command that records there removes it");
        }
        match &self.seen {
            _ if self.age.is_none() => Finding::wrong(
                check,
                format!("{path} is there, and its time is in the future: a clock was set"),
                by_hand,
            ),
            Some(seen) if !seen.holders.is_empty() => {
                let found =
                    format!("{path} has been there for {age}, and may be held by {}", super::some_of(&seen.holders));
                Finding::note(check, found).with("wait until that has ended")
            }
            _ if self.is_shared => {
                let found = format!("{path} has been there for {age}, on a file system that other hosts may write to");
                Finding::wrong(check, found, by_hand)
            }
            Some(seen) if seen.hidden == 0 => {
                let found = format!(
                    "{path} has been there for {age}, and nobody here has it open: what died there blocks everybody"
                );
                Finding::wrong(check, found, "`pm doctor --fix` removes it")
            }
            Some(seen) => {
                let hidden =
                    if seen.hidden == 1 { "1 process".to_owned() } else { format!("{} processes", seen.hidden) };
                let found = format!("{path} has been there for {age}; {hidden} of its owner cannot be looked at");
                Finding::wrong(check, found, format!("run `pm doctor --fix` as the owner of that file. {by_hand}"))
            }
            None => {
                let found = format!("{path} has been there for {age}; who has it open cannot be known on this system");
                Finding::wrong(check, found, by_hand)
            }
        }
    }

    /// Whether nobody can hold it, as far as this machine can know.
    fn is_nobodys(&self, patience: Duration) -> bool {
        let is_free = self.seen.as_ref().is_some_and(|seen| seen.holders.is_empty() && seen.hidden == 0);
        is_free && !self.is_prepared && !self.is_shared && self.age.is_some_and(|age| age > patience)
    }

    /// Removes it, if it is still the same file and still nobody's.
    fn remove(&self, common: &Path, places: &[PathBuf], patience: Duration) -> std::result::Result<(), String> {
        let now = Lock::look(&self.path, common, places).ok_or("it is gone")?;
        if (now.id, now.modified) != (self.id, self.modified) || !now.is_nobodys(patience) {
            return Err("somebody uses it now".to_owned());
        }
        fs::remove_file(&self.path).map_err(|error| error.to_string())
    }
}

/// Whether a pm prepared this file, and it is the lock by a second name.
fn is_prepared(common: &Path, id: (u64, u64)) -> bool {
    let entries = fs::read_dir(common.join("pm").join("locks")).into_iter().flatten().flatten();
    let values = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".value"));
    let mut ids = values.filter_map(|entry| entry.metadata().ok()).map(|metadata| (metadata.dev(), metadata.ino()));
    ids.any(|prepared| prepared == id)
}

/// Whether other hosts may write to the file system of this file, by its kind.
#[cfg(target_os = "linux")]
fn is_shared(path: &Path) -> bool {
    /// NFS, SMB (three), Ceph, Lustre, GFS2, OCFS2, AFS, 9P, FUSE: see statfs(2).
    const SHARED: [u64; 11] = [
        0x6969,
        0x517b,
        0xff53_4d42,
        0xfe53_4d42,
        0x00c3_6400,
        0x0bd0_0bd0,
        0x0116_1970,
        0x7461_636f,
        0x5346_414f,
        0x0102_1997,
        0x6573_5546,
    ];
    let kind = rustix::fs::statfs(path).map(|found| (found.f_type as u64) & 0xffff_ffff);
    kind.map_or(true, |kind| SHARED.contains(&kind))
}

/// Elsewhere it is not known, and need not be: no process can be looked at there, either.
#[cfg(not(target_os = "linux"))]
fn is_shared(_path: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn stale() -> Lock {
        Lock {
            path: "x.lock".into(),
            id: (1, 2),
            owner: 7,
            modified: SystemTime::UNIX_EPOCH,
            age: Some(Duration::from_secs(60)),
            is_prepared: false,
            is_shared: false,
            seen: Some(Seen::default()),
        }
    }

    fn check(lock: Lock, level: Level, says: &str, is_nobodys: bool) {
        let finding = lock.judge();
        assert_eq!((finding.level, lock.is_nobodys(PATIENCE)), (level, is_nobodys), "{finding:?}");
        assert!(format!("{} {:?}", finding.found, finding.remedy).contains(says), "{finding:?}");
    }

    #[test]
    fn a_lock_is_nobodys_only_where_everything_is_known_and_speaks_for_it() {
        let seen = |holders: &[&str], hidden| {
            Some(Seen { holders: holders.iter().map(|name| (*name).to_owned()).collect(), hidden })
        };
        check(stale(), Level::Wrong, "doctor --fix", true);
        check(Lock { seen: seen(&["process 7 (git)"], 0), ..stale() }, Level::Note, "process 7", false);
        check(Lock { seen: seen(&[], 1), ..stale() }, Level::Wrong, "1 process of its owner", false);
        check(Lock { seen: None, ..stale() }, Level::Wrong, "cannot be known", false);
        check(Lock { is_shared: true, ..stale() }, Level::Wrong, "other hosts", false);
        check(Lock { is_prepared: true, ..stale() }, Level::Note, "about to record", false);
        check(Lock { age: None, ..stale() }, Level::Wrong, "in the future", false);
        assert!(!Lock { age: Some(PATIENCE), ..stale() }.is_nobodys(PATIENCE), "too young");
    }
}
