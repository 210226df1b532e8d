//! Which tasks of a ledger are drawn, and in which order.

use crate::id::Queue;
use crate::protocol::graph::{Graph, Index, claim_order};
use crate::protocol::record::Phase;
use crate::protocol::select;

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// The tasks of this queue, with those of others that they name or that name them; else all tasks.
    pub queue: Option<&'a Queue>,
    /// Superseded tasks, too.
    pub superseded: bool,
    /// At most so many tasks.
    pub limit: usize,
}

/// What is to be drawn.
#[derive(Debug)]
pub struct Choice {
    /// All tasks that are wanted, in an order in which they could be claimed.
    pub members: Vec<Index>,
    /// Those of them that are shown.
    pub shown: Vec<Index>,
    /// The critical path.
    pub critical_path: Vec<Index>,
    /// Open tasks that wait for each other in a circle.
    pub circle: Vec<Index>,
}

/// Chooses from the tasks that were read: all of the ledger.
pub fn choose(graph: &Graph<'_>, wish: Wish<'_>) -> Choice {
    let is_wanted = |at: &Index| wish.queue.is_none_or(|queue| graph.tasks()[*at].task.queue == *queue);
    let wanted: Vec<Index> = (0..graph.tasks().len()).filter(is_wanted).collect();
    let critical_path = graph.critical_path(&[&wanted[..], &graph.reach(&wanted, |at| before(graph, at))].concat());
    let mut members = members(graph, &wanted, &critical_path);
    members.retain(|at| wish.superseded || graph.tasks()[*at].superseded_by().is_none());
    members.sort_by(|a, b| select::order(graph.tasks()[*a], graph.tasks()[*b]));
    let mut circle = Vec::new();
    match claim_order(&graph.waits(&members)) {
        Ok(order) => members = order.into_iter().map(|place| members[place]).collect(),
        Err(places) => {
            circle = places.into_iter().map(|place| members[place]).collect();
            circle.retain(|at| is_open(graph, *at));
        }
    }
    let shown = cut(graph, &members, &critical_path, wish.limit);
    Choice { members, shown, critical_path, circle }
}

/// What must be finished before a task can be.
fn before(graph: &Graph<'_>, at: Index) -> Vec<Index> {
    graph.dependencies(at).iter().chain(graph.children(at)).copied().chain(graph.parent(at)).collect()
}

/// Tasks, with those that they name or that name them, and the critical path; each once.
fn members(graph: &Graph<'_>, wanted: &[Index], critical_path: &[Index]) -> Vec<Index> {
    let near = |at: &Index| [before(graph, *at), graph.dependents(*at).to_vec()].concat();
    let mut members: Vec<Index> = wanted.to_vec();
    members.extend(wanted.iter().flat_map(near));
    members.extend(critical_path);
    members.sort_unstable();
    members.dedup();
    members
}

/// As many as may be shown: first those of the critical path, then what is being worked on, what is new, the closed ones;
/// each with its parents, so that it has a place in the tree.
fn cut(graph: &Graph<'_>, members: &[Index], critical_path: &[Index], limit: usize) -> Vec<Index> {
    if members.len() <= limit {
        return members.to_vec();
    }
    let mut is_critical = vec![false; graph.tasks().len()];
    critical_path.iter().for_each(|at| is_critical[*at] = true);
    let mut ranked = members.to_vec();
    ranked.sort_by_key(|at| match graph.tasks()[*at].phase() {
        _ if is_critical[*at] => 0,
        Some(Phase::Working) => 1,
        Some(Phase::New) | None => 2,
        Some(Phase::Rejected) => 3,
        Some(Phase::Done | Phase::Superseded) => 4,
    });
    let mut is_kept = vec![false; graph.tasks().len()];
    let mut left = limit;
    for at in ranked {
        if left == 0 {
            break;
        }
        let line: Vec<Index> = std::iter::successors(Some(at), |at| graph.parent(*at))
            .take_while(|at| !is_kept[*at])
            .take(left + 1)
            .collect();
        // (Parents in a circle, made by hand, never end: they do not fit.)
        if line.len() <= left {
            left -= line.len();
            line.into_iter().for_each(|at| is_kept[at] = true);
        }
    }
    members.iter().copied().filter(|at| is_kept[*at]).collect()
}

fn is_open(graph: &Graph<'_>, at: Index) -> bool {
    graph.tasks()[at].phase().is_some_and(|phase| !phase.is_settled())
}
