//! `pm executing`: claim a task.

use serde_json::json;

use super::{TaskArgs, print_record};
use crate::config::duration;
use crate::error::Result;
use crate::ledger::append::Appended;
use crate::ledger::resolve::place;
use crate::output::span;
use crate::protocol::decide::Intent;
use crate::protocol::record::Ttl;
use crate::protocol::state::TaskState;
use crate::protocol::view;
use crate::session::Session;

/// Claim a task
///
/// Exactly one of many racing claims wins. Keep the claim alive with `pm heartbeat` every third of its lease; a
/// worker that is silent longer than its lease can be swept, and then can neither record nor finish anything.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    /// The lease to ask for, such as 90, 90s, 5m: no sweep reclaims the task sooner
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Ttl>,
}

impl Args {
    /// Claims it.
    ///
    /// # Errors
    /// 6, 8, 11, 16, 17.
    pub fn run(&self, session: &Session) -> Result<()> {
        let found = self.task.find(session, &session.finder()?)?;
        let appended = session.writer()?.append(found, Intent::Claim { ttl: self.ttl })?;
        let (id, record) = appended.last();
        print_record(
            &session.out,
            &appended,
            || {
                let mut value = view::record(*id, record, &[]);
                if !appended.provisional {
                    value["fence"] = json!(record.seq);
                }
                value["lease_ms"] = json!(lease_ms(session, &appended.state));
                value
            },
            || claimed_text(session, &appended),
        );
        Ok(())
    }
}

/// How long the claim lasts without a new record.
pub fn lease_ms(session: &Session, state: &TaskState) -> u64 {
    state.claim().and_then(|claim| claim.ttl).unwrap_or(session.config.ttl).ms()
}

/// A claim for people, with the line to export.
pub fn claimed_text(session: &Session, appended: &Appended) -> String {
    let state = &appended.state;
    let (claim, record) = appended.last();
    let lease = span(lease_ms(session, state));
    let fence = if appended.provisional { "no fence".to_owned() } else { format!("fence {}", record.seq) };
    format!(
        "claimed {} as {} ({fence}, lease {lease})\n{}\nexport PM_CLAIM={claim}",
        place(state),
        record.agent,
        state.task.title,
    )
}
