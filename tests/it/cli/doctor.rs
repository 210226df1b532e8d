//! `pm doctor`: what it finds in the configuration, the repository and the ledger. (Locks and leftovers are in
//! `doctor_fix`, the authority in `doctor_remote`.)

use serde_json::Value;

use crate::support::confined::{is_root, missing};
use crate::support::poller::{Background, run};
use crate::support::{Repo, task_ref, text};

/// A finding, as `pm doctor --json` tells it.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub check: String,
    pub level: String,
    pub found: String,
    pub remedy: String,
}

/// Runs the doctor; its exit code fits what it found.
#[track_caller]
pub fn doctor(repo: &Repo, options: &[&str]) -> Vec<Found> {
    doctor_with(repo, &[], options)
}

#[track_caller]
fn doctor_with(repo: &Repo, env: &[(&str, &str)], options: &[&str]) -> Vec<Found> {
    let outcome = repo.pm_with(env, &[&["doctor", "--json"], options].concat());
    let value = outcome.stdout_json();
    let row = |row: &Value| Found {
        check: text(&row["check"]),
        level: text(&row["level"]),
        found: text(&row["found"]),
        remedy: row["remedy"].as_str().unwrap_or_default().to_owned(),
    };
    let found: Vec<Found> = value["findings"].as_array().expect("a list").iter().map(row).collect();
    let count = |level: &str| found.iter().filter(|row| row.level == level).count();
    assert_eq!((&value["wrong"], &value["fixed"]), (&count("wrong").into(), &count("fixed").into()));
    assert_eq!(outcome.code, i32::from(count("wrong") > 0), "{outcome:?}");
    found
}

/// The one finding of this check.
#[track_caller]
pub fn the<'a>(found: &'a [Found], check: &str, level: &str, says: &str) -> &'a Found {
    let rows: Vec<&Found> = found.iter().filter(|row| row.check == check).collect();
    assert!(rows.len() == 1 && rows[0].level == level && rows[0].found.contains(says), "{check}: {found:#?}");
    rows[0]
}

#[track_caller]
pub fn none(found: &[Found], check: &str) {
    assert!(found.iter().all(|row| row.check != check), "{found:#?}");
}

/// Does what a remedy says: the command in its first pair of backticks.
#[track_caller]
fn follow(repo: &Repo, remedy: &str) {
    let command = remedy.split('`').nth(1).unwrap_or_else(|| panic!("no command in '{remedy}'"));
    let done = repo.program("sh", &["-c", command]).output().expect("sh runs");
    assert!(done.status.success(), "{command}: {done:?}");
}

#[test]
fn a_sound_repository_is_called_so() {
    let repo = Repo::new();
    assert_eq!(repo.pm(&["doctor"]).ok().stdout, "ok: nothing is wrong\n");
    repo.plan("a");
    let text = repo.pm(&["doctor"]).ok().stdout;
    assert!(text.starts_with("note   poller: no poller runs here"), "{text}");
    assert!(text.ends_with("       remedy: `pm poll start`\nok: nothing is wrong (1 worth knowing)\n"), "{text}");
    Repo::nowhere().pm(&["doctor"]).fails(18);
}

#[test]
fn what_the_configuration_does_to_the_ledger_is_found_and_its_remedy_mends_it() {
    let repo = Repo::new();
    repo.plan("a");
    repo.git(&["remote", "add", "o", "../o.git"]);
    for (key, value, check, level) in [
        ("core.fsync", "committed", "core-fsync", "wrong"),
        ("core.fsync", "none,reference", "core-fsync", "wrong"),
        ("core.fsyncMethod", "writeout-only", "core-fsync", "wrong"),
        ("gc.pruneExpire", "now", "gc-prune", "wrong"),
        ("user.email", "", "identity", "note"),
        ("transfer.hideRefs", "refs/pm", "hidden", "note"),
        ("remote.o.fetch", "+refs/*:refs/*", "fetch-refspec", "wrong"),
        ("remote.o.fetch", "+refs/pm/*:refs/pm/*", "fetch-refspec", "wrong"),
        ("remote.o.push", "+refs/*:refs/*", "push-refspec", "wrong"),
        ("remote.o.push", "refs/pm/*:refs/pm/*", "push-refspec", "note"),
        ("remote.o.mirror", "true", "mirror", "wrong"),
    ] {
        repo.git(&["config", "pm.durability", "power"]);
        if key.ends_with("fetch") || key.ends_with("push") {
            repo.git(&["config", "--add", key, value]);
        } else {
            repo.git(&["config", key, value]);
        }
        let found = doctor(&repo, &["--fix"]);
        let finding = the(&found, check, level, if value.is_empty() { "not set" } else { value });
        follow(&repo, &finding.remedy);
        none(&doctor(&repo, &[]), check);
    }
    let fetch = repo.git(&["config", "--get-all", "remote.o.fetch"]);
    assert!(fetch.lines().all(|line| line == "+refs/heads/*:refs/remotes/o/*"), "{fetch}");
}

#[test]
fn core_fsync_is_set_by_fix_where_it_is_unset_and_never_changed() {
    let repo = Repo::bare_of_config(&[]);
    repo.git(&["config", "user.email", "ada@example.com"]);
    the(&doctor(&repo, &[]), "core-fsync", "note", "not set");
    repo.plan("a");
    repo.git(&["config", "--unset", "core.fsync"]);
    the(&doctor(&repo, &[]), "core-fsync", "wrong", "a power cut");
    assert_eq!(repo.git_outcome(&["config", "core.fsync"]).code, 1, "nothing is set without --fix");
    the(&doctor(&repo, &["--fix"]), "core-fsync", "fixed", "committed,reference");
    none(&doctor(&repo, &[]), "core-fsync");
    repo.git(&["config", "core.fsync", "none"]);
    the(&doctor(&repo, &["--fix"]), "core-fsync", "wrong", "'none'");
    assert_eq!(repo.git(&["config", "core.fsync"]), "none");
}

#[test]
fn a_configuration_that_stops_every_other_command_is_a_finding() {
    let repo = Repo::new();
    repo.git(&["config", "pm.ttl", "soon"]);
    repo.git(&["config", "pm.tll", "5m"]);
    let found = doctor(&repo, &[]);
    let rows: Vec<(&str, bool)> = found
        .iter()
        .map(|row| (&*row.level, row.found.contains("pm.ttl = 'soon'") || row.found.contains("did you mean pm.ttl")))
        .collect();
    assert_eq!(rows, [("wrong", true), ("note", true)], "{found:#?}");
    repo.pm(&["doctor", "--remote"]).fails(2);
}

#[test]
fn an_authority_that_cannot_be_one_is_found() {
    let repo = Repo::new();
    repo.git(&["config", "pm.remote", "hub"]);
    the(&doctor(&repo, &[]), "authority", "wrong", "no such remote");
    repo.git(&["remote", "add", "hub", "../hub.git"]);
    none(&doctor(&repo, &[]), "authority");
    repo.git(&["config", "remote.hub.pushurl", "../other.git"]);
    let found = doctor(&repo, &[]);
    let finding = the(&found, "authority", "wrong", "written to ../other.git");
    follow(&repo, finding.remedy.split_once(": ").expect("what to do").1);
    none(&doctor(&repo, &[]), "authority");
}

#[test]
fn a_bare_repository_with_a_ledger_wants_a_hook() {
    use std::os::unix::fs::PermissionsExt;
    let repo = Repo::init(&["--bare"]);
    none(&doctor(&repo, &[]), "hub");
    repo.git(&["config", "receive.denyNonFastForwards", "true"]);
    repo.plan("a");
    the(&doctor(&repo, &[]), "hub", "note", "protect branches alone");
    let hook = repo.path().join("hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().expect("a directory")).expect("made");
    std::fs::write(&hook, "#!/bin/sh\n").expect("written");
    the(&doctor(&repo, &[]), "hub", "note", "no hook");
    std::fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).expect("set");
    none(&doctor(&repo, &[]), "hub");
    repo.git(&["config", "transfer.hideRefs", "refs/pm"]);
    the(&doctor(&repo, &[]), "hidden", "wrong", "hides the ledger");
}

#[test]
fn a_shallow_clone_is_wrong_only_where_it_cuts_the_ledger() {
    let origin = Repo::new();
    origin.git(&["commit", "--quiet", "--allow-empty", "-m", "one"]);
    origin.git(&["commit", "--quiet", "--allow-empty", "-m", "two"]);
    origin.work_off(&origin.plan("a"));
    let url = format!("file://{}", origin.path().display());
    let repo = Repo::new();
    repo.git(&["remote", "add", "origin", &url]);
    repo.git(&["fetch", "--quiet", "--depth=1", "origin", "main"]);
    repo.git(&["fetch", "--quiet", "origin", "refs/pm/*:refs/pm/*"]);
    assert!(repo.git_dir().join("shallow").exists());
    none(&doctor(&repo, &[]), "shallow");
    repo.git(&["fetch", "--quiet", "--depth=1", "origin", "+refs/pm/*:refs/pm/*"]);
    let found = doctor(&repo, &[]);
    let remedy = the(&found, "shallow", "wrong", "1 task").remedy.replace("<remote>", "origin");
    follow(&repo, &remedy);
    none(&doctor(&repo, &[]), "shallow");
    repo.pm(&["verify"]).ok();
}

#[test]
fn borrowed_objects_other_owners_and_shared_files_are_notes() {
    let mut repo = Repo::new();
    let clone = repo.outside().join("clone");
    repo.git(&["clone", "--quiet", "--shared", ".", &clone.display().to_string()]);
    repo.set_path(&clone);
    repo.git(&["config", "core.sharedRepository", "group"]);
    let found = doctor(&repo, &[]);
    the(&found, "alternates", "note", ".git/objects: what is deleted there");
    the(&found, "shared-repository", "note", "group");
    none(&found, "owner");
    if !is_root() && missing("root") {
        return;
    }
    std::os::unix::fs::chown(clone.join(".git"), Some(65534), None).expect("chowned");
    let safe = [("GIT_CONFIG_COUNT", "1"), ("GIT_CONFIG_KEY_0", "safe.directory"), ("GIT_CONFIG_VALUE_0", "*")];
    let outcome = repo.pm_with(&safe, &["doctor", "--json"]);
    // gix reads safe.directory from files alone; refused or named, it is said whose it is.
    assert!(outcome.stdout.contains("belongs to user 65534") || outcome.stderr.contains("another user"), "{outcome:?}");
}

#[test]
fn an_old_git_and_none_at_all_are_found() {
    use std::os::unix::fs::PermissionsExt;
    let repo = Repo::new();
    let dir = repo.outside().join("bin");
    std::fs::create_dir(&dir).expect("made");
    let path = std::env::var("PATH").expect("a path");
    let git = dir.join("git");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'git version 2.25.1' && exit\nPATH='{path}' exec git \"$@\"\n"
    );
    std::fs::write(&git, script).expect("written");
    std::fs::set_permissions(&git, PermissionsExt::from_mode(0o755)).expect("set");
    let shown = dir.display().to_string();
    let found = doctor_with(&repo, &[("PATH", &format!("{shown}:{path}"))], &[]);
    assert!(the(&found, "git", "wrong", "git is 2.25").remedy.contains("2.42"));
    std::fs::remove_file(git).expect("removed");
    the(&doctor_with(&repo, &[("PATH", &shown)], &[]), "git", "wrong", "cannot be run");
}

#[test]
fn a_poller_is_asked_for_and_one_that_nobody_finds_is_wrong() {
    let repo = Repo::new();
    repo.plan("a");
    the(&doctor(&repo, &[]), "poller", "note", "no poller runs");
    let _stopped = Background(&repo);
    let _poller = run(&repo, &["--interval", "60s"]);
    none(&doctor(&repo, &[]), "poller");
    repo.git(&["config", "pm.stateRoot", "elsewhere"]);
    the(&doctor(&repo, &[]), "poller", "wrong", "since pm.stateRoot was set");
}

#[test]
fn damage_strays_and_clocks_are_found_in_the_ledger() {
    let repo = Repo::new();
    let task = repo.plan("a");
    repo.plan("b");
    repo.plan("c");
    let commit = repo.git(&["commit-tree", "-m", "x", "4b825dc642cb6eb9a060e54bf8d69288fbee4904"]);
    repo.git(&["update-ref", &task_ref("b"), &commit]);
    repo.git(&["update-ref", "refs/pm/tasks/loose", &repo.tip("a")]);
    repo.git(&["update-ref", "refs/pm/tasks/default/UPPER", &repo.tip("a")]);
    // The status of `c`, as a clock that is two hours ahead would have dated it.
    let status = repo.git(&["cat-file", "commit", &repo.tip("c")]);
    let seconds = status.lines().find_map(|line| line.strip_prefix("author ")?.rsplit(' ').nth(1)?.parse::<u64>().ok());
    let seconds = seconds.expect("a date");
    let later = (status.clone() + "\n").replace(&format!("{seconds} +0000"), &format!("{} +0000", seconds + 7300));
    let later = repo.git_fed(later.as_bytes(), &["hash-object", "-t", "commit", "-w", "--stdin"]);
    repo.git(&["update-ref", &task_ref("c"), &later]);
    let found = doctor(&repo, &[]);
    the(&found, "damaged", "wrong", "1 task cannot be read: refs/pm/tasks/default/b");
    the(&found, "stray-ref", "wrong", "refs/pm/tasks/default/UPPER, refs/pm/tasks/loose");
    the(&found, "clock", "note", "2 h in the future: this clock or that of w1");
    assert_eq!(repo.state(&task)["status"], "new");
}

#[test]
fn what_is_not_pushed_and_what_vanished_is_counted() {
    let repo = Repo::new();
    for slug in ["a", "b", "c"] {
        repo.plan(slug);
    }
    repo.git(&["remote", "add", "o", "../o.git"]);
    repo.git(&["config", "pm.remote", "o"]);
    let tip = repo.tip("a");
    repo.git(&["update-ref", "refs/pm-remote/o/tasks/default/a", &tip]);
    repo.git(&["update-ref", "refs/pm-remote/o/tasks/default/b", &tip]);
    none(&doctor(&repo, &[]), "vanished");
    for name in
        ["refs/pm-remote/o/tasks/default/gone", "refs/pm-pending/default/a", &format!("refs/pm-lost/default/a/{tip}")]
    {
        repo.git(&["update-ref", name, &tip]);
    }
    let found = doctor(&repo, &[]);
    the(&found, "unpushed", "note", "2 tasks");
    the(&found, "vanished", "wrong", "default/gone");
    the(&found, "pending", "note", "1 record");
    the(&found, "lost", "note", "1 tip");
}
