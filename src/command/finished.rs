//! `pm finished`: close a task.

use super::{ClaimArgs, TaskArgs, print_appended};
use crate::error::Result;
use crate::ledger::resolve::place;
use crate::protocol::decide::Intent;
use crate::protocol::text::checked_value;
use crate::session::Session;

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
}

impl Args {
    /// Records it.
    ///
    /// # Errors
    /// 6, 7, 12, 16, 17.
    pub fn run(&self, session: &Session) -> Result<()> {
        let note = self.note.as_deref().map(|text| checked_value("the note", text)).transpose()?;
        let claim = self.claim.named()?;
        let found = self.task.find(session, &session.finder()?)?;
        let appended = session.writer()?.append(found, Intent::Finish { claim, done: !self.rejected, note })?;
        print_appended(&session.out, &appended, || {
            let how = if self.rejected { "rejected" } else { "finished" };
            format!("{how} {}", place(&appended.state))
        });
        Ok(())
    }
}
