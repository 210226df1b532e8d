//! One agent of a runner: takes a task, works on it, takes the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use super::Orders;
use super::attempt::Attempt;
use super::event::{Fate, Teller, What};
use super::pulse::Pulse;
use super::stop::{Stop, Wish};
use super::supply::Supply;
use super::turns::Serving;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::id::AgentId;
use crate::session::Session;

/// After so many tasks in a row whose command could not be started the agent ends: the next one cannot, either, and each
/// try leaves two records.
const NOT_STARTED_MAX: u32 = 3;

/// After so many failures in a row to take a task the agent ends.
const FAILED_MAX: u32 = 8;

/// The pause after the first of them, doubled each time.
const PAUSE: Duration = Duration::from_millis(250);

/// So many tasks of one agent may wait for their children at a time: each keeps a thread.
pub const WAITING_MAX: usize = 16;

/// What all have in common who take tasks in one agent's name, one at a time.
#[derive(Clone)]
pub struct Post<'a> {
    /// The agent's name.
    pub name: AgentId,
    /// What the runner was asked to do.
    pub orders: &'a Orders,
    /// Where its tasks come from.
    pub supply: &'a Supply,
    /// Its claims and those of the others, kept alive together.
    pub pulse: &'a Pulse,
    /// Whether it is to stop.
    pub stop: &'a Stop,
    /// Where it says what it does.
    pub tell: Teller,
    /// Opens a session for an agent.
    pub open: Open<'a>,
}

/// An agent.
pub struct Agent<'a> {
    /// Its own view of the repository.
    pub session: Session,
    /// What the runner was asked to do.
    pub orders: &'a Orders,
    /// Where its tasks come from.
    pub supply: &'a Supply,
    /// Its claims and those of the others, kept alive together.
    pub pulse: &'a Pulse,
    /// Whether it is to stop.
    pub stop: &'a Stop,
    /// Where it says what it does.
    pub tell: Teller,
    /// Opens another session for it, for what must not keep it from its claim.
    pub open: Open<'a>,
    /// By whom it is relieved while it waits for children.
    pub relief: Relief,
}

/// Opens a session for an agent.
pub type Open<'a> = &'a (dyn Fn(&AgentId) -> Result<Session> + Sync);

/// Asks for somebody who goes on in an agent's name.
#[derive(Clone)]
pub struct Relief {
    ask: Sender<Relief>,
    waiting: Arc<AtomicUsize>,
}

/// One that waits for children, until this is dropped.
pub struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Relief {
    /// Whether as many wait as may.
    fn is_exhausted(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) >= WAITING_MAX
    }

    /// Lets somebody else go on from now on. `None`: too many wait already.
    pub fn ask(&self) -> Option<Waiting> {
        // Of those who work in an agent's name only one at a time gets here: the one who takes tasks.
        if self.is_exhausted() {
            return None;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waiting = Waiting(Arc::clone(&self.waiting));
        self.ask.send(self.clone()).is_ok().then_some(waiting)
    }
}

impl Post<'_> {
    /// Works until there is nothing more to do.
    ///
    /// # Errors
    /// `NotStarted` where the command cannot be started, again and again; what keeps it from taking tasks.
    pub fn run(self) -> Result<()> {
        let result = self.work();
        self.tell.say(What::Over(result.as_ref().err().map(Error::to_string)));
        result
    }

    fn work(&self) -> Result<()> {
        let (ask, asked) = mpsc::channel();
        let first = Relief { ask: ask.clone(), waiting: Arc::default() };
        // Handed on, it is given up only when nobody is left who takes tasks.
        let mut serving = Some(self.supply.serve());
        let _received_below = ask.send(first);
        drop(ask);
        std::thread::scope(|scope| {
            let mut result = Ok(());
            let mut working: Vec<ScopedJoinHandle<'_, Result<()>>> = Vec::new();
            // Until all have ended, and with them the last one who could ask.
            for relief in asked {
                let serving = serving.take().unwrap_or_else(|| self.supply.inherit());
                let (ended, others) = working.drain(..).partition(ScopedJoinHandle::is_finished);
                working = others;
                result = together(result, ended);
                working.push(scope.spawn(move || self.agent(relief)?.work(serving)));
            }
            together(result, working)
        })
    }

    fn agent(&self, relief: Relief) -> Result<Agent<'_>> {
        let session = (self.open)(&self.name)?;
        let Post { orders, supply, pulse, stop, open, ref tell, .. } = *self;
        Ok(Agent { session, orders, supply, pulse, stop, tell: tell.clone(), open, relief })
    }
}

/// The first error of all.
fn together(result: Result<()>, ended: Vec<ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    ended.into_iter().map(|agent| agent.join().expect("an agent does not panic")).fold(result, Result::and)
}

impl Agent<'_> {
    /// Works until there is nothing more to do, or somebody else goes on.
    fn work(&self, serving: Serving<'_>) -> Result<()> {
        let mut failed = 0;
        let mut not_started = 0;
        loop {
            let taken = match self.supply.next(&self.session, self.stop, self.relief.is_exhausted(), &self.tell) {
                Ok(Some(taken)) => taken,
                Ok(None) => return Ok(()),
                Err(error) => {
                    failed += 1;
                    if failed >= FAILED_MAX || error.exit_code() == ExitCode::UnusableRepository {
                        return Err(error);
                    }
                    self.tell.say(What::Warning(format!("no task could be taken: {error}")));
                    self.stop.wait(PAUSE * (1 << failed), Wish::None);
                    continue;
                }
            };
            failed = 0;
            let (ending, is_relieved) = Attempt::new(self, &taken).run();
            self.supply.returned(taken.state.id, matches!(ending.fate, Fate::Done | Fate::Rejected));
            if is_relieved {
                serving.hand_over();
                return Ok(());
            }
            not_started = if ending.fate == Fate::NotStarted { not_started + 1 } else { 0 };
            if not_started >= NOT_STARTED_MAX {
                return Err(Error::NotStarted { times: not_started, why: ending.why });
            }
        }
    }
}
