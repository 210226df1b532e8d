//! How servers end: with all that they started, also in the middle of a push and of a panic.

use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::{client, git, tip};
use crate::support::confined::missing;
use crate::support::process::Process;
use crate::support::servers::{GitDaemon, HttpBackend, Hub, Server, Sshd};

/// The processes that run in a directory.
fn running_in(dir: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("listed").flatten();
    let runs_there = |path: &Path| std::fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd == dir);
    let found = processes.map(|entry| entry.path()).filter(|path| runs_there(path));
    found.map(|path| std::fs::read_to_string(path.join("cmdline")).unwrap_or_default()).collect()
}

/// A push waits at the gate when the server ends by a panic.
fn ends_with_its_pushes<S: Server>(start: impl FnOnce(&Hub) -> S) {
    let (hub, repo) = (Hub::new(), client());
    let gate = hub.close_gate();
    let mut started = None;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let server = start(&hub);
        let url = server.url();
        let pushing = Process::start(&mut git(&repo, &server, &["push", "--quiet", &url, "HEAD:refs/heads/main"]));
        started = Some((server.addr(), pushing));
        gate.wait_for_push();
        assert!(!running_in(hub.path()).is_empty(), "the push and its hook run in the hub");
        // As a panic, but without its message among those of the tests.
        std::panic::resume_unwind(Box::new("the test failed"));
    }));
    assert_eq!(panicked.expect_err("a panic").downcast_ref::<&str>(), Some(&"the test failed"));
    assert_eq!(running_in(hub.path()), Vec::<String>::new());
    let (addr, pushing) = started.expect("it was started");
    assert!(TcpStream::connect(addr).is_err(), "nobody listens");
    assert_ne!(pushing.outcome().code, 0);
    assert_eq!(tip(&hub), None);
}

#[test]
fn git_daemon_ends_with_its_pushes() {
    if GitDaemon::lacks().is_some_and(missing) {
        return;
    }
    ends_with_its_pushes(GitDaemon::start);
}

#[test]
fn http_backend_ends_with_its_pushes() {
    if HttpBackend::lacks().is_some_and(missing) {
        return;
    }
    ends_with_its_pushes(HttpBackend::start);
}

#[test]
fn sshd_ends_with_its_pushes() {
    if Sshd::lacks().is_some_and(missing) {
        return;
    }
    ends_with_its_pushes(Sshd::start);
}
