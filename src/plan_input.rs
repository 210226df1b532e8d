//! Reading a plan of many tasks, as `bulk-plan` takes it: a JSON array, or one JSON object a line.
//!
//! It knows the form of the input and says what is wrong with that, in the words of whoever wrote it. What a task may be,
//! and what it may name, is judged by others.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::error::{Fault, FaultKind, Spot};
use crate::id::{Slug, shown};

/// The fields of an entry. One that this build does not know is a fault: ignoring it would plan another task than was asked
/// for.
const FIELDS: [&str; 12] = [
    "slug",
    "title",
    "text",
    "parent",
    "parent_slug",
    "depends_on",
    "depends_on_slugs",
    "verifier",
    "sticky",
    "workdir",
    "priority",
    "labels",
];

/// One task of a plan, as it is written.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of the input, which `pm bulk-plan --help` describes")]
pub struct Entry {
    pub slug: Option<String>,
    pub title: Option<String>,
    pub text: Option<String>,
    pub parent: Option<String>,
    pub parent_slug: Option<String>,
    pub depends_on: Vec<String>,
    pub depends_on_slugs: Vec<String>,
    pub verifier: Option<String>,
    pub sticky: bool,
    pub workdir: Option<String>,
    pub priority: Option<u64>,
    pub labels: Vec<String>,
    /// The fields that could not be read, which is told already: they stand here as if they were not given.
    pub unread: Vec<&'static str>,
}

impl Entry {
    /// Its slug, given or made from its title.
    pub fn named(&self) -> Option<Slug> {
        match &self.slug {
            Some(slug) => slug.parse().ok(),
            None if self.unread.contains(&"slug") => None,
            None => self.title.as_deref().map(Slug::from_title),
        }
    }
}

/// The entries of a plan, each with its place, and what is wrong with their form.
pub fn read(input: &[u8]) -> (Vec<(Spot, Entry)>, Vec<Fault>) {
    let mut reader = Reader { text: "", entries: Vec::new(), faults: Vec::new() };
    match std::str::from_utf8(input) {
        Ok(text) => {
            reader.text = text.trim_start_matches('\u{feff}');
            reader.read();
        }
        Err(error) => {
            let before = &input[..error.valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
            reader.fault(Spot::Line(line), format!("it is not UTF-8 text (column {column})"));
        }
    }
    (reader.entries, reader.faults)
}

struct Reader<'a> {
    text: &'a str,
    entries: Vec<(Spot, Entry)>,
    faults: Vec<Fault>,
}

/// A line of the input: its number, from 1, and where it begins, in bytes.
#[derive(Clone, Copy)]
struct At {
    line: usize,
    start: usize,
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        let text = self.text;
        if text.trim_start().starts_with('[') {
            match serde_json::from_str::<Vec<&RawValue>>(text) {
                Ok(tasks) => {
                    let mut at = At { line: 1, start: 0 };
                    for (index, task) in tasks.into_iter().enumerate() {
                        at = self.line_of(at, task);
                        self.entry(at, Some(index + 1), task.get());
                    }
                }
                Err(error) => {
                    let found = format!("it is no JSON array: {} (column {})", plain(&error), error.column().max(1));
                    self.fault(Spot::Line(error.line().max(1)), found);
                }
            }
        } else {
            for (index, line) in text.lines().enumerate() {
                if !line.trim().is_empty() {
                    let start = line.as_ptr() as usize - text.as_ptr() as usize;
                    self.entry(At { line: index + 1, start }, None, line);
                }
            }
        }
        if self.entries.is_empty() && self.faults.is_empty() {
            self.fault(Spot::Line(1), "there is no task in it".to_owned());
        }
    }

    /// Reads one entry; `number` is its place in an array.
    fn entry(&mut self, at: At, number: Option<usize>, json: &'a str) {
        let spot = |slug| match number {
            Some(number) => Spot::Task { number, line: at.line, slug },
            None => Spot::Line(at.line),
        };
        let kind = kind(json.trim_start());
        let fields = match serde_json::from_str::<Fields<'a>>(json) {
            Ok(fields) => fields.0,
            Err(error) if error.classify() == Category::Data || number.is_some() => {
                return self.fault(spot(None), format!("it must be a JSON object, not {kind}"));
            }
            Err(error) => {
                let found = format!("it is no JSON object: {} (column {})", plain(&error), error.column().max(1));
                return self.fault(spot(None), found);
            }
        };
        let mut entry = Entry::default();
        let mut wrong = Vec::new();
        let mut seen: Vec<&'static str> = Vec::new();
        for (name, value) in &fields {
            let mut wrong = |what: String| {
                let within = self.line_of(at, value);
                let column = self.offset(value) - within.start + 1;
                wrong.push(match within.line {
                    line if line == at.line => format!("{what} (column {column})"),
                    line => format!("{what} (line {line}, column {column})"),
                });
            };
            let Some(known) = FIELDS.into_iter().find(|field| field == name) else {
                let fields = FIELDS.join(", ");
                wrong(format!("it has the field '{}', which is unknown; those that are known: {fields}", shown(name)));
                continue;
            };
            if seen.contains(&known) {
                wrong(format!("{known} is given twice"));
                continue;
            }
            seen.push(known);
            if let Err(what) = entry.set(known, value) {
                entry.unread.push(known);
                wrong(format!("{known} {what}"));
            }
        }
        let spot = spot(entry.named());
        wrong.into_iter().for_each(|found| self.fault(spot.clone(), found));
        self.entries.push((spot, entry));
    }

    fn fault(&mut self, spot: Spot, found: String) {
        self.faults.push(Fault { spot, kind: FaultKind::Input, found });
    }

    fn offset(&self, value: &RawValue) -> usize {
        value.get().as_ptr() as usize - self.text.as_ptr() as usize
    }

    /// The line on which a value begins, counted on from one above it.
    fn line_of(&self, from: At, value: &RawValue) -> At {
        let between = &self.text.as_bytes()[from.start..self.offset(value)];
        let line = from.line + between.iter().filter(|byte| **byte == b'\n').count();
        let start = between.iter().rposition(|byte| *byte == b'\n').map_or(from.start, |last| from.start + last + 1);
        At { line, start }
    }
}

impl Entry {
    /// Reads one field; what is wrong with it, in words, is the error.
    fn set(&mut self, field: &str, value: &RawValue) -> Result<(), String> {
        match field {
            "slug" => self.slug = text(value)?,
            "title" => self.title = text(value)?,
            "text" => self.text = text(value)?,
            "parent" => self.parent = text(value)?,
            "parent_slug" => self.parent_slug = text(value)?,
            "depends_on" => self.depends_on = texts(value)?,
            "depends_on_slugs" => self.depends_on_slugs = texts(value)?,
            "verifier" => self.verifier = text(value)?,
            "sticky" => self.sticky = of_type(value, "true or false", &["true", "false"])?,
            "workdir" => self.workdir = text(value)?,
            "priority" => self.priority = of_type(value, "a whole number from 0 to 4, or null", &["null"])?,
            "labels" => self.labels = texts(value)?,
            _ => unreachable!("{field} is none of FIELDS"),
        }
        Ok(())
    }
}

fn text(value: &RawValue) -> Result<Option<String>, String> {
    of_type(value, "a string, or null", &["\"", "null"])
}

fn texts(value: &RawValue) -> Result<Vec<String>, String> {
    if kind(value.get()) != "an array" {
        return of_type(value, "an array of strings", &[]);
    }
    let items: Vec<&RawValue> = of_type(value, "an array of strings", &["["])?;
    items.into_iter().map(|item| of_type(item, "an array of strings", &["\""])).collect()
}

/// Reads a value; one that begins with one of `starts` is of the right type, so that something else is wrong with it.
fn of_type<'a, T: Deserialize<'a>>(value: &'a RawValue, expected: &str, starts: &[&str]) -> Result<T, String> {
    serde_json::from_str(value.get()).map_err(|error| match starts.iter().any(|start| value.get().starts_with(start)) {
        true => format!("cannot be read: {}", plain(&error)),
        false => format!("must be {expected}, not {}", kind(value.get())),
    })
}

/// What a JSON value is, for messages.
fn kind(json: &str) -> String {
    match json.as_bytes().first() {
        Some(b'{') => "an object".to_owned(),
        Some(b'[') => "an array".to_owned(),
        Some(b'"') => format!("the string {}", shown(json)),
        _ => shown(json.trim_end()),
    }
}

/// What serde says of broken JSON, without its position, and without the words of its own that name parts of it.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split(" at line ").next().unwrap_or(&text) {
        "expected ident" | "expected value" => "a JSON value was expected".to_owned(),
        "trailing characters" => "more follows behind its end".to_owned(),
        eof if eof.starts_with("EOF while parsing") => "its end is missing".to_owned(),
        text => text.to_owned(),
    }
}

/// The fields of a JSON object, in their order, also those that are given twice.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;
        impl<'de> Visitor<'de> for Visit {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts what is wrong with an input, all of it.
    #[track_caller]
    fn check(input: &[u8], expected: &[&str]) {
        let (_, faults) = read(input);
        assert_eq!(faults.iter().map(Fault::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_field_of_the_wrong_type_is_told_with_its_column() {
        check(
            b"{\"title\":1,\"labels\":\"web\",\"sticky\":\"no\"}\n{\"title\":\"B\",\"priority\":-1,\"depends_on\":[\"a\",{}]}",
            &[
                "line 1: title must be a string, or null, not 1 (column 10)",
                "line 1: labels must be an array of strings, not the string \"web\" (column 21)",
                "line 1: sticky must be true or false, not the string \"no\" (column 36)",
                "line 2: priority must be a whole number from 0 to 4, or null, not -1 (column 25)",
                "line 2: depends_on must be an array of strings, not an object (column 41)",
            ],
        );
    }

    #[test]
    fn a_task_of_an_array_is_told_by_its_number_and_slug() {
        check(
            br#"[{"title":"A"},{"slug":"x","title":2},7,{"title":"With its slug","sticky":0},{"slug":3}]"#,
            &[
                "task 2 of the array, slug x (line 1): title must be a string, or null, not 2 (column 36)",
                "task 3 of the array (line 1): it must be a JSON object, not 7",
                "task 4 of the array, slug with-its-slug (line 1): sticky must be true or false, not 0 (column 75)",
                "task 5 of the array (line 1): slug must be a string, or null, not 3 (column 86)",
            ],
        );
        check(
            b"[\n{\"title\":\"A\"}, {\n  \"slug\": \"b\",\n  \"titel\": 1\n}]",
            &[
                "task 2 of the array, slug b (line 2): it has the field 'titel', which is unknown; those that are known: slug, title, text, parent, parent_slug, depends_on, depends_on_slugs, verifier, sticky, workdir, priority, labels (line 4, column 12)",
            ],
        );
    }

    #[test]
    fn broken_json_is_told_with_line_and_column_in_words_that_need_no_knowledge_of_the_reader() {
        check(
            b"[{\"title\":\"A\"},\n {\"title\":nope}]",
            &["line 2: it is no JSON array: a JSON value was expected (column 12)"],
        );
        check(b"[{\"title\":\"A\"}", &["line 1: it is no JSON array: its end is missing (column 14)"]);
        check(
            b"not json\n{\"title\":\"A\"} x\n{\"title\":\n[1]\nnull\n{\"title\":\"\\ud800\"}",
            &[
                "line 1: it is no JSON object: a JSON value was expected (column 2)",
                "line 2: it is no JSON object: more follows behind its end (column 15)",
                "line 3: it is no JSON object: its end is missing (column 9)",
                "line 4: it must be a JSON object, not an array",
                "line 5: it must be a JSON object, not null",
                "line 6: title cannot be read: unexpected end of hex escape (column 10)",
            ],
        );
        check(b"{\"title\":\"A\",\"title\":\"B\"}", &["line 1: title is given twice (column 22)"]);
        check(b"{\"title\":\"A\"}\n{\"title\":\"\xff\"}", &["line 2: it is not UTF-8 text (column 11)"]);
        check(b"\n", &["line 1: there is no task in it"]);
    }

    #[test]
    fn a_task_whose_form_is_wrong_keeps_what_can_be_read_of_it() {
        let (entries, _) =
            read(b"{\"slug\":\"a\",\"title\":1,\"depends_on_slugs\":[\"b\"]}\n{\"slug\":1,\"title\":\"B\"}");
        let [(_, first), (_, second)] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!(
            (first.named().map(|slug| slug.to_string()).as_deref(), &first.depends_on_slugs[..]),
            (Some("a"), &["b".to_owned()][..])
        );
        assert_eq!((&first.title, &first.unread[..]), (&None, &["title"][..]));
        // It was to have another slug than that of its title.
        assert_eq!(second.named(), None);
    }
}
