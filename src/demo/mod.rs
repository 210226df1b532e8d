//! The tour: a real plan, a fleet of real processes, a worker killed in mid-claim, its recovery, the audit trail.
//!
//! The workers are runners (`pm work`), each with one agent, and the job is a few lines of shell: the tour shows nothing
//! that a user could not do. What it claims at the end is checked by [`audit`], from the records alone.

pub mod audit;
mod fleet;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::git_program::Git;
use crate::ledger::resolve::prefix;
use crate::output::{Output, Progress};
use crate::protocol::record::Phase;
use crate::session::{Caller, Session};

use fleet::Fleet;

/// The 71 crates of a real workspace in dependency order.
const PLAN: &str = include_str!("../../fixtures/plans/gitoxide-workspace.plan.json");

/// The lease of the tour's claims: short, so that nobody waits long for the dead worker's task.
const LEASE_MS: u64 = 1000;

/// How long any one step of the tour may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the tour looks at the ledger.
const PERIOD: Duration = Duration::from_millis(40);

/// What the tour saw.
#[derive(Debug)]
pub struct Tour {
    /// The repository, left behind to look around in.
    pub repository: PathBuf,
    /// How many tasks the plan has.
    pub tasks: usize,
    /// How many records the ledger has.
    pub records: usize,
    /// How long the fleet worked.
    pub took: Duration,
    /// The killed worker.
    pub victim: String,
    /// The task that it held, as `queue/slug`.
    pub task: String,
    /// How long after the kill the task was free again.
    pub recovered_in: Duration,
    /// What the dead worker's claim was told when it came back.
    pub zombie_exit: i32,
    /// The recovered task's life, as plain `git log` tells it.
    pub life: String,
    /// The command that shows it.
    pub life_command: String,
}

/// Takes the tour with `agents` workers.
///
/// # Errors
/// `Tour` where any rule was broken or a step took too long.
pub fn run(agents: usize, out: &Output) -> Result<Tour> {
    isolate()?;
    let repository = scratch()?;
    Git::init(&repository)?;
    let plan = repository.join("plan.json");
    std::fs::write(&plan, PLAN).map_err(Error::io("writing the plan"))?;
    let quiet = Output::new(false, true, crate::output::Color::Never);
    let session = Session::open(&repository, &Caller::default(), quiet)?;
    let fleet = Fleet::new(&repository, LEASE_MS)?;

    out.note(&format!("a scratch repository: {}", repository.display()));
    fleet.pm("planner", &["bulk-plan", "--input", &plan.display().to_string()])?;
    let tasks = session.ledger().scan(&prefix(None))?.tasks.len();
    out.note(&format!("planned {tasks} tasks, each a real crate with its real dependencies"));

    let started = Instant::now();
    let mut fleet = fleet;
    fleet.start(agents)?;
    out.note(&format!(
        "{agents} runners work them off (pm work); {} will hang in a task and be killed",
        fleet.victim()
    ));
    let hung = fleet.wait_for_hang(PATIENCE)?;
    fleet.kill_victim()?;
    let killed = Instant::now();
    let task = session.ledger().find(&hung.task, &session.queue(None)?)?;
    let place = crate::ledger::resolve::place(&task.state).to_string();
    out.note(&format!("{} was killed with SIGKILL while it held {place}", fleet.victim()));
    fleet.wait_for_end_of(&hung, PATIENCE)?;
    out.note("the command that it ran was ended by its keeper");
    let recovered_in = recover(&fleet, &hung.task, killed)?;
    out.note(&format!("a sweep took the task back {} ms after the kill", recovered_in.as_millis()));

    wait_until_done(&session, tasks, out.progress("done", tasks))?;
    let took = started.elapsed();
    fleet.stop(PATIENCE)?;

    // The dead worker wakes up with its old claim in hand.
    let zombie_exit = fleet.zombie(&hung)?;
    let records = audit::check(&session, &task.state.id, &hung.claim, zombie_exit)?;
    let git = Git::new(session.store.common_dir());
    git.output(&["fsck", "--strict", "--no-dangling"])?;
    let format = "--format=%h  %<(8)%an  %s";
    let life = git.output(&["log", "--reverse", format, task.name.as_str()])?;
    let life_command = format!("git -C {} log {}", repository.display(), task.name);
    Ok(Tour {
        repository,
        tasks,
        records,
        took,
        victim: fleet.victim().to_owned(),
        task: place,
        recovered_in,
        zombie_exit,
        life,
        life_command,
    })
}

/// Starts this program anew without the variables that would lead git or pm out of the scratch repository, as a hook
/// or a worker's session sets them. Returns where there are none.
fn isolate() -> Result<()> {
    let leads_astray = |name: &std::ffi::OsString| {
        name.to_str().is_some_and(|name| name.starts_with("PM_") || (name.starts_with("GIT_") && !is_harmless(name)))
    };
    let astray: Vec<_> = std::env::vars_os().map(|(name, _)| name).filter(leads_astray).collect();
    if astray.is_empty() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(Error::io("finding this program"))?;
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1));
    for name in astray {
        command.env_remove(name);
    }
    // Only a failure returns.
    Err(Error::Io { what: "starting the tour anew".to_owned(), source: command.exec() })
}

/// Variables of git's that choose configuration files and identities, not repositories.
fn is_harmless(name: &str) -> bool {
    ["GIT_CONFIG_", "GIT_AUTHOR_", "GIT_COMMITTER_"].iter().any(|prefix| name.starts_with(prefix))
}

/// A fresh directory for the tour.
fn scratch() -> Result<PathBuf> {
    let random = getrandom::u32().unwrap_or(0);
    let dir = std::env::temp_dir().join(format!("pm-demo-{}-{random:08x}", std::process::id()));
    std::fs::create_dir(&dir).map_err(Error::io(format!("creating {}", dir.display())))?;
    Ok(dir)
}

/// Sweeps, as a supervisor does, until the dead worker's task is free again.
fn recover(fleet: &Fleet, task: &str, killed: Instant) -> Result<Duration> {
    while killed.elapsed() < PATIENCE {
        let swept = fleet.pm("supervisor", &["sweep", "--json"])?;
        let swept: serde_json::Value =
            serde_json::from_str(&swept).map_err(|error| Error::Tour(format!("sweep printed no JSON: {error}")))?;
        let reclaimed = swept["reclaimed"].as_array().is_some_and(|tasks| tasks.iter().any(|row| row["task"] == task));
        if reclaimed {
            return Ok(killed.elapsed());
        }
        std::thread::sleep(PERIOD);
    }
    Err(Error::Tour(format!("task {task} of the killed worker was not reclaimed in time")))
}

fn wait_until_done(session: &Session, tasks: usize, mut progress: Progress) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let scan = session.ledger().scan(&prefix(None))?;
        let done = scan.tasks.iter().filter(|(_, state)| state.phase() == Some(Phase::Done)).count();
        progress.set(done);
        if done == tasks {
            return Ok(());
        }
        std::thread::sleep(PERIOD);
    }
    Err(Error::Tour("the fleet did not finish the plan in time".to_owned()))
}

/// The path of a file of the tour, inside the repository's own scratch folder.
fn note_path(repository: &Path, name: &str) -> PathBuf {
    repository.join(".git").join("pm").join(name)
}
