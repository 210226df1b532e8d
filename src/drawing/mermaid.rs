//! A graph of tasks in the language of Mermaid.
//!
//! What somebody wrote stands in quoted labels, and there Mermaid would still see quotes, entities, HTML and Markdown. So
//! every sign of punctuation but a few is written as an entity of its own, `#NN;`.

use super::{Kind, Picture, colours, label, named, word};
use crate::protocol::record::Phase;

/// How many edges Mermaid draws unless it is told otherwise (its setting `maxEdges`).
pub const EDGES_MAX: usize = 500;

/// Draws it. Edges go from a dependency to what waits for it, dotted from a parent to its child and from a superseded task
/// to its successor. Tasks are called t0, t1, … in the order of the picture.
pub fn draw(picture: &Picture) -> String {
    let mut lines = vec!["flowchart LR".to_owned()];
    lines.extend(picture.cut().map(|cut| format!("  %% {cut}")));
    let here = picture.queue();
    for (at, node) in picture.nodes.iter().enumerate() {
        let name = escaped(&named(&node.place, here));
        lines.push(format!("  t{at}[\"{name}: {}\"]:::{}", escaped(&label(&node.title)), word(node.phase)));
    }
    for edge in &picture.edges {
        let arrow = match edge.kind {
            Kind::Dependency => "-->",
            Kind::Parent => "-.->",
            Kind::Successor => "-. replaced by .->",
        };
        lines.push(format!("  t{} {arrow} t{}", edge.from, edge.to));
    }
    for phase in Phase::ALL.into_iter().map(Some).chain([None]) {
        if picture.nodes.iter().any(|node| node.phase == phase) {
            let (fill, border) = colours(phase);
            lines.push(format!("  classDef {} fill:{fill},stroke:{border},color:#000000", word(phase)));
        }
    }
    let listed = |all: Vec<String>| (!all.is_empty()).then(|| all.join(","));
    let is_critical = |at: &usize| picture.nodes[*at].is_critical;
    let critical = (0..picture.nodes.len()).filter(is_critical).map(|at| format!("t{at}")).collect();
    if let Some(critical) = listed(critical) {
        lines.push("  classDef critical stroke-width:4px".to_owned());
        lines.push(format!("  class {critical} critical"));
    }
    let is_critical = |at: &usize| picture.edges[*at].is_critical;
    if let Some(critical) = listed((0..picture.edges.len()).filter(is_critical).map(|at| at.to_string()).collect()) {
        lines.push(format!("  linkStyle {critical} stroke-width:4px"));
    }
    lines.join("\n")
}

/// A text that means nothing to Mermaid.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for (at, c) in text.char_indices() {
        // The word ends a block in some versions, also inside of a label.
        let is_end = text[at..].starts_with("end") && !text[..at].ends_with(char::is_alphanumeric);
        if is_end || (c.is_ascii_punctuation() && !"-.,/+".contains(c)) {
            escaped.push_str(&format!("#{};", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    escaped
}
