//! The manual: `--help`, completions and manual pages.

use std::collections::BTreeSet;

use clap::CommandFactory;

use crate::support::{Repo, snapshot};

/// The names of the subcommands.
fn subcommands() -> BTreeSet<String> {
    let command = pm::cli::Cli::command();
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}

/// The calls that have a help of their own: subcommands, and those below them.
fn calls() -> Vec<Vec<String>> {
    fn collect(command: &clap::Command, above: &[String], calls: &mut Vec<Vec<String>>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            let call = [above, &[below.get_name().to_owned()]].concat();
            collect(below, &call, calls);
            calls.push(call);
        }
    }
    let mut command = pm::cli::Cli::command();
    command.build();
    let mut calls = Vec::new();
    collect(&command, &[], &mut calls);
    calls
}

#[test]
fn help_of_pm_and_of_every_subcommand_is_as_written_down() {
    let repo = Repo::nowhere();
    let check = |name: &str, args: &[&str]| {
        let outcome = repo.pm(args).ok();
        assert_eq!(outcome.stderr, "");
        snapshot::check(&format!("help/{name}.txt"), &outcome.stdout);
    };
    check("pm", &["--help"]);
    for call in calls() {
        let args: Vec<&str> = call.iter().map(String::as_str).chain(["--help"]).collect();
        check(&call.join("-"), &args);
    }
}

#[test]
fn no_help_snapshot_is_left_of_a_subcommand_that_is_gone() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots/help");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("read").path().file_stem().expect("a stem").to_string_lossy().into_owned()
    };
    let found: BTreeSet<String> = std::fs::read_dir(dir).expect("listed").map(name).collect();
    let mut expected: BTreeSet<String> = calls().iter().map(|call| call.join("-")).collect();
    expected.insert("pm".to_owned());
    assert_eq!(found, expected);
}

#[test]
fn without_arguments_pm_prints_its_help_and_exits_with_2() {
    let outcome = Repo::nowhere().pm(&[]).exits(2);
    assert!((outcome.stdout + &outcome.stderr).contains("Usage: pm"));
}

#[test]
fn the_version_is_that_of_the_package() {
    let outcome = Repo::nowhere().pm(&["--version"]).ok();
    assert_eq!(outcome.stdout, format!("pm {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_name_every_subcommand() {
    let repo = Repo::nowhere();
    for shell in ["bash", "zsh", "fish"] {
        let script = repo.pm(&["completions", shell]).ok().stdout;
        for name in subcommands() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
        assert!(script.contains("max-attempts"), "{shell}: options are completed, too");
    }
    repo.pm(&["completions", "tcl"]).fails(2);
}

#[test]
fn bash_can_read_its_completions() {
    let repo = Repo::nowhere();
    let script = repo.pm(&["completions", "bash"]).ok().stdout;
    let path = repo.outside().join("pm.bash");
    std::fs::write(&path, script).expect("written");
    let path = path.display().to_string();
    let checked = repo.program("bash", &["-c", "source \"$1\" && complete -p pm", "bash", &path]).output();
    let checked = checked.expect("bash runs");
    assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
}

#[test]
fn manual_pages_are_written_for_pm_and_every_subcommand() {
    let repo = Repo::nowhere();
    let dir = repo.outside().join("man/man1");
    let outcome = repo.pm(&["man", &dir.display().to_string()]).ok();
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", ""));
    let mut expected: BTreeSet<String> = calls().iter().map(|call| format!("pm-{}.1", call.join("-"))).collect();
    expected.insert("pm.1".to_owned());
    let found: BTreeSet<String> = std::fs::read_dir(&dir)
        .expect("listed")
        .map(|entry| entry.expect("read").file_name().into_string().expect("UTF-8"))
        .collect();
    assert_eq!(found, expected);
    for name in &found {
        let page = std::fs::read_to_string(dir.join(name)).expect("readable");
        assert!(page.contains(".TH ") && page.contains(".SH NAME"), "{name}");
    }
    assert_eq!(repo.pm(&["man"]).ok().stdout, std::fs::read_to_string(dir.join("pm.1")).expect("readable"));
}

#[test]
fn git_finds_pm_as_a_command_of_its_own() {
    let repo = Repo::new();
    repo.plan("a");
    let dir = std::path::Path::new(env!("CARGO_BIN_EXE_git-pm")).parent().expect("a directory");
    let path = std::env::join_paths(
        std::iter::once(dir.to_owned()).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .expect("a path");
    let mut command = repo.program("git", &["pm", "next", "--json"]);
    let outcome = crate::support::Outcome::of(&["git pm"], command.env("PATH", &path));
    assert_eq!(outcome.json()["title"], "Do a");
    let mut command = repo.program("git", &["pm", "frobnicate"]);
    let outcome = crate::support::Outcome::of(&["git pm"], command.env("PATH", &path)).exits(2);
    assert!(outcome.stderr.contains("Usage: git pm"), "{outcome:?}");
}
