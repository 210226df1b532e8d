//! Sticky tasks: which context may work on them (rule 8; design, section 4).
//!
//! A sticky task is bound to the context of its first claim, and so are all sticky tasks that are tied to it: its
//! ancestors and descendants along parents and dependencies, and what is tied to those in turn. (Which these are,
//! [`graph`](super::graph) tells.) Were only direct ancestors looked at, two contexts could each begin what a third task
//! needs from both, and nobody could ever claim that one.
//!
//! There is one definition, [`fits`]. A claim asks it about the task and all that is tied to it; heartbeat, report and
//! finish ask it about the task alone, which the claim has bound: what others plan later never takes a claim away.
//!
//! A binding ends by a reclaim, and by nothing else. So whoever is refused is told what to reclaim.

use super::record::{ContextId, Phase};
use crate::id::{Queue, Slug};

/// A sticky task that is bound to a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// Its place in the ledger.
    pub place: (Queue, Slug),
    /// The context.
    pub context: ContextId,
    /// The phase that it is in.
    pub phase: Phase,
}

impl Bound {
    /// How an operator frees the task of its context, command by command; each works as it stands.
    fn way_out(&self) -> String {
        let (queue, slug) = &self.place;
        let reclaim = format!("`pm reclaim --task {queue}/{slug}`");
        match self.phase {
            Phase::New => format!("{reclaim} frees it"),
            Phase::Working => format!("if its holder is gone, {reclaim} frees it"),
            _ => format!("`pm replan --task {queue}/{slug}` opens it again, and {reclaim} then frees it"),
        }
    }
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
    #[error("{wanted}, not to {given}; leave it to that context{}", or_free(wanted))]
    Other {
        /// The binding that decides.
        wanted: Bound,
        /// The caller's context.
        given: ContextId,
    },
    /// What is tied together is bound to two contexts, so none fits: by plans made apart, or machines that could not see
    /// each other.
    #[error(
        "{first}, but {second}: no context fits both; {}, to be worked on with --context-id {}",
        second.way_out(),
        first.context
    )]
    Split {
        /// One binding: to the caller's context, if there is one to that.
        first: Box<Bound>,
        /// Another one.
        second: Box<Bound>,
    },
}

/// What else there is to do about a task of another context, while nobody works on it there.
fn or_free(wanted: &Bound) -> String {
    match wanted.phase {
        Phase::Working => String::new(),
        _ => format!(", or, if that is gone: {}", wanted.way_out()),
    }
}

/// Whether `given` may work on a sticky task, when it and what is tied to it are `bound` so.
///
/// # Errors
/// Why not.
pub fn fits(bound: &[Bound], given: Option<&ContextId>) -> Result<(), Misfit> {
    let first = bound.iter().find(|bound| Some(&bound.context) == given).or(bound.first());
    if let Some(first) = first
        && let Some(second) = bound.iter().find(|other| other.context != first.context)
    {
        return Err(Misfit::Split { first: Box::new(first.clone()), second: Box::new(second.clone()) });
    }
    match (first, given) {
        (wanted, None) => Err(Misfit::Missing { wanted: wanted.cloned() }),
        (Some(wanted), Some(given)) if wanted.context != *given => {
            Err(Misfit::Other { wanted: wanted.clone(), given: given.clone() })
        }
        _ => Ok(()),
    }
}
