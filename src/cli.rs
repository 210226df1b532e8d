//! The command line: global options and the list of subcommands.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::path::PathBuf;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::command::{
    bulk_plan, cancel, completions, context_id, demo, doctor, executing, fence, finished, graph, heartbeat, hook, init,
    list, log, lost, man, next, owned, plan, poll, prime, pull, queues, reclaim, release, repair, replan, report, show,
    status, sweep, sync, verifier_guard, verify, wait, work, work_child,
};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::id::AgentId;
use crate::output::{Color, Output};
use crate::poll::StateRoot;
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
                        repository, 19 damaged ledger, 20 authority unreachable, 21 lock timeout, 22 answer lost; all \
                        are in docs/exit-codes.md.")]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command; they may stand before or after the subcommand.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Run as if started in DIR
    #[arg(short = 'C', value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print one JSON value on stdout and nothing else; errors as JSON on stderr
    #[arg(long)]
    pub json: bool,
    /// Print no notes and no progress
    #[arg(long, short)]
    pub quiet: bool,
    /// When to colour; auto, where nothing is said
    #[arg(long, value_name = "WHEN")]
    pub color: Option<Color>,
    /// Who asks; else $PM_AGENT_ID, else worker-<context>, else pm.agent, else <hostname>-<calling process>
    #[arg(long, value_name = "ID")]
    pub agent: Option<AgentId>,
    /// The session that asks; else $PM_CONTEXT_ID
    #[arg(long, value_name = "ID")]
    pub context_id: Option<String>,
    /// Where a remote decides (pm.remote): record here only, until the next sync
    #[arg(long)]
    pub offline: bool,
}

impl Cli {
    /// Reads a command line; `name` is what the program was called as.
    ///
    /// # Errors
    /// What clap says of it: also that help was asked for.
    pub fn read(name: &'static str) -> std::result::Result<Cli, clap::Error> {
        // Never dropped: taking the command tree apart is a tenth of what a heartbeat computes.
        let mut command = ManuallyDrop::new(Cli::command().bin_name(name));
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let mut cli = Cli::from_arg_matches(&matches)?;
        let mut branch = matches.subcommand();
        while let Some((_, matches)) = branch {
            cli.global = cli.global.overlaid(Global::from_arg_matches(matches)?);
            branch = matches.subcommand();
        }
        Ok(cli)
    }
}

impl Global {
    /// Where the command says what it did.
    pub fn output(&self) -> Output {
        Output::new(self.json, self.quiet, self.color.unwrap_or(Color::Auto))
    }

    /// These options, and over them those that stand further right, behind a subcommand.
    fn overlaid(self, right: Global) -> Global {
        Global {
            dir: right.dir.or(self.dir),
            json: self.json || right.json,
            quiet: self.quiet || right.quiet,
            color: right.color.or(self.color),
            agent: right.agent.or(self.agent),
            context_id: right.context_id.or(self.context_id),
            offline: self.offline || right.offline,
        }
    }

    /// Who asks.
    fn caller(&self) -> Caller {
        Caller { agent: self.agent.clone(), context: self.context_id.clone(), is_offline: self.offline }
    }

    /// Opens the repository for whoever asks.
    fn session(&self) -> Result<Session> {
        self.session_of(&self.caller())
    }

    /// Opens the repository.
    fn session_of(&self, caller: &Caller) -> Result<Session> {
        self.enter_dir()?;
        Session::open(&here(), caller, self.output())
    }

    /// Goes where `-C` says.
    fn enter_dir(&self) -> Result<()> {
        if let Some(dir) = &self.dir {
            // As git does: every relative path of the call, GIT_DIR too, counts from there.
            std::env::set_current_dir(dir).map_err(|error| {
                let reason = format!("cannot change to {}: {error}", dir.display());
                Error::Store(StoreError::Unusable { reason })
            })?;
        }
        Ok(())
    }
}

/// Where a command runs. In full, since from "." gix does not see that it stands in a git directory itself.
fn here() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."))
}

/// The arguments of a subcommand and the options of every command, laid out only when it is the one called: every
/// start of pm pays for the command tree that it builds, and a heartbeat needs one branch of it. (clap's own global
/// arguments are copied into every branch.)
#[derive(Debug)]
pub struct Late<A>(A);

impl<A: Args> Args for Late<A> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(|command| {
            let own = A::augment_args(Global::augment_args(command).next_help_heading(None));
            own.mut_subcommands(|below| {
                let about = below.get_about().cloned().unwrap_or_default();
                let long_about = below.get_long_about().cloned().unwrap_or_else(|| about.clone());
                Global::augment_args(below).about(about).long_about(long_about)
            })
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<A: FromArgMatches> FromArgMatches for Late<A> {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        A::from_arg_matches(matches).map(Late)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<A> Deref for Late<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.0
    }
}

/// The subcommands.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub enum Command {
    /// Plan one task
    Plan(Late<plan::Args>),
    /// Plan many tasks at once, all or nothing
    BulkPlan(Late<bulk_plan::Args>),
    /// Show the next runnable task
    Next(Late<next::Args>),
    /// Take the next runnable task
    Pull(Late<pull::Args>),
    /// Claim a task
    Executing(Late<executing::Args>),
    /// Keep a claim alive
    Heartbeat(Late<heartbeat::Args>),
    /// Say what was done
    Report(Late<report::Args>),
    /// Give a task back
    Release(Late<release::Args>),
    /// Close a task, with its last report as the proof
    Finished(Late<finished::Args>),
    /// Ask whether a claim still holds its task
    Fence(Late<fence::Args>),
    /// Take stale claims away from workers that went silent
    Sweep(Late<sweep::Args>),
    /// Take a task from its holder, by an operator's word
    Reclaim(Late<reclaim::Args>),
    /// Call a task off, with the open tasks below it
    Cancel(Late<cancel::Args>),
    /// Open a closed task again, or put a changed one in its place
    Replan(Late<replan::Args>),
    /// Bring this ledger and a remote's together
    Sync(Late<sync::Args>),
    /// List what was recorded here and lost at a sync, and why
    Lost(Late<lost::Args>),
    /// Mend what a sync leaves alone
    Repair(Late<repair::Args>),
    /// Show everything about one task
    Show(Late<show::Args>),
    /// List tasks
    List(Late<list::Args>),
    /// Show what waits for what, and the critical path
    Graph(Late<graph::Args>),
    /// Tell the audit trail, newest first
    Log(Late<log::Args>),
    /// Count tasks by state and queue
    Status(Late<status::Args>),
    /// List the queues
    Queues(Late<queues::Args>),
    /// List the open claims of an agent
    Owned(Late<owned::Args>),
    /// Wait until a task is done, or in a status
    Wait(Late<wait::Args>),
    /// Sweep and maintain the ledger again and again
    Poll(Late<poll::Args>),
    /// Run a command for task after task, each with its claim kept alive
    Work(Late<work::Args>),
    /// Part of work: a process between the runner and one command
    #[command(hide = true)]
    WorkChild(Late<work_child::Args>),
    /// Part of finished and work: ends the commands of its process group when standard input ends
    #[command(hide = true)]
    VerifierGuard(Late<verifier_guard::Args>),
    /// Make a repository a hub that judges what is pushed to it
    Hook(Late<hook::Args>),
    /// Set a repository up for a ledger, and say what it would look like
    Init(Late<init::Args>),
    /// Find out what is wrong with this repository, host or setup, and how to mend it
    Doctor(Late<doctor::Args>),
    /// Check every chain against every rule
    Verify(Late<verify::Args>),
    /// Print what an agent must know to use pm here
    Prime(Late<prime::Args>),
    /// Print a fresh context id
    ContextId(Late<context_id::Args>),
    /// Take the tour: a real plan, a fleet, a killed worker, its recovery
    Demo(Late<demo::Args>),
    /// Print the completions of a shell
    Completions(Late<completions::Args>),
    /// Write the manual pages
    Man(Late<man::Args>),
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
            Command::Fence(args) => args.run(&global.session()?).map(done),
            Command::Sweep(args) => args.run(&global.session()?),
            Command::Reclaim(args) => args.run(&global.session()?),
            Command::Cancel(args) => args.run(&global.session()?),
            Command::Replan(args) => args.run(&global.session()?),
            Command::Lost(args) => args.run(&global.session()?).map(done),
            Command::Repair(args) => args.run(&global.session()?),
            Command::Sync(args) => args.run(&global.session()?),
            Command::Show(args) => args.run(&global.session()?).map(done),
            Command::List(args) => args.run(&global.session()?).map(done),
            Command::Graph(args) => args.run(&global.session()?).map(done),
            Command::Log(args) => args.run(&global.session()?).map(done),
            Command::Status(args) => args.run(&global.session()?).map(done),
            Command::Queues(args) => args.run(&global.session()?).map(done),
            Command::Owned(args) => args.run(&global.session()?),
            Command::Prime(args) => args.run(&global.session()?).map(done),
            Command::Wait(args) => args.run(&global.session()?).map(done),
            Command::Verify(args) => args.run(&global.session()?),
            Command::Init(args) => args.run(&global.session()?).map(done),
            Command::Doctor(args) => {
                global.enter_dir()?;
                args.run(&here(), &global.output())
            }
            Command::Poll(args) if args.is_from_outside() => {
                global.enter_dir()?;
                args.run_outside(&StateRoot::find(&here())?, &global.output())
            }
            Command::Poll(args) => {
                let caller = poll::caller(global.agent.as_ref())?;
                let reopen = || Session::reopen(&here(), &caller, global.output());
                args.run(global.session_of(&caller)?, &reopen)
            }
            Command::Work(args) => {
                let caller = global.caller();
                let session = global.session_of(&caller)?;
                let here = here();
                let open = |agent: &AgentId| {
                    let caller = Caller { agent: Some(agent.clone()), ..caller.clone() };
                    Session::reopen(&here, &caller, global.output())
                };
                args.run(&session, &open)
            }
            Command::WorkChild(args) => args.run(),
            Command::VerifierGuard(args) => args.run().map(done),
            Command::Hook(args) => {
                global.enter_dir()?;
                args.run(&here(), &global.output())
            }
            Command::ContextId(args) => args.run(&global.output()).map(done),
            Command::Demo(args) => args.run(&global.output()).map(done),
            Command::Completions(args) => args.run(&global.output()).map(done),
            Command::Man(args) => args.run(&global.output()).map(done),
        }
    }
}
