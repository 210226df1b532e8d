//! The section of a report in which a worker attests that its task's verifier passed. Pure.
//!
//! ```text
//! ## Verifier Attestation
//!
//! verifier: skill:review
//! verdict: PASS
//! evidence: what was looked at, and what it showed,
//! on as many lines as it takes
//! ```
//!
//! What must never happen here: anything passes that a reader of the report would not see to be this section, once,
//! with each field once, about this very verifier. What is unclear is refused, with a reason.

use crate::id::shown;

/// The line above the fields.
pub const HEADING: &str = "## Verifier Attestation";

/// What stands for the evidence in the form that is shown. It is none.
const PLACEHOLDER: &str = "<what was looked at, and what it showed>";

/// A field of the section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The verifier, verbatim.
    Verifier,
    /// `PASS`.
    Verdict,
    /// Why.
    Evidence,
}

impl Field {
    /// All of them.
    const ALL: [Field; 3] = [Field::Verifier, Field::Verdict, Field::Evidence];

    /// How a line with it begins.
    fn key(self) -> &'static str {
        match self {
            Field::Verifier => "verifier:",
            Field::Verdict => "verdict:",
            Field::Evidence => "evidence:",
        }
    }
}

/// Why a report is no attestation. Lines are those of its text, from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The section is not there.
    #[error("there is no section headed '{HEADING}'")]
    NoSection,
    /// A heading is meant to be it, and is not.
    #[error("line {line} is not exactly the heading '{HEADING}'")]
    AlmostHeading {
        /// Where.
        line: usize,
    },
    /// The heading is part of a code block only.
    #[error("the heading in line {line} is inside of a fenced code block, and so is none")]
    Fenced {
        /// Where.
        line: usize,
    },
    /// The heading is part of a comment only.
    #[error("the heading in line {line} is inside of a comment, which nobody sees, and so is none")]
    Commented {
        /// Where.
        line: usize,
    },
    /// The section is there again.
    #[error("there is a second section headed '{HEADING}', in line {line}")]
    ManySections {
        /// Where.
        line: usize,
    },
    /// A field is not there.
    #[error("there is no line '{}'", field.key())]
    Absent {
        /// Which.
        field: Field,
    },
    /// A field is there again.
    #[error("there is a second '{}', in line {line}", field.key())]
    Twice {
        /// Which.
        field: Field,
        /// Where.
        line: usize,
    },
    /// A line is none of the fields, and not part of the evidence.
    #[error("line {line} is none of the three fields: '{found}'")]
    Unknown {
        /// Where.
        line: usize,
        /// Its beginning, made printable.
        found: String,
    },
    /// The attestation is about something else.
    #[error("the verifier is '{found}', not word for word the task's")]
    OtherVerifier {
        /// What it is about, made printable.
        found: String,
    },
    /// The verdict is not `PASS`.
    #[error("the verdict is '{found}', not PASS")]
    OtherVerdict {
        /// What it is, made printable.
        found: String,
    },
    /// There is nothing in the evidence.
    #[error("the evidence is empty")]
    NoEvidence,
}

/// A line of a report.
#[derive(Debug, Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
    place: Place,
}

impl Line<'_> {
    /// Whether a reader sees anything said here.
    fn says_something(&self) -> bool {
        let seen = match self.place {
            Place::Text => outside_comments(self.text, false).0,
            Place::Comment => outside_comments(self.text, true).0,
            Place::Code => self.text.to_owned(),
            Place::Fence => String::new(),
        };
        seen.chars().any(char::is_alphanumeric)
    }
}

/// Where a line stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In the text.
    Text,
    /// In a fenced code block.
    Code,
    /// It begins or ends one.
    Fence,
    /// It begins in a comment, `<!-- -->`, which may begin and end anywhere, and goes to the end of the text at most.
    Comment,
}

/// The evidence that a report gives for this verifier.
///
/// # Errors
/// Everything that is wrong with it, at least one fault.
pub fn read(verifier: &str, body: Option<&str>) -> Result<String, Vec<Fault>> {
    let lines = lines(body.unwrap_or_default());
    let is_section = |line: &&Line<'_>| line.place == Place::Text && line.text.trim_end() == HEADING;
    let mut sections = lines.iter().filter(is_section);
    let Some(section) = sections.next() else { return Err(vec![absent_section(&lines)]) };
    let mut faults: Vec<Fault> = sections.map(|line| Fault::ManySections { line: line.number }).collect();

    // The number of a line is one more than its index.
    let is_inside = |line: &&Line<'_>| line.place != Place::Text || !is_heading(line.text);
    let mut found: [Option<Vec<Line<'_>>>; 3] = [None, None, None];
    let mut in_evidence = false;
    for line in lines[section.number..].iter().take_while(is_inside) {
        let field = Field::ALL.into_iter().find(|field| line.text.starts_with(field.key()));
        match field.filter(|_| line.place == Place::Text) {
            Some(field) => {
                in_evidence = field == Field::Evidence;
                let text = &line.text[field.key().len()..];
                if found[field as usize].replace(vec![Line { text, ..*line }]).is_some() {
                    faults.push(Fault::Twice { field, line: line.number });
                }
            }
            None if in_evidence => found[Field::Evidence as usize].iter_mut().for_each(|lines| lines.push(*line)),
            None if line.place == Place::Text && line.text.trim().is_empty() => {}
            None => faults.push(Fault::Unknown { line: line.number, found: shown(line.text) }),
        }
    }

    let value = |field: Field| found[field as usize].as_ref().map(|lines| joined(lines));
    faults.extend(Field::ALL.into_iter().filter(|field| value(*field).is_none()).map(|field| Fault::Absent { field }));
    if let Some(found) = value(Field::Verifier).filter(|found| *found != in_one_line(verifier)) {
        faults.push(Fault::OtherVerifier { found: shown(&found) });
    }
    if let Some(found) = value(Field::Verdict).filter(|found| found != "PASS") {
        faults.push(Fault::OtherVerdict { found: shown(&found) });
    }
    let evidence = value(Field::Evidence).unwrap_or_default();
    if found[Field::Evidence as usize].as_ref().is_some_and(|lines| !lines.iter().any(Line::says_something))
        || evidence == PLACEHOLDER
    {
        faults.push(Fault::NoEvidence);
    }
    if faults.is_empty() { Ok(evidence) } else { Err(faults) }
}

/// What is told of a report that is no attestation: everything that is wrong, and the form that is wanted.
pub fn complaint(verifier: &str, faults: &[Fault]) -> String {
    let faults: Vec<String> = faults.iter().map(Fault::to_string).collect();
    format!(
        "the report does not attest that the verifier passed: {}\n\nwanted in the report's text, once and outside of \
         comments and code blocks:\n\n{HEADING}\n\nverifier: {}\nverdict: PASS\nevidence: {PLACEHOLDER}",
        faults.join("; "),
        in_one_line(verifier)
    )
}

/// A verifier as the line of a section has it: a newline in it is written `\n`.
fn in_one_line(verifier: &str) -> String {
    verifier.trim().replace('\n', "\\n")
}

/// Why no section was found.
fn absent_section(lines: &[Line<'_>]) -> Fault {
    let is_meant = |line: &&Line<'_>| {
        line.text.trim_start().starts_with('#') && line.text.to_lowercase().contains("verifier attestation")
    };
    match lines.iter().find(is_meant) {
        Some(line) if line.place == Place::Text => Fault::AlmostHeading { line: line.number },
        Some(line) if line.place == Place::Comment => Fault::Commented { line: line.number },
        Some(line) => Fault::Fenced { line: line.number },
        None => Fault::NoSection,
    }
}

fn joined(lines: &[Line<'_>]) -> String {
    let lines: Vec<&str> = lines.iter().map(|line| line.text).collect();
    lines.join("\n").trim().to_owned()
}

/// The lines of a text, as Markdown has its fenced code blocks. A comment counts wherever it begins outside of these, also
/// in `code` and where Markdown ends it with its paragraph: what some readers see, and others do not, is not seen.
fn lines(body: &str) -> Vec<Line<'_>> {
    let mut open: Option<(char, usize)> = None;
    let mut in_comment = false;
    let line = |(index, text)| {
        let place = match (open, fence(text)) {
            _ if in_comment => Place::Comment,
            (None, Some((mark, length, info))) if mark == '~' || !info.contains('`') => {
                open = Some((mark, length));
                Place::Fence
            }
            (Some((mark, length)), Some((found, count, info)))
                if found == mark && count >= length && info.trim().is_empty() =>
            {
                open = None;
                Place::Fence
            }
            (Some(_), _) => Place::Code,
            (None, _) => Place::Text,
        };
        if matches!(place, Place::Text | Place::Comment) {
            in_comment = outside_comments(text, in_comment).1;
        }
        Line { number: index + 1, text, place }
    };
    body.lines().enumerate().map(line).collect()
}

/// What of a line is in no comment, and whether one is open at its end.
fn outside_comments(text: &str, mut in_comment: bool) -> (String, bool) {
    let (mut seen, mut rest) = (String::new(), text);
    loop {
        let Some((before, after)) = rest.split_once(if in_comment { "-->" } else { "<!--" }) else {
            seen.push_str(if in_comment { "" } else { rest });
            return (seen, in_comment);
        };
        seen.push_str(if in_comment { "" } else { before });
        (rest, in_comment) = (after, !in_comment);
    }
}

/// The text of a line without the space that Markdown allows before headings and fences.
fn unindented(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(' ');
    (text.len() - rest.len() <= 3).then_some(rest)
}

/// What a fence is made of, how long it is, and what follows it.
fn fence(text: &str) -> Option<(char, usize, &str)> {
    let text = unindented(text)?;
    let mark = text.chars().next().filter(|mark| ['`', '~'].contains(mark))?;
    let rest = text.trim_start_matches(mark);
    let length = text.len() - rest.len();
    (length >= 3).then_some((mark, length, rest))
}

fn is_heading(text: &str) -> bool {
    let Some(text) = unindented(text) else { return false };
    let rest = text.trim_start_matches('#');
    (1..=6).contains(&(text.len() - rest.len())) && (rest.is_empty() || rest.starts_with([' ', '\t']))
}

#[cfg(test)]
mod tests;
