//! `pm work`: the runner.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::config::duration;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::id::AgentId;
use crate::protocol::record::Ttl;
use crate::session::Session;
use crate::work::display::Display;
use crate::work::renewal::TTL_MIN_MS;
use crate::work::stop::Wish;
use crate::work::supply::Terms;
use crate::work::{OnFailure, OnStop, Orders, desk};

use super::next::Filter;

/// How often a live display is drawn.
const REDRAW: Duration = Duration::from_millis(250);

/// The largest log, in bytes: it is kept in memory while the command runs, and written between two heartbeats.
const LOG_LIMIT_MAX: u64 = 16 << 20;

/// Run a command for task after task, each with its claim kept alive
///
/// Each agent takes the next runnable task and starts the command for it, with PM_TASK, PM_SLUG, PM_QUEUE, PM_TITLE,
/// PM_BODY_FILE, PM_CLAIM, PM_FENCE, PM_AGENT_ID and PM_ATTEMPT set, and PM_CONTEXT_ID where it works in a context. While
/// the command runs, a heartbeat is sent every third of the lease. When it ends, what it printed is reported, and the task
/// is closed: done after exit 0, else as --on-failure says.
///
/// When the lease is lost, or no renewal got in for two thirds of it, the command and all that it started are ended:
/// asked to (SIGTERM), and killed after a sixth of the lease, at most 10 s. Nothing is recorded then.
///
/// The first SIGINT or SIGTERM ends the runner when what runs has ended (see --on-stop); the second ends it at once. If
/// pm work is killed, its commands end, too, and a sweep brings their tasks back.
///
/// Exit 12 means that a lease was lost; 1 that the last attempt at a task failed or could not be started, that a task
/// was rejected, or that a signal came before the queue was empty.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    filter: Filter,
    /// How many tasks at once; each agent is called <agent>-<number> if there are several
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    agents: u32,
    /// End when nothing is runnable, and nothing will be once what is being worked on is done; this is the default
    #[arg(long, conflicts_with = "forever")]
    until_empty: bool,
    /// Wait for more when the queue is empty
    #[arg(long)]
    forever: bool,
    /// End after so many tasks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tasks: Option<u64>,
    /// The lease to ask for, at least 1s; else the task's own, else pm.ttl
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Ttl>,
    /// How long a command may run
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Ttl>,
    /// How long the verifier of a task may take, such as 90, 90s, 5m
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    verifier_timeout: Ttl,
    /// What becomes of a task whose command fails; a released one is tried again up to its Max-Attempts or pm.maxAttempts
    #[arg(long, value_name = "WHAT", default_value = "reject")]
    on_failure: OnFailure,
    /// What becomes of what runs at the first SIGINT or SIGTERM
    #[arg(long, value_name = "WHAT", default_value = "complete")]
    on_stop: OnStop,
    /// Heartbeats carry the last line that was printed; it stays in the history for ever
    #[arg(long)]
    progress_from_output: bool,
    /// How many bytes of the output are attached to the report, beside the last 64 KiB as text; the middle is cut
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(..=LOG_LIMIT_MAX))]
    log_limit: u64,
    /// Record nothing of the output: history is for ever, and output can hold secrets
    #[arg(long, conflicts_with_all = ["log_limit", "progress_from_output"])]
    no_output: bool,
    /// Run each task in a git worktree of its own, on branch pm/<queue>/<slug>; removed, with ignored files, when the
    /// task is done and everything else in it is committed
    #[arg(long)]
    worktree: bool,
    /// Where the worktrees are; else beside the repository, in <repository>.worktrees
    #[arg(long, value_name = "DIR", requires = "worktree")]
    worktree_root: Option<PathBuf>,
    /// Close a task only together with moving this branch forwards to what was committed in its worktree: at the authority
    /// if there is one, else here. Where the branch has moved on, the task goes back to the queue
    #[arg(long, value_name = "BRANCH", requires = "worktree")]
    deliver: Option<String>,
    /// Run each task's own text with sh. Only where pm.allowVerifier holds '*'
    #[arg(long, conflicts_with = "command")]
    exec_body: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present = "exec_body")]
    command: Vec<OsString>,
}

impl Args {
    /// Works. `open` opens a session for one of the agents.
    ///
    /// # Errors
    /// `NotStarted` where the command cannot be started, again and again; what keeps agents from taking tasks.
    pub fn run(&self, session: &Session, open: &(dyn Fn(&AgentId) -> Result<Session> + Sync)) -> Result<ExitCode> {
        let agents = self.agents(session)?;
        let mut orders = self.orders(session)?;
        let terms = Terms {
            queue: session.queue(self.filter.queue.as_ref())?,
            labels: self.filter.labels.clone(),
            ttl: self.ttl,
            forever: self.forever,
            max_tasks: self.max_tasks,
        };
        desk::sweep_texts(session);
        // Sees to core.fsync, so that the agents need not, each for itself.
        session.local_writer();
        let mut display = Display::new(&session.out, &agents);
        orders.is_watched = display.is_live();
        let redraw = display.is_live().then_some(REDRAW);
        let ended = crate::work::run(&agents, open, &orders, terms, redraw, |event| display.show(event.as_ref()));
        let (has_lost, has_failed) = (display.has_lost(), display.has_failed());
        display.close();
        match ended {
            ended if has_lost => {
                if let Err(error) = ended {
                    session.out.error(&error);
                }
                Ok(ExitCode::LeaseLost)
            }
            Err(error) => Err(error),
            Ok(_) if has_failed => Ok(ExitCode::Failure),
            Ok(wish) if wish > Wish::None && !self.forever => Ok(ExitCode::Failure),
            Ok(_) => Ok(ExitCode::Done),
        }
    }

    /// The agents: the one who asks, or several that are named after it.
    fn agents(&self, session: &Session) -> Result<Vec<AgentId>> {
        if self.agents == 1 {
            return Ok(vec![session.agent.clone()]);
        }
        (1..=self.agents).map(|number| Ok(format!("{}-{number}", session.agent).parse()?)).collect()
    }

    /// The directory for worktrees, made if it is not there, as git names it.
    fn root(&self, session: &Session) -> Result<PathBuf> {
        let root = self.worktree_root.clone().unwrap_or_else(|| desk::worktree_root(session));
        let made = std::fs::create_dir_all(&root).and_then(|()| root.canonicalize());
        made.map_err(Error::io(format!("making {}", root.display())))
    }

    fn orders(&self, session: &Session) -> Result<Orders> {
        if self.exec_body && !session.config.allow_verifier.iter().any(|allowed| allowed == "*") {
            return Err(Error::Usage(
                "--exec-body runs whatever the ledger says, and this machine does not allow it. Whoever can write to the \
                 ledger could then run code here. To allow it: git config --add pm.allowVerifier '*'"
                    .to_owned(),
            ));
        }
        if let Some(ttl) = self.ttl
            && ttl.ms() < TTL_MIN_MS
        {
            return Err(Error::Usage(format!("a lease of {ttl} is too short to be kept alive; at least 1s is needed")));
        }
        Ok(Orders {
            command: self.command.clone(),
            exec_body: self.exec_body,
            timeout: self.timeout,
            verifier_timeout: Duration::from_millis(self.verifier_timeout.ms()),
            on_failure: self.on_failure,
            on_stop: self.on_stop,
            progress_from_output: self.progress_from_output,
            keeps_output: !self.no_output,
            log_limit: usize::try_from(self.log_limit).map_err(|error| Error::Usage(error.to_string()))?,
            worktree_root: self.worktree.then(|| self.root(session)).transpose()?,
            deliver: self.deliver.clone(),
            is_watched: false,
        })
    }
}
