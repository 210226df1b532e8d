//! `pm status`: the ledger at a glance.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::{Watch, damaged_json, hint_elsewhere, warn_damaged};
use crate::error::Result;
use crate::id::{Queue, RefName};
use crate::ledger::neighbours::Neighbours;
use crate::ledger::resolve::{Scan, prefix};
use crate::output::counted;
use crate::poll::PollError;
use crate::poll::status::Status as Poller;
use crate::protocol::lease::Verdict;
use crate::protocol::record::Phase;
use crate::protocol::state::TaskState;
use crate::session::Session;

/// Count tasks by state and queue
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The queue; else all queues
    #[arg(long, value_name = "QUEUE")]
    queue: Option<Queue>,
}

/// How many tasks of a queue are in each phase, in the order of `Phase::ALL`.
pub type Counts = [usize; Phase::ALL.len()];

/// Counts the tasks of a scan by queue and phase.
pub fn count(scan: &Scan) -> BTreeMap<Queue, Counts> {
    let mut queues: BTreeMap<Queue, Counts> = BTreeMap::new();
    for (_, state) in &scan.tasks {
        let counts = queues.entry(state.task.queue.clone()).or_default();
        if let Some(at) = Phase::ALL.iter().position(|phase| Some(*phase) == state.phase()) {
            counts[at] += 1;
        }
    }
    queues
}

/// Counts as JSON.
pub fn counts_json(counts: &Counts) -> Value {
    let fields = Phase::ALL.iter().zip(counts).map(|(phase, count)| (phase.as_str().to_owned(), json!(count)));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Counts as a table.
pub fn counts_table(queues: &BTreeMap<Queue, Counts>) -> Vec<String> {
    let width = queues.keys().map(|queue| queue.as_str().len()).max().unwrap_or(0).max("queue".len());
    let header = Phase::ALL.iter().map(|phase| format!("{:>12}", phase.as_str())).collect::<String>();
    let mut lines = vec![format!("{:<width$}{header}", "queue")];
    for (queue, counts) in queues {
        let numbers: String = counts.iter().map(|count| format!("{count:>12}")).collect();
        lines.push(format!("{queue:<width$}{numbers}"));
    }
    lines
}

impl Args {
    /// Counts.
    ///
    /// # Errors
    /// Failures of the system. Tasks that cannot be read are named beside the counts.
    pub fn run(&self, session: &Session) -> Result<()> {
        let ledger = session.ledger();
        let scan = ledger.scan(&prefix(self.queue.as_ref()))?;
        let watch = Watch::new(session);
        let mut neighbours = Neighbours::new(&ledger, &scan.tasks);
        let (mut stale, mut runnable, mut blocked) = (0, 0, 0);
        for (name, state) in &scan.tasks {
            match neighbours.is_blocked(state) {
                Some(true) => blocked += 1,
                Some(false) => runnable += 1,
                None => {}
            }
            stale += usize::from(watch.judge(name, state).1 == Some(Verdict::Stale));
        }
        neighbours.finish()?;
        let unpushed = match &session.config.remote {
            Some(remote) => {
                let seen: HashMap<_, _> = ledger.store.tips(&RefName::seen_prefix(remote))?.into_iter().collect();
                let is_there = |(name, state): &&(RefName, TaskState)| {
                    seen.get(&name.seen_at(remote)).is_some_and(|tip| tip.as_ref().is_ok_and(|tip| *tip == state.tip.0))
                };
                Some(scan.tasks.iter().filter(|task| !is_there(task)).count())
            }
            None => None,
        };
        warn_damaged(&session.out, &scan.damaged);
        hint_elsewhere(session, self.queue.as_ref(), &scan)?;
        let queues = count(&scan);
        let poller = Poller::look(&session.state_root());
        let repository = session.store.common_dir().display().to_string();
        session.out.result(
            || {
                let queues: Map<String, Value> =
                    queues.iter().map(|(queue, counts)| (queue.to_string(), counts_json(counts))).collect();
                json!({"queues": queues, "stale": stale, "runnable": runnable, "blocked": blocked,
                       "remote": session.config.remote, "unpushed": unpushed, "poller": poller.as_ref().map(|poller| poller.to_json(session.now())).ok(),
                       "repository": repository, "damaged": damaged_json(&scan.damaged)})
            },
            || {
                let mut lines = counts_table(&queues);
                lines.push(format!("{runnable} runnable, {blocked} blocked, {stale} stale"));
                let line = poller.as_ref().map_or_else(PollError::to_string, |poller| poller.line(session.now()));
                lines.push(format!("poller: {line}"));
                if let (Some(remote), Some(unpushed)) = (&session.config.remote, unpushed) {
                    lines.push(format!("authority {remote}: {} not pushed, as far as was last seen", counted(unpushed, "task")));
                }
                lines.push(format!("ledger in {repository}"));
                lines.join("\n")
            },
        );
        Ok(())
    }
}
