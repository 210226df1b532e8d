//! The kind of repository: what of its shape a ledger must know. (What pm cannot use at all is refused with 18.)

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Finding;
use crate::error::Result;
use crate::ledger::chain::cut_off;
use crate::output::counted;
use crate::store::durable;
use crate::store::git::GitStore;

/// Looks.
///
/// # Errors
/// `Io` where a file of git's cannot be read.
pub fn findings(store: &GitStore) -> Result<Vec<Finding>> {
    let common = store.common_dir();
    let cut = cut_off(store, &store.shallow_boundary()?);
    let owner = fs::metadata(common).map(|metadata| metadata.uid()).map_err(durable::unreadable("look at", common))?;
    let borrowed = lines(&common.join("objects/info/alternates"))?;
    Ok([shallow(cut), alternates(&borrowed), owned_by(owner, rustix::process::geteuid().as_raw())]
        .into_iter()
        .flatten()
        .collect())
}

/// The lines of a file; none where there is no file.
fn lines(path: &Path) -> Result<Vec<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(durable::unreadable("read", path)(error).into()),
    }
}

fn shallow(cut: usize) -> Option<Finding> {
    let found = format!("the history of {} is cut off: this is a shallow clone of the ledger", counted(cut, "task"));
    let remedy = "`git fetch --unshallow <remote> 'refs/pm/*:refs/pm-remote/<remote>/*'` brings the rest of the chains";
    (cut > 0).then(|| Finding::wrong("shallow", found, remedy))
}

fn alternates(borrowed: &[String]) -> Option<Finding> {
    let found = format!("objects are borrowed from {}: what is deleted there is missing here", borrowed.join(", "));
    let remedy = "keep that repository; `git repack -a` copies what is borrowed";
    (!borrowed.is_empty()).then(|| Finding::note("alternates", found).with(remedy))
}

fn owned_by(owner: u32, user: u32) -> Option<Finding> {
    let found =
        format!("the repository belongs to user {owner}, and you are user {user}: files that you make here are yours");
    let remedy = "run pm as its owner, or see to it that both can write all files";
    (owner != user).then(|| Finding::note("owner", found).with(remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_named_only_where_it_matters() {
        assert!(shallow(0).is_none() && alternates(&[]).is_none() && owned_by(7, 7).is_none());
        assert!(shallow(2).is_some_and(|finding| finding.found.contains("2 tasks")));
        assert!(alternates(&["/x".to_owned()]).is_some_and(|finding| finding.found.contains("/x")));
        assert!(owned_by(7, 8).is_some_and(|finding| finding.found.contains("user 7")));
    }
}
