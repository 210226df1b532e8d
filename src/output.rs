//! The only writer of stdout and stderr: text for people, JSON for programs.
//!
//! A closed pipe is not an error: whoever stopped reading has what it wanted, and the command's own outcome
//! stands.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags};
use serde_json::Value;

use crate::error::Error;
use crate::protocol::record::Phase;

/// Set when stdout could not be written for any reason but a closed pipe. The process has one stdout, whatever number
/// of outputs write to it.
static STDOUT_FAILED: AtomicBool = AtomicBool::new(false);

/// Whether a result was lost because stdout could not be written.
pub fn stdout_failed() -> bool {
    STDOUT_FAILED.load(Ordering::Relaxed)
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Where a command says what it did.
#[derive(Debug, Clone)]
pub struct Output {
    json: bool,
    quiet: bool,
    color: bool,
}

impl Output {
    /// An output as the global options ask for.
    pub fn new(json: bool, quiet: bool, color: Color) -> Output {
        let wanted = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        };
        Output { json, quiet, color: wanted && !json }
    }

    /// Whether JSON is wanted.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// The result of a command: one JSON value, or text (a final newline is added).
    pub fn result(&self, json: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
        if self.json {
            self.raw(&format!("{}\n", json()));
        } else {
            let text = text();
            if !text.is_empty() {
                self.raw(&format!("{text}\n"));
            }
        }
    }

    /// Text for stdout as it is; `false` when nobody reads any more.
    pub fn raw(&self, text: &str) -> bool {
        self.bytes(text.as_bytes())
    }

    /// Bytes for stdout as they are; `false` when nobody reads any more.
    pub fn bytes(&self, bytes: &[u8]) -> bool {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Ok(()) => true,
            Err(error) => {
                if error.kind() != ErrorKind::BrokenPipe && !STDOUT_FAILED.swap(true, Ordering::Relaxed) {
                    self.stderr(&format!(
                        "error: standard output cannot be written: {error}; what was recorded stands"
                    ));
                }
                false
            }
        }
    }

    /// Whether whoever read stdout has gone away: for streams that may be silent for long.
    pub fn reader_is_gone(&self) -> bool {
        let stdout = io::stdout();
        let mut poll = [PollFd::new(&stdout, PollFlags::empty())];
        let now = rustix::time::Timespec::default();
        rustix::event::poll(&mut poll, Some(&now)).is_ok()
            && poll[0].revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
    }

    /// A bar for a command that does `total` things of one kind: on a terminal, where nobody asked for quiet or JSON.
    pub fn progress(&self, what: &'static str, total: usize) -> Progress {
        let is_shown = !self.quiet && !self.json && io::stderr().is_terminal();
        Progress { what, total, drawn: None, is_shown }
    }

    /// A place for lines that are drawn again and again: where stdout is a terminal, and people are to look at it.
    pub fn board(&self) -> Option<Board> {
        let stdout = io::stdout();
        (!self.quiet && !self.json && stdout.is_terminal()).then_some(Board { drawn: 0 })
    }

    /// Whether nothing is to be said that was not asked for.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Something worth knowing that is not the result; on stderr.
    pub fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            self.stderr(text);
        }
    }

    /// Something that may be wrong; on stderr, also when quiet.
    pub fn warning(&self, text: &str) {
        self.stderr(&format!("warning: {text}"));
    }

    /// What a hub says to whoever pushed; on stderr, also when quiet.
    pub fn refusal(&self, text: &str) {
        self.stderr(text);
    }

    /// Why the command failed; on stderr.
    pub fn error(&self, error: &Error) {
        if self.json {
            self.stderr(&error.to_json().to_string());
        } else {
            self.stderr(&format!("error: {error}"));
        }
    }

    fn stderr(&self, text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// A phase, padded to the longest one and coloured where colour is wanted.
    pub fn phase(&self, phase: Option<Phase>) -> String {
        let text = format!("{:<10}", phase.map_or("?", Phase::as_str));
        let code = match phase {
            Some(Phase::New) => "36",
            Some(Phase::Working) => "33",
            Some(Phase::Done) => "32",
            Some(Phase::Rejected) | None => "31",
            Some(Phase::Superseded) => "90",
        };
        if self.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text }
    }
}

/// A bar on stderr that says how far a long command is. Dropped, it is wiped away.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    total: usize,
    /// How many cells are full on the terminal; `None` before the first drawing.
    drawn: Option<usize>,
    is_shown: bool,
}

impl Progress {
    /// How wide the bar is, in cells: it is drawn again when another one fills.
    const CELLS: usize = 40;

    /// Says that `done` of `total` things are done, which may be others than so far: for a command that does several kinds
    /// of them one after another.
    pub fn tell(&mut self, what: &'static str, done: usize, total: usize) {
        if (self.what, self.total) != (what, total) {
            (self.what, self.total, self.drawn) = (what, total, None);
        }
        self.set(done);
    }

    /// Says that `done` of the things are done.
    pub fn set(&mut self, done: usize) {
        let full = (done * Self::CELLS).checked_div(self.total).unwrap_or(0).min(Self::CELLS);
        if self.is_shown && self.drawn.replace(full) != Some(full) {
            let (what, total, empty) = (self.what, self.total, Self::CELLS - full);
            let _ = write!(io::stderr().lock(), "\r{what} {:█<full$}{:░<empty$} {done}/{total}\u{1b}[K", "", "");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(io::stderr().lock(), "\r\u{1b}[K");
        }
    }
}

/// Lines at the end of a terminal that are drawn over themselves.
#[derive(Debug)]
pub struct Board {
    /// How many lines stand there now.
    drawn: usize,
}

impl Board {
    /// The size of a terminal that does not tell it, in rows and columns.
    const SIZE: (usize, usize) = (24, 80);

    /// Draws these lines in the place of the last ones, each cut to the width of the terminal. Where it has too few rows,
    /// the last line stays and how many are left out is said.
    pub fn draw(&mut self, lines: &[String]) {
        let mut stdout = io::stdout().lock();
        let told = rustix::termios::tcgetwinsize(&stdout).ok().filter(|size| size.ws_row > 3 && size.ws_col > 1);
        let (rows, columns) = told.map_or(Self::SIZE, |size| (size.ws_row.into(), size.ws_col.into()));
        let mut text = self.wiped();
        let fitting = if lines.len() < rows { lines.len() } else { rows - 3 };
        let left_out = (fitting < lines.len()).then(|| format!("... and {} more", lines.len() - fitting - 1));
        let last = lines.last().filter(|_| left_out.is_some());
        let shown: Vec<&String> = lines[..fitting].iter().chain(&left_out).chain(last).collect();
        for line in &shown {
            text.extend(line.chars().take(columns - 1));
            text.push('\n');
        }
        self.drawn = shown.len();
        let _nobody_may_look = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }

    /// Wipes the lines away, so that something else can be printed there.
    pub fn wipe(&mut self) {
        let text = self.wiped();
        self.drawn = 0;
        let mut stdout = io::stdout().lock();
        let _nobody_may_look = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    }

    fn wiped(&self) -> String {
        if self.drawn == 0 { String::new() } else { format!("\u{1b}[{}A\r\u{1b}[J", self.drawn) }
    }
}

/// `1 task`, `2 tasks`.
pub fn counted<N: fmt::Display + PartialEq + From<u8>>(number: N, what: &str) -> String {
    if number == N::from(1) { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// The first `most` of many names, and how many more there are; all of them, where only one more would be left out.
pub fn few(names: &[String], most: usize) -> String {
    match names.len().checked_sub(most) {
        Some(more @ 2..) => format!("{} and {more} more", names[..most].join(", ")),
        _ => names.join(", "),
    }
}

/// A duration for people: `850 ms`, `12 s`, `5 min`, `3 h`, `2 d`.
pub fn span(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{ms} ms"),
        10_000..120_000 => format!("{} s", ms / 1000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}
