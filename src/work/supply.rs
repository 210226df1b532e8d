//! Handing out tasks to the agents of one runner.
//!
//! One agent at a time reads the ledger for all of them, and the others take what it found: so many agents cost no more
//! reads than one, and idle ones next to nothing. Which of several claims wins is not decided here but, as always, by
//! the compare-and-swap.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::event::{Teller, What};
use super::renewal::TTL_MIN_MS;
use super::shelf::Shelf;
use super::stop::{Stop, Wish};
use super::tide::Tide;
use super::turns::{Claiming, Scouting};
use crate::clock::since_boot_ms;
use crate::error::{Error, Result};
use crate::id::{Queue, RecordId, RefName, TaskId};
use crate::ledger::Reach;
use crate::ledger::find::Found;
use crate::ledger::resolve::prefix;
use crate::ledger::runnable::{Blocked, Runnable, was_taken};
use crate::protocol::decide::Intent;
use crate::protocol::record::{Label, Ttl};
use crate::protocol::state::TaskState;
use crate::session::Session;
use crate::store::StoreError;
use crate::store::git::Glimpse;
use crate::verifier::case::is_permitted;

/// The first pause of a runner that has nothing to do; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause: a task that is planned meanwhile starts after so long at the latest, and the time of one listing.
/// (A listing that found nothing is followed by a pause of [`USE_FOR`] times as long as it took, if that is longer.)
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The ledger is read after so long even where nothing seems to have changed: not every file system tells. Or after
/// [`READ_RARELY`] times as long as a listing took, if that is longer.
const READ_AFTER: Duration = Duration::from_secs(15);

/// A listing of a ledger in which nothing changes is believed for so many times as long as it took.
const READ_RARELY: u32 = 400;

/// But for no longer than this.
const READ_AFTER_MAX: Duration = Duration::from_secs(300);

/// A listing is used for so many times as long as it took, and a pause between two lasts as long: reading the ledger
/// takes at most a tenth of the time, however large it is. (But [`USE_MAX`].)
const USE_FOR: u32 = 10;

/// The longest that a listing is used for, and that is paused after one.
const USE_MAX: Duration = Duration::from_secs(5);

/// What is handed out, and until when.
#[derive(Debug, Clone)]
pub struct Terms {
    /// From this queue.
    pub queue: Queue,
    /// Tasks with all of these labels.
    pub labels: Vec<Label>,
    /// The lease to ask for; else the task's own, else `pm.ttl`.
    pub ttl: Option<Ttl>,
    /// Goes on when the queue is empty.
    pub forever: bool,
    /// At most so many tasks.
    pub max_tasks: Option<u64>,
}

/// A task that an agent has claimed.
#[derive(Debug, Clone)]
pub struct Taken {
    /// Its ref.
    pub name: RefName,
    /// Its state after the claim.
    pub state: TaskState,
    /// The claim.
    pub claim: RecordId,
    /// Its depth: with its id, the fencing token.
    pub fence: u64,
    /// How often it was claimed so far.
    pub attempt: u64,
    /// The lease.
    pub ttl: Ttl,
    /// When the claim was sent, in milliseconds since boot.
    pub sent_ms: u64,
}

/// The tasks of one runner.
#[derive(Debug)]
pub struct Supply {
    terms: Terms,
    shelf: Mutex<Shelf>,
    pub(super) changed: Condvar,
}

impl Supply {
    /// A supply on these terms.
    pub fn new(terms: Terms) -> Supply {
        Supply { terms, shelf: Mutex::new(Shelf::new()), changed: Condvar::new() }
    }

    pub(super) fn shelf(&self) -> MutexGuard<'_, Shelf> {
        // What a panic would leave behind is seen to by `Claiming` and `Scouting`.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits: the outside has changed.
    pub fn stir(&self) {
        self.shelf().is_stirred = true;
        self.changed.notify_all();
    }

    /// Whether as many tasks were taken as are wanted.
    pub(super) fn has_enough(&self, shelf: &Shelf) -> bool {
        self.terms.max_tasks.is_some_and(|max| shelf.taken >= max)
    }

    pub(super) fn goes_on_for_ever(&self) -> bool {
        self.terms.forever
    }

    /// The part of the ledger where the tasks come from.
    pub(super) fn prefix(&self) -> String {
        prefix(Some(&self.terms.queue))
    }

    /// Claims the next task for an agent, where `leaves_first` rather one without open children, and waits for one if it
    /// has to. `None` when this agent is to end.
    ///
    /// # Errors
    /// What the store or the ledger says; the supply goes on.
    pub fn next(&self, session: &Session, stop: &Stop, leaves_first: bool, tell: &Teller) -> Result<Option<Taken>> {
        let mut shelf = self.shelf();
        loop {
            let max = self.terms.max_tasks.unwrap_or(u64::MAX);
            if stop.wish() > Wish::None || shelf.is_over || self.has_enough(&shelf) {
                return Ok(None);
            }
            let all_are_being_claimed = shelf.taken + shelf.claiming >= max;
            if !all_are_being_claimed && let Some((name, state)) = shelf.candidate(leaves_first) {
                shelf.in_hand.insert(state.id);
                shelf.claiming += 1;
                drop(shelf);
                let mut claiming = Claiming { supply: self, task: state.id, has_claimed: false };
                if let Some(taken) = self.claim(session, name, state, stop, tell)? {
                    claiming.has_claimed = true;
                    return Ok(Some(taken));
                }
                drop(claiming);
                shelf = self.shelf();
            } else if !all_are_being_claimed && !shelf.is_scouted {
                shelf.is_scouted = true;
                drop(shelf);
                let scouting = Scouting(self);
                self.scout(session, stop, tell)?;
                drop(scouting);
                shelf = self.shelf();
            } else {
                shelf = self.changed.wait(shelf).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// An agent is done with its task. One that is not closed is left alone for a while: whatever the reason, it would be
    /// met again at once.
    pub fn returned(&self, task: TaskId, is_closed: bool) {
        let mut shelf = self.shelf();
        shelf.in_hand.remove(&task);
        if is_closed {
            shelf.resting.remove(&task);
            shelf.left.remove(&task);
        } else {
            // One that ends when nothing is left does not try in vain again meanwhile.
            shelf.rest(task, !self.terms.forever);
        }
        shelf.is_stirred = true;
        self.changed.notify_all();
    }

    /// Claims a candidate; `None` if somebody else was faster, or holds its lock.
    fn claim(
        &self,
        session: &Session,
        name: RefName,
        state: TaskState,
        stop: &Stop,
        tell: &Teller,
    ) -> Result<Option<Taken>> {
        let wanted = self.terms.ttl.or(state.task.ttl).unwrap_or(session.config.ttl);
        let ttl = Ttl::from_ms(wanted.ms().max(TTL_MIN_MS)).unwrap_or(wanted);
        let (task, sent_ms) = (state.id, since_boot_ms());
        let ledger = session.writer()?;
        let claim =
            || ledger.append(Found { name: name.clone(), state: state.clone() }, Intent::Claim { ttl: Some(ttl) });
        let mut claimed = claim();
        // The same call again tells whether a claim got in whose answer was lost: it sends no second one.
        while matches!(claimed, Err(Error::AnswerLost { .. }))
            && since_boot_ms() < sent_ms + ttl.ms() / 3
            && stop.wish() == Wish::None
        {
            stop.wait(PAUSE_MAX, Wish::None);
            claimed = claim();
        }
        match claimed {
            Ok(appended) => {
                let attempt = appended.state.status.as_ref().map_or(0, |at| at.status.attempt);
                let (claim, fence) = (appended.last().0, appended.last().1.seq);
                self.shelf().unreachable_since = None;
                Ok(Some(Taken { name, state: appended.state, claim, fence, attempt, ttl, sent_ms }))
            }
            Err(error) if was_taken(&error) => {
                if let Reach::Through(_) = ledger.reach {
                    let mut shelf = self.shelf();
                    shelf.is_behind = true;
                    shelf.candidates.clear();
                }
                Ok(None)
            }
            // An outage passes; and what is wrong with one task does not keep the others from being worked on.
            Err(error @ (Error::Unreachable { .. } | Error::AnswerLost { .. } | Error::Distrusted { .. })) => {
                let mut shelf = self.shelf();
                shelf.is_behind = true;
                if matches!(error, Error::Unreachable { .. }) {
                    shelf.unreachable_since.get_or_insert_with(Instant::now);
                }
                shelf.rest(task, false);
                shelf.warn(error.to_string(), tell);
                Ok(None)
            }
            // One task whose lock somebody holds does not keep the others from being worked on.
            Err(error @ Error::Store(StoreError::Locked { .. })) => {
                tell.say(What::Warning(error.to_string()));
                self.shelf().rest(task, false);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the ledger until there are candidates, or nothing more is to come, or the runner is to stop.
    fn scout(&self, session: &Session, stop: &Stop, tell: &Teller) -> Result<()> {
        let mut pause = PAUSE_MIN;
        // What the last listing saw, when it began, and until when it is believed.
        let mut last: Option<(Glimpse, Instant, Instant)> = None;
        let mut said = Vec::new();
        let ledger = session.finder()?;
        let mut tide = Tide::new();
        loop {
            // First, so that a signal or a task that comes back from now on is not missed.
            if std::mem::take(&mut self.shelf().is_stirred) {
                (last, pause) = (None, PAUSE_MIN);
            }
            if stop.wish() > Wish::None {
                return Ok(());
            }
            let mut rest = Duration::ZERO;
            // Before the reading: what changes while it is read is then seen as a change.
            let glimpse = session.store.glimpse();
            let is_known = last.as_ref().is_some_and(|(seen, at, until)| {
                Some(seen) == glimpse.as_ref() && Instant::now() < *until && !self.shelf().somebody_has_rested(*at)
            });
            let is_current = match ledger.reach {
                Reach::Through(authority) if std::mem::take(&mut self.shelf().is_behind) || tide.is_due() => {
                    let began = Instant::now();
                    let asked = authority.catch_up(&ledger, &prefix(Some(&self.terms.queue)));
                    tide.turn(began, asked, &mut self.shelf(), tell)?
                }
                Reach::Through(_) => false,
                Reach::Alone | Reach::Provisional => true,
            };
            if !is_known || (tide.has_turned && is_current) {
                let started = Instant::now();
                let mut runnable =
                    ledger.runnable(&prefix(Some(&self.terms.queue)), &self.terms.labels, &session.dir)?;
                self.leave_unverifiable(&mut runnable, &session.config.allow_verifier, tell);
                let took = started.elapsed();
                self.warn(&runnable, tell);
                let until = started + (took * READ_RARELY).clamp(READ_AFTER, READ_AFTER_MAX);
                last = glimpse.map(|glimpse| (glimpse, started, until));
                if self.put_out(runnable, started, is_current, &mut said, tell) {
                    return Ok(());
                }
                tide.ask_when_idle();
                rest = (took * USE_FOR).min(USE_MAX);
            }
            let shelf = self.shelf();
            if !shelf.is_stirred {
                let waited = self.changed.wait_timeout(shelf, pause.max(rest));
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Names what a listing left out, each once.
    fn warn(&self, runnable: &Runnable, tell: &Teller) {
        let mut shelf = self.shelf();
        for damage in &runnable.damaged {
            shelf.warn(damage.to_string(), tell);
        }
        if runnable.elsewhere.contexts > 0 {
            shelf.warn("there are tasks that can be claimed only in another context".to_owned(), tell);
        }
        for workdir in runnable.elsewhere.workdirs.keys() {
            shelf.warn(format!("there are tasks that are meant for {workdir}"), tell);
        }
    }

    /// Takes out the tasks that could not be closed here, since this machine would not run their verifiers, and names
    /// each once. Claimed, they would only be given back.
    fn leave_unverifiable(&self, runnable: &mut Runnable, allow: &[String], tell: &Teller) {
        let mut shelf = self.shelf();
        runnable.tasks.retain(|(_, state)| match is_permitted(state, allow) {
            Ok(()) => true,
            Err(error) => {
                shelf.warn(format!("left alone: {error}"), tell);
                false
            }
        });
    }

    /// Offers what a listing found that was `started` then. Whether the scout has nothing more to do.
    fn put_out(
        &self,
        runnable: Runnable,
        started: Instant,
        is_current: bool,
        said: &mut Vec<Blocked>,
        tell: &Teller,
    ) -> bool {
        let took = started.elapsed();
        let mut shelf = self.shelf();
        shelf.wake(&runnable);
        let has_free = runnable.tasks.iter().any(|(_, state)| shelf.is_free(state.id));
        let is_told = !has_free || self.terms.forever && !shelf.parked.is_empty();
        let (parked, silent) = (shelf.parked.clone(), shelf.silent.clone());
        // What nobody here takes before something has changed elsewhere.
        let is_idle = |task: &TaskId| shelf.given_up.contains(task) || shelf.is_left(*task);
        let idle: HashSet<TaskId> = runnable.tasks.iter().map(|(_, state)| state.id).filter(is_idle).collect();
        drop(shelf);
        let lively = if is_told { runnable.lively(&parked, &silent, &idle) } else { HashSet::new() };
        let outlooks = if is_told { runnable.outlooks(parked.iter()) } else { HashMap::new() };
        let mut shelf = self.shelf();
        // A task that waits for children that nobody works on keeps nobody waiting.
        let all_wait = shelf.in_hand.len() == shelf.parked.len() && shelf.parked.is_disjoint(&lively);
        let more_may_come = runnable.blocked.iter().any(|blocked| lively.contains(&blocked.place));
        if is_told && is_current {
            (shelf.lively, shelf.outlooks) = (Some((started, lively)), outlooks);
        }
        let Runnable { tasks, blocked, open_children, .. } = runnable;
        let somebody_rests = tasks.iter().any(|(_, state)| !shelf.is_free(state.id) && !idle.contains(&state.id));
        let candidates = tasks.into_iter().filter(|(_, state)| shelf.is_free(state.id)).collect();
        shelf.candidates = candidates;
        shelf.parents = open_children.into_keys().collect();
        shelf.fresh_until = Instant::now() + (took * USE_FOR).clamp(PAUSE_MIN, USE_MAX);
        if !shelf.candidates.is_empty() {
            return true;
        }
        // What came back while the ledger was read may be missing in the listing.
        let is_last_word = is_told && is_current && all_wait && !shelf.is_stirred;
        if !self.terms.forever && is_last_word && !somebody_rests && !more_may_come {
            shelf.is_over = true;
            drop(shelf);
            // Whoever waits for children gives up on them.
            self.changed.notify_all();
            if !blocked.is_empty() {
                tell.say(What::LeftBlocked(blocked));
            }
            return true;
        }
        let is_idle = shelf.in_hand.is_empty();
        drop(shelf);
        if is_idle && *said != blocked && !blocked.is_empty() {
            tell.say(What::Waiting(blocked.clone()));
            *said = blocked;
        }
        false
    }
}
