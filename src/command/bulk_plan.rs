//! `pm bulk-plan`: many tasks, all or nothing.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Value, json};

use super::read_text;
use crate::error::{Error, Result};
use crate::id::{Queue, RefName, Slug};
use crate::ledger::Ledger;
use crate::ledger::batch::{LineFault, Named, Planned, repeated_slugs};
use crate::protocol::record::{Label, Priority};
use crate::protocol::text;
use crate::session::Session;

/// Plan many tasks at once, all or nothing
///
/// The input is a JSON array, or one JSON object a line, of {slug, title, text, depends_on, depends_on_slugs,
/// priority, labels}. Slugs resolve inside the batch, in any order, or to tasks that exist. The whole input is
/// checked first. A slug that exists with the same definition is skipped, so a batch can be run again; one with
/// another definition is refused. Prints <id> <slug> created|skipped for each task.
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
}

/// One task of the input. A field that this build does not know is an error: ignoring it would plan another task
/// than was asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    slug: Option<String>,
    title: Option<String>,
    text: Option<String>,
    #[serde(default)]
    depends_on: Vec<String>,
    #[serde(default)]
    depends_on_slugs: Vec<String>,
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
        let input = read_text(&self.input)?;
        let what = if self.input == "-" { "the plan on standard input" } else { &self.input };
        let batch = read_batch(&session.ledger(), &queue, &input, what)?;
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

/// Reads and checks the whole input; every fault is listed with its line.
fn read_batch(ledger: &Ledger<'_>, queue: &Queue, input: &str, what: &str) -> Result<Vec<Planned>> {
    let mut faults = Vec::new();
    let lines = parse(input.trim_start_matches('\u{feff}'), &mut faults);
    // Also of entries that are wrong otherwise: whoever depends on one is not wrong for that.
    let mentioned: HashSet<Slug> = lines.iter().filter_map(|(_, entry)| slug_of(entry)).collect();
    let mut batch = Vec::with_capacity(lines.len());
    let mut wanted = Vec::with_capacity(lines.len());
    for (line, entry) in lines {
        match checked(line, &entry) {
            Ok(planned) => {
                batch.push(planned);
                wanted.push(entry);
            }
            Err(wrong) => faults.extend(wrong),
        }
    }
    faults.extend(repeated_slugs(&batch));
    let index: HashMap<Slug, usize> = batch.iter().enumerate().map(|(i, planned)| (planned.slug.clone(), i)).collect();
    let mut graph_faults = Vec::new();
    let places = Places { ledger, queue, index: &index, mentioned: &mentioned };
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

/// Where the dependencies of an entry are looked up.
struct Places<'a> {
    ledger: &'a Ledger<'a>,
    queue: &'a Queue,
    /// The good entries of the batch.
    index: &'a HashMap<Slug, usize>,
    /// The slugs of all of its entries.
    mentioned: &'a HashSet<Slug>,
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
fn checked(line: usize, entry: &Line) -> std::result::Result<Planned, Vec<LineFault>> {
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
            verifier: None,
            sticky: false,
            workdir: None,
            parent: None,
            depends_on: Vec::new(),
        }),
        _ => Err(faults),
    }
}

/// Resolves the dependencies of one entry: inside the batch first, else to tasks that exist.
fn link(places: &Places<'_>, planned: &mut Planned, entry: &Line, faults: &mut Vec<LineFault>) -> Result<()> {
    let Places { ledger, queue, index, mentioned } = places;
    let line = planned.line;
    let mut fault = |found: String| faults.push(LineFault { line, found });
    let mut depends_on = Vec::new();
    for asked in &entry.depends_on_slugs {
        let Ok(slug) = asked.parse::<Slug>() else {
            fault(format!("depends on '{}', which is no slug", crate::id::shown(asked)));
            continue;
        };
        if slug == planned.slug {
            fault(format!("{slug} depends on itself"));
            continue;
        }
        match index.get(&slug) {
            Some(other) => depends_on.push(Named::Batch(*other)),
            None => match ledger.state(&RefName::of_task(queue, &slug))? {
                Some(state) => match ledger.check_dependency(&state) {
                    Ok(()) => depends_on.push(Named::Task(state.id)),
                    Err(error) => fault(error.to_string()),
                },
                None if mentioned.contains(&slug) => {}
                None => fault(format!("depends on {slug}, which is neither here nor in {queue}")),
            },
        }
    }
    for asked in &entry.depends_on {
        match ledger.find(asked, queue).and_then(|found| ledger.check_dependency(&found.state).map(|()| found)) {
            Ok(found) => depends_on.push(Named::Task(found.state.id)),
            Err(error @ (Error::UnknownTask { .. } | Error::InvalidGraph(_) | Error::Usage(_))) => {
                fault(error.to_string());
            }
            Err(error) => return Err(error),
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
