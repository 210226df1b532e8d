//! `pm list`: tasks as a table.

use serde_json::{Value, json};

use super::{Watch, damaged_json, hint_elsewhere, hint_for_ever, list_entry, list_row, place_width, warn_damaged};
use crate::error::Result;
use crate::id::Queue;
use crate::ledger::neighbours::Neighbours;
use crate::ledger::resolve::prefix;
use crate::protocol::lease::Verdict;
use crate::protocol::record::{Label, Phase};
use crate::protocol::select;
use crate::protocol::state::TaskState;
use crate::protocol::view::Moment;
use crate::session::Session;

/// List tasks
///
/// A new task that waits for others is shown with what it waits for, and how that stands.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The queue; else all queues
    #[arg(long, value_name = "QUEUE")]
    queue: Option<Queue>,
    /// Only tasks in this status: new, working, done, rejected, superseded; may be repeated
    #[arg(long = "status", value_name = "STATUS", value_parser = |text: &str| text.parse::<Phase>())]
    statuses: Vec<Phase>,
    /// Only tasks with this label; may be repeated, then all are wanted
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<Label>,
    /// Only new tasks that wait for others: a dependency, their parent, the task that they are to replace
    #[arg(long)]
    blocked: bool,
    /// Only tasks whose claim is older than its TTL
    #[arg(long)]
    stale: bool,
    /// Only tasks with this text in slug or title, in any case
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// At most so many; says so when it cuts
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl Args {
    /// Lists them.
    ///
    /// # Errors
    /// Failures of the system. Tasks that cannot be read are named beside the list.
    pub fn run(&self, session: &Session) -> Result<()> {
        let ledger = session.ledger();
        let scan = ledger.scan(&prefix(self.queue.as_ref()))?;
        let watch = Watch::new(session);
        let mut neighbours = Neighbours::new(&ledger, &scan.tasks);
        let mut rows: Vec<(&TaskState, Moment)> = Vec::new();
        for (name, state) in scan.tasks.iter().filter(|(_, state)| self.wants(state)) {
            let blocked_by = match state.phase() {
                Some(Phase::New) => neighbours.before_a_claim(state).waits(),
                _ => Vec::new(),
            };
            let stale = watch.judge(name, state).1 == Some(Verdict::Stale);
            if (self.blocked && blocked_by.is_empty()) || (self.stale && !stale) {
                continue;
            }
            rows.push((state, watch.moment(name, state, blocked_by)));
        }
        neighbours.finish()?;
        rows.sort_by(|(a, _), (b, _)| a.task.queue.cmp(&b.task.queue).then_with(|| select::order(a, b)));
        let total = rows.len();
        rows.truncate(self.limit.unwrap_or(total));
        warn_damaged(&session.out, &scan.damaged);
        hint_elsewhere(session, self.queue.as_ref(), &scan)?;
        let width = place_width(rows.iter().map(|(state, _)| *state));
        session.out.result(
            || {
                let tasks: Vec<Value> = rows.iter().map(|(state, moment)| list_entry(state, moment)).collect();
                json!({"tasks": tasks, "total": total, "truncated": rows.len() < total,
                       "damaged": damaged_json(&scan.damaged)})
            },
            || {
                let lines = rows.iter().map(|(state, moment)| list_row(&session.out, state, moment, width));
                lines.collect::<Vec<_>>().join("\n")
            },
        );
        if rows.len() < total {
            session.out.note(&format!("{} of {total} tasks shown", rows.len()));
        }
        hint_for_ever(&session.out, rows.iter().map(|(state, moment)| (*state, moment)));
        Ok(())
    }

    fn wants(&self, state: &TaskState) -> bool {
        let status = self.statuses.is_empty() || state.phase().is_some_and(|phase| self.statuses.contains(&phase));
        let labels = state.task.has_labels(&self.labels);
        let text = self.search.as_ref().is_none_or(|text| {
            let text = text.to_lowercase();
            state.task.title.to_lowercase().contains(&text) || state.task.slug.as_str().contains(&text)
        });
        status && labels && text
    }
}
