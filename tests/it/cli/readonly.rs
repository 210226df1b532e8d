//! A repository that cannot be written: everything that reads works, everything that writes is refused with 18.

use std::os::unix::fs::PermissionsExt;

use crate::support::confined::{AS_NOBODY, Mounts, is_root, missing};
use crate::support::{Outcome, Repo};

const READS: [&[&str]; 12] = [
    &["list"],
    &["list", "--json"],
    &["next"],
    &["show", "--task", "held"],
    &["log"],
    &["status"],
    &["queues"],
    &["owned"],
    &["verify"],
    &["sweep", "--dry-run", "--ttl", "1ms"],
    &["next", "--all"],
    &["show", "--task", "free"],
];

const WRITES: [&[&str]; 9] = [
    &["plan", "--title", "New"],
    &["bulk-plan", "--input", "plan"],
    &["pull"],
    &["executing", "--task", "free"],
    &["heartbeat", "--task", "held"],
    &["report", "--task", "held", "--title", "T", "--attach", "plan"],
    &["release", "--task", "held"],
    &["reclaim", "--task", "held"],
    &["finished", "--task", "reported"],
];

/// A ledger with a free task, a held one, and one that could be finished.
fn ledger() -> Repo {
    let repo = Repo::new();
    for slug in ["free", "held", "reported"] {
        repo.plan(slug);
    }
    repo.claim("held");
    repo.claim("reported");
    repo.pm(&["report", "--task", "reported", "--title", "T"]).ok();
    std::fs::write(repo.path().join("plan"), "{\"slug\":\"new\",\"title\":\"New\"}").expect("written");
    repo
}

/// Runs everything by way of `run`.
fn check(run: impl Fn(&[&str]) -> Outcome) {
    for args in READS {
        run(args).ok();
    }
    for args in WRITES {
        run(args).fails(18).says("cannot be written");
        let error = run(&[args, &["--json"]].concat()).fails(18).error();
        assert_eq!(error["code"], "unusable_repository");
    }
    // A claim that is stale cannot be taken away, and that is said.
    let swept = run(&["sweep", "--ttl", "1ms", "--force"]).exits(18);
    assert!(swept.stderr.contains("could not be reclaimed"), "{swept:?}");
}

#[test]
fn a_user_without_rights_can_read_and_is_refused_to_write() {
    if !is_root() && missing("root") {
        return;
    }
    let mut repo = ledger();
    let before = repo.refs();
    std::fs::set_permissions(repo.outside(), PermissionsExt::from_mode(0o755)).expect("readable by all");
    let config = repo.outside().join("gitconfig");
    std::fs::write(&config, format!("[safe]\n\tdirectory = {}\n", repo.path().display())).expect("written");
    let config = config.display().to_string();
    repo.set_prefix(&AS_NOBODY);
    check(|args| repo.pm_with(&[("GIT_CONFIG_GLOBAL", &config)], args));
    repo.set_prefix(&[]);
    assert_eq!(repo.refs(), before);
    repo.assert_sound();
}

#[test]
fn a_read_only_file_system_can_be_read_and_is_refused_to_write() {
    if !is_root() && missing("root") {
        return;
    }
    let mut repo = ledger();
    let before = repo.refs();
    let mounts =
        Mounts::new("mount --bind \"$1/repo\" \"$1/repo\"; mount -o remount,bind,ro \"$1/repo\"", repo.outside());
    mounts.confine(&mut repo);
    check(|args| repo.pm(args));
    repo.set_prefix(&[]);
    drop(mounts);
    assert_eq!(repo.refs(), before);
    repo.assert_sound();
    repo.pm(&["pull"]).ok();
}
