//! `pm doctor --remote`: what a host does is tried out, and nothing of it stays there.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use pm::git_program::network::{Bounds, Couriers};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::process::{Process, with_variable};
use crate::support::{DEADLINE, Repo, text, until};

/// A repository whose authority is a bare one beside it.
fn with_hub() -> (Repo, String) {
    let repo = Repo::new();
    let hub = repo.outside().join("hub.git").display().to_string();
    repo.git(&["init", "--quiet", "--bare", "--template=", &hub]);
    repo.git(&["remote", "add", "origin", "../hub.git"]);
    repo.git(&["config", "pm.remote", "origin"]);
    (repo, hub)
}

fn hook(hub: &str, name: &str, script: &str) {
    let dir = Path::new(hub).join("hooks");
    std::fs::create_dir_all(&dir).expect("made");
    let path = dir.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("set");
}

/// Runs the probe: its exit code, and level and text of what it found about the remote, by check.
fn probe(repo: &Repo) -> (i32, Vec<(String, String, String)>) {
    let outcome = repo.pm(&["doctor", "--remote", "--json"]);
    let row = |finding: &Value| (text(&finding["check"]), text(&finding["level"]), text(&finding["found"]));
    let found = outcome.stdout_json()["findings"].as_array().expect("a list").iter().map(row).collect::<Vec<_>>();
    (outcome.code, found.into_iter().filter(|(check, _, _)| check.starts_with("remote")).collect())
}

#[track_caller]
fn check(found: &[(String, String, String)], check: &str, level: &str, says: &str) {
    let is_it = |row: &&(String, String, String)| row.0 == check;
    let row = found.iter().find(is_it).unwrap_or_else(|| panic!("no {check} in {found:?}"));
    assert!(row.1 == level && row.2.contains(says), "{row:?}");
}

fn scratch(repo: &Repo, hub: &str) -> String {
    repo.git(&["--git-dir", hub, "for-each-ref", "refs/pm/doctor", "refs/heads"])
}

#[test]
fn a_plain_bare_repository_can_be_an_authority_and_nothing_is_left_in_it() {
    let (repo, hub) = with_hub();
    repo.plan("a");
    repo.git(&["push", "--quiet", "origin", "refs/pm/tasks/default/a"]);
    let before = repo.git(&["--git-dir", &hub, "for-each-ref"]);
    let (code, found) = probe(&repo);
    assert_eq!((code, found.len()), (0, 8), "{found:?}");
    check(&found, "remote-reach", "note", "it has 1 ref, 1 task among them");
    check(&found, "remote-create", "note", "a push took");
    for refused in ["remote-create-twice", "remote-stale", "remote-rewind-plain"] {
        check(&found, refused, "note", "does not let a push");
    }
    check(&found, "remote-atomic", "note", "all or not at all");
    check(&found, "remote-rewind", "note", "lets a forced push move a scratch ref back");
    check(&found, "remote-delete", "note", "lets a push delete refs");
    assert_eq!(repo.git(&["--git-dir", &hub, "for-each-ref"]), before);
    assert!(!repo.git(&["for-each-ref"]).contains("doctor"));
}

#[test]
fn a_mirror_and_a_hook_of_the_codes_own_do_not_disturb_the_probe() {
    let (repo, hub) = with_hub();
    repo.git(&["config", "remote.origin.mirror", "true"]);
    repo.git(&["config", "remote.origin.fetch", "+refs/*:refs/*"]);
    hook(&repo.git_dir().display().to_string(), "pre-push", "exit 1");
    repo.git(&["--git-dir", &hub, "config", "receive.denyNonFastForwards", "true"]);
    let (_, found) = probe(&repo);
    check(&found, "remote-rewind", "note", "lets a forced push move a scratch ref back");
    assert_eq!((scratch(&repo, &hub), repo.refs()), (String::new(), String::new()));
}

#[test]
fn a_host_that_takes_branches_alone_cannot_share_a_ledger() {
    let (repo, hub) = with_hub();
    hook(
        &hub,
        "pre-receive",
        "while read -r o n r; do case $r in refs/heads/*) ;; *) echo 'branches only'; exit 1;; esac; done",
    );
    let (code, found) = probe(&repo);
    assert_eq!((code, found.len()), (1, 2), "{found:?}");
    check(&found, "remote-create", "wrong", "takes branches, and refuses refs/pm/");
    assert!(found[1].2.contains("branches only"), "the host's own words: {found:?}");
    assert_eq!(scratch(&repo, &hub), "");
    hook(&hub, "pre-receive", "echo 'read only'; exit 1");
    check(&probe(&repo).1, "remote-create", "wrong", "takes nothing from you");
}

#[test]
fn a_hook_that_judges_is_seen_to() {
    let (repo, hub) = with_hub();
    let forward = "[ \"$2\" = 0000000000000000000000000000000000000000 ] || git merge-base --is-ancestor \"$2\" \"$3\"";
    hook(&hub, "update", &format!("[ \"$3\" = 0000000000000000000000000000000000000000 ] || {forward}"));
    let (code, found) = probe(&repo);
    check(&found, "remote-rewind", "note", "nobody can undo records");
    check(&found, "remote-atomic", "note", "all or not at all");
    assert_eq!((code, scratch(&repo, &hub)), (0, String::new()));
}

#[test]
fn scratch_refs_that_cannot_be_deleted_are_named() {
    let (repo, hub) = with_hub();
    hook(&hub, "update", "[ \"$3\" != 0000000000000000000000000000000000000000 ]");
    let (code, found) = probe(&repo);
    check(&found, "remote-delete", "wrong", "refs/pm/doctor/");
    assert_eq!((code, scratch(&repo, &hub).lines().count()), (1, 2));
    check(&probe(&repo).1, "remote-scratch", "note", "of another probe");
}

#[test]
fn a_host_without_atomic_pushes_and_one_that_hides_the_ledger_are_told() {
    let (repo, hub) = with_hub();
    repo.git(&["--git-dir", &hub, "config", "receive.advertiseAtomic", "false"]);
    let (code, found) = probe(&repo);
    check(&found, "remote-atomic", "wrong", "several refs at once");
    check(&found, "remote-rewind", "note", "lets a forced push");
    assert_eq!((code, scratch(&repo, &hub)), (1, String::new()));
    repo.git(&["--git-dir", &hub, "config", "uploadpack.hideRefs", "refs/pm"]);
    check(&probe(&repo).1, "remote-create", "wrong", "does not show them");
}

#[test]
fn an_authority_that_cannot_be_reached_is_wrong_and_none_is_a_wrong_call() {
    let (repo, hub) = with_hub();
    std::fs::remove_dir_all(hub).expect("removed");
    let (code, found) = probe(&repo);
    assert_eq!((code, found.len()), (1, 1));
    check(&found, "remote-reach", "wrong", "cannot be reached");
    repo.git(&["config", "--unset", "pm.remote"]);
    repo.pm(&["doctor", "--remote"]).fails(2).says("`pm init --remote <name>`");
}

#[test]
fn an_answer_that_was_lost_is_no_refusal() {
    let (repo, hub) = with_hub();
    // The second push that reaches the host, the right update, ends its connection.
    let count = "n=$(cat \"$0.n\" 2>/dev/null || echo 0); echo $((n + 1)) >\"$0.n\"";
    hook(&hub, "update", &format!("{count}; [ \"$n\" = 1 ] && kill -9 $PPID; exit 0"));
    let (code, found) = probe(&repo);
    check(&found, "remote-answer", "wrong", "did not say what became of a push");
    assert!(found.iter().all(|row| row.0 != "remote-update" && row.0 != "remote-atomic"), "{found:?}");
    assert_eq!((code, scratch(&repo, &hub)), (1, String::new()));
}

#[test]
fn a_signal_half_way_leaves_nothing_behind() {
    let (repo, hub) = with_hub();
    // The first push waits until it is told to go on.
    hook(&hub, "update", "[ -e \"$0.at\" ] && exit 0; echo >\"$0.at\"; read -r _ <\"$0.go\"");
    let hooks = Path::new(&hub).join("hooks");
    let go = hooks.join("update.go");
    assert!(repo.program("mkfifo", &[&go.display().to_string()]).status().expect("made").success());
    let probe = Process::start(&mut repo.pm_command(&["doctor", "--remote"]));
    until("the first push", || hooks.join("update.at").exists().then_some(()));
    probe.signal(Signal::TERM);
    std::fs::write(go, "go\n").expect("told");
    let outcome = probe.outcome().exits(1);
    assert!(outcome.stdout.contains("stopped half way") && !outcome.stdout.contains("remote-stale"), "{outcome:?}");
    assert_eq!(scratch(&repo, &hub), "");
}

#[test]
fn a_git_that_does_not_answer_is_ended_with_all_that_it_started() {
    let repo = Repo::new();
    let store = pm::store::git::GitStore::discover(repo.path()).expect("usable");
    let courier = pm::session::couriers(&store).send(&[]).expect("made");
    let assignment = format!("PM_PROBED={}", repo.path().display());
    let alias = format!("alias.hang=!{assignment} sleep 100 & {assignment} sleep 100");
    let started = Instant::now();
    let args = ["-c", &alias, "hang"].map(str::to_owned);
    let bounds = Bounds { time: Duration::from_millis(300), stop: &|| false };
    let ended = courier.run(&args, "", bounds).expect("git runs");
    assert!(started.elapsed() < DEADLINE && ended.was_cut_off, "{ended:?}");
    until("nothing of it is left", || with_variable(&assignment).is_empty().then_some(()));
}

#[test]
fn an_errand_that_a_leaping_clock_makes_look_old_is_not_swept_away() {
    let repo = Repo::new();
    let store = pm::store::git::GitStore::discover(repo.path()).expect("usable");
    let common_dir = store.common_dir();
    let courier = pm::session::couriers(&store).send(&[]).expect("made");
    let left = Couriers::dir(common_dir).join("1-of-the-dead");
    std::fs::create_dir_all(left.join("refs")).expect("made");
    // Everything is older than nothing at all.
    let swept = || Couriers::sweep(common_dir, Duration::ZERO).expect("swept");
    assert_eq!((swept(), left.exists()), (1, false));
    let bounds = Bounds { time: DEADLINE, stop: &|| false };
    let ended = courier.run(&["rev-parse", "--git-dir"].map(str::to_owned), "", bounds).expect("git runs");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    drop(courier);
    assert_eq!(std::fs::read_dir(Couriers::dir(common_dir)).expect("listed").count(), 0);
}
