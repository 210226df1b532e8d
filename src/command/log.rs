//! `pm log`: the audit trail.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;

use super::{Damage, warn_damaged};
use crate::config::duration;
use crate::error::{Error, Result};
use crate::id::{Queue, RecordId, RefName, shown};
use crate::ledger::Ledger;
use crate::ledger::resolve::prefix;
use crate::protocol::codec::subject;
use crate::protocol::record::{Content, Record};
use crate::protocol::view;
use crate::session::Session;
use crate::store::Store;

/// How often `--follow` looks for new records.
const FOLLOW_PERIOD: Duration = Duration::from_millis(300);

/// Tell the audit trail, newest first
///
/// The same history is in plain git: `git log refs/pm/tasks/<queue>/<slug>`. To read the trailers with git, use
/// `git interpret-trailers --parse --no-divider`; without --no-divider a line `---` in a text hides them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One task: its id, <queue>/<slug>, a slug in the queue, or the first 4 or more digits of its id
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// The queue; else all queues
    #[arg(long, value_name = "QUEUE")]
    queue: Option<Queue>,
    /// Only records since then: 2026-11-29, 2026-11-29T20:15:03Z, or a duration ago such as 2h
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Keep printing new records, oldest first; with --json one value a line
    #[arg(long)]
    follow: bool,
    /// One line a record
    #[arg(long)]
    oneline: bool,
}

/// A record and where it stands.
struct Entry {
    name: RefName,
    id: RecordId,
    record: Record,
    /// The names of a report's files.
    attachments: Vec<String>,
}

impl Args {
    /// Tells it.
    ///
    /// # Errors
    /// 17; 2 for a time that cannot be read.
    pub fn run(&self, session: &Session) -> Result<()> {
        let since = self.since.as_deref().map(|text| parse_since(text, session.now())).transpose()?;
        let ledger = session.ledger();
        let mut warned = HashSet::new();
        let mut tips = self.tips(session, &ledger, &mut warned)?;
        let mut entries = Vec::new();
        let mut damaged = Vec::new();
        for (name, tip) in &tips {
            read(&ledger, name, *tip, None, &mut entries, &mut damaged)?;
        }
        warn_damaged(&session.out, &damaged);
        entries.retain(|entry| since.is_none_or(|since| entry.record.at >= since));
        entries.sort_by(|a, b| (b.record.at, b.record.seq, &b.name).cmp(&(a.record.at, a.record.seq, &a.name)));
        if !self.follow {
            session.out.result(
                || Value::Array(entries.iter().map(to_json).collect()),
                || entries.iter().map(|entry| self.text(entry)).collect::<Vec<_>>().join("\n"),
            );
            return Ok(());
        }
        entries.reverse();
        while self.print(session, &entries) {
            std::thread::sleep(FOLLOW_PERIOD);
            entries.clear();
            damaged.clear();
            for (name, tip) in self.tips(session, &ledger, &mut warned)? {
                let before = tips.insert(name.clone(), tip);
                if before != Some(tip) {
                    read(&ledger, &name, tip, before, &mut entries, &mut damaged)?;
                }
            }
            warn_damaged(&session.out, &damaged);
            entries.sort_by(|a, b| (a.record.at, a.record.seq, &a.name).cmp(&(b.record.at, b.record.seq, &b.name)));
        }
        Ok(())
    }

    /// The tips of the tasks that are wanted. A ref that holds none is warned about once.
    fn tips(
        &self,
        session: &Session,
        ledger: &Ledger<'_>,
        warned: &mut HashSet<RefName>,
    ) -> Result<HashMap<RefName, RecordId>> {
        if let Some(asked) = &self.task {
            let found = ledger.find(asked, &session.queue(self.queue.as_ref())?)?;
            return Ok(HashMap::from([(found.name, found.state.tip)]));
        }
        let mut tips = HashMap::new();
        for (name, tip) in session.store.tips(&prefix(self.queue.as_ref()))? {
            match tip {
                Ok(tip) => drop(tips.insert(name, RecordId(tip))),
                Err(error) => {
                    if warned.insert(name.clone()) {
                        session.out.warning(&format!("{name} was left out: {error}"));
                    }
                }
            }
        }
        Ok(tips)
    }

    /// Prints entries of a stream; `false` when nobody reads any more.
    fn print(&self, session: &Session, entries: &[Entry]) -> bool {
        entries.iter().all(|entry| {
            let line = if session.out.is_json() { to_json(entry).to_string() } else { self.text(entry) };
            session.out.raw(&format!("{line}\n"))
        }) && !session.out.reader_is_gone()
    }

    fn text(&self, entry: &Entry) -> String {
        let Entry { name, id, record, .. } = entry;
        let place = name.task().map_or_else(|_| name.to_string(), |(queue, slug)| format!("{queue}/{slug}"));
        let time = view::time(record.at);
        if self.oneline {
            return format!("{} {time} {place} {}", id.0.short(12), subject(record));
        }
        let mut lines = vec![
            format!("commit {id}"),
            format!("Task:   {place}"),
            format!("Author: {} <{}>", record.agent, record.email),
            format!("Date:   {time}"),
            String::new(),
            format!("    {}", subject(record)),
        ];
        let verdict = view::verdict(record);
        if !verdict.is_empty() {
            lines.push(String::new());
            lines.extend(verdict.iter().map(|line| format!("    {line}")));
        }
        if let Some(body) = &record.body {
            lines.push(String::new());
            lines.extend(body.lines().map(|line| format!("    {line}")));
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

/// Reads a chain from its tip down to (not including) `until`.
fn read(
    ledger: &Ledger<'_>,
    name: &RefName,
    tip: RecordId,
    until: Option<RecordId>,
    entries: &mut Vec<Entry>,
    damaged: &mut Vec<Damage>,
) -> Result<()> {
    let above = entries.len();
    let wrong = |commit, found| {
        let name = name.clone();
        Damage { name: name.clone(), error: Error::Damaged { name, commit, found } }
    };
    for row in ledger.chain(name, tip) {
        match row {
            Ok((id, _)) if Some(id) == until => break,
            Ok((id, record)) => {
                let own = match &record.content {
                    Content::Task(task) => RefName::of_task(&task.queue, &task.slug),
                    _ => name.clone(),
                };
                if own != *name {
                    // A chain under a second ref would tell one task's story twice.
                    entries.truncate(above);
                    damaged.push(wrong(id, format!("its chain belongs to {own}, this ref is a second one for it")));
                    break;
                }
                let attachments = match &record.content {
                    Content::Report(report) => {
                        report.attachments.map_or(Ok(Vec::new()), |t| ledger.store.file_names(t))
                    }
                    _ => Ok(Vec::new()),
                };
                let attachments = attachments.unwrap_or_else(|error| {
                    damaged.push(wrong(id, format!("its attachments cannot be read: {error}")));
                    Vec::new()
                });
                entries.push(Entry { name: name.clone(), id, record, attachments });
            }
            Err(error @ Error::Damaged { .. }) => damaged.push(Damage { name: name.clone(), error }),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn to_json(entry: &Entry) -> Value {
    view::record(entry.id, &entry.record, &entry.attachments)
}

/// A point in time, in seconds since 1970.
fn parse_since(text: &str, now: i64) -> Result<i64> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(time.as_second());
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>()
        && let Ok(time) = jiff::tz::TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0))
    {
        return Ok(time.as_second());
    }
    match duration(text) {
        Ok(ago) => Ok(now.saturating_sub(i64::try_from(ago.ms() / 1000).unwrap_or(i64::MAX))),
        Err(_) => {
            Err(Error::Usage(format!("'{}' is no time such as 2026-11-29, 2026-11-29T20:15:03Z or 2h", shown(text))))
        }
    }
}
