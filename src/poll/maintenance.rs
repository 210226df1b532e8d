//! Keeping the ledger's refs and objects packed, so that commands stay fast.
//!
//! A heartbeat leaves one loose object of a disk block and one loose ref. `git` packs them: refs with `git pack-refs`,
//! objects with a geometric `git repack`, which rolls small packs up, leaves large ones alone and drops nothing, not
//! even what is unreachable. Both may run beside any writer, which at most waits for the moment in which git holds the
//! lock of its ref.
//!
//! What must never happen here: `git gc --prune=now`, or anything else that deletes objects; refs packed in a tight loop
//! (git's own updates can then be lost, see `docs/decisions/0014-when-the-poller-packs.md`).

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::git_program::{Ended, Git};
use crate::store::git::GitStore;

/// So many loose refs are packed, which takes 0.5 to 0.8 s. Twice as many add 0.14 s to a listing of 100,000.
pub const LOOSE_REFS: usize = 5_000;

/// So many loose objects, about, are packed: they take 20 MB and pack into one, in one to two seconds.
pub const LOOSE_OBJECTS: usize = 5_000;

/// At least so long passes from one packing to the next of the same kind, whatever the numbers say.
const REST: Duration = Duration::from_secs(600);

/// When each kind of packing was last tried.
#[derive(Debug, Default)]
pub struct Maintenance {
    refs_at: Option<Instant>,
    objects_at: Option<Instant>,
}

/// What was packed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Loose refs.
    pub refs: usize,
    /// Loose objects, about.
    pub objects: usize,
}

impl Maintenance {
    /// Packs what is due. `stop` is asked while git works; on a yes git is ended, and leaves things as they were. What
    /// went wrong is returned beside what was packed: what git says, or that it did nothing.
    pub fn run(&mut self, store: &GitStore, stop: &dyn Fn() -> bool) -> (Packed, Vec<Error>) {
        let git = Git::new(store.common_dir());
        let (mut packed, mut faults) = (Packed::default(), Vec::new());
        if store.gc_runs() {
            return (packed, faults);
        }
        let refs = || Ok(store.loose_refs()?);
        match pack_if_due("refs", refs, LOOSE_REFS, &mut self.refs_at, || git.pack_refs(stop)) {
            Ok(count) => packed.refs = count,
            Err(error) => faults.push(error),
        }
        if stop() {
            return (packed, faults);
        }
        let objects = || Ok(store.loose_objects()?);
        match pack_if_due("objects", objects, LOOSE_OBJECTS, &mut self.objects_at, || git.repack(stop)) {
            Ok(count) => packed.objects = count,
            Err(error) => faults.push(error),
        }
        (packed, faults)
    }
}

/// Runs one kind of packing if there is enough to pack, and the last try is long enough ago. Counts before and after: git
/// may have done nothing, and say nothing.
fn pack_if_due(
    what: &str,
    count: impl Fn() -> Result<usize>,
    limit: usize,
    tried_at: &mut Option<Instant>,
    run: impl FnOnce() -> Result<Ended>,
) -> Result<usize> {
    let before = count()?;
    if before < limit || tried_at.is_some_and(|at| at.elapsed() < REST) {
        return Ok(0);
    }
    *tried_at = Some(Instant::now());
    if run()? == Ended::Stopped {
        return Ok(0);
    }
    let after = count()?;
    match before.checked_sub(after) {
        Some(packed) if packed > 0 => Ok(packed),
        _ => Err(Error::Io {
            what: format!("packing {what}"),
            source: std::io::Error::other(format!("git says that it is done, but {after} of {before} are still loose")),
        }),
    }
}
