//! The words of a report: how a command ended, and what it printed.

use std::ffi::OsString;
use std::path::Path;

use super::transcript::Transcript;
use crate::output::span;
use crate::protocol::text::{TITLE_MAX, TextError, checked_body, checked_title, stripped};

/// The name under which the output is attached.
pub const LOG_NAME: &str = "output.log";

/// How a command ended.
#[derive(Debug)]
pub struct Outcome<'a> {
    /// In words.
    pub why: &'a str,
    /// How often its task was claimed so far.
    pub attempt: u64,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

/// What a report says.
#[derive(Debug, PartialEq, Eq)]
pub struct Account {
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: Option<String>,
    /// What is attached to it.
    pub log: Option<Vec<u8>>,
}

/// The account of a command, with what it printed if that is to be recorded. Of the command only the name of the program
/// is told: its arguments can hold secrets, and records are for ever.
///
/// # Errors
/// What no record can hold, which the limits of [`Transcript`] rule out.
pub fn of(command: &[OsString], outcome: &Outcome<'_>, transcript: Option<&Transcript>) -> Result<Account, TextError> {
    let Outcome { why, attempt, duration_ms } = outcome;
    let duration = span(*duration_ms);
    let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let title = format!("{}: {why} ({duration})", stripped(&program)).replace(['\n', '\t'], " ");
    let title = checked_title(&title.chars().take(TITLE_MAX).collect::<String>())?;
    let mut body = format!("Attempt: {attempt}\nResult: {why}\nDuration: {duration}\n");
    let mut log = None;
    if let Some(transcript) = transcript {
        let (text, is_cut) = transcript.text();
        let (bytes, missing) = transcript.log();
        let end = if is_cut { ", of which this is the end" } else { "" };
        body.push_str(&format!("Output: {} bytes{end}\n", transcript.total()));
        if !bytes.is_empty() && transcript.has_log() {
            let cut = if missing > 0 { format!(", without {missing} bytes in its middle") } else { String::new() };
            body.push_str(&format!("Log: {LOG_NAME}{cut}\n"));
            log = Some(bytes);
        }
        body.push_str(&format!("\n{text}"));
    }
    Ok(Account { title, body: checked_body(&body)?, log })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(program: &str, printed: Option<(&str, usize)>) -> Account {
        let transcript = printed.map(|(text, limit)| {
            let mut transcript = Transcript::new(limit);
            transcript.push(text.as_bytes());
            transcript
        });
        let outcome = Outcome { why: "exit 3", attempt: 2, duration_ms: 12 };
        of(&[program.into(), "--token=secret".into()], &outcome, transcript.as_ref()).expect("an account")
    }

    #[test]
    fn only_the_name_of_the_program_is_told() {
        assert_eq!(check("/opt/bin/make", None).title, "make: exit 3 (12 ms)");
        assert_eq!(check(&"x".repeat(300), None).title.len(), TITLE_MAX);
        assert_eq!(check("a\nb\u{1b}c", None).title, "a bc: exit 3 (12 ms)");
    }

    #[test]
    fn the_output_is_told_where_it_is_to_be_recorded() {
        let head = "Attempt: 2\nResult: exit 3\nDuration: 12 ms\n";
        assert_eq!(check("a", None).body.as_deref(), Some(head));
        let account = check("a", Some(("out\n", 100)));
        assert_eq!(account.body, Some(format!("{head}Output: 4 bytes\nLog: output.log\n\nout\n")));
        assert_eq!(account.log.as_deref(), Some(&b"out\n"[..]));
        assert_eq!(check("a", Some(("", 100))).log, None);
        let account = check("a", Some(("out\n", 0)));
        assert_eq!((account.body, account.log), (Some(format!("{head}Output: 4 bytes\n\nout\n")), None));
    }
}
