//! Carrying out, in this repository, what `reconcile` decided about a task: moving its ref, keeping what lost, noting
//! what the authority had.
//!
//! What must never happen here: a ref moves to a record that was not judged; a record that was acknowledged here becomes
//! unreachable.

use std::path::PathBuf;

use super::lost;
use super::reconcile::{Action, Gone, Rebased, Standing, reconcile};
use super::remote::Remote;
use crate::error::{Error, Result};
use crate::id::{RecordId, RefName};
use crate::ledger::Ledger;
use crate::ledger::verify::ChainFault;
use crate::store::{Move, Swap};

/// How often a task is looked at again that others move here meanwhile.
const LOOKS_MAX: u32 = 20;

/// A repository's link to a remote that has the same ledger.
pub struct Link {
    /// The remote.
    pub remote: Remote,
    /// `<git-common-dir>/pm`.
    pub state_dir: PathBuf,
    /// Whether that remote decides; another one may only be caught up with, in either direction.
    pub is_authority: bool,
}

/// What cannot be settled by itself.
#[derive(Debug, Clone)]
pub enum Trouble {
    /// Records that the authority had are gone there.
    Gone(Gone),
    /// Records at the authority break a rule.
    Theirs(ChainFault),
    /// Records of ours break a rule.
    Ours(ChainFault),
    /// Two tasks that were planned apart have one name.
    Collision,
    /// Both sides went on, and this remote does not decide.
    Diverged,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trouble::Gone(gone) => write!(
                f,
                "{gone}; nothing here was changed. If that was no intention, `pm repair --push-back` puts back what this repository still has"
            ),
            Trouble::Theirs(fault) => write!(
                f,
                "{fault}; it was not taken over. `pm repair --rewind --task <slug>` shows an operator the way out"
            ),
            Trouble::Ours(fault) => write!(f, "{fault}; it was not pushed, `pm verify` lists every fault"),
            Trouble::Collision => f.write_str(
                "it is another task than the one of that name here: they were planned apart. Nothing was changed; `pm repair --set-aside --task <slug> --slug <another>` plans the one here anew under another slug",
            ),
            Trouble::Diverged => f.write_str(
                "both have records that the other lacks, and this remote is not the authority: left alone",
            ),
        }
    }
}

/// How a task stands after what could be done here was done.
#[derive(Debug)]
pub enum Settled {
    /// Here is what is there.
    Level,
    /// Here is more than there.
    Ahead,
    /// It was left alone.
    Trouble(Trouble),
}

/// What a settlement changed here.
#[derive(Debug)]
pub enum Change {
    /// Nothing.
    None,
    /// The tip moved forwards, by so many records.
    Taken(usize),
    /// Records of ours were put on top of the authority's, or lost.
    Rebased(Box<Rebased>),
}

impl Link {
    /// How a task stands here and there; a fault where what is there cannot be read.
    pub(super) fn standing(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        remote: Option<RecordId>,
    ) -> Result<std::result::Result<Standing, ChainFault>> {
        // What is damaged here is no fault of the other side.
        let local = ledger.state(name)?.map(|state| state.tip);
        let had = ledger.store.tip(&name.seen_at(&self.remote.name))?.map(RecordId);
        match self.compare(ledger, name, local, remote, had) {
            Ok(standing) => Ok(Ok(standing)),
            Err(Error::Damaged { commit, found, .. }) => Ok(Err(ChainFault::unreadable(name, Some(commit), found))),
            Err(error) => Err(error),
        }
    }

    fn compare(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        local: Option<RecordId>,
        remote: Option<RecordId>,
        had: Option<RecordId>,
    ) -> Result<Standing> {
        let mut standing = Standing {
            name: name.clone(),
            local,
            remote,
            had,
            still_has: had.is_none() || had == remote,
            base: None,
            ours: Vec::new(),
            theirs: Vec::new(),
        };
        if let (Some(had), Some(remote), false) = (had, remote, standing.still_has) {
            standing.still_has = ledger.fork(name, had, remote)?.base == Some(had);
        }
        match (local, remote) {
            (Some(local), Some(remote)) if local != remote => {
                let fork = ledger.fork(name, local, remote)?;
                standing.base = fork.base.map(|base| ledger.state_at(name, base)).transpose()?;
                standing.ours = fork.ours;
                standing.theirs = fork.theirs;
            }
            (Some(local), None) => standing.ours = ledger.rows(name, local)?,
            (None, Some(remote)) => standing.theirs = ledger.rows(name, remote)?,
            _ => {}
        }
        Ok(standing)
    }

    /// Settles one task, whose tip at the remote was just read and whose objects are here.
    ///
    /// # Errors
    /// Failures of the system.
    pub(super) fn settle(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        remote: Option<RecordId>,
    ) -> Result<(Settled, Change)> {
        for _ in 0..LOOKS_MAX {
            let standing = match self.standing(ledger, name, remote)? {
                Ok(standing) => standing,
                Err(fault) => return self.refuse(ledger, name, remote, Trouble::Theirs(fault)),
            };
            ledger.store.discard_commits();
            let action = reconcile(&standing, |record| ledger.rewrite(record))?;
            let done = match action {
                Action::Nothing => Some((Settled::Level, Change::None)),
                Action::Push => Some((Settled::Ahead, Change::None)),
                Action::Take(state) => {
                    let ids: Vec<_> = standing.theirs.iter().map(|(id, _)| id.0).collect();
                    ledger.store.make_durable(&ids)?;
                    let swap = ledger.move_ref(name, standing.local, state.tip)?;
                    (swap == Swap::Done).then_some((Settled::Level, Change::Taken(ids.len())))
                }
                Action::Rebase(_) if !self.is_authority => {
                    return Ok((Settled::Trouble(Trouble::Diverged), Change::None));
                }
                Action::Rebase(rebased) => self.rebase(ledger, &standing, rebased)?,
                Action::Alarm(gone) => return self.refuse(ledger, name, remote, Trouble::Gone(gone)),
                Action::Refuse { theirs: true, fault } => {
                    return self.refuse(ledger, name, remote, Trouble::Theirs(fault));
                }
                Action::Refuse { theirs: false, fault } => {
                    return Ok((Settled::Trouble(Trouble::Ours(fault)), Change::None));
                }
                Action::Collision => return Ok((Settled::Trouble(Trouble::Collision), Change::None)),
            };
            if let Some(done) = done {
                if let Some(remote) = remote {
                    self.note_seen(ledger, name, remote)?;
                }
                return Ok(done);
            }
        }
        Err(Error::Busy { name: name.clone(), times: LOOKS_MAX })
    }

    /// Keeps what was recorded here and lost, then moves the tip to the authority's chain with what was made anew on it.
    fn rebase(
        &self,
        ledger: &Ledger<'_>,
        standing: &Standing,
        rebased: Box<Rebased>,
    ) -> Result<Option<(Settled, Change)>> {
        let (Some(local), Some(remote)) = (standing.local, standing.remote) else {
            unreachable!("only two tips can part");
        };
        let ids: Vec<_> = standing.theirs.iter().map(|(id, _)| id.0).collect();
        ledger.store.make_durable(&ids)?;
        lost::keep(ledger, &self.state_dir, standing, &rebased, &self.remote.name)?;
        if ledger.move_ref(&standing.name, Some(local), rebased.state.tip)? != Swap::Done {
            return Ok(None);
        }
        let settled = if rebased.state.tip == remote { Settled::Level } else { Settled::Ahead };
        Ok(Some((settled, Change::Rebased(rebased))))
    }

    /// Keeps for inspection what the authority has and is not believed.
    fn refuse(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        remote: Option<RecordId>,
        trouble: Trouble,
    ) -> Result<(Settled, Change)> {
        if let Some(remote) = remote
            && ledger.store.read_commit(remote.0).is_ok()
        {
            let refused = name.refused_at(&self.remote.name);
            let before = ledger.store.tip(&refused)?.map(RecordId);
            if before != Some(remote) {
                let _another = ledger.move_ref(&refused, before, remote)?;
            }
        }
        Ok((Settled::Trouble(trouble), Change::None))
    }

    /// Notes where a task was seen, and believed, at the remote: only forwards. Another process that notes something newer
    /// at the same time is right.
    pub(super) fn note_seen(&self, ledger: &Ledger<'_>, name: &RefName, tip: RecordId) -> Result<()> {
        if let Some((seen, before, _)) = self.news(ledger, name, tip)? {
            let _newer = ledger.move_ref(&seen, before.map(RecordId), tip)?;
        }
        Ok(())
    }

    /// The move that notes where a task was seen; `None` where that, or something newer, is noted already.
    pub(super) fn news(&self, ledger: &Ledger<'_>, name: &RefName, tip: RecordId) -> Result<Option<Move>> {
        let seen = name.seen_at(&self.remote.name);
        let before = ledger.store.tip(&seen)?;
        let is_newer = match before {
            Some(before) => before != tip.0 && ledger.leads_to(name, tip, RecordId(before))?,
            None => true,
        };
        Ok(is_newer.then_some((seen, before, tip.0)))
    }
}
