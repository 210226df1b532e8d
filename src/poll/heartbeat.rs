//! What the poller did and when: `poll-status.json`, rewritten whole after every cycle.
//!
//! For people and dashboards. It never names a process and is never asked whether one runs: a fresh heartbeat beside a
//! lock that nobody holds means that a poller has stopped after that cycle.
//!
//! What must never happen here: a reader sees half of it; a failure to write it stops the work.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize, Serializer};

use super::look_at;
use crate::output::{counted, span};

/// More than any heartbeat has.
const BYTES_MAX: u64 = 1 << 16;

/// What one cycle did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cycle {
    /// Tasks read.
    pub tasks: u64,
    /// Claims taken away from workers that went silent.
    pub reclaimed: u64,
    /// Claims that were stale and moved on before they could be taken away.
    pub raced: u64,
    /// Tasks rejected, after too many attempts.
    pub rejected: u64,
    /// Claims that are being watched, since they were written on another clock.
    pub observing: u64,
    /// Tasks whose records came from the authority.
    pub taken: u64,
    /// Tasks whose records were pushed to the authority.
    pub pushed: u64,
    /// Tasks of which something was recorded here and lost.
    pub lost: u64,
    /// Loose refs that were packed.
    pub refs_packed: u64,
    /// Loose objects that were packed, about.
    pub objects_packed: u64,
    /// Steps and tasks that failed.
    pub errors: u64,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// It was ended by a signal before it was complete.
    pub interrupted: bool,
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} read, {} reclaimed, {} rejected, {} raced, {} watched, {}, in {}",
            counted(self.tasks, "task"),
            self.reclaimed,
            self.rejected,
            self.raced,
            self.observing,
            counted(self.errors, "error"),
            span(self.duration_ms),
        )?;
        if self.taken + self.pushed + self.lost > 0 {
            write!(f, "; synced {} taken, {} pushed, {} lost", self.taken, self.pushed, self.lost)?;
        }
        if self.refs_packed + self.objects_packed > 0 {
            write!(f, "; packed {} refs and about {} objects", self.refs_packed, self.objects_packed)?;
        }
        if self.interrupted { f.write_str("; interrupted") } else { Ok(()) }
    }
}

/// The whole document. Keys that are not listed here, such as a `pid` of some older program, are dropped on reading.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// When the poller started, RFC 3339 in UTC.
    pub started_at: String,
    /// When the last cycle ended, RFC 3339 in UTC; none yet before the first.
    #[serde(default)]
    pub last_cycle_at: Option<String>,
    /// From the start of one cycle to the start of the next, in seconds.
    #[serde(serialize_with = "plainly")]
    pub interval_seconds: f64,
    /// What the last cycle did.
    #[serde(default)]
    pub last_cycle: Option<Cycle>,
}

/// Writes a whole number without a point.
fn plainly<S: Serializer>(seconds: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if seconds.fract() == 0.0 && (0.0..1e9).contains(seconds) {
        serializer.serialize_u64(*seconds as u64)
    } else {
        serializer.serialize_f64(*seconds)
    }
}

impl Heartbeat {
    /// Reads it. Absent, torn and foreign content is no heartbeat at all.
    pub fn read(path: &Path) -> Option<Heartbeat> {
        let mut bytes = Vec::new();
        look_at(path).ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let found: Heartbeat = serde_json::from_slice(&bytes).ok()?;
        // They are shown on terminals, and somebody else may have written them.
        let is_time = |time: &String| time.parse::<jiff::Timestamp>().is_ok();
        let is_whole = is_time(&found.started_at) && found.last_cycle_at.as_ref().is_none_or(is_time);
        is_whole.then_some(found)
    }

    /// Puts it in the place of the last one, at once. Only the holder of the run lock writes, so that the temporary file
    /// needs no name of its own. Nothing is synced: after a power cut no poller runs, and none is missed.
    ///
    /// # Errors
    /// What the system says; the last one then stands.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let temporary = path.with_extension("json.tmp");
        fs::write(&temporary, serde_json::to_vec(self)?)?;
        fs::rename(&temporary, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Heartbeat> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("poll-status.json");
        fs::write(&path, text).expect("written");
        Heartbeat::read(&path)
    }

    #[test]
    fn keys_that_are_not_ours_are_dropped_and_a_pid_above_all() {
        let found = read(
            r#"{"startedAt":"2026-11-30T02:00:00Z","lastCycleAt":null,"intervalSeconds":60,"pid":1,"lastCycle":{"tasks":2,"pid":3}}"#,
        );
        let found = found.expect("a heartbeat");
        assert_eq!(found.last_cycle, Some(Cycle { tasks: 2, ..Cycle::default() }));
        assert!(!serde_json::to_string(&found).expect("text").contains("pid"));
    }

    #[test]
    fn what_is_torn_or_foreign_is_no_heartbeat() {
        for text in [
            "",
            "{",
            r#"{"startedAt":"a","#,
            "[]",
            "null",
            "{}",
            r#"{"startedAt":1,"intervalSeconds":60}"#,
            "{\"startedAt\":\"\\u001b[31m\",\"intervalSeconds\":60}",
            "\0",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
        assert_eq!(Heartbeat::read(Path::new("/nowhere/poll-status.json")), None);
    }
}
