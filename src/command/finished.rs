//! `pm finished`: close a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::executing::lease_ms;
use super::{ClaimArgs, TaskArgs, appended_json, print_record};
use crate::clock::Clock;
use crate::config::duration;
use crate::error::{Error, Result};
use crate::id::{Oid, RecordId, RefName};
use crate::ledger::Ledger;
use crate::ledger::append::refused;
use crate::ledger::find::Found;
use crate::ledger::resolve::{place, prefix};
use crate::protocol::apply::is_reason;
use crate::protocol::codec::subject;
use crate::protocol::decide::{Intent, Verified};
use crate::protocol::record::{Content, Phase, Record, Ttl};
use crate::protocol::refusal::Refusal;
use crate::protocol::state::TaskState;
use crate::protocol::text::checked_value;
use crate::session::Session;
use crate::signals::heeded;
use crate::sync::delivery;
use crate::verifier::case::{Case, Room, is_permitted};

/// Close a task, with its last report as the proof
///
/// The proof must have been made under this very claim: a report of an earlier attempt proves nothing (exit 7). A task with
/// a verifier is done only if that passes on this report (exit 9); the claim is kept alive while it runs. Commands that come
/// out of the ledger run only where `git config pm.allowVerifier` names them. An LLM command line, `$PM_LLM_CLI`, is split
/// at white space, whatever quotes it holds. A task with children can be closed once they are settled (exit 14).
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
    /// Close it as done without asking its verifier; --note says why, in 10 characters or more
    #[arg(long, conflicts_with = "rejected")]
    skip_verifier: bool,
    /// How long the verifier may take, such as 90, 90s, 5m; then it is ended, with all that it started
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    verifier_timeout: Ttl,
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
    /// 6, 7, 9, 10, 12, 13, 14, 16, 17; 23 where the branch has moved on.
    pub fn run(&self, session: &Session) -> Result<()> {
        let note = self.note.as_deref().map(|text| checked_value("the note", text)).transpose()?;
        let claim = self.claim.named()?;
        let found = self.task.find(session, &session.finder()?)?;
        let ledger = session.writer()?;
        let is_verified = found.state.task.verifier.is_some() && !self.rejected;
        let queue = prefix(Some(&found.state.task.queue));
        let found = if is_verified { ledger.caught_up(&found, &queue)? } else { found };
        let mut intent = Intent::Finish { claim, done: !self.rejected, note, verified: None };
        if let Some(case) = Case::of(&ledger, &found)?.filter(|_| is_verified) {
            let verified = self.verify(session, &ledger, &found, &intent, &case)?;
            if let Intent::Finish { verified: pinned, .. } = &mut intent {
                *pinned = Some(verified);
            }
        } else if self.skip_verifier && found.state.claim().is_some() {
            // Of a task that nobody holds the append tells: perhaps this very command has closed it, and was not answered.
            ledger.allows(&found, &intent)?;
            require_reason(&found, &intent)?;
        }
        let (name, ran) = (found.name.clone(), is_verified && !self.skip_verifier);
        let lost = |error| if ran { lost_meanwhile(&ledger, &name, error) } else { error };
        let (appended, delivered) = match &self.deliver {
            Some(branch) => {
                let commit = work(session, &found)?;
                let delivered = delivery::deliver(session, &ledger, found, intent, branch, commit);
                (delivered.map_err(&lost)?, Some((branch, commit)))
            }
            None => (ledger.append(found, intent).map_err(&lost)?, None),
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

impl Args {
    /// Asks the verifier, or skips it.
    ///
    /// # Errors
    /// As [`Case::ask`]; what else speaks against closing the task, or ends its claim meanwhile.
    fn verify(
        &self,
        session: &Session,
        ledger: &Ledger<'_>,
        found: &Found,
        intent: &Intent,
        case: &Case,
    ) -> Result<Verified> {
        let with = |verified| match intent.clone() {
            Intent::Finish { claim, done, note, .. } => Intent::Finish { claim, done, note, verified: Some(verified) },
            other => other,
        };
        if self.skip_verifier {
            ledger.allows(found, &with(case.as_skipped()))?;
            return Ok(case.as_skipped());
        }
        // Nothing is run for a task that cannot be closed anyway.
        ledger.allows(found, &with(case.as_passed()))?;
        is_permitted(&found.state, &session.config.allow_verifier)?;
        let room = Room {
            allow: &session.config.allow_verifier,
            timeout: Duration::from_millis(self.verifier_timeout.ms()),
            dir: None,
            unset: &[],
            context: session.context.as_ref(),
        };
        while_alive(session, ledger, found, intent, |stop| case.ask(&room, stop))
    }
}

/// Refuses to skip a verifier without a reason.
fn require_reason(found: &Found, intent: &Intent) -> Result<()> {
    match intent {
        Intent::Finish { note, .. } if !is_reason(note.as_deref()) => {
            Err(refused(&found.state, Refusal::SkipWithoutNote))
        }
        _ => Ok(()),
    }
}

/// Keeps the claim alive while something is done in its name, which is told to stop when the claim is lost or a signal
/// comes.
///
/// # Errors
/// What `work` says; why the claim is lost; that a signal came.
fn while_alive<T: Send>(
    session: &Session,
    ledger: &Ledger<'_>,
    found: &Found,
    intent: &Intent,
    work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> Result<Option<T>> + Send,
) -> Result<T> {
    let is_over = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::new(AtomicBool::new(false));
    for signal in heeded([SIGINT, SIGTERM, SIGHUP]) {
        // Before it is noted: once nothing is run any more, a signal ends this process as it ends any.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&has_ended))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&is_over)))
            .map_err(Error::io("catching signals"))?;
    }
    let named = match intent {
        Intent::Finish { claim, .. } => *claim,
        _ => None,
    };
    let third = Duration::from_millis(lease_ms(session, &found.state) / 3);
    let mut lost = None;
    // As it was last seen: a heartbeat that is decided on older news loses to the one before it, and renews nothing.
    let mut latest = found.clone();
    let done = std::thread::scope(|scope| {
        let (ended, is_ended) = mpsc::channel::<()>();
        let stop = || is_over.load(Ordering::SeqCst);
        let working = scope.spawn(move || {
            // Dropped at the end, also of a panic.
            let _ended = ended;
            work(&stop)
        });
        let mut pause = third.saturating_sub(age(session, &found.state));
        while is_ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let beat = Intent::Heartbeat { claim: named, progress: Some("verifying".to_owned()) };
            pause = third;
            match ledger.append(latest.clone(), beat) {
                Err(error @ Error::Refused { refusal: Refusal::LeaseLost { .. } | Refusal::WrongPhase { .. }, .. }) => {
                    is_over.store(true, Ordering::SeqCst);
                    lost = Some(error);
                }
                // What else is in the way may pass.
                Err(_) => pause = (third / 10).max(Duration::from_millis(50)),
                Ok(appended) => latest.state = appended.state,
            }
        }
        working.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    has_ended.store(true, Ordering::SeqCst);
    match (lost, done) {
        (Some(lost), _) => Err(lost_meanwhile(ledger, &found.name, lost)),
        (None, Ok(Some(done))) => Ok(done),
        (None, Ok(None)) => {
            let source = std::io::Error::from(std::io::ErrorKind::Interrupted);
            Err(Error::Io { what: "verifying; nothing was recorded".to_owned(), source })
        }
        (None, Err(failed)) => {
            // Whoever has lost the task has nothing to mend.
            let state = ledger.state(&found.name)?.unwrap_or_else(|| found.state.clone());
            let now = Found { name: found.name.clone(), state };
            let still = ledger.allows(&now, &Intent::Heartbeat { claim: named, progress: None });
            Err(still.err().map_or(failed, |lost| lost_meanwhile(ledger, &found.name, lost)))
        }
    }
}

/// What is said where the claim ended while its report was verified: who did what since, at most the last two statuses.
/// Any other error is as it was.
fn lost_meanwhile(ledger: &Ledger<'_>, name: &RefName, error: Error) -> Error {
    let Error::Refused { task, place, refusal: refusal @ (Refusal::WrongPhase { .. } | Refusal::LeaseLost { .. }) } =
        error
    else {
        return error;
    };
    let newest = ledger.state(name).ok().flatten().and_then(|state| state.status).map(|at| at.id);
    let read = |id: Option<RecordId>| id.and_then(|id| ledger.record(name, id).ok());
    let newest = read(newest);
    // What stands below a claim says how the task came to be free for it.
    let below = newest.as_ref().filter(|record| is_claim(record)).and_then(|record| read(record.links.status));
    let told = |record: Record| {
        let reason = match &record.content {
            Content::Status(status) => status.reason.as_ref().map(|reason| format!(" ({reason})")),
            _ => None,
        };
        format!("{}{}", subject(&record), reason.unwrap_or_default())
    };
    let how: Vec<String> = below.into_iter().chain(newest).map(told).collect();
    if how.is_empty() {
        return Error::Refused { task, place, refusal };
    }
    Error::LostMeanwhile { task, place, refusal: Box::new(refusal), how: how.join(", then ") }
}

fn is_claim(record: &Record) -> bool {
    matches!(&record.content, Content::Status(status) if status.phase == Phase::Working)
}

/// How long ago the newest record of a task was written; for ever, if nobody here can tell.
fn age(session: &Session, state: &TaskState) -> Duration {
    match (state.clock, session.clock.monotonic()) {
        (Some(then), Some(now)) if then.id == now.id && then.ms <= now.ms => Duration::from_millis(now.ms - then.ms),
        _ => Duration::MAX,
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
