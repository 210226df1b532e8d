//! `pm doctor --fix`: removes what nobody can need, and nothing else.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use super::doctor::{doctor, none, the};
use crate::support::process::Process;
use crate::support::{Outcome, Repo, task_ref, until};

const DAY: Duration = Duration::from_secs(25 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

/// Dates a file back.
fn age(path: &Path, by: Duration) {
    let file = File::options().append(true).open(path).expect("opened");
    file.set_modified(SystemTime::now() - by).expect("dated");
}

/// Makes an empty file of this age. Not this process makes it: what another thread starts meanwhile would have it open,
/// too, until it runs its own program.
fn plant(path: PathBuf, by: Duration) -> PathBuf {
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    let since_epoch = (SystemTime::now() - by).duration_since(SystemTime::UNIX_EPOCH).expect("later");
    let mut touch = Command::new("touch");
    touch.arg(format!("--date=@{}.{:09}", since_epoch.as_secs(), since_epoch.subsec_nanos())).arg(&path);
    assert!(touch.status().expect("touch starts").success());
    path
}

fn lock_file(repo: &Repo, slug: &str) -> PathBuf {
    repo.git_dir().join(task_ref(slug) + ".lock")
}

#[test]
fn a_lock_that_nobody_holds_is_removed_by_fix_alone() {
    let repo = Repo::new();
    repo.plan("a");
    let git_dir = repo.git_dir();
    let other = plant(git_dir.join("refs/heads/x.lock"), MINUTE);
    let places = [
        lock_file(&repo, "a"),
        git_dir.join("packed-refs.lock"),
        git_dir.join("config.lock"),
        git_dir.join("refs/pm-lost/q/a.lock"),
    ];
    for lock in places {
        plant(lock.clone(), MINUTE);
        the(&doctor(&repo, &[]), "stale-lock", "wrong", &lock.display().to_string());
        assert!(lock.exists());
        the(&doctor(&repo, &["--fix"]), "stale-lock", "fixed", &lock.display().to_string());
        assert!(!lock.exists());
        none(&doctor(&repo, &[]), "stale-lock");
    }
    assert!(other.exists(), "what is not of the ledger is git's business");
    repo.claim("a");
}

#[test]
fn a_lock_that_is_young_or_from_the_future_stays() {
    let repo = Repo::new();
    repo.plan("a");
    let lock = plant(lock_file(&repo, "a"), Duration::ZERO);
    none(&doctor(&repo, &["--fix"]), "stale-lock");
    File::options().append(true).open(&lock).expect("opened").set_modified(SystemTime::now() + MINUTE).expect("dated");
    the(&doctor(&repo, &["--fix"]), "stale-lock", "wrong", "in the future");
    assert!(lock.exists());
}

#[test]
fn a_lock_that_a_process_has_open_stays() {
    let repo = Repo::new();
    repo.plan("a");
    let lock = lock_file(&repo, "a");
    let script = "exec 3>\"$1\"; echo open; read -r _";
    let mut command = repo.program("sh", &["-c", script, "sh", &lock.display().to_string()]);
    let mut holder = Process::start(command.stdin(Stdio::piped()));
    assert_eq!(holder.lines().next().as_deref(), Some("open"));
    age(&lock, MINUTE);
    let pid = holder.0.id();
    the(&doctor(&repo, &["--fix"]), "stale-lock", "note", &format!("process {pid} (sh)"));
    assert!(lock.exists());
    drop(holder);
    the(&doctor(&repo, &["--fix"]), "stale-lock", "fixed", "nobody held");
}

#[test]
fn a_lock_that_git_holds_without_having_it_open_stays() {
    let repo = Repo::new();
    repo.plan("a");
    let (lock, git_dir) = (lock_file(&repo, "a"), repo.git_dir());
    let named = git_dir.display().to_string();
    // Found by where it is, and by what it names.
    for args in [&["update-ref", "--stdin"][..], &["--git-dir", &named, "update-ref", "--stdin"]] {
        let mut command = repo.program("git", args);
        if args.len() > 2 {
            command.current_dir("/");
        }
        let mut git = Process::start(command.stdin(Stdio::piped()));
        let script = format!("start\nupdate {} {}\nprepare\n", task_ref("a"), repo.tip("a"));
        git.0.stdin.as_mut().expect("a pipe").write_all(script.as_bytes()).expect("written");
        assert_eq!(git.lines().take(2).last().as_deref(), Some("prepare: ok"));
        age(&lock, MINUTE);
        the(&doctor(&repo, &["--fix"]), "stale-lock", "note", &format!("process {} (git)", git.0.id()));
        assert!(lock.exists());
        drop(git.0.stdin.take());
        until("git has ended", || git.0.try_wait().expect("asked"));
        assert!(!lock.exists(), "it took its lock with it");
    }
}

#[test]
fn a_git_that_only_waits_for_pm_holds_no_lock() {
    let repo = Repo::new();
    repo.plan("a");
    let lock = plant(lock_file(&repo, "a"), MINUTE);
    let dir = Path::new(env!("CARGO_BIN_EXE_git-pm")).parent().expect("a directory").display().to_string();
    let path = format!("{dir}:{}", std::env::var("PATH").expect("a path"));
    let args = ["pm", "doctor", "--fix"];
    Outcome::of(&args, repo.program("git", &args).env("PATH", path)).ok();
    assert!(!lock.exists());
}

#[test]
fn a_lock_that_a_pm_prepared_is_left_to_the_next_one() {
    let repo = Repo::new();
    repo.plan("a");
    let shard = pm::id::RefName::from_full(task_ref("a")).shard();
    let value = plant(repo.git_dir().join(format!("pm/locks/{shard:02x}.value")), MINUTE);
    fs::hard_link(&value, lock_file(&repo, "a")).expect("linked");
    the(&doctor(&repo, &["--fix"]), "stale-lock", "note", "about to record");
    assert!(lock_file(&repo, "a").exists());
    repo.claim("a");
    assert!(!lock_file(&repo, "a").exists());
}

#[test]
fn files_of_the_dead_are_counted_and_with_fix_removed() {
    let repo = Repo::new();
    repo.plan("a");
    let git_dir = repo.git_dir();
    let texts = git_dir.join("pm").join("work");
    let names = ["objects/.tmp-pm-1", "objects/.tmpX", "pm/observations.tmp-7", "pm/poll-status.json.tmp"];
    let mut old = names.map(|name| plant(git_dir.join(name), DAY)).to_vec();
    old.push(plant(texts.join("claim.txt"), DAY));
    let young = plant(git_dir.join("objects/.tmp-pm-2"), MINUTE);
    let used = plant(texts.join("used.txt"), DAY);
    let held = File::open(&used).expect("opened");
    fs4::FileExt::try_lock_shared(&held).expect("locked");
    let leftovers = |options: &[&str], level: &str| -> Vec<String> {
        let found = doctor(&repo, options).into_iter().filter(|row| row.check == "leftover");
        found.map(|row| (assert_eq!(row.level, level), row.found).1).collect()
    };
    let counted = leftovers(&[], "note");
    assert!(counted[0].starts_with("2 temporary object files") && counted[1].starts_with("1 task text"), "{counted:?}");
    assert!(counted[2].starts_with("2 half-written state files"), "{counted:?}");
    assert!(old.iter().all(|path| path.exists()), "nothing goes without --fix");
    assert_eq!(leftovers(&["--fix"], "fixed").len(), 3);
    assert!(old.iter().all(|path| !path.exists()) && young.exists() && used.exists());
    assert_eq!(leftovers(&["--fix"], "fixed").len(), 0);
}
