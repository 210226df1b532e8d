//! Pictures that hold whatever a title may hold, and what becomes of them in each language.

use super::*;
use crate::id::{Oid, RecordId, TaskId};
use crate::protocol::refusal::{Role, Unmet};

const HOSTILE: &[&str] = &[
    "say \"hi\" \\",
    "a --> b -.-> c; end",
    "end",
    "subgraph x [y] (z) {w} | %% comment",
    "<b onclick=\"x\">&lt;&amp;#35; &quot;</b>",
    "style:#1;2",
    "`code` *bold* _it_ ~~no~~ # 1. list",
    "emoji 🦀 and combining e\u{301}",
    "שלום \u{202e}evil\u{202c} عربي",
    "\\N \\G \\L \\n \\l",
    "tab\there",
    "",
];

fn place(text: &str) -> Place {
    let (queue, slug) = text.split_once('/').expect("a queue and a slug");
    Place { queue: queue.parse().expect("a queue"), slug: slug.parse().expect("a slug") }
}

fn node(name: &str, title: &str, phase: Phase) -> Node {
    Node {
        place: place(name),
        title: title.to_owned(),
        phase: Some(phase),
        notes: Vec::new(),
        parent: None,
        waits_for: Vec::new(),
        after: Vec::new(),
        before: Vec::new(),
        is_critical: false,
    }
}

fn edge(from: usize, to: usize, kind: Kind) -> Edge {
    Edge { from, to, kind, is_critical: false }
}

fn hostile() -> Picture {
    let long = "wide 漢字 ".repeat(25);
    let titles = HOSTILE.iter().copied().chain([&*long]);
    let nodes: Vec<Node> =
        titles.enumerate().map(|(at, title)| node(&format!("q/end.{at}"), title, Phase::New)).collect();
    let edges = (1..nodes.len()).map(|to| edge(0, to, Kind::Dependency)).collect();
    Picture { total: nodes.len(), nodes, edges, critical_path: Vec::new() }
}

/// A small one with everything in it.
fn small() -> Picture {
    let mut nodes = vec![
        node("a/one", "The first", Phase::Done),
        node("a/two", "The second", Phase::Working),
        node("a/three", "Part of it", Phase::New),
        node("b/four", "Elsewhere", Phase::New),
        node("a/old", "Old", Phase::Superseded),
    ];
    let oid = Oid::from_bytes(&[0xab; 20]).expect("20 bytes");
    let wait = |role, name: Option<&str>, phase| Wait {
        role,
        on: Unmet {
            task: RecordId(oid).as_task(),
            place: name.map(place).map(|place| (place.queue, place.slug)),
            phase,
        },
    };
    nodes[1].notes = vec!["w1, 5 ms ago".to_owned(), "sticky, bound to c1".to_owned()];
    nodes[1].after = vec![(place("a/one"), Some(Phase::Done)), (place("b/zero"), Some(Phase::Rejected))];
    nodes[2].parent = Some(1);
    nodes[3].waits_for = vec![
        wait(Role::Dependency, Some("a/two"), Some(Phase::Working)),
        wait(Role::Dependency, None, None),
        wait(Role::Parent, Some("b/p"), Some(Phase::New)),
        wait(Role::Original, Some("b/four-old"), Some(Phase::Done)),
    ];
    nodes[0].before = (1..9).map(|n| place(&format!("a/n{n}"))).collect();
    nodes[1].is_critical = true;
    nodes[2].is_critical = true;
    let critical = Edge { is_critical: true, ..edge(1, 2, Kind::Parent) };
    Picture {
        edges: vec![edge(0, 1, Kind::Dependency), critical, edge(1, 3, Kind::Dependency), edge(4, 1, Kind::Successor)],
        critical_path: vec![place("a/three"), place("a/two")],
        total: 9,
        nodes,
    }
}

fn phase(phase: Option<Phase>) -> String {
    format!("{:<10}", word(phase))
}

#[test]
fn the_tree_prints_each_task_once_and_names_it_elsewhere() {
    let expected = "\
a
├─ done       one  The first
│             before n1, n2, n3, n4, n5 and 3 more
├─ working    * two  The second  [w1, 5 ms ago; sticky, bound to c1]
│  │          after one, b/zero (rejected)
│  └─ new        * three  Part of it
└─ superseded old  Old
b
└─ new        four  Elsewhere
              waits for a/two (working), abababababab (missing), parent p (new), four-old (done, to be superseded)
* critical path: 2 tasks: a/three -> a/two
... 5 of 9 tasks shown, open ones first; --limit N shows more";
    assert_eq!(tree::draw(&small(), &phase), expected);
    assert_eq!(tree::draw(&Picture::default(), &phase), "");
}

#[test]
fn parents_in_a_circle_are_printed_once_too() {
    let mut picture = Picture {
        nodes: vec![node("a/x", "X", Phase::New), node("a/y", "Y", Phase::New), node("a/z", "Z", Phase::New)],
        total: 3,
        ..Picture::default()
    };
    picture.nodes[0].parent = Some(1);
    picture.nodes[1].parent = Some(0);
    picture.nodes[2].parent = Some(2);
    let text = tree::draw(&picture, &phase);
    assert!(text.starts_with("parents of each other\n"), "{text}");
    for name in ["x  X", "y  Y", "z  Z"] {
        assert_eq!(text.matches(name).count(), 1, "{text}");
    }
}

#[test]
fn a_deep_tree_and_a_long_path_are_drawn_without_an_end_of_the_stack() {
    let mut picture = Picture::default();
    for at in 0..2_000_usize {
        let mut node = node(&format!("a/n{at}"), "T", Phase::New);
        node.parent = at.checked_sub(1);
        picture.critical_path.insert(0, node.place.clone());
        picture.nodes.push(node);
    }
    picture.total = picture.nodes.len();
    let text = tree::draw(&picture, &phase);
    let path = text.lines().last().expect("a line");
    assert_eq!(
        path,
        "* critical path: 2000 tasks: n1999 -> n1998 -> n1997 -> n1996 -> n1995 -> n1994 -> ... 1988 more ... -> n5 -> \
         n4 -> n3 -> n2 -> n1 -> n0"
    );
}

#[test]
fn dot_quotes_what_it_was_given() {
    let text = dot::draw(&small());
    for line in [
        r##"  "a/two" [label="a/two\nThe second", tooltip="working: The second", class="working critical", fillcolor="#fff3cd", color="#b26a00", penwidth=3];"##,
        r#"  "a/one" -> "a/two";"#,
        r#"  "a/two" -> "a/three" [style=dashed, arrowhead=empty, penwidth=3];"#,
        r#"  "a/old" -> "a/two" [style=dotted, label="replaced by"];"#,
        "  // 5 of 9 tasks shown, open ones first; --limit N shows more",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let text = dot::draw(&hostile());
    assert!(text.contains(r#"label="end.0\nsay \"hi\" \\", tooltip="#), "{text}");
    assert!(text.contains(r#"&amp;lt;&amp;amp;"#), "{text}");
    assert!(text.contains(r#"label="end.9\n\\N \\G \\L \\n \\l""#), "{text}");
}

/// Asserts that every line is one of those that are printed, and nothing else: what Mermaid is known to take.
fn check_mermaid(picture: &Picture) -> String {
    let text = mermaid::draw(picture);
    let is_node =
        |name: &str| name.strip_prefix('t').is_some_and(|n| n.parse::<usize>().is_ok_and(|n| n < picture.nodes.len()));
    let is_label = |label: &str| {
        let plain = |c: char| c.is_alphanumeric() || " -.,/+".contains(c) || (!c.is_ascii() && !c.is_control());
        let mut rest = label;
        while let Some(c) = rest.chars().next() {
            if let Some(entity) = rest.strip_prefix('#') {
                let Some((digits, after)) = entity.split_once(';') else { return false };
                if digits.parse::<u8>().is_err() {
                    return false;
                }
                rest = after;
            } else if plain(c) {
                rest = &rest[c.len_utf8()..];
            } else {
                return false;
            }
        }
        !label.split(|c: char| !c.is_alphanumeric()).any(|word| word == "end")
    };
    let is_word = |word: &str| Phase::ALL.iter().any(|phase| phase.as_str() == word) || word == "unknown";
    let is_fine = |line: &str| -> bool {
        if let Some((name, rest)) = line.split_once("[\"") {
            let Some((label, class)) = rest.split_once("\"]:::") else { return false };
            let Some((slug, title)) = label.split_once(": ") else { return false };
            return is_node(name) && is_label(slug) && is_label(title) && is_word(class);
        }
        for arrow in [" --> ", " -.-> ", " -. replaced by .-> "] {
            if let Some((from, to)) = line.split_once(arrow) {
                return is_node(from) && is_node(to);
            }
        }
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["classDef", "critical", "stroke-width:4px"] => true,
            ["classDef", phase, style] => is_word(phase) && style.starts_with("fill:#"),
            ["class", nodes, "critical"] => nodes.split(',').all(is_node),
            ["linkStyle", edges, "stroke-width:4px"] => edges.split(',').all(|edge| edge.parse::<usize>().is_ok()),
            ["%%", ..] => true,
            _ => false,
        }
    };
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("flowchart LR"));
    for line in lines {
        assert!(line.strip_prefix("  ").is_some_and(is_fine), "{line}");
    }
    text
}

#[test]
fn mermaid_gets_nothing_but_the_lines_that_it_knows() {
    let text = check_mermaid(&small());
    for line in [
        "  %% 5 of 9 tasks shown, open ones first; --limit N shows more",
        "  t1[\"a/two: The second\"]:::working",
        "  t0 --> t1",
        "  t1 -.-> t2",
        "  t4 -. replaced by .-> t1",
        "  class t1,t2 critical",
        "  linkStyle 1 stroke-width:4px",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    let text = check_mermaid(&hostile());
    assert!(text.contains("t2[\"#101;nd.2: #101;nd\"]"), "{text}");
    assert!(text.contains("style#58;#35;1#59;2"), "{text}");
    check_mermaid(&Picture::default());
}

#[test]
fn an_id_without_a_task_is_told_by_its_beginning() {
    let task: TaskId = "ab".repeat(20).parse().expect("an id");
    let wait = Wait { role: Role::Dependency, on: Unmet { task, place: None, phase: None } };
    assert_eq!(wait.told(None), "abababababab (missing)");
    assert!(wait.is_for_ever());
}
