//! Every server, with plain git: push, fetch and list.

use super::{client, commit, git, push, tip};
use crate::support::confined::missing;
use crate::support::servers::{GitDaemon, Gitolite, HttpBackend, Hub, Server, Sshd};
use crate::support::{Outcome, Repo};

/// What each of them must do.
#[track_caller]
fn serves(server: &dyn Server, hub: &Hub) {
    let (repo, url) = (client(), server.url());
    push(&repo, server, &url).ok();
    let second = commit(&repo, "second");
    push(&repo, server, &url).ok();
    assert_eq!(tip(hub).as_ref(), Some(&second), "{url}");

    let args = ["ls-remote", &url, "refs/heads/*"];
    let listed = Outcome::of(&args, &mut git(&repo, server, &args)).ok().stdout;
    assert_eq!(listed, format!("{second}\trefs/heads/main\n"), "{url}");

    let other = Repo::new();
    let args = ["fetch", "--quiet", &url, "refs/heads/main:refs/fetched"];
    Outcome::of(&args, &mut git(&other, server, &args)).ok();
    assert_eq!(other.git(&["rev-parse", "refs/fetched"]), second, "{url}");

    commit(&repo, "third");
    let args = ["push", "--quiet", "--force-with-lease=refs/heads/main:", &url, "HEAD:refs/heads/main"];
    Outcome::of(&args, &mut git(&repo, server, &args)).fails(1).says("stale info");
    assert_eq!(tip(hub), Some(second), "{url}");
}

#[test]
fn a_hub_is_reached_by_its_path() {
    let (hub, repo) = (Hub::new(), client());
    repo.git(&["push", "--quiet", &hub.file_url(), "HEAD:refs/heads/main"]);
    assert_eq!(tip(&hub), Some(repo.git(&["rev-parse", "HEAD"])));
}

#[test]
fn git_daemon_serves_a_hub() {
    if GitDaemon::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    serves(&GitDaemon::start(&hub), &hub);
}

#[test]
fn http_backend_behind_nginx_serves_a_hub() {
    if HttpBackend::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    serves(&HttpBackend::start(&hub), &hub);
}

#[test]
fn sshd_serves_a_hub() {
    if Sshd::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    serves(&Sshd::start(&hub), &hub);
}

#[test]
fn gitolite_serves_its_hub() {
    if Gitolite::lacks().is_some_and(missing) {
        return;
    }
    let gitolite = Gitolite::start();
    serves(&gitolite, gitolite.hub());
}
