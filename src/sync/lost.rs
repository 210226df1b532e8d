//! What lost at a sync: kept for ever, with the reason.
//!
//! The tip of a suffix that lost stays reachable under `refs/pm-lost/<queue>/<slug>/<tip>`. Why it lost is in a file of
//! the same name below `<git-common-dir>/pm/lost/`; without that file the records are still there.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::reconcile::{Fate, Rebased, Standing};
use crate::error::{Error, Result};
use crate::id::{RecordId, RefName};
use crate::ledger::Ledger;
use crate::protocol::view;
use crate::store::Swap;

/// Why a suffix lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// When it was noticed, RFC 3339.
    pub at: String,
    /// Where the records were that won.
    pub remote: String,
    /// The tip that won, as far as it was known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub won: Option<String>,
    /// What became of each record, oldest first.
    pub records: Vec<Entry>,
}

/// What became of one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The record.
    pub record: String,
    /// Its kind, and its phase if it is a status.
    pub what: String,
    /// Its author.
    pub agent: String,
    /// The record that stands for it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Entry {
    fn of(fate: &Fate) -> Entry {
        Entry {
            record: fate.record.to_string(),
            what: fate.what.clone(),
            agent: fate.agent.to_string(),
            kept_as: fate.outcome.as_ref().ok().map(RecordId::to_string),
            why: fate.outcome.as_ref().err().cloned(),
        }
    }
}

/// Where the accounts are.
pub fn dir(state_dir: &Path) -> PathBuf {
    state_dir.join("lost")
}

/// Keeps the tip of ours, and why it lost.
pub(super) fn keep(
    ledger: &Ledger<'_>,
    state_dir: &Path,
    standing: &Standing,
    rebased: &Rebased,
    remote: &str,
) -> Result<()> {
    let Some(local) = standing.local else { return Ok(()) };
    keep_tip(
        ledger,
        state_dir,
        &standing.name,
        local,
        remote,
        standing.remote,
        rebased.fates.iter().map(Entry::of).collect(),
    )
}

/// Keeps a tip that lost to `won`, with the account of its records.
pub(super) fn keep_tip(
    ledger: &Ledger<'_>,
    state_dir: &Path,
    name: &RefName,
    tip: RecordId,
    remote: &str,
    won: Option<RecordId>,
    records: Vec<Entry>,
) -> Result<()> {
    let at = view::time(ledger.clock.wall_seconds());
    let account = Account { at, remote: remote.to_owned(), won: won.map(|won| won.to_string()), records };
    write(&dir(state_dir), tip, &account)?;
    match ledger.move_ref(&name.lost(tip), None, tip)? {
        Swap::Done => Ok(()),
        // It lost before: once is enough.
        Swap::HeadMoved { .. } => Ok(()),
    }
}

fn write(dir: &Path, tip: RecordId, account: &Account) -> Result<()> {
    let path = dir.join(tip.to_string());
    let temporary = dir.join(format!("{tip}.tmp-{}", std::process::id()));
    let failed = |error| Error::io(format!("writing {}", path.display()))(error);
    let json = serde_json::to_vec_pretty(account).map_err(|error| failed(error.into()))?;
    fs::create_dir_all(dir).map_err(failed)?;
    let mut file = fs::File::create(&temporary).map_err(failed)?;
    file.write_all(&json).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&temporary, &path).map_err(failed)
}

/// Why the suffix with this tip lost; `None` where that was not kept.
pub fn account(state_dir: &Path, tip: RecordId) -> Option<Account> {
    serde_json::from_slice(&fs::read(dir(state_dir).join(tip.to_string())).ok()?).ok()
}
