//! What is wrong with a repository, its host or its setup, each with its remedy (`docs/decisions/0019-what-the-doctor-checks.md`).
//!
//! - [`settings`] and [`refspecs`] judge git's configuration, [`shape`] the kind of repository, [`host`] git and the
//!   poller, [`chains`] the ledger itself.
//! - [`locks`] finds lock files that were left behind, with [`processes`]: who may still hold one. [`leftovers`] finds
//!   other files of the dead.
//! - [`probe`] asks the authority what it does, under a scratch name; `remote` is how it asks.
//!
//! Facts are gathered first, and judged by functions that do nothing else. What must never happen here: a remedy
//! destroys something; a lock is removed that somebody may hold; anything is changed without `--fix`.

pub mod chains;
pub mod host;
pub mod leftovers;
pub mod locks;
pub mod probe;
pub mod processes;
pub mod refspecs;
mod remote;
pub mod settings;
pub mod shape;

use std::path::Path;

use serde_json::{Value, json};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::git_program::{FSYNC, Git};
use crate::session::couriers;
use crate::store::git::GitStore;
use crate::store::{Durability, lock};
use crate::sync::remote::PREFIX;

use self::chains::Chains;
use self::settings::Settings;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something is wrong.
    Wrong,
    /// Nothing is wrong, but it is worth knowing.
    Note,
    /// It was wrong, or left over, and is not any more.
    Fixed,
}

impl Level {
    /// As it is printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Wrong => "wrong",
            Level::Note => "note",
            Level::Fixed => "fixed",
        }
    }
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which check found it: a stable name.
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found, and what it means.
    pub found: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Finding {
    /// Something that is wrong.
    pub fn wrong(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { check, level: Level::Wrong, found: found.into(), remedy: Some(remedy.into()) }
    }

    /// Something worth knowing.
    pub fn note(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, level: Level::Note, found: found.into(), remedy: None }
    }

    /// Something that was done.
    pub fn fixed(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, level: Level::Fixed, found: found.into(), remedy: None }
    }

    /// With something to do about it.
    pub fn with(self, remedy: impl Into<String>) -> Finding {
        Finding { remedy: Some(remedy.into()), ..self }
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({"check": self.check, "level": self.level.as_str(), "found": self.found, "remedy": self.remedy})
    }
}

/// Examines the repository that `dir` is in, and with `fix` mends what is safe to mend. `probe` also asks the authority.
///
/// # Errors
/// `Unusable` where there is no repository that pm can use, `Usage` where an authority is to be asked and there is none;
/// failures of the system. What is wrong is the result.
pub fn examine(dir: &Path, fix: bool, probe: bool) -> Result<Vec<Finding>> {
    let store = GitStore::discover(dir)?;
    let git = Git::new(store.common_dir());
    let config = Config::read(&store);
    let remote = config.as_ref().ok().and_then(|config| config.remote.clone());
    let authority = match (probe, &remote) {
        (true, None) => return Err(no_authority(&store)),
        (true, Some(remote)) => Some(remote.as_str()),
        (false, _) => None,
    };
    let mut findings = Vec::new();
    let durability = match &config {
        Ok(config) => config.durability,
        Err(error) => {
            let remedy = "correct that value, or `git config --unset` it; until then no other command runs here";
            findings.push(Finding::wrong("configuration", error.to_string(), remedy));
            Durability::default()
        }
    };
    findings.extend(Config::unknown_keys(&store).into_iter().map(|found| Finding::note("configuration", found)));
    let chains = Chains::read(&store, remote.as_deref())?;
    findings.extend(shape::findings(&store)?);
    findings.extend(host::git(crate::git_program::version().as_deref(), durability));
    if let Ok(listed) = git.settings() {
        let settings = Settings::parse(&listed);
        let repository = settings::Repository {
            has_tasks: chains.tasks > 0,
            has_hook: ["pre-receive", "update"].iter().any(|hook| settings::has_hook(&settings, &store, hook)),
            durability,
        };
        let fsync = settings::fsync(&settings, &repository);
        findings.extend(if fix { fsync.map(|finding| set_fsync(finding, &git, &settings)) } else { fsync });
        findings.extend(settings::findings(&settings, &repository));
        findings.extend(refspecs::findings(&settings));
        findings.extend(remote.iter().filter_map(|remote| settings::authority(remote, git.urls(remote).ok().as_ref())));
    }
    findings.extend(locks::findings(&store, &git, lock::PATIENCE, fix)?);
    let state_root = Config::state_root(&store).unwrap_or_default();
    findings.extend(leftovers::findings(&store, state_root.as_deref(), fix)?);
    findings.extend(host::poller(&store, state_root.as_deref(), chains.tasks > 0));
    findings.extend(chains.findings());
    if let Some(remote) = authority {
        let prefix = config.as_ref().map_or(PREFIX, |config| config.ref_prefix.as_str());
        findings.extend(probe::run(&couriers(&store), remote, prefix)?);
    }
    Ok(findings)
}

fn no_authority(store: &GitStore) -> Error {
    let found = match store.config_string("pm.remote") {
        Some(_) => "pm.remote cannot be used",
        None => "pm.remote is not set",
    };
    Error::Usage(format!("{found}, so there is no authority to ask; `pm init --remote <name>` sets one"))
}

/// Sets `core.fsync` where it is unset; where it is set, somebody meant something.
fn set_fsync(finding: Finding, git: &Git, settings: &Settings) -> Finding {
    if settings.value("core.fsync").is_some() {
        return finding;
    }
    match git.set_fsync_if_unset() {
        Ok(_) => {
            Finding::fixed(finding.check, format!("core.fsync was not set: it is {FSYNC} now, in this repository"))
        }
        Err(error) => Finding { found: format!("{} (setting it failed: {error})", finding.found), ..finding },
    }
}

/// A few of many names, and how many more there are.
pub(crate) fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names[..names.len() - more].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
