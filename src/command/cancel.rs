//! `pm cancel`: call a task off, with all that hangs below it.

use serde_json::{Value, json};

use super::TaskArgs;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::ledger::cascade::{Outcome, Step};
use crate::output::{Output, counted};
use crate::protocol::record::Phase;
use crate::protocol::text::checked_value;
use crate::session::Session;

/// Call a task off, with the open tasks below it
///
/// Closes it as rejected, whoever holds it; its holder learns so with the next heartbeat. Goes on to its children and
/// theirs, and stops at those that are closed. What depends on a cancelled task is blocked until that is replanned. A
/// cascade that was cut short is completed by the same command.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Leave the children as they are
    #[arg(long)]
    no_cascade: bool,
}

impl Args {
    /// Calls it off.
    ///
    /// # Errors
    /// 6 where it is closed already, 16, 17. A task below it that could not be closed is part of the result, and its exit
    /// code the command's.
    pub fn run(&self, session: &Session) -> Result<ExitCode> {
        let reason = self.reason.as_deref().map(|text| checked_value("the reason", text)).transpose()?;
        let found = self.task.find(session, &session.finder()?)?;
        let steps = session.writer()?.cancel(found, reason.as_deref(), !self.no_cascade)?;
        session.out.result(|| steps_json(&steps), || steps_text(&steps, "cancelled"));
        Ok(told(&session.out, &steps))
    }
}

/// What was changed, skipped and not managed, as JSON.
pub fn steps_json(steps: &[Step]) -> Value {
    let entry = |step: &Step| json!({"task": step.task, "queue": step.place.queue, "slug": step.place.slug, "was": step.was.map(Phase::as_str)});
    let (mut changed, mut skipped, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    for step in steps {
        let mut value = entry(step);
        match &step.outcome {
            Outcome::Changed(status) => {
                value["status"] = json!(status);
                changed.push(value);
            }
            Outcome::Skipped(why) => {
                value["why"] = json!(why);
                skipped.push(value);
            }
            Outcome::Failed(error) => {
                value["error"] = error.to_json()["error"].take();
                failed.push(value);
            }
        }
    }
    json!({"changed": changed, "skipped": skipped, "failed": failed})
}

/// The same for people, a line a task.
pub fn steps_text(steps: &[Step], verb: &str) -> String {
    let line = |step: &Step| match &step.outcome {
        Outcome::Changed(_) => format!("{verb} {}, which was {}", step.place, step.was.map_or("", Phase::as_str)),
        Outcome::Skipped(why) => format!("left {}: {why}", step.place),
        Outcome::Failed(error) => format!("failed {}", of_place(step, error)),
    };
    let mut lines: Vec<_> = steps.iter().map(line).collect();
    if steps.len() > 1 {
        let count = |is: fn(&Outcome) -> bool| steps.iter().filter(|step| is(&step.outcome)).count();
        let changed = counted(count(|outcome| matches!(outcome, Outcome::Changed(_))), "task");
        let failed = match count(|outcome| matches!(outcome, Outcome::Failed(_))) {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let left = count(|outcome| matches!(outcome, Outcome::Skipped(_)));
        lines.push(format!("{changed} {verb}, {left} left alone{failed}"));
    }
    lines.join("\n")
}

/// Names what failed, and tells how the command ends.
pub fn told(out: &Output, steps: &[Step]) -> ExitCode {
    let failures = steps.iter().filter_map(|step| match &step.outcome {
        Outcome::Failed(error) => Some((step, error)),
        _ => None,
    });
    let mut code = ExitCode::Done;
    for (step, error) in failures {
        out.warning(&format!("{}; the same command again tries it again", of_place(step, error)));
        if code == ExitCode::Done {
            code = Error::exit_code(error);
        }
    }
    code
}

/// What befell a task, after its place; a refusal names that by itself.
fn of_place(step: &Step, error: &Error) -> String {
    match error {
        Error::Refused { .. } => error.to_string(),
        _ => format!("{}: {error}", step.place),
    }
}
