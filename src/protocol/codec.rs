//! The one codec between records and commits (design, section 3; `docs/record-format.md`).
//!
//! `decode(encode(r)) == r` for every record, and any bytes at all decode to a record or a typed error. A
//! commit that decodes is well formed; whether it may stand where it stands is `apply`'s question.
//!
//! Long, since encoding and decoding change together or not at all.
//!
//! Architecture invariant: this is the only place that knows how a record is spelled.

use std::str::FromStr;

use super::record::{
    BadValue, ClockReading, Content, FORMAT, Heartbeat, Links, Mark, Nonce, Phase, Priority, Record, Report, Status,
    Task, Verification, decimal,
};
use super::text;
use crate::commit::{Commit, Signature};
use crate::id::{NameError, RecordId, shown};

/// Why a commit is not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// No `Record:` trailer: some other program's commit.
    #[error("it is no record of pm (it has no Record trailer)")]
    Foreign,
    /// The chain declares a format that this build does not know.
    #[error("it is of record format {found}, this pm reads up to {FORMAT}: use a newer pm")]
    Format {
        /// The declared format, shortened.
        found: String,
    },
    /// The message is not UTF-8, or holds control characters.
    #[error("its message holds bytes that no record holds (at byte {at})")]
    Bytes {
        /// The offset of the first one.
        at: usize,
    },
    /// The message is longer than any record's.
    #[error("its message has {length} bytes, a record has at most {}", text::MESSAGE_MAX)]
    TooLong {
        /// How many bytes it has.
        length: usize,
    },
    /// The message has no subject, no trailer paragraph, or does not end in one newline.
    #[error("its message is not laid out as a record's ({what})")]
    Layout {
        /// What is wrong.
        what: &'static str,
    },
    /// A line of the trailer paragraph that is no trailer.
    #[error("its trailer line '{found}' cannot be read")]
    Line {
        /// The line, shortened.
        found: String,
    },
    /// A trailer that must be there once is there twice.
    #[error("its trailer {key} is repeated")]
    Repeated {
        /// The trailer key.
        key: String,
    },
    /// A trailer that must be there is not.
    #[error("its trailer {key} is missing")]
    Absent {
        /// The trailer key.
        key: &'static str,
    },
    /// A trailer's value is not what it should be.
    #[error("its trailer '{key}: {found}' is wrong: {wanted}")]
    Value {
        /// The trailer key.
        key: &'static str,
        /// The value, shortened.
        found: String,
        /// What is wrong or wanted.
        wanted: String,
    },
    /// The commit's author is no agent.
    #[error("its author is no agent: {wanted}")]
    Author {
        /// What is wrong.
        wanted: String,
    },
    /// Not exactly one parent (none for a `Task`).
    #[error("it has {found} parents, a {kind} has {wanted}")]
    Parents {
        /// How many it has.
        found: usize,
        /// The kind of record.
        kind: &'static str,
        /// How many it should have.
        wanted: usize,
    },
    /// A tree where only a report may have one.
    #[error("it has a tree of files, which only a TaskReport may have")]
    Tree,
}

// ---------------------------------------------------------------------------------------------- encoding

/// The commit of a record, entering its chain through `committer`.
pub fn encode(record: &Record, committer: Signature) -> Commit {
    let author = Signature {
        name: record.agent.as_str().as_bytes().to_vec(),
        email: record.email.as_bytes().to_vec(),
        seconds: record.at,
        offset: 0,
    };
    let tree = match &record.content {
        Content::Report(report) => report.attachments,
        _ => None,
    };
    let parents = record.parent.iter().map(|parent| parent.0).collect();
    Commit { tree, parents, author, committer, message: message(record).into_bytes() }
}

/// Whole seconds and microseconds since 1970, as RFC 3339 in UTC with exactly six decimals.
fn created_text(micros: i64) -> String {
    // `from_microsecond` refuses the last second that jiff itself can hold and parse.
    let nanos = micros.rem_euclid(1_000_000) as i32 * 1000;
    match jiff::Timestamp::new(micros.div_euclid(1_000_000), nanos) {
        Ok(time) => format!("{time:.6}"),
        // Outside of years -9999 to 9999; no clock that pm reads says so.
        Err(_) => format!("{:.6}", jiff::Timestamp::UNIX_EPOCH),
    }
}

/// Collects trailers in their canonical order.
struct Trailers(String);

impl Trailers {
    fn put(&mut self, key: &str, value: impl std::fmt::Display) {
        self.0.push_str(&format!("{key}: {value}\n"));
    }

    fn put_some(&mut self, key: &str, value: Option<impl std::fmt::Display>) {
        if let Some(value) = value {
            self.put(key, value);
        }
    }

    fn put_text(&mut self, key: &str, value: Option<&str>) {
        self.put_some(key, value.map(escaped));
    }

    fn put_flag(&mut self, key: &str, value: bool) {
        if value {
            self.put(key, "true");
        }
    }
}

/// Free text as one line that survives git's trimming: `\\`, `\n`, and `\s` for a space at either end.
fn escaped(value: &str) -> String {
    let mut out = value.replace('\\', "\\\\").replace('\n', "\\n");
    if out.starts_with(' ') {
        out.replace_range(..1, "\\s");
    }
    if out.ends_with(' ') {
        out.replace_range(out.len() - 1.., "\\s");
    }
    out
}

fn message(record: &Record) -> String {
    let mut trailers = Trailers(String::new());
    let status_link = match record.content {
        Content::Status(_) => "Prev-Status",
        _ => "Claim-Status",
    };
    trailers.put("Record", record.content.kind());
    if matches!(record.content, Content::Task(_)) {
        trailers.put("Format", FORMAT);
    }
    trailers.put_some("Task", record.links.task);
    trailers.put_some(status_link, record.links.status);
    trailers.put_some("Prev-Report", record.links.report);
    trailers.put_some("Prev-Heartbeat", record.links.heartbeat);
    match &record.content {
        Content::Task(task) => put_task(&mut trailers, task),
        Content::Status(status) => put_status(&mut trailers, status),
        Content::Report(report) => {
            trailers.put_some("Commit", report.commit);
            trailers.put_flag("Synthetic", report.synthetic);
        }
        Content::Heartbeat(heartbeat) => {
            trailers.put_flag("Preempt", heartbeat.preempt);
            trailers.put_text("Progress", heartbeat.progress.as_deref());
        }
    }
    trailers.put("Seq", record.seq);
    trailers.put_some("Clock", record.clock.map(|clock| format!("{:016x} {}", clock.id, clock.ms)));
    trailers.put("Nonce", format!("{:016x}", record.nonce.0));
    for (key, value) in &record.unknown {
        trailers.put(key, value);
    }

    let body = record.body.as_deref().map(|body| format!("{}\n", text::shield(body))).unwrap_or_default();
    format!("{}\n\n{body}{}", subject(record), trailers.0)
}

/// The first line of a record: what `git log --oneline` shows. Only a Task's and a report's is ever read back.
pub fn subject(record: &Record) -> String {
    let agent = &record.agent;
    match &record.content {
        Content::Task(task) => task.title.clone(),
        Content::Report(report) => report.title.clone(),
        Content::Heartbeat(heartbeat) if heartbeat.preempt => format!("preempted by {agent}"),
        Content::Heartbeat(_) => format!("heartbeat by {agent}"),
        Content::Status(status) => match (status.phase, status.mark) {
            (Phase::New, None) => format!("planned by {agent}"),
            (Phase::New, Some(Mark::Released)) => format!("released by {agent}"),
            (Phase::New, Some(Mark::Reclaimed)) => format!("reclaimed by {agent}"),
            (Phase::New, Some(_)) => format!("planned again by {agent}"),
            (Phase::Working, _) => format!("claimed by {agent}, attempt {}", status.attempt),
            (Phase::Done, _) => format!("done by {agent}"),
            (Phase::Rejected, Some(Mark::Reclaimed)) => {
                format!("rejected by {agent} after {} sweeps without a report", status.reclaims)
            }
            (Phase::Rejected, Some(Mark::Cancelled)) => format!("cancelled by {agent}"),
            (Phase::Rejected, _) => format!("rejected by {agent}"),
            (Phase::Superseded, _) => format!("superseded by {agent}"),
        },
    }
}

fn put_task(trailers: &mut Trailers, task: &Task) {
    trailers.put("Queue", &task.queue);
    trailers.put("Slug", &task.slug);
    trailers.put("Created", created_text(task.created));
    trailers.put("Priority", task.priority.get());
    for dependency in &task.depends_on {
        trailers.put("Depends-On", dependency);
    }
    trailers.put_some("Parent", task.parent);
    trailers.put_some("Spawned-At", task.spawned_at);
    trailers.put_text("Verifier", task.verifier.as_deref());
    trailers.put_flag("Sticky", task.sticky);
    trailers.put_text("Workdir", task.workdir.as_deref());
    trailers.put_some("Ttl", task.ttl);
    trailers.put_some("Max-Attempts", task.max_attempts);
    for label in &task.labels {
        trailers.put("Label", label);
    }
}

fn put_status(trailers: &mut Trailers, status: &Status) {
    trailers.put("Status", status.phase);
    trailers.put("Attempt", status.attempt);
    trailers.put("Reclaims", status.reclaims);
    trailers.put_some("Context", status.context.as_ref());
    trailers.put_some("Ttl", status.ttl);
    trailers.put_some("Proof", status.proof);
    trailers.put_text("Reason", status.reason.as_deref());
    if let Some(mark) = status.mark {
        trailers.put_flag(mark.key(), true);
    }
    trailers.put_some("Replan-Of", status.replan_of);
    trailers.put_some("Superseded-By", status.superseded_by);
    if let Some(verification) = &status.verification {
        trailers.put_text("Verifier", Some(&verification.verifier));
        trailers.put("Verifier-Exit", verification.exit);
        trailers.put_text("Verifier-Summary", verification.summary.as_deref());
    }
}

// ---------------------------------------------------------------------------------------------- decoding

/// The record of a commit.
///
/// # Errors
/// A [`DecodeError`] for any commit that does not say, exactly once, all that a record must say. The order of
/// trailers and the subject of a status or heartbeat are free.
pub fn decode(commit: &Commit) -> Result<Record, DecodeError> {
    let (subject, body, mut fields) = parse_message(&commit.message)?;
    let kind = fields.single("Record")?.ok_or(DecodeError::Foreign)?;
    let links = |fields: &mut Fields<'_>, status_key| -> Result<Links, DecodeError> {
        Ok(Links {
            task: Some(fields.required("Task")?),
            status: fields.optional(status_key)?,
            report: fields.optional("Prev-Report")?,
            heartbeat: fields.optional("Prev-Heartbeat")?,
        })
    };
    let (links, content) = match kind {
        "Task" => {
            // The format comes first: of a newer one, nothing else is judged.
            let format = fields.single("Format")?.ok_or(DecodeError::Absent { key: "Format" })?;
            if decimal(format) != Ok(FORMAT) {
                return Err(DecodeError::Format { found: shown(format) });
            }
            (Links::default(), Content::Task(Box::new(take_task(&mut fields, subject)?)))
        }
        "TaskStatus" => (links(&mut fields, "Prev-Status")?, Content::Status(Box::new(take_status(&mut fields)?))),
        "TaskReport" => {
            let report = Report {
                title: text::checked_title(subject).map_err(|error| bad_title(&error))?,
                commit: fields.optional("Commit")?,
                synthetic: fields.flag("Synthetic")?,
                attachments: commit.tree,
            };
            (links(&mut fields, "Claim-Status")?, Content::Report(report))
        }
        "TaskHeartbeat" => {
            let heartbeat = Heartbeat { preempt: fields.flag("Preempt")?, progress: fields.text("Progress")? };
            (links(&mut fields, "Claim-Status")?, Content::Heartbeat(heartbeat))
        }
        other => return Err(wrong("Record", other, "a kind of record that this pm knows")),
    };
    let seq = fields.number("Seq")?;
    let clock = fields.parsed("Clock", parse_clock)?;
    let nonce = fields.parsed("Nonce", |text| hex64(text).map(Nonce))?.ok_or(DecodeError::Absent { key: "Nonce" })?;

    let kind = content.kind();
    let wanted = usize::from(kind != "Task");
    if commit.parents.len() != wanted {
        return Err(DecodeError::Parents { found: commit.parents.len(), kind, wanted });
    }
    if commit.tree.is_some() && kind != "TaskReport" {
        return Err(DecodeError::Tree);
    }
    let author = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| DecodeError::Author { wanted: "not UTF-8".to_owned() })
    };
    let (name, email) = (author(&commit.author.name)?, author(&commit.author.email)?);
    if email.contains(char::is_control) {
        return Err(DecodeError::Author { wanted: "its email holds control characters".to_owned() });
    }
    Ok(Record {
        parent: commit.parents.first().map(|parent| RecordId(*parent)),
        agent: name.parse().map_err(|error: NameError| DecodeError::Author { wanted: error.to_string() })?,
        email,
        at: commit.author.seconds,
        links,
        seq,
        clock,
        nonce,
        body: body.and_then(|body| text::normalised(&text::unshield(body))),
        content,
        unknown: fields.0.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    })
}

/// What a commit says under a trailer key that may be there once, without judging the rest of it: of a record, what
/// decoding it would tell; of anything else it means nothing. For listings that want a single value of each of thousands.
pub fn glance<'a>(commit: &'a Commit, key: &str) -> Option<&'a str> {
    let content = commit.message.strip_suffix(b"\n")?;
    let start = content.windows(2).rposition(|pair| pair == b"\n\n")? + 2;
    let value = |line: &'a [u8]| line.strip_prefix(key.as_bytes())?.strip_prefix(b": ");
    let found = content[start..].split(|byte| *byte == b'\n').find_map(value)?;
    std::str::from_utf8(found).ok()
}

fn bad_title(error: &text::TextError) -> DecodeError {
    DecodeError::Value { key: "subject", found: String::new(), wanted: error.to_string() }
}

fn take_task(fields: &mut Fields<'_>, subject: &str) -> Result<Task, DecodeError> {
    Ok(Task {
        title: text::checked_title(subject).map_err(|error| bad_title(&error))?,
        queue: fields.required("Queue")?,
        slug: fields.required("Slug")?,
        created: fields.parsed("Created", parse_created)?.ok_or(DecodeError::Absent { key: "Created" })?,
        priority: fields
            .parsed("Priority", |text| Priority::try_from(decimal(text)?))?
            .ok_or(DecodeError::Absent { key: "Priority" })?,
        depends_on: fields.all("Depends-On")?,
        parent: fields.optional("Parent")?,
        spawned_at: fields.optional("Spawned-At")?,
        verifier: fields.text("Verifier")?,
        sticky: fields.flag("Sticky")?,
        workdir: fields.text("Workdir")?,
        ttl: fields.optional("Ttl")?,
        max_attempts: fields
            .parsed("Max-Attempts", |text| u32::try_from(decimal(text)?).map_err(|_| BadValue("a smaller number")))?,
        labels: fields.all("Label")?,
    })
}

fn take_status(fields: &mut Fields<'_>) -> Result<Status, DecodeError> {
    let mut marks = Vec::new();
    for mark in Mark::ALL {
        if fields.flag(mark.key())? {
            marks.push(mark);
        }
    }
    if let [_, second, ..] = marks[..] {
        return Err(wrong(second.key(), "true", "at most one of Reclaimed, Released, Cancelled, Replanned"));
    }
    let verifier = fields.text("Verifier")?;
    let exit = fields.parsed("Verifier-Exit", parse_exit)?;
    let summary = fields.text("Verifier-Summary")?;
    let verification = match (verifier, exit) {
        (Some(verifier), Some(exit)) => Some(Verification { verifier, exit, summary }),
        (None, None) if summary.is_none() => None,
        (None, _) => return Err(DecodeError::Absent { key: "Verifier" }),
        (_, None) => return Err(DecodeError::Absent { key: "Verifier-Exit" }),
    };
    Ok(Status {
        phase: fields.required("Status")?,
        attempt: fields.number("Attempt")?,
        reclaims: fields.number("Reclaims")?,
        context: fields.optional("Context")?,
        ttl: fields.optional("Ttl")?,
        proof: fields.optional("Proof")?,
        reason: fields.text("Reason")?,
        mark: marks.first().copied(),
        replan_of: fields.optional("Replan-Of")?,
        superseded_by: fields.optional("Superseded-By")?,
        verification,
    })
}

/// Splits a message into subject, body (as stored) and trailers.
fn parse_message(message: &[u8]) -> Result<(&str, Option<&str>, Fields<'_>), DecodeError> {
    let layout = |what| DecodeError::Layout { what };
    if message.len() > text::MESSAGE_MAX {
        return Err(DecodeError::TooLong { length: message.len() });
    }
    let message = std::str::from_utf8(message).map_err(|error| DecodeError::Bytes { at: error.valid_up_to() })?;
    if let Some(at) = text::forbidden_at(message) {
        return Err(DecodeError::Bytes { at });
    }
    let content = message.strip_suffix('\n').ok_or(layout("no final newline"))?;
    let (head, trailers) = split_last_paragraph(content).ok_or(DecodeError::Foreign)?;
    let fields = Fields::parse(trailers)?;
    let (subject, body) = match head.split_once('\n') {
        None => (head, None),
        Some((subject, rest)) => {
            let body = rest.strip_prefix('\n').ok_or(layout("no blank line after the subject"))?;
            (subject, Some(body))
        }
    };
    if subject.trim().is_empty() {
        return Err(layout("no subject"));
    }
    Ok((subject, body, fields))
}

/// Splits at the last blank line.
fn split_last_paragraph(text: &str) -> Option<(&str, &str)> {
    let at = text.as_bytes().windows(2).rposition(|pair| pair == b"\n\n")?;
    Some((&text[..at], &text[at + 2..]))
}

/// The trailers that have not been taken yet, in order, with their values as written.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    // Every command reads at least two messages, a listing thousands: hence loops over bytes where patterns would read
    // better, and take several times as long.
    fn parse(mut paragraph: &'a str) -> Result<Fields<'a>, DecodeError> {
        let mut fields = Fields(Vec::with_capacity(16));
        while let Some(end) = paragraph.bytes().position(|b| b == b'\n') {
            fields.push(&paragraph[..end])?;
            paragraph = &paragraph[end + 1..];
        }
        fields.push(paragraph)?;
        Ok(fields)
    }

    fn push(&mut self, line: &'a str) -> Result<(), DecodeError> {
        let key = line.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'-').count();
        let (key, rest) = line.split_at(key);
        match rest.strip_prefix(": ") {
            // git trims values and folds continuation lines: what it would read otherwise than pm is refused.
            Some(value) if !key.is_empty() && !is_trimmed_by_git(value.as_bytes()) => self.0.push((key, value)),
            // Without a Record trailer the last paragraph is just prose: some other program's commit.
            _ if self.0.iter().any(|(key, _)| *key == "Record") || line.starts_with("Record:") => {
                return Err(DecodeError::Line { found: shown(line) });
            }
            _ => return Err(DecodeError::Foreign),
        }
        Ok(())
    }

    /// Removes and returns the value of a key that may be there once. git matches keys without regard to case, so
    /// another spelling of a known key counts as a repetition.
    fn single(&mut self, key: &'static str) -> Result<Option<&'a str>, DecodeError> {
        let mut found = self.0.iter().enumerate().filter(|(_, (k, _))| k.eq_ignore_ascii_case(key));
        let Some((at, (first, _))) = found.next() else { return Ok(None) };
        match found.next() {
            None if *first == key => Ok(Some(self.0.remove(at).1)),
            None => Err(DecodeError::Repeated { key: (*first).to_owned() }),
            Some((_, (second, _))) => {
                let again = if *first == key { second } else { first };
                Err(DecodeError::Repeated { key: (*again).to_owned() })
            }
        }
    }

    fn parsed<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, BadValue>,
    ) -> Result<Option<T>, DecodeError> {
        self.single(key)?.map(|text| parse(text).map_err(|error| wrong(key, text, &error.to_string()))).transpose()
    }

    fn optional<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &'static str) -> Result<Option<T>, DecodeError> {
        let parse = |text: &str| text.parse().map_err(|error: T::Err| wrong(key, text, &error.to_string()));
        self.single(key)?.map(parse).transpose()
    }

    fn required<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &'static str) -> Result<T, DecodeError> {
        self.optional(key)?.ok_or(DecodeError::Absent { key })
    }

    fn number(&mut self, key: &'static str) -> Result<u64, DecodeError> {
        self.parsed(key, decimal)?.ok_or(DecodeError::Absent { key })
    }

    fn all<T: FromStr<Err: std::fmt::Display>>(&mut self, key: &'static str) -> Result<Vec<T>, DecodeError> {
        if self.0.iter().all(|(k, _)| !k.eq_ignore_ascii_case(key)) {
            return Ok(Vec::new());
        }
        // One pass: a hostile message can hold a hundred thousand of them.
        let (found, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.0).into_iter().partition(|(k, _)| *k == key);
        self.0 = rest;
        self.single(key)?;
        let parse =
            |(_, text): (&str, &str)| text.parse().map_err(|error: T::Err| wrong(key, text, &error.to_string()));
        found.into_iter().map(parse).collect()
    }

    fn flag(&mut self, key: &'static str) -> Result<bool, DecodeError> {
        let flag = self.parsed(key, |text| if text == "true" { Ok(()) } else { Err(BadValue("true")) })?;
        Ok(flag.is_some())
    }

    fn text(&mut self, key: &'static str) -> Result<Option<String>, DecodeError> {
        self.parsed(key, unescaped)
    }
}

/// Whether a trailer's value is nothing, or begins or ends with what git's readers take away.
fn is_trimmed_by_git(value: &[u8]) -> bool {
    matches!(value, [] | [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

fn wrong(key: &'static str, found: &str, wanted: &str) -> DecodeError {
    DecodeError::Value { key, found: shown(found), wanted: wanted.to_owned() }
}

/// Reverses [`escaped`].
fn unescaped(value: &str) -> Result<String, BadValue> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next() {
            Some('\\') => out.push('\\'),
            Some('n') => out.push('\n'),
            Some('s') => out.push(' '),
            _ => return Err(BadValue(r"escaped with \\, \n and \s alone")),
        }
    }
    Ok(out)
}

fn hex64(text: &str) -> Result<u64, BadValue> {
    let bad = BadValue("16 lower-case hex digits");
    if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Err(bad);
    }
    u64::from_str_radix(text, 16).map_err(|_| bad)
}

fn parse_clock(text: &str) -> Result<ClockReading, BadValue> {
    let (id, ms) = text.split_once(' ').ok_or(BadValue("a clock id and its milliseconds"))?;
    Ok(ClockReading { id: hex64(id)?, ms: decimal(ms)? })
}

fn parse_created(text: &str) -> Result<i64, BadValue> {
    let bad = BadValue("a time in UTC with microseconds, as 2026-11-29T20:15:03.000001Z");
    let micros = text.parse::<jiff::Timestamp>().map_err(|_| bad)?.as_microsecond();
    // One spelling for one time. Writing it again to compare is slow, so the usual shape is recognised first.
    if is_usual_time(text.as_bytes()) || created_text(micros) == text { Ok(micros) } else { Err(bad) }
}

/// Whether a time that could be parsed is spelled as `2026-11-29T20:15:03.000001Z`: then nothing else spells it.
/// The second 60 is another spelling of 59.
fn is_usual_time(text: &[u8]) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00.000000Z";
    let fits = |(shape, byte): (&u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { shape == byte };
    text.len() == SHAPE.len() && SHAPE.iter().zip(text).all(fits) && &text[17..19] != b"60"
}

fn parse_exit(text: &str) -> Result<i32, BadValue> {
    let bad = BadValue("an exit code");
    let exit: i32 = text.parse().map_err(|_| bad)?;
    if exit.to_string() == text { Ok(exit) } else { Err(bad) }
}
