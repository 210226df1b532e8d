//! Tasks held against each other: what each waited for, and in which contexts those that are tied were worked on.
//!
//! A record is written before its ref moves, and a command reads other tasks before it writes. So what a record relies
//! on was written before it, and had not been replaced yet, as far as anybody could see, when it was written.

use std::collections::HashMap;

use super::life::{Life, Status};
use super::{Fault, Rule};

/// All tasks.
struct Whole<'a, 'b> {
    lives: &'b [Life<'a>],
    by_id: HashMap<&'a str, &'b Life<'a>>,
}

/// A task was bound to a context, from when on at the latest and until when at the earliest.
struct Bound<'a> {
    slug: &'a str,
    context: &'a str,
    from_ms: u64,
    until_ms: u64,
}

/// Judges them. `groups`: the sticky tasks that are tied together.
pub fn judge(lives: &[Life<'_>], groups: &[Vec<usize>], faults: &mut Vec<Fault>) {
    let whole = Whole { lives, by_id: lives.iter().map(|life| (life.task.id(), life)).collect() };
    for life in lives {
        let mut fault = |rule, found| faults.push(Fault { rule, slug: life.task.slug.clone(), found });
        for claim in &life.claims {
            let (sha, at) = (&claim.record.sha, claim.record.ms);
            for id in life.task.all("Depends-On") {
                if !whole.stood(id, at, |what| what == "done") {
                    fault(Rule::Dependency, format!("claimed by {sha} while {} was not done", whole.name(id)));
                }
            }
            if let Some(id) = life.task.one("Parent")
                && !whole.stood(id, at, |what| what != "new")
            {
                fault(Rule::Parent, format!("claimed by {sha} while {} was new", whole.name(id)));
            }
        }
        let closings = life.statuses.iter().filter(|status| status.what() == "done");
        for closing in closings.map(|status| status.record) {
            for child in whole.children(life, closing.ms) {
                if !stood(child, closing.ms, |what| matches!(what, "done" | "rejected" | "superseded")) {
                    fault(Rule::Children, format!("closed by {} while {} was open", closing.sha, child.task.slug));
                }
            }
        }
    }
    for group in groups {
        let bounds: Vec<Bound> = group.iter().flat_map(|at| bounds(&lives[*at])).collect();
        for (at, a) in bounds.iter().enumerate() {
            for b in &bounds[..at] {
                if a.context != b.context && a.from_ms < b.until_ms && b.from_ms < a.until_ms {
                    let found = format!("bound to {}, and {} to {}, at a time", a.context, b.slug, b.context);
                    faults.push(Fault { rule: Rule::Tied, slug: a.slug.to_owned(), found });
                }
            }
        }
    }
}

/// Whether one of the statuses that satisfy `what` may have been what others saw at `ms`.
fn stood(life: &Life<'_>, ms: u64, what: impl Fn(&str) -> bool) -> bool {
    life.statuses.iter().enumerate().any(|(at, status)| {
        let next = life.statuses.get(at + 1);
        what(status.what()) && status.record.ms <= ms && next.is_none_or(|next| next.seen_ms >= ms)
    })
}

/// When a task was bound to which context.
fn bounds<'a>(life: &Life<'a>) -> Vec<Bound<'a>> {
    let mut bounds: Vec<Bound<'a>> = Vec::new();
    let mut bound: Option<&str> = None;
    for Status { record, seen_ms } in &life.statuses {
        let context = record.one("Context");
        if context == bound {
            continue;
        }
        if let Some(last) = bounds.last_mut().filter(|_| bound.is_some()) {
            last.until_ms = record.ms;
        }
        if let Some(context) = context {
            bounds.push(Bound { slug: &life.task.slug, context, from_ms: *seen_ms, until_ms: u64::MAX });
        }
        bound = context;
    }
    bounds
}

impl<'a, 'b> Whole<'a, 'b> {
    fn name(&self, id: &'b str) -> &'b str {
        self.by_id.get(id).map_or(id, |life| &life.task.slug)
    }

    /// As [`stood`], of a task or what had taken its place by then. One that is not there never did.
    fn stood(&self, id: &str, ms: u64, what: impl Fn(&str) -> bool) -> bool {
        self.line(id, ms).into_iter().any(|life| stood(life, ms, &what))
    }

    /// A task, its successor at that time, the successor's, and so on.
    fn line(&self, id: &str, ms: u64) -> Vec<&'b Life<'a>> {
        let mut line = Vec::new();
        let mut next = self.by_id.get(id).copied();
        while let Some(life) = next.filter(|_| line.len() <= self.lives.len()) {
            line.push(life);
            let by = life.statuses.iter().filter(|status| status.record.ms <= ms);
            let by = by.filter_map(|status| status.record.one("Superseded-By")).next_back();
            next = by.and_then(|by| self.by_id.get(by)).copied();
        }
        line
    }

    /// The tasks that were planned by then whose parent this was, or one whose place it had taken.
    fn children(&self, parent: &Life<'a>, ms: u64) -> Vec<&'b Life<'a>> {
        let is_child = |life: &&Life<'a>| {
            let line = life.task.one("Parent").map_or(Vec::new(), |id| self.line(id, ms));
            life.task.records[0].ms <= ms && line.last().is_some_and(|last| last.task.id() == parent.task.id())
        };
        self.lives.iter().filter(is_child).collect()
    }
}
