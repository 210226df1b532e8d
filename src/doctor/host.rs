//! The host: git's version, and the poller.

use std::path::Path;

use super::{Finding, Level};
use crate::poll::StateRoot;
use crate::poll::status::Status;
use crate::store::Durability;
use crate::store::git::GitStore;

/// What pm asks of git, since which version git has it, and what becomes of it without.
const NEEDS: [(u32, u32, Level, &str); 4] = [
    (
        2,
        29,
        Level::Wrong,
        "`git fetch --no-write-fetch-head` is missing, which sharing a ledger between machines needs",
    ),
    (2, 32, Level::Wrong, "`git repack --geometric` is missing, with which the poller packs objects"),
    (
        2,
        36,
        Level::Wrong,
        "core.fsync is unknown to it: a power cut after `git gc` or `git pack-refs` can lose every packed ref",
    ),
    (
        2,
        42,
        Level::Note,
        "`git pack-refs --include` is missing, so that the poller packs all refs, not the ledger's alone",
    ),
];

/// Judges the version of git, as `git --version` prints it; `None` where it cannot be run.
pub fn git(version: Option<&str>, durability: Durability) -> Option<Finding> {
    const CHECK: &str = "git";
    let Some(text) = version else {
        let found = "git cannot be run: configuration, packing and sharing were not looked at and do not work";
        return Some(Finding::wrong(CHECK, found, "install git 2.36 or newer, and put it into $PATH"));
    };
    let Some(version) = parse(text) else {
        return Some(Finding::note(
            CHECK,
            format!("the version of git is not understood: '{}'", crate::id::shown(text)),
        ));
    };
    let is_missing = |need: &&(u32, u32, Level, &str)| {
        version < (need.0, need.1) && !(need.1 == 36 && durability == Durability::Process)
    };
    let missing: Vec<_> = NEEDS.iter().filter(is_missing).collect();
    let newest = missing.last()?;
    let reasons: Vec<&str> = missing.iter().map(|need| need.3).collect();
    let found = format!("git is {}.{}: {}", version.0, version.1, reasons.join("; "));
    let remedy = format!("install git {}.{} or newer", newest.0, newest.1);
    let is_wrong = missing.iter().any(|need| need.2 == Level::Wrong);
    Some(if is_wrong { Finding::wrong(CHECK, found, remedy) } else { Finding::note(CHECK, found).with(remedy) })
}

/// The first two numbers of `git version 2.47.3 (…)`.
fn parse(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().strip_prefix("git version ")?.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Looks for the poller, with what `pm.stateRoot` says.
pub fn poller(store: &GitStore, set: Option<&Path>, has_tasks: bool) -> Option<Finding> {
    const CHECK: &str = "poller";
    let look = |set| Status::look(&StateRoot::of(store.common_dir(), set));
    let here = match look(set) {
        Ok(status) => status,
        Err(error) => return Some(Finding::wrong(CHECK, error.to_string(), "see to it that this file can be read")),
    };
    if here.is_running {
        return None;
    }
    let elsewhere = set.is_some() && look(None).is_ok_and(|status| status.is_running);
    if elsewhere {
        let found = format!(
            "a poller runs with its files in {}, where it is not looked for since pm.stateRoot was set",
            store.common_dir().join("pm").display()
        );
        return Some(Finding::wrong(CHECK, found, "it stops by itself within a cycle; then `pm poll start`"));
    }
    let found = "no poller runs here: claims of dead workers come back only by `pm sweep`";
    has_tasks.then(|| Finding::note(CHECK, found).with("`pm poll start`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: Option<&str>, level: Option<Level>, says: &str) {
        let found = git(version, Durability::Power);
        assert_eq!(found.as_ref().map(|finding| finding.level), level, "{version:?}");
        let text = found.map(|finding| format!("{} {}", finding.found, finding.remedy.unwrap_or_default()));
        assert!(text.unwrap_or_default().contains(says), "{version:?}");
    }

    #[test]
    fn an_old_git_is_told_what_it_lacks() {
        check(Some("git version 2.47.3"), None, "");
        check(Some("git version 2.42.0.windows.1"), None, "");
        check(Some("git version 2.39.5 (Apple Git-154)"), Some(Level::Note), "--include");
        check(Some("git version 2.25.1"), Some(Level::Wrong), "--geometric");
        check(Some("git version 2.34.1"), Some(Level::Wrong), "core.fsync is unknown");
        check(Some("git version next"), Some(Level::Note), "not understood");
        check(None, Some(Level::Wrong), "cannot be run");
        let throwaway = git(Some("git version 2.34.1"), Durability::Process);
        assert_eq!(throwaway.map(|finding| finding.level), Some(Level::Note));
    }
}
