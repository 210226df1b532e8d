//! Replacing what differs from run to run: ids, times, durations and places.
//!
//! Ids become `<id 1>`, `<id 2>` in the order in which they are first seen, so that a snapshot still shows which links
//! name the same record.

use std::collections::HashMap;
use std::path::Path;

/// Remembers the ids that it has seen.
#[derive(Default)]
pub struct Redactor {
    ids: HashMap<String, usize>,
    places: Vec<(String, &'static str)>,
}

impl Redactor {
    pub fn new() -> Redactor {
        Redactor::default()
    }

    /// Shows a path by this name; the longest paths are to be named first.
    pub fn place(mut self, path: &Path, name: &'static str) -> Redactor {
        self.places.push((path.display().to_string(), name));
        self
    }

    /// The text with everything replaced that differs from run to run.
    pub fn redact(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (path, name) in &self.places {
            text = text.replace(path, name);
        }
        let text = without_times(&text);
        let words = words(&text);
        (0..words.len()).map(|at| self.word(&words, at)).collect()
    }

    /// One word (or what stands between two), with what stands around it in mind.
    fn word(&mut self, words: &[&str], at: usize) -> String {
        let word = words[at];
        let is_hex = word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match word.len() {
            40 | 64 if is_hex => {
                let next = self.ids.len() + 1;
                format!("<id {}>", self.ids.entry(word.to_owned()).or_insert(next))
            }
            32 if is_hex => "<context>".to_owned(),
            12 if is_hex => match self.ids.iter().find(|(id, _)| id.starts_with(word)) {
                Some((_, number)) => format!("<short {number}>"),
                None => "<short>".to_owned(),
            },
            _ if is_measured(words, at) => "<n>".to_owned(),
            _ => word.to_owned(),
        }
    }
}

/// Splits a text into words of letters, digits, `_` and `-`, and what stands between them.
fn words(text: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        words.push(word);
        rest = after;
    }
    words
}

/// Replaces times such as `2026-11-29T20:15:03Z`.
fn without_times(text: &str) -> String {
    const SHAPE: &str = "0000-00-00T00:00:00Z";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let window = rest.get(..SHAPE.len()).unwrap_or_default();
        if window.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).eq(SHAPE.chars()) {
            out.push_str("<time>");
            rest = &rest[SHAPE.len()..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    out
}

/// Whether a word is a measured duration: `"age_ms": 12`, or `12 ms` and `12 s left` in a sentence. (What was asked for is spelled
/// `12ms`, or is longer than ten seconds.)
fn is_measured(words: &[&str], at: usize) -> bool {
    const FIELDS: [&str; 4] = ["age_ms", "lease_left_ms", "decides_in_ms", "waited_ms"];
    let around =
        |offset: isize| at.checked_add_signed(offset).and_then(|at| words.get(at)).copied().unwrap_or_default();
    let is_number = words[at].bytes().all(|b| b.is_ascii_digit());
    let is_field = around(-1).starts_with("\":") && FIELDS.contains(&around(-2));
    let is_span = around(1) == " " && (around(2) == "ms" || (around(2) == "s" && around(4) == "left"));
    is_number && (is_field || is_span)
}

#[test]
fn ids_times_and_durations_are_replaced_and_nothing_else() {
    let a = "1".repeat(40);
    let b = "b".repeat(64);
    let mut redactor = Redactor::new().place(Path::new("/x/y"), "<repo>");
    let check = |redactor: &mut Redactor, text: &str, expected: &str| assert_eq!(redactor.redact(text), expected);
    check(&mut redactor, &format!("task {a}: {b} {a}"), "task <id 1>: <id 2> <id 1>");
    check(&mut redactor, "111111111111  2026-11-29T20:15:03Z  new", "<short 1>  <time>  new");
    check(&mut redactor, "\"age_ms\": 12,\"seq\": 12", "\"age_ms\": <n>,\"seq\": 12");
    check(&mut redactor, "{\"age_ms\":12}", "{\"age_ms\":<n>}");
    check(&mut redactor, "from w1, silent for 250 ms", "from w1, silent for <n> ms");
    check(&mut redactor, "fence 2, lease 5 min in /x/y/z", "fence 2, lease 5 min in <repo>/z");
}
