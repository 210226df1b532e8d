//! What many tasks, read together, are to each other: who waits for whom, who belongs to whom, and which sticky tasks are
//! tied together (rules 8 and 9; design, section 4).
//!
//! A task names its parent and its dependencies, and never changes. Whatever it names may have been superseded: then the
//! successor stands in its place, for everybody who named it. So all questions are asked of the tasks that stand, and a
//! superseded one is never an answer.
//!
//! Pure: the states come in, and what is not among them is told as not known. What a task alone says is in
//! [`state`](super::state).

use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};

use super::record::Phase;
use super::refusal::Unmet;
use super::select;
use super::state::TaskState;
use super::sticky::Bound;
use crate::id::TaskId;

/// How often a task can be replaced, and so how often a superseded one is followed to its successor. Tasks that supersede
/// each other more often, or in a circle, were not made by pm: their row is called damaged.
pub const SUCCESSORS_MAX: usize = 1_000;

/// A task's place among the others.
pub type Index = usize;

/// What stands for a task that somebody names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// This task.
    Here(Index),
    /// A task that is not among those that were read: the one that was named, or the last known successor.
    Elsewhere(TaskId),
}

/// Tasks, and what they are to each other.
#[derive(Debug)]
pub struct Graph<'a> {
    tasks: Vec<&'a TaskState>,
    index: HashMap<TaskId, Index>,
    edges: OnceCell<Edges>,
    live: OnceCell<Vec<bool>>,
    groups: OnceCell<Groups>,
}

/// The sticky tasks, by what is tied together.
#[derive(Debug)]
struct Groups {
    /// Which group a task is of.
    of: Vec<Option<usize>>,
    /// How each group is bound.
    bindings: Vec<Vec<Bound>>,
}

/// What the tasks name, and who names them; superseded tasks have none of it.
#[derive(Debug)]
struct Edges {
    parent: Vec<Option<Index>>,
    dependencies: Vec<Vec<Index>>,
    children: Vec<Vec<Index>>,
    dependents: Vec<Vec<Index>>,
}

impl<'a> Graph<'a> {
    /// Of tasks that were read.
    pub fn new(tasks: impl IntoIterator<Item = &'a TaskState>) -> Graph<'a> {
        let tasks: Vec<_> = tasks.into_iter().collect();
        let index = tasks.iter().enumerate().map(|(at, state)| (state.id, at)).collect();
        Graph { tasks, index, edges: OnceCell::new(), live: OnceCell::new(), groups: OnceCell::new() }
    }

    /// The tasks, each at its index.
    pub fn tasks(&self) -> &[&'a TaskState] {
        &self.tasks
    }

    /// Where a task is, superseded or not.
    pub fn find(&self, id: TaskId) -> Option<Index> {
        self.index.get(&id).copied()
    }

    /// What stands for the task that is named.
    pub fn stand(&self, id: TaskId) -> Stand {
        let mut id = id;
        for _ in 0..=SUCCESSORS_MAX {
            let Some(at) = self.find(id) else { break };
            match self.tasks[at].superseded_by() {
                Some(next) => id = next,
                None => return Stand::Here(at),
            }
        }
        Stand::Elsewhere(id)
    }

    /// As [`Graph::stand`], where that is known.
    pub fn here(&self, id: TaskId) -> Option<Index> {
        match self.stand(id) {
            Stand::Here(at) => Some(at),
            Stand::Elsewhere(_) => None,
        }
    }

    fn edges(&self) -> &Edges {
        self.edges.get_or_init(|| {
            let count = self.tasks.len();
            let mut edges = Edges {
                parent: vec![None; count],
                dependencies: vec![Vec::new(); count],
                children: vec![Vec::new(); count],
                dependents: vec![Vec::new(); count],
            };
            for (at, state) in self.tasks.iter().enumerate().filter(|(_, state)| state.superseded_by().is_none()) {
                edges.parent[at] = state.task.parent.and_then(|parent| self.here(parent));
                if let Some(parent) = edges.parent[at] {
                    edges.children[parent].push(at);
                }
                for dependency in state.task.depends_on.iter().filter_map(|id| self.here(*id)) {
                    edges.dependencies[at].push(dependency);
                    edges.dependents[dependency].push(at);
                }
            }
            edges
        })
    }

    /// The parent, if it is known.
    pub fn parent(&self, at: Index) -> Option<Index> {
        self.edges().parent[at]
    }

    /// The dependencies that are known.
    pub fn dependencies(&self, at: Index) -> &[Index] {
        &self.edges().dependencies[at]
    }

    /// The tasks whose parent this is.
    pub fn children(&self, at: Index) -> &[Index] {
        &self.edges().children[at]
    }

    /// The tasks that depend on this one.
    pub fn dependents(&self, at: Index) -> &[Index] {
        &self.edges().dependents[at]
    }

    /// Everything that `next` leads to from these, step by step, without them; nearer ones first, each once.
    pub fn reach(&self, from: &[Index], next: impl Fn(Index) -> Vec<Index>) -> Vec<Index> {
        let mut seen = vec![false; self.tasks.len()];
        from.iter().for_each(|at| seen[*at] = true);
        let mut reached: Vec<Index> = Vec::new();
        let mut queue: VecDeque<Index> = from.iter().copied().collect();
        while let Some(at) = queue.pop_front() {
            for next in next(at) {
                if !std::mem::replace(&mut seen[next], true) {
                    reached.push(next);
                    queue.push_back(next);
                }
            }
        }
        reached
    }

    /// What some tasks wait for among themselves: by their places in `members`.
    pub fn waits(&self, members: &[Index]) -> Vec<Waits> {
        let place: HashMap<Index, Index> = members.iter().enumerate().map(|(place, at)| (*at, place)).collect();
        let known = |at: &Index| place.get(at).copied();
        let waits = |at: &Index| Waits {
            parent: self.parent(*at).as_ref().and_then(known),
            depends_on: self.dependencies(*at).iter().filter_map(known).collect(),
        };
        members.iter().map(waits).collect()
    }

    /// The longest chain of open tasks among some that can only be finished one after the other; of several, the one that
    /// comes first as [`select::order`] has it. A task that is being worked on waits for its children alone.
    pub fn critical_path(&self, members: &[Index]) -> Vec<Index> {
        let is_open = |at: &&Index| self.tasks[**at].phase().is_some_and(|phase| !phase.is_settled());
        let mut open: Vec<Index> = members.iter().filter(is_open).copied().collect();
        open.sort_by(|a, b| select::order(self.tasks[*a], self.tasks[*b]));
        let mut waits = self.waits(&open);
        for (waits, at) in waits.iter_mut().zip(&open) {
            if self.tasks[*at].phase() == Some(Phase::Working) {
                waits.depends_on.clear();
            }
        }
        critical_path(&waits).into_iter().map(|place| open[place]).collect()
    }

    /// How another task is told of.
    pub fn told(&self, named: TaskId, at: Index) -> Unmet {
        let state = self.tasks[at];
        let place = (state.task.queue.clone(), state.task.slug.clone());
        Unmet { task: named, place: Some(place), phase: state.phase() }
    }

    /// The sticky tasks that are tied to a sticky one, without it. Two are tied if one is an ancestor of the other along
    /// parents and dependencies, whatever lies between; and so is what is tied to both.
    pub fn tied(&self, at: Index) -> Vec<Index> {
        if !self.tasks[at].task.sticky || self.live_neighbours(at).is_empty() {
            return Vec::new();
        }
        let mut tied = self.reach(&[at], |at| self.live_neighbours(at));
        tied.retain(|at| self.tasks[*at].task.sticky);
        tied
    }

    /// The bindings of a sticky task and of all that are tied to it, as far as they decide anything: one, and one to another
    /// context, if there is one.
    pub fn bindings(&self, at: Index) -> &[Bound] {
        let groups = self.groups.get_or_init(|| self.group());
        groups.of[at].map_or(&[], |group| &groups.bindings[group])
    }

    fn group(&self) -> Groups {
        let mut groups = Groups { of: vec![None; self.tasks.len()], bindings: Vec::new() };
        for at in 0..self.tasks.len() {
            if !self.tasks[at].task.sticky || groups.of[at].is_some() {
                continue;
            }
            let mut bindings: Vec<Bound> = Vec::new();
            for member in std::iter::once(at).chain(self.tied(at)) {
                groups.of[member] = Some(groups.bindings.len());
                let bound = self.tasks[member].bound();
                let decides = |bound: &Bound| bindings.iter().all(|other| other.context != bound.context);
                bindings.extend(bound.filter(decides));
            }
            bindings.truncate(2);
            groups.bindings.push(bindings);
        }
        groups
    }

    fn live_neighbours(&self, at: Index) -> Vec<Index> {
        let (live, edges) = (self.live(), self.edges());
        let all = edges.parent[at].iter().chain(&edges.dependencies[at]);
        all.chain(&edges.children[at]).chain(&edges.dependents[at]).copied().filter(|at| live[*at]).collect()
    }

    /// Which tasks lie between sticky ones: those that have one among their ancestors or are one, and likewise below. All
    /// sticky ancestors of such a task are ancestors of all its sticky descendants, so everything sticky around it is tied;
    /// and two that are tied are joined by a path of such tasks.
    fn live(&self) -> &[bool] {
        self.live.get_or_init(|| {
            let sticky: Vec<Index> = (0..self.tasks.len()).filter(|at| self.tasks[*at].task.sticky).collect();
            let flags = |reached: Vec<Index>| {
                let mut flags = vec![false; self.tasks.len()];
                reached.into_iter().chain(sticky.iter().copied()).for_each(|at| flags[at] = true);
                flags
            };
            let edges = self.edges();
            let below = |at: Index| edges.children[at].iter().chain(&edges.dependents[at]).copied().collect();
            let above = |at: Index| edges.parent[at].iter().chain(&edges.dependencies[at]).copied().collect();
            let (from_above, from_below) = (flags(self.reach(&sticky, below)), flags(self.reach(&sticky, above)));
            from_above.into_iter().zip(from_below).map(|(above, below)| above && below).collect()
        })
    }
}

/// What tasks that are to be planned wait for, by their indices.
#[derive(Debug, Clone, Default)]
pub struct Waits {
    /// The parent.
    pub parent: Option<Index>,
    /// The dependencies.
    pub depends_on: Vec<Index>,
}

/// An order in which tasks can be claimed: parents and dependencies first.
///
/// # Errors
/// The tasks of a circle, each waiting for the one after it and the last for the first. Not only dependencies make one: a
/// task is finished after its children, and they are claimed after it.
pub fn claim_order(tasks: &[Waits]) -> Result<Vec<Index>, Vec<Index>> {
    let after = events(tasks);
    let (order, waiting) = sorted(&after);
    if order.len() == after.len() {
        return Ok(order.into_iter().filter(|event| event % 2 == 0).map(|event| event / 2).collect());
    }
    Err(circle(&after, &waiting))
}

/// The longest chain of tasks that can only be finished one after the other, in that order. Of several, the one whose first
/// task comes first among those given, then its second, and so on. What waits in a circle, or for one, is never finished
/// and no part of it.
pub fn critical_path(tasks: &[Waits]) -> Vec<Index> {
    let after = events(tasks);
    let (order, _) = sorted(&after);
    // How many tasks are finished one after the other from an event on.
    let mut ahead = vec![0_usize; after.len()];
    for &event in order.iter().rev() {
        let most = after[event].iter().map(|later| ahead[*later]).max().unwrap_or(0);
        ahead[event] = most + event % 2;
    }
    let mut path = Vec::new();
    let mut seen = vec![false; after.len()];
    let mut open: Vec<usize> = (0..after.len()).collect();
    for left in (1..=ahead.iter().copied().max().unwrap_or(0)).rev() {
        let mut first = usize::MAX;
        while let Some(event) = open.pop() {
            if ahead[event] != left || std::mem::replace(&mut seen[event], true) {
                continue;
            }
            // A claim leads on to the finishes behind it.
            if event % 2 == 1 { first = first.min(event) } else { open.extend(&after[event]) }
        }
        path.push(first / 2);
        open.extend(&after[first]);
    }
    path
}

/// What happens to tasks, and which of it comes before which: task `n` is claimed (event `2n`) and finished (`2n + 1`).
fn events(tasks: &[Waits]) -> Vec<Vec<usize>> {
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); tasks.len() * 2];
    let (claimed, finished) = (|at: Index| at * 2, |at: Index| at * 2 + 1);
    for (at, waits) in tasks.iter().enumerate() {
        after[claimed(at)].push(finished(at));
        for dependency in &waits.depends_on {
            after[finished(*dependency)].push(claimed(at));
        }
        if let Some(parent) = waits.parent {
            after[claimed(parent)].push(claimed(at));
            after[finished(at)].push(finished(parent));
        }
    }
    after
}

/// An order of events in which each comes after those that it waits for, without those that wait in a circle or for one;
/// and for how many each still waits then.
fn sorted(after: &[Vec<usize>]) -> (Vec<usize>, Vec<usize>) {
    let mut waiting = vec![0_usize; after.len()];
    after.iter().flatten().for_each(|event| waiting[*event] += 1);
    let mut order: Vec<usize> = (0..after.len()).filter(|event| waiting[*event] == 0).collect();
    let mut next = 0;
    while let Some(&event) = order.get(next) {
        next += 1;
        for &later in &after[event] {
            waiting[later] -= 1;
            if waiting[later] == 0 {
                order.push(later);
            }
        }
    }
    (order, waiting)
}

/// One circle among the events that still wait: whatever waits has something before it that waits, too.
fn circle(after: &[Vec<usize>], waiting: &[usize]) -> Vec<Index> {
    let mut before = vec![None; after.len()];
    for (event, later) in after.iter().enumerate().filter(|(event, _)| waiting[*event] > 0) {
        later.iter().filter(|later| waiting[**later] > 0).for_each(|later| before[*later] = Some(event));
    }
    // A finish that waits for its own claim is told by that: else the circle could lead through a child and back, and name
    // a task twice.
    (0..after.len())
        .step_by(2)
        .filter(|claimed| waiting[*claimed] > 0)
        .for_each(|claimed| before[claimed + 1] = Some(claimed));
    let mut path: Vec<usize> = Vec::new();
    let mut at = waiting.iter().position(|count| *count > 0);
    while let Some(event) = at {
        if let Some(first) = path.iter().position(|seen| *seen == event) {
            path.drain(..first);
            break;
        }
        path.push(event);
        at = before[event];
    }
    let mut tasks: Vec<Index> = path.into_iter().map(|event| event / 2).collect();
    tasks.dedup();
    if tasks.len() > 1 && tasks.first() == tasks.last() {
        tasks.pop();
    }
    tasks
}
