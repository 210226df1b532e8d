//! Fenced delivery: a branch moves together with the record that closes its task, or not at all (design, section 7).
//!
//! At an authority that is one atomic push. In one repository the branch is moved while git's lock of the task's ref is
//! held, after it is certain that the record may be written: a zombie gets no further than that lock. Whoever dies between
//! the two has moved the branch, and the task is still open: the work is there, and is claimed to be done by nobody.

use crate::error::{Error, Result};
use crate::git_program::Git;
use crate::id::Oid;
use crate::ledger::Ledger;
use crate::ledger::append::{Along, Appended};
use crate::ledger::find::Found;
use crate::protocol::decide::Intent;
use crate::session::Session;

/// Carries out an intent, and moves `branch` (its short or its full name) forwards to `commit` with it.
///
/// # Errors
/// As [`Ledger::append`]; `DeliveryRefused` where the branch cannot be moved; `Usage` for what is no branch.
pub fn deliver(
    session: &Session,
    ledger: &Ledger<'_>,
    found: Found,
    intent: Intent,
    branch: &str,
    commit: Oid,
) -> Result<Appended> {
    let git = Git::new(session.store.git_dir());
    let full = match branch.strip_prefix("refs/heads/") {
        Some(_) => branch.to_owned(),
        None => format!("refs/heads/{branch}"),
    };
    if branch.starts_with('-') || !git.is_ref_name(&full) {
        return Err(Error::Usage(format!("'{}' is not the name of a branch", crate::id::shown(branch))));
    }
    let move_here = || git.advance_branch(&full, &commit.to_string());
    ledger.append_along(found, intent, Some(&Along { branch: &full, commit, move_here: &move_here }))
}
