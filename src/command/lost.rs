//! `pm lost`: what lost at a sync, and why.

use serde_json::{Value, json};

use super::TaskArgs;
use crate::error::Result;
use crate::id::{LOST, Queue, RecordId, RefName};
use crate::session::Session;
use crate::sync::lost::{self, Account};

/// List what was recorded here and lost at a sync, and why
///
/// Where this machine and the authority went on with one task apart, the authority's records stay. What was recorded here
/// is kept under refs/pm-lost/<queue>/<slug>/<tip>, for ever; `git log` shows it. Records that were put on top of the
/// authority's are named with the record that stands for them.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only of this task: its id, <queue>/<slug>, a slug in the queue, or the first 4 or more digits of its id
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// The queue that a bare slug is looked up in; without a task, only of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<Queue>,
}

/// One tip that lost.
struct Entry {
    name: RefName,
    place: String,
    tip: RecordId,
    account: Option<Account>,
}

impl Args {
    /// Lists them.
    ///
    /// # Errors
    /// 17.
    pub fn run(&self, session: &Session) -> Result<()> {
        let prefix = match (&self.task, &self.queue) {
            (Some(task), queue) => {
                let task = TaskArgs { task: task.clone(), queue: queue.clone() };
                task.find(session, &session.ledger())?.name.lost_prefix()
            }
            (None, Some(queue)) => {
                format!("{LOST}{}", RefName::queue_prefix(queue).trim_start_matches(crate::id::TASKS))
            }
            (None, None) => LOST.to_owned(),
        };
        let mut entries = Vec::new();
        for (name, tip) in session.ledger().store.tips(&prefix)? {
            let tip = RecordId(tip?);
            let place = name.as_str().trim_start_matches(LOST).rsplit_once('/').map_or("", |(place, _)| place);
            let account = lost::account(&session.state_dir(), tip);
            entries.push(Entry { place: place.to_owned(), name, tip, account });
        }
        entries.sort_by(|a, b| b.at().cmp(a.at()));
        session.out.result(
            || entries.iter().map(Entry::to_json).collect(),
            || match &entries[..] {
                [] => "nothing was lost".to_owned(),
                entries => entries.iter().map(Entry::to_text).collect::<Vec<_>>().join("\n"),
            },
        );
        Ok(())
    }
}

impl Entry {
    fn at(&self) -> &str {
        self.account.as_ref().map_or("", |account| &account.at)
    }

    fn to_json(&self) -> Value {
        let mut value = json!({"ref": self.name, "place": self.place, "tip": self.tip});
        if let Some(account) = &self.account {
            value["at"] = json!(account.at);
            value["remote"] = json!(account.remote);
            value["won"] = json!(account.won);
            value["records"] = json!(account.records);
        }
        value
    }

    fn to_text(&self) -> String {
        let Some(account) = &self.account else {
            return format!("{}  tip {}: why it lost was not kept", self.place, self.tip.0.short(12));
        };
        let mut lines = vec![format!(
            "{}  {} (tip {}) lost to {}",
            account.at,
            self.place,
            self.tip.0.short(12),
            account
                .won
                .as_deref()
                .map_or("other records".to_owned(), |won| format!("{:.12} at {}", won, account.remote)),
        )];
        lines.extend(account.records.iter().map(|record| {
            let fate = match (&record.kept_as, &record.why) {
                (Some(kept), _) => format!("kept as {kept:.12}"),
                (None, Some(why)) => why.clone(),
                (None, None) => "lost".to_owned(),
            };
            format!("  {:.12}  {} by {}: {fate}", record.record, record.what, record.agent)
        }));
        lines.join("\n")
    }
}
