//! Which task comes next (rule 8 and commands.md, `next`).

use std::cmp::Ordering;

use super::decide::unsupported;
use super::record::Phase;
use super::refusal::Unmet;
use super::state::TaskState;
use crate::id::TaskId;

/// Why a task cannot be claimed now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hindrance {
    /// It is not waiting for anybody.
    NotNew,
    /// It waits for these.
    Blocked(Vec<Unmet>),
    /// It uses something that this build cannot judge.
    Unsupported(&'static str),
}

/// Whether a task could be claimed. `unmet` finds the dependencies that are not done; it is asked only about
/// tasks that are `new`.
///
/// # Errors
/// Why not.
pub fn runnable(state: &TaskState, unmet: impl FnOnce(&[TaskId]) -> Vec<Unmet>) -> Result<(), Hindrance> {
    if state.phase() != Some(Phase::New) {
        return Err(Hindrance::NotNew);
    }
    if let Some(what) = unsupported(state) {
        return Err(Hindrance::Unsupported(what));
    }
    let open = unmet(&state.task.depends_on);
    if open.is_empty() { Ok(()) } else { Err(Hindrance::Blocked(open)) }
}

/// The order in which runnable tasks are offered: priority (0 first), then creation, then id.
pub fn order(a: &TaskState, b: &TaskState) -> Ordering {
    let key = |state: &TaskState| (state.task.priority, state.task.created, state.id);
    key(a).cmp(&key(b))
}
