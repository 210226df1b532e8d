//! `pm owned`: what an agent holds.

use serde_json::{Value, json};

use super::{Watch, list_entry, list_row, place_width, warn_damaged};
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::id::{Queue, RefName};
use crate::ledger::resolve::prefix;
use crate::protocol::state::TaskState;
use crate::protocol::view::Moment;
use crate::session::Session;

/// List the open claims of an agent
///
/// A worker that was killed after its claim finds it again here.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Exit with 1 if there are any: for an agent's stop hook
    #[arg(long)]
    strict: bool,
    /// Only these queues; may be repeated
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<Queue>,
}

impl Args {
    /// Lists them.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn run(&self, session: &Session) -> Result<ExitCode> {
        let scan = session.ledger().scan(&prefix(None))?;
        warn_damaged(&session.out, &scan.damaged);
        let watch = Watch::new(session);
        let wanted = |state: &TaskState| {
            (self.queues.is_empty() || self.queues.contains(&state.task.queue))
                && state.claim().is_some_and(|claim| claim.holder == session.agent)
        };
        let owned: Vec<(&TaskState, Moment)> = scan
            .tasks
            .iter()
            .filter(|(_, state)| wanted(state))
            .map(|(name, state): &(RefName, TaskState)| (state, watch.moment(name, state, Vec::new())))
            .collect();
        let width = place_width(owned.iter().map(|(state, _)| *state));
        session.out.result(
            || {
                let tasks: Vec<Value> = owned.iter().map(|(state, moment)| list_entry(state, moment)).collect();
                json!({"agent": session.agent, "count": owned.len(), "tasks": tasks})
            },
            || {
                let rows = owned.iter().map(|(state, moment)| list_row(&session.out, state, moment, width));
                rows.collect::<Vec<_>>().join("\n")
            },
        );
        Ok(if self.strict && !owned.is_empty() { ExitCode::Failure } else { ExitCode::Done })
    }
}
