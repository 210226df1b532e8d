//! Files of the dead that nobody needs: they only take room, and are swept by and by.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Finding;
use crate::error::Result;
use crate::output::counted;
use crate::poll::StateRoot;
use crate::store::git::{GitStore, ORPHAN_AGE};
use crate::work::desk;

/// Finds them, and with `fix` removes them.
///
/// # Errors
/// `Io` where the objects cannot be listed.
pub fn findings(store: &GitStore, state_root: Option<&Path>, fix: bool) -> Result<Vec<Finding>> {
    let state_dir = store.common_dir().join("pm");
    let objects = if fix { store.sweep_temporaries(ORPHAN_AGE)? } else { store.orphans(ORPHAN_AGE)? };
    // They stay locked until they are removed.
    let texts = desk::left_texts(&state_dir);
    let root = StateRoot::of(store.common_dir(), state_root);
    let halves: Vec<PathBuf> =
        halves(&state_dir, root.dir()).into_iter().filter(|path| is_older(path, ORPHAN_AGE)).collect();
    let removed = |paths: &mut dyn Iterator<Item = &PathBuf>| -> usize {
        if fix { paths.filter(|path| fs::remove_file(path).is_ok()).count() } else { paths.count() }
    };
    let texts = removed(&mut texts.iter().map(|(path, _)| path));
    let halves = removed(&mut halves.iter());
    let rows = [(objects, "temporary object file"), (texts, "task text"), (halves, "half-written state file")];
    let rows = rows.into_iter().filter(|(number, _)| *number > 0);
    Ok(rows.map(|(number, what)| judge(number, what, fix)).collect())
}

fn judge(number: usize, what: &'static str, is_removed: bool) -> Finding {
    let files = counted(number, what);
    let found = format!("{files} that a killed process left more than a day ago");
    if is_removed {
        Finding::fixed("leftover", format!("removed {found}"))
    } else {
        Finding::note("leftover", found).with("`pm doctor --fix` removes what is left over")
    }
}

/// Files that are written whole and then renamed: those that were not.
fn halves(state_dir: &Path, root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(state_dir).into_iter().flatten().flatten();
    let observations = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("observations.tmp-"));
    let mut halves: Vec<PathBuf> = observations.map(|entry| entry.path()).collect();
    halves.extend(Some(root.join("poll-status.json.tmp")).filter(|path| path.is_file()));
    halves
}

fn is_older(path: &Path, age: Duration) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|found| found > age))
}
