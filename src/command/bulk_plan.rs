//! `pm bulk-plan`: many tasks, all or nothing.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::plan::absolute;
use super::read_bytes;
use crate::error::{Error, Fault, FaultKind, PlanError, Result, Spot};
use crate::id::{Queue, RefName, Slug};
use crate::ledger::Ledger;
use crate::ledger::batch::{Named, Planned};
use crate::plan_input::{self, Entry};
use crate::protocol::record::{Label, Priority};
use crate::protocol::state::TaskState;
use crate::protocol::text;
use crate::session::Session;
use crate::verifier::form;

/// Plan many tasks at once, all or nothing
///
/// The input is a JSON array, or one JSON object a line, of {slug, title, text, parent, parent_slug, depends_on,
/// depends_on_slugs, verifier, sticky, workdir, priority, labels}. Slugs resolve inside the batch, in any order, or to tasks
/// that exist. A relative workdir counts from the directory that pm runs in. A child takes over from its parent whether it
/// is sticky, also where it says false itself, and the workdir, unless it has one. The whole input is checked first. A slug
/// that exists with the same definition is skipped, so a batch can be run again; one with another definition is refused.
/// Prints <id> <slug> created|skipped for each task.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The plan, or - for standard input
    #[arg(long, value_name = "FILE")]
    input: String,
    /// The queue of all tasks; else pm.queue, else default
    #[arg(long, value_name = "QUEUE")]
    queue: Option<Queue>,
    /// Take slugs that exist as they are, whatever their definition
    #[arg(long)]
    accept_existing: bool,
    /// Let each task with a parent depend on the one before it that has the same parent
    #[arg(long)]
    chain_siblings: bool,
    /// Add a task with this slug that depends on all others of the batch
    #[arg(long, value_name = "SLUG")]
    finalize_slug: Option<Slug>,
    /// The text of that task
    #[arg(long, value_name = "TEXT", requires = "finalize_slug")]
    finalize_text: Option<String>,
}

impl Args {
    /// Plans the batch.
    ///
    /// # Errors
    /// With every fault and its line: 2 for what is wrong in itself, else 4 for slugs that are taken, else 5 for a parent
    /// without a status, else 11 for what a task names.
    pub fn run(&self, session: &Session) -> Result<()> {
        let queue = session.queue(self.queue.as_ref())?;
        let input = read_bytes(&self.input)?;
        let what = if self.input == "-" { "the plan on standard input" } else { &self.input };
        let (mut entries, mut faults) = plan_input::read(&input);
        if let Some(slug) = &self.finalize_slug {
            self.finalize(slug, &mut entries, &mut faults);
        }
        let places =
            Places { ledger: session.ledger(), queue: &queue, dir: session.dir.clone(), index: HashMap::new() };
        let batch = self.read_batch(places, entries, faults, what)?;
        let mut progress = session.out.progress("planning", batch.len());
        let mut built = |built| progress.set(built);
        let batched = session.writer()?.create_all(&queue, &batch, self.accept_existing, &mut built);
        drop(progress);
        let batched = batched.map_err(|error| match error {
            Error::Plan(PlanError { faults, .. }) => PlanError::new(what, faults).into(),
            error => error,
        })?;
        for name in &batched.shadowed {
            session.out.warning(&format!(
                "{name} was created by plain git at the same moment with another value, which hides the planned task; `pm verify` shows it"
            ));
        }
        let verb = |created| if created { "created" } else { "skipped" };
        let rows = batch.iter().zip(&batched.placed);
        session.out.result(
            || {
                let row = |(planned, placed): (&Planned, &crate::ledger::batch::Placed)| -> Value {
                    json!({"task": placed.task, "slug": planned.slug, "outcome": verb(placed.created)})
                };
                let created = batched.placed.iter().filter(|placed| placed.created).count();
                json!({
                    "queue": queue,
                    "tasks": rows.clone().map(row).collect::<Vec<_>>(),
                    "created": created,
                    "skipped": batched.placed.len() - created,
                })
            },
            || {
                let row = |(planned, placed): (&Planned, &crate::ledger::batch::Placed)| {
                    format!("{}\t{}\t{}", placed.task, planned.slug, verb(placed.created))
                };
                rows.clone().map(row).collect::<Vec<_>>().join("\n")
            },
        );
        Ok(())
    }
}

impl Args {
    /// Adds the task that depends on all others, unless one of them has its slug.
    fn finalize(&self, slug: &Slug, entries: &mut Vec<(Spot, Entry)>, faults: &mut Vec<Fault>) {
        let others: Vec<Slug> = entries.iter().filter_map(|(_, entry)| entry.named()).collect();
        if let Some((spot, _)) = entries.iter().find(|(_, entry)| entry.named().as_ref() == Some(slug)) {
            let found =
                format!("it has the slug {slug}, which --finalize-slug gives to another task: choose another there");
            faults.push(Fault { spot: spot.clone(), kind: FaultKind::FinalizerTaken, found });
            return;
        }
        let entry = Entry {
            slug: Some(slug.to_string()),
            title: Some(format!("All is done: {slug}")),
            text: self.finalize_text.clone(),
            depends_on_slugs: others.iter().map(Slug::to_string).collect(),
            ..Entry::default()
        };
        entries.push((Spot::Finalizer, entry));
    }

    /// Checks the whole input, and what it makes of the ledger.
    ///
    /// # Errors
    /// `Plan` with every fault of the input, and those of the graph and the slugs as far as they can be known beside it.
    fn read_batch(
        &self,
        mut places: Places<'_>,
        entries: Vec<(Spot, Entry)>,
        mut faults: Vec<Fault>,
        what: &str,
    ) -> Result<Vec<Planned>> {
        let mut batch = Vec::with_capacity(entries.len());
        let mut wanted = Vec::with_capacity(entries.len());
        for (spot, entry) in entries {
            // What names a task that is wrong in itself is not wrong for that, and can be checked.
            if let Some(planned) = checked(spot, &entry, &places.dir, &mut faults) {
                batch.push(planned);
                wanted.push(entry);
            }
        }
        places.index = batch.iter().enumerate().map(|(i, planned)| (planned.slug.clone(), i)).collect();
        for (planned, entry) in batch.iter_mut().zip(&wanted) {
            link(&places, planned, entry, &mut faults)?;
        }
        if self.chain_siblings {
            chain_siblings(&mut batch);
        }
        if faults.is_empty() {
            return Ok(batch);
        }
        // Whether these are other tasks than those that exist cannot be told.
        let vague: HashSet<Spot> = faults.iter().map(|fault| fault.spot.clone()).collect();
        let others = places.ledger.faults(places.queue, &batch, self.accept_existing)?;
        faults
            .extend(others.into_iter().filter(|fault| fault.kind != FaultKind::Taken || !vague.contains(&fault.spot)));
        Err(PlanError::new(what, faults).into())
    }
}

/// Lets each task with a parent depend on the one before it with the same parent.
fn chain_siblings(batch: &mut [Planned]) {
    let mut last: HashMap<Named, usize> = HashMap::new();
    for (at, planned) in batch.iter_mut().enumerate() {
        let before = planned.parent.and_then(|parent| last.insert(parent, at)).map(Named::Batch);
        if let Some(before) = before.filter(|before| !planned.depends_on.contains(before)) {
            planned.depends_on.push(before);
        }
    }
}

/// A task that an entry names; with its state, if it exists already.
type Known = (Named, Option<TaskState>);

/// Where what an entry names is looked up.
struct Places<'a> {
    ledger: Ledger<'a>,
    queue: &'a Queue,
    /// What relative work directories count from.
    dir: PathBuf,
    /// The batch by slug.
    index: HashMap<Slug, usize>,
}

impl Places<'_> {
    /// The task with a slug; what is wrong with that, in words, is the inner error.
    fn by_slug(&self, asked: &str) -> Result<std::result::Result<Known, String>> {
        let Ok(slug) = asked.parse::<Slug>() else {
            return Ok(Err(format!("'{}', which is no slug", crate::id::shown(asked))));
        };
        if let Some(other) = self.index.get(&slug) {
            return Ok(Ok((Named::Batch(*other), None)));
        }
        Ok(match self.ledger.state(&RefName::of_task(self.queue, &slug))? {
            Some(state) => Ok((Named::Task(state.id), Some(state))),
            None => Err(format!("{slug}, which is neither here nor in {}", self.queue)),
        })
    }
}

/// Checks one entry by itself; one with faults is a task nevertheless, if only it has a slug.
fn checked(spot: Spot, entry: &Entry, dir: &Path, faults: &mut Vec<Fault>) -> Option<Planned> {
    let mut fault = |found: String| faults.push(Fault { spot: spot.clone(), kind: FaultKind::Input, found });
    let title = match entry.title.as_deref().map(text::checked_title) {
        Some(Ok(title)) => Some(title),
        Some(Err(error)) => {
            fault(error.to_string());
            None
        }
        None if entry.unread.contains(&"title") => None,
        None => {
            fault("it has no title".to_owned());
            None
        }
    };
    let slug = match (&entry.slug, &title) {
        (Some(slug), _) => slug.parse().map_err(|error: crate::id::NameError| fault(error.to_string())).ok(),
        (None, _) => entry.named(),
    };
    let body = entry.text.as_deref().map_or(Ok(None), text::checked_body).unwrap_or_else(|error| {
        fault(error.to_string());
        None
    });
    let priority = entry.priority.map_or(Ok(Priority::default()), Priority::try_from).unwrap_or_else(|error| {
        fault(format!("its priority is {error}"));
        Priority::default()
    });
    let verifier = entry.verifier.as_deref().map(form::checked).transpose().unwrap_or_else(|error| {
        fault(error.to_string());
        None
    });
    let workdir = entry.workdir.as_deref().and_then(|given| match given {
        // As for `pm plan`: it would be the directory that pm happens to run in.
        "" => {
            fault("its workdir is empty".to_owned());
            None
        }
        given => absolute(dir, Path::new(given)).map_err(|error| fault(error.to_string())).ok(),
    });
    let mut labels: Vec<Label> = Vec::new();
    for label in &entry.labels {
        match label.parse() {
            Ok(label) => labels.push(label),
            Err(error) => fault(format!("'{}' is {error}", crate::id::shown(label))),
        }
    }
    labels.sort();
    labels.dedup();
    Some(Planned {
        spot,
        slug: slug?,
        title: title.unwrap_or_default(),
        body,
        priority,
        labels,
        verifier,
        sticky: entry.sticky,
        workdir,
        parent: None,
        depends_on: Vec::new(),
    })
}

/// Resolves what one entry names: inside the batch first, else to tasks that exist.
fn link(places: &Places<'_>, planned: &mut Planned, entry: &Entry, faults: &mut Vec<Fault>) -> Result<()> {
    let spot = planned.spot.clone();
    let mut fault = |found: String| faults.push(Fault { spot: spot.clone(), kind: FaultKind::Graph, found });
    planned.parent = parent(places, planned, entry)?.unwrap_or_else(|found| {
        fault(found);
        None
    });
    let ledger = &places.ledger;
    let mut depends_on = Vec::new();
    for asked in &entry.depends_on_slugs {
        if *asked == planned.slug.as_str() {
            fault(format!("{asked} depends on itself"));
            continue;
        }
        match places.by_slug(asked)? {
            Ok((named, state)) => match state.map_or(Ok(()), |state| ledger.check_dependency(&state)) {
                Ok(()) => depends_on.push(named),
                Err(error) => fault(error.to_string()),
            },
            Err(found) => fault(format!("depends on {found}")),
        }
    }
    for asked in &entry.depends_on {
        let found = ledger.find(asked, places.queue);
        match usable(found.and_then(|found| ledger.check_dependency(&found.state).map(|()| found)))? {
            Ok(found) => depends_on.push(Named::Task(found.state.id)),
            Err(found) => fault(found),
        }
    }
    let mut seen = Vec::with_capacity(depends_on.len());
    for dependency in depends_on {
        if !seen.contains(&dependency) {
            seen.push(dependency);
        }
    }
    planned.depends_on = seen;
    Ok(())
}

/// The parent of one entry; what is wrong with it, in words, is the inner error. Whether a task that exists can be one is
/// asked where the whole batch is studied.
fn parent(places: &Places<'_>, planned: &Planned, entry: &Entry) -> Result<std::result::Result<Option<Named>, String>> {
    let is_itself =
        |asked: &str| *asked == *planned.slug.as_str() || asked == format!("{}/{}", places.queue, planned.slug);
    Ok(match (&entry.parent_slug, &entry.parent) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err("it has both parent and parent_slug".to_owned()),
        (Some(asked), None) | (None, Some(asked)) if is_itself(asked) => Err(format!("{asked} is its own parent")),
        (Some(asked), None) => {
            places.by_slug(asked)?.map(|(named, _)| Some(named)).map_err(|found| format!("its parent is {found}"))
        }
        (None, Some(asked)) => {
            usable(places.ledger.find(asked, places.queue))?.map(|found| Some(Named::Task(found.state.id)))
        }
    })
}

/// What is wrong with the plan is a fault of its line; what is wrong with the system is not.
fn usable<T>(found: Result<T>) -> Result<std::result::Result<T, String>> {
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(error @ (Error::UnknownTask { .. } | Error::InvalidGraph(_) | Error::Usage(_))) => {
            Ok(Err(error.to_string()))
        }
        Err(error) => Err(error),
    }
}
