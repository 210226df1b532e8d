//! A graph of tasks in the language of Graphviz.
//!
//! Everything that somebody wrote stands in quoted strings, where Graphviz reads three characters as more than themselves:
//! the quote, the backslash, and in labels the ampersand of an HTML entity.

use super::{Kind, Picture, colours, label, named, word};

/// Draws it. Edges go from a dependency to what waits for it, dashed from a parent to its child, dotted from a superseded
/// task to its successor.
pub fn draw(picture: &Picture) -> String {
    let mut lines = vec![
        "// An arrow leads from a dependency to what waits for it; dashed from a parent to its child. Bold is the \
         critical path."
            .to_owned(),
        "digraph pm {".to_owned(),
        "  rankdir=LR;".to_owned(),
        "  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];".to_owned(),
    ];
    lines.extend(picture.cut().map(|cut| format!("  // {cut}")));
    let here = picture.queue();
    for node in &picture.nodes {
        let (fill, border) = colours(node.phase);
        let (class, bold) = if node.is_critical { (" critical", ", penwidth=3") } else { ("", "") };
        let title = format!("{}\n{}", named(&node.place, here), label(&node.title));
        lines.push(format!(
            "  {} [label={}, tooltip={}, class=\"{}{class}\", fillcolor=\"{fill}\", color=\"{border}\"{bold}];",
            id(&node.place.to_string()),
            text(&title),
            text(&format!("{}: {}", word(node.phase), node.title)),
            word(node.phase),
        ));
    }
    for edge in &picture.edges {
        let [from, to] = [edge.from, edge.to].map(|at| id(&picture.nodes[at].place.to_string()));
        let mut attributes = match edge.kind {
            Kind::Dependency => vec![],
            Kind::Parent => vec!["style=dashed", "arrowhead=empty"],
            Kind::Successor => vec!["style=dotted", "label=\"replaced by\""],
        };
        attributes.extend(edge.is_critical.then_some("penwidth=3"));
        let attributes = if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
        lines.push(format!("  {from} -> {to}{attributes};"));
    }
    lines.push("}".to_owned());
    lines.join("\n")
}

/// A name as an identifier.
fn id(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', r"\\").replace('"', "\\\""))
}

/// A text that is shown.
fn text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str(r"\\"),
            '&' => quoted.push_str("&amp;"),
            '\n' => quoted.push_str(r"\n"),
            c if c.is_control() => quoted.push(' '),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
