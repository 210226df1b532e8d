//! The poller's two files, below the command line: what the lock promises, what the heartbeat promises, and why they
//! are two.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use pm::poll::PollError;
use pm::poll::heartbeat::{Cycle, Heartbeat};
use pm::poll::run_lock::{self, RunLock};

/// A directory and the path of a lock in it.
fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("poll.pid");
    (dir, path)
}

fn heartbeat(tasks: u64) -> Heartbeat {
    Heartbeat {
        started_at: "2026-11-30T02:00:00Z".to_owned(),
        last_cycle_at: Some("2026-11-30T02:01:00Z".to_owned()),
        interval_seconds: 60.0,
        last_cycle: Some(Cycle { tasks, ..Cycle::default() }),
    }
}

#[test]
fn whoever_holds_the_lock_is_named_in_it_and_nobody_else_gets_it() {
    let (_dir, path) = place();
    let lock = RunLock::acquire(&path).expect("free");
    assert!(lock.is_ours());
    assert_eq!(fs::read_to_string(&path).expect("readable"), format!("{}\n", std::process::id()));
    assert_eq!(run_lock::holder(&path).expect("asked"), Some(std::process::id()));
    match RunLock::acquire(&path) {
        Err(PollError::Held { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
    drop(lock);
    assert!(!path.exists(), "it is unlinked on release");
    assert!(!run_lock::held(&path).expect("asked"));
    drop(RunLock::acquire(&path).expect("free again"));
}

#[test]
fn a_note_that_nobody_holds_means_nothing_and_is_left_alone_until_the_next_start() {
    let (_dir, path) = place();
    fs::write(&path, "1\n").expect("written");
    assert_eq!((run_lock::held(&path).ok(), run_lock::holder(&path).ok()), (Some(false), Some(None)));
    assert_eq!(run_lock::recorded(&path), Some(1));
    drop(RunLock::acquire(&path).expect("free"));
    for (note, pid) in [("", None), ("12", None), ("x\n", None), ("0\n", None), ("-1\n", None), ("7\n", Some(7))] {
        fs::write(&path, note).expect("written");
        assert_eq!(run_lock::recorded(&path), pid, "{note:?}");
    }
}

#[test]
fn a_lock_whose_file_was_unlinked_or_replaced_is_not_ours_any_more_and_the_new_file_is_left_alone() {
    let (_dir, path) = place();
    let first = RunLock::acquire(&path).expect("free");
    fs::remove_file(&path).expect("removed");
    assert!(!first.is_ours());
    let second = RunLock::acquire(&path).expect("another file");
    assert!(second.is_ours() && !first.is_ours());
    drop(first);
    assert!(second.is_ours(), "what another one holds was not unlinked");
    let moved = path.with_extension("moved");
    fs::rename(&path, &moved).expect("moved");
    fs::write(&path, "1\n").expect("replaced");
    assert!(!second.is_ours());
}

#[test]
fn questions_never_make_a_start_fail() {
    let (_dir, path) = place();
    fs::write(&path, "").expect("written");
    let stop = AtomicBool::new(false);
    let asked = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Held for a while, as a probe that is scheduled away would.
                    let _held = run_lock::held(&path);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..200 {
            let lock = RunLock::acquire(&path);
            if lock.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            drop(lock.expect("nobody but askers"));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(asked.into_inner() > 0);
}

#[test]
fn of_threads_that_start_at_once_one_holds_the_lock_round_after_round() {
    const STARTERS: usize = 4;
    let (_dir, path) = place();
    for round in 0..100 {
        let (start, all_tried) = (Barrier::new(STARTERS), Barrier::new(STARTERS));
        let winners = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..STARTERS {
                scope.spawn(|| {
                    start.wait();
                    let lock = RunLock::acquire(&path);
                    winners.fetch_add(usize::from(lock.is_ok()), Ordering::SeqCst);
                    all_tried.wait();
                    drop(lock);
                });
            }
        });
        assert_eq!(winners.into_inner(), 1, "round {round}");
    }
}

#[test]
fn anything_but_contention_is_a_reason_not_to_start_and_names_the_path() {
    let (dir, path) = place();
    let unlockable = |path: &Path| match RunLock::acquire(path) {
        Err(error @ PollError::Unlockable { .. }) => assert!(error.to_string().contains(&path.display().to_string())),
        other => panic!("{other:?}"),
    };
    unlockable(&dir.path().join("missing/poll.pid"));
    fs::create_dir(&path).expect("a directory in its place");
    unlockable(&path);
    fs::remove_dir(&path).expect("removed");
    let elsewhere = dir.path().join("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, &path).expect("a symbolic link");
    unlockable(&path);
    assert!(!elsewhere.exists(), "a link is not followed");
}

#[test]
fn one_file_for_both_would_free_the_lock_in_the_first_cycle() {
    let (_dir, path) = place();
    let lock = RunLock::acquire(&path).expect("free");
    let inode = fs::metadata(&path).expect("there").ino();
    // What every cycle does, to the real file of the lock.
    heartbeat(1).write(&path).expect("written");
    assert_ne!(fs::metadata(&path).expect("there").ino(), inode, "the rename that makes it atomic replaced the file");
    assert!(!lock.is_ours());
    assert!(!run_lock::held(&path).expect("asked"), "while the first poller still runs");
    let second = RunLock::acquire(&path).expect("a second poller gets the lock");
    assert_eq!(Heartbeat::read(&path), None, "and its note is the end of the heartbeat");
    drop((lock, second));
}

#[test]
fn a_reader_never_sees_half_a_heartbeat() {
    const READS: usize = 100_000;
    let (dir, _) = place();
    let path = dir.path().join("poll-status.json");
    heartbeat(0).write(&path).expect("written");
    let (done, writes) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut tasks = 0;
            while !done.load(Ordering::Relaxed) {
                tasks += 1;
                heartbeat(tasks).write(&path).expect("written");
            }
            writes.store(usize::try_from(tasks).expect("few"), Ordering::Relaxed);
        });
        let mut newest = 0;
        for _ in 0..READS {
            let found = Heartbeat::read(&path).and_then(|heartbeat| heartbeat.last_cycle);
            if found.is_none() {
                done.store(true, Ordering::Relaxed);
            }
            let tasks = found.expect("a whole heartbeat").tasks;
            assert!(tasks >= newest, "an older one after a newer one");
            newest = tasks;
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(writes.into_inner() > 100, "it was rewritten while it was read");
}
