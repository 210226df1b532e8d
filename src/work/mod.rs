//! The runner: agents that take tasks, run a command for each, keep its claim alive, and let go the moment it is lost.
//!
//! Three processes stand behind one command, each to survive the failure of another:
//!
//! ```text
//! pm work        the agents: claims, heartbeats, reports; renews the lease of each command at its keeper
//! └ keeper       ends the command when it is told to, when pm work is gone, when the lease was not renewed
//!   └ command    the leader of a session and process group of its own; dies with its keeper
//! ```
//!
//! - [`agent`] is the loop of one agent, [`supply`] hands out tasks to all of them, [`attempt`] is the work on one,
//!   `closing` its end, and `family` the wait for its children before that.
//! - [`vigil`] waits while a claim is held; [`holding`] is that claim: what is recorded under it.
//! - [`child`] is a command seen from the runner, [`keeper`] the process in between, [`mod@line`] what the two say;
//!   [`children`] finds what a command started.
//! - [`renewal`], [`transcript`], [`account`] and `silence` are pure: when to renew and when to let go; what is kept of the
//!   output; what is reported; whether the claim of a child is kept alive by anybody.
//! - [`desk`] is where a command works, [`stop`] the signals, [`event`] what is told, [`display`] how it looks.
//!
//! What must never happen here: a command runs on without a lease; an agent records anything for a claim that it lost.

pub mod account;
pub mod agent;
pub mod attempt;
pub mod child;
pub mod children;
mod closing;
pub mod desk;
pub mod display;
pub mod event;
mod family;
pub mod holding;
pub mod keeper;
pub mod line;
pub mod pulse;
pub mod renewal;
mod shelf;
mod silence;
pub mod stop;
pub mod supply;
mod tide;
pub mod transcript;
mod turns;
pub mod vigil;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use signal_hook::consts::SIGCHLD;

use crate::error::{Error, Result};
use crate::id::AgentId;
use crate::protocol::record::Ttl;

use self::agent::{Open, Post};
use self::event::{Event, Teller};
use self::pulse::Pulse;
use self::stop::{Stop, Wish};
use self::supply::{Supply, Terms};

/// What becomes of a task whose command fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnFailure {
    /// It is closed without success.
    Reject,
    /// It goes back to the queue, until it has had as many attempts as it may.
    Release,
}

/// What becomes of running commands when the runner is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnStop {
    /// They run to their end.
    Complete,
    /// They are ended, and their tasks go back to the queue.
    Release,
}

/// What a runner is asked to do with the tasks that it takes.
#[derive(Debug, Clone)]
pub struct Orders {
    /// The program and its arguments; none with `exec_body`.
    pub command: Vec<OsString>,
    /// Runs each task's own text with `sh`.
    pub exec_body: bool,
    /// How long a command may run.
    pub timeout: Option<Ttl>,
    /// How long a verifier may take.
    pub verifier_timeout: Duration,
    /// What becomes of a task whose command fails.
    pub on_failure: OnFailure,
    /// What becomes of running commands at a stop.
    pub on_stop: OnStop,
    /// Heartbeats carry the last line of the output.
    pub progress_from_output: bool,
    /// Reports hold the output.
    pub keeps_output: bool,
    /// How much of it the attached log may hold, in bytes.
    pub log_limit: usize,
    /// Each task has a worktree of its own below this directory.
    pub worktree_root: Option<PathBuf>,
    /// The branch that is moved to what was committed in a worktree, together with the closing of the task.
    pub deliver: Option<String>,
    /// Somebody looks at a live display.
    pub is_watched: bool,
}

/// Runs agents until there is nothing more to do, and returns whether signals ended them. Each has a session that `open`
/// opens for it. `show` is handed what they tell; with `redraw` it is also called when so long nothing was told.
///
/// # Errors
/// `Io` where signals cannot be caught; else the first error that an agent ended with.
pub fn run(
    agents: &[AgentId],
    open: Open<'_>,
    orders: &Orders,
    terms: Terms,
    redraw: Option<Duration>,
    mut show: impl FnMut(Option<Event>),
) -> Result<Wish> {
    let supply = Arc::new(Supply::new(terms));
    let stirred = Arc::clone(&supply);
    let stop = Stop::catch(move || stirred.stir()).map_err(Error::io("catching signals"))?;
    keeper::adopt_orphans().map_err(Error::io("becoming the parent of orphans"))?;
    // Where it was inherited as ignored, the system would take in every child unasked, and how it ended with it.
    signal_hook::flag::register(SIGCHLD, Arc::default()).map_err(Error::io("catching signals"))?;
    let pulse = Pulse::default();
    let (events, told) = mpsc::channel();
    let result = std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (number, agent) in agents.iter().enumerate() {
            let tell = Teller::new(agent.clone(), number, events.clone());
            let (supply, stop, pulse) = (&*supply, &stop, &pulse);
            let post = Post { name: agent.clone(), orders, supply, pulse, stop, tell, open };
            running.push(scope.spawn(move || post.run()));
        }
        drop(events);
        loop {
            let event = match redraw {
                Some(pause) => told.recv_timeout(pause),
                None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(event) => show(Some(event)),
                Err(RecvTimeoutError::Timeout) => show(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        running.into_iter().map(|agent| agent.join().expect("an agent does not panic")).fold(Ok(()), Result::and)
    });
    result.map(|()| stop.wish())
}
