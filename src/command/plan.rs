//! `pm plan`: one task.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::{TextArgs, print_record};
use crate::clock::Clock;
use crate::config::duration;
use crate::error::{Error, Result};
use crate::id::{Queue, Slug, TaskId};
use crate::ledger::Ledger;
use crate::ledger::create::NewTask;
use crate::ledger::find::Found;
use crate::ledger::resolve::place;
use crate::protocol::record::{Label, Priority, Task, Ttl};
use crate::protocol::{text, view};
use crate::session::Session;
use crate::verifier::form;

/// Plan one task
///
/// Creates the task and its first status with one creation of its ref. The slug is derived from the title if it is
/// not given, so the same title planned twice is refused (exit 4) and a repeated create makes no duplicate. A child can be
/// claimed once its parent is, and the parent can be finished once all its children are settled; a child takes over whether
/// it is sticky, and the work directory.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One line, at most 200 characters
    #[arg(long)]
    title: String,
    #[command(flatten)]
    text: TextArgs,
    /// The queue; else that of the parent, else pm.queue, else default
    #[arg(long, value_name = "QUEUE")]
    queue: Option<Queue>,
    /// The task's name in its queue; else made from the title
    #[arg(long)]
    slug: Option<Slug>,
    /// Tasks that must be done before this one can be claimed
    #[arg(long, value_name = "TASK,…", value_delimiter = ',')]
    depends_on: Vec<String>,
    /// The task that this one is a part of; of the same queue
    #[arg(long, value_name = "TASK")]
    parent: Option<String>,
    /// What must pass before it is done: skill:NAME or prompt:TEXT (attested in the report), verify-skill:NAME or
    /// verify-prompt:TEXT (judged by an LLM command line), or a shell command
    #[arg(long, value_name = "SPEC")]
    verifier: Option<String>,
    /// Bind the task, with all sticky tasks that are tied to it, to the context of its first claim
    #[arg(long)]
    sticky: bool,
    /// Offer it only to who works in this directory, or below it; else that of the parent
    #[arg(long, value_name = "DIR")]
    workdir: Option<PathBuf>,
    /// How urgent: 0 (most) to 4 (least)
    #[arg(long, value_name = "0-4", default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=4))]
    priority: u64,
    /// A tag for filtering; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<Label>,
    /// The lease of every claim of this task, such as 90, 90s, 5m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Ttl>,
    /// Reject the task after this many sweeps in a row without a report; 0 is never
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
}

impl Args {
    /// Plans the task.
    ///
    /// # Errors
    /// 4, 5, 11, 17; 2 for texts that no record may hold.
    pub fn run(&self, session: &Session) -> Result<()> {
        let title = text::checked_title(&self.title)?;
        let body = self.text.read()?.map_or(Ok(None), |body| text::checked_body(&body))?;
        let verifier = self.verifier.as_deref().map(form::checked).transpose()?;
        let workdir = self.workdir.as_deref().map(|dir| absolute(&session.dir, dir)).transpose()?;
        let finder = session.finder()?;
        let named = session.queue(self.queue.as_ref())?;
        let slug = self.slug.clone().unwrap_or_else(|| Slug::from_title(&title));
        let parent = self.parent(&finder, &named, &slug)?;
        let queue = match (&self.queue, &parent) {
            (None, Some(parent)) => parent.state.task.queue.clone(),
            _ => named,
        };
        let mut labels = self.labels.clone();
        labels.sort();
        labels.dedup();
        let depends_on = self.dependencies(&finder, &queue, &slug)?;
        let task = Task {
            queue,
            slug,
            title,
            created: session.clock.wall_micros(),
            priority: Priority::try_from(self.priority).map_err(|error| Error::Usage(error.to_string()))?,
            depends_on,
            parent: parent.map(|parent| parent.state.id),
            spawned_at: None,
            verifier,
            sticky: self.sticky,
            workdir,
            ttl: self.ttl,
            max_attempts: self.max_attempts,
            labels,
        };
        let appended = session.writer()?.create(NewTask { task, body, replan_of: None })?;
        let [(task_id, task), (status_id, status)] = &appended.records[..] else {
            unreachable!("a creation is two records");
        };
        print_record(
            &session.out,
            &appended,
            || json!({"task": view::record(*task_id, task, &[]), "status": view::record(*status_id, status, &[])}),
            || format!("planned {} as task {task_id}", place(&appended.state)),
        );
        Ok(())
    }

    /// The parent, if one is named.
    fn parent(&self, ledger: &Ledger<'_>, queue: &Queue, slug: &Slug) -> Result<Option<Found>> {
        let Some(asked) = &self.parent else { return Ok(None) };
        if is_named(asked, queue, slug) {
            return Err(Error::InvalidGraph(format!("{queue}/{slug} cannot be its own parent")));
        }
        ledger.find(asked, queue).map(Some)
    }

    fn dependencies(&self, ledger: &Ledger<'_>, queue: &Queue, slug: &Slug) -> Result<Vec<TaskId>> {
        let (mut ids, mut faults) = (Vec::new(), Vec::new());
        for asked in &self.depends_on {
            match dependency(ledger, asked, queue, slug) {
                Ok(id) if ids.contains(&id) => {}
                Ok(id) => ids.push(id),
                Err(Error::InvalidGraph(found)) => faults.push(found),
                Err(error) => return Err(error),
            }
        }
        if !faults.is_empty() {
            return Err(Error::InvalidGraph(faults.join("; ")));
        }
        Ok(ids)
    }
}

/// One dependency of the task that is being planned.
fn dependency(ledger: &Ledger<'_>, asked: &str, queue: &Queue, slug: &Slug) -> Result<TaskId> {
    if is_named(asked, queue, slug) {
        return Err(Error::InvalidGraph(format!("{queue}/{slug} cannot depend on itself")));
    }
    let found = ledger.find(asked, queue).map_err(|error| match error {
        // Several candidates: the call is ambiguous. None: the graph would have a hole.
        Error::UnknownTask { asked, because, candidates } if candidates.is_empty() => {
            Error::InvalidGraph(format!("a task cannot depend on '{asked}': {because}"))
        }
        other => other,
    })?;
    ledger.check_dependency(&found.state)?;
    Ok(found.state.id)
}

/// Whether a task is asked for by the name of the one that is being planned.
fn is_named(asked: &str, queue: &Queue, slug: &Slug) -> bool {
    *asked == *slug.as_str() || asked == format!("{queue}/{slug}")
}

/// A work directory as it is recorded: in full, and without symbolic links where it exists already.
///
/// # Errors
/// `Usage` where no record can hold it.
pub fn absolute(here: &Path, dir: &Path) -> Result<String> {
    let dir = here.join(dir);
    let dir = dir.canonicalize().unwrap_or(dir);
    let text = dir.to_str().ok_or_else(|| Error::Usage(format!("{} is not UTF-8", dir.display())))?;
    Ok(text::checked_value("the work directory", text)?)
}
