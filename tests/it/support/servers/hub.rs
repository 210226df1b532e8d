//! A hub: the bare repository that a fleet's machines push to, and a gate in it that holds pushes up.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::process::{isolated, run};
use super::until;

/// Present in the hub while pushes are held.
const CLOSED: &str = "gate-closed";
/// Written by a push that waits at the gate.
const WAITING: &str = "gate-waiting";
/// Everything of the push has arrived when this hook runs, and no ref has moved. It gives up after about 20 s, so that it
/// outlives nobody for long.
const HOOK: &str = "#!/bin/sh
: >gate-waiting
tries=0
while [ -e gate-closed ]; do
    tries=$((tries + 1))
    [ $tries -lt 2000 ] || exit 1
    sleep 0.01
done
";

/// A bare repository, made safe for power cuts as a hub should be.
pub struct Hub {
    path: PathBuf,
    /// What it goes away with.
    _dir: TempDir,
}

impl Hub {
    /// An empty hub in a temporary directory of its own.
    pub fn new() -> Hub {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("hub.git");
        let mut init = isolated("git", dir.path());
        // Named by file format, since newer versions of git may choose another.
        init.env("GIT_DEFAULT_REF_FORMAT", "files");
        run(init.args(["init", "--quiet", "--bare", "--template=", "--initial-branch=main"]).arg(&path));
        Hub::adopt(path, dir)
    }

    /// The hub that another program has made in this directory.
    pub(super) fn adopt(path: PathBuf, dir: TempDir) -> Hub {
        let hub = Hub { path, _dir: dir };
        // Without the last two, a clean-up that git starts after a push would outlive its server.
        let settings =
            [("core.fsync", "committed,reference"), ("gc.autoDetach", "false"), ("maintenance.autoDetach", "false")];
        for (key, value) in settings {
            hub.git(&["config", key, value]);
        }
        hub
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that it is in.
    pub fn parent(&self) -> &Path {
        self.path.parent().expect("a hub is below a temporary directory")
    }

    /// Its URL for who is on the same machine.
    pub fn file_url(&self) -> String {
        format!("file://{}", self.path.display())
    }

    /// Runs git in it, which must succeed, and returns what it printed, trimmed.
    #[track_caller]
    pub fn git(&self, args: &[&str]) -> String {
        run(isolated("git", self.parent()).arg("--git-dir").arg(&self.path).args(args))
    }

    /// Where a ref points, if it is there.
    pub fn tip(&self, name: &str) -> Option<String> {
        let tip = self.git(&["for-each-ref", "--format=%(objectname)", name]);
        Some(tip).filter(|tip| !tip.is_empty())
    }

    /// From now on a push waits when all of it has arrived, and before a ref moves, until the gate is dropped. With it, a
    /// connection can be cut at exactly that point, also one that nobody can look into.
    pub fn close_gate(&self) -> Gate<'_> {
        fs::create_dir_all(self.path.join("hooks")).expect("a directory for hooks");
        fs::write(self.path.join(CLOSED), "").expect("the gate is closed");
        let hook = self.hook();
        fs::write(&hook, HOOK).expect("the hook is written");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("the hook can be run");
        Gate { hub: self }
    }

    fn hook(&self) -> PathBuf {
        self.path.join("hooks/pre-receive")
    }
}

/// A closed gate. Opened when it is dropped.
pub struct Gate<'a> {
    hub: &'a Hub,
}

impl Gate<'_> {
    /// Waits until a push has come to the gate.
    pub fn wait_for_push(&self) {
        until("a push comes to the gate", || self.hub.path.join(WAITING).exists().then_some(()));
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        let _opened = [self.hub.path.join(CLOSED), self.hub.path.join(WAITING), self.hub.hook()].map(fs::remove_file);
    }
}
