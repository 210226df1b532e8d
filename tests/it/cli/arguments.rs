//! Calls that must be refused: an unknown option, subcommand or field is an error, never ignored.

use clap::CommandFactory;

use crate::support::{Outcome, Repo};

/// What later issues deliver: it does not exist before.
const LATER_OPTIONS: &[&str] = &["--older-than", "--restore", "--port", "--bind"];

const LATER_COMMANDS: &[&str] = &["gc", "archive", "dashboard", "help", "nex"];

#[test]
fn options_of_later_issues_are_refused_by_every_subcommand() {
    let repo = Repo::nowhere();
    for command in pm::cli::Cli::command().get_subcommands() {
        for option in LATER_OPTIONS {
            repo.pm(&[command.get_name(), option]).fails(2).says(&format!("unexpected argument '{option}' found"));
        }
    }
}

#[test]
fn subcommands_of_later_issues_and_misspelt_ones_are_refused() {
    let repo = Repo::nowhere();
    for command in LATER_COMMANDS {
        repo.pm(&[command]).fails(2).says("unrecognized subcommand");
    }
    repo.pm(&["nex"]).fails(2).says("'next'");
}

#[test]
fn a_beginning_of_an_option_or_subcommand_is_not_taken_for_it() {
    let repo = Repo::new();
    repo.pm(&["plan", "--titl", "T"]).fails(2);
    repo.pm(&["heart"]).fails(2);
    repo.pm(&["list", "stray"]).fails(2);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let repo = Repo::new();
    repo.pm(&["sweep", "--queue", "q", "--all"]).fails(2);
    repo.pm(&["sweep", "--wait", "--dry-run"]).fails(2);
    repo.pm(&["plan", "--title", "T", "--text", "x", "--text-file", "y"]).fails(2);
    repo.pm(&["verify", "--queue", "q", "--task", "t"]).fails(2);
    repo.pm(&["next", "--all", "--explain"]).fails(2);
    repo.pm(&["graph", "--dot", "--mermaid"]).fails(2);
}

#[test]
fn a_wrong_call_with_json_is_one_json_object_on_stderr() {
    let repo = Repo::nowhere();
    for args in [&["--json", "frobnicate"][..], &["list", "--json", "--wrong"], &["--json"], &["plan", "--json"]] {
        let outcome = repo.pm(args).fails(2);
        assert_eq!(outcome.error()["code"], "usage");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    }
}

#[test]
fn arguments_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let repo = Repo::new();
    for args in [&["plan", "--title"][..], &["show", "--task"], &["list", "--agent"], &["bulk-plan", "--input"]] {
        let mut command = repo.pm_command(args);
        let outcome = Outcome::of(args, command.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe")));
        outcome.fails(2);
    }
}

#[test]
fn a_wrong_call_is_refused_before_anything_is_written() {
    let repo = Repo::bare_of_config(&[]);
    repo.pm(&["plan", "--title", "T", "--label", "two words"]).fails(2);
    repo.pm(&["plan", "--title", "T", "--text-file", "absent"]).fails(2);
    repo.pm_with(&[("PM_CLAIM", "zz")], &["heartbeat", "--task", "x"]).fails(2).says("PM_CLAIM");
    assert_eq!(repo.refs(), "");
    assert_eq!(repo.git_outcome(&["config", "core.fsync"]).code, 1, "not even the configuration");
}
