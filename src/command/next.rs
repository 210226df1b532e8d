//! `pm next`: what could be claimed.

use serde_json::{Value, json};

use super::{Watch, damaged_json, list_entry, list_row, place_width, warn_damaged};
use crate::error::{Result, refusal_code};
use crate::id::{Queue, RefName};
use crate::ledger::Ledger;
use crate::ledger::resolve::{place, prefix};
use crate::ledger::runnable::Runnable;
use crate::output::{Output, counted};
use crate::protocol::record::Label;
use crate::protocol::select::{self, Hindrance};
use crate::protocol::state::TaskState;
use crate::protocol::view;
use crate::session::Session;

/// Show the next runnable task
///
/// Runnable is a task that is new, whose dependencies are done, whose parent is claimed, and whose work directory and
/// sticky context fit. Those of the caller's own context come first, then the most urgent (priority 0), then the one that
/// was planned first. Reads only; `pm pull` takes it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    filter: Filter,
    /// Show all runnable tasks, in the order in which they would be handed out
    #[arg(long)]
    all: bool,
    /// Say of every other open task why it is not offered
    #[arg(long, conflicts_with = "all")]
    explain: bool,
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

impl Filter {
    /// Reads the runnable tasks.
    pub fn runnable(&self, session: &Session, ledger: &Ledger<'_>) -> Result<Runnable> {
        ledger.runnable(&self.prefix(session)?, &self.labels, &session.dir)
    }

    /// The same, and why each other open task is not offered.
    fn explained(&self, session: &Session, ledger: &Ledger<'_>) -> Result<Runnable> {
        ledger.explained(&self.prefix(session)?, &self.labels, &session.dir)
    }

    /// The prefix of the refs of the queue.
    pub fn prefix(&self, session: &Session) -> Result<String> {
        Ok(prefix(Some(&session.queue(self.queue.as_ref())?)))
    }
}

impl Args {
    /// Shows it.
    ///
    /// # Errors
    /// Failures of the system; an empty queue is none.
    pub fn run(&self, session: &Session) -> Result<()> {
        let ledger = session.ledger();
        if self.explain {
            return explain(session, &self.filter.explained(session, &ledger)?);
        }
        let runnable = self.filter.runnable(session, &ledger)?;
        warn_left_out(&session.out, &runnable);
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
            say_nothing_is_runnable(&session.out, &runnable);
            return Ok(());
        };
        let value = task_json(session, name, state)?;
        session.out.result(|| value, || format!("{} {}  {}", state.id, place(state), state.task.title));
        Ok(())
    }
}

/// Says what is next, and of every open task that is not offered why.
fn explain(session: &Session, runnable: &Runnable) -> Result<()> {
    warn_damaged(&session.out, &runnable.damaged);
    let mut skipped: Vec<_> = runnable.skipped.iter().collect();
    skipped.sort_by(|(a, _), (b, _)| select::order(a, b));
    let next = match runnable.tasks.first() {
        Some((name, state)) => task_json(session, name, state)?,
        None => Value::Null,
    };
    let told = |state: &TaskState, why: &Hindrance| why.told(&state.task.queue, &state.task.slug);
    let entry = |(state, why): &&(TaskState, Hindrance)| {
        let code = match why {
            Hindrance::Refused(refusal) => refusal_code(refusal).name(),
            Hindrance::Workdir(_) => "workdir",
        };
        let why = told(state, why);
        json!({"task": state.id, "queue": state.task.queue, "slug": state.task.slug, "code": code, "why": why})
    };
    session.out.result(
        || json!({"next": next, "runnable": runnable.tasks.len(), "skipped": skipped.iter().map(entry).collect::<Vec<_>>()}),
        || {
            let next = match runnable.tasks.first() {
                Some((_, state)) => format!("next: {} {}  {}", state.id, place(state), state.task.title),
                None => "next: nothing is runnable".to_owned(),
            };
            let line = |(state, why): &&(TaskState, Hindrance)| format!("not {}: {}", place(state), told(state, why));
            std::iter::once(next).chain(skipped.iter().map(line)).collect::<Vec<_>>().join("\n")
        },
    );
    Ok(())
}

/// Says what others could claim, and what could not be read.
pub fn warn_left_out(out: &Output, runnable: &Runnable) {
    warn_damaged(out, &runnable.damaged);
    for (count, what) in runnable.elsewhere.told() {
        out.warning(&format!("{} {what}; `pm next --explain` tells which", counted(count, "more task")));
    }
}

/// Says that there is nothing for this caller. (What there is for others was told before.)
pub fn say_nothing_is_runnable(out: &Output, runnable: &Runnable) {
    let is_empty = runnable.elsewhere.told().is_empty();
    out.note(if is_empty { "nothing is runnable" } else { "nothing is runnable here" });
}

/// The Task record with its state.
pub fn task_json(session: &Session, name: &RefName, state: &TaskState) -> Result<Value> {
    let record = session.ledger().record(name, state.id.record())?;
    let mut value = view::record(state.id.record(), &record, &[]);
    value["state"] = view::state(state, &Watch::new(session).moment(name, state, Vec::new()));
    Ok(value)
}
