//! What a runner tells: for people and for programs. Agents say it, one thread prints it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use serde_json::{Map, Value, json};

use crate::id::{AgentId, RecordId, TaskId};
use crate::ledger::runnable::Blocked;
use crate::output::span;

/// How many blocked tasks are named.
const BLOCKED_NAMED: usize = 5;

/// Something that an agent tells.
#[derive(Debug, Clone)]
pub struct Event {
    /// Who.
    pub agent: AgentId,
    /// Its number, from 0.
    pub number: usize,
    /// About which task.
    pub task: Option<Arc<Subject>>,
    /// What.
    pub what: What,
}

/// The task that an agent works on.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its id.
    pub task: TaskId,
    /// `<queue>/<slug>`.
    pub place: String,
    /// Its title.
    pub title: String,
    /// The claim.
    pub claim: RecordId,
    /// The claim's depth: with its id, the fencing token.
    pub fence: u64,
    /// How often the task was claimed so far.
    pub attempt: u64,
}

/// What an agent tells.
#[derive(Debug, Clone)]
pub enum What {
    /// The command was started; others may take the task at that time, in milliseconds since boot.
    Started {
        /// When the lease ends unless it is renewed.
        ends_ms: u64,
    },
    /// The claim was renewed.
    Renewed {
        /// When the lease ends unless it is renewed.
        ends_ms: u64,
    },
    /// The command printed this line, among others.
    Printed(String),
    /// The command has ended, and the task is closed or back in the queue.
    Ended(Ending),
    /// Nothing is runnable; these tasks wait for others.
    Waiting(Vec<Blocked>),
    /// Nothing more will come; these tasks stay blocked.
    LeftBlocked(Vec<Blocked>),
    /// Something that may be wrong.
    Warning(String),
    /// This agent ends; why, where that was not asked for.
    Over(Option<String>),
}

/// What became of a task.
#[derive(Debug, Clone)]
pub struct Ending {
    /// Where the task is now.
    pub fate: Fate,
    /// How it came to that, in words.
    pub why: String,
    /// The exit code of the command, if it had one.
    pub exit: Option<i32>,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
    /// The report.
    pub report: Option<RecordId>,
    /// The worktree, if it was kept.
    pub kept: Option<PathBuf>,
}

/// Where a task went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Closed with success.
    Done,
    /// Closed without.
    Rejected,
    /// Back in the queue, since the command failed.
    Failed,
    /// Back in the queue, since the runner could not or was not to go on.
    Released,
    /// Back in the queue, since the command could not be started.
    NotStarted,
    /// Its lease was lost, or nothing could be recorded: a sweep sees to it, if nobody has yet.
    Lost,
}

impl Fate {
    /// As events name it.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Done => "done",
            Fate::Rejected => "rejected",
            Fate::Failed => "failed",
            Fate::Released => "released",
            Fate::NotStarted => "not-started",
            Fate::Lost => "lost",
        }
    }
}

impl Event {
    /// One line for people; `None` for what only a live display shows.
    pub fn text(&self) -> Option<String> {
        let place = self.task.as_ref().map_or("", |task| &task.place);
        let line = match &self.what {
            What::Started { .. } => {
                let task = self.task.as_ref()?;
                format!("started {place} (attempt {}, fence {}): {}", task.attempt, task.fence, task.title)
            }
            What::Ended(ending) => {
                let kept = ending.kept.as_ref().map_or(String::new(), |dir| format!("; kept {}", dir.display()));
                let (fate, why, took) = (ending.fate.name(), &ending.why, span(ending.duration_ms));
                format!("{fate} {place} after {took}: {why}{kept}")
            }
            What::Waiting(blocked) => format!("waits: {}", blocked_text(blocked)),
            What::LeftBlocked(blocked) => format!("leaves {}", blocked_text(blocked)),
            What::Over(Some(why)) => format!("gave up: {why}"),
            What::Renewed { .. } | What::Printed(_) | What::Warning(_) | What::Over(None) => return None,
        };
        Some(format!("{} {line}", self.agent))
    }

    /// One JSON object; `None` for what is no event of its own.
    pub fn json(&self) -> Option<Value> {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| map.insert(key.to_owned(), value);
        let name = match &self.what {
            What::Started { .. } => "started",
            What::Ended(ending) => ending.fate.name(),
            What::Waiting(_) => "waiting",
            What::LeftBlocked(_) => "left-blocked",
            What::Over(Some(_)) => "gave-up",
            What::Renewed { .. } | What::Printed(_) | What::Warning(_) | What::Over(None) => return None,
        };
        put("event", json!(name));
        put("agent", json!(self.agent));
        if let Some(task) = &self.task {
            put("task", json!(task.task));
            put("place", json!(task.place));
            put("title", json!(task.title));
            put("claim", json!(task.claim));
            put("fence", json!(task.fence));
            put("attempt", json!(task.attempt));
        }
        match &self.what {
            What::Ended(ending) => {
                put("why", json!(ending.why));
                put("exit", json!(ending.exit));
                put("signal", json!(ending.signal));
                put("duration_ms", json!(ending.duration_ms));
                put("report", json!(ending.report));
                put("kept", json!(ending.kept.as_ref().map(|dir| dir.display().to_string())));
            }
            What::Waiting(blocked) | What::LeftBlocked(blocked) => {
                let row = |blocked: &Blocked| {
                    let waits_for: Vec<String> = blocked.waits_for.iter().map(ToString::to_string).collect();
                    json!({"place": blocked.place.to_string(), "waits_for": waits_for})
                };
                put("blocked", blocked.iter().take(BLOCKED_NAMED).map(row).collect());
                put("total", json!(blocked.len()));
                put("truncated", json!(blocked.len() > BLOCKED_NAMED));
            }
            What::Over(why) => {
                put("why", json!(why));
            }
            _ => {}
        }
        Some(Value::Object(map))
    }
}

fn blocked_text(blocked: &[Blocked]) -> String {
    let row = |blocked: &Blocked| {
        let waits_for: Vec<String> = blocked.waits_for.iter().take(3).map(ToString::to_string).collect();
        let more = blocked.waits_for.len().saturating_sub(3);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}, since {}{more}", blocked.place, waits_for.join(", "))
    };
    let named: Vec<String> = blocked.iter().take(BLOCKED_NAMED).map(row).collect();
    let more = blocked.len().saturating_sub(BLOCKED_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{} blocked: {}{more}", tasks(blocked.len()), named.join("; "))
}

/// A number of tasks, in words.
fn tasks(number: usize) -> String {
    if number == 1 { "1 task".to_owned() } else { format!("{number} tasks") }
}

/// How an agent tells what it does.
#[derive(Debug, Clone)]
pub struct Teller {
    agent: AgentId,
    number: usize,
    task: Option<Arc<Subject>>,
    events: Sender<Event>,
}

impl Teller {
    /// For an agent.
    pub fn new(agent: AgentId, number: usize, events: Sender<Event>) -> Teller {
        Teller { agent, number, task: None, events }
    }

    /// For its work on a task.
    pub fn about(&self, task: Subject) -> Teller {
        Teller { task: Some(Arc::new(task)), ..self.clone() }
    }

    /// Tells something.
    pub fn say(&self, what: What) {
        let (agent, task) = (self.agent.clone(), self.task.clone());
        let _nobody_may_listen = self.events.send(Event { agent, number: self.number, task, what });
    }
}
