//! `git daemon`: git's own protocol over plain TCP. Anybody may push.

use std::net::SocketAddr;

use tempfile::TempDir;

use super::process::{Running, git_program, isolated};
use super::{Hub, Server};

/// A running `git daemon`.
pub struct GitDaemon {
    addr: SocketAddr,
    _running: Running,
    _dir: TempDir,
}

impl GitDaemon {
    /// What it needs and is not here.
    pub fn lacks() -> Option<&'static str> {
        (!git_program("git-daemon").is_file()).then_some("git daemon")
    }

    /// Serves a hub.
    pub fn start(hub: &Hub) -> GitDaemon {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (running, addr) = Running::listen(&dir.path().join("log"), |addr| {
            let mut command = isolated("git", dir.path());
            command.args(["daemon", "--reuseaddr", "--export-all", "--enable=receive-pack"]);
            command.arg(format!("--listen={}", addr.ip())).arg(format!("--port={}", addr.port()));
            command.arg(format!("--base-path={}", hub.parent().display())).arg(hub.parent());
            command
        });
        GitDaemon { addr, _running: running, _dir: dir }
    }
}

impl Server for GitDaemon {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn url_at(&self, addr: SocketAddr) -> String {
        format!("git://{addr}/hub.git")
    }
}
