//! Places where a program may do less than root on the host: without rights, on a small disk, under another clock.
//!
//! Everything is made in namespaces that end with the process that holds them, so that nothing is left behind on the
//! host, whatever is killed when.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Repo, until};

/// Says by name that a test cannot run here; where everything must be there (in CI) it fails instead.
pub fn missing(what: &str) -> bool {
    assert!(std::env::var_os("CI").is_none(), "CI must have {what}");
    let _told = std::io::Write::write_all(&mut std::io::stderr(), format!("skipped: needs {what}\n").as_bytes());
    true
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program is there to be run.
pub fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The prefix that runs a program as a user with no rights over anything.
pub const AS_NOBODY: [&str; 5] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];

/// The prefix that runs a program under a monotonic clock that is ahead of everybody's: each time another clock.
pub const UNDER_ANOTHER_CLOCK: [&str; 6] = ["unshare", "--time", "--monotonic", "100000", "--fork", "--"];

/// A mount namespace, held open by a process that waits for the end of its input.
pub struct Mounts {
    holder: Child,
}

impl Mounts {
    /// Makes one, and runs this shell script in it: its first argument is `place`.
    pub fn new(script: &str, place: &Path) -> Mounts {
        let script = format!("set -e; {script}; echo ready > \"$1/ready\"; exec cat");
        let holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"])
            .arg(place)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a mount namespace");
        let mounts = Mounts { holder };
        let ready = format!("/proc/{}/root{}/ready", mounts.holder.id(), place.display());
        until("the mounts are made", || std::fs::read_to_string(&ready).ok().filter(|said| said == "ready\n"));
        mounts
    }

    /// Makes a repository run its programs there.
    pub fn confine(&self, repo: &mut Repo) {
        let target = self.holder.id().to_string();
        let start = format!("--wdns={}", repo.path().display());
        repo.set_prefix(&["nsenter", "--mount", "--target", &target, &start, "--"]);
    }

    /// A path as seen from the host.
    pub fn seen_from_outside(&self, path: &Path) -> std::path::PathBuf {
        format!("/proc/{}/root{}", self.holder.id(), path.display()).into()
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ended = self.holder.wait();
    }
}
