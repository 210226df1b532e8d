//! Tests of reading, swapping and publishing refs: against git's own packing, dead pm processes, and foreign locks.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::*;
use crate::store::git::refs::lock_of;

#[test]
fn threads_that_append_to_one_ref_lose_nothing_while_git_packs_it() {
    let repo = Repo::init(&[]);
    let (one, stop) = (name("one"), AtomicBool::new(false));
    const EACH: usize = 25;
    std::thread::scope(|scope| {
        let packer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                repo.git(&["pack-refs", "--all", "--prune"]);
            }
        });
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (repo, one) = (&repo, &one);
                scope.spawn(move || {
                    let mut store = repo.open();
                    store.set_patience(lock::PATIENCE);
                    let mut done = 0;
                    while done < EACH {
                        let tip = store.tip(one).expect("read");
                        let (_, outcome) = append(&store, one, tip, &format!("{writer} {done}")).expect("decided");
                        done += usize::from(outcome == Swap::Done);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        stop.store(true, Ordering::Relaxed);
        packer.join().expect("git packs");
    });
    assert_eq!(repo.git(&["rev-list", "--count", one.as_str()]), (8 * EACH).to_string());
    assert_clean(&repo.open());
}

#[test]
fn listings_are_whole_while_git_packs_refs() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let stop = AtomicBool::new(false);
    let mut ids: Vec<Oid> = (0..50).map(|i| append_done(&store, &name(&format!("t{i}")), None, "x")).collect();
    std::thread::scope(|scope| {
        let packer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                repo.git(&["pack-refs", "--all", "--prune"]);
            }
        });
        for round in 0..2 {
            for (i, id) in ids.iter_mut().enumerate() {
                let mut store = repo.open();
                store.set_patience(lock::PATIENCE);
                *id = append_done(&store, &name(&format!("t{i}")), Some(*id), &format!("{round}"));
                assert_eq!(tips(&store).len(), 50);
            }
        }
        stop.store(true, Ordering::Relaxed);
        packer.join().expect("git packs");
    });
}

#[test]
fn broken_refs_are_rows_of_a_listing_and_errors_of_a_read() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let id = append_done(&store, &name("whole"), None, "x");
    let dir = store.common_dir().join("refs/pm/tasks/q");
    let sha256 = "1".repeat(64);
    for (slug, content) in [("symbolic", "ref: refs/heads/main\n"), ("empty", ""), ("long", sha256.as_str())] {
        fs::write(dir.join(slug), content).expect("written");
        assert!(matches!(store.tip(&name(slug)), Err(StoreError::BrokenRef { .. })), "{slug}");
        assert!(matches!(swap(&store, &name(slug), None, id), Err(StoreError::BrokenRef { .. })), "{slug}");
        assert_eq!(fs::read_to_string(dir.join(slug)).expect("read"), content, "left alone");
    }
    fs::write(dir.join("x.lock"), "").expect("written");
    let rows = store.tips(TASKS).expect("listed");
    let broken: Vec<_> = rows.iter().filter(|row| row.1.is_err()).map(|row| row.0.as_str()).collect();
    assert_eq!(broken, ["refs/pm/tasks/q/empty", "refs/pm/tasks/q/long", "refs/pm/tasks/q/symbolic"]);
    assert_eq!(rows.len(), 4);
    assert_clean(&store);
}

#[test]
fn names_that_would_leave_the_ref_directory_are_refused() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let id = append_done(&store, &name("a"), None, "x");
    for bad in ["refs/pm/../../x", "HEAD", "refs/pm/a\nb", "/etc/x", "refs/pm/x.lock", ""] {
        let bad = RefName::from_full(bad.to_owned());
        assert!(swap(&store, &bad, None, id).is_err(), "{bad:?}");
        assert!(publish(&store, &[(bad, id)]).is_err());
    }
}

/// A pm that died at some point of its swap: what it left is made by hand, then another pm comes.
fn check_healing(prepare: impl Fn(&GitStore, &RefName, &Path), tip_survives: bool) {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let one = name("one");
    let first = append_done(&store, &one, None, "first");
    let value = store.common_dir().join(format!("pm/locks/{:02x}.value", one.shard()));
    prepare(&store, &one, &value);
    let tip = store.tip(&one).expect("read").expect("there");
    assert_eq!(tip == first, tip_survives);
    append_done(&store, &one, Some(tip), "after the death");
    assert_clean(&store);
    assert!(!lock_of(&store.refs.path(&one)).exists());
    repo.fsck();
}

#[test]
fn what_a_dead_pm_left_is_healed_at_once() {
    check_healing(|_, _, value| fs::write(value, "half").expect("written"), true);
    check_healing(
        |store, one, value| {
            fs::write(value, "half").expect("written");
            fs::hard_link(value, lock_of(&store.refs.path(one))).expect("linked");
        },
        true,
    );
    check_healing(
        |store, one, value| {
            let new = store.write_commit(&commit(store.tip(one).expect("read"), "of the dead")).expect("written");
            fs::write(value, format!("{new}\n")).expect("written");
            let lock = lock_of(&store.refs.path(one));
            fs::hard_link(value, &lock).expect("linked");
            fs::rename(lock, store.refs.path(one)).expect("renamed");
        },
        false,
    );
}

#[test]
fn the_lock_that_a_dead_pm_left_on_another_ref_of_the_shard_is_healed_too() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let one = name("one");
    let other = (0..).map(|i| name(&format!("o{i}"))).find(|other| other.shard() == one.shard()).expect("found");
    append_done(&store, &one, None, "one");
    let value = store.common_dir().join(format!("pm/locks/{:02x}.value", one.shard()));
    fs::write(&value, "half").expect("written");
    fs::hard_link(&value, lock_of(&store.refs.path(&one))).expect("linked");
    append_done(&store, &other, None, "other");
    assert!(!lock_of(&store.refs.path(&one)).exists());
    assert_clean(&store);
}

#[test]
fn a_lock_that_may_be_gits_is_waited_for_and_never_touched() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let one = name("one");
    let first = append_done(&store, &one, None, "first");
    let lock = lock_of(&store.refs.path(&one));
    let value = store.common_dir().join(format!("pm/locks/{:02x}.value", one.shard()));
    for leftover in [false, true] {
        fs::write(&lock, "").expect("written");
        if leftover {
            fs::write(&value, "of a dead pm").expect("written");
        }
        let started = Instant::now();
        let error = append(&store, &one, Some(first), "x").expect_err("locked");
        assert!(
            matches!(&error, StoreError::Locked { path, waited_ms } if *path == lock && *waited_ms >= 30),
            "{error}"
        );
        assert!(started.elapsed() >= SHORT);
        assert_eq!(fs::read(&lock).expect("still there"), b"");
        assert_clean(&store);
        fs::remove_file(&lock).expect("removed");
    }
    append_done(&store, &one, Some(first), "second");
}

#[test]
fn an_empty_directory_that_git_left_in_the_place_of_a_ref_is_replaced() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let path = store.refs.path(&name("one"));
    fs::create_dir_all(&path).expect("a directory");
    let id = append_done(&store, &name("one"), None, "x");
    assert_eq!(repo.git(&["rev-parse", name("one").as_str()]), id.to_string());
    fs::create_dir_all(store.refs.path(&name("two/below"))).expect("a directory");
    assert!(append(&store, &name("two"), None, "x").is_err(), "a directory that is not empty is left alone");
    assert_clean(&store);
}

#[test]
fn a_batch_that_died_is_healed_and_a_live_one_is_waited_for() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let id = append_done(&store, &name("a"), None, "x");
    let locks = store.common_dir().join("pm/locks");
    let (value, lock) = (locks.join("packed.value"), store.common_dir().join("packed-refs.lock"));
    let die = || {
        fs::write(&value, "half").expect("written");
        fs::hard_link(&value, &lock).expect("linked");
    };
    die();
    let id = append_done(&store, &name("a"), Some(id), "y");
    assert!(!value.exists() && !lock.exists(), "healed by an append");
    die();
    assert_eq!(publish(&store, &[(name("b"), id)]).expect("done"), Publish::Done { shadowed: Vec::new() });
    assert!(!value.exists() && !lock.exists(), "healed by a batch");

    die();
    let batch = fs::File::create(locks.join("packed")).expect("opened");
    assert!(lock::try_lock(&batch, Mode::Exclusive).expect("locked"));
    append_done(&store, &name("a"), Some(id), "z");
    assert!(value.exists() && lock.exists(), "alive");
    assert!(
        matches!(publish(&store, &[(name("c"), id)]), Err(StoreError::Locked { path, .. }) if path.ends_with("packed"))
    );
    drop(batch);

    fs::remove_file(&lock).expect("removed");
    fs::write(&lock, "").expect("written");
    assert!(matches!(publish(&store, &[(name("c"), id)]), Err(StoreError::Locked { path, .. }) if path == lock));
    assert!(lock.exists(), "it may be git's");
    assert_clean(&store);
}

#[test]
fn a_batch_keeps_every_line_of_packed_refs() {
    let repo = Repo::init(&[]);
    repo.git(&["commit", "--quiet", "--allow-empty", "-m", "c"]);
    repo.git(&["tag", "-a", "-m", "t", "v1"]);
    repo.git(&["update-ref", "refs/zzz/last", "HEAD"]);
    repo.git(&["pack-refs", "--all"]);
    let store = repo.open();
    let id = store.write_commit(&commit(None, "x")).expect("written");
    let packed = |store: &GitStore| fs::read_to_string(store.common_dir().join("packed-refs")).expect("read");
    let before = packed(&store);
    assert_eq!(
        publish(&store, &[(name("b"), id), (name("a"), id)]).expect("done"),
        Publish::Done { shadowed: Vec::new() }
    );
    let after = packed(&store);
    let kept: Vec<_> = after.lines().filter(|line| !line.contains(TASKS)).collect();
    assert_eq!(kept, before.lines().collect::<Vec<_>>());
    assert_eq!(after.lines().count(), before.lines().count() + 2);
    let loose = append_done(&store, &name("loose"), None, "x");
    assert_eq!(
        publish(&store, &[(name("c"), id), (name("loose"), loose)]).expect("decided"),
        Publish::Taken { names: vec![name("loose")] }
    );
    assert_eq!(packed(&store), after);
    repo.git(&["refs", "verify"]);
    repo.fsck();
}
