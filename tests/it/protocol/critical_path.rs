//! The critical path: on plans that anybody can check by eye, and on random ones against a definition without any wit.

use std::sync::Arc;

use pm::protocol::graph::{Graph, Waits, critical_path};
use pm::protocol::record::{Phase, Status};
use pm::protocol::state::{Pending, StatusAt, TaskState};
use proptest::prelude::*;

use super::chain::{agent, id, task};
use super::for_all;

/// Compares the path through tasks, each given as its parent and its dependencies.
fn check(plan: &[(Option<usize>, &[usize])], expected: &[usize]) {
    assert_eq!(critical_path(&waits(plan)), expected, "{plan:?}");
}

fn waits(plan: &[(Option<usize>, &[usize])]) -> Vec<Waits> {
    plan.iter().map(|(parent, depends_on)| Waits { parent: *parent, depends_on: depends_on.to_vec() }).collect()
}

#[test]
fn dependencies_make_a_chain_and_the_first_of_equals_wins() {
    check(&[], &[]);
    check(&[(None, &[])], &[0]);
    check(&[(None, &[]), (None, &[0]), (None, &[]), (None, &[1, 2])], &[0, 1, 3]);
    check(&[(None, &[]), (None, &[]), (None, &[1]), (None, &[0])], &[0, 3]);
    check(&[(None, &[2]), (None, &[2]), (None, &[])], &[2, 0]);
}

#[test]
fn a_child_is_finished_before_its_parent_and_begun_after_what_the_parent_waits_for() {
    check(&[(None, &[]), (Some(0), &[])], &[1, 0]);
    // 0 must be done before the parent 1 is claimed, which is before its child 2 is.
    check(&[(None, &[]), (None, &[0]), (Some(1), &[])], &[0, 2, 1]);
    // Siblings that wait for each other, and what waits for their parent.
    check(&[(None, &[]), (Some(0), &[]), (Some(0), &[1]), (None, &[0])], &[1, 2, 0, 3]);
}

#[test]
fn what_waits_in_a_circle_is_no_part_of_it() {
    check(&[(None, &[1]), (None, &[0])], &[]);
    check(&[(None, &[]), (None, &[0, 2]), (None, &[1]), (None, &[2])], &[0]);
    check(&[(Some(0), &[])], &[]);
}

/// All chains: `is_before` says of two tasks whether one can only be finished after the other. The longest one, and of
/// several the first in order.
fn naive(plan: &[Waits]) -> Vec<usize> {
    let count = plan.len() * 2;
    let mut is_before = vec![vec![false; count]; count];
    for (at, waits) in plan.iter().enumerate() {
        is_before[at * 2][at * 2 + 1] = true;
        waits.depends_on.iter().for_each(|dependency| is_before[dependency * 2 + 1][at * 2] = true);
        if let Some(parent) = waits.parent {
            is_before[parent * 2][at * 2] = true;
            is_before[at * 2 + 1][parent * 2 + 1] = true;
        }
    }
    for via in 0..count {
        for from in 0..count {
            for to in 0..count {
                is_before[from][to] |= is_before[from][via] && is_before[via][to];
            }
        }
    }
    // Whoever waits for a circle has something before it that is before itself.
    let never = |event: usize| (0..count).any(|e| is_before[e][e] && (e == event || is_before[e][event]));
    let tasks: Vec<usize> = (0..plan.len()).filter(|at| !never(at * 2 + 1)).collect();
    let mut best = Vec::new();
    let mut open: Vec<Vec<usize>> = tasks.iter().map(|at| vec![*at]).collect();
    while let Some(chain) = open.pop() {
        let last = chain.last().expect("a task");
        let follows = |at: &&usize| is_before[last * 2 + 1][*at * 2 + 1];
        open.extend(tasks.iter().filter(follows).map(|at| [&chain[..], &[*at]].concat()));
        if chain.len() > best.len() || (chain.len() == best.len() && chain < best) {
            best = chain;
        }
    }
    best
}

#[test]
fn on_random_plans_it_is_the_longest_of_all_chains() {
    const TASKS: usize = 7;
    let task = (prop::option::weighted(0.4, 0..TASKS), prop::collection::vec(0..TASKS, 0..3));
    let plans = (prop::collection::vec(task, 0..=TASKS), any::<bool>());
    for_all(plans, |(drawn, is_wild)| {
        let count = drawn.len();
        let waits = |(at, (parent, depends_on)): (usize, &(Option<usize>, Vec<usize>))| {
            // Half of the plans have no circle of dependencies or parents alone.
            let is_fine = |other: &usize| *other < count && (is_wild || *other < at);
            Waits { parent: parent.filter(is_fine), depends_on: depends_on.iter().copied().filter(is_fine).collect() }
        };
        let plan: Vec<Waits> = drawn.iter().enumerate().map(waits).collect();
        prop_assert_eq!(critical_path(&plan), naive(&plan), "{:?}", plan);
        Ok(())
    });
}

/// A task with its number as its id, so that lower numbers come first.
fn state(number: usize, phase: Phase, parent: Option<usize>, depends_on: &[usize]) -> TaskState {
    let mut task = task("");
    task.parent = parent.map(|parent| id(parent + 1).as_task());
    task.depends_on = depends_on.iter().map(|at| id(at + 1).as_task()).collect();
    let tip = id(number + 1);
    let status = StatusAt { id: tip, seq: 1, agent: agent("w1"), at: 0, status: Status::new(phase, 0, 0) };
    TaskState {
        id: tip.as_task(),
        task: Arc::new(task),
        tip,
        seq: 1,
        clock: None,
        at: 0,
        status: Some(status),
        report: None,
        heartbeat: None,
        pending: Pending::Nothing,
    }
}

#[test]
fn closed_tasks_are_past_and_what_is_being_worked_on_waits_for_its_children_alone() {
    let states = [
        state(0, Phase::Done, None, &[]),
        state(1, Phase::New, None, &[0]),
        // It was claimed when 1 was done, which was opened again since.
        state(2, Phase::Working, None, &[1]),
        state(3, Phase::New, Some(2), &[]),
        state(4, Phase::New, None, &[2]),
        state(5, Phase::Rejected, None, &[4]),
        state(6, Phase::New, None, &[5]),
    ];
    let graph = Graph::new(&states);
    assert_eq!(graph.critical_path(&[0, 1, 2, 3, 4, 5, 6]), [3, 2, 4]);
    assert_eq!(graph.critical_path(&[0, 1, 2, 5, 6]), [1]);
    let mut urgent = states;
    let task = Arc::make_mut(&mut urgent[6].task);
    task.priority = 0_u64.try_into().expect("a priority");
    assert_eq!(Graph::new(&urgent).critical_path(&[1, 6]), [6]);
}
