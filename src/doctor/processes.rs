//! Which processes may hold a lock file. Linux tells; elsewhere nothing is known.
//!
//! git closes a ref's lock file long before it is done with it (a prepared transaction waits with nothing open), so a
//! closed lock file may still be held: a git at work in this repository counts, too. What cannot be seen from here: other
//! hosts, and other containers.

use std::path::{Path, PathBuf};

/// What was seen of the processes of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Those that may hold it, for people.
    pub holders: Vec<String>,
    /// How many of the user whom the lock file belongs to could not be looked at.
    pub hidden: usize,
}

/// A lock file to be asked about.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Its path.
    pub path: &'a Path,
    /// Device and inode.
    pub id: (u64, u64),
    /// Whose it is.
    pub owner: u32,
    /// The directories of the repository: where a git at work in it is, or what it names.
    pub places: &'a [PathBuf],
}

/// Elsewhere nothing can be said.
#[cfg(not(target_os = "linux"))]
pub fn look(_asked: Asked<'_>) -> Option<Seen> {
    None
}

/// Looks at all processes; `None` where that is not possible.
#[cfg(target_os = "linux")]
pub fn look(asked: Asked<'_>) -> Option<Seen> {
    use std::os::unix::fs::MetadataExt;
    let mut seen = Seen::default();
    let mut looked_at_self = false;
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            looked_at_self = true;
            continue;
        }
        let owner = entry.metadata().map(|metadata| metadata.uid()).ok();
        match linux::may_hold(&entry.path(), asked) {
            Ok(Some(name)) => seen.holders.push(format!("process {pid} ({name})")),
            // A user's processes make files that are that user's.
            Err(()) if owner == Some(asked.owner) => seen.hidden += 1,
            Ok(None) | Err(()) => {}
        }
    }
    // Where not even this process is to be seen, nothing else would be.
    looked_at_self.then_some(seen)
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::OsStr;
    use std::fs;
    use std::io;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::Asked;

    /// Programs that close the lock files which they hold.
    const CLOSING: [&str; 4] = ["git", "jj", "gix", "ein"];

    /// Commands of git's that hold no lock: they wait, for pm (which would have it open) or for callers.
    const WAITING: [&str; 5] = ["pm", "daemon", "fsmonitor--daemon", "credential-cache", "credential-cache--daemon"];

    /// The name of a process if it may hold the lock; an error where it cannot be looked at.
    pub(super) fn may_hold(process: &Path, asked: Asked<'_>) -> Result<Option<String>, ()> {
        // What has ended meanwhile holds nothing, nor does a zombie.
        let unless_gone = |_: io::Error| {
            let stat = fs::read(process.join("stat")).unwrap_or_default();
            let is_gone = stat.is_empty() || String::from_utf8_lossy(&stat).contains(") Z ");
            if is_gone { Ok(None) } else { Err(()) }
        };
        let name = match fs::read(process.join("comm")) {
            Ok(name) => String::from_utf8_lossy(&name).trim_end().to_owned(),
            Err(error) => return unless_gone(error),
        };
        let files = match fs::read_dir(process.join("fd")) {
            Ok(files) => files,
            Err(error) => return unless_gone(error),
        };
        let is_lock = |file: fs::DirEntry| {
            fs::metadata(file.path()).is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == asked.id)
        };
        if files.flatten().any(is_lock) {
            return Ok(Some(crate::id::shown(&name)));
        }
        if !CLOSING.iter().any(|closing| name.starts_with(closing)) {
            return Ok(None);
        }
        Ok(is_at_work(process, asked).then(|| crate::id::shown(&name)))
    }

    /// Whether a git is in the repository, or names it in its arguments or its environment.
    fn is_at_work(process: &Path, asked: Asked<'_>) -> bool {
        let read = |name| fs::read(process.join(name)).unwrap_or_default();
        let (line, environment) = (read("cmdline"), read("environ"));
        if WAITING.iter().any(|waiting| subcommand(&line) == waiting.as_bytes()) {
            return false;
        }
        let dir = fs::read_link(process.join("cwd")).unwrap_or_default();
        if asked.places.iter().any(|place| dir.starts_with(place)) {
            return true;
        }
        let own = environment.split(|byte| *byte == 0).filter(|variable| variable.starts_with(b"GIT_"));
        line.split(|byte| *byte == 0).chain(own).any(|word| {
            // `--git-dir=x`, `GIT_DIR=x`, or `x` alone.
            let value = word.splitn(2, |byte| *byte == b'=').last().unwrap_or_default();
            let path = dir.join(OsStr::from_bytes(value));
            path.canonicalize().is_ok_and(|path| asked.places.iter().any(|place| path.starts_with(place)))
        })
    }

    /// Which command of git's a command line is: `push` in `git -C x push y`, and of `git-push`.
    fn subcommand(line: &[u8]) -> &[u8] {
        /// Options of git's own whose value is the next argument.
        const VALUED: [&[u8]; 6] = [b"-C", b"-c", b"--git-dir", b"--work-tree", b"--namespace", b"--config-env"];
        let mut words = line.split(|byte| *byte == 0);
        let program = words.next().and_then(|program| program.rsplit(|byte| *byte == b'/').next()).unwrap_or_default();
        if let Some(name) = program.strip_prefix(b"git-") {
            return name;
        }
        while let Some(word) = words.next() {
            if VALUED.contains(&word) {
                words.next();
            } else if !word.starts_with(b"-") {
                return word;
            }
        }
        b""
    }

    #[test]
    fn a_command_of_gits_is_told_from_its_options() {
        for (line, expected) in [
            ("git\0pm\0doctor\0", "pm"),
            ("/usr/bin/git\0-C\0pm\0--no-pager\0push\0origin\0pm\0", "push"),
            ("git\0-c\0a.b=c\0--git-dir=x\0gc\0", "gc"),
            ("/usr/lib/git-core/git-pack-refs\0--all\0", "pack-refs"),
            ("git\0--version\0", ""),
            ("", ""),
        ] {
            assert_eq!(subcommand(line.as_bytes()), expected.as_bytes(), "{line:?}");
        }
    }
}
