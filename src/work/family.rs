//! A task whose command has ended well, while children of it are open: it cannot be closed yet (rule 9), and must not be
//! given back, since its children can only be worked on while it is claimed (rule 8).
//!
//! Its claim is kept alive, and meanwhile a stand-in takes other tasks in its agent's name, those children among them. So a
//! runner keeps as many commands running as it has agents, and one agent alone gets through a whole tree.
//!
//! What must never happen here: the claim is kept for ever for children that nobody will settle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::agent::Agent;
use super::event::What;
use super::holding::Unrecorded;
use super::stop::Wish;
use super::supply::Taken;
use super::vigil::Vigil;
use crate::id::{RecordId, RefName};
use crate::ledger::resolve::place;
use crate::protocol::record::Phase;
use crate::protocol::refusal::Unmet;

/// How often it is looked how the children stand.
const LOOK: Duration = Duration::from_millis(250);

/// How the waiting ended.
pub enum Waited {
    /// The children are settled, and closing the task was tried.
    Closed(Result<RecordId, Unrecorded>),
    /// Nobody works on what is open, and this runner has nothing more to do.
    InVain(String),
    /// The runner is to stop.
    Stopped,
    /// The lease is lost; what the ledger said.
    Lost(String),
}

/// Waits until the children of a task are settled, and closes it with `close`.
pub fn wait<'a>(
    agent: &'a Agent<'a>,
    vigil: &mut Vigil<'a>,
    taken: &Taken,
    open: Vec<Unmet>,
    mut close: impl FnMut(&mut Vigil<'a>) -> Result<RecordId, Unrecorded>,
) -> Waited {
    let mut open = open;
    let parked = agent.supply.park(place(&taken.state));
    let is_dismissed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stand_in = agent.stand_in(&is_dismissed);
        let working = scope.spawn(move || stand_in.work());
        let waited = loop {
            if agent.stop.wish() > Wish::None {
                break Waited::Stopped;
            }
            if let Err(why) = vigil.renew_if_due() {
                break Waited::Lost(why);
            }
            open.retain_mut(|child| !is_settled(agent, child));
            if open.is_empty() {
                match close(vigil) {
                    Err(Unrecorded::ChildrenOpen(others)) => open = others,
                    closed => break Waited::Closed(closed),
                }
            }
            let is_worked_on =
                open.iter().any(|child| child.phase == Some(Phase::Working) && !agent.supply.is_parked(child));
            if !is_worked_on && working.is_finished() {
                let names: Vec<_> = open.iter().map(Unmet::to_string).collect();
                break Waited::InVain(format!("its children are left open: {}", names.join(", ")));
            }
            agent.stop.wait(LOOK, Wish::None);
        };
        drop(parked);
        is_dismissed.store(true, Ordering::SeqCst);
        agent.supply.stir();
        if let Ok(Err(error)) = working.join() {
            agent.tell.say(What::Warning(format!("what stood in for it meanwhile has ended: {error}")));
        }
        waited
    })
}

/// Whether a child is settled by now; notes in which phase it is. One that cannot be read is looked at again.
fn is_settled(agent: &Agent<'_>, child: &mut Unmet) -> bool {
    let Some((queue, slug)) = &child.place else { return true };
    if let Ok(Some(state)) = agent.session.ledger().state(&RefName::of_task(queue, slug)) {
        child.phase = state.phase();
    }
    child.phase.is_some_and(Phase::is_settled)
}
