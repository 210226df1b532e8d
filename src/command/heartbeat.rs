//! `pm heartbeat`: keep a claim alive.

use super::{ClaimArgs, TaskArgs, print_appended};
use crate::error::Result;
use crate::ledger::resolve::place;
use crate::protocol::decide::Intent;
use crate::protocol::text::checked_value;
use crate::session::Session;

/// Keep a claim alive
///
/// Send one every third of the lease. Exit 12 means that the claim is lost: stop working on the task. Exit 8, 20, 21
/// or 22 means: try again, with a pause, for as long as the lease lasts.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    claim: ClaimArgs,
    /// What is being done, in one line; it stays in the history for ever
    #[arg(long, value_name = "TEXT")]
    progress: Option<String>,
    /// Where a remote decides: record it here only. It renews nothing until a sync or a poller of this machine has brought
    /// it there
    #[arg(long)]
    local: bool,
}

impl Args {
    /// Records it.
    ///
    /// # Errors
    /// 6, 12, 16, 17; 8, 20, 21 and 22 to be tried again.
    pub fn run(&self, session: &Session) -> Result<()> {
        let progress = self.progress.as_deref().map(|text| checked_value("the progress", text)).transpose()?;
        let claim = self.claim.named()?;
        let found = self.task.find(session, &if self.local { session.ledger() } else { session.finder()? })?;
        let ledger = if self.local { session.provisional_writer() } else { session.writer()? };
        let appended = ledger.append(found, Intent::Heartbeat { claim, progress })?;
        print_appended(&session.out, &appended, || {
            let how = if appended.coalesced { "another heartbeat of this claim was faster on" } else { "heartbeat on" };
            format!("{how} {} (seq {})", place(&appended.state), appended.state.seq)
        });
        Ok(())
    }
}
