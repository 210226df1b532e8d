//! `pm wait`: until a task is where it is wanted.
//!
//! What must never happen here: that it spins, or that it says yes to what an authority does not have.

use std::time::{Duration, Instant};

use super::{TaskArgs, Watch, blocked_by, list_entry, list_row};
use crate::config::duration;
use crate::error::{Error, Known, Result, WaitError};
use crate::id::{Queue, RecordId, RefName, shown};
use crate::ledger::resolve::place;
use crate::ledger::{Ledger, Reach};
use crate::protocol::graph::SUCCESSORS_MAX;
use crate::protocol::record::{Phase, Ttl};
use crate::protocol::refusal::Refusal;
use crate::protocol::state::TaskState;
use crate::protocol::view;
use crate::session::Session;
use crate::store::{Store, StoreError};

/// The first pause between two looks at the one ref; it doubles up to [`LOOK_MAX`].
const LOOK_MIN: Duration = Duration::from_millis(50);

/// The longest pause between two looks.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// The first pause between two askings of the authority; it doubles up to [`ASK_MAX`].
const ASK_MIN: Duration = Duration::from_secs(2);

/// The longest pause between two askings.
const ASK_MAX: Duration = Duration::from_secs(15);

/// So much time an authority is given to answer, however little is left: else a short wait would learn nothing from it.
const ANSWER_MIN: Duration = Duration::from_secs(1);

/// Wait until a task is done, or in a status
///
/// Without --status it waits until the task is done. A task that is closed otherwise, so that what is waited for will
/// not come by itself, ends the wait with 6. A task that was superseded is followed to the one that stands for it now.
/// Where a remote decides, only what that has counts; it is asked at once, and then every few seconds.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    /// The status to wait for: new, working, done, rejected, superseded; may be repeated, then any of them will do
    #[arg(long = "status", value_name = "STATUS", value_parser = |text: &str| text.parse::<Phase>())]
    statuses: Vec<Phase>,
    /// Give up after so long, such as 90, 90s, 5m; else wait for ever
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    timeout: Option<Ttl>,
}

impl Args {
    /// Waits.
    ///
    /// # Errors
    /// 6 where it was closed otherwise, 1 when the time is over; 16, 17, 19.
    pub fn run(&self, session: &Session) -> Result<()> {
        let mut wait = Wait {
            session,
            ledger: session.finder()?,
            queue: session.queue(self.task.queue.as_ref())?,
            asked: self.task.task.clone(),
            wanted: if self.statuses.is_empty() { vec![Phase::Done] } else { self.statuses.clone() },
            name: None,
            state: None,
            judged: None,
            is_only_here: false,
            outage: None,
        };
        let (name, state) = wait.until(self.timeout.map(|time| Duration::from_millis(time.ms())))?;
        let moment = Watch::new(session).moment(&name, &state, blocked_by(&wait.ledger, &state)?);
        session.out.result(|| list_entry(&state, &moment), || list_row(&session.out, &state, &moment, 0));
        Ok(())
    }
}

/// A wait under way.
struct Wait<'a> {
    session: &'a Session,
    ledger: Ledger<'a>,
    queue: Queue,
    /// The task that is waited for, as asked for or by the id of what superseded that.
    asked: String,
    wanted: Vec<Phase>,
    /// Its ref, once it is found.
    name: Option<RefName>,
    /// The newest state that was read.
    state: Option<TaskState>,
    /// The tip that was judged last: it is not where it is wanted.
    judged: Option<RecordId>,
    /// Whether the authority does not have it.
    is_only_here: bool,
    /// Why the authority could not be asked, the last time.
    outage: Option<String>,
}

impl Wait<'_> {
    /// Looks again and again, with pauses, until the task is where it is wanted.
    fn until(&mut self, timeout: Option<Duration>) -> Result<(RefName, TaskState)> {
        let started = Instant::now();
        // One that is too far away to be a moment is none.
        let deadline = timeout.and_then(|timeout| started.checked_add(timeout.max(ANSWER_MIN)));
        if let (Some(authority), Some(deadline)) = (self.session.authority(), deadline) {
            authority.remote.end_by(deadline);
        }
        let (mut pause, mut ask_pause, mut ask_at) = (LOOK_MIN, ASK_MIN, started);
        loop {
            let is_due = Instant::now() >= ask_at;
            if let Some(reached) = self.look(is_due)? {
                return Ok(reached);
            }
            if is_due {
                ask_at = Instant::now() + ask_pause;
                ask_pause = (ask_pause * 2).min(ASK_MAX);
            }
            let waited = started.elapsed();
            let left = timeout.map_or(Duration::MAX, |timeout| timeout.saturating_sub(waited));
            if left.is_zero() {
                return Err(self.timed_out(waited));
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(LOOK_MAX);
        }
    }

    /// Looks once, and asks the authority if that is due. The task, if it is where it is wanted.
    fn look(&mut self, is_due: bool) -> Result<Option<(RefName, TaskState)>> {
        // The task itself, and what stands for it.
        for _ in 0..=SUCCESSORS_MAX {
            let Some(name) = self.found(is_due)? else { return Ok(None) };
            if let (Reach::Through(authority), true) = (self.ledger.reach, is_due) {
                let read = authority.read(&self.ledger, &name);
                self.heard(read)?;
            }
            let Some(tip) = self.tip(&name)? else {
                if let Reach::Through(_) = self.ledger.reach {
                    self.is_only_here = true;
                    return Ok(None);
                }
                // Nobody removes a ref of the ledger but an operator; whoever looks the task up can say more.
                self.follow(self.state.as_ref().map_or_else(|| self.asked.clone(), |state| state.id.to_string()));
                continue;
            };
            self.is_only_here = false;
            if self.judged.replace(tip) == Some(tip) {
                return Ok(None);
            }
            let state = self.ledger.state_at(&name, tip)?;
            self.state = Some(state.clone());
            match self.judge(&state)? {
                Verdict::Reached => return Ok(Some((name, state))),
                Verdict::NotYet => return Ok(None),
                Verdict::StoodForBy(successor) => {
                    let note = format!("{} was superseded: task {successor} stands for it now", place(&state));
                    self.session.out.note(&note);
                    self.follow(successor);
                }
            }
        }
        let (Some(name), Some(state)) = (self.name.clone(), &self.state) else { return Ok(None) };
        let found = format!("it is one of more than {SUCCESSORS_MAX} tasks that superseded each other");
        Err(Error::Damaged { name, commit: state.tip, found })
    }

    /// Waits for another task from now on.
    fn follow(&mut self, task: String) {
        (self.asked, self.name, self.judged) = (task, None, None);
    }

    /// The ref of the task. `None` where the authority alone may know it, and cannot tell now.
    fn found(&mut self, is_due: bool) -> Result<Option<RefName>> {
        if self.name.is_some() {
            return Ok(self.name.clone());
        }
        let here = self.session.ledger().find(&self.asked, &self.queue);
        let found = match (here, self.ledger.reach) {
            (Err(Error::UnknownTask { candidates, .. }), Reach::Through(_)) if candidates.is_empty() => {
                if !is_due {
                    return Ok(None);
                }
                let found = self.ledger.find(&self.asked, &self.queue);
                match self.heard(found)? {
                    Some(found) => found,
                    None => return Ok(None),
                }
            }
            (here, _) => here?,
        };
        self.name = Some(found.name.clone());
        self.state = Some(found.state);
        Ok(Some(found.name))
    }

    /// What the authority said. An outage is waited out, and said once.
    fn heard<T>(&mut self, answer: Result<T>) -> Result<Option<T>> {
        match answer {
            Ok(answer) => {
                self.outage = None;
                Ok(Some(answer))
            }
            Err(
                error
                @ (Error::Unreachable { .. } | Error::AnswerLost { .. } | Error::Store(StoreError::Locked { .. })),
            ) => {
                let why = match error {
                    Error::Unreachable { why, .. } => why,
                    error => error.to_string(),
                };
                if self.outage.is_none() {
                    self.session.out.warning(&format!("the authority cannot be asked, waiting for it: {why}"));
                }
                self.outage = Some(why);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The tip that counts: of the task's own ref, or where a remote decides, as it was last seen there.
    fn tip(&self, name: &RefName) -> Result<Option<RecordId>> {
        let tip = match (self.ledger.reach, &self.session.config.remote) {
            (Reach::Through(_), Some(remote)) => self.session.store.tip(&name.seen_at(remote))?,
            _ => self.session.store.tip(name)?,
        };
        Ok(tip.map(RecordId))
    }

    /// What a state means for who waits.
    fn judge(&self, state: &TaskState) -> Result<Verdict> {
        let refused = |refusal| Error::Refused { task: state.id, place: place(state), refusal };
        let phase = state.phase().ok_or_else(|| refused(Refusal::NoStatus))?;
        match (phase, state.superseded_by()) {
            _ if self.wanted.contains(&phase) => Ok(Verdict::Reached),
            (Phase::Superseded, Some(successor)) => Ok(Verdict::StoodForBy(successor.to_string())),
            (Phase::New | Phase::Working, _) => Ok(Verdict::NotYet),
            (Phase::Done | Phase::Rejected | Phase::Superseded, _) => {
                Err(WaitError::Elsewhere { task: state.id, place: place(state), phase, wanted: self.wanted.clone() }
                    .into())
            }
        }
    }

    fn timed_out(&self, waited: Duration) -> Error {
        let watch = Watch::new(self.session);
        let known = self.name.as_ref().zip(self.state.as_ref()).and_then(|(name, state)| {
            // What it waits for is worth telling, and no reason to tell nothing.
            let blocked_by = blocked_by(&self.ledger, state).unwrap_or_default();
            Some(Box::new(Known {
                task: state.id,
                place: place(state),
                phase: state.phase()?,
                state: view::state(state, &watch.moment(name, state, blocked_by)),
                is_only_here: self.is_only_here,
            }))
        });
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let (asked, wanted, outage) = (shown(&self.asked), self.wanted.clone(), self.outage.clone());
        WaitError::TimedOut { asked, known, wanted, waited_ms, outage }.into()
    }
}

/// What a state means for who waits.
enum Verdict {
    /// It is where it is wanted.
    Reached,
    /// That may still come.
    NotYet,
    /// The task with this id stands for it now.
    StoodForBy(String),
}
