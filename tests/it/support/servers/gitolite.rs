//! Gitolite: one ssh user for everybody, with a forced command that looks up who may do what.
//!
//! What is served is `testing`, the repository that gitolite's set-up makes, where everybody may do everything.

use std::net::SocketAddr;

use super::process::{first_missing, isolated, run};
use super::sshd::Keys;
use super::{Hub, Server, Sshd};

/// Gitolite, set up in a home directory of its own, behind an sshd.
pub struct Gitolite {
    sshd: Sshd,
    hub: Hub,
}

impl Gitolite {
    /// What it needs and is not here.
    pub fn lacks() -> Option<&'static str> {
        Sshd::lacks().or_else(|| first_missing(&["gitolite"]))
    }

    /// Sets it up and serves it, which takes a second or two.
    pub fn start() -> Gitolite {
        let home = tempfile::tempdir().expect("a temporary directory");
        let keys = Keys::new();
        let mut setup = isolated("gitolite", home.path());
        // It logs who set it up.
        setup.env("USER", "gitolite").args(["setup", "-pk"]).arg(keys.file("client.pub"));
        run(setup.current_dir(home.path()));
        let authorized = home.path().join(".ssh/authorized_keys");
        let sshd = Sshd::serve(keys, &authorized, home.path(), "/testing".to_owned());
        Gitolite { sshd, hub: Hub::adopt(home.path().join("repositories/testing.git"), home) }
    }

    /// The repository that it serves.
    pub fn hub(&self) -> &Hub {
        &self.hub
    }
}

impl Server for Gitolite {
    fn addr(&self) -> SocketAddr {
        self.sshd.addr()
    }

    fn url_at(&self, addr: SocketAddr) -> String {
        self.sshd.url_at(addr)
    }

    fn env(&self) -> Vec<(&'static str, String)> {
        self.sshd.env()
    }
}
