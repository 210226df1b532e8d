//! One agent of a runner: takes a task, works on it, takes the next.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::Orders;
use super::attempt::Attempt;
use super::event::{Fate, Teller, What};
use super::pulse::Pulse;
use super::stop::{Stop, Wish};
use super::supply::Supply;
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
    /// Opens a session for an agent.
    pub open: Open<'a>,
}

/// Opens a session for an agent.
pub type Open<'a> = &'a (dyn Fn(&AgentId) -> Result<Session> + Sync);

/// Who takes tasks in an agent's name, while the agent waits for the children of the one it has.
pub struct StandIn<'a> {
    name: AgentId,
    orders: &'a Orders,
    supply: &'a Supply,
    pulse: &'a Pulse,
    stop: &'a Stop,
    tell: Teller,
    open: Open<'a>,
    is_dismissed: &'a AtomicBool,
}

impl StandIn<'_> {
    /// Works until it is dismissed, or there is nothing more to do.
    ///
    /// # Errors
    /// As [`Agent::run`].
    pub fn work(self) -> Result<()> {
        let session = (self.open)(&self.name)?;
        let StandIn { orders, supply, pulse, stop, tell, open, is_dismissed, .. } = self;
        Agent { session, orders, supply, pulse, stop, tell, open }.work(is_dismissed)
    }
}

impl<'a> Agent<'a> {
    /// Somebody who stands in for this agent until `is_dismissed` says so.
    pub fn stand_in<'b>(&'b self, is_dismissed: &'b AtomicBool) -> StandIn<'b> {
        StandIn {
            name: self.session.agent.clone(),
            orders: self.orders,
            supply: self.supply,
            pulse: self.pulse,
            stop: self.stop,
            tell: self.tell.clone(),
            open: self.open,
            is_dismissed,
        }
    }

    /// Works until there is nothing more to do.
    ///
    /// # Errors
    /// `NotStarted` where the command cannot be started, again and again; what keeps it from taking tasks.
    pub fn run(&self) -> Result<()> {
        let result = self.work(&AtomicBool::new(false));
        self.tell.say(What::Over(result.as_ref().err().map(Error::to_string)));
        result
    }

    fn work(&self, is_dismissed: &AtomicBool) -> Result<()> {
        let mut failed = 0;
        let mut not_started = 0;
        loop {
            let taken = match self.supply.next(&self.session, self.stop, is_dismissed, &self.tell) {
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
            let ending = Attempt::new(self, &taken).run();
            self.supply.returned(taken.state.id, matches!(ending.fate, Fate::Done | Fate::Rejected));
            not_started = if ending.fate == Fate::NotStarted { not_started + 1 } else { 0 };
            if not_started >= NOT_STARTED_MAX {
                return Err(Error::NotStarted { times: not_started, why: ending.why });
            }
        }
    }
}
