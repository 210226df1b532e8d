//! Sticky tasks: which context may work on them (rule 8; design, section 4).
//!
//! A sticky task is bound to the context of its first claim, and so are all sticky tasks that are tied to it: its
//! ancestors and descendants along parents and dependencies, and what is tied to those in turn. (Which these are,
//! [`graph`](super::graph) tells.) Were only direct ancestors looked at, two contexts could each begin what a third task
//! needs from both, and nobody could ever claim that one.
//!
//! There is one definition, [`fits`]. A claim asks it about the task and all that is tied to it; heartbeat, report and
//! finish ask it about the task alone, which the claim has bound: what others plan later never takes a claim away.

use super::record::ContextId;
use crate::id::{Queue, Slug};

/// A sticky task that is bound to a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Its place in the ledger.
    pub place: (Queue, Slug),
    /// The context.
    pub context: ContextId,
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (queue, slug) = &self.place;
        write!(f, "{queue}/{slug} is bound to {}", self.context)
    }
}

/// Why a context may not work on a sticky task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// The caller has no context, and the task needs one.
    #[error("the task is sticky, and no context is given{}; give --context-id, or set $PM_CONTEXT_ID (`pm context-id` makes one)", wanted.as_ref().map(|bound| format!(" ({bound})")).unwrap_or_default())]
    Missing {
        /// The binding that decides, if there is one.
        wanted: Option<Bound>,
    },
    /// The task belongs to another context.
    #[error("{wanted}, not to {given}; leave it to that context")]
    Other {
        /// The binding that decides.
        wanted: Bound,
        /// The caller's context.
        given: ContextId,
    },
    /// What is tied together is bound to two contexts, so none fits: by plans made apart, or machines that could not see
    /// each other.
    #[error(
        "{first}, but {second}: no context fits both. A reclaim frees a task: open one of them again (`pm replan`) if it is closed, claim it with --context-id {}, and `pm reclaim` it",
        second.context
    )]
    Split {
        /// One binding.
        first: Bound,
        /// Another one.
        second: Bound,
    },
}

/// Whether `given` may work on a sticky task, when it and what is tied to it are `bound` so.
///
/// # Errors
/// Why not.
pub fn fits(bound: &[Bound], given: Option<&ContextId>) -> Result<(), Misfit> {
    let first = bound.first();
    if let Some(first) = first
        && let Some(second) = bound.iter().find(|other| other.context != first.context)
    {
        return Err(Misfit::Split { first: first.clone(), second: second.clone() });
    }
    match (first, given) {
        (wanted, None) => Err(Misfit::Missing { wanted: wanted.cloned() }),
        (Some(wanted), Some(given)) if wanted.context != *given => {
            Err(Misfit::Other { wanted: wanted.clone(), given: given.clone() })
        }
        _ => Ok(()),
    }
}
