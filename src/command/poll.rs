//! `pm poll`: the daemon of a machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::clock::{Clock, SystemClock};
use crate::config::duration;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::id::{AgentId, Queue};
use crate::output::Output;
use crate::poll::control;
use crate::poll::daemon::{Orders, Poller, StopSignal};
use crate::poll::run_lock::RunLock;
use crate::poll::status::Status;
use crate::poll::{PollError, StateRoot};
use crate::protocol::record::Ttl;
use crate::session::{Caller, Session, hostname};

/// Sweep and maintain the ledger again and again
///
/// One poller runs for each repository of a machine: for each state root, which is pm.stateRoot or else the folder pm in
/// the git directory. In every cycle it takes stale claims away, as `pm sweep` does, and packs refs and objects of the
/// ledger when there are many. It acts as poller@<hostname>, or as --agent. docs/guides/poller.md tells how to have it
/// started by systemd, launchd or cron.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
enum Action {
    /// Run in the foreground, until SIGTERM or SIGINT
    Run(RunArgs),
    /// Start a poller in the background
    ///
    /// Returns when it holds its lock, or with the reason why it does not. What it says goes to poll.log, in the state
    /// root (pm.stateRoot, else the folder pm in the git directory).
    Start(OrderArgs),
    /// Stop the poller, and wait until it is gone
    ///
    /// That none runs is no failure, so that `pm poll stop && pm poll start` can be scripted.
    Stop(StopArgs),
    /// Stop the poller if one runs, and start one in the background
    ///
    /// The new one does what these options and the configuration say; it does not know what the old one was told.
    Restart(RestartArgs),
    /// Tell whether a poller runs, and what it did last: exit 0 if it runs, 3 if not
    Status,
}

/// What a poller is to do.
#[derive(Debug, clap::Args)]
struct OrderArgs {
    /// A queue to sweep; may be repeated. Else pm.pollQueue, else all queues
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<Queue>,
    /// From the start of one cycle to the start of the next, such as 60, 60s, 5m; else pm.interval, else 60 s
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    interval: Option<Ttl>,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    #[command(flatten)]
    orders: OrderArgs,
    /// Run one cycle and end: for cron. Exit 1 if a part of it failed
    #[arg(long)]
    once: bool,
    /// Leave the session and turn to the log in this state root: how `pm poll start` runs it
    #[arg(long, hide = true, value_name = "DIR", conflicts_with = "once")]
    detached: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct StopArgs {
    /// How long to wait for its end, such as 30, 30s, 2m
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    timeout: Ttl,
}

#[derive(Debug, clap::Args)]
struct RestartArgs {
    #[command(flatten)]
    stop: StopArgs,
    #[command(flatten)]
    orders: OrderArgs,
}

/// Who asks: not a worker whose variables happen to be set, but the machine.
///
/// # Errors
/// `Usage` where the host's name makes no agent id.
pub fn caller(agent: Option<&AgentId>) -> Result<Caller> {
    let agent = match agent {
        Some(agent) => agent.clone(),
        None => format!("poller@{}", hostname()).parse()?,
    };
    Ok(Caller { agent: Some(agent), ..Caller::default() })
}

impl Args {
    /// Does it. `reopen` opens the session anew, with the configuration of then.
    ///
    /// # Errors
    /// 1 where a poller runs already, cannot be started or does not stop; 2 for a wrong configuration.
    pub fn run(&self, session: Session, reopen: &dyn Fn() -> Result<Session>) -> Result<ExitCode> {
        let root = session.state_root();
        match &self.action {
            Action::Run(args) => return args.run(session, root, reopen),
            Action::Start(args) => args.start(&session, &root)?,
            Action::Restart(args) => {
                if let Some(pid) = args.stop.stop(&root)? {
                    session.out.note(&format!("stopped the poller, process {pid}"));
                }
                args.orders.start(&session, &root)?;
            }
            Action::Stop(_) | Action::Status => return self.run_outside(&root, &session.out),
        }
        Ok(ExitCode::Done)
    }

    /// Whether nothing must be known but the state root: a poller can be asked and stopped whatever else is wrong.
    pub fn is_from_outside(&self) -> bool {
        matches!(self.action, Action::Stop(_) | Action::Status)
    }

    /// Does what [`Args::is_from_outside`].
    ///
    /// # Errors
    /// 1 where the lock cannot be asked, or the poller does not stop.
    pub fn run_outside(&self, root: &StateRoot, out: &Output) -> Result<ExitCode> {
        match &self.action {
            Action::Stop(args) => args.run(root, out).map(|()| ExitCode::Done),
            _ => status(root, out),
        }
    }
}

impl OrderArgs {
    fn start(&self, session: &Session, root: &StateRoot) -> Result<()> {
        prepare(root)?;
        let pid = control::start(root, self.program(session, root)?)?;
        session.out.result(
            || json!({"pid": pid, "stateRoot": root.dir().display().to_string()}),
            || format!("started a poller, process {pid}; it writes to {}", root.log().display()),
        );
        Ok(())
    }

    /// This program, called as a poller of this very repository, wherever the caller stands and whatever its variables
    /// say: both may be gone in an hour.
    fn program(&self, session: &Session, root: &StateRoot) -> Result<Command> {
        let program = std::env::current_exe().map_err(Error::io("finding the program that runs"))?;
        let mut command = Command::new(program);
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_CEILING_DIRECTORIES", "GIT_OBJECT_DIRECTORY"] {
            command.env_remove(name);
        }
        let dir: &Path = session.store.common_dir();
        command.current_dir(dir).args(["poll", "run", "--agent", session.agent.as_str(), "--detached"]).arg(root.dir());
        let options = self.queues.iter().map(|queue| format!("--queue={queue}"));
        let interval = self.interval.map(|interval| format!("--interval={}ms", interval.ms()));
        command.args(options.chain(interval).map(OsString::from));
        Ok(command)
    }
}

impl RunArgs {
    fn run(&self, session: Session, root: StateRoot, reopen: &dyn Fn() -> Result<Session>) -> Result<ExitCode> {
        let root = &self.detached.clone().map_or(root, StateRoot::at);
        let orders = Orders {
            queues: self.orders.queues.clone(),
            interval: self.orders.interval.map(|interval| Duration::from_millis(interval.ms())),
            once: self.once,
        };
        if self.detached.is_some() {
            control::leave_session().map_err(Error::io("leaving the session"))?;
        }
        prepare(root)?;
        let signal = StopSignal::catch().map_err(Error::io("catching signals"))?;
        let lock = RunLock::acquire(&root.run_lock())?;
        if self.detached.is_some() {
            control::turn_to_log(root).map_err(Error::io(format!("opening {}", root.log().display())))?;
        }
        let out = session.out.clone();
        let poller = Poller::new(lock, root.clone(), orders, signal, session, reopen);
        let last = poller.run(|cycle| {
            if out.is_json() || self.once {
                out.result(|| json!(cycle), || cycle.to_string());
            }
        })?;
        Ok(if self.once && last.errors > 0 { ExitCode::Failure } else { ExitCode::Done })
    }
}

impl StopArgs {
    fn stop(&self, root: &StateRoot) -> Result<Option<u32>> {
        Ok(control::stop(root, Duration::from_millis(self.timeout.ms()))?)
    }

    fn run(&self, root: &StateRoot, out: &Output) -> Result<()> {
        let stopped = self.stop(root)?;
        out.result(
            || json!({"stopped": stopped}),
            || stopped.map_or("no poller runs here".to_owned(), |pid| format!("stopped the poller, process {pid}")),
        );
        Ok(())
    }
}

/// Makes the state root, unless it is there.
fn prepare(root: &StateRoot) -> Result<()> {
    std::fs::create_dir_all(root.dir()).map_err(|source| {
        let doing = "making the folder for it";
        PollError::Unlockable { path: root.run_lock(), doing, source }.into()
    })
}

fn status(root: &StateRoot, out: &Output) -> Result<ExitCode> {
    let status = Status::look(root)?;
    let now = SystemClock::default().wall_seconds();
    out.result(
        || status.to_json(now),
        || std::iter::once(status.line(now)).chain(status.last_cycle()).collect::<Vec<_>>().join("\n"),
    );
    Ok(if status.is_running { ExitCode::Done } else { ExitCode::NotRunning })
}
