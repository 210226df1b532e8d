//! A full disk: a clear error, the old state intact, and all well again once there is room.

use std::path::Path;

use crate::support::confined::{Mounts, is_root, missing};
use crate::support::{Outcome, Repo, task_ref};

/// A ledger on a file system of one mebibyte, with a claimed task.
fn on_a_small_disk() -> (Repo, Mounts) {
    let mut repo = Repo::nowhere();
    std::fs::create_dir(repo.path()).expect("created");
    let mounts = Mounts::new("mount -t tmpfs -o size=1m,mode=755 tmpfs \"$1/repo\"", repo.outside());
    mounts.confine(&mut repo);
    repo.git(&["init", "--quiet", "--initial-branch=main", "--template="]);
    for (key, value) in [("user.name", "Ada"), ("user.email", "ada@example.com"), ("core.fsync", "committed,reference")]
    {
        repo.git(&["config", key, value]);
    }
    repo.plan("a");
    repo.claim("a");
    (repo, mounts)
}

/// Writes until nothing fits any more; what it wrote is freed by removing the file.
fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).expect("created");
    let block = [0; 4096];
    // More than the whole disk: the bound of the loop.
    for _ in 0..1024 {
        if let Err(error) = file.write_all(&block) {
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
            return;
        }
    }
    panic!("the disk is larger than it should be");
}

/// Asserts that a command failed because the disk is full, and says so.
#[track_caller]
fn full(outcome: &Outcome) {
    let said = outcome.clone().fails(1).stderr;
    assert!(said.contains("No space left on device") || said.contains("no storage space"), "{outcome:?}");
}

#[test]
fn a_full_disk_is_a_clear_error_that_leaves_the_old_state_intact() {
    if !is_root() && missing("root") {
        return;
    }
    let (repo, mounts) = on_a_small_disk();
    let before = repo.refs();
    std::fs::write(repo.outside().join("attached"), "x".repeat(100_000)).expect("written outside");
    let filler = mounts.seen_from_outside(&repo.path().join("filler"));
    fill(&filler);
    for args in [
        &["plan", "--title", "B"][..],
        &["heartbeat", "--task", "a"],
        &["report", "--task", "a", "--title", "T", "--attach", "../attached"],
        &["release", "--task", "a"],
        &["reclaim", "--task", "a"],
    ] {
        full(&repo.pm(args));
        let error = repo.pm(&[args, &["--json"]].concat()).fails(1).error();
        assert_eq!((&error["code"], &error["recorded"]), (&"failure".into(), &serde_json::Value::Null));
    }
    full(&repo.pm_fed("{\"title\":\"B\"}", &["bulk-plan", "--input", "-"]));
    assert_eq!(repo.refs(), before, "nothing was moved");
    assert_eq!(repo.pm(&["list", "--json"]).json()["total"], 1);
    assert_eq!(repo.phase("a"), "working");

    std::fs::remove_file(&filler).expect("freed");
    repo.pm(&["plan", "--title", "B"]).ok();
    repo.pm(&["heartbeat", "--task", "a"]).ok();
    repo.pm_fed("{\"title\":\"C\"}", &["bulk-plan", "--input", "-"]).ok();
    repo.pm(&["report", "--task", "a", "--title", "T", "--attach", "../attached"]).ok();
    repo.pm(&["finished", "--task", "a"]).ok();
    let leftovers = repo.git_outcome(&["-c", "core.quotePath=false", "count-objects", "-v"]).ok().stdout;
    assert!(leftovers.contains("garbage: 0"), "{leftovers}");
    let locks = mounts.seen_from_outside(&repo.path().join(".git").join(task_ref("a") + ".lock"));
    assert!(!locks.exists());
    repo.assert_sound();
}

#[test]
fn output_that_nobody_could_be_given_because_the_disk_is_full_is_not_a_success_in_silence() {
    let repo = Repo::new();
    repo.plan("a");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is always full");
    let output = repo.pm_command(&["list"]).stdout(full).output().expect("pm runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("No space left on device"));
}
