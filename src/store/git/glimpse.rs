//! A glimpse of the ledger's refs, too cheap to matter: whether anything can have changed since the last one.
//!
//! Every append renames a file in its queue's directory, which sets the time of that directory; packing replaces
//! packed-refs. So the times and inode numbers of those say whether a listing is worth the reads. File systems keep
//! times in steps, and a change may hide in the step of the one before it: a time that is too young proves nothing.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::GitStore;
use crate::id::TASKS;

/// So long after its last change a directory's time is believed: longer than the steps of any file system's clock.
const SETTLED: Duration = Duration::from_millis(2_500);

/// What the ledger's refs looked like. Equal ones mean: nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glimpse(Vec<(u64, i64, i64)>);

impl GitStore {
    /// How the refs of all tasks look now; `None` where that would prove nothing: something has just changed, or the
    /// system does not tell.
    pub fn glimpse(&self) -> Option<Glimpse> {
        let tasks = self.common_dir().join(TASKS);
        let mut seen = Vec::new();
        for path in [&tasks, &self.common_dir().join("packed-refs")] {
            look(path, &mut seen)?;
        }
        match fs::read_dir(&tasks) {
            Ok(queues) => {
                for queue in queues {
                    look(&queue.ok()?.path(), &mut seen)?;
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => return None,
        }
        seen.sort_unstable();
        Some(Glimpse(seen))
    }
}

/// Notes the inode number and the time of what is at a path; `None` where the time proves nothing.
fn look(path: &Path, seen: &mut Vec<(u64, i64, i64)>) -> Option<()> {
    match fs::metadata(path) {
        Ok(metadata) => {
            // Also a time in the future proves nothing.
            let age = SystemTime::now().duration_since(metadata.modified().ok()?).ok()?;
            seen.push((metadata.ino(), metadata.mtime(), metadata.mtime_nsec()));
            (age >= SETTLED).then_some(())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Some(()),
        Err(_) => None,
    }
}
