//! Lock files that somebody left behind: a dead pm's is healed at once, anybody else's is left alone. (That a wait for
//! the latter ends with 21 is shown in `exit_codes`: it takes ten seconds.)

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use pm::id::RefName;

use crate::support::confined::{has, missing};
use crate::support::{Outcome, Repo, task_ref, until};

/// Healing needs no waiting: far less than the ten seconds of a wait, far more than a slow machine needs.
const AT_ONCE: Duration = Duration::from_secs(5);

fn shard(slug: &str) -> u8 {
    RefName::from_full(task_ref(slug)).shard()
}

/// The file that a pm prepares the new value of a ref in, by the ref's shard.
fn value_file(repo: &Repo, slug: &str) -> PathBuf {
    repo.git_dir().join(format!("pm/locks/{:02x}.value", shard(slug)))
}

fn lock_file(repo: &Repo, slug: &str) -> PathBuf {
    repo.git_dir().join(task_ref(slug) + ".lock")
}

#[track_caller]
fn works_at_once(repo: &Repo, args: &[&str]) {
    let started = Instant::now();
    repo.pm(args).ok();
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
}

fn assert_clean(repo: &Repo) {
    let entries = std::fs::read_dir(repo.git_dir().join("pm/locks")).expect("listed");
    let left: Vec<String> = entries
        .map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".value"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    repo.assert_sound();
}

#[test]
fn a_pm_killed_before_its_rename_leaves_a_lock_that_the_next_one_heals_at_once() {
    if !has("strace") && missing("strace") {
        return;
    }
    let repo = Repo::new();
    repo.plan("a");
    let before = repo.tip("a");
    let lock = lock_file(&repo, "a").display().to_string();
    let pm = env!("CARGO_BIN_EXE_pm");
    let inject = "inject=rename,renameat,renameat2:signal=SIGKILL:when=1";
    let strace = ["-f", "-o", "/dev/null", "-P", &lock, "-e", inject, pm, "executing", "--task", "a"];
    let killed = Outcome::of(&strace, repo.program("strace", &strace).env("PM_AGENT_ID", "w1"));
    assert_ne!(killed.code, 0, "{killed:?}");
    assert!(lock_file(&repo, "a").exists() && value_file(&repo, "a").exists(), "{killed:?}");
    assert_eq!(repo.tip("a"), before);
    works_at_once(&repo, &["executing", "--task", "a"]);
    assert!(!lock_file(&repo, "a").exists());
    assert_clean(&repo);
}

#[test]
fn what_a_pm_leaves_behind_at_any_point_of_an_append_is_healed_at_once() {
    let repo = Repo::new();
    repo.plan("a");
    repo.claim("a");
    let (value, lock) = (value_file(&repo, "a"), lock_file(&repo, "a"));
    // Killed after the prepared file was made, empty or written; after it was linked; after the rename.
    for (content, name) in [("", None), ("partial", None), ("", Some(&lock)), ("partial", Some(&lock))] {
        std::fs::write(&value, content).expect("written");
        if let Some(name) = name {
            std::fs::hard_link(&value, name).expect("linked");
        }
        works_at_once(&repo, &["heartbeat", "--task", "a"]);
        assert!(!lock.exists());
        assert_clean(&repo);
    }
    let loose = repo.git_dir().join(task_ref("a"));
    std::fs::hard_link(&loose, &value).expect("linked");
    let before = repo.tip("a");
    works_at_once(&repo, &["heartbeat", "--task", "a"]);
    assert_eq!(
        repo.git(&["rev-parse", &format!("{}~", task_ref("a"))]),
        before,
        "the ref itself was not taken for a lock"
    );
    assert_clean(&repo);
}

#[test]
fn a_lock_left_on_another_ref_of_the_same_shard_is_healed_too() {
    let repo = Repo::new();
    let other = (0..100_000).map(|n| format!("t{n}")).find(|slug| shard(slug) == shard("a")).expect("one in 256");
    repo.plan("a");
    repo.plan(&other);
    std::fs::write(value_file(&repo, "a"), "").expect("written");
    std::fs::hard_link(value_file(&repo, "a"), lock_file(&repo, "a")).expect("linked");
    works_at_once(&repo, &["executing", "--task", &other]);
    assert!(!lock_file(&repo, "a").exists());
    assert_clean(&repo);
    works_at_once(&repo, &["executing", "--task", "a"]);
}

#[test]
fn a_batch_that_died_is_healed_by_the_next_append_or_batch() {
    let repo = Repo::new();
    repo.plan("a");
    let value = repo.git_dir().join("pm/locks/packed.value");
    let lock = repo.git_dir().join("packed-refs.lock");
    for batch in [true, false] {
        std::fs::write(&value, "# pack-refs with: ").expect("written");
        std::fs::hard_link(&value, &lock).expect("linked");
        if batch {
            let started = Instant::now();
            repo.pm_fed("{\"slug\":\"b\",\"title\":\"B\"}", &["bulk-plan", "--input", "-"]).ok();
            assert!(started.elapsed() < AT_ONCE);
        } else {
            works_at_once(&repo, &["executing", "--task", "a"]);
        }
        assert!(!lock.exists());
        assert_clean(&repo);
    }
    repo.git(&["pack-refs", "--all"]);
}

#[test]
fn a_foreign_lock_of_packed_refs_does_not_stop_single_appends_and_is_left_alone() {
    let repo = Repo::new();
    repo.plan("a");
    repo.git(&["pack-refs", "--all"]);
    let lock = repo.git_dir().join("packed-refs.lock");
    std::fs::write(&lock, "git is at work").expect("written");
    works_at_once(&repo, &["executing", "--task", "a"]);
    works_at_once(&repo, &["plan", "--title", "B"]);
    assert_eq!(std::fs::read(&lock).expect("still there"), b"git is at work");
    std::fs::remove_file(&lock).expect("removed by its owner");
    assert_clean(&repo);
}

#[test]
fn a_foreign_lock_that_is_freed_in_time_only_delays() {
    let repo = Repo::new();
    repo.plan("a");
    let lock = lock_file(&repo, "a");
    std::fs::write(&lock, "").expect("written");
    let child = repo
        .pm_command(&["executing", "--task", "a"])
        .env("PM_AGENT_ID", "w1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("pm starts");
    until("pm has prepared the new value", || value_file(&repo, "a").exists().then_some(()));
    std::fs::remove_file(&lock).expect("removed by its owner");
    Outcome::from_output(&["executing"], child.wait_with_output().expect("pm ends")).ok();
    assert_clean(&repo);
}

#[test]
fn a_lock_that_looks_like_one_of_ours_but_is_another_file_is_left_alone() {
    let repo = Repo::new();
    repo.plan("a");
    repo.plan("b");
    // A dead pm's prepared file, and on another task a lock of somebody else.
    std::fs::write(value_file(&repo, "a"), "").expect("written");
    std::fs::write(lock_file(&repo, "b"), "").expect("written");
    works_at_once(&repo, &["executing", "--task", "a"]);
    assert!(lock_file(&repo, "b").exists());
    std::fs::remove_file(lock_file(&repo, "b")).expect("removed by its owner");
    assert_clean(&repo);
}
