//! Graphs of tasks as text: for people ([`tree`]), for Graphviz ([`dot`]) and for Mermaid ([`mermaid`]); and which tasks of
//! a ledger are drawn ([`choice`]).
//!
//! Pure: everything was read before. What must never happen here: what somebody wrote into a title becomes a part of the
//! drawing's language, or a task is drawn twice.

pub mod choice;
pub mod dot;
pub mod mermaid;
pub mod tree;

use crate::error::Place;
use crate::id::Queue;
use crate::protocol::record::Phase;
use crate::protocol::refusal::Wait;

/// A graph of tasks, ready to be drawn.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// The tasks, in the order in which they are drawn.
    pub nodes: Vec<Node>,
    /// What joins them.
    pub edges: Vec<Edge>,
    /// The critical path, also where some of it was cut off.
    pub critical_path: Vec<Place>,
    /// How many tasks there are in all.
    pub total: usize,
}

/// A task in a picture.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its place in the ledger.
    pub place: Place,
    /// Its title.
    pub title: String,
    /// How it stands.
    pub phase: Option<Phase>,
    /// What is to be said of it besides: who holds it, for example.
    pub notes: Vec<String>,
    /// Its parent, if that is in the picture.
    pub parent: Option<usize>,
    /// What it waits for.
    pub waits_for: Vec<Wait>,
    /// The dependencies that it does not wait for, and how they stand.
    pub after: Vec<(Place, Option<Phase>)>,
    /// The tasks that depend on it.
    pub before: Vec<Place>,
    /// Whether it is on the critical path.
    pub is_critical: bool,
}

/// What one task of a picture is to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// The dependency, the parent, the task that was superseded.
    pub from: usize,
    /// The dependent, the child, the successor.
    pub to: usize,
    /// Which of these.
    pub kind: Kind,
    /// Whether the critical path goes along it.
    pub is_critical: bool,
}

/// A kind of edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// From a dependency to the task that waits for it.
    Dependency,
    /// From a parent to its child.
    Parent,
    /// From a task to the one that took its place.
    Successor,
}

impl Kind {
    /// Its name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Dependency => "dependency",
            Kind::Parent => "parent",
            Kind::Successor => "successor",
        }
    }
}

impl Picture {
    /// What was left out, if anything was.
    pub fn cut(&self) -> Option<String> {
        (self.nodes.len() < self.total).then(|| {
            format!("{} of {} tasks shown, open ones first; --limit N shows more", self.nodes.len(), self.total)
        })
    }

    /// The queue of all tasks, if they have one.
    fn queue(&self) -> Option<&Queue> {
        let first = &self.nodes.first()?.place.queue;
        self.nodes.iter().all(|node| node.place.queue == *first).then_some(first)
    }
}

/// The name of a task where `here` goes without saying.
fn named(place: &Place, here: Option<&Queue>) -> String {
    if here == Some(&place.queue) { place.slug.to_string() } else { place.to_string() }
}

/// A title as a label: its beginning, with nothing that would break a line.
fn label(title: &str) -> String {
    /// How many characters are shown.
    const SHOWN: usize = 60;
    let title: String = title.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match title.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", title[..end].trim_end()),
        None => title,
    }
}

/// How a phase is called where a word is needed.
fn word(phase: Option<Phase>) -> &'static str {
    phase.map_or("unknown", Phase::as_str)
}

/// The colours of a phase: background and border.
fn colours(phase: Option<Phase>) -> (&'static str, &'static str) {
    match phase {
        Some(Phase::New) => ("#e3f2fd", "#1565c0"),
        Some(Phase::Working) => ("#fff3cd", "#b26a00"),
        Some(Phase::Done) => ("#d9f2dc", "#2e7d32"),
        Some(Phase::Rejected) | None => ("#fadbd8", "#b71c1c"),
        Some(Phase::Superseded) => ("#eeeeee", "#757575"),
    }
}

#[cfg(test)]
mod tests;
