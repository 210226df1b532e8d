//! `pm release`: give a task back.

use super::{ClaimArgs, TaskArgs, print_appended};
use crate::error::Result;
use crate::ledger::resolve::place;
use crate::protocol::decide::Intent;
use crate::protocol::text::checked_value;
use crate::session::Session;

/// Give a task back
///
/// The task is new again, and free for anybody.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    claim: ClaimArgs,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Args {
    /// Records it.
    ///
    /// # Errors
    /// 6, 12, 16, 17.
    pub fn run(&self, session: &Session) -> Result<()> {
        let reason = self.reason.as_deref().map(|text| checked_value("the reason", text)).transpose()?;
        let claim = self.claim.named()?;
        let found = self.task.find(session, &session.finder()?)?;
        let appended = session.writer()?.append(found, Intent::Release { claim, reason })?;
        print_appended(&session.out, &appended, || format!("released {}", place(&appended.state)));
        Ok(())
    }
}
