//! The subcommands, one file each: its arguments, whose doc comments are the manual, and its `run`.
//!
//! Here is only what several of them share: how a task and a claim are named, and how tasks are listed.

pub mod bulk_plan;
pub mod cancel;
pub mod completions;
pub mod context_id;
pub mod demo;
pub mod doctor;
pub mod executing;
pub mod fence;
pub mod finished;
pub mod graph;
pub mod heartbeat;
pub mod hook;
pub mod init;
pub mod list;
pub mod log;
pub mod lost;
pub mod man;
pub mod next;
pub mod owned;
pub mod plan;
pub mod poll;
pub mod prime;
pub mod pull;
pub mod queues;
pub mod reclaim;
pub mod release;
pub mod repair;
pub mod replan;
pub mod report;
pub mod show;
pub mod status;
pub mod sweep;
pub mod sync;
pub mod verifier_guard;
pub mod verify;
pub mod wait;
pub mod work;
pub mod work_child;

use std::io::Read;
use std::path::Path;

use serde_json::{Value, json};

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::id::{Queue, RecordId, RefName};
use crate::ledger::Ledger;
use crate::ledger::append::Appended;
use crate::ledger::find::Found;
use crate::ledger::neighbours::Neighbours;
use crate::ledger::resolve::{Damage, Scan, place};
use crate::output::{Output, counted, few, span};
use crate::protocol::lease::{self, Age, Reading, TtlRule, Verdict};
use crate::protocol::record::Phase;
use crate::protocol::refusal::Wait;
use crate::protocol::state::TaskState;
use crate::protocol::view::{self, Moment};
use crate::session::{Session, env};
use crate::store::Store;

/// How many of the tasks that one waits for are named in its row of a table.
const WAITS_NAMED: usize = 4;

/// Which task is meant.
#[derive(Debug, clap::Args)]
pub struct TaskArgs {
    /// The task: its id, <queue>/<slug>, a slug in the queue, or the first 4 or more digits of its id
    #[arg(long, value_name = "TASK")]
    pub task: String,
    /// The queue that a bare slug is looked up in; else pm.queue, else default
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<Queue>,
}

impl TaskArgs {
    /// Finds the task.
    fn find(&self, session: &Session, ledger: &Ledger<'_>) -> Result<Found> {
        ledger.find(&self.task, &session.queue(self.queue.as_ref())?)
    }
}

/// Which claim is meant.
#[derive(Debug, clap::Args)]
pub struct ClaimArgs {
    /// The claim that proves the holder, whatever the agent id; else $PM_CLAIM
    #[arg(long, value_name = "SHA")]
    pub claim: Option<RecordId>,
}

impl ClaimArgs {
    /// The claim that was named, if one was.
    fn named(&self) -> Result<Option<RecordId>> {
        if self.claim.is_some() {
            return Ok(self.claim);
        }
        match env("PM_CLAIM")? {
            Some(claim) => claim.parse().map(Some).map_err(|error| Error::Usage(format!("$PM_CLAIM: {error}"))),
            None => Ok(None),
        }
    }
}

/// Free text from an option or a file.
#[derive(Debug, clap::Args)]
pub struct TextArgs {
    /// The text
    #[arg(long, value_name = "TEXT", conflicts_with = "text_file")]
    pub text: Option<String>,
    /// A file that holds the text, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub text_file: Option<String>,
}

impl TextArgs {
    /// The text of a task, raw.
    fn read(&self) -> Result<Option<String>> {
        self.read_else("keep it in the repository, and name it in a text instead")
    }

    /// The text, raw. `hint`: what to do with a file that is no text.
    fn read_else(&self, hint: &str) -> Result<Option<String>> {
        match (&self.text, &self.text_file) {
            (Some(text), _) => Ok(Some(text.clone())),
            (None, Some(file)) => read_text(file, hint).map(Some),
            (None, None) => Ok(None),
        }
    }
}

/// Reads a whole text file, or standard input for `-`. `hint`: what to do with one that is no text.
fn read_text(file: &str, hint: &str) -> Result<String> {
    let name = if file == "-" { "standard input" } else { file };
    String::from_utf8(read_bytes(file)?).map_err(|_| Error::Usage(format!("{name} is not UTF-8 text; {hint}")))
}

/// Reads a whole file, or standard input for `-`.
fn read_bytes(file: &str) -> Result<Vec<u8>> {
    if file == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(Error::io("reading standard input"))?;
        return Ok(bytes);
    }
    std::fs::read(file).map_err(|error| Error::Usage(format!("cannot read {file}: {error}")))
}

/// Prints the record that an append left behind.
fn print_appended(out: &Output, appended: &Appended, text: impl FnOnce() -> String) {
    print_record(out, appended, || appended_json(appended), text);
}

/// The record that an append left behind, as JSON.
fn appended_json(appended: &Appended) -> Value {
    let (id, record) = appended.last();
    let mut value = view::record(*id, record, &[]);
    if appended.coalesced {
        value["coalesced"] = json!(true);
    }
    value
}

/// Prints what an append is worth: with an authority that was not asked, it may still lose.
fn print_record(out: &Output, appended: &Appended, value: impl FnOnce() -> Value, text: impl FnOnce() -> String) {
    let value = || {
        let mut value = value();
        if appended.provisional {
            value["provisional"] = json!(true);
        }
        value
    };
    let text = || match appended.provisional {
        true => format!("{}\nprovisional: recorded here only; `pm sync` tells whether it holds", text()),
        false => text(),
    };
    out.result(value, text);
}

/// Names every task that cannot be read: on stderr, never in silence.
fn warn_damaged(out: &Output, damaged: &[Damage]) {
    for damage in damaged {
        out.warning(&damage.to_string());
    }
}

/// Where there are no tasks here, says where there may be some: a clone brings none by itself.
///
/// # Errors
/// Failures of the system.
fn hint_elsewhere(session: &Session, queue: Option<&Queue>, scan: &Scan) -> Result<()> {
    if queue.is_some() || !scan.tasks.is_empty() || !scan.damaged.is_empty() {
        return Ok(());
    }
    let (store, remotes) = (&session.store, session.store.remotes());
    let hint = match (&session.config.remote, &remotes[..]) {
        (Some(remote), _) if store.tips(&RefName::seen_prefix(remote))?.is_empty() => {
            format!("`pm sync` brings what {remote} has")
        }
        (None, [first, ..]) => {
            let remote = remotes.iter().find(|remote| *remote == "origin").unwrap_or(first);
            format!("if {remote} has some, `pm init --remote {remote}` and then `pm sync` bring them: a clone does not")
        }
        (Some(_), _) | (None, []) => return Ok(()),
    };
    session.out.note(&format!("no tasks here; {hint}"));
    Ok(())
}

/// The damaged tasks in a JSON listing.
fn damaged_json(damaged: &[Damage]) -> Vec<Value> {
    damaged.iter().map(|damage| json!({"ref": damage.name, "found": damage.error.to_string()})).collect()
}

/// Judges leases as of now, from this machine's clock and what it saw before; writes nothing.
struct Watch {
    ttl: TtlRule,
    observations: crate::ledger::observations::Observations,
    now: Option<Reading>,
}

impl Watch {
    fn new(session: &Session) -> Watch {
        let dir = session.state_dir();
        Watch {
            ttl: TtlRule { default: session.config.ttl, force: false },
            observations: crate::ledger::observations::Observations::load(Path::new(&dir)),
            now: session.clock.monotonic().map(|now| Reading { start: now, end: now }),
        }
    }

    /// The age of a task's tip.
    fn age(&self, name: &crate::id::RefName, state: &TaskState) -> Age {
        let Some(now) = self.now else { return Age::JustSeen };
        let first_seen = self.observations.first_seen_ms(now.end.id, name, state.tip);
        lease::age(state.clock, now, first_seen)
    }

    /// The age of a task's tip where it is known, and the verdict over its claim if it has one.
    fn judge(&self, name: &crate::id::RefName, state: &TaskState) -> (Option<u64>, Option<Verdict>) {
        if self.now.is_none() {
            return (None, None);
        }
        let age = self.age(name, state);
        let known = (age != Age::JustSeen).then(|| age.ms());
        (known, state.claim().map(|claim| lease::judge(age, self.ttl.ttl(claim.ttl))))
    }

    /// What only now is known about a task.
    fn moment(&self, name: &crate::id::RefName, state: &TaskState, blocked_by: Vec<Wait>) -> Moment {
        let (age_ms, verdict) = self.judge(name, state);
        let lease_left_ms = verdict.map(|verdict| match verdict {
            Verdict::Fresh { left_ms } | Verdict::Observing { decides_in_ms: left_ms } => left_ms,
            Verdict::Stale => 0,
        });
        Moment { age_ms, lease_left_ms, blocked_by }
    }
}

/// A task in a listing.
fn list_entry(state: &TaskState, moment: &Moment) -> Value {
    json!({
        "task": state.id,
        "queue": state.task.queue,
        "slug": state.task.slug,
        "title": state.task.title,
        "priority": state.task.priority.get(),
        "labels": state.task.labels,
        "state": view::state(state, moment),
        "updated_at": view::time(state.at),
    })
}

/// A task in a table: phase, place, priority, holder and age, title.
fn list_row(out: &Output, state: &TaskState, moment: &Moment, width: usize) -> String {
    let held = match held(state, moment) {
        Some(held) => format!("  [{held}]"),
        None if !moment.blocked_by.is_empty() => {
            format!("  [waits for {}]", few(&waits(&moment.blocked_by, None), WAITS_NAMED))
        }
        None => String::new(),
    };
    let place = place(state).to_string();
    format!("{} {place:<width$}  p{}  {}{held}", out.phase(state.phase()), state.task.priority.get(), state.task.title)
}

/// Who holds a task, and how long ago its newest record was written.
fn held(state: &TaskState, moment: &Moment) -> Option<String> {
    let holder = state.claim()?.holder;
    Some(moment.age_ms.map_or(holder.to_string(), |age| format!("{holder}, {} ago", span(age))))
}

/// What a task waits for, each with how it stands.
fn waits(blocked_by: &[Wait], here: Option<&Queue>) -> Vec<String> {
    blocked_by.iter().map(|wait| wait.told(here)).collect()
}

/// The width of the widest place among some tasks.
fn place_width<'a>(states: impl Iterator<Item = &'a TaskState>) -> usize {
    states.map(|state| place(state).to_string().len()).max().unwrap_or(0)
}

/// What a task by itself waits for; nothing unless it is new. What cannot be read is waited for.
fn blocked_by(ledger: &Ledger<'_>, state: &TaskState) -> Result<Vec<Wait>> {
    if state.phase() != Some(Phase::New) {
        return Ok(Vec::new());
    }
    let mut neighbours = Neighbours::new(ledger, &[]);
    let others = neighbours.before_a_claim(state);
    neighbours.finish()?;
    Ok(others.waits())
}

/// Says how tasks go on that wait for what will not come by itself.
fn hint_for_ever<'a>(out: &Output, rows: impl Iterator<Item = (&'a TaskState, &'a Moment)>) {
    let for_ever = |moment: &'a Moment| moment.blocked_by.iter().find(|wait| wait.is_for_ever());
    let mut stuck = rows.filter_map(|(state, moment)| Some((state, for_ever(moment)?)));
    let Some((state, wait)) = stuck.next() else { return };
    let waits = match stuck.count() {
        0 => format!("{} waits", place(state)),
        others => format!("{} and {} wait", place(state), counted(others, "other")),
    };
    out.note(&format!(
        "{waits} for what will not be done by itself, such as {}; {}",
        wait.told(None),
        wait.way_out(&place(state).to_string())
    ));
}
