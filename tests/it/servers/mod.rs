//! The servers and the proxy of `support::servers`, tried out with plain git and plain sockets: a test that stands on
//! them must be able to rely on what they say.

mod ends;
mod network;
mod plain_git;
mod pushes;

use std::process::Command;

use crate::support::servers::{Hub, Server};
use crate::support::{Outcome, Repo};

/// A repository with one commit, and nothing of this machine.
fn client() -> Repo {
    let repo = Repo::new();
    commit(&repo, "first");
    repo
}

/// Adds a commit to the client's branch; returns its id.
fn commit(repo: &Repo, subject: &str) -> String {
    repo.git(&["commit", "--quiet", "--allow-empty", "-m", subject]);
    repo.git(&["rev-parse", "HEAD"])
}

/// git in the client, able to reach the server.
fn git(repo: &Repo, server: &dyn Server, args: &[&str]) -> Command {
    let mut command = repo.program("git", args);
    command.envs(server.env());
    command
}

/// Pushes the client's branch.
fn push(repo: &Repo, server: &dyn Server, url: &str) -> Outcome {
    let args = ["push", "--quiet", url, "HEAD:refs/heads/main"];
    Outcome::of(&args, &mut git(repo, server, &args))
}

/// Where the hub's branch is.
fn tip(hub: &Hub) -> Option<String> {
    hub.tip("refs/heads/main")
}
