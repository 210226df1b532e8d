//! `pm replan`: do closed work again, as it was or changed.

use serde_json::{Value, json};

use super::cancel::{steps_json, steps_text, told};
use super::{TaskArgs, TextArgs};
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::ledger::replan::{Change, Replanned, Spread};
use crate::ledger::resolve::place;
use crate::protocol::text::{checked_body, checked_value};
use crate::session::Session;
use crate::verifier::form;

/// Open a closed task again, or put a changed one in its place
///
/// Without --text or --verifier the task itself is new again; one that is new or working is left as it is. With one of
/// them a clone named <slug>-r<N> takes its place: the old one is superseded, and whoever depends on it, or is its child,
/// follows to the clone. An empty text is refused. --cascade-up does again what it was built on, --cascade-down what was
/// built on it. Tasks in flight are left alone, and named. A replan that was cut short is completed by the same command.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    text: TextArgs,
    /// Another verifier, as in `pm plan`; an empty one is none
    #[arg(long, value_name = "SPEC")]
    verifier: Option<String>,
    /// Also the closed tasks that it depends on, and theirs
    #[arg(long)]
    cascade_up: bool,
    /// Also the closed tasks that depend on it, and theirs
    #[arg(long)]
    cascade_down: bool,
    /// Also the closed parents of everything that is done again, and theirs; with --cascade-down
    #[arg(long)]
    cascade_down_parents: bool,
    /// A note for the audit trail
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

impl Args {
    /// Replans it.
    ///
    /// # Errors
    /// 2 for an empty text, 6 where it is superseded, 11 for a clone whose place is taken, 16, 17. Another task that could
    /// not be opened is part of the result, and its exit code the command's.
    pub fn run(&self, session: &Session) -> Result<ExitCode> {
        let note = self.note.as_deref().map(|text| checked_value("the note", text)).transpose()?;
        let text = self.text.read()?.map(|text| new_text(&text)).transpose()?;
        let verifier = match self.verifier.as_deref() {
            Some("") => Some(None),
            given => given.map(form::checked).transpose()?.map(Some),
        };
        let spread = Spread {
            up: self.cascade_up,
            down: self.cascade_down || self.cascade_down_parents,
            parents: self.cascade_down_parents,
        };
        let found = self.task.find(session, &session.finder()?)?;
        let change = Change { text, verifier };
        let done = session.writer()?.replan(&found, &change, spread, note.as_deref())?;
        session.out.result(|| to_json(&done), || to_text(&done));
        Ok(told(&session.out, &done.steps))
    }
}

/// The text of the clone. An empty one is a file that was not written or a variable that was not set, and would be taken for
/// all that is to be done.
fn new_text(text: &str) -> Result<Option<String>> {
    if text.trim().is_empty() {
        return Err(Error::Usage(
            "the new text is empty, and nothing was changed; without --text and --text-file the task keeps its text"
                .to_owned(),
        ));
    }
    Ok(checked_body(text)?)
}

fn to_json(done: &Replanned) -> Value {
    let mut value = steps_json(&done.steps);
    value["clone"] = match &done.clone {
        Some(clone) => json!({"task": clone.id, "queue": clone.task.queue, "slug": clone.task.slug}),
        None => Value::Null,
    };
    value
}

fn to_text(done: &Replanned) -> String {
    let steps = steps_text(&done.steps, "replanned");
    match &done.clone {
        Some(clone) => format!("{steps}\n{} takes its place, as task {}", place(clone), clone.id),
        None => steps,
    }
}
