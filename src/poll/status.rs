//! What can be told of a poller from outside.
//!
//! What must never happen here: anything but the lock says whether a poller runs.

use std::path::Path;

use serde_json::{Value, json};

use super::heartbeat::Heartbeat;
use super::{PollError, StateRoot, run_lock};
use crate::output::span;

/// A poller that has not ended a cycle for so many intervals is called late: it is stopped, or at a long step.
const LATE_AFTER_INTERVALS: f64 = 3.0;

/// A poller, as seen from outside.
#[derive(Debug)]
pub struct Status {
    /// Whether the lock is held.
    pub is_running: bool,
    /// The poller's process, where the lock is held and nothing speaks against it.
    pub pid: Option<u32>,
    /// Another pid that the lock file names: a stale note, or one of another container.
    recorded_pid: Option<u32>,
    heartbeat: Option<Heartbeat>,
    state_root: String,
}

impl Status {
    /// Looks.
    ///
    /// # Errors
    /// `Unasked` where the lock cannot be asked: nothing is then known.
    pub fn look(root: &StateRoot) -> Result<Status, PollError> {
        let path = root.run_lock();
        let unasked = |source| PollError::Unasked { path: path.clone(), source };
        let is_running = run_lock::held(&path).map_err(unasked)?;
        let recorded = run_lock::recorded(&path);
        let pid = recorded.filter(|pid| is_running && run_lock::why_not_holder(*pid, &path).is_none());
        Ok(Status {
            is_running,
            pid,
            recorded_pid: recorded.filter(|_| pid.is_none()),
            heartbeat: Heartbeat::read(&root.heartbeat()),
            state_root: Path::display(root.dir()).to_string(),
        })
    }

    /// As JSON; `now` in seconds since 1970.
    pub fn to_json(&self, now: i64) -> Value {
        let mut value = json!({"running": self.is_running, "stateRoot": self.state_root});
        if let Some(pid) = self.pid {
            value["pid"] = json!(pid);
        }
        if let Some(pid) = self.recorded_pid {
            value["recordedPid"] = json!(pid);
            value["stale"] = json!(!self.is_running);
        }
        if let Some(heartbeat) = &self.heartbeat {
            let mut fields = json!(heartbeat);
            if let (Value::Object(fields), Value::Object(into)) = (&mut fields, &mut value) {
                into.append(fields);
            }
            let times = [
                ("startedAgeMs", Some(heartbeat.started_at.as_str())),
                ("lastCycleAgeMs", heartbeat.last_cycle_at.as_deref()),
            ];
            for (key, at) in times {
                if let Some(age) = at.and_then(|at| age_seconds(at, now)) {
                    value[key] = json!(age * 1000);
                }
            }
        }
        value
    }

    /// In one line; `now` in seconds since 1970.
    pub fn line(&self, now: i64) -> String {
        let cycle_at = self.heartbeat.as_ref().and_then(|heartbeat| heartbeat.last_cycle_at.as_deref());
        let started_at = self.heartbeat.as_ref().map(|heartbeat| heartbeat.started_at.as_str());
        let mut line = match (self.is_running, cycle_at, started_at) {
            (true, Some(at), _) => {
                let started = started_at.map(|at| format!(", started {}", ago(at, now))).unwrap_or_default();
                format!("running{}{started}, last cycle {}{}", self.process(), ago(at, now), self.pace(at, now))
            }
            (true, None, Some(at)) => format!("running{}, started {}, no cycle yet", self.process(), ago(at, now)),
            (true, None, None) => format!("running{}, no heartbeat", self.process()),
            (false, Some(at), _) => format!("not running, stopped after the cycle of {at} ({})", ago(at, now)),
            (false, None, Some(at)) => {
                format!("not running, started at {at} ({}) and stopped before its first cycle", ago(at, now))
            }
            (false, None, None) => "not running".to_owned(),
        };
        match (self.is_running, self.recorded_pid) {
            (false, Some(pid)) => {
                line.push_str(&format!("; poll.pid names process {pid}, which is stale: nobody holds the lock"));
            }
            (true, Some(pid)) => line.push_str(&format!(
                "; poll.pid names process {pid}, which does not hold the lock here: it may be of another container"
            )),
            (_, None) => {}
        }
        line
    }

    fn process(&self) -> String {
        self.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    }

    /// How often it should run, and whether it does.
    fn pace(&self, cycle_at: &str, now: i64) -> String {
        let Some(interval) = self.heartbeat.as_ref().map(|heartbeat| heartbeat.interval_seconds) else {
            return String::new();
        };
        let is_late =
            age_seconds(cycle_at, now).is_some_and(|age| age as f64 > interval.max(1.0) * LATE_AFTER_INTERVALS);
        format!(", every {interval} s{}", if is_late { ": late, it is stopped or at a long step" } else { "" })
    }

    /// What the last cycle did, for people; nothing where there was none.
    pub fn last_cycle(&self) -> Option<String> {
        Some(format!("last cycle: {}", self.heartbeat.as_ref()?.last_cycle.as_ref()?))
    }
}

/// How long ago a time was, in seconds; negative where it is in the future. `None` where it is no time.
fn age_seconds(at: &str, now: i64) -> Option<i64> {
    Some(now - at.parse::<jiff::Timestamp>().ok()?.as_second())
}

fn ago(at: &str, now: i64) -> String {
    match age_seconds(at, now) {
        None => format!("at '{}'", crate::id::shown(at)),
        Some(age) => {
            // These times are of whole seconds.
            let seconds = age.unsigned_abs();
            let span = if seconds < 10 { format!("{seconds} s") } else { span(seconds * 1000) };
            if age < 0 { format!("{span} in the future: a clock was set") } else { format!("{span} ago") }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_796_000_000;

    fn status(is_running: bool, noted: Option<u32>, cycle: Option<i64>) -> Status {
        let time = |ago: i64| jiff::Timestamp::from_second(NOW - ago).expect("a time").to_string();
        let heartbeat = Heartbeat {
            started_at: time(1000),
            last_cycle_at: cycle.map(time),
            interval_seconds: 60.0,
            last_cycle: None,
        };
        let (pid, recorded_pid) = if is_running { (noted, None) } else { (None, noted) };
        Status { is_running, pid, recorded_pid, heartbeat: Some(heartbeat), state_root: "/r".to_owned() }
    }

    #[test]
    fn the_lock_alone_says_whether_a_poller_runs() {
        let line = |running, pid, cycle| status(running, pid, cycle).line(NOW);
        assert_eq!(
            line(true, Some(7), Some(5)),
            "running (process 7), started 16 min ago, last cycle 5 s ago, every 60 s"
        );
        assert!(line(true, Some(7), Some(500)).ends_with("late, it is stopped or at a long step"));
        assert_eq!(line(true, Some(7), None), "running (process 7), started 16 min ago, no cycle yet");
        assert!(line(false, None, Some(0)).starts_with("not running, stopped after the cycle of 2026-11-"));
        assert!(
            line(false, Some(7), Some(0)).ends_with("poll.pid names process 7, which is stale: nobody holds the lock")
        );
        assert!(line(true, None, Some(-100)).contains("100 s in the future: a clock was set"));
    }

    #[test]
    fn a_pid_is_the_pollers_only_while_the_lock_is_held() {
        let json = |running| status(running, Some(7), Some(5)).to_json(NOW);
        assert_eq!((&json(true)["pid"], &json(true)["recordedPid"]), (&json!(7), &Value::Null));
        assert_eq!((&json(false)["pid"], &json(false)["recordedPid"]), (&Value::Null, &json!(7)));
        assert_eq!(json(false)["lastCycleAgeMs"], 5000);
    }
}
