//! What is wrong with a plan of many tasks: every fault, with its place in the input (commands.md, `bulk-plan`).

use serde_json::{Map, Value, json};

use crate::exit_code::ExitCode;
use crate::id::Slug;

/// Why a plan was not planned. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[error("{what} cannot be used, nothing was written:\n  {}{}", texts(faults).join("\n  "), hint(faults))]
pub struct PlanError {
    /// The input, for messages.
    pub what: String,
    /// All that is wrong, in the order of the input.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Where.
    pub spot: Spot,
    /// Of what kind it is.
    pub kind: FaultKind,
    /// What is wrong, in words.
    pub found: String,
}

/// Where a task of a plan comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Spot {
    /// A line of the input, counted from 1.
    Line(usize),
    /// A task of an array.
    Task {
        /// The how manieth it is, counted from 1.
        number: usize,
        /// The line on which it begins.
        line: usize,
        /// Its slug, where that is known: people find it by that.
        slug: Option<Slug>,
    },
    /// `--finalize-slug`.
    Finalizer,
}

/// The kinds of faults, in the order in which the first one that there is gives the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// The input is wrong in itself.
    Input,
    /// A task with that slug exists, and is another one.
    Taken,
    /// A task of the plan has the slug that is to be the finalizer's.
    FinalizerTaken,
    /// The chain of a parent is not whole.
    ParentWithoutStatus,
    /// What a task names is missing or closed, or waits for the task itself.
    Graph,
}

impl FaultKind {
    fn exit_code(self) -> ExitCode {
        match self {
            FaultKind::Input => ExitCode::Usage,
            FaultKind::Taken | FaultKind::FinalizerTaken => ExitCode::SlugTaken,
            FaultKind::ParentWithoutStatus => ExitCode::ParentWithoutStatus,
            FaultKind::Graph => ExitCode::InvalidGraph,
        }
    }
}

impl PlanError {
    /// The error of a plan with faults: at least one, in any order.
    pub fn new(what: impl Into<String>, mut faults: Vec<Fault>) -> PlanError {
        faults.sort_by(|one, other| one.spot.cmp(&other.spot));
        PlanError { what: what.into(), faults }
    }

    /// How the process ends: of several kinds of faults, as the first one says.
    pub fn exit_code(&self) -> ExitCode {
        self.faults.iter().map(|fault| fault.kind).min().map_or(ExitCode::Usage, FaultKind::exit_code)
    }

    /// What it tells programs.
    pub(super) fn facts(&self, map: &mut Map<String, Value>) {
        map.insert("faults".to_owned(), json!(texts(&self.faults)));
        let taken = |fault: &&Fault| fault.kind == FaultKind::Taken;
        let differences: Vec<_> = self.faults.iter().filter(taken).map(|fault| &fault.found).collect();
        if !differences.is_empty() {
            map.insert("differences".to_owned(), json!(differences));
        }
    }
}

impl Spot {
    /// Where it is, in as few words as tell it from all others.
    pub fn short(&self) -> String {
        match self {
            Spot::Line(line) => format!("line {line}"),
            Spot::Task { number, .. } => format!("task {number}"),
            Spot::Finalizer => "--finalize-slug".to_owned(),
        }
    }
}

impl std::fmt::Display for Spot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Spot::Task { number, line, slug: Some(slug) } => {
                write!(f, "task {number} of the array, slug {slug} (line {line})")
            }
            Spot::Task { number, line, slug: None } => write!(f, "task {number} of the array (line {line})"),
            Spot::Line(_) | Spot::Finalizer => f.write_str(&self.short()),
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.spot, self.found)
    }
}

/// One text a fault, with its place.
fn texts(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(Fault::to_string).collect()
}

/// What can be done about slugs that are taken, besides choosing others.
fn hint(faults: &[Fault]) -> &'static str {
    match faults.iter().any(|fault| fault.kind == FaultKind::Taken) {
        true => {
            "\na task that is to be another one needs another slug; --accept-existing takes those that exist as they are"
        }
        false => "",
    }
}
