//! How a runner looks: a line an agent on a terminal, a line an event elsewhere, and the sum of it all.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::event::{Event, Fate, What};
use crate::clock::since_boot_ms;
use crate::id::{AgentId, TaskId};
use crate::output::{Board, Output, span};

/// What became of all tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Closed with success.
    pub done: u64,
    /// Closed without.
    pub rejected: u64,
    /// Back in the queue after a failure.
    pub failed: u64,
    /// Back in the queue for another reason.
    pub released: u64,
    /// Back in the queue, since the command could not be started.
    pub not_started: u64,
    /// Whose lease was lost.
    pub lost: u64,
    /// Heartbeats that got in.
    pub heartbeats: u64,
}

impl Totals {
    fn add(&mut self, what: &What) {
        match what {
            What::Renewed { .. } => self.heartbeats += 1,
            What::Ended(ending) => match ending.fate {
                Fate::Done => self.done += 1,
                Fate::Rejected => self.rejected += 1,
                Fate::Failed => self.failed += 1,
                Fate::Released => self.released += 1,
                Fate::NotStarted => self.not_started += 1,
                Fate::Lost => self.lost += 1,
            },
            _ => {}
        }
    }

    /// The sum for people: what there was none of is left out.
    fn text(&self) -> String {
        let parts = [
            (self.rejected, "rejected"),
            (self.failed, "failed and released"),
            (self.released, "released"),
            (self.not_started, "not started"),
            (self.lost, "lost"),
        ];
        let mut text = format!("{} done", self.done);
        for (number, what) in parts.into_iter().filter(|(number, _)| *number > 0) {
            text.push_str(&format!(", {number} {what}"));
        }
        text
    }

    fn json(&self, took_ms: u64) -> Value {
        json!({
            "event": "summary",
            "done": self.done,
            "rejected": self.rejected,
            "failed": self.failed,
            "released": self.released,
            "not_started": self.not_started,
            "lost": self.lost,
            "heartbeats": self.heartbeats,
            "took_ms": took_ms,
        })
    }
}

/// What one agent is doing.
#[derive(Debug, Clone)]
struct Row {
    agent: String,
    /// The task, since when, and when the lease ends; the times in milliseconds since boot.
    task: Option<(String, u64, u64)>,
    printed: String,
    is_over: bool,
}

/// The view of one runner.
#[derive(Debug)]
pub struct Display {
    out: Output,
    board: Option<Board>,
    rows: Vec<Row>,
    totals: Totals,
    /// Tasks whose last attempt here did not succeed.
    failed: HashSet<TaskId>,
    started_ms: u64,
}

impl Display {
    /// Of a runner with these agents.
    pub fn new(out: &Output, agents: &[AgentId]) -> Display {
        let row =
            |agent: &AgentId| Row { agent: agent.to_string(), task: None, printed: String::new(), is_over: false };
        Display {
            out: out.clone(),
            board: out.board(),
            rows: agents.iter().map(row).collect(),
            totals: Totals::default(),
            failed: HashSet::new(),
            started_ms: since_boot_ms(),
        }
    }

    /// Whether it is drawn again and again.
    pub fn is_live(&self) -> bool {
        self.board.is_some()
    }

    /// Whether a lease was lost.
    pub fn has_lost(&self) -> bool {
        self.totals.lost > 0
    }

    /// Whether there is a task whose last attempt did not succeed.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Shows what was told, or only that time went by.
    pub fn show(&mut self, event: Option<&Event>) {
        let Some(event) = event else { return self.draw() };
        self.totals.add(&event.what);
        self.note(event);
        let warning = match (&event.what, &event.task) {
            (What::Warning(text), _) => Some(text.clone()),
            (What::Ended(ending), Some(task)) if ending.fate == Fate::Lost => {
                Some(format!("{} lost {} (claim {}): {}", event.agent, task.place, task.claim, ending.why))
            }
            _ => None,
        };
        // On a terminal the board tells of what goes well.
        let is_routine = match &event.what {
            What::Ended(ending) => ending.fate == Fate::Done && ending.kept.is_none(),
            What::Started { .. } => true,
            _ => false,
        };
        let is_told =
            !((is_routine || warning.is_some()) && self.is_live()) && (self.out.is_json() || !self.out.is_quiet());
        let line = if self.out.is_json() { event.json().map(|json| json.to_string()) } else { event.text() };
        let line = line.filter(|_| is_told);
        if line.is_none() && warning.is_none() {
            return;
        }
        if let Some(board) = &mut self.board {
            board.wipe();
        }
        if let Some(line) = line {
            self.out.raw(&format!("{line}\n"));
        }
        if let Some(warning) = warning {
            self.out.warning(&warning);
        }
        self.draw();
    }

    /// Notes what an agent is doing.
    fn note(&mut self, event: &Event) {
        let row = &mut self.rows[event.number];
        match &event.what {
            What::Started { ends_ms } => {
                let place = event.task.as_ref().map(|task| task.place.clone()).unwrap_or_default();
                row.task = Some((place, since_boot_ms(), *ends_ms));
                row.printed.clear();
            }
            What::Renewed { ends_ms: renewed } => {
                if let Some((_, _, ends_ms)) = &mut row.task {
                    *ends_ms = *renewed;
                }
            }
            What::Printed(line) => row.printed.clone_from(line),
            What::Ended(ending) => {
                row.task = None;
                let Some(task) = event.task.as_ref().map(|task| task.task) else { return };
                match ending.fate {
                    Fate::Rejected | Fate::Failed | Fate::NotStarted => self.failed.insert(task),
                    Fate::Done | Fate::Released | Fate::Lost => self.failed.remove(&task),
                };
            }
            What::Over(_) => row.is_over = true,
            What::Waiting(_) | What::LeftBlocked(_) | What::Warning(_) => {}
        }
    }

    fn draw(&mut self) {
        let Some(board) = &mut self.board else { return };
        let now_ms = since_boot_ms();
        let width = self.rows.iter().map(|row| row.agent.len()).max().unwrap_or(0);
        let mut lines: Vec<String> = Vec::with_capacity(self.rows.len() + 1);
        for Row { agent, task, printed, is_over } in &self.rows {
            lines.push(match task {
                Some((place, since_ms, ends_ms)) => {
                    let (elapsed, left) = (span(now_ms - since_ms), span(ends_ms.saturating_sub(now_ms)));
                    format!("{agent:<width$}  {place}  {elapsed}, lease {left}  {printed}")
                }
                None if *is_over => format!("{agent:<width$}  has ended"),
                None => format!("{agent:<width$}  waits for a task"),
            });
        }
        lines.push(self.totals.text());
        board.draw(&lines);
    }

    /// Tells the sum.
    pub fn close(mut self) {
        if let Some(board) = &mut self.board {
            board.wipe();
        }
        let took_ms = since_boot_ms() - self.started_ms;
        if self.out.is_json() || !self.out.is_quiet() {
            let (totals, took) = (self.totals, span(took_ms));
            self.out.result(|| totals.json(took_ms), || format!("{} in {took}", totals.text()));
        }
    }
}
