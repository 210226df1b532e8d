//! What a hub takes, and where it takes nothing: real pushes of plain git to a repository with pm's hook.

use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use super::hook_hostile::{EMPTY_TREE, bent, raw, write};
use crate::support::hub::Hub;
use crate::support::{AGENT, Outcome, Repo, task_ref};

#[test]
fn what_is_not_well_formed_is_refused_by_git_before_the_hook_is_asked() {
    let hub = Hub::new(&[]);
    hub.repo.plan("a");
    hub.push_all().ok();
    hub.repo.claim("a");
    let forged = bent(&hub.repo, &hub.repo.tip("a"), "claimed by w1", "claimed\0 by w1");
    hub.push(&[&format!("{forged}:{}", task_ref("a"))]).fails(1).says("nulInCommit");
}

#[test]
fn one_bad_ref_keeps_a_hundred_good_ones_out_and_no_more() {
    let hub = Hub::new(&[]);
    let plan: String = (0..100).map(|n| format!("{{\"title\":\"T{n}\"}}\n")).collect();
    hub.repo.pm_fed(&plan, &["bulk-plan", "--input", "-"]).ok();
    let before = hub.everything();
    let bad = format!("{}:refs/pm/tasks/default/bad", hub.repo.tip("t7"));
    let outcome = hub.push(&["refs/pm/*:refs/pm/*", &bad]).fails(1).says("default/bad: refused by rule 'place'");
    assert!(outcome.stderr.contains("1 of 101 refs refused"), "{outcome:?}");
    assert_eq!(hub.everything(), before);
    hub.push_all().ok();
    hub.assert_same();
}

/// A task's whole life, pushed step by step.
fn lives(hub: &Hub) {
    let pm = |args: &[&str]| {
        hub.repo.pm(args).ok();
        hub.push_all().ok();
        hub.assert_same();
    };
    std::fs::write(hub.repo.outside().join("log"), "output").expect("written");
    let log = hub.repo.outside().join("log").display().to_string();
    pm(&["plan", "--title", "A", "--slug", "a"]);
    pm(&["plan", "--title", "B", "--slug", "b.lock", "--depends-on", "a"]);
    pm(&["executing", "--task", "a"]);
    pm(&["heartbeat", "--task", "a", "--progress", "half"]);
    pm(&["release", "--task", "a"]);
    pm(&["executing", "--task", "a", "--ttl", "1ms"]);
    pm(&["sweep"]);
    pm(&["executing", "--task", "a"]);
    pm(&["report", "--task", "a", "--title", "T", "--attach", &log]);
    pm(&["reclaim", "--task", "a"]);
    pm(&["executing", "--task", "a"]);
    pm(&["report", "--task", "a", "--title", "T"]);
    pm(&["finished", "--task", "a"]);
    pm(&["plan", "--title", "S", "--slug", "s", "--sticky"]);
    pm(&["executing", "--task", "s", "--context-id", "c1"]);
    pm(&["release", "--task", "s"]);
    pm(&["reclaim", "--task", "s"]);
    pm(&["executing", "--task", "s", "--context-id", "c2"]);
    // Many records of one task, and of several, at once.
    hub.repo.work_off("b.lock");
    hub.repo.plan("c");
    pm(&["executing", "--task", "c"]);
    hub.hub.pm(&["verify"]).ok();
    hub.hub.git(&["fsck", "--strict"]);
}

#[test]
fn a_correct_pushers_whole_life_is_taken_by_a_bare_hub() {
    lives(&Hub::new(&[]));
}

#[test]
fn a_correct_pushers_whole_life_is_taken_by_a_hub_with_sha_256_that_keeps_packs_only() {
    let hub = Hub::new(&["--object-format=sha256"]);
    hub.hub.git(&["config", "receive.unpackLimit", "1"]);
    lives(&hub);
}

#[test]
fn hubs_with_worktrees_judge_in_each_of_them() {
    let hub = Hub::without_hook(Repo::init(&[]), &[]);
    hub.hub.pm(&["hook", "install"]).ok().says("this repository has a worktree");
    hub.hub.git(&["commit", "--quiet", "--allow-empty", "--message", "code"]);
    let other = hub.hub.outside().join("other").display().to_string();
    hub.hub.git(&["worktree", "add", "--quiet", &other]);
    hub.repo.plan("a");
    let second = format!("{}:{}", hub.repo.tip("a"), task_ref("second"));
    for place in [hub.hub.path().display().to_string(), format!("{}/.git", hub.hub.path().display()), other] {
        hub.repo.git_outcome(&["push", &place, &second]).fails(1).says("rule 'place'");
        hub.repo.pm(&["executing", "--task", "a"]).ok();
        hub.repo.git(&["push", "--quiet", &place, "refs/pm/*:refs/pm/*"]);
        hub.assert_same();
        hub.repo.pm(&["release", "--task", "a"]).ok();
    }
}

/// What git's own clients never say: that a ref is somewhere else than where the server said.
#[test]
fn whoever_lies_about_where_a_ref_was_moves_nothing() {
    let hub = Hub::new(&[]);
    hub.repo.plan("a");
    hub.push_all().ok();
    let truth = hub.hub.tip("a");
    // Anything may be kept under a scratch ref, also a chain that breaks a rule.
    hub.repo.claim("a");
    let forged = bent(&hub.repo, &hub.repo.tip("a"), "Attempt: 1", "Attempt: 7");
    hub.repo.git(&["update-ref", &task_ref("a"), &forged]);
    hub.push(&[&format!("{forged}:refs/pm/doctor/x")]).ok();
    hub.repo.pm(&["heartbeat", "--task", "a"]).ok();
    let next = hub.repo.tip("a");

    // The hook believes that the ref was at the forged record; git knows better.
    let command = format!("{forged} {next} {}\0report-status", task_ref("a"));
    let script = "{ printf '%s' \"$1\" | tr '|' '\\0'; printf '%s\\n' \"$2\" | git pack-objects --quiet --revs --stdout; } \
                  | git receive-pack \"$3\" | tr '\\0' ' '";
    let request = format!("{:04x}{}0000", command.len() + 4, command.replace('\0', "|"));
    let args = ["-c", script, "sh", &request, &next];
    let told = Outcome::of(&args, hub.repo.program("sh", &args).arg(hub.hub.path()));
    assert!(told.stdout.contains(&format!("ng {} failed to update ref", task_ref("a"))), "{told:?}");
    assert_eq!(hub.hub.tip("a"), truth);
}

#[test]
fn code_beside_the_ledger_is_no_business_of_the_hook() {
    let hub = Hub::new(&[]);
    hub.repo.plan("a");
    let commit = |message: &str| hub.repo.git(&["commit-tree", &hub.repo.git_fed(b"", &["mktree"]), "-m", message]);
    let (first, other) = (commit("one"), commit("two"));
    hub.push(&["refs/pm/*:refs/pm/*", &format!("{first}:refs/heads/work")]).ok();
    hub.push(&[&format!("+{other}:refs/heads/work")]).ok();
    hub.push(&[":refs/heads/work", &format!("{first}:refs/tags/v1")]).ok();
    hub.assert_same();
}

#[test]
fn scratch_refs_may_be_made_forced_and_deleted() {
    let hub = Hub::new(&[]);
    let commit = |message: &str| hub.repo.git(&["commit-tree", &hub.repo.git_fed(b"", &["mktree"]), "-m", message]);
    for refspec in [
        &format!("{}:refs/pm/doctor/a/b", commit("one")),
        &format!("+{}:refs/pm/doctor/a/b", commit("two")),
        ":refs/pm/doctor/a/b",
    ] {
        hub.push(&[refspec]).ok();
    }
    assert_eq!(hub.hub.refs(), "");
}

#[test]
fn what_is_pushed_is_read_from_quarantine_and_what_was_there_from_the_hub_wherever_that_is() {
    // git quotes such a path in the list of alternates.
    let mut hub = Hub::without_hook(Repo::bare_of_config(&["--bare"]), &[]);
    let place = hub.hub.outside().join("a:b \"c\" ü.git");
    std::fs::rename(hub.hub.path(), &place).expect("moved");
    hub.hub.set_path(place);
    hub.hub.pm(&["hook", "install"]).ok();
    hub.repo.plan("a");
    hub.push_all().ok();
    hub.hub.git(&["gc", "--quiet"]);
    hub.repo.claim("a");
    hub.push_all().ok();
    hub.repo.pm(&["heartbeat", "--task", "a"]).ok();
    let forged = bent(&hub.repo, &hub.repo.tip("a"), "author w1", "author w2");
    hub.push(&[&format!("{forged}:{}", task_ref("a"))]).fails(1).says("rule 'holder'");
    assert_ne!(hub.hub.git_outcome(&["cat-file", "-e", &forged]).code, 0, "the hub never had it");
    hub.push_all().ok();
    hub.assert_same();
}

#[test]
fn a_hub_whose_pm_fails_or_is_gone_takes_nothing() {
    let hub = Hub::new(&[]);
    hub.repo.plan("a");
    let before = hub.hub.refs();
    hub.hub.git(&["config", "pm.ttl", "nonsense"]);
    hub.push_all().fails(1).says("pm.ttl").says("remote: pm: refused: this hub's pm failed with 2");
    hub.hub.git(&["config", "--unset", "pm.ttl"]);

    // Only git is there, and the program that the hook knows has moved.
    let hook = hub.hub.path().join("hooks/pre-receive");
    let whole = std::fs::read_to_string(&hook).expect("text");
    std::fs::write(&hook, whole.replace(env!("CARGO_BIN_EXE_pm"), "/nowhere/pm")).expect("written");
    let bin = hub.hub.outside().join("bin");
    std::fs::create_dir(&bin).expect("made");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let git = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|git| git.is_file()).expect("git");
    std::os::unix::fs::symlink(git, bin.join("git")).expect("linked");
    let path = bin.display().to_string();
    hub.push_with(&[("PATH", &path)], &["refs/pm/*:refs/pm/*"])
        .fails(1)
        .says("remote: pm: refused: this hub's pm is gone");

    // One that breaks down.
    let broken = bin.join("pm");
    std::fs::write(&broken, "#!/bin/sh\nexit 101\n").expect("written");
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    hub.push_with(&[("PATH", &path)], &["refs/pm/*:refs/pm/*"]).fails(1).says("this hub's pm failed with 101");
    assert_eq!(hub.hub.refs(), before);

    // One on the PATH does as well as the one that was there.
    std::fs::remove_file(&broken).expect("removed");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_pm"), &broken).expect("linked");
    hub.push_with(&[("PATH", &path)], &["refs/pm/*:refs/pm/*"]).ok();
    hub.assert_same();
}

#[test]
fn a_chain_of_the_hub_that_is_damaged_takes_nothing_more_and_the_others_do() {
    let hub = Hub::without_hook(Repo::bare_of_config(&["--bare"]), &[]);
    hub.repo.plan("a");
    hub.repo.plan("b");
    let foreign = hub.repo.git(&["commit-tree", &hub.repo.git_fed(b"", &["mktree"]), "-m", "code"]);
    hub.push(&[&format!("{foreign}:{}", task_ref("a")), &format!("{0}:{0}", task_ref("b"))]).ok();
    hub.hub.pm(&["hook", "install"]).ok();
    let forged = write(
        &hub.repo,
        "commit",
        &[format!("tree {}\nparent {foreign}\n", EMPTY_TREE).as_bytes(), &raw(&hub.repo, &hub.repo.tip("a"))[94..]]
            .concat(),
    );
    hub.push(&[&format!("{forged}:{}", task_ref("a"))])
        .fails(1)
        .says("refused by rule 'unreadable'")
        .says("no record of pm");
    hub.repo.claim("b");
    hub.push(&[&format!("{0}:{0}", task_ref("b"))]).ok();
}

#[test]
fn the_hook_can_be_asked_by_hand_and_in_json() {
    let repo = Repo::new();
    repo.claim(&repo.plan("a"));
    let (zeros, tip, below) = ("0".repeat(40), repo.tip("a"), repo.git(&["rev-parse", "refs/pm/tasks/default/a~"]));
    let ask = |lines: &str, options: &[&str]| repo.pm_fed(lines, &[&["hook", "pre-receive"], options].concat());
    assert_eq!(ask("", &[]).ok().stdout, "");
    assert_eq!(ask(&format!("{below} {tip} refs/pm/tasks/default/a\n"), &[]).ok().stderr, "");
    let json =
        ask(&format!("{zeros} {tip} refs/pm/tasks/default/a\n{tip} {below} refs/pm/tasks/default/a\n"), &["--json"]);
    let json = json.exits(1).stdout_json();
    assert_eq!((&json["refs"], json["refused"].as_array().map(Vec::len)), (&2.into(), Some(1)));
    assert_eq!((&json["refused"][0]["rule"], &json["refused"][0]["commit"]), (&"fast-forward".into(), &json!(below)));
    ask("nonsense\n", &[]).fails(2).says("as git tells a hook");
    // A name that is no text is no task's.
    let line = [format!("{zeros} {tip} refs/pm/tasks/default/").as_bytes(), b"\xff\n"].concat();
    let args = ["-c", "printf %s \"$0\" | \"$1\" hook pre-receive"];
    let mut command = repo.program("sh", &args);
    command.arg(std::ffi::OsStr::from_bytes(&line)).arg(env!("CARGO_BIN_EXE_pm")).env("PM_AGENT_ID", AGENT);
    Outcome::of(&args, &mut command).fails(1).says("rule 'namespace'");
    Repo::nowhere().pm(&["hook", "pre-receive"]).fails(18);
    // What keeps pm from reading is not the pusher's fault, and nothing is taken.
    let object = repo.git_dir().join("objects").join(&below[..2]).join(&below[2..]);
    std::fs::remove_file(&object).expect("removed");
    std::fs::create_dir(&object).expect("made");
    let lines = format!("{below} {tip} refs/pm/tasks/default/a\n{zeros} {tip} refs/heads/a\n");
    let outcome = ask(&lines, &[]).fails(1).says("default/a: refused by rule 'failure': the hub could not judge it");
    assert!(outcome.stderr.contains("(1 of 2 refs refused)"), "{outcome:?}");
}
