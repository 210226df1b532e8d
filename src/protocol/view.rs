//! The JSON of records and states, everywhere it is printed (design, section 3; commands.md, "Shapes").
//!
//! The names are fixed: other tools read them. Absent values are absent, never null, but in `state`, whose
//! readers want to see that there is no holder. And what people are told wherever they are told of a record.

use serde_json::{Map, Value, json};

use super::apply::SKIPPED;
use super::record::{Content, Heartbeat, Mark, Record, Report, Status, Task};
use super::refusal::Wait;
use super::state::TaskState;
use crate::id::RecordId;

/// A time in seconds since 1970, as RFC 3339 in UTC.
pub fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// How many lines of a verifier's summary people are shown.
const SUMMARY_SHOWN: usize = 6;

/// What the verifier of a task said, for people, line by line: which, how it ended, and the beginning of its summary.
/// Nothing where a record is no status that tells of one.
pub fn verdict(record: &Record) -> Vec<String> {
    let verification = match &record.content {
        Content::Status(status) => status.verification.as_ref(),
        _ => None,
    };
    let Some(verification) = verification else { return Vec::new() };
    let ended = match verification.exit {
        SKIPPED => "skipped".to_owned(),
        exit => format!("exit {exit}"),
    };
    let (first, more) = match verification.verifier.trim().split_once('\n') {
        Some((first, _)) => (first, " …"),
        None => (verification.verifier.trim(), ""),
    };
    let mut lines = vec![format!("verifier: {first}{more} → {ended}")];
    let summary: Vec<&str> = verification.summary.iter().flat_map(|summary| summary.lines()).collect();
    lines.extend(summary.iter().take(SUMMARY_SHOWN).map(|line| format!("  {line}").trim_end().to_owned()));
    if summary.len() > SUMMARY_SHOWN {
        lines.push(format!("  … {} more lines, which --json has", summary.len() - SUMMARY_SHOWN));
    }
    lines
}

/// Sets a key when there is a value for it.
fn put(map: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), value.into());
    }
}

fn put_flag(map: &mut Map<String, Value>, key: &str, value: bool) {
    put(map, key, value.then_some(true));
}

/// One record as JSON. `attachments` are the names of a report's files.
pub fn record(id: RecordId, record: &Record, attachments: &[String]) -> Value {
    let mut attributes = Map::new();
    let mut links = Map::new();
    let hex = |id: Option<RecordId>| id.map(|id| id.to_string());
    put(&mut links, "task", record.links.task.map(|task| task.to_string()));
    let status_key = if matches!(record.content, Content::Status(_)) { "prevStatus" } else { "claimStatus" };
    put(&mut links, status_key, hex(record.links.status));
    put(&mut links, "prevReport", hex(record.links.report));
    put(&mut links, "prevHeartbeat", hex(record.links.heartbeat));

    let mut title = None;
    match &record.content {
        Content::Task(task) => {
            title = Some(&task.title);
            task_attributes(task, &mut attributes);
            put(&mut links, "parentTask", task.parent.map(|parent| parent.to_string()));
            put(&mut links, "spawnedAt", hex(task.spawned_at));
            if !task.depends_on.is_empty() {
                links.insert("dependsOn".to_owned(), json!(task.depends_on));
            }
        }
        Content::Status(status) => {
            status_attributes(record, status, &mut attributes);
            put(&mut links, "proof", hex(status.proof));
        }
        Content::Report(report) => {
            title = Some(&report.title);
            report_attributes(record, report, attachments, &mut attributes);
        }
        Content::Heartbeat(beat) => heartbeat_attributes(record, beat, &mut attributes),
    }

    let mut map = Map::new();
    map.insert("type".to_owned(), json!(record.content.kind()));
    map.insert("sha".to_owned(), json!(id));
    map.insert("seq".to_owned(), json!(record.seq));
    map.insert("created_at".to_owned(), json!(time(record.at)));
    put(&mut map, "title", title.cloned());
    put(&mut map, "body", record.body.clone());
    map.insert("attributes".to_owned(), Value::Object(attributes));
    map.insert("links".to_owned(), Value::Object(links));
    Value::Object(map)
}

fn task_attributes(task: &Task, map: &mut Map<String, Value>) {
    map.insert("queue".to_owned(), json!(task.queue));
    map.insert("slug".to_owned(), json!(task.slug));
    map.insert("priority".to_owned(), json!(task.priority.get()));
    map.insert("labels".to_owned(), json!(task.labels));
    put(map, "verifier", task.verifier.clone());
    put_flag(map, "sticky", task.sticky);
    put(map, "workdir", task.workdir.clone());
    put(map, "ttl_ms", task.ttl.map(|ttl| ttl.ms()));
    put(map, "max_attempts", task.max_attempts);
}

fn status_attributes(record: &Record, status: &Status, map: &mut Map<String, Value>) {
    map.insert("status".to_owned(), json!(status.phase.as_str()));
    map.insert("agent".to_owned(), json!(record.agent));
    map.insert("attempt".to_owned(), json!(status.attempt));
    map.insert("reclaims".to_owned(), json!(status.reclaims));
    put(map, "context_id", status.context.as_ref().map(|context| context.as_str().to_owned()));
    put(map, "ttl_ms", status.ttl.map(|ttl| ttl.ms()));
    put(map, "reason", status.reason.clone());
    match status.mark {
        None => {}
        Some(Mark::Reclaimed) => {
            put_flag(map, "reclaimed", true);
            map.insert("reclaimer".to_owned(), json!(record.agent));
        }
        Some(Mark::Released) => put_flag(map, "released", true),
        Some(Mark::Cancelled) => {
            put_flag(map, "cancelled", true);
            map.insert("cancelled_by".to_owned(), json!(record.agent));
            put(map, "cancel_reason", status.reason.clone());
        }
        Some(Mark::Replanned) => put_flag(map, "replanned", true),
    }
    put(map, "replan_of", status.replan_of.map(|task| task.to_string()));
    put(map, "superseded_by", status.superseded_by.map(|task| task.to_string()));
    if let Some(verification) = &status.verification {
        map.insert("verifier".to_owned(), json!(verification.verifier));
        map.insert("verifier_exit".to_owned(), json!(verification.exit));
        put(map, "verifier_summary", verification.summary.clone());
    }
}

fn report_attributes(record: &Record, report: &Report, attachments: &[String], map: &mut Map<String, Value>) {
    map.insert("agent".to_owned(), json!(record.agent));
    put(map, "commit", report.commit.map(|commit| commit.to_string()));
    put_flag(map, "synthetic", report.synthetic);
    map.insert("attachments".to_owned(), json!(attachments));
}

fn heartbeat_attributes(record: &Record, beat: &Heartbeat, map: &mut Map<String, Value>) {
    map.insert("agent".to_owned(), json!(record.agent));
    put_flag(map, "preempt", beat.preempt);
    put(map, "progress", beat.progress.clone());
}

/// What only the moment of reading knows about a task.
#[derive(Debug, Clone, Default)]
pub struct Moment {
    /// The age of the tip, in milliseconds, as far as it is known.
    pub age_ms: Option<u64>,
    /// What is left of the lease, in milliseconds; while the task is held.
    pub lease_left_ms: Option<u64>,
    /// What it waits for; while it is new.
    pub blocked_by: Vec<Wait>,
}

/// The state of a task as JSON.
pub fn state(state: &TaskState, moment: &Moment) -> Value {
    let claim = state.claim();
    let status = state.status.as_ref().map(|at| &at.status);
    json!({
        "status": state.phase().map(|phase| phase.as_str()),
        "holder": claim.as_ref().map(|claim| &claim.holder),
        "claim": claim.as_ref().map(|claim| claim.id),
        "fence": claim.as_ref().map(|claim| claim.seq),
        "attempt": status.map(|status| status.attempt),
        "reclaims": status.map(|status| status.reclaims),
        "age_ms": moment.age_ms,
        "lease_left_ms": moment.lease_left_ms,
        "context_id": state.context(),
        "blocked_by": moment.blocked_by.iter().map(|wait| wait.on.named()).collect::<Vec<_>>(),
    })
}
