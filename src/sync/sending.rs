//! Sending one record, and finding out what became of it.
//!
//! A record is kept under `refs/pm-pending/` before it is sent, and stays there until its fate is known. All that is done
//! for one task is done under its *turn*, a lock among the processes of this repository: so a pending record without a
//! living writer is known for what it is, one whose answer was lost.
//!
//! What must never happen here: a second record is sent while the fate of the first is unknown; a lost answer is taken for
//! a no, or a no for the last word.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use super::lost::{self, Entry};
use super::remote::{Delivery, Pushed, Update};
use super::report::Verdict;
use super::settle::Link;
use crate::error::{Error, Result};
use crate::id::{RecordId, RefName};
use crate::ledger::Ledger;
use crate::ledger::append::pause;
use crate::ledger::resolve::place;
use crate::protocol::state::TaskState;
use crate::store::lock::{self, Wait};
use crate::store::{Mode, StoreError, Swap};

/// How often a record whose answer was lost is asked for, and sent again, within one command.
pub(super) const ASKS_MAX: u32 = 3;

/// For so many seconds something that was sent may still be carried out, though its sender is gone.
const UNDER_WAY_MAX_S: i64 = 600;

/// What became of a record that was sent.
pub(super) enum Fate {
    /// The authority has it.
    Accepted,
    /// It is not at the authority and never will be: the ref there has moved on.
    Beaten,
    /// The other side does not want it.
    Declined(String),
    /// The branch that goes along has moved on: nothing that was sent before can get in any more, since each push moves it
    /// from where that push found it.
    BranchMoved,
    /// The other side does not let the branch be moved.
    BranchDeclined(String),
    /// Nothing is known.
    Unknown(String),
}

impl Link {
    /// Waits for the turn of a task among the processes of this repository: while one asks the authority, the others'
    /// questions would only be lost races.
    pub(super) fn turn(&self, name: &RefName) -> Result<File> {
        let patience = self.others_may_take();
        self.try_turn(name, patience)?.ok_or_else(|| {
            let waited_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            Error::Store(StoreError::Locked { path: self.turn_path(name), waited_ms })
        })
    }

    /// How long others are waited for: the appends of one task follow each other, and each may take as long as its pushes.
    pub(super) fn others_may_take(&self) -> Duration {
        (self.remote.patience() * ASKS_MAX + lock::PATIENCE).min(self.remote.left())
    }

    /// Takes the turn of a task if it is free within so long.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn try_turn(&self, name: &RefName, patience: Duration) -> Result<Option<File>> {
        let path = self.turn_path(name);
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(Error::io(format!("creating {}", dir.display())))?;
        }
        match lock::acquire_file(&path, Mode::Exclusive, &mut Wait::new(patience)) {
            Ok(turn) => Ok(Some(turn)),
            Err(StoreError::Locked { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn turn_path(&self, name: &RefName) -> PathBuf {
        self.state_dir.join("turns").join(format!("{:02x}", name.shard()))
    }

    /// Finds out what became of a record whose answer was lost: it is there, or it is sent again.
    ///
    /// # Errors
    /// `AnswerLost` where that is still not known.
    pub(super) fn resolve(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        remote: Option<RecordId>,
        sent: RecordId,
    ) -> Result<bool> {
        let delivery = self.noted_delivery(ledger, name)?;
        // What it was sent for was noted as seen before.
        let expected = ledger.store.tip(&name.seen_at(&self.remote.name))?.map(RecordId);
        // What was sent long ago is not under way any more.
        let age_s = ledger.clock.wall_seconds().saturating_sub(ledger.record(name, sent)?.at);
        let no = (age_s > UNDER_WAY_MAX_S).then_some(Fate::Beaten);
        match self.find_out(ledger, name, expected, sent, delivery.as_ref(), no)? {
            Fate::Accepted => Ok(true),
            Fate::Beaten | Fate::Declined(_) | Fate::BranchMoved | Fate::BranchDeclined(_) => {
                self.keep_beaten(ledger, name, remote, sent)?;
                Ok(false)
            }
            Fate::Unknown(why) => {
                let place = place(&ledger.state_at(name, sent)?);
                Err(Error::AnswerLost { place, record: sent, remote: self.remote.name.clone(), why })
            }
        }
    }

    /// Keeps a record that was sent, never answered for, and lost.
    fn keep_beaten(&self, ledger: &Ledger<'_>, name: &RefName, won: Option<RecordId>, sent: RecordId) -> Result<()> {
        let record = ledger.record(name, sent)?;
        let entry = Entry {
            record: sent.to_string(),
            what: record.content.kind().to_owned(),
            agent: record.agent.to_string(),
            kept_as: None,
            why: Some("its answer was lost, and other records got in first".to_owned()),
        };
        lost::keep_tip(ledger, &self.state_dir, name, sent, &self.remote.name, won, vec![entry])
    }

    /// Sends a record, which stays under `refs/pm-pending/` until its fate is known.
    pub(super) fn send(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        expected: Option<RecordId>,
        new: RecordId,
        delivery: Option<&Delivery>,
    ) -> Result<Fate> {
        self.note_delivery(ledger, name, delivery)?;
        if let Swap::HeadMoved { .. } = ledger.move_ref(&name.pending(), None, new)? {
            return Ok(Fate::Beaten);
        }
        let fate = match self.push_one(name, expected, new, delivery)? {
            Ok(Fate::Accepted) => Fate::Accepted,
            Ok(Fate::Unknown(_)) => self.find_out(ledger, name, expected, new, delivery, None)?,
            // Not even a no is believed: over HTTP a push whose answer was lost is sent again behind our back, and it is
            // the second one that is refused.
            Ok(no) => self.find_out(ledger, name, expected, new, delivery, Some(no))?,
            Err(why) => {
                ledger.drop_ref(&name.pending(), new).map(drop)?;
                return Err(Error::Unreachable { remote: self.remote.name.clone(), why });
            }
        };
        if !matches!(fate, Fate::Accepted | Fate::Unknown(_)) {
            ledger.drop_ref(&name.pending(), new).map(drop)?;
        }
        Ok(fate)
    }

    /// Notes what a record that is about to be sent delivers, so that a retry sends both. Leftovers of a writer that died
    /// are removed: whose turn it is knows that they belong to nobody.
    pub(super) fn note_delivery(&self, ledger: &Ledger<'_>, name: &RefName, delivery: Option<&Delivery>) -> Result<()> {
        for (left, commit) in ledger.store.tips(&name.pending_branches())? {
            ledger.drop_ref(&left, RecordId(commit?)).map(drop)?;
        }
        if let Some(Delivery { branch, commit }) = delivery {
            ledger.move_ref(&name.pending_branch(branch), None, RecordId(*commit)).map(drop)?;
        }
        Ok(())
    }

    /// What a pending record delivers.
    pub(super) fn noted_delivery(&self, ledger: &Ledger<'_>, name: &RefName) -> Result<Option<Delivery>> {
        let prefix = name.pending_branches();
        let noted = ledger.store.tips(&prefix)?.into_iter().next();
        let delivery = |(noted, commit): crate::store::RefRow| -> Result<Delivery> {
            let branch = noted.as_str().strip_prefix(&prefix).unwrap_or_default().to_owned();
            Ok(Delivery { branch, commit: commit? })
        };
        noted.map(delivery).transpose()
    }

    /// One push of one task. The outer error: nothing was sent.
    fn push_one(
        &self,
        name: &RefName,
        expected: Option<RecordId>,
        new: RecordId,
        delivery: Option<&Delivery>,
    ) -> Result<std::result::Result<Fate, String>> {
        let update = Update { name: name.clone(), expected: expected.map(|tip| tip.0), new: new.0 };
        let (mut tasks, branch, said) = match self.remote.push(&[update], delivery, false, &|| false)? {
            Pushed::NotSent { why } => return Ok(Err(why)),
            Pushed::Answered { tasks, branch, said } => (tasks, branch, said),
        };
        let task = tasks.remove(name).unwrap_or(Verdict::Unknown);
        Ok(Ok(match (task, branch) {
            (Verdict::Accepted, None | Some(Verdict::Accepted)) => Fate::Accepted,
            (Verdict::Moved, _) => Fate::Beaten,
            (Verdict::HeldBack, Some(Verdict::Moved)) => Fate::BranchMoved,
            (Verdict::HeldBack, Some(Verdict::Declined(why))) => Fate::BranchDeclined(format!("{why}: {said}")),
            (Verdict::Declined(why), _) => Fate::Declined(format!("{why}: {said}")),
            (Verdict::HeldBack, _) => Fate::Beaten,
            _ => Fate::Unknown(said),
        }))
    }

    /// Asks whether the authority has a record that was sent, and sends that same record again where it does not and still
    /// could take it. `no` is what was answered to all that was sent of it so far; without it, something that was sent may
    /// still be carried out, and then no later no is the last word.
    fn find_out(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        expected: Option<RecordId>,
        sent: RecordId,
        delivery: Option<&Delivery>,
        mut no: Option<Fate>,
    ) -> Result<Fate> {
        let mut is_sure = no.is_some();
        let mut why = String::new();
        for attempt in 0..ASKS_MAX {
            let remote = match self.fetch(ledger, std::slice::from_ref(name)) {
                Ok(tips) => tips.get(name).copied().map(RecordId),
                Err(Error::Unreachable { why: now, .. }) => {
                    why = now;
                    pause(attempt);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(remote) = remote
                && ledger.leads_to(name, remote, sent)?
            {
                return Ok(Fate::Accepted);
            }
            // It can only ever land on the very tip that it was sent for, and must never replace anything else.
            let stands_on_it = match expected {
                Some(expected) => ledger.leads_to(name, sent, expected)?,
                None => true,
            };
            if remote != expected || !stands_on_it {
                return Ok(Fate::Beaten);
            }
            match no.take() {
                Some(Fate::Beaten) | None => {}
                Some(no) => return Ok(no),
            }
            match self.push_one(name, expected, sent, delivery)? {
                Ok(Fate::Accepted) => return Ok(Fate::Accepted),
                Ok(Fate::Unknown(now)) => (is_sure, why) = (false, now),
                Err(now) => why = now,
                Ok(Fate::Beaten) => why = "others kept moving the task there".to_owned(),
                Ok(Fate::BranchMoved) => no = Some(Fate::BranchMoved),
                Ok(fate) if is_sure => no = Some(fate),
                Ok(Fate::Declined(now) | Fate::BranchDeclined(now)) => why = now,
            }
            pause(attempt);
        }
        Ok(Fate::Unknown(why))
    }

    /// Moves the ref here to what the authority accepted. Where others recorded something here meanwhile, that is put on
    /// top.
    pub(super) fn accept(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        from: Option<RecordId>,
        to: RecordId,
    ) -> Result<()> {
        match ledger.move_ref(name, from, to)? {
            Swap::Done => self.note_seen(ledger, name, to)?,
            Swap::HeadMoved { .. } => drop(self.settle(ledger, name, Some(to))?),
        }
        ledger.drop_ref(&name.pending(), to).map(drop)
    }

    /// What a command says of a record that did not get in.
    pub(super) fn failed(&self, state: &TaskState, record: RecordId, fate: Fate, delivery: Option<&Delivery>) -> Error {
        let remote = self.remote.name.clone();
        match fate {
            Fate::Unknown(why) => Error::AnswerLost { place: place(state), record, remote, why },
            Fate::Declined(why) => Error::Unreachable { remote, why: format!("it refused the record: {why}") },
            Fate::BranchMoved | Fate::BranchDeclined(_) => Error::DeliveryRefused {
                place: place(state),
                branch: delivery.map_or(String::new(), |delivery| delivery.branch.clone()),
                why: match fate {
                    Fate::BranchDeclined(why) => format!("the authority does not let it be moved: {why}"),
                    _ => "it has moved on at the authority: fetch it, rebase onto it, and try again".to_owned(),
                },
            },
            Fate::Accepted | Fate::Beaten => unreachable!("these are no failures"),
        }
    }
}
