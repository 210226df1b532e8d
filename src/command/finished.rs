//! `pm finished`: close a task.

use serde_json::json;

use super::{ClaimArgs, TaskArgs, appended_json, print_record};
use crate::error::Result;
use crate::id::Oid;
use crate::ledger::find::Found;
use crate::ledger::resolve::place;
use crate::protocol::decide::Intent;
use crate::protocol::record::Content;
use crate::protocol::text::checked_value;
use crate::session::Session;
use crate::sync::delivery;

/// Close a task, with its last report as the proof
///
/// The proof must have been made under this very claim: a report of an earlier attempt proves nothing (exit 7).
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    claim: ClaimArgs,
    /// Close it without success
    #[arg(long)]
    rejected: bool,
    /// A note for the audit trail
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Also move this branch forwards to the commit that the last report names, else to HEAD: at the authority if there is
    /// one, else here. Both happen, or neither: 23 means that the branch has moved on or may not be moved; rebase, report
    /// the new commit, and again
    #[arg(long, value_name = "BRANCH", conflicts_with = "rejected")]
    deliver: Option<String>,
}

impl Args {
    /// Records it.
    ///
    /// # Errors
    /// 6, 7, 12, 16, 17; 23 where the branch has moved on.
    pub fn run(&self, session: &Session) -> Result<()> {
        let note = self.note.as_deref().map(|text| checked_value("the note", text)).transpose()?;
        let claim = self.claim.named()?;
        let found = self.task.find(session, &session.finder()?)?;
        let intent = Intent::Finish { claim, done: !self.rejected, note, verified: None };
        let ledger = session.writer()?;
        let (appended, delivered) = match &self.deliver {
            Some(branch) => {
                let commit = work(session, &found)?;
                (delivery::deliver(session, &ledger, found, intent, branch, commit)?, Some((branch, commit)))
            }
            None => (ledger.append(found, intent)?, None),
        };
        print_record(
            &session.out,
            &appended,
            || {
                let mut value = appended_json(&appended);
                if let Some((branch, commit)) = delivered {
                    value["delivered"] = json!({"branch": branch, "commit": commit.to_string()});
                }
                value
            },
            || {
                let how = if self.rejected { "rejected" } else { "finished" };
                let along = delivered.map_or(String::new(), |(branch, _)| format!(", delivered to {branch}"));
                format!("{how} {}{along}", place(&appended.state))
            },
        );
        Ok(())
    }
}

/// The commit that is delivered: what was proven, if the report says which, else what is checked out.
fn work(session: &Session, found: &Found) -> Result<Oid> {
    let report = found.state.report.map(|report| session.ledger().record(&found.name, report.id)).transpose()?;
    let named = report.and_then(|record| match record.content {
        Content::Report(report) => report.commit,
        _ => None,
    });
    match named {
        Some(commit) => Ok(commit),
        None => Ok(session.store.resolve_commit("HEAD")?),
    }
}
