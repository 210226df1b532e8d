//! Which task comes next (rule 8 and commands.md, `next`).

use std::cmp::{Ordering, Reverse};
use std::path::Path;

use super::decide::{Facts, claimable};
use super::refusal::Refusal;
use super::state::TaskState;
use crate::id::{Queue, Slug};

/// Why a task is not offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    /// A claim would be refused.
    #[error("{0}")]
    Refused(Refusal),
    /// It has to be worked on elsewhere.
    #[error("it is meant for {0}, and for what is below; `pm executing` takes it anywhere")]
    Workdir(String),
}

impl Hindrance {
    /// For people: why the task at this place is not offered, and what ends that.
    pub fn told(&self, queue: &Queue, slug: &Slug) -> String {
        match self {
            Hindrance::Refused(refusal) => refusal.told(queue, slug),
            Hindrance::Workdir(_) => self.to_string(),
        }
    }
}

/// Whether a task is offered to somebody who works in `dir`: it could be claimed, and it is for this directory or one above.
///
/// # Errors
/// Why not.
pub fn runnable(state: &TaskState, facts: &Facts<'_>, dir: &Path) -> Result<(), Hindrance> {
    claimable(state, facts).map_err(Hindrance::Refused)?;
    match &state.task.workdir {
        Some(workdir) if !dir.starts_with(workdir) => Err(Hindrance::Workdir(workdir.clone())),
        _ => Ok(()),
    }
}

/// Whether a task belongs to the caller's context: the task, or what it is tied to, is bound to it.
pub fn is_own(state: &TaskState, facts: &Facts<'_>) -> bool {
    let own = |context| facts.context == Some(context);
    state.task.sticky && (state.context().is_some_and(own) || facts.others.tied.iter().any(|bound| own(&bound.context)))
}

/// The order in which tasks are offered: priority (0 first), then creation, then id.
pub fn order(a: &TaskState, b: &TaskState) -> Ordering {
    let key = |state: &TaskState| (state.task.priority, state.task.created, state.id);
    key(a).cmp(&key(b))
}

/// The order in which runnable tasks are offered: the caller's own context first, then as [`order`] says.
pub fn own_first((a, a_is_own): (&TaskState, bool), (b, b_is_own): (&TaskState, bool)) -> Ordering {
    Reverse(a_is_own).cmp(&Reverse(b_is_own)).then_with(|| order(a, b))
}
