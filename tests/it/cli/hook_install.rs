//! `pm hook install`: what it puts in place, and what it leaves alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::hub::Hub;
use crate::support::{Repo, task_ref};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

fn config(repo: &Repo, key: &str) -> String {
    repo.git(&["config", "--get", key])
}

/// Writes a hook of somebody else's.
fn foreign(repo: &Repo, text: &str) -> std::path::PathBuf {
    let hook = repo.path().join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().expect("a folder")).expect("made");
    fs::write(&hook, text).expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("executable");
    hook
}

#[test]
fn a_bare_repository_becomes_a_hub_and_once_is_enough() {
    let repo = Repo::bare_of_config(&["--bare"]);
    let hook = repo.path().join("hooks/pre-receive");
    let said = repo.pm(&["hook", "install"]).ok();
    let expected =
        format!("created {}\nset receive.fsckObjects=true\nset core.fsync=committed,reference\n", hook.display());
    assert_eq!((said.stdout, said.stderr.as_str()), (expected, ""));
    assert_eq!(
        (config(&repo, "receive.fsckObjects"), config(&repo, "core.fsync")),
        ("true".into(), "committed,reference".into())
    );
    assert_eq!(mode(&hook), 0o755);
    let first = fs::read_to_string(&hook).expect("text");
    assert!(first.contains(&format!("pm='{}'\n", env!("CARGO_BIN_EXE_pm"))), "{first}");

    let again = repo.pm(&["hook", "install"]).ok();
    assert_eq!(again.stdout, format!("nothing to do: {} judges what is pushed\n", hook.display()));
    let json = repo.pm(&["hook", "install", "--json"]).json();
    let setting = |key, value| json!({"key": key, "value": value, "outcome": "kept"});
    assert_eq!(
        json,
        json!({"hook": hook.display().to_string(), "outcome": "unchanged", "notes": [], "warnings": [],
            "settings": [setting("receive.fsckObjects", "true"), setting("core.fsync", "committed,reference")]})
    );
    // Only what is whole and may be run is left as it is: git passes over the others.
    for spoil in [
        |hook: &Path| fs::set_permissions(hook, fs::Permissions::from_mode(0o644)).expect("changed"),
        |hook: &Path| fs::write(hook, "#!/bin/sh\n# Written by `pm hook install`, once\nexit 0\n").expect("written"),
    ] {
        spoil(&hook);
        assert_eq!(repo.pm(&["hook", "install", "--json"]).json()["outcome"], "updated");
        assert_eq!((fs::read_to_string(&hook).expect("text"), mode(&hook)), (first.clone(), 0o755));
    }
    let left: Vec<_> = fs::read_dir(repo.path().join("hooks")).expect("listed").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn the_umask_does_not_keep_others_from_running_the_hook() {
    let repo = Repo::bare_of_config(&["--bare"]);
    let line = format!("umask 077; '{}' hook install", env!("CARGO_BIN_EXE_pm"));
    assert!(repo.program("sh", &["-c", &line]).output().expect("run").status.success());
    assert_eq!(mode(&repo.path().join("hooks/pre-receive")), 0o755);
}

#[test]
fn the_repository_is_named_or_the_one_around() {
    let repo = Repo::bare_of_config(&["--bare"]);
    let elsewhere = Repo::nowhere();
    elsewhere.pm(&["hook", "install"]).fails(18);
    let place = repo.path().display().to_string();
    elsewhere.pm(&["hook", "install", "--repo", &place]).ok();
    assert!(repo.path().join("hooks/pre-receive").is_file());
    let outside = repo.outside().display().to_string();
    elsewhere.pm(&["-C", &outside, "hook", "install", "--repo", "./repo"]).ok().says_nothing_new();
    elsewhere.pm_with(&[("GIT_DIR", &place)], &["hook", "install", "--repo", &outside]).fails(2).says("GIT_DIR");
    elsewhere.pm_with(&[("GIT_DIR", &place)], &["hook", "install"]).ok().says_nothing_new();

    let with_worktree = Repo::init(&[]);
    with_worktree.pm(&["hook", "install"]).ok().says("this repository has a worktree");
    assert!(with_worktree.path().join(".git/hooks/pre-receive").is_file());
}

#[test]
fn what_others_have_set_is_left_alone_and_warned_of() {
    let repo = Repo::bare_of_config(&["--bare"]);
    for (key, value) in [
        ("transfer.fsckObjects", "false"),
        ("core.fsync", "none"),
        ("receive.hideRefs", "refs/pm"),
        ("uploadpack.hideRefs", "refs/heads/private"),
    ] {
        repo.git(&["config", key, value]);
    }
    let before = repo.git(&["config", "--list", "--local"]);
    let outcome = repo.pm(&["hook", "install", "--json"]);
    let outcome =
        outcome.says("transfer.fsckObjects is off").says("core.fsync is 'none'").says("receive.hideRefs is 'refs/pm'");
    assert_eq!(outcome.stderr.lines().count(), 3, "{outcome:?}");
    let json = outcome.json();
    assert_eq!(json["settings"][0], json!({"key": "receive.fsckObjects", "value": "false", "outcome": "differs"}));
    assert_eq!(json["settings"][1], json!({"key": "core.fsync", "value": "none", "outcome": "differs"}));
    assert_eq!(repo.git(&["config", "--list", "--local"]), before);
    repo.git(&["config", "core.fsync", "all"]);
    repo.git(&["config", "receive.fsckObjects", "yes"]);
    let json = repo.pm(&["hook", "install", "--json"]).json();
    assert_eq!((&json["settings"][0]["outcome"], &json["settings"][1]["outcome"]), (&"kept".into(), &"kept".into()));
}

#[test]
fn a_hooks_folder_elsewhere_is_used_and_told_of() {
    let hub = Hub::without_hook(Repo::bare_of_config(&["--bare"]), &[]);
    hub.hub.git(&["config", "core.hooksPath", "../shared hooks"]);
    hub.hub.pm(&["hook", "install"]).ok().says("core.hooksPath is set");
    assert!(hub.hub.outside().join("shared hooks/pre-receive").is_file());
    hub.repo.plan("a");
    hub.push(&[&format!("{}:refs/pm/tasks/default/b", hub.repo.tip("a"))]).fails(1).says("rule 'place'");
    hub.hub.git(&["config", "core.hooksPath", "~nobody-at-all/hooks"]);
    hub.hub.pm(&["hook", "install"]).fails(18).says("core.hooksPath");
}

#[test]
fn a_hook_of_somebody_elses_stays_and_two_lines_make_it_a_hubs() {
    let hub = Hub::without_hook(Repo::bare_of_config(&["--bare"]), &[]);
    let text = "#!/bin/sh\ngrep -q refs/heads/forbidden && exit 1\nexit 0\n";
    let hook = foreign(&hub.hub, text);
    let outcome = hub.hub.pm(&["hook", "install"]).fails(18).says("nothing was changed");
    assert_eq!(fs::read_to_string(&hook).expect("text"), text);
    assert_eq!(hub.hub.git_outcome(&["config", "receive.fsckObjects"]).code, 1);
    hub.hub.pm(&["hook", "install", "--json"]).fails(18);

    let lines: Vec<&str> = outcome.stderr.lines().skip(1).collect();
    assert_eq!(lines.len(), 2, "{outcome:?}");
    fs::write(&hook, text.replacen('\n', &format!("\n{}\n", lines.join("\n")), 1)).expect("written");
    hub.repo.plan("a");
    let tip = hub.repo.tip("a");
    hub.push(&[&format!("{tip}:refs/pm/tasks/default/b")]).fails(1).says("rule 'place'");
    hub.push(&[&format!("{tip}:refs/heads/forbidden")]).fails(1);
    hub.push(&[&format!("{tip}:{}", task_ref("a"))]).ok();

    // A link is somebody's, too, wherever it leads.
    fs::remove_file(&hook).expect("removed");
    std::os::unix::fs::symlink("elsewhere", &hook).expect("linked");
    hub.hub.pm(&["hook", "install"]).fails(18);
}

impl crate::support::Outcome {
    /// Asserts that an installation found everything in place.
    #[track_caller]
    fn says_nothing_new(self) {
        assert!(self.stdout.starts_with("nothing to do: ") && self.stderr.is_empty(), "{self:?}");
    }
}
