//! An operator's ways out of what a synchronisation leaves alone: records that vanished at the remote, and chains there
//! that break a rule (design, section 7).
//!
//! What must never happen here: something moves that is not at the tip which the operator has seen; a record that keeps
//! every rule is given up.

use std::path::Path;

use super::lost::{self, Entry};
use super::reconcile::{Action, reconcile};
use super::remote::{Pushed, Update};
use super::report::Verdict;
use super::run::Watcher;
use super::settle::{Link, Trouble};
use crate::error::{Error, Result};
use crate::id::{RecordId, RefName, Slug, TASKS};
use crate::ledger::create::NewTask;
use crate::ledger::judge::{Row, judge};
use crate::ledger::{Authority, Ledger};
use crate::protocol::apply;
use crate::protocol::record::Task;
use crate::protocol::state::TaskState;
use crate::store::Swap;

/// What was put back at the remote, and what was not.
#[derive(Debug, Default)]
pub struct PushedBack {
    /// Tasks that are there again, with their tips.
    pub pushed: Vec<(RefName, RecordId)>,
    /// Tasks that are not, and why.
    pub left: Vec<(RefName, String)>,
}

/// A way out of a chain that breaks a rule.
#[derive(Debug)]
pub struct Rewind {
    /// The tip at the remote.
    pub tip: RecordId,
    /// What is wrong.
    pub fault: String,
    /// The newest record up to which the chain keeps every rule; `None` where that is no record at all.
    pub to: Option<RecordId>,
    /// How many records are above it.
    pub above: usize,
}

impl Link {
    /// Puts back at the remote what vanished there or fell back, from what this repository has. Nothing is forced: a task
    /// is created, or moves forwards.
    ///
    /// # Errors
    /// `Unreachable`, and failures of the system.
    pub fn push_back(&self, ledger: &Ledger<'_>, prefixes: &[String]) -> Result<PushedBack> {
        let never = || false;
        let (outcome, _) = self.pull(ledger, prefixes, Watcher::silent(&never))?;
        let mut done = PushedBack::default();
        for (name, trouble) in outcome.troubles {
            let Trouble::Gone(gone) = &trouble else { continue };
            let there = self.remote.list_names(std::slice::from_ref(&name), &never)?.get(&name).copied();
            let Some(new) = self.newest_here(ledger, &name)? else { continue };
            let leads_there = match there {
                Some(there) => ledger.fork(&name, RecordId(there), new).is_ok_and(|fork| fork.ours.is_empty()),
                None => true,
            };
            if !leads_there {
                done.left.push((name, format!("{gone}; `pm repair --rewind` is the way out of that")));
                continue;
            }
            let update = Update { name: name.clone(), expected: there, new: new.0 };
            match self.push_alone(update)? {
                Ok(()) => {
                    self.note_seen(ledger, &name, new)?;
                    self.settle(ledger, &name, Some(new))?;
                    done.pushed.push((name, new));
                }
                Err(why) => done.left.push((name, why)),
            }
        }
        Ok(done)
    }

    /// The newest that this repository has of a task: its own tip, unless what was seen at the remote leads further, as
    /// where the repository itself was restored from a backup.
    fn newest_here(&self, ledger: &Ledger<'_>, name: &RefName) -> Result<Option<RecordId>> {
        let own = ledger.store.tip(name)?.map(RecordId);
        let seen = ledger.store.tip(&name.seen_at(&self.remote.name))?.map(RecordId);
        Ok(match (own, seen) {
            (Some(own), Some(seen)) if own != seen && ledger.leads_to(name, seen, own)? => Some(seen),
            (own, seen) => own.or(seen),
        })
    }

    /// What a rewind of one task at the remote would do; `None` where nothing is wrong with it.
    ///
    /// # Errors
    /// `Unreachable`, and failures of the system.
    pub fn plan_rewind(&self, ledger: &Ledger<'_>, name: &RefName) -> Result<Option<Rewind>> {
        let tips = self.fetch(ledger, std::slice::from_ref(name))?;
        let Some(tip) = tips.get(name).copied().map(RecordId) else { return Ok(None) };
        let had = ledger.store.tip(&name.seen_at(&self.remote.name))?.map(RecordId);
        let fault = match self.standing(ledger, name, Some(tip))? {
            Err(fault) => fault.to_string(),
            Ok(standing) if !standing.still_has && standing.theirs.is_empty() => {
                let why =
                    format!("{name} fell back at {}: `pm repair --push-back` is the way out of that", self.remote.name);
                return Err(Error::Usage(why));
            }
            Ok(standing) if !standing.still_has => "its chain was replaced by another one".to_owned(),
            Ok(standing) => match judge(name, standing.base.clone(), &standing.theirs) {
                Err(fault) if !standing.theirs.is_empty() => fault.to_string(),
                _ => return Ok(None),
            },
        };
        let (rows, length) = readable(ledger, name, tip);
        let good = valid_until(name, &rows);
        let leads_from_had = had.is_none_or(|had| rows[..good].iter().any(|(id, _)| *id == had));
        // Never behind what was accepted here before: that is on no chain with what is there, so all of it goes.
        let (to, kept) = if leads_from_had { (rows[..good].last().map(|(id, _)| *id), good) } else { (had, 0) };
        Ok(Some(Rewind { tip, fault, to, above: length - kept }))
    }

    /// Moves a task at the remote from the very tip that was planned for to the last record that keeps every rule. This is
    /// the one place where a ref at a remote goes backwards.
    ///
    /// # Errors
    /// `Unreachable`; the inner error is why the remote did not do it.
    pub fn rewind(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        rewind: &Rewind,
    ) -> Result<std::result::Result<(), String>> {
        // Kept for good: what stands below the fault may have been acknowledged to somebody.
        let entry = rewound(ledger, rewind);
        lost::keep_tip(ledger, &self.state_dir, name, rewind.tip, &self.remote.name, rewind.to, vec![entry])?;
        let done = match rewind.to {
            Some(to) => {
                let update = Update { name: name.clone(), expected: Some(rewind.tip.0), new: to.0 };
                self.push_alone(update)?
            }
            None => self.remote.remove(name, rewind.tip.0)?,
        };
        if done.is_ok() {
            self.settle(ledger, name, rewind.to)?;
        }
        Ok(done)
    }

    /// Gives way to another task of the same name that was planned elsewhere: plans the one here anew under another slug,
    /// keeps its chain under `refs/pm-lost/`, and takes over the other one. Returns the new task, and the tasks here that
    /// depend on the old one.
    ///
    /// # Errors
    /// `Usage` where there is no such collision; `SlugTaken`; as [`Ledger::create`].
    pub fn set_aside(&self, ledger: &Ledger<'_>, name: &RefName, slug: Slug) -> Result<(TaskState, Vec<RefName>)> {
        let tips = self.fetch(ledger, std::slice::from_ref(name))?;
        let remote = tips.get(name).copied().map(RecordId);
        let collides = match self.standing(ledger, name, remote)? {
            Ok(standing) => reconcile(&standing, |record| ledger.rewrite(record)).map(|action| (standing, action))?,
            Err(fault) => {
                let found = fault.to_string();
                return Err(Error::Distrusted { name: name.clone(), remote: self.remote.name.clone(), found });
            }
        };
        let ((Some(local), Some(remote)), Action::Collision) = ((collides.0.local, remote), &collides.1) else {
            return Err(Error::Usage(format!("{name} here is no other task than at {}", self.remote.name)));
        };
        if let Err(fault) = judge(name, None, &collides.0.theirs) {
            let found = fault.to_string();
            return Err(Error::Distrusted { name: name.clone(), remote: self.remote.name.clone(), found });
        }
        let ours = ledger.state_at(name, local)?;
        let body = ledger.record(name, ours.id.record())?.body;
        let task = Task { slug, created: ledger.clock.wall_micros(), ..(*ours.task).clone() };
        let planned = self.create(ledger, NewTask { task, body, replan_of: None })?.state;
        let entry = Entry {
            record: local.to_string(),
            what: "tip".to_owned(),
            agent: ledger.agent.to_string(),
            kept_as: None,
            why: Some(format!("another task had this name; planned anew as task {}", planned.id)),
        };
        lost::keep_tip(ledger, &self.state_dir, name, local, &self.remote.name, Some(remote), vec![entry])?;
        let ids: Vec<_> = collides.0.theirs.iter().map(|(id, _)| id.0).collect();
        ledger.store.make_durable(&ids)?;
        if ledger.move_ref(name, Some(local), remote)? != Swap::Done {
            return Err(Error::TipMoved { name: name.clone(), tip: local });
        }
        self.note_seen(ledger, name, remote)?;
        let dependents = ledger.scan(TASKS)?.tasks.into_iter();
        let dependents = dependents
            .filter(|(_, state)| state.task.depends_on.contains(&ours.id) || state.task.parent == Some(ours.id));
        Ok((planned, dependents.map(|(name, _)| name).collect()))
    }

    /// Pushes one task; the inner error is why it was not accepted.
    fn push_alone(&self, update: Update) -> Result<std::result::Result<(), String>> {
        let name = update.name.clone();
        match self.remote.push(&[update], None, false, &|| false)? {
            Pushed::NotSent { why } => Err(Error::Unreachable { remote: self.remote.name.clone(), why }),
            Pushed::Answered { mut tasks, said, .. } => Ok(match tasks.remove(&name) {
                Some(Verdict::Accepted) => Ok(()),
                Some(Verdict::Moved) => Err("it was moved by others meanwhile".to_owned()),
                Some(Verdict::Declined(why)) => Err(format!("the remote refused it: {why}: {said}")),
                _ => Err(format!("the answer was lost: {said}")),
            }),
        }
    }
}

/// The lower part of a chain, below whatever of it cannot be read, oldest first; and the length of the whole.
fn readable(ledger: &Ledger<'_>, name: &RefName, tip: RecordId) -> (Vec<Row>, usize) {
    let mut rows = Vec::new();
    let mut length = 0;
    let mut next = Some(tip);
    // A record that cannot be read may stand on ones that can: its parent is in the commit.
    while let Some(id) = next.take() {
        length += 1;
        match ledger.record(name, id) {
            Ok(record) => {
                next = record.parent;
                rows.push((id, record));
            }
            Err(_) => {
                rows.clear();
                next = ledger
                    .store
                    .read_commit(id.0)
                    .ok()
                    .and_then(|commit| commit.parents.first().copied().map(RecordId));
            }
        }
    }
    rows.reverse();
    (rows, length)
}

/// How many records of a chain, from its beginning, keep every rule and could be all of it.
fn valid_until(name: &RefName, rows: &[Row]) -> usize {
    let mut good = 0;
    let mut state = None;
    for (place, (id, record)) in rows.iter().enumerate() {
        let Ok(next) = apply::apply(state, *id, record) else { break };
        if apply::end(&next).is_ok() {
            good = place + 1;
        }
        state = Some(next);
    }
    // The whole may stand under the wrong ref.
    if judge(name, None, &rows[..good]).is_ok() { good } else { 0 }
}

/// The account of a tip that an operator took away.
fn rewound(ledger: &Ledger<'_>, rewind: &Rewind) -> Entry {
    Entry {
        record: rewind.tip.to_string(),
        what: "tip".to_owned(),
        agent: ledger.agent.to_string(),
        kept_as: None,
        why: Some(format!("an operator rewound the task: {}", rewind.fault)),
    }
}

/// What a rewind of one task in this repository would do; `None` where nothing is wrong with it.
///
/// # Errors
/// Failures of the system.
pub fn plan_rewind_here(ledger: &Ledger<'_>, name: &RefName) -> Result<Option<Rewind>> {
    let Some(tip) = ledger.store.tip(name)?.map(RecordId) else { return Ok(None) };
    let fault = match ledger.judge_move(name, None, tip)? {
        Err(fault) => fault.to_string(),
        Ok(_) => return Ok(None),
    };
    let (rows, length) = readable(ledger, name, tip);
    let good = valid_until(name, &rows);
    let to = rows[..good].last().map(|(id, _)| *id);
    Ok(Some(Rewind { tip, fault, to, above: length - good }))
}

/// Moves a task in this repository back to the last record that keeps every rule. What was above it is kept under
/// `refs/pm-lost/`. Returns whether the tip was still the one that was planned for, and there is such a record.
///
/// # Errors
/// Failures of the system.
pub fn rewind_here(ledger: &Ledger<'_>, state_dir: &Path, name: &RefName, rewind: &Rewind) -> Result<bool> {
    let Some(to) = rewind.to else { return Ok(false) };
    let entry = rewound(ledger, rewind);
    lost::keep_tip(ledger, state_dir, name, rewind.tip, "this repository", Some(to), vec![entry])?;
    Ok(ledger.move_ref(name, Some(rewind.tip), to)? == Swap::Done)
}
