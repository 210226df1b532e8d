//! That nobody is planned to wait in a circle: neither by one plan, nor by two that are made at the same moment.

use std::collections::{HashMap, HashSet};

use super::Ledger;
use super::batch::{Named, Planned};
use super::obscured::unread;
use super::resolve::{Scan, place};
use crate::error::{Error, Fault, FaultKind, Result};
use crate::id::{Queue, RefName, TASKS, TaskId};
use crate::protocol::graph::{Graph, Index, SUCCESSORS_MAX, Waits, claim_order};
use crate::protocol::record::Task;
use crate::store::Mode;

/// The shard whose lock is taken by all plans that could make a circle, since two of them could do so together although
/// they have no task in common. Any would do.
const PLANS: u8 = 0;

/// The most circles that are looked for in one plan: all tasks are sorted anew for each.
const CIRCLES_MAX: usize = 100;

/// The tasks that there were when a plan was seen to make no circle.
#[derive(Debug)]
pub(crate) struct Ordered {
    known: HashSet<RefName>,
}

impl Ledger<'_> {
    /// Refuses a task that would wait for something that waits for it: one with a parent and dependencies may.
    pub(crate) fn check_order(&self, task: &Task) -> Result<Option<Ordered>> {
        if !may_make_a_circle(task) {
            return Ok(None);
        }
        let scan = self.scan(TASKS)?;
        let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
        let mut waits = waits_of(&graph);
        waits.push(waits_for(&graph, task));
        let name = |at: usize| match graph.tasks().get(at) {
            Some(state) => place(state).to_string(),
            None => format!("{}/{}", task.queue, task.slug),
        };
        claim_order(&waits).map_err(|circle| circular(&circle, name))?;
        Ok(Some(Ordered::by(&scan)))
    }

    /// Whether a plan makes no circle with what was planned since it was checked, now that the lock of all such plans is
    /// held.
    pub(crate) fn is_still_ordered(&self, ordered: Option<&Ordered>) -> Result<bool> {
        let Some(Ordered { known }) = ordered else { return Ok(true) };
        for (name, tip) in self.store.tips(TASKS)?.into_iter().filter(|(name, _)| !known.contains(name)) {
            match self.child_at(&name, tip).map_err(unread) {
                Ok(Some(task)) if may_make_a_circle(&task) => return Ok(false),
                // The check itself leaves out what cannot be read: nobody can claim that.
                Ok(_) | Err(Ok(_)) => {}
                Err(Err(error)) => return Err(error),
            }
        }
        Ok(true)
    }

    /// In which order the tasks of a batch can be created, and which of them wait for each other.
    pub(super) fn batch_order(&self, queue: &Queue, batch: &[Planned]) -> Result<Order> {
        // A circle can only lead through tasks that exist where a task hangs below one of them and waits for another.
        let is_below_others = self.is_below_others(queue, batch)?;
        let scan = if is_below_others { self.scan(TASKS)? } else { Default::default() };
        let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
        // A task of the batch that is there already is one task, and waits for what either says.
        let by_name: HashMap<&RefName, TaskId> = scan.tasks.iter().map(|(name, state)| (name, state.id)).collect();
        let there = |planned: &Planned| by_name.get(&RefName::of_task(queue, &planned.slug)).copied();
        let lines = batch.iter().enumerate().filter_map(|(at, planned)| Some((place_in(&graph, there(planned)?)?, at)));
        let lines: HashMap<Index, usize> = lines.collect();
        let line = |there: Index| lines.get(&there).copied();
        let place_of = |there: Index| line(there).unwrap_or(batch.len() + there);
        let at = |named: &Named| match named {
            Named::Batch(other) => Some(*other),
            Named::Task(id) => place_in(&graph, *id).map(place_of),
        };
        let own = batch.iter().map(|planned| Waits {
            parent: planned.parent.as_ref().and_then(at),
            depends_on: planned.depends_on.iter().filter_map(at).collect(),
        });
        let mut waits: Vec<Waits> = own.collect();
        for (there, known) in waits_of(&graph).into_iter().enumerate() {
            let parent = known.parent.map(place_of);
            let depends_on = known.depends_on.into_iter().map(place_of);
            match line(there) {
                Some(at) => {
                    waits[at].parent = parent.or(waits[at].parent);
                    waits[at].depends_on.extend(depends_on);
                    waits.push(Waits::default());
                }
                None => waits.push(Waits { parent, depends_on: depends_on.collect() }),
            }
        }
        let (order, circles, are_all) = without_circles(&mut waits);
        let name = |at: usize| match batch.get(at) {
            Some(planned) => planned.slug.to_string(),
            None => place(graph.tasks()[at - batch.len()]).to_string(),
        };
        Ok(Order {
            order: order.into_iter().filter(|at| *at < batch.len()).collect(),
            ordered: is_below_others.then(|| Ordered::by(&scan)),
            circles: circle_faults(batch, circles, are_all, name),
        })
    }

    /// Whether a task of the batch is a part of one that is there already.
    fn is_below_others(&self, queue: &Queue, batch: &[Planned]) -> Result<bool> {
        let mut in_batch = HashSet::new();
        for planned in batch {
            match planned.parent {
                Some(Named::Task(_)) => return Ok(true),
                Some(Named::Batch(other)) => drop(in_batch.insert(other)),
                None => {}
            }
        }
        for other in in_batch {
            if self.store.tip(&RefName::of_task(queue, &batch[other].slug))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// How the tasks of a batch wait for each other.
pub(super) struct Order {
    /// Every task of the batch after what it names; where tasks wait in a circle, one of them comes too early.
    pub(super) order: Vec<usize>,
    /// What that was judged by, if others could change it.
    pub(super) ordered: Option<Ordered>,
    /// The circles that a task of the batch is in.
    pub(super) circles: Vec<Fault>,
}

impl Ordered {
    /// What was read.
    pub(super) fn by(scan: &Scan) -> Ordered {
        let readable = scan.tasks.iter().map(|(name, _)| name);
        Ordered { known: readable.chain(scan.damaged.iter().map(|damage| &damage.name)).cloned().collect() }
    }

    /// The lock that keeps others from planning what would make it untrue.
    pub(crate) fn shard(&self) -> (u8, Mode) {
        (PLANS, Mode::Exclusive)
    }
}

/// Whether somebody could wait for a new task who is waited for by it. Nobody names it yet, so only its parent waits for it,
/// and that matters only where it waits for others.
fn may_make_a_circle(task: &Task) -> bool {
    task.parent.is_some() && !task.depends_on.is_empty()
}

/// What stands for a task that is named, or will: a clone that has not taken its original's place yet is taken for that one.
/// Else a task could be a part of the one and wait for the other, and be its own parent's dependent soon.
fn place_in(graph: &Graph<'_>, id: TaskId) -> Option<Index> {
    let mut at = graph.here(id)?;
    for _ in 0..SUCCESSORS_MAX {
        match graph.tasks()[at].replan_of().and_then(|original| graph.here(original)) {
            Some(original) if original != at => at = original,
            _ => break,
        }
    }
    Some(at)
}

/// What the tasks that exist wait for; nothing, where another one stands for them.
pub(super) fn waits_of(graph: &Graph<'_>) -> Vec<Waits> {
    let mut waits = vec![Waits::default(); graph.tasks().len()];
    for state in graph.tasks().iter().filter(|state| state.superseded_by().is_none()) {
        let Some(at) = place_in(graph, state.id) else { continue };
        let own = waits_for(graph, &state.task);
        waits[at].parent = waits[at].parent.or(own.parent);
        waits[at].depends_on.extend(own.depends_on);
    }
    waits
}

/// What a task waits for, among those that exist.
fn waits_for(graph: &Graph<'_>, task: &Task) -> Waits {
    Waits {
        parent: task.parent.and_then(|id| place_in(graph, id)),
        depends_on: task.depends_on.iter().filter_map(|id| place_in(graph, *id)).collect(),
    }
}

/// An order of all tasks in which what closes circles does not count, the circles, and whether these are all. What closes
/// them is taken away from `waits`.
fn without_circles(waits: &mut [Waits]) -> (Vec<Index>, Vec<Vec<Index>>, bool) {
    let mut circles: Vec<Vec<Index>> = Vec::new();
    for _ in 0..CIRCLES_MAX {
        match claim_order(waits) {
            Ok(order) => return (order, circles, true),
            Err(mut circle) => {
                let first = circle.iter().enumerate().min_by_key(|(_, at)| **at).map_or(0, |(first, _)| first);
                circle.rotate_left(first);
                open(waits, &circle);
                // Two tasks may wait for each other in more than one way.
                if !circles.contains(&circle) {
                    circles.push(circle);
                }
            }
        }
    }
    ((0..waits.len()).collect(), circles, false)
}

/// Lets the last task of a circle no longer wait for the first: as one that depends on it, its part, or its whole.
fn open(waits: &mut [Waits], circle: &[Index]) {
    let (Some(&first), Some(&last)) = (circle.first(), circle.last()) else { return };
    waits[last].depends_on.retain(|dependency| *dependency != first);
    for (child, parent) in [(last, first), (first, last)] {
        if waits[child].parent == Some(parent) {
            waits[child].parent = None;
        }
    }
}

/// What is wrong with a batch that has circles. One that no task of it is in is not its fault.
fn circle_faults(
    batch: &[Planned],
    circles: Vec<Vec<Index>>,
    are_all: bool,
    name: impl Fn(usize) -> String,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    // Tasks of the batch have the first indices, so that a circle begins with one if it can.
    for circle in circles {
        let Some(first) = batch.get(circle[0]) else { continue };
        let names = circle[1..].iter().map(|at| match batch.get(*at) {
            Some(planned) => format!("{} ({})", name(*at), planned.spot.short()),
            None => name(*at),
        });
        let mut names: Vec<_> = std::iter::once(name(circle[0])).chain(names).collect();
        names.push(name(circle[0]));
        let found = format!("the plan has a cycle: {}", names.join(" -> "));
        faults.push(Fault { spot: first.spot.clone(), kind: FaultKind::Graph, found });
    }
    if !are_all && let Some(last) = faults.last_mut() {
        last.found.push_str("; there may be more, which were not looked for");
    }
    faults
}

/// The refusal of a circle.
fn circular(circle: &[usize], name: impl Fn(usize) -> String) -> Error {
    let names: Vec<_> = circle.iter().chain(circle.first()).map(|at| name(*at)).collect();
    Error::InvalidGraph(format!("the plan has a cycle, nothing was written: {}", names.join(" -> ")))
}
