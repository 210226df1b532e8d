//! Why `pm wait` ended without what was waited for.

use serde_json::{Map, Value, json};

use super::Place;
use crate::exit_code::ExitCode;
use crate::id::TaskId;
use crate::output::span;
use crate::protocol::record::Phase;

/// Why a wait ended without what was waited for. Nothing was recorded.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// The task was closed otherwise: what was waited for does not come by itself.
    #[error(
        "{place}: the task is {phase}, and will not be {} by itself; `pm show --task {place}` tells what happened",
        any_of(wanted)
    )]
    Elsewhere {
        /// The task.
        task: TaskId,
        /// Where it is.
        place: Place,
        /// The phase that it is in.
        phase: Phase,
        /// The phases that were waited for.
        wanted: Vec<Phase>,
    },
    /// The time is over.
    #[error(
        "{} after {} of waiting for it to be {}; the same command again waits on{}",
        known.as_ref().map(|known| known.to_string()).unwrap_or_else(|| format!("no task '{asked}' is known here")),
        span(*waited_ms), any_of(wanted),
        outage.as_ref().map(|why| format!(" (the authority could not be asked: {why})")).unwrap_or_default()
    )]
    TimedOut {
        /// What was asked for, made printable.
        asked: String,
        /// What is known of the task; nothing where the authority alone may know it.
        known: Option<Box<Known>>,
        /// The phases that were waited for.
        wanted: Vec<Phase>,
        /// For how long, in milliseconds.
        waited_ms: u64,
        /// Why the authority could not be asked, the last time.
        outage: Option<String>,
    },
}

/// Where a task was when the time was over.
#[derive(Debug)]
pub struct Known {
    /// The task.
    pub task: TaskId,
    /// Where it is.
    pub place: Place,
    /// The phase that it is in.
    pub phase: Phase,
    /// Its state, as it is printed everywhere.
    pub state: Value,
    /// Whether what is known was recorded here alone: the authority does not have it yet.
    pub is_only_here: bool,
}

impl std::fmt::Display for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let only = if self.is_only_here { ", and has not reached the authority," } else { "" };
        write!(f, "{}: the task is {}{only}", self.place, self.phase)
    }
}

/// Phases as people name a choice of them.
fn any_of(phases: &[Phase]) -> String {
    phases.iter().map(|phase| phase.as_str()).collect::<Vec<_>>().join(" or ")
}

impl WaitError {
    /// How the process ends.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            WaitError::Elsewhere { .. } => ExitCode::WrongPhase,
            WaitError::TimedOut { .. } => ExitCode::Failure,
        }
    }

    /// Its facts, for the JSON object.
    pub(super) fn facts(&self, map: &mut Map<String, Value>) {
        let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
        let mut put_task = |task: &TaskId, place: &Place, phase: Phase| {
            put("task", json!(task));
            put("queue", json!(place.queue));
            put("slug", json!(place.slug));
            put("status", json!(phase.as_str()));
        };
        match self {
            WaitError::Elsewhere { task, place, phase, wanted } => {
                put_task(task, place, *phase);
                put("wanted", wanted_json(wanted));
            }
            WaitError::TimedOut { asked, known, wanted, waited_ms, outage } => {
                if let Some(known) = known {
                    put_task(&known.task, &known.place, known.phase);
                    put("state", known.state.clone());
                } else {
                    put("asked", json!(asked));
                }
                put("wanted", wanted_json(wanted));
                put("timed_out", json!(true));
                put("waited_ms", json!(waited_ms));
                if let Some(why) = outage {
                    put("why", json!(why));
                }
            }
        }
    }
}

fn wanted_json(wanted: &[Phase]) -> Value {
    wanted.iter().map(|phase| phase.as_str()).collect()
}
