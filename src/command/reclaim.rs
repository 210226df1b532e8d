//! `pm reclaim`: the operator's override.

use super::cancel::{steps_json, steps_text, told};
use super::{TaskArgs, print_appended};
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::id::RecordId;
use crate::ledger::resolve::place;
use crate::protocol::decide::Intent;
use crate::protocol::record::Phase;
use crate::protocol::text::checked_value;
use crate::session::Session;

/// Take a task from its holder, or from the context that it is bound to, by an operator's word
///
/// Asks for no TTL. Whoever holds the task loses it; a sticky task that nobody holds is freed of its context, so that
/// another one can claim it. With --if-tip it is a supervisor's own sweep of one task: it succeeds only if nothing was
/// recorded since that tip was observed.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Also the claimed tasks below it, from above to below
    #[arg(long, conflicts_with = "if_tip")]
    cascade: bool,
    /// The tip that was observed; refused (exit 8) if the task has moved on
    #[arg(long, value_name = "SHA")]
    if_tip: Option<RecordId>,
}

impl Args {
    /// Records it.
    ///
    /// # Errors
    /// 6, 8, 16, 17. A task below that could not be reclaimed is part of the result, and its exit code the command's.
    pub fn run(&self, session: &Session) -> Result<ExitCode> {
        let reason = self.reason.as_deref().map(|text| checked_value("the reason", text)).transpose()?;
        let found = self.task.find(session, &session.finder()?)?;
        if self.cascade {
            let steps = session.writer()?.reclaim_all(&found, reason.as_deref())?;
            session.out.result(|| steps_json(&steps), || steps_text(&steps, "reclaimed"));
            return Ok(told(&session.out, &steps));
        }
        let intent = match self.if_tip {
            Some(observed) => Intent::Sweep { observed, reason, max_attempts: session.config.max_attempts },
            None => Intent::Reclaim { status: None, reason },
        };
        let holder = found.state.claim().map(|claim| claim.holder.to_string());
        let from = holder.or_else(|| found.state.context().map(|context| format!("context {context}")));
        let appended = session.writer()?.append(found, intent)?;
        print_appended(&session.out, &appended, || {
            let from = from.map_or(String::new(), |from| format!(" from {from}"));
            let rejected = appended.state.phase() == Some(Phase::Rejected);
            let then = if rejected { "; rejected after too many attempts" } else { "" };
            format!("reclaimed {}{from}{then}", place(&appended.state))
        });
        Ok(ExitCode::Done)
    }
}
