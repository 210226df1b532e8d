//! Pushes through a network that breaks, by every protocol.

use std::time::Duration;

use super::{client, commit, git, push, tip};
use crate::support::confined::missing;
use crate::support::process::{Process, is_alive};
use crate::support::servers::{Behaviour, GitDaemon, HttpBackend, Hub, Proxy, Server, Sshd};
use crate::support::until;

/// The first push works, the answer of the second is lost, the third finds nothing left to do.
fn loses_the_answer_of_one_push(server: &dyn Server, hub: &Hub) {
    let (repo, proxy) = (client(), Proxy::start(server.addr()));
    let url = server.url_at(proxy.addr());
    push(&repo, server, &url).ok();

    let second = commit(&repo, "second");
    proxy.set(Behaviour::DropAnswerOfNextPush);
    let outcome = push(&repo, server, &url);
    assert_ne!(outcome.code, 0, "{outcome:?}");
    assert_eq!(tip(hub), Some(second), "it was carried out before its client heard of a failure");
    assert_eq!(proxy.dropped_answers(), 1);

    push(&repo, server, &url).ok();
    assert_eq!(proxy.dropped_answers(), 1, "only that of one push");
}

#[test]
fn a_push_to_git_daemon_is_carried_out_and_its_answer_lost() {
    if GitDaemon::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    loses_the_answer_of_one_push(&GitDaemon::start(&hub), &hub);
}

#[test]
fn a_push_over_http_is_carried_out_and_its_answer_lost() {
    if HttpBackend::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    loses_the_answer_of_one_push(&HttpBackend::start(&hub), &hub);
}

#[test]
fn a_push_over_ssh_is_carried_out_and_its_answer_lost_at_the_gate() {
    if Sshd::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    let (repo, server) = (client(), Sshd::start(&hub));
    let proxy = Proxy::start(server.addr());
    let url = server.url_at(proxy.addr());

    let gate = hub.close_gate();
    let pushing = Process::start(&mut git(&repo, &server, &["push", "--quiet", &url, "HEAD:refs/heads/main"]));
    gate.wait_for_push();
    assert_eq!(tip(&hub), None, "no ref moves while the gate is closed");
    proxy.set(Behaviour::DropToClient);
    drop(gate);
    until("the push is carried out", || tip(&hub));
    assert!(is_alive(pushing.0.id().into()), "its client waits for an answer");
    proxy.set(Behaviour::Cut);
    assert_ne!(pushing.outcome().code, 0);
}

#[test]
fn a_push_whose_bytes_are_lost_changes_nothing() {
    if GitDaemon::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    let (repo, server) = (client(), GitDaemon::start(&hub));
    let proxy = Proxy::start(server.addr());
    proxy.set(Behaviour::DropToServer);
    let url = server.url_at(proxy.addr());
    let pushing = Process::start(&mut git(&repo, &server, &["push", "--quiet", &url, "HEAD:refs/heads/main"]));
    until("it has sent something", || (proxy.lost_bytes() > 0).then_some(()));
    proxy.set(Behaviour::Cut);
    assert_ne!(pushing.outcome().code, 0);
    assert_eq!(tip(&hub), None);
}

#[test]
fn a_push_through_a_slow_or_flapping_network_arrives_in_the_end() {
    if GitDaemon::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    let (repo, server) = (client(), GitDaemon::start(&hub));
    let proxy = Proxy::start(server.addr());
    let url = server.url_at(proxy.addr());
    proxy.set(Behaviour::Delay(Duration::from_millis(20)));
    push(&repo, &server, &url).ok();

    let second = commit(&repo, "second");
    proxy.set(Behaviour::Flap { up: Duration::from_millis(300), down: Duration::from_millis(30) });
    until("a push gets through", || (push(&repo, &server, &url).code == 0).then_some(()));
    assert_eq!(tip(&hub), Some(second));
}
