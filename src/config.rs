//! Configuration: git configuration under `pm.` (commands.md).

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::id::{AgentId, Queue};
use crate::protocol::lease::DEFAULT_TTL_MS;
use crate::protocol::record::Ttl;
use crate::store::Durability;
use crate::store::git::GitStore;

/// The keys that this build knows, as git prints them.
const KEYS: [&str; 10] = [
    "pm.agent",
    "pm.allowVerifier",
    "pm.durability",
    "pm.interval",
    "pm.maxAttempts",
    "pm.pollQueue",
    "pm.queue",
    "pm.remote",
    "pm.stateRoot",
    "pm.ttl",
];

/// From one cycle of the poller to the next, unless `pm.interval` says otherwise (design, section 8).
const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);

/// What the repository's configuration says.
#[derive(Debug, Clone)]
pub struct Config {
    /// `pm.queue`.
    pub queue: Option<Queue>,
    /// `pm.ttl`: the lease of claims that asked for none.
    pub ttl: Ttl,
    /// `pm.maxAttempts`: 0 is no limit.
    pub max_attempts: u32,
    /// `pm.durability`.
    pub durability: Durability,
    /// `pm.agent`.
    pub agent: Option<AgentId>,
    /// `pm.interval`: from one cycle of the poller to the next.
    pub interval: Duration,
    /// `pm.pollQueue`, several: the queues that the poller sweeps; none are all.
    pub poll_queues: Vec<Queue>,
    /// `pm.stateRoot`: where the poller's files are; relative to the git directory that all worktrees share.
    pub state_root: Option<PathBuf>,
    /// `pm.remote`: the remote of this repository that is the authority (design, section 7).
    pub remote: Option<String>,
    /// `pm.allowVerifier`, several: the commands out of the ledger that may run here; `*` is all.
    pub allow_verifier: Vec<String>,
    /// Whether `core.fsync` is set to anything: maintenance can then be trusted not to lose refs.
    pub fsync_is_set: bool,
}

impl Config {
    /// Reads the configuration.
    ///
    /// # Errors
    /// `Usage`, naming the key, where a value cannot be used.
    pub fn read(store: &GitStore) -> Result<Config> {
        fn parsed<T>(store: &GitStore, key: &str, parse: impl Fn(&str) -> Result<T>) -> Result<Option<T>> {
            store.config_string(key).map(|text| parse(&text).map_err(|error| wrong(key, &text, error))).transpose()
        }
        Ok(Config {
            queue: parsed(store, "pm.queue", |text| Ok(text.parse()?))?,
            ttl: match parsed(store, "pm.ttl", duration)? {
                Some(ttl) => ttl,
                None => Ttl::from_ms(DEFAULT_TTL_MS).map_err(|error| Error::Usage(error.to_string()))?,
            },
            max_attempts: parsed(store, "pm.maxAttempts", |text| {
                text.parse().map_err(|_| Error::Usage("not a whole number".to_owned()))
            })?
            .unwrap_or(0),
            durability: parsed(store, "pm.durability", |text| match text {
                "power" => Ok(Durability::Power),
                "process" => Ok(Durability::Process),
                _ => Err(Error::Usage("not 'power' or 'process'".to_owned())),
            })?
            .unwrap_or_default(),
            agent: parsed(store, "pm.agent", |text| Ok(text.parse()?))?,
            interval: parsed(store, "pm.interval", duration)?
                .map_or(DEFAULT_INTERVAL, |interval| Duration::from_millis(interval.ms())),
            poll_queues: store
                .config_strings("pm.pollQueue")
                .iter()
                .map(|text| text.parse().map_err(|error| wrong("pm.pollQueue", text, Error::from(error))))
                .collect::<Result<_>>()?,
            state_root: Config::state_root(store)?,
            remote: parsed(store, "pm.remote", |text| remote_name(text).map(|()| text.to_owned()))?,
            allow_verifier: store.config_strings("pm.allowVerifier"),
            fsync_is_set: store.config_string("core.fsync").is_some(),
        })
    }

    /// Reads `pm.stateRoot` alone: for who must find the poller even where something else is wrong.
    ///
    /// # Errors
    /// `Usage` where it is no path.
    pub fn state_root(store: &GitStore) -> Result<Option<PathBuf>> {
        let no_path = |found: String| wrong("pm.stateRoot", &found, Error::Usage("no path".to_owned()));
        store.config_path("pm.stateRoot").map_err(no_path)
    }

    /// One warning for each key under `pm.` that this build does not know, with the nearest one that it does. A
    /// newer pm may share the repository, so they are no errors.
    pub fn unknown_keys(store: &GitStore) -> Vec<String> {
        let known = |key: &str| KEYS.iter().any(|known| known.eq_ignore_ascii_case(key));
        let warning = |key: &String| match nearest(key) {
            Some(near) => format!("this pm does not know the configuration key {key}; did you mean {near}?"),
            None => format!("this pm does not know the configuration key {key}, and ignores it"),
        };
        store.config_keys("pm").iter().filter(|key| !known(key)).map(warning).collect()
    }
}

fn wrong(key: &str, text: &str, error: Error) -> Error {
    Error::Usage(format!("git configuration {key} = '{text}' cannot be used: {error}"))
}

/// Checks that a text can be the name of a remote, and nothing else to git.
///
/// # Errors
/// `Usage` where it is not.
pub fn remote_name(text: &str) -> Result<()> {
    let is_name = !text.is_empty() && !text.starts_with('-') && !text.chars().any(char::is_control);
    if is_name {
        Ok(())
    } else {
        Err(Error::Usage(format!("'{}' is not the name of a remote", crate::id::shown(text))))
    }
}

/// The known key that is at most two edits away.
fn nearest(key: &str) -> Option<&'static str> {
    KEYS.into_iter()
        .map(|known| (strsim::damerau_levenshtein(&known.to_ascii_lowercase(), &key.to_ascii_lowercase()), known))
        .filter(|(distance, _)| *distance <= 2)
        .min()
        .map(|(_, known)| known)
}

/// Reads a duration as people write it: `90`, `90s`, `1500ms`, `5m`, `2h`, `1d`. Without a unit it is seconds.
///
/// # Errors
/// `Usage` for anything else, and for durations outside of 1 ms to 366 days.
pub fn duration(text: &str) -> Result<Ttl> {
    let bad =
        || Error::Usage(format!("'{}' is not a duration such as 90, 90s, 1500ms, 5m, 2h, 1d", crate::id::shown(text)));
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(bad()),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let ms = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale)).ok_or_else(bad)?;
    Ttl::from_ms(ms).map_err(|error| Error::Usage(format!("'{text}' is {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, ms: Option<u64>) {
        assert_eq!(duration(text).ok().map(Ttl::ms), ms, "{text}");
    }

    #[test]
    fn durations_are_seconds_unless_they_have_a_unit() {
        check("90", Some(90_000));
        check("90s", Some(90_000));
        check("1500ms", Some(1500));
        check("5m", Some(300_000));
        check("1d", Some(86_400_000));
        for text in ["", "s", "-1", "+1", "1.5", "0", "367d", "5x", "99999999999999999999", "5 s"] {
            check(text, None);
        }
    }

    #[test]
    fn the_nearest_key_is_offered_only_when_it_is_near() {
        assert_eq!(nearest("pm.tll"), Some("pm.ttl"));
        assert_eq!(nearest("pm.maxattempt"), Some("pm.maxAttempts"));
        assert_eq!(nearest("pm.colour"), None);
    }
}
