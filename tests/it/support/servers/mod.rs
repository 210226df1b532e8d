//! Real git servers on loopback, and a [`proxy`] before them: a network that breaks when it is told to.
//!
//! A server is started by a test and ends with the value that stands for it, whatever becomes of the test. The tests
//! and the proofs both include this directory (the proofs with `#[path]`); all it asks for is a module [`wait`] beside
//! it.
//!
//! What must never happen here: a process that outlives the test; a fixed port, or an address other than 127.0.0.1;
//! configuration of this machine's git, ssh or nginx that is read; and a file that is written outside of a server's own
//! temporary directory (but the empty directory that sshd insists on when it is run by root).
//!
//! [`wait`]: super::wait

mod git_daemon;
mod gitolite;
mod http_backend;
mod hub;
mod process;
pub mod proxy;
mod sshd;

use std::net::SocketAddr;

use super::wait::until;

pub use git_daemon::GitDaemon;
pub use gitolite::Gitolite;
pub use http_backend::HttpBackend;
pub use hub::Hub;
pub use proxy::{Behaviour, Proxy};
pub use sshd::Sshd;

/// A server that gives clients access to a hub.
pub trait Server {
    /// Where it listens.
    fn addr(&self) -> SocketAddr;

    /// The URL of the hub for a client that connects to this address: the server's own, or that of a proxy before it.
    fn url_at(&self, addr: SocketAddr) -> String;

    /// The URL of the hub.
    fn url(&self) -> String {
        self.url_at(self.addr())
    }

    /// The environment variables that a client's git needs.
    fn env(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
