//! A task whose command has ended well, while children of it are open: it cannot be closed yet (rule 9), and must not be
//! given back, since its children can only be worked on while it is claimed (rule 8).
//!
//! Its claim is kept alive, and meanwhile somebody else goes on in its agent's name, with those children among others. So a
//! runner keeps as many commands running as it has agents, and one agent alone gets through a whole tree. Whoever waited
//! takes no other task when the waiting is over: nobody waits for anybody else to come to an end.
//!
//! What must never happen here: the claim is kept for ever for children that nobody will settle.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use super::agent::{Agent, WAITING_MAX};
use super::event::Ending;
use super::silence::{self, Listening};
use super::stop::Wish;
use super::supply::Taken;
use super::turns::{Asking, Parked};
use super::vigil::Vigil;
use crate::error::Place;
use crate::id::{RefName, TaskId};
use crate::ledger::resolve::place;
use crate::protocol::record::Phase;
use crate::protocol::refusal::Unmet;

/// How often it is looked how the children stand.
const LOOK: Duration = Duration::from_millis(250);

/// For so long a runner that goes on for ever leaves it to others to take the children that it does not take itself.
const OTHERS_MAY_COME: Duration = Duration::from_secs(5);

/// The same where they hear of them by way of an authority, which idle ones ask every ten seconds.
const OTHERS_MAY_HEAR: Duration = Duration::from_secs(15);

/// How the waiting ended.
pub enum Waited {
    /// The children are settled, and closing the task was tried.
    Closed(Ending),
    /// Nobody works on what is open, and this runner will not.
    InVain(String),
    /// The runner is to stop.
    Stopped,
    /// The lease is lost; what the ledger said.
    Lost(String),
}

/// Who waits: an attempt.
pub trait Parent<'a> {
    /// Its watch over the claim.
    fn vigil(&mut self) -> &mut Vigil<'a>;

    /// Tries to close the task.
    ///
    /// # Errors
    /// Its open children.
    fn close(&mut self) -> Result<Ending, Vec<Unmet>>;
}

/// Waits until these children of a task are settled, and closes it. `is_relieved` says afterwards whether somebody else goes
/// on in the agent's name.
pub fn wait<'a>(
    agent: &Agent<'a>,
    parent: &mut impl Parent<'a>,
    taken: &Taken,
    open: Vec<Unmet>,
    is_relieved: &mut bool,
) -> Waited {
    let mut parked = agent.supply.park(place(&taken.state));
    let Some(_waiting) = agent.relief.ask() else {
        drop(parked);
        agent.supply.give_up(taken.state.id);
        return Waited::InVain(format!("{WAITING_MAX} other tasks of this agent wait for their children already"));
    };
    *is_relieved = true;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ask = |asking: Asking<'a>| {
            let (open, name, lease) = (agent.open, agent.session.agent.clone(), taken.ttl);
            let (tell, is_over) = (agent.tell.clone(), &is_over);
            scope.spawn(move || asking.catch_up(open(&name), lease, &|| is_over.load(Ordering::SeqCst), &tell))
        };
        let mut asked = None;
        let in_the_end = SetOnDrop(&is_over);
        let waited = watch(agent, parent, Brood::new(open), &mut parked, ask, &mut asked);
        if matches!(waited, Waited::InVain(_)) {
            parked.leave(taken.state.id);
        }
        // What is still being asked is of no use any more. It ends soon, but a short lease may end sooner.
        drop(in_the_end);
        while matches!(waited, Waited::Stopped) && asked.as_ref().is_some_and(|asked| !asked.is_finished()) {
            if let Err(why) = parent.vigil().renew_if_due() {
                return Waited::Lost(why);
            }
            agent.stop.wait(LOOK / 5, Wish::Now);
        }
        waited
    })
}

/// Sets it when it is dropped: also by a panic, else those who wait for it would wait for ever.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Looks after claim and children by turns, until the one is lost or the others are settled. An authority is asked for news
/// of them beside that, by `ask`: whatever it takes to answer, the claim is renewed in time.
fn watch<'a, 'scope>(
    agent: &Agent<'a>,
    parent: &mut impl Parent<'a>,
    mut brood: Brood,
    parked: &mut Parked<'_>,
    ask: impl Fn(Asking<'a>) -> ScopedJoinHandle<'scope, ()>,
    asked: &mut Option<ScopedJoinHandle<'scope, ()>>,
) -> Waited {
    let has_authority = agent.session.authority().is_some() && !agent.session.is_offline();
    let patience = if has_authority { OTHERS_MAY_HEAR } else { OTHERS_MAY_COME };
    // Since when nothing has changed.
    let mut since = Instant::now();
    loop {
        let wish = agent.stop.wish();
        // In this order: one that comes back now is settled below, if it ever will be.
        let are_in_hand = agent.supply.has_in_hand(&brood.open);
        if parent.vigil().is_unwanted() {
            return Waited::Stopped;
        }
        if let Err(why) = parent.vigil().renew_if_due() {
            return Waited::Lost(why);
        }
        let has_answered = asked.take_if(|asked| asked.is_finished()).is_some();
        // What has just come is looked at first.
        if has_authority && asked.is_none() && !has_answered {
            *asked = agent.supply.may_ask().map(&ask);
        }
        let mut has_changed = brood.look(agent, has_authority, patience);
        if brood.open.is_empty() {
            match parent.close() {
                Ok(ending) => return Waited::Closed(ending),
                Err(others) => (brood.open, has_changed) = (others, true),
            }
        } else if wish > Wish::None && !are_in_hand {
            return Waited::Stopped;
        }
        if has_changed {
            since = Instant::now();
            parked.hears_nothing_of(brood.silent_places());
            // A listing that began before tells nothing about this.
            agent.supply.stir();
        } else if wish == Wish::None
            && asked.is_none()
            && agent.supply.is_in_vain(&brood.open, &brood.silent, since, patience)
        {
            return Waited::InVain(format!("its children are left open: {brood}"));
        }
        agent.stop.wait(LOOK, wish);
    }
}

/// The children that are open, and what is seen of them.
struct Brood {
    open: Vec<Unmet>,
    listening: Listening,
    /// The claimed ones of which nothing has been heard for too long.
    silent: HashSet<TaskId>,
}

impl Brood {
    fn new(open: Vec<Unmet>) -> Brood {
        Brood { open, listening: Listening::default(), silent: HashSet::new() }
    }

    /// Looks how they stand, and leaves out those that are settled by now. Whether anything has changed.
    fn look(&mut self, agent: &Agent<'_>, has_authority: bool, patience: Duration) -> bool {
        let seen = |brood: &Brood| {
            let of = |child: &Unmet| (child.task, child.phase, brood.silent.contains(&child.task));
            brood.open.iter().map(of).collect::<Vec<_>>()
        };
        let before = seen(self);
        let Brood { open, listening, silent } = self;
        silent.clear();
        open.retain_mut(|child| {
            let Some((queue, slug)) = &child.place else { return false };
            let began = Instant::now();
            // One that cannot be read is looked at again.
            if let Ok(Some(state)) = agent.session.ledger().state(&RefName::of_task(queue, slug)) {
                child.phase = state.phase();
                let heard = if has_authority { agent.supply.heard() } else { Some(began) };
                let lease = state.claim().map(|claim| claim.ttl.unwrap_or(agent.session.config.ttl));
                if let Some(lease) = lease.map(|ttl| Duration::from_millis(ttl.ms())) {
                    let limit = silence::limit(lease, agent.session.config.interval, patience);
                    if listening.is_silent(child.task, state.tip, limit, Instant::now(), heard) {
                        silent.insert(child.task);
                    }
                }
            }
            !child.phase.is_some_and(Phase::is_settled)
        });
        seen(self) != before
    }

    fn silent_places(&self) -> HashSet<Place> {
        let silent = self.open.iter().filter(|child| self.silent.contains(&child.task));
        silent.filter_map(|child| child.place.clone()).map(|(queue, slug)| Place { queue, slug }).collect()
    }
}

impl fmt::Display for Brood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |child: &Unmet| match self.silent.contains(&child.task) {
            true => format!("{child}, but its worker is silent (`pm sweep` brings it back)"),
            false => child.to_string(),
        };
        f.write_str(&self.open.iter().map(name).collect::<Vec<_>>().join(", "))
    }
}
