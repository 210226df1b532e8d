//! `pm fence`: ask for leave just before an outside effect.

use serde_json::json;

use super::{ClaimArgs, TaskArgs, Watch};
use crate::config::duration;
use crate::error::{Error, Result};
use crate::ledger::Reach;
use crate::ledger::resolve::place;
use crate::output::span;
use crate::protocol::lease;
use crate::protocol::record::Ttl;
use crate::session::Session;

/// Ask whether a claim still holds its task
///
/// For scripts that are about to do what cannot be taken back: deploy, publish, send. Exit 0 means that this very claim
/// holds the task, and that so much of its lease is left; 12 that it does not: then do nothing. What is left is counted
/// from the newest heartbeat. The effect has to be over before the lease is: --deadline says how long it may take.
/// Where a remote decides (pm.remote), it is asked; 20 means that it could not be, and that is no leave.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    claim: ClaimArgs,
    /// How much of the lease must be left, such as 30, 30s, 1500ms, 2m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: Option<Ttl>,
}

impl Args {
    /// Asks.
    ///
    /// # Errors
    /// 12 where the claim gives no leave; 2 where none is named; 16, 17.
    pub fn run(&self, session: &Session) -> Result<()> {
        let no_claim = || Error::Usage("no claim is named: give --claim, or set $PM_CLAIM".to_owned());
        let claim = self.claim.named()?.ok_or_else(no_claim)?;
        let ledger = session.finder()?;
        let found = self.task.find(session, &ledger)?;
        let state = match ledger.reach {
            // What has not reached the authority renews nothing.
            Reach::Through(authority) => authority.read(&ledger, &found.name)?.ok_or_else(|| Error::UnknownTask {
                asked: place(&found.state).to_string(),
                because: "the authority has no such task, and a provisional claim gives no fence".to_owned(),
                candidates: Vec::new(),
            })?,
            Reach::Provisional => {
                return Err(Error::Usage("a provisional claim gives no fence: ask without --offline".to_owned()));
            }
            Reach::Alone => found.state,
        };
        let (state, watch) = (&state, Watch::new(session));
        let needed_ms = self.deadline.map_or(0, Ttl::ms);
        let left_ms = lease::fence(state, &session.agent, claim, watch.age(&found.name, state), watch.ttl, needed_ms)
            .map_err(|refusal| Error::Refused { task: state.id, place: place(state), refusal })?;
        let fence = state.claim().map(|claim| claim.seq);
        session.out.result(
            || json!({"task": state.id, "claim": claim, "fence": fence, "lease_left_ms": left_ms}),
            || format!("{} is held by this claim, for {} more", place(state), span(left_ms)),
        );
        Ok(())
    }
}
