//! The input rules for free text: titles, bodies and one-line values (design, section 3, "Input rules").
//!
//! Escape sequences in a title attack the terminal of whoever reads the log, so control characters never enter
//! a record: asked to store them, `checked_*` refuse and `stripped` removes.

use crate::id::shown;

/// The longest title, in characters.
pub const TITLE_MAX: usize = 200;

/// The longest message of a record, in bytes, trailers included; anything longer goes in as an attachment.
pub const MESSAGE_MAX: usize = 1 << 20;

/// The line that makes git ignore the rest of a message, with the comment character in front of it.
const SCISSORS: &str = " ------------------------ >8 ------------------------";

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Nothing but white space.
    #[error("{what} is empty")]
    Empty {
        /// Which text.
        what: &'static str,
    },
    /// More than one line where one is allowed.
    #[error("{what} must be one line (found '{found}')")]
    ManyLines {
        /// Which text.
        what: &'static str,
        /// Its beginning.
        found: String,
    },
    /// Too long.
    #[error("{what} has {length} {unit}, at most {most} are allowed{hint}")]
    TooLong {
        /// Which text.
        what: &'static str,
        /// How long it is.
        length: usize,
        /// The limit.
        most: usize,
        /// `characters` or `bytes`.
        unit: &'static str,
        /// What to do instead, or nothing.
        hint: &'static str,
    },
    /// A control character other than newline and tab.
    #[error("{what} holds the control character U+{code:04X} (in '{found}')")]
    Control {
        /// Which text.
        what: &'static str,
        /// The character.
        code: u32,
        /// The beginning of the text, made printable.
        found: String,
    },
}

/// Whether a character may never be stored.
fn is_forbidden(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
}

/// The offset of the first forbidden character. Almost every text has none, and is passed over byte by byte: below
/// 0x20 are the C0 controls, 0x7F is DEL, and 0xC2 leads the C1 controls.
pub(super) fn forbidden_at(text: &str) -> Option<usize> {
    let suspect = |b: u8| (b < 0x20 && b != b'\n' && b != b'\t') || b == 0x7f || b == 0xc2;
    // Without an early end the loop is done sixteen bytes at a time.
    if !text.bytes().fold(false, |found, b| found | suspect(b)) {
        return None;
    }
    text.char_indices().find(|(_, c)| is_forbidden(*c)).map(|(at, _)| at)
}

fn checked(what: &'static str, text: &str) -> Result<(), TextError> {
    match text.chars().find(|c| is_forbidden(*c)) {
        Some(c) => Err(TextError::Control { what, code: c as u32, found: shown(text) }),
        None => Ok(()),
    }
}

/// Checks a title: one line, at most [`TITLE_MAX`] characters, trimmed.
pub fn checked_title(title: &str) -> Result<String, TextError> {
    let what = "the title";
    let title = title.trim();
    if title.is_empty() {
        return Err(TextError::Empty { what });
    }
    if title.contains('\n') || title.contains('\r') {
        return Err(TextError::ManyLines { what, found: shown(title) });
    }
    checked(what, title)?;
    if title.contains('\t') || title.ends_with(SCISSORS) {
        return Err(TextError::ManyLines { what, found: shown(title) });
    }
    let length = title.chars().count();
    if length > TITLE_MAX {
        return Err(TextError::TooLong {
            what,
            length,
            most: TITLE_MAX,
            unit: "characters",
            hint: "; the rest belongs in the text",
        });
    }
    Ok(title.to_owned())
}

/// Checks a value that is stored in one trailer: a reason, a note, a progress line, a verifier. Tabs at its ends
/// become spaces, since git trims them there and there is no escape for them.
pub fn checked_value(what: &'static str, value: &str) -> Result<String, TextError> {
    let mut value = value.replace("\r\n", "\n");
    if value.trim().is_empty() {
        return Err(TextError::Empty { what });
    }
    checked(what, &value)?;
    if value.len() > MESSAGE_MAX {
        return Err(TextError::TooLong { what, length: value.len(), most: MESSAGE_MAX, unit: "bytes", hint: "" });
    }
    let (start, end) = (value.trim_start_matches([' ', '\t']), value.trim_end_matches([' ', '\t']));
    let (lead, text_end) = (value.len() - start.len(), end.len());
    value = format!("{:lead$}{}{:trail$}", "", &value[lead..text_end], "", trail = value.len() - text_end);
    Ok(value)
}

/// Checks the text of a task and brings it into its one stored form: LF line ends, exactly one final newline, or absent.
pub fn checked_body(text: &str) -> Result<Option<String>, TextError> {
    checked_text(text, "; keep the rest in a file of the repository, and name that in the text")
}

/// Checks the text of a report, without what no record may hold: reports often hold the output of programs. Its form is
/// that of [`checked_body`].
pub fn checked_report(text: &str) -> Result<Option<String>, TextError> {
    checked_text(&stripped(text), "; attach it as a file instead (--attach FILE)")
}

fn checked_text(text: &str, hint: &'static str) -> Result<Option<String>, TextError> {
    let what = "the text";
    let Some(body) = normalised(text) else { return Ok(None) };
    checked(what, &body)?;
    if body.len() > MESSAGE_MAX {
        return Err(TextError::TooLong { what, length: body.len(), most: MESSAGE_MAX, unit: "bytes", hint });
    }
    Ok(Some(body))
}

/// Removes what [`checked_body`] would refuse: reports often hold the output of programs.
pub fn stripped(text: &str) -> String {
    text.replace("\r\n", "\n").chars().filter(|c| !is_forbidden(*c)).collect()
}

/// The stored form of a body: CRLF as LF, exactly one final newline; `None` when nothing is left.
pub(super) fn normalised(text: &str) -> Option<String> {
    let text = text.replace("\r\n", "\n");
    let text = text.trim_end_matches('\n');
    if text.is_empty() { None } else { Some(format!("{text}\n")) }
}

/// Protects body lines that git takes for the end of the message. Git's trailer readers stop at a line made of
/// the comment character and a scissors mark, also far above the trailers, and would then see none. One leading
/// space hides such a line from git; [`unshield`] takes it away again.
pub(super) fn shield(body: &str) -> String {
    map_scissors(body, |line| format!(" {line}"))
}

/// Reverses [`shield`].
pub(super) fn unshield(body: &str) -> String {
    map_scissors(body, |line| line.strip_prefix(' ').unwrap_or(line).to_owned())
}

fn map_scissors(body: &str, change: impl Fn(&str) -> String) -> String {
    if !body.contains(SCISSORS) {
        return body.to_owned();
    }
    let mut out = String::with_capacity(body.len() + 8);
    for line in body.split_inclusive('\n') {
        let text = line.strip_suffix('\n').unwrap_or(line);
        if text.ends_with(SCISSORS) {
            out.push_str(&change(text));
            out.push_str(&line[text.len()..]);
        } else {
            out.push_str(line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_printable_line_of_at_most_200_characters() {
        assert_eq!(checked_title("  Build it  ").as_deref(), Ok("Build it"));
        assert!(checked_title(&"ä".repeat(200)).is_ok());
        assert!(matches!(checked_title(&"x".repeat(10_000)), Err(TextError::TooLong { length: 10_000, .. })));
        assert!(matches!(checked_title("a\nb"), Err(TextError::ManyLines { .. })));
        assert!(matches!(checked_title("a\u{1b}[31mb"), Err(TextError::Control { code: 0x1b, .. })));
        assert!(matches!(checked_title("a\u{9b}31mb"), Err(TextError::Control { code: 0x9b, .. })));
        assert!(matches!(checked_title(" \n "), Err(TextError::Empty { .. })));
    }

    #[test]
    fn bodies_end_in_exactly_one_newline_or_are_absent() {
        assert_eq!(checked_body("a\r\nb\n\n\n").as_ref().map(Option::as_deref), Ok(Some("a\nb\n")));
        assert_eq!(checked_body("\n\n").as_ref().map(Option::as_deref), Ok(None));
        assert!(checked_body("a\rb").is_err());
        assert_eq!(checked_body(&stripped("a\u{1b}[1mb\r")).as_ref().map(Option::as_deref), Ok(Some("a[1mb\n")));
    }

    #[test]
    fn scissors_lines_are_shielded_reversibly() {
        for line in [format!("#{SCISSORS}"), format!(" #{SCISSORS}"), SCISSORS.to_owned(), format!("  {SCISSORS}")] {
            let body = format!("above\n{line}\nbelow\n");
            assert!(shield(&body).contains(&format!("\n {line}\n")));
            assert_eq!(unshield(&shield(&body)), body);
        }
    }
}
