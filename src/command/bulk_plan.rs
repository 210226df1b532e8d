//! `pm bulk-plan`: many tasks, all or nothing.
//!
//! Long, since an entry has many fields, and every fault of every one is told with its line.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::plan::absolute;
use super::read_text;
use crate::error::{Error, Result};
use crate::id::{Queue, RefName, Slug};
use crate::ledger::Ledger;
use crate::ledger::batch::{LineFault, Named, Planned, repeated_slugs};
use crate::protocol::record::{Label, Priority};
use crate::protocol::state::TaskState;
use crate::protocol::text;
use crate::session::Session;
use crate::verifier::form;

/// Plan many tasks at once, all or nothing
///
/// The input is a JSON array, or one JSON object a line, of {slug, title, text, parent, parent_slug, depends_on,
/// depends_on_slugs, verifier, sticky, workdir, priority, labels}. Slugs resolve inside the batch, in any order, or to tasks
/// that exist. The whole input is checked first. A slug that exists with the same definition is skipped, so a batch can be
/// run again; one with another definition is refused. Prints <id> <slug> created|skipped for each task.
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

/// One task of the input. A field that this build does not know is an error: ignoring it would plan another task
/// than was asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    slug: Option<String>,
    title: Option<String>,
    text: Option<String>,
    parent: Option<String>,
    parent_slug: Option<String>,
    #[serde(default)]
    depends_on: Vec<String>,
    #[serde(default)]
    depends_on_slugs: Vec<String>,
    verifier: Option<String>,
    #[serde(default)]
    sticky: bool,
    workdir: Option<String>,
    priority: Option<u64>,
    #[serde(default)]
    labels: Vec<String>,
}

impl Args {
    /// Plans the batch.
    ///
    /// # Errors
    /// 2 with every fault and its line, 4 with every difference, 11 with a cycle.
    pub fn run(&self, session: &Session) -> Result<()> {
        let queue = session.queue(self.queue.as_ref())?;
        let input = read_text(&self.input, "a plan is UTF-8 JSON, and nothing was planned")?;
        let what = if self.input == "-" { "the plan on standard input" } else { &self.input };
        let mut faults = Vec::new();
        let mut lines = parse(input.trim_start_matches('\u{feff}'), &mut faults);
        if let Some(slug) = &self.finalize_slug {
            self.finalize(&queue, slug, &mut lines)?;
        }
        let places = Places::new(session, &queue, &lines);
        let mut batch = read_batch(places, lines, faults, what)?;
        if self.chain_siblings {
            chain_siblings(&mut batch);
        }
        let mut progress = session.out.progress("planning", batch.len());
        let mut built = |built| progress.set(built);
        let batched = session.writer()?.create_all(&queue, &batch, self.accept_existing, &mut built);
        drop(progress);
        let batched = batched?;
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
    /// Adds the task that depends on all others.
    ///
    /// # Errors
    /// `SlugTaken` where one of the others has its slug.
    fn finalize(&self, queue: &Queue, slug: &Slug, lines: &mut Vec<(usize, Line)>) -> Result<()> {
        let others: Vec<Slug> = lines.iter().filter_map(|(_, entry)| slug_of(entry)).collect();
        if others.contains(slug) {
            let differs = format!("{queue}/{slug}: a task of the batch has the slug of the finalizer");
            return Err(Error::SlugsTaken { differences: vec![differs] });
        }
        let line = lines.last().map_or(1, |(line, _)| line + 1);
        let entry = Line {
            slug: Some(slug.to_string()),
            title: Some(format!("All is done: {slug}")),
            text: self.finalize_text.clone(),
            depends_on_slugs: others.iter().map(Slug::to_string).collect(),
            ..Line::default()
        };
        lines.push((line, entry));
        Ok(())
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

/// Checks the whole input; every fault is listed with its line.
fn read_batch(
    mut places: Places<'_>,
    lines: Vec<(usize, Line)>,
    mut faults: Vec<LineFault>,
    what: &str,
) -> Result<Vec<Planned>> {
    let mut batch = Vec::with_capacity(lines.len());
    let mut wanted = Vec::with_capacity(lines.len());
    for (line, entry) in lines {
        match checked(line, &entry, &places.dir) {
            Ok(planned) => {
                batch.push(planned);
                wanted.push(entry);
            }
            Err(wrong) => faults.extend(wrong),
        }
    }
    faults.extend(repeated_slugs(&batch));
    places.index = batch.iter().enumerate().map(|(i, planned)| (planned.slug.clone(), i)).collect();
    let mut graph_faults = Vec::new();
    for (planned, entry) in batch.iter_mut().zip(&wanted) {
        link(&places, planned, entry, &mut graph_faults)?;
    }
    let input_is_fine = faults.is_empty();
    faults.append(&mut graph_faults);
    if faults.is_empty() {
        return Ok(batch);
    }
    faults.sort_by_key(|fault| fault.line);
    let faults: Vec<_> = faults.iter().map(LineFault::to_string).collect();
    if input_is_fine {
        let faults = faults.join("\n  ");
        return Err(Error::InvalidGraph(format!("{what} cannot be used, nothing was written:\n  {faults}")));
    }
    Err(Error::BadInput { what: what.to_owned(), faults })
}

/// The slug of an entry, given or made from its title.
fn slug_of(entry: &Line) -> Option<Slug> {
    match &entry.slug {
        Some(slug) => slug.parse().ok(),
        None => entry.title.as_deref().map(Slug::from_title),
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
    /// The good entries of the batch.
    index: HashMap<Slug, usize>,
    /// The slugs of all of its entries.
    mentioned: HashSet<Slug>,
}

impl<'a> Places<'a> {
    fn new(session: &'a Session, queue: &'a Queue, lines: &[(usize, Line)]) -> Places<'a> {
        // Also of entries that are wrong otherwise: whoever depends on one is not wrong for that.
        let mentioned = lines.iter().filter_map(|(_, entry)| slug_of(entry)).collect();
        let dir = session.dir.clone();
        Places { ledger: session.ledger(), queue, dir, index: HashMap::new(), mentioned }
    }

    /// The task with a slug; what is wrong with that, in words, is the inner error. `Ok(Ok(None))`: an entry that is wrong
    /// in itself.
    fn by_slug(&self, asked: &str) -> Result<std::result::Result<Option<Known>, String>> {
        let Ok(slug) = asked.parse::<Slug>() else {
            return Ok(Err(format!("'{}', which is no slug", crate::id::shown(asked))));
        };
        if let Some(other) = self.index.get(&slug) {
            return Ok(Ok(Some((Named::Batch(*other), None))));
        }
        Ok(match self.ledger.state(&RefName::of_task(self.queue, &slug))? {
            Some(state) => Ok(Some((Named::Task(state.id), Some(state)))),
            None if self.mentioned.contains(&slug) => Ok(None),
            None => Err(format!("{slug}, which is neither here nor in {}", self.queue)),
        })
    }
}

/// The entries of the input with the lines on which they begin.
fn parse(input: &str, faults: &mut Vec<LineFault>) -> Vec<(usize, Line)> {
    let mut entries = Vec::new();
    let mut push = |line: usize, entry: serde_json::Result<Line>| match entry {
        Ok(entry) => entries.push((line, entry)),
        Err(error) => {
            // serde counts within what it was given, from 1.
            let line = line + error.line().max(1) - 1;
            faults.push(LineFault { line, found: plain(&error) });
        }
    };
    if input.trim_start().starts_with('[') {
        match serde_json::from_str::<Vec<&serde_json::value::RawValue>>(input) {
            Ok(raw) => {
                let (mut line, mut counted) = (1, 0);
                for value in raw {
                    let offset = value.get().as_ptr() as usize - input.as_ptr() as usize;
                    line += input[counted..offset].bytes().filter(|b| *b == b'\n').count();
                    counted = offset;
                    push(line, serde_json::from_str(value.get()));
                }
            }
            Err(error) => push(1, Err(error)),
        }
    } else {
        for (number, line) in input.lines().enumerate() {
            if !line.trim().is_empty() {
                push(number + 1, serde_json::from_str(line));
            }
        }
    }
    if entries.is_empty() && faults.is_empty() {
        faults.push(LineFault { line: 1, found: "there is no task in it".to_owned() });
    }
    entries
}

/// serde's message without its own position, which counts within one entry.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match error.classify() {
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof => {
            format!("it is no JSON object ({})", text.split(" at line ").next().unwrap_or(&text))
        }
        _ => text.split(" at line ").next().unwrap_or(&text).to_owned(),
    }
}

/// Checks one entry by itself.
fn checked(line: usize, entry: &Line, dir: &Path) -> std::result::Result<Planned, Vec<LineFault>> {
    let mut faults = Vec::new();
    let mut fault = |found: String| faults.push(LineFault { line, found });
    let title = match entry.title.as_deref().map(text::checked_title) {
        Some(Ok(title)) => Some(title),
        Some(Err(error)) => {
            fault(error.to_string());
            None
        }
        None => {
            fault("it has no title".to_owned());
            None
        }
    };
    let slug = match (&entry.slug, &title) {
        (Some(slug), _) => slug.parse().map_err(|error: crate::id::NameError| fault(error.to_string())).ok(),
        (None, title) => title.as_deref().map(Slug::from_title),
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
    let workdir =
        entry.workdir.as_ref().map(|given| absolute(dir, Path::new(given))).transpose().unwrap_or_else(|error| {
            fault(error.to_string());
            None
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
    match (slug, title) {
        (Some(slug), Some(title)) if faults.is_empty() => Ok(Planned {
            line,
            slug,
            title,
            body,
            priority,
            labels,
            verifier,
            sticky: entry.sticky,
            workdir,
            parent: None,
            depends_on: Vec::new(),
        }),
        _ => Err(faults),
    }
}

/// Resolves what one entry names: inside the batch first, else to tasks that exist.
fn link(places: &Places<'_>, planned: &mut Planned, entry: &Line, faults: &mut Vec<LineFault>) -> Result<()> {
    let line = planned.line;
    let mut fault = |found: String| faults.push(LineFault { line, found });
    planned.parent = parent(places, planned, entry, &mut fault)?;
    let ledger = &places.ledger;
    let mut depends_on = Vec::new();
    for asked in &entry.depends_on_slugs {
        if *asked == planned.slug.as_str() {
            fault(format!("{asked} depends on itself"));
            continue;
        }
        match places.by_slug(asked)? {
            Ok(Some((named, state))) => match state.map_or(Ok(()), |state| ledger.check_dependency(&state)) {
                Ok(()) => depends_on.push(named),
                Err(error) => fault(error.to_string()),
            },
            Ok(None) => {}
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

/// The parent of one entry. Whether a task that exists can be one is asked where the entry is planned, unless it was before.
fn parent(
    places: &Places<'_>,
    planned: &Planned,
    entry: &Line,
    fault: &mut impl FnMut(String),
) -> Result<Option<Named>> {
    let is_itself =
        |asked: &str| *asked == *planned.slug.as_str() || asked == format!("{}/{}", places.queue, planned.slug);
    let named = match (&entry.parent_slug, &entry.parent) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => Err("it has both parent and parent_slug".to_owned()),
        (Some(asked), None) | (None, Some(asked)) if is_itself(asked) => Err(format!("{asked} is its own parent")),
        (Some(asked), None) => match places.by_slug(asked)? {
            Ok(None) => return Ok(None),
            Ok(Some(named)) => Ok(named),
            Err(found) => Err(format!("its parent is {found}")),
        },
        (None, Some(asked)) => {
            let found = usable(places.ledger.find(asked, places.queue))?;
            found.map(|found| (Named::Task(found.state.id), Some(found.state)))
        }
    };
    match named {
        Ok((named, Some(state))) => {
            let name = RefName::of_task(places.queue, &planned.slug);
            let is_there = places.ledger.state(&name)?.is_some();
            match places.ledger.check_parent(places.queue, &planned.slug, &state, is_there) {
                Err(error @ Error::InvalidGraph(_)) => fault(error.to_string()),
                checked => checked?,
            }
            Ok(Some(named))
        }
        Ok((named, None)) => Ok(Some(named)),
        Err(found) => {
            fault(found);
            Ok(None)
        }
    }
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
