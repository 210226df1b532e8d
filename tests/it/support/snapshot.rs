//! Comparing with a file below `tests/it/snapshots`; `SNAPSHOTS=overwrite cargo test` writes them anew.

use std::path::Path;

use snapbox::data::DataFormat;
use snapbox::{Assert, Data};

use super::Outcome;
use super::redact::Redactor;

/// Asserts that `actual` is what the snapshot holds.
#[track_caller]
pub fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots").join(name);
    let expected = Data::read_from(&path, Some(DataFormat::Text)).raw();
    Assert::new().action_env("SNAPSHOTS").eq(Data::text(actual).raw(), expected);
}

/// Outcomes as a transcript: command, exit code, stdout and stderr together, with what changes from run to run
/// replaced.
pub fn transcript(redactor: &mut Redactor, outcomes: &[Outcome]) -> String {
    outcomes.iter().map(|outcome| entry(redactor, outcome)).collect::<Vec<_>>().join("\n")
}

fn entry(redactor: &mut Redactor, outcome: &Outcome) -> String {
    let args: Vec<String> = outcome.args.iter().map(|arg| quoted(arg)).collect();
    let mut lines = vec![format!("$ pm {}", redactor.redact(&args.join(" ")))];
    for (prefix, stream) in [("", &outcome.stdout), ("! ", &outcome.stderr)] {
        for line in stream.lines() {
            let shown = redactor.redact(&pretty(line));
            // Not `lines`, which has none for an empty text.
            lines.extend(shown.split('\n').map(|line| format!("{prefix}{line}").trim_end().to_owned()));
        }
    }
    lines.push(format!("= exit {}\n", outcome.code));
    lines.join("\n")
}

/// A line of JSON spread over several, so that a change of one field is a change of one line.
fn pretty(line: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(line) {
        Ok(value) if line.starts_with(['{', '[']) => format!("{value:#}"),
        _ => line.to_owned(),
    }
}

fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:@=+<>".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) { arg.to_owned() } else { format!("'{arg}'") }
}
