//! What tasks are to each other, held against definitions that anybody can check by eye: slow, and with nothing clever.
//!
//! The graphs are small and wild: circles, tasks that nobody has read, successors of successors. What the planner would
//! refuse must still be answered, since other programs write ledgers, too.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Arc;

use pm::id::TaskId;
use pm::protocol::graph::{Graph, SUCCESSORS_MAX, Stand, Waits, claim_order};
use pm::protocol::record::{Phase, Status};
use pm::protocol::state::{Pending, StatusAt, TaskState};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::chain::{agent, id, task};
use super::for_all;

/// The most tasks of a random graph.
const TASKS: usize = 10;

/// A task of a random graph, which names others by their places; a place beyond the last one is a task that was not read.
#[derive(Debug, Clone)]
struct Drawn {
    parent: Option<usize>,
    depends_on: Vec<usize>,
    is_sticky: bool,
    phase: Phase,
    successor: usize,
    context: Option<u8>,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let place = || 0..=TASKS;
    let phases = [Phase::New, Phase::New, Phase::Working, Phase::Done, Phase::Rejected, Phase::Superseded];
    (
        prop::option::weighted(0.3, place()),
        prop::collection::vec(place(), 0..2),
        prop::bool::weighted(0.4),
        prop::sample::select(phases.to_vec()),
        place(),
        prop::option::of(1..3_u8),
    )
        .prop_map(|(parent, depends_on, is_sticky, phase, successor, context)| {
            let context = context.filter(|_| is_sticky);
            Drawn { parent, depends_on, is_sticky, phase, successor, context }
        })
}

fn id_of(at: usize) -> TaskId {
    id(at + 1).as_task()
}

/// The states of drawn tasks: as they would be read, but for their history.
fn states(drawn: &[Drawn]) -> Vec<TaskState> {
    let state = |(at, drawn): (usize, &Drawn)| {
        let mut task = task("");
        task.parent = drawn.parent.map(id_of);
        task.depends_on = drawn.depends_on.iter().copied().map(id_of).collect();
        task.sticky = drawn.is_sticky;
        let mut status = Status::new(drawn.phase, 0, 0);
        status.superseded_by = (drawn.phase == Phase::Superseded).then(|| id_of(drawn.successor));
        status.context = drawn.context.map(|context| format!("c{context}").parse().expect("a context"));
        let tip = id_of(at).record();
        TaskState {
            id: id_of(at),
            task: Arc::new(task),
            tip,
            seq: 1,
            clock: None,
            at: 0,
            status: Some(StatusAt { id: tip, seq: 1, agent: agent("w1"), at: 0, status }),
            report: None,
            heartbeat: None,
            pending: Pending::Nothing,
        }
    };
    drawn.iter().enumerate().map(state).collect()
}

/// The same tasks, and the plainest answers to the same questions.
struct Naive<'a> {
    drawn: &'a [Drawn],
    /// Whether the first is an ancestor of the second: its parent or dependency, or one of theirs.
    is_above: Vec<Vec<bool>>,
}

impl Naive<'_> {
    fn new(drawn: &[Drawn]) -> Naive<'_> {
        let count = drawn.len();
        let naive = Naive { drawn, is_above: Vec::new() };
        let named = |task: &Drawn| -> Vec<Option<usize>> {
            let all = task.parent.iter().chain(&task.depends_on).filter(|_| task.phase != Phase::Superseded);
            all.map(|named| naive.stand(*named)).collect()
        };
        let is_above = |above: usize, below: usize| named(&drawn[below]).contains(&Some(above));
        let mut all: Vec<Vec<bool>> =
            (0..count).map(|above| (0..count).map(|at| is_above(above, at)).collect()).collect();
        close(&mut all);
        Naive { is_above: all, ..naive }
    }

    /// Which task stands for this one.
    fn stand(&self, named: usize) -> Option<usize> {
        let mut at = named;
        for _ in 0..=self.drawn.len() {
            match self.drawn.get(at)? {
                task if task.phase == Phase::Superseded => at = task.successor,
                _ => return Some(at),
            }
        }
        None
    }

    /// Which sticky tasks are tied to which.
    fn ties(&self) -> Vec<Vec<bool>> {
        let is_member = |at: usize| self.drawn[at].is_sticky && self.drawn[at].phase != Phase::Superseded;
        let count = self.drawn.len();
        let is_tied = |a: usize, b: usize| is_member(a) && is_member(b) && (self.is_above[a][b] || self.is_above[b][a]);
        let mut ties: Vec<Vec<bool>> = (0..count).map(|a| (0..count).map(|b| is_tied(a, b)).collect()).collect();
        close(&mut ties);
        ties
    }

    fn children(&self, of: usize) -> BTreeSet<usize> {
        let is_child = |task: &Drawn| {
            task.phase != Phase::Superseded && task.parent.and_then(|parent| self.stand(parent)) == Some(of)
        };
        (0..self.drawn.len()).filter(|at| is_child(&self.drawn[*at])).collect()
    }
}

/// Makes a relation transitive.
fn close(relation: &mut [Vec<bool>]) {
    for through in 0..relation.len() {
        for from in 0..relation.len() {
            for to in 0..relation.len() {
                relation[from][to] |= relation[from][through] && relation[through][to];
            }
        }
    }
}

/// Every question about every task of a graph.
fn check(drawn: &[Drawn], ties_seen: &Cell<usize>) -> TestCaseResult {
    let states = states(drawn);
    let graph = Graph::new(&states);
    let naive = Naive::new(drawn);
    let ties = naive.ties();
    for (at, ties) in ties.iter().enumerate() {
        let stand = match graph.stand(id_of(at)) {
            Stand::Here(at) => Some(at),
            Stand::Elsewhere(_) => None,
        };
        prop_assert_eq!(stand, naive.stand(at), "what stands for {}", at);

        let tied: BTreeSet<usize> = graph.tied(at).into_iter().collect();
        let expected: BTreeSet<usize> = (0..drawn.len()).filter(|other| *other != at && ties[*other]).collect();
        ties_seen.set(ties_seen.get() + expected.len());
        prop_assert_eq!(&tied, &expected, "tied to {}", at);
        let context = |other: usize| drawn[other].context.map(|context| format!("c{context}"));
        let group = expected.iter().copied().chain([at]).filter(|_| drawn[at].is_sticky);
        let contexts: BTreeSet<String> = group.filter_map(context).collect();
        let bindings: BTreeSet<String> = graph.bindings(at).iter().map(|bound| bound.context.to_string()).collect();
        prop_assert!(bindings.is_subset(&contexts), "the contexts around {}", at);
        prop_assert_eq!(bindings.len(), contexts.len().min(2), "as many as decide around {}", at);

        let children = naive.children(at);
        prop_assert_eq!(graph.children(at).iter().copied().collect::<BTreeSet<_>>(), children.clone());

        let mut below = children;
        while let Some(more) = below.iter().flat_map(|child| naive.children(*child)).find(|more| !below.contains(more))
        {
            below.insert(more);
        }
        below.remove(&at);
        let descendants = graph.reach(&[at], |at| graph.children(at).to_vec());
        prop_assert_eq!(descendants.len(), below.len(), "each once");
        prop_assert_eq!(descendants.iter().copied().collect::<BTreeSet<_>>(), below, "descendants of {}", at);
    }
    Ok(())
}

#[test]
fn ties_children_and_successors_are_what_their_definitions_say() {
    let ties = Cell::new(0);
    for_all(prop::collection::vec(drawn(), 1..=TASKS), |drawn| check(&drawn, &ties));
    assert!(ties.get() > 5_000, "{} ties: nothing is proven about them", ties.get());
}

#[test]
fn parents_come_before_their_children_among_descendants() {
    // Every task is a child of one before it, so nothing is a circle.
    let parents = prop::collection::vec(any::<prop::sample::Index>(), 1..30);
    for_all(parents, |parents| {
        let parent = |(at, parent): (usize, &prop::sample::Index)| (at > 0).then(|| parent.index(at));
        let parents: Vec<Option<usize>> = parents.iter().enumerate().map(parent).collect();
        let plain = |parent: &Option<usize>| Drawn {
            parent: *parent,
            depends_on: Vec::new(),
            is_sticky: false,
            phase: Phase::New,
            successor: 0,
            context: None,
        };
        let states = states(&parents.iter().map(plain).collect::<Vec<_>>());
        let graph = Graph::new(&states);
        let descendants = graph.reach(&[0], |at| graph.children(at).to_vec());
        prop_assert_eq!(descendants.len(), parents.len() - 1);
        for (place, at) in descendants.iter().enumerate() {
            let parent = parents[*at].expect("below the first");
            prop_assert!(parent == 0 || descendants[..place].contains(&parent), "{} before its parent", at);
        }
        Ok(())
    });
}

#[test]
fn a_row_of_successors_is_followed_to_its_bound() {
    for (length, is_known) in [(1, true), (2, true), (SUCCESSORS_MAX + 1, true), (SUCCESSORS_MAX + 2, false)] {
        let task = |at: usize| Drawn {
            parent: None,
            depends_on: Vec::new(),
            is_sticky: false,
            phase: if at + 1 < length { Phase::Superseded } else { Phase::New },
            successor: at + 1,
            context: None,
        };
        let states = states(&(0..length).map(task).collect::<Vec<_>>());
        let stand = Graph::new(&states).here(id_of(0));
        assert_eq!(stand, is_known.then_some(length - 1), "{length} tasks");
    }
}

/// Works tasks off as the rules say, as far as anybody can get: what may be claimed is claimed (dependencies finished, the
/// parent claimed), what may be finished is finished (its children are). Whoever waits here waits for ever.
struct Workers<'a> {
    tasks: &'a [Waits],
    claimed: Vec<bool>,
    finished: Vec<bool>,
}

impl Workers<'_> {
    fn new(tasks: &[Waits]) -> Workers<'_> {
        Workers { tasks, claimed: vec![false; tasks.len()], finished: vec![false; tasks.len()] }
    }

    fn can_claim(&self, at: usize) -> bool {
        let Waits { parent, depends_on } = &self.tasks[at];
        parent.is_none_or(|parent| self.claimed[parent]) && depends_on.iter().all(|other| self.finished[*other])
    }

    /// Finishes what can be finished.
    fn finish(&mut self) {
        let is_closed = |workers: &Workers<'_>, parent: usize| {
            let mut children = (0..workers.tasks.len()).filter(|at| workers.tasks[*at].parent == Some(parent));
            children.all(|child| workers.finished[child])
        };
        while let Some(at) =
            (0..self.tasks.len()).find(|at| self.claimed[*at] && !self.finished[*at] && is_closed(self, *at))
        {
            self.finished[at] = true;
        }
    }

    /// Whether all can be worked off.
    fn can_end(mut self) -> bool {
        while let Some(at) = (0..self.tasks.len()).find(|at| !self.claimed[*at] && self.can_claim(*at)) {
            self.claimed[at] = true;
            self.finish();
        }
        self.finished.iter().all(|finished| *finished)
    }
}

fn waits() -> impl Strategy<Value = Vec<Waits>> {
    let one = (prop::option::weighted(0.5, 0..20_usize), prop::collection::vec(0..20_usize, 0..3));
    (prop::collection::vec(one, 1..8), any::<bool>()).prop_map(|(tasks, is_in_order)| {
        let count = tasks.len();
        let one = |(at, (parent, depends_on)): (usize, (Option<usize>, Vec<usize>))| {
            // Half of the plans only name what stands before them, so that many have an order.
            let place = |named: usize| if is_in_order { (at > 0).then(|| named % at) } else { Some(named % count) };
            Waits {
                parent: parent.and_then(place),
                depends_on: depends_on.into_iter().filter(|named| named % 2 == 0).filter_map(place).collect(),
            }
        };
        tasks.into_iter().enumerate().map(one).collect()
    })
}

/// The tasks of a circle alone.
fn only(tasks: &[Waits], circle: &[usize]) -> Vec<Waits> {
    let place = |named: &usize| circle.iter().position(|at| at == named);
    let one = |at: &usize| Waits {
        parent: tasks[*at].parent.as_ref().and_then(place),
        depends_on: tasks[*at].depends_on.iter().filter_map(place).collect(),
    };
    circle.iter().map(one).collect()
}

fn check_order(tasks: &[Waits]) -> Result<bool, TestCaseError> {
    let can_end = Workers::new(tasks).can_end();
    match claim_order(tasks) {
        Ok(order) => {
            prop_assert!(can_end, "an order of what nobody can work off: {:?}", order);
            let mut workers = Workers::new(tasks);
            for at in &order {
                prop_assert!(!workers.claimed[*at] && workers.can_claim(*at), "{} comes too soon in {:?}", at, order);
                workers.claimed[*at] = true;
                workers.finish();
            }
            prop_assert!(workers.finished.iter().all(|finished| *finished), "not all are in {:?}", order);
        }
        Err(circle) => {
            prop_assert!(!can_end, "a circle where there is none: {:?}", circle);
            let once: BTreeSet<usize> = circle.iter().copied().collect();
            prop_assert!(!circle.is_empty() && once.len() == circle.len(), "a task twice: {:?}", circle);
            for (place, at) in circle.iter().enumerate() {
                let next = circle[(place + 1) % circle.len()];
                let named = tasks[*at].parent == Some(next) || tasks[*at].depends_on.contains(&next);
                prop_assert!(named || tasks[next].parent == Some(*at), "{} waits not for {}: {:?}", at, next, circle);
            }
            prop_assert!(!Workers::new(&only(tasks, &circle)).can_end(), "no circle by itself: {:?}", circle);
        }
    }
    Ok(can_end)
}

#[test]
fn there_is_an_order_of_claims_exactly_where_all_can_be_worked_off_and_else_a_circle() {
    let counts = Cell::new((0, 0));
    for_all(waits(), |tasks| {
        let (ordered, circular) = counts.get();
        counts.set(if check_order(&tasks)? { (ordered + 1, circular) } else { (ordered, circular + 1) });
        Ok(())
    });
    let (ordered, circular) = counts.get();
    assert!(ordered > 2000 && circular > 2000, "{ordered} with an order, {circular} without");
}

#[test]
fn every_plan_of_three_tasks_is_ordered_or_refused_rightly() {
    let parents = [None, Some(0), Some(1), Some(2)];
    let dependencies = |bits: usize| (0..3).filter(|at| bits >> at & 1 == 1).collect::<Vec<usize>>();
    for plan in 0..32_usize.pow(3) {
        let one = |at: u32| {
            let choice = plan / 32_usize.pow(at) % 32;
            Waits { parent: parents[choice % 4], depends_on: dependencies(choice / 4) }
        };
        let tasks: Vec<Waits> = (0..3).map(one).collect();
        check_order(&tasks).unwrap_or_else(|error| panic!("{error} in {tasks:?}"));
    }
}
