//! `pm next`: what could be claimed.

use serde_json::{Value, json};

use super::{Watch, damaged_json, list_entry, list_row, place_width, warn_damaged};
use crate::error::Result;
use crate::id::{Queue, RefName};
use crate::ledger::Ledger;
use crate::ledger::graph::Graph;
use crate::ledger::resolve::{Damage, place, prefix};
use crate::output::Output;
use crate::protocol::record::Label;
use crate::protocol::select::{self, Hindrance};
use crate::protocol::state::TaskState;
use crate::protocol::view;
use crate::session::Session;

/// Show the next runnable task
///
/// Runnable is a task that is new and whose dependencies are done. The most urgent comes first (priority 0), then
/// the one that was planned first. Reads only; `pm pull` takes it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    filter: Filter,
    /// Show all runnable tasks, in the order in which they would be handed out
    #[arg(long)]
    all: bool,
}

/// Which tasks are wanted.
#[derive(Debug, clap::Args)]
pub struct Filter {
    /// The queue; else pm.queue, else default
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<Queue>,
    /// Only tasks with this label; may be repeated, then all are wanted
    #[arg(long = "label", value_name = "LABEL")]
    pub labels: Vec<Label>,
}

/// The runnable tasks of a queue, in the order in which they are handed out.
#[derive(Debug)]
pub struct Runnable {
    /// The tasks.
    pub tasks: Vec<(RefName, TaskState)>,
    /// Tasks that could not be read.
    pub damaged: Vec<Damage>,
    /// How many tasks this build cannot judge.
    pub unsupported: usize,
}

impl Runnable {
    /// Names what was left out: on stderr, never in silence.
    pub fn warn(&self, out: &Output) {
        warn_damaged(out, &self.damaged);
        if self.unsupported > 0 {
            out.warning(&format!(
                "{} tasks use what this pm cannot judge (parents, verifiers, contexts, work directories) and were left out",
                self.unsupported
            ));
        }
    }
}

impl Filter {
    /// Reads the runnable tasks.
    pub fn runnable(&self, session: &Session, ledger: &Ledger<'_>) -> Result<Runnable> {
        let queue = session.queue(self.queue.as_ref())?;
        let scan = ledger.scan(&prefix(Some(&queue)))?;
        let mut graph = Graph::new(ledger, &scan.tasks);
        let mut runnable: Vec<usize> = Vec::new();
        let mut unsupported = 0;
        for (index, (_, state)) in scan.tasks.iter().enumerate() {
            if !self.labels.iter().all(|label| state.task.labels.contains(label)) {
                continue;
            }
            match select::runnable(state, |ids| graph.unmet(ids)) {
                Ok(()) => runnable.push(index),
                Err(Hindrance::Unsupported(_)) => unsupported += 1,
                Err(Hindrance::NotNew | Hindrance::Blocked(_)) => {}
            }
        }
        graph.finish()?;
        runnable.sort_by(|a, b| select::order(&scan.tasks[*a].1, &scan.tasks[*b].1));
        let mut tasks: Vec<_> = scan.tasks.into_iter().map(Some).collect();
        let tasks = runnable.into_iter().filter_map(|index| tasks[index].take()).collect();
        Ok(Runnable { tasks, damaged: scan.damaged, unsupported })
    }
}

impl Args {
    /// Shows it.
    ///
    /// # Errors
    /// Failures of the system; an empty queue is none.
    pub fn run(&self, session: &Session) -> Result<()> {
        let ledger = session.ledger();
        let runnable = self.filter.runnable(session, &ledger)?;
        runnable.warn(&session.out);
        if self.all {
            let watch = Watch::new(session);
            let moment = |name: &RefName, state: &TaskState| watch.moment(name, state, Vec::new());
            let width = place_width(runnable.tasks.iter().map(|(_, state)| state));
            session.out.result(
                || {
                    let tasks: Vec<Value> =
                        runnable.tasks.iter().map(|(name, state)| list_entry(state, &moment(name, state))).collect();
                    json!({"tasks": tasks, "total": tasks.len(), "truncated": false,
                           "damaged": damaged_json(&runnable.damaged)})
                },
                || {
                    let row = |(name, state): &(RefName, TaskState)| {
                        list_row(&session.out, state, &moment(name, state), width)
                    };
                    let rows = runnable.tasks.iter().map(row);
                    rows.collect::<Vec<_>>().join("\n")
                },
            );
            return Ok(());
        }
        let Some((name, state)) = runnable.tasks.first() else {
            session.out.result(|| Value::Null, String::new);
            session.out.note("nothing is runnable");
            return Ok(());
        };
        let value = task_json(session, name, state)?;
        session.out.result(|| value, || format!("{} {}  {}", state.id, place(state), state.task.title));
        Ok(())
    }
}

/// The Task record with its state.
pub fn task_json(session: &Session, name: &RefName, state: &TaskState) -> Result<Value> {
    let record = session.ledger().record(name, state.id.record())?;
    let mut value = view::record(state.id.record(), &record, &[]);
    value["state"] = view::state(state, &Watch::new(session).moment(name, state, Vec::new()));
    Ok(value)
}
