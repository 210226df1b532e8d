//! Putting the hook of a hub in place: its file, and the settings of git that it stands on.
//!
//! What must never happen here: somebody else's hook is overwritten, or a setting that somebody made is changed.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::git_program::{FSYNC, Git};
use crate::id::TASKS;
use crate::store::git::GitStore;
use crate::store::{Durability, Store, StoreError, durable};

/// How a hook of ours begins, of whatever version of pm.
const MARK: &[u8] = b"#!/bin/sh\n# Written by `pm hook install`";

/// Everybody who may push must be able to run it: git passes over a hook that it may not run.
const MODE: u32 = 0o755;

/// What became of the hook's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// There was none.
    Created,
    /// There was one of ours, of another pm.
    Updated,
    /// There was this very one.
    Unchanged,
}

impl Placed {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Placed::Created => "created",
            Placed::Updated => "updated",
            Placed::Unchanged => "unchanged",
        }
    }
}

/// What became of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It was unset, and was set.
    Set,
    /// It is as it should be.
    Kept,
    /// It is set to something else, and was left so.
    Differs,
}

impl Settled {
    /// The word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Settled::Set => "set",
            Settled::Kept => "kept",
            Settled::Differs => "differs",
        }
    }
}

/// A setting of git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its key.
    pub key: &'static str,
    /// Its value now.
    pub value: String,
    /// What became of it.
    pub settled: Settled,
}

/// What was done.
#[derive(Debug)]
pub struct Installed {
    /// The hook's file.
    pub hook: PathBuf,
    /// What became of it.
    pub placed: Placed,
    /// The settings.
    pub settings: Vec<Setting>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    /// What may be wrong.
    pub warnings: Vec<String>,
}

/// Makes a repository a hub; `program` is the pm that its hook calls. Done again, it changes nothing.
///
/// # Errors
/// `Unusable` where another hook is there already, in which case nothing was changed; failures of the system.
pub fn install(store: &GitStore, program: &Path) -> Result<Installed> {
    let (dir, is_shared) = hooks_dir(store)?;
    let hook = dir.join("pre-receive");
    let wanted = script(program);
    let placed = look(&hook, &wanted, program)?;

    let git = Git::new(store.common_dir());
    let (mut notes, mut warnings) = (Vec::new(), Vec::new());
    let settings = vec![fsck_objects(&git, &mut warnings)?, fsync(&git, &mut warnings)?];
    if placed != Placed::Unchanged {
        place(&hook, &wanted)?;
    }
    if is_shared {
        notes.push(format!(
            "core.hooksPath is set: the hook judges pushes to every repository that uses {}",
            dir.display()
        ));
    }
    if store.work_dir().is_some() {
        let note = "this repository has a worktree: git refuses pushes to a branch that is checked out, and a hub is \
                    better bare";
        notes.push(note.to_owned());
    }
    if placed == Placed::Created && !store.tips(TASKS)?.is_empty() {
        notes.push("there are tasks here that no hook has judged; `pm verify` judges them".to_owned());
    }
    for key in ["transfer.hideRefs", "receive.hideRefs", "uploadpack.hideRefs"] {
        if let Some(pattern) = hiding(&store.config_strings(key)) {
            warnings
                .push(format!("{key} is '{pattern}': it hides refs of the ledger from whoever works with this hub"));
        }
    }
    Ok(Installed { hook, placed, settings, notes, warnings })
}

/// Where git looks for hooks, and whether other repositories may look there, too.
fn hooks_dir(store: &GitStore) -> Result<(PathBuf, bool)> {
    let unusable = |value: String| {
        let reason = format!("core.hooksPath is '{value}', which is no path; correct it");
        Error::Store(StoreError::Unusable { reason })
    };
    // Relative to where hooks run, which is the git directory for those of a push (git-config(1)).
    Ok(match store.config_path("core.hooksPath").map_err(unusable)? {
        Some(dir) => (store.common_dir().join(dir), true),
        None => (store.common_dir().join("hooks"), false),
    })
}

/// Looks what is there, and what is to become of it.
fn look(hook: &Path, wanted: &[u8], program: &Path) -> Result<Placed> {
    let metadata = match fs::symlink_metadata(hook) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Placed::Created),
        Err(error) => return Err(Error::io(format!("looking at {}", hook.display()))(error)),
    };
    let found =
        if metadata.is_file() { fs::read(hook).map_err(durable::unreadable("read", hook))? } else { Vec::new() };
    if !found.starts_with(MARK) {
        return Err(Error::Store(StoreError::Unusable { reason: taken(hook, program) }));
    }
    let is_same = found == wanted && metadata.permissions().mode() & 0o777 == MODE;
    Ok(if is_same { Placed::Unchanged } else { Placed::Updated })
}

/// What to do about a hook that is not ours.
fn taken(hook: &Path, program: &Path) -> String {
    format!(
        "{} is there already, and is not pm's; nothing was changed. If it is a shell script, add these two lines below \
         its first one:\n\
         pushed=$(mktemp) && cat >\"$pushed\" && {} hook pre-receive <\"$pushed\" || {{ rm -f \"$pushed\"; exit 1; }}\n\
         exec <\"$pushed\"; rm -f \"$pushed\"",
        hook.display(),
        String::from_utf8_lossy(&quoted(program))
    )
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> Vec<u8> {
    let mut out = vec![b'\''];
    for &byte in path.as_os_str().as_bytes() {
        if byte == b'\'' {
            out.extend(b"'\\''");
        } else {
            out.push(byte);
        }
    }
    out.push(b'\'');
    out
}

/// The hook. 1 is pm's own refusal, which says what is to be said; any other failure is told of here.
fn script(program: &Path) -> Vec<u8> {
    let head = b", which also updates it: changes to this file do not last.\n\
        # A push is refused unless pm has judged it (docs/guides/a-hub.md).\n\
        pm=";
    let tail = b"\n\
        [ -x \"$pm\" ] || pm=$(command -v pm) || {\n\
        \techo \"pm: refused: this hub's pm is gone, so nothing can be judged; tell its administrator\" >&2\n\
        \texit 1\n\
        }\n\
        \"$pm\" hook pre-receive\n\
        code=$?\n\
        [ \"$code\" -le 1 ] ||\n\
        \techo \"pm: refused: this hub's pm failed with $code, so nothing can be judged; tell its administrator\" >&2\n\
        exit \"$code\"\n";
    [MARK, head, &quoted(program), tail].concat()
}

/// Puts the hook in place: whole or not at all.
fn place(hook: &Path, wanted: &[u8]) -> Result<()> {
    let Some(dir) = hook.parent() else { return Ok(()) };
    durable::create_dir_all(dir, Durability::Power)?;
    let temporary = dir.join(format!("pre-receive.tmp-{}", std::process::id()));
    durable::remove_if_there(&temporary).map_err(durable::failed("remove", &temporary))?;
    let write = || {
        let file = durable::write_new_file(&temporary, wanted, MODE)?;
        // Whatever the umask is.
        file.set_permissions(fs::Permissions::from_mode(MODE))
            .map_err(durable::failed("make executable", &temporary))?;
        durable::sync_file(&file, &temporary, Durability::Power)?;
        drop(file);
        durable::rename(&temporary, hook, Durability::Power)
    };
    write().inspect_err(|_| {
        let _left_behind = durable::remove_if_there(&temporary);
    })?;
    Ok(())
}

/// Objects that are not well formed are git's to refuse, before a hook is asked.
fn fsck_objects(git: &Git, warnings: &mut Vec<String>) -> Result<Setting> {
    let key = "receive.fsckObjects";
    // What git falls back to is somebody's choice as well.
    let chosen = [key, "transfer.fsckObjects"].into_iter().find(|key| git.get(key).is_some());
    let settled = match chosen {
        None => {
            git.set(key, "true")?;
            Settled::Set
        }
        Some(chosen) if git.is_on(chosen) == Some(true) => Settled::Kept,
        Some(chosen) => {
            warnings.push(format!(
                "{chosen} is off: git takes objects that are not well formed; a hub needs `git config {key} true`"
            ));
            Settled::Differs
        }
    };
    Ok(Setting { key, value: (settled != Settled::Differs).to_string(), settled })
}

/// Without it a power cut after git's own maintenance can lose refs (design, section 5).
fn fsync(git: &Git, warnings: &mut Vec<String>) -> Result<Setting> {
    let key = "core.fsync";
    if git.set_fsync_if_unset()? {
        return Ok(Setting { key, value: FSYNC.to_owned(), settled: Settled::Set });
    }
    let value = git.get(key).unwrap_or_default();
    let parts: Vec<&str> = value.split(',').map(str::trim).collect();
    let is_enough = parts.contains(&"all") || FSYNC.split(',').all(|part| parts.contains(&part));
    if !is_enough {
        warnings.push(format!(
            "{key} is '{value}', not '{FSYNC}': a power cut can lose what was pushed; see docs/guides/a-hub.md"
        ));
    }
    let settled = if is_enough { Settled::Kept } else { Settled::Differs };
    Ok(Setting { key, value, settled })
}

/// The pattern that hides refs of the ledger, if one does: the last that speaks of them counts (git-config(1)).
fn hiding(patterns: &[String]) -> Option<&str> {
    const SPACE: &str = "refs/pm/tasks";
    let is_below = |name: &str, space: &str| {
        name.strip_prefix(space.trim_end_matches('/')).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let names = |pattern: &str| pattern.trim_start_matches('!').trim_start_matches('^').to_owned();
    let speaks = |pattern: &&String| {
        let name = names(pattern);
        !name.is_empty() && (is_below(SPACE, &name) || is_below(&name, SPACE))
    };
    patterns.iter().rev().find(speaks).map(String::as_str).filter(|pattern| !pattern.starts_with('!'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell_whatever_it_holds() {
        assert_eq!(quoted(Path::new("/a b/$c/it's")), b"'/a b/$c/it'\\''s'");
    }

    #[test]
    fn a_pattern_hides_the_ledger_if_it_is_the_last_to_speak_of_it() {
        let check = |patterns: &[&str], expected: Option<&str>| {
            let patterns: Vec<String> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
            assert_eq!(hiding(&patterns), expected, "{patterns:?}");
        };
        check(&[], None);
        check(&["refs/heads", "refs/pmx", "refs/pm-lost"], None);
        check(&["refs/pm"], Some("refs/pm"));
        check(&["^refs"], Some("^refs"));
        check(&["refs/pm/tasks/", "refs/heads"], Some("refs/pm/tasks/"));
        check(&["refs/pm/tasks/private"], Some("refs/pm/tasks/private"));
        check(&["refs/pm", "!refs/pm/tasks"], None);
    }
}
