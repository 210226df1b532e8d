//! When this machine first saw a tip (design, section 6): `<git-common-dir>/pm/observations`.
//!
//! Ages of records that were written on another clock, or stand at an authority, can only be watched, not computed. The
//! file is local and
//! never synced; times in it are milliseconds on the clock under whose id they stand. It is rewritten whole
//! (temporary file, rename) under its own lock, and holds only tips that are still `working`. Losing it costs
//! time, never a claim: every watch starts anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::id::{RecordId, RefName};
use crate::protocol::lease::Watched;
use crate::store::Mode;
use crate::store::lock::{self, Wait};

/// First sights of one clock: by ref, the tip and when the reading that first found it ended.
type Sights = BTreeMap<String, Sight>;

/// One first sight.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Sight {
    tip: String,
    first_seen_ms: u64,
    /// For a tip at an authority: its age by the last reading, and when it was that old.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    at_authority: Option<AtAuthority>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct AtAuthority {
    age_ms: u64,
    read_ms: u64,
}

/// A tip that is being watched.
#[derive(Debug, Clone)]
pub struct Watching {
    /// The ref.
    pub name: RefName,
    /// Its tip.
    pub tip: RecordId,
    /// How old the tip is, at least, where it stands at an authority.
    pub at_authority: Option<Watched>,
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

    /// What is known of this very tip at an authority, on clock `clock`.
    pub fn at_authority(&self, clock: u64, name: &RefName, tip: RecordId) -> Option<Watched> {
        let sight = self.clocks.get(&key(clock))?.get(name.as_str())?;
        let AtAuthority { age_ms, read_ms } = sight.at_authority.filter(|_| sight.tip == tip.to_string())?;
        Some(Watched { age_ms, read_ms })
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
        watched: &[Watching],
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
        for Watching { name, tip, at_authority } in watched {
            let at_authority = at_authority.map(|Watched { age_ms, read_ms }| AtAuthority { age_ms, read_ms });
            let mut fresh = Sight { tip: tip.to_string(), first_seen_ms: seen_ms, at_authority };
            if let Some(known) = sights.get(name.as_str()).filter(|known| known.tip == fresh.tip) {
                fresh.first_seen_ms = fresh.first_seen_ms.min(known.first_seen_ms);
                // Another sweep may have read later than this one.
                let read_ms = at_authority.map_or(0, |read| read.read_ms);
                let later = known.at_authority.filter(|known| known.read_ms > read_ms);
                fresh.at_authority = later.or(at_authority);
            }
            sights.insert(name.as_str().to_owned(), fresh);
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
