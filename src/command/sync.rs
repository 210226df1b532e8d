//! `pm sync`: bring this ledger and a remote's together.

use std::cell::RefCell;

use serde_json::{Value, json};

use crate::config::remote_name;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::id::{Queue, RefName, shown};
use crate::ledger::resolve::prefixes;
use crate::output::counted;
use crate::session::Session;
use crate::sync::reconcile::Rebased;
use crate::sync::run::{Outcome, Watcher};

/// Bring this ledger and a remote's together
///
/// Fetches what others recorded, judges it, and pushes what was recorded here. Where both went on with one task, the
/// first push wins: what the holder of a claim that still holds has recorded is put on top of it, everything else is kept
/// under refs/pm-lost/ (`pm lost` lists it). Nothing is ever force-pushed. A task with something wrong is named and left
/// alone; the others are brought together.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The remote; else pm.remote
    #[arg(value_name = "REMOTE", value_parser = remote_name)]
    remote: Option<String>,
    /// Only this queue; may be given several times
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<Queue>,
    /// Show what would be done, and move nothing here or there
    #[arg(long)]
    dry_run: bool,
}

impl Args {
    /// Synchronises.
    ///
    /// # Errors
    /// 18 where the remote cannot be used, 20 where it cannot be reached.
    pub fn run(&self, session: &Session) -> Result<ExitCode> {
        if session.is_offline() {
            return Err(Error::Usage("a sync cannot be offline".to_owned()));
        }
        let remote = self.remote.as_ref().or(session.config.remote.as_ref()).ok_or_else(|| {
            Error::Usage(
                "which remote? None is named, and pm.remote is not set: `pm sync REMOTE`, or `pm init --remote REMOTE` makes one the authority"
                    .to_owned(),
            )
        })?;
        let link = session.link_to(remote)?;
        let prefixes = prefixes(&self.queue);
        let progress = RefCell::new(session.out.progress("", 0));
        let tell = |what, done, total| progress.borrow_mut().tell(what, done, total);
        let watcher = Watcher { stop: &|| false, tell: &tell };
        let (outcome, pushed) = if self.dry_run {
            link.plan(&session.ledger(), &prefixes, watcher)?
        } else {
            let mut outcome = link.sync(&session.local_writer(), &prefixes, watcher)?;
            let pushed = std::mem::take(&mut outcome.pushed);
            (outcome, pushed)
        };
        drop(progress);
        session.out.result(
            || to_json(&outcome, &pushed, remote, self.dry_run),
            || to_text(&outcome, &pushed, remote, self.dry_run),
        );
        Ok(code(&outcome))
    }
}

/// Damage before anything else: it needs somebody's eyes.
fn code(outcome: &Outcome) -> ExitCode {
    let is_locked = |error: &Error| error.exit_code() == ExitCode::LockTimeout;
    if !outcome.troubles.is_empty() || outcome.damaged.iter().any(|(_, error)| !is_locked(error)) {
        ExitCode::Damaged
    } else if !outcome.damaged.is_empty() {
        ExitCode::LockTimeout
    } else if !outcome.refused.is_empty() || !outcome.raced.is_empty() || !outcome.unknown.is_empty() {
        ExitCode::Unreachable
    } else {
        ExitCode::Done
    }
}

/// A task as people name it.
pub fn place(name: &RefName) -> String {
    name.task().map_or_else(|_| name.to_string(), |(queue, slug)| format!("{queue}/{slug}"))
}

fn rebased_json(name: &RefName, rebased: &Rebased) -> Value {
    let fates: Vec<_> = rebased
        .fates
        .iter()
        .map(|fate| match &fate.outcome {
            Ok(now) => json!({"record": fate.record, "what": fate.what, "agent": fate.agent, "kept_as": now}),
            Err(why) => json!({"record": fate.record, "what": fate.what, "agent": fate.agent, "lost": why}),
        })
        .collect();
    json!({"ref": name, "tip": rebased.state.tip, "records": fates})
}

fn to_json(outcome: &Outcome, pushed: &[RefName], remote: &str, dry_run: bool) -> Value {
    let taken: Vec<_> = outcome.taken.iter().map(|(name, records)| json!({"ref": name, "records": records})).collect();
    let rebased: Vec<_> = outcome.rebased.iter().map(|(name, rebased)| rebased_json(name, rebased)).collect();
    let mut left: Vec<_> =
        outcome.troubles.iter().map(|(name, trouble)| json!({"ref": name, "found": trouble.to_string()})).collect();
    left.extend(outcome.damaged.iter().map(|(name, error)| json!({"ref": name, "found": error.to_string()})));
    let refused: Vec<_> = outcome.refused.iter().map(|(name, why)| json!({"ref": name, "found": why})).collect();
    json!({
        "remote": remote,
        "tasks": outcome.listed,
        "taken": taken,
        "pushed": pushed,
        "rebased": rebased,
        "beaten": outcome.beaten.iter().map(|(name, record)| json!({"ref": name, "record": record})).collect::<Vec<_>>(),
        "left_alone": left,
        "refused": refused,
        "raced": outcome.raced,
        "unknown": outcome.unknown,
        "strangers": outcome.strangers,
        "dry_run": dry_run,
    })
}

/// So many tasks are named one by one.
const NAMED: usize = 20;

fn to_text(outcome: &Outcome, pushed: &[RefName], remote: &str, dry_run: bool) -> String {
    let would = if dry_run { "would be " } else { "" };
    let mut lines = Vec::new();
    for (name, rebased) in &outcome.rebased {
        let lost: Vec<_> = rebased.fates.iter().filter_map(|fate| Some((fate, fate.outcome.as_ref().err()?))).collect();
        let kept = rebased.fates.len() - lost.len();
        lines.push(format!(
            "{}: {} {would}put on top of the authority's, {} lost",
            place(name),
            counted(kept, "record"),
            lost.len()
        ));
        for (fate, why) in lost {
            lines.push(format!("  {} by {} {would}lost: {why}", fate.what, fate.agent));
        }
    }
    for (name, record) in &outcome.beaten {
        lines.push(format!(
            "{}: the record {record}, whose answer was lost, came too late; `pm lost` tells of it",
            place(name)
        ));
    }
    for (name, trouble) in &outcome.troubles {
        lines.push(format!("{} was left alone: {trouble}", place(name)));
    }
    for (name, error) in &outcome.damaged {
        lines.push(format!("{} was left alone: {error}", place(name)));
    }
    for (name, why) in outcome.refused.iter().take(NAMED) {
        lines.push(format!("{} was refused by {remote}: {why}", place(name)));
    }
    if outcome.refused.len() > NAMED {
        lines.push(format!("and {} more were refused", outcome.refused.len() - NAMED));
    }
    for name in &outcome.raced {
        lines.push(format!("{} was moved by others each time: sync again", place(name)));
    }
    for name in &outcome.unknown {
        lines.push(format!("{} was sent, but the answer was lost: sync again", place(name)));
    }
    for name in outcome.strangers.iter().take(NAMED) {
        lines.push(format!("{} at {remote} is no task's ref: left there", shown(name.as_str())));
    }
    if outcome.strangers.len() > NAMED {
        lines.push(format!("and {} more refs that are no tasks'", outcome.strangers.len() - NAMED));
    }
    let taken: usize = outcome.taken.iter().map(|(_, records)| records).sum();
    lines.push(format!(
        "{} at {remote}: {} of {} {would}taken, {} {would}pushed",
        counted(outcome.listed, "task"),
        counted(taken, "record"),
        counted(outcome.taken.len(), "task"),
        counted(pushed.len(), "task")
    ));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreError;

    #[test]
    fn a_lock_that_somebody_holds_is_no_damage_and_damage_comes_first() {
        let name = RefName::from_full("refs/pm/tasks/default/t".to_owned());
        let mut outcome = Outcome { unknown: vec![name.clone()], ..Outcome::default() };
        assert_eq!(code(&outcome), ExitCode::Unreachable);
        let locked = StoreError::Locked { path: "t.lock".into(), waited_ms: 1 };
        outcome.damaged.push((name.clone(), locked.into()));
        assert_eq!(code(&outcome), ExitCode::LockTimeout);
        let broken = StoreError::BrokenRef { name: name.clone(), found: "garbage".to_owned() };
        outcome.damaged.push((name, broken.into()));
        assert_eq!(code(&outcome), ExitCode::Damaged);
        assert_eq!(code(&Outcome::default()), ExitCode::Done);
    }
}
