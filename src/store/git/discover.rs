//! Finding the repository, and saying why there is none to use.
//!
//! What must never happen here: a repository is used that git would refuse or read differently (another user's,
//! reftable).

use std::path::{Component, Path, PathBuf};

use crate::store::{StoreError, durable};

/// The repository extensions that pm gets along with (gitrepository-layout(5)), in lower case.
const EXTENSIONS: &[&str] = &[
    "noop",
    "noop-v1",
    "objectformat",
    "partialclone",
    "preciousobjects",
    "refstorage",
    "relativeworktrees",
    "submodulepathconfig",
    "worktreeconfig",
];

/// The repository that `dir` is in, or the one that `GIT_DIR` names.
///
/// # Errors
/// `Unusable`, with what was found and what to do about it.
pub(super) fn repository(dir: &Path) -> Result<gix::Repository, StoreError> {
    // gix's own object store is not used, so it need not look for packs.
    let slots = gix::odb::store::init::Slots::Given(1);
    let options = || gix::open::Options::default().bail_if_untrusted(true).object_store_slots(slots);
    let trust = gix::sec::trust::Mapping { full: options(), reduced: options() };
    let upwards = gix::discover::upwards::Options { match_ceiling_dir_or_error: false, ..Default::default() };
    // What git exports to the hooks of a push into a repository with a worktree; gix takes it for the worktree.
    let is_here = dir.ends_with(".git") && std::env::var_os("GIT_DIR").is_some_and(|named| named == ".");
    let found = if is_here {
        gix::ThreadSafeRepository::discover_opts(dir, upwards, trust)
    } else {
        gix::ThreadSafeRepository::discover_with_environment_overrides_opts(dir, upwards, trust)
    };
    let repo = found.map_err(|error| unusable(dir, &error))?.to_thread_local();
    refuse_unknown_extensions(&repo)?;
    Ok(repo)
}

/// An absolute path without `..`, as people expect to see it. Symbolic links are kept where possible.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, StoreError> {
    let absolute = std::path::absolute(path).and_then(|absolute| {
        let climbs = absolute.components().any(|part| part == Component::ParentDir);
        if climbs { absolute.canonicalize() } else { Ok(absolute) }
    });
    absolute.map_err(durable::unreadable("find", path))
}

/// Refuses a repository that declares something pm does not know, as git does, and reftable refs: gix would open such
/// a repository, see no refs, and pm would write refs that git cannot see.
fn refuse_unknown_extensions(repo: &gix::Repository) -> Result<(), StoreError> {
    let config = repo.config_snapshot();
    let refused = |found: String| {
        let reason = format!("the git repository {} {found}", repo.git_dir().display());
        Err(StoreError::Unusable { reason })
    };
    if let Some(format) = config.string("extensions.refStorage")
        && format != "files"
    {
        return refused(format!(
            "keeps its refs as '{format}', which pm cannot read; `git refs migrate --ref-format=files` converts them"
        ));
    }
    if config.integer("core.repositoryFormatVersion").unwrap_or(0) == 0 {
        return Ok(());
    }
    for section in config.plumbing().sections_by_name("extensions").into_iter().flatten() {
        if let Some(name) = section.value_names().find(|name| !EXTENSIONS.contains(&&*name.to_ascii_lowercase())) {
            return refused(format!("uses the extension '{name}', which this pm does not know"));
        }
    }
    Ok(())
}

/// Says why there is no repository to use, and what to do about it.
fn unusable(dir: &Path, error: &gix::Error) -> StoreError {
    let shown_dir = dir.display();
    let named = std::env::var_os("GIT_DIR");
    let reason = if let Some(named) = named.filter(|_| error.is_not_found()) {
        format!("GIT_DIR is {}, and that is no git repository; unset it, or correct it", Path::new(&named).display())
    } else if !dir.is_dir() {
        format!("{shown_dir} is not a directory")
    } else if error.is_not_found() {
        format!("{shown_dir} is in no git repository; run `git init` there, or name one with -C")
    } else if error.is_permission_denied() {
        let found = gix::discover::upwards(dir).map(|(path, _)| path.into_repository_and_work_tree_directories());
        let found = found.map_or_else(|_| dir.to_owned(), |(git_dir, work_dir)| work_dir.unwrap_or(git_dir));
        let found = absolute(&found).unwrap_or(found);
        let found = found.display();
        format!(
            "the git repository {found} belongs to another user; if you trust what is in it, run \
             `git config --global --add safe.directory {found}`"
        )
    } else {
        let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
        let causes: String = causes.map(|cause| format!(": {cause}")).collect();
        let found = format!("the git repository of {shown_dir} cannot be used: {error}{causes}");
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    StoreError::Unusable { reason }
}
