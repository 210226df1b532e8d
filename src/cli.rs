//! The command line: global options and the list of subcommands.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::command::{
    bulk_plan, completions, context_id, demo, executing, finished, heartbeat, list, log, man, next, owned, plan, pull,
    queues, reclaim, release, report, show, status, sweep, verify,
};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::id::AgentId;
use crate::output::{Color, Output};
use crate::session::{Caller, Session};
use crate::store::StoreError;

/// A task ledger inside your git repository.
///
/// Workers claim tasks so that exactly one of them holds each, keep their claims alive, prove what they did and
/// close it; a dead worker's task comes back. Every record is a commit, every task is a ref under refs/pm/tasks/,
/// and `git log` is the audit trail.
#[derive(Debug, Parser)]
#[command(name = "pm", version, propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 6 wrong phase, 8 race lost, 12 lease lost, 17 no such task, 18 no usable \
                        repository, 19 damaged ledger, 21 lock timeout; all are in docs/exit-codes.md.")]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub struct Global {
    /// Run as if started in DIR
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub dir: Option<PathBuf>,
    /// Print one JSON value on stdout and nothing else; errors as JSON on stderr
    #[arg(long, global = true)]
    pub json: bool,
    /// Print no notes and no progress
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// When to colour
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, hide_possible_values = false)]
    pub color: Color,
    /// Who asks; else $PM_AGENT_ID, else worker-<context>, else pm.agent, else <hostname>-<calling process>
    #[arg(long, value_name = "ID", global = true)]
    pub agent: Option<AgentId>,
    /// The session that asks; else $PM_CONTEXT_ID
    #[arg(long, value_name = "ID", global = true)]
    pub context_id: Option<String>,
}

impl Global {
    /// Where the command says what it did.
    pub fn output(&self) -> Output {
        Output::new(self.json, self.quiet, self.color)
    }

    /// Opens the repository.
    fn session(&self) -> Result<Session> {
        if let Some(dir) = &self.dir {
            // As git does: every relative path of the call, GIT_DIR too, counts from there.
            std::env::set_current_dir(dir).map_err(|error| {
                let reason = format!("cannot change to {}: {error}", dir.display());
                Error::Store(StoreError::Unusable { reason })
            })?;
        }
        let caller = Caller { agent: self.agent.clone(), context: self.context_id.clone() };
        Session::open(Path::new("."), &caller, self.output())
    }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum Command {
    /// Plan one task
    Plan(plan::Args),
    /// Plan many tasks at once, all or nothing
    BulkPlan(bulk_plan::Args),
    /// Show the next runnable task
    Next(next::Args),
    /// Take the next runnable task
    Pull(pull::Args),
    /// Claim a task
    Executing(executing::Args),
    /// Keep a claim alive
    Heartbeat(heartbeat::Args),
    /// Say what was done
    Report(report::Args),
    /// Give a task back
    Release(release::Args),
    /// Close a task, with its last report as the proof
    Finished(finished::Args),
    /// Take stale claims away from workers that went silent
    Sweep(sweep::Args),
    /// Take a task from its holder, by an operator's word
    Reclaim(reclaim::Args),
    /// Show everything about one task
    Show(show::Args),
    /// List tasks
    List(list::Args),
    /// Tell the audit trail, newest first
    Log(log::Args),
    /// Count tasks by state and queue
    Status(status::Args),
    /// List the queues
    Queues(queues::Args),
    /// List the open claims of an agent
    Owned(owned::Args),
    /// Check every chain against every rule
    Verify(verify::Args),
    /// Print a fresh context id
    ContextId(context_id::Args),
    /// Take the tour: a real plan, a fleet, a killed worker, its recovery
    Demo(demo::Args),
    /// Print the completions of a shell
    Completions(completions::Args),
    /// Write the manual pages
    Man(man::Args),
}

impl Command {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// Whatever the subcommand refuses or meets.
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let done = |()| ExitCode::Done;
        match self {
            Command::Plan(args) => args.run(&global.session()?).map(done),
            Command::BulkPlan(args) => args.run(&global.session()?).map(done),
            Command::Next(args) => args.run(&global.session()?).map(done),
            Command::Pull(args) => {
                let session = global.session().inspect_err(|_| {
                    if args.is_for_shell() {
                        global.output().raw(pull::NOTHING);
                    }
                })?;
                args.run(&session).map(done)
            }
            Command::Executing(args) => args.run(&global.session()?).map(done),
            Command::Heartbeat(args) => args.run(&global.session()?).map(done),
            Command::Report(args) => args.run(&global.session()?).map(done),
            Command::Release(args) => args.run(&global.session()?).map(done),
            Command::Finished(args) => args.run(&global.session()?).map(done),
            Command::Sweep(args) => args.run(&global.session()?),
            Command::Reclaim(args) => args.run(&global.session()?).map(done),
            Command::Show(args) => args.run(&global.session()?).map(done),
            Command::List(args) => args.run(&global.session()?).map(done),
            Command::Log(args) => args.run(&global.session()?).map(done),
            Command::Status(args) => args.run(&global.session()?).map(done),
            Command::Queues(args) => args.run(&global.session()?).map(done),
            Command::Owned(args) => args.run(&global.session()?),
            Command::Verify(args) => args.run(&global.session()?),
            Command::ContextId(args) => args.run(&global.output()).map(done),
            Command::Demo(args) => args.run(&global.output()).map(done),
            Command::Completions(args) => args.run(&global.output()).map(done),
            Command::Man(args) => args.run(&global.output()).map(done),
        }
    }
}
