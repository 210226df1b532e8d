//! When this machine first saw a tip (design, section 6): `<git-common-dir>/pm/observations`.
//!
//! Ages of records that were written on another clock can only be watched, not computed. The file is local and
//! never synced; times in it are milliseconds on the clock under whose id they stand. It is rewritten whole
//! (temporary file, rename) under its own lock, and holds only tips that are still `working`. Losing it costs
//! time, never a claim: every watch starts anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::id::{RecordId, RefName};
use crate::store::Mode;
use crate::store::lock::{self, Wait};

/// First sights of one clock: by ref, the tip and when the reading that first found it ended.
type Sights = BTreeMap<String, Sight>;

/// One first sight.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Sight {
    tip: String,
    first_seen_ms: u64,
}

/// The file of first sights.
#[derive(Debug)]
pub struct Observations {
    dir: PathBuf,
    /// By clock id, in hex.
    clocks: BTreeMap<String, Sights>,
}

impl Observations {
    /// Reads the file below `<git-common-dir>/pm`. Absent, torn or foreign content is no sight at all.
    pub fn load(dir: &Path) -> Observations {
        Observations { dir: dir.to_owned(), clocks: read(dir) }
    }

    /// When this very tip was first seen, in milliseconds on clock `clock`.
    pub fn first_seen_ms(&self, clock: u64, name: &RefName, tip: RecordId) -> Option<u64> {
        let sight = self.clocks.get(&key(clock))?.get(name.as_str())?;
        (sight.tip == tip.to_string()).then_some(sight.first_seen_ms)
    }

    /// Records that these tips are being watched on clock `clock`, seen at `seen_ms`. Tips that were seen before
    /// keep their first sight; every sight of a ref that `keep` does not name any more is dropped.
    ///
    /// # Errors
    /// `Io` where the file cannot be written: the sweep can then only observe.
    pub fn update(
        &mut self,
        clock: u64,
        seen_ms: u64,
        watched: &[(RefName, RecordId)],
        keep: impl Fn(&str, &str) -> bool,
    ) -> Result<()> {
        fs::create_dir_all(&self.dir).map_err(Error::io(format!("creating {}", self.dir.display())))?;
        let lock = self.dir.join("observations.lock");
        let _lock = lock::acquire_file(&lock, Mode::Exclusive, &mut Wait::new(lock::PATIENCE))?;
        // Another sweep may have written since: the earlier sight of one tip wins.
        let mut clocks = read(&self.dir);
        let before = clocks.clone();
        for sights in clocks.values_mut() {
            sights.retain(|name, sight| keep(name, &sight.tip));
        }
        let sights = clocks.entry(key(clock)).or_default();
        for (name, tip) in watched {
            let fresh = Sight { tip: tip.to_string(), first_seen_ms: seen_ms };
            match sights.get(name.as_str()) {
                Some(known) if known.tip == fresh.tip && known.first_seen_ms <= seen_ms => {}
                _ => {
                    sights.insert(name.as_str().to_owned(), fresh);
                }
            }
        }
        clocks.retain(|_, sights| !sights.is_empty());
        if clocks != before {
            self.write(&clocks)?;
        }
        self.clocks = clocks;
        Ok(())
    }

    fn write(&self, clocks: &BTreeMap<String, Sights>) -> Result<()> {
        let path = file(&self.dir);
        let temporary = self.dir.join(format!("observations.tmp-{}", std::process::id()));
        let json = serde_json::to_vec(clocks).map_err(|error| Error::Io {
            what: "encoding observations".to_owned(),
            source: std::io::Error::other(error),
        })?;
        // Not synced: after a power cut the clock that these times are of is gone.
        fs::write(&temporary, json)
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(Error::io(format!("writing {}", path.display())))
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("observations")
}

fn key(clock: u64) -> String {
    format!("{clock:016x}")
}

fn read(dir: &Path) -> BTreeMap<String, Sights> {
    fs::read(file(dir)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}
