//! Pushes through a network that breaks, by every protocol.

use std::time::Duration;

use super::{client, commit, git, push, tip};
use crate::support::confined::missing;
use crate::support::process::{Process, is_alive};
use crate::support::servers::{Behaviour, GitDaemon, HttpBackend, Hub, Proxy, Server, Sshd};
use crate::support::{Outcome, until};

#[test]
fn a_push_to_git_daemon_is_carried_out_and_its_answer_lost() {
    if GitDaemon::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    let (repo, server) = (client(), GitDaemon::start(&hub));
    let proxy = Proxy::start(server.addr());
    let url = server.url_at(proxy.addr());
    push(&repo, &server, &url).ok();

    let second = commit(&repo, "second");
    proxy.set(Behaviour::DropAnswerOfNextPush);
    push(&repo, &server, &url).exits(128);
    assert_eq!(tip(&hub), Some(second), "it was carried out before its client heard of a failure");
    assert_eq!(proxy.dropped_answers(), 1);

    let third = commit(&repo, "third");
    push(&repo, &server, &url).ok();
    assert_eq!((tip(&hub), proxy.dropped_answers()), (Some(third), 1), "only one answer is dropped");
}

#[test]
fn a_push_over_http_whose_answer_was_lost_once_is_sent_again_and_called_rejected() {
    if HttpBackend::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    let (repo, server) = (client(), HttpBackend::start(&hub));
    let proxy = Proxy::start(server.addr());
    let url = server.url_at(proxy.addr());
    push(&repo, &server, &url).ok();

    let second = commit(&repo, "second");
    proxy.set(Behaviour::DropAnswerOfNextPush);
    // libcurl sends a request once more if the connection was used before, as it was for the list of refs, and ended
    // without a byte of an answer. The server refuses it then: its ref is no longer where the client saw it. Which
    // is to say that a refusal over HTTP is no proof that nothing was recorded.
    push(&repo, &server, &url).exits(1).says("[remote rejected] HEAD -> main (failed to update ref)");
    assert_eq!(tip(&hub), Some(second), "it was carried out all the same");
    assert_eq!(proxy.dropped_answers(), 1);
}

#[test]
fn a_push_over_http_whose_answers_are_all_lost_is_called_failed() {
    if HttpBackend::lacks().is_some_and(missing) {
        return;
    }
    let hub = Hub::new();
    let (repo, server) = (client(), HttpBackend::start(&hub));
    let proxy = Proxy::start(server.addr());
    let url = server.url_at(proxy.addr());
    push(&repo, &server, &url).ok();

    let second = commit(&repo, "second");
    proxy.set(Behaviour::DropAnswersOfPushes);
    push(&repo, &server, &url).says("RPC failed");
    assert_eq!(tip(&hub), Some(second));
    assert_eq!(proxy.dropped_answers(), 2, "libcurl's own second try, too");

    // On connections that are used once, nothing is sent again.
    let third = commit(&repo, "third");
    let once = ["-c", "http.extraHeader=Connection: close", "push", "--quiet", &url, "HEAD:refs/heads/main"];
    Outcome::of(&once, &mut git(&repo, &server, &once)).says("RPC failed");
    assert_eq!((tip(&hub), proxy.dropped_answers()), (Some(third), 3));
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
