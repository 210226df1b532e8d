//! `pm`: a task ledger inside a git repository. Every record is a commit, every task is a ref, every decision is
//! a compare-and-swap on that ref.
//!
//! Data flows one way: `cli -> command -> ledger -> { protocol, store }`.
//!
//! - [`protocol`]: the rules, pure. [`store`]: objects, refs, locks. Neither knows the other.
//! - [`ledger`]: joins them; its [`append`](ledger::append) is the only path that moves a ref.
//! - [`poll`]: the daemon beside the commands. [`work`]: the runner. [`sync`]: machines. [`hub`]: judging what is
//!   pushed. [`doctor`]: what is wrong. [`verifier`]: whether a report proves its task.
//! - [`command`]: one file a subcommand; [`session`] is what each works with; [`output`] alone prints. [`drawing`]: graphs
//!   of tasks as text. [`plan_input`]: plans of many tasks, as they are written.
//! - [`id`], [`commit`]: plain types that all share. [`clock`], [`config`], [`git_program`]: the outside world.

#![forbid(unsafe_code)]

pub mod cli;
pub mod clock;
pub mod command;
pub mod commit;
pub mod config;
pub mod demo;
pub mod doctor;
pub mod drawing;
pub mod error;
pub mod exit_code;
pub mod git_program;
pub mod hub;
pub mod id;
pub mod ledger;
pub mod output;
pub mod plan_input;
pub mod poll;
pub mod protocol;
pub mod session;
pub mod signals;
pub mod store;
pub mod sync;
pub mod verifier;
pub mod work;

use std::process::ExitCode as Exit;

use clap::error::ErrorKind;

use crate::error::Error;
use crate::exit_code::ExitCode;
use crate::output::{Color, Output};

/// Runs one command line; `name` is what the program was called as.
pub fn main(name: &'static str) -> Exit {
    let cli = match cli::Cli::read(name) {
        Ok(cli) => cli,
        Err(error) => return Exit::from(wrong_call(&error).number()),
    };
    match cli.command.run(&cli.global) {
        Ok(_) if output::stdout_failed() => Exit::from(ExitCode::Failure.number()),
        Ok(code) => Exit::from(code.number()),
        Err(error) => {
            cli.global.output().error(&error);
            Exit::from(error.exit_code().number())
        }
    }
}

/// Says what is wrong with a command line, or the help that was asked for.
fn wrong_call(error: &clap::Error) -> ExitCode {
    // The options were not understood, so whether JSON is wanted must be looked up by hand.
    let json = std::env::args_os().any(|arg| arg == "--json");
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            Output::new(false, false, Color::Auto).raw(&error.render().to_string());
            ExitCode::Done
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if !json => {
            Output::new(false, false, Color::Auto).note(error.render().to_string().trim_end());
            ExitCode::Usage
        }
        _ => {
            if std::env::args_os().any(|arg| arg == "pull") && std::env::args_os().any(|arg| arg == "--shell") {
                Output::new(false, false, Color::Auto).raw(command::pull::NOTHING);
            }
            let text = error.render().to_string();
            let text = text.trim().strip_prefix("error: ").unwrap_or(text.trim()).to_owned();
            Output::new(json, false, Color::Auto).error(&Error::Usage(text));
            ExitCode::Usage
        }
    }
}
