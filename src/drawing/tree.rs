//! A graph of tasks for people: children below their parents, and under each task what comes before and after it.
//!
//! Each task has one place, and is named everywhere else.

use std::collections::BTreeMap;

use super::{Node, Picture, named};
use crate::id::Queue;
use crate::output::few;
use crate::protocol::record::Phase;

/// How many tasks are named after one another, before the rest is only counted.
const NAMED: usize = 5;

/// How many tasks of the critical path are named.
const PATH_NAMED: usize = 12;

/// Draws it. `phase` is how a phase is written, in one width.
pub fn draw(picture: &Picture, phase: &dyn Fn(Option<Phase>) -> String) -> String {
    let mut queues: BTreeMap<&Queue, Vec<usize>> = BTreeMap::new();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); picture.nodes.len()];
    for (at, node) in picture.nodes.iter().enumerate() {
        match node.parent {
            Some(parent) => children[parent].push(at),
            None => queues.entry(&node.place.queue).or_default().push(at),
        }
    }
    let mut tree = Tree { picture, phase, children, is_drawn: vec![false; picture.nodes.len()], lines: Vec::new() };
    for (queue, roots) in queues {
        tree.lines.push(queue.to_string());
        tree.branches(&roots);
    }
    // Parents in a circle, made by hand, hang below nobody.
    let left: Vec<usize> = (0..picture.nodes.len()).filter(|at| !tree.is_drawn[*at]).collect();
    if !left.is_empty() {
        tree.lines.push("parents of each other".to_owned());
        tree.branches(&left);
    }
    tree.lines.extend(critical_path(picture));
    tree.lines.extend(picture.cut().map(|cut| format!("... {cut}")));
    tree.lines.join("\n")
}

struct Tree<'a> {
    picture: &'a Picture,
    phase: &'a dyn Fn(Option<Phase>) -> String,
    children: Vec<Vec<usize>>,
    is_drawn: Vec<bool>,
    lines: Vec<String>,
}

impl Tree<'_> {
    /// Draws tasks beside each other, and all that is below them. Without recursion: nobody bounds how deep a plan is.
    fn branches(&mut self, roots: &[usize]) {
        let below = |guide: &str, nodes: &[usize]| -> Vec<(String, usize, bool)> {
            let last = nodes.last().copied();
            nodes.iter().rev().map(|at| (guide.to_owned(), *at, Some(*at) == last)).collect()
        };
        let mut open = below("", roots);
        while let Some((guide, at, is_last)) = open.pop() {
            if std::mem::replace(&mut self.is_drawn[at], true) {
                continue;
            }
            let (branch, bar) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let node = &self.picture.nodes[at];
            let mark = if node.is_critical { "* " } else { "" };
            let phase = (self.phase)(node.phase);
            let notes = if node.notes.is_empty() { String::new() } else { format!("  [{}]", node.notes.join("; ")) };
            self.lines.push(format!("{guide}{branch}{phase} {mark}{}  {}{notes}", node.place.slug, node.title));
            let guide = format!("{guide}{bar}");
            let near = near(node);
            if !near.is_empty() {
                let down = if self.children[at].is_empty() { "   " } else { "│  " };
                self.lines.push(format!("{guide}{down}        {}", near.join("; ")));
            }
            open.extend(below(&guide, &self.children[at]));
        }
    }
}

/// What comes before a task, and what after it.
fn near(node: &Node) -> Vec<String> {
    let here = Some(&node.place.queue);
    let after = |(place, phase): &(_, Option<Phase>)| match phase {
        Some(Phase::Done) => named(place, here),
        phase => format!("{} ({})", named(place, here), super::word(*phase)),
    };
    let said = [
        ("waits for", node.waits_for.iter().map(|wait| wait.told(here)).collect::<Vec<_>>()),
        ("after", node.after.iter().map(after).collect()),
        ("before", node.before.iter().map(|place| named(place, here)).collect()),
    ];
    said.into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(what, names)| format!("{what} {}", few(&names, NAMED)))
        .collect()
}

/// The line that tells the critical path; the middle of a long one is only counted.
fn critical_path(picture: &Picture) -> Option<String> {
    let (path, here) = (&picture.critical_path, picture.queue());
    let mut names: Vec<String> = path.iter().map(|place| named(place, here)).collect();
    if names.len() > PATH_NAMED + 1 {
        let half = PATH_NAMED / 2;
        let more = names.len() - PATH_NAMED;
        names.splice(half..names.len() - half, [format!("... {more} more ...")]);
    }
    let count = crate::output::counted(path.len(), "task");
    (!path.is_empty()).then(|| format!("* critical path: {count}: {}", names.join(" -> ")))
}
