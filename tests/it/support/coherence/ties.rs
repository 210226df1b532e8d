//! Which sticky tasks are tied together, told in the plainest way there is: all ancestors of every task, then every pair.
//!
//! An ancestor is a parent or a dependency, and its ancestors. Two sticky tasks are tied if one is an ancestor of the
//! other, whatever lies between; and what is tied to one of two that are tied is tied to the other.
//!
//! What was superseded is out of it, and its successor in its place. So this is how the tasks stand in the end; of a
//! ledger in which sticky tasks are replaced in the middle of the work it would tell too much.

use std::collections::BTreeSet;

use super::life::Life;

/// The groups, each of places in `lives`. A sticky task that is tied to none is a group of its own.
pub fn groups(lives: &[Life<'_>]) -> Vec<Vec<usize>> {
    let above: Vec<BTreeSet<usize>> = ancestors(lives);
    let stands = |at: usize| successor(lives, at) == at;
    let sticky: Vec<usize> = (0..lives.len()).filter(|at| lives[*at].task.is_sticky() && stands(*at)).collect();
    let mut group: Vec<usize> = (0..lives.len()).collect();
    for a in &sticky {
        for b in &sticky {
            if above[*b].contains(a) {
                let (keep, drop) = (group[*a], group[*b]);
                group.iter_mut().filter(|group| **group == drop).for_each(|group| *group = keep);
            }
        }
    }
    let names: BTreeSet<usize> = sticky.iter().map(|at| group[*at]).collect();
    names.iter().map(|name| sticky.iter().copied().filter(|at| group[*at] == *name).collect()).collect()
}

/// All ancestors of each task.
fn ancestors(lives: &[Life<'_>]) -> Vec<BTreeSet<usize>> {
    let find = |id: &str| lives.iter().position(|life| life.task.id() == id).map(|at| successor(lives, at));
    let mut above: Vec<BTreeSet<usize>> = lives
        .iter()
        .map(|life| life.task.one("Parent").into_iter().chain(life.task.all("Depends-On")).filter_map(find).collect())
        .collect();
    loop {
        let mut has_grown = false;
        for at in 0..above.len() {
            let further: Vec<usize> = above[at].iter().flat_map(|next| &above[*next]).copied().collect();
            for ancestor in further {
                has_grown |= above[at].insert(ancestor);
            }
        }
        if !has_grown {
            return above;
        }
    }
}

/// What stands for a task in the end.
fn successor(lives: &[Life<'_>], at: usize) -> usize {
    let mut at = at;
    for _ in 0..lives.len() {
        let by = lives[at].statuses.last().and_then(|last| last.record.one("Superseded-By"));
        match by.and_then(|by| lives.iter().position(|life| life.task.id() == by)) {
            Some(next) => at = next,
            None => break,
        }
    }
    at
}
