//! `pm init`: the configuration of a ledger, written where it is unset, and explained.
//!
//! What must never happen here: a value is overwritten.

use serde_json::{Map, Value, json};

use crate::config::remote_name;
use crate::doctor::settings::one_url;
use crate::error::{Error, Result};
use crate::git_program::network::without_password;
use crate::git_program::{FSYNC, Git};
use crate::id::{RefName, TASKS};
use crate::output::span;
use crate::session::Session;
use crate::store::{Durability, StoreError};
use crate::sync::run::Watcher;
use crate::sync::settle::Trouble;

/// Set a repository up for a ledger, and say what it would look like
///
/// Overwrites nothing, and can be run again. A ledger needs no init: the first task begins it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The remote that is the authority, where the ledger is shared between machines: sets pm.remote
    #[arg(long, value_name = "REMOTE")]
    remote: Option<String>,
}

/// What was set, and what was set before.
#[derive(Debug, Default)]
struct Done {
    set: Vec<(&'static str, String)>,
    already: Vec<(&'static str, String)>,
}

impl Args {
    /// Sets up.
    ///
    /// # Errors
    /// `Usage` (2) for a remote that there is not, or another one than is set; `Unusable` (18) for one with two URLs.
    pub fn run(&self, session: &Session) -> Result<()> {
        let git = Git::new(session.store.common_dir());
        let mut done = Done::default();
        // Everything is checked before anything is set.
        if let Some(remote) = &self.remote {
            check_remote(&git, remote, session.config.remote.as_deref())?;
        }
        set_fsync(&git, session, &mut done)?;
        let remote = self.remote.as_ref().or(session.config.remote.as_ref());
        match (&session.config.remote, &self.remote) {
            (Some(remote), _) => done.already.push(("pm.remote", remote.clone())),
            (None, Some(remote)) => {
                git.set("pm.remote", remote)?;
                done.set.push(("pm.remote", remote.clone()));
            }
            (None, None) => {}
        }
        let meeting = self.remote.as_deref().map(|remote| meeting(session, remote));
        let ledger =
            Ledger { session, meeting, remote: remote.map(String::as_str), queue: session.queue(None)?.to_string() };
        session.out.result(|| ledger.to_json(&done), || ledger.to_text(&done));
        Ok(())
    }
}

/// What a first synchronisation would find: an authority may be switched on over ledgers that exist already.
enum Meeting {
    /// Tasks there, tasks that are only here, and names that stand for another task there.
    Found { there: usize, only_here: usize, collisions: Vec<RefName> },
    /// It cannot be reached now.
    Unknown(String),
}

fn meeting(session: &Session, remote: &str) -> Meeting {
    let found =
        session.link_to(remote).and_then(|link| link.plan(&session.ledger(), &[TASKS.to_owned()], Watcher::patient()));
    match found {
        Ok((outcome, ahead)) => {
            let collisions = outcome.troubles.into_iter().filter(|(_, trouble)| matches!(trouble, Trouble::Collision));
            let collisions = collisions.map(|(name, _)| name).collect();
            Meeting::Found { there: outcome.listed, only_here: ahead.len(), collisions }
        }
        Err(error) => Meeting::Unknown(error.to_string()),
    }
}

impl Meeting {
    fn to_json(&self) -> Value {
        match self {
            Meeting::Found { there, only_here, collisions } => {
                json!({"there": there, "only_here": only_here, "collisions": collisions})
            }
            Meeting::Unknown(why) => json!({"unknown": why}),
        }
    }

    fn to_text(&self) -> Vec<String> {
        let (there, only_here, collisions) = match self {
            Meeting::Found { there, only_here, collisions } => (there, only_here, collisions),
            Meeting::Unknown(why) => return vec![format!("the authority could not be looked at: {why}")],
        };
        let mut lines =
            vec![format!("{there} tasks are at the authority, {only_here} here would be pushed by `pm sync`")];
        lines.extend(collisions.iter().map(|name| {
            format!("{name} is another task there: `pm repair --set-aside --task <slug> --slug <another>` lets this one give way")
        }));
        lines
    }
}

/// Whether a remote can be the authority.
fn check_remote(git: &Git, remote: &str, set: Option<&str>) -> Result<()> {
    remote_name(remote)?;
    if let Some(set) = set.filter(|set| *set != remote) {
        return Err(Error::Usage(format!(
            "pm.remote is '{set}', and nothing was changed: another authority may have another ledger. If '{remote}' is meant, run `git config pm.remote '{remote}'`"
        )));
    }
    let remotes = git.remotes()?;
    if !remotes.iter().any(|known| known == remote) {
        let known = if remotes.is_empty() {
            "there are none".to_owned()
        } else {
            format!("those of this repository: {}", remotes.join(", "))
        };
        return Err(Error::Usage(format!(
            "'{remote}' is not a remote of this repository ({known}); `git remote add '{remote}' <url>` adds it"
        )));
    }
    let (read, written) = git.urls(remote)?;
    if written.iter().any(|url| *url != read) {
        let (read, written) = (without_password(&read), without_password(&written.join(", ")));
        let reason = format!(
            "the remote '{remote}' is read from {read} and written to {written}, so it cannot be the authority: what was pushed would not be what is read. {}",
            one_url(remote)
        );
        return Err(Error::Store(StoreError::Unusable { reason }));
    }
    Ok(())
}

/// Makes git's own maintenance safe for the ledger, as the first write does.
fn set_fsync(git: &Git, session: &Session, done: &mut Done) -> Result<()> {
    match session.store.config_string("core.fsync") {
        Some(value) => done.already.push(("core.fsync", value)),
        None if session.config.durability == Durability::Power && git.set_fsync_if_unset()? => {
            done.set.push(("core.fsync", FSYNC.to_owned()));
        }
        None => {}
    }
    Ok(())
}

/// The ledger as it is configured now.
struct Ledger<'a> {
    session: &'a Session,
    meeting: Option<Meeting>,
    remote: Option<&'a str>,
    queue: String,
}

/// What to do next in a ledger of this repository alone.
const NEXT: [&str; 3] = ["pm plan --title \"The first task\"", "pm pull", "pm doctor"];
/// What to do next where a remote decides: the tasks may all be there.
const NEXT_SHARED: [&str; 3] = ["pm sync", "pm pull", "pm doctor --remote"];

impl Ledger<'_> {
    fn next(&self) -> [&'static str; 3] {
        if self.remote.is_some() { NEXT_SHARED } else { NEXT }
    }

    fn durability(&self) -> &'static str {
        match self.session.config.durability {
            Durability::Power => "power",
            Durability::Process => "process",
        }
    }

    fn to_json(&self, done: &Done) -> Value {
        let map = |pairs: &[(&str, String)]| -> Map<String, Value> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
        };
        json!({
            "repository": self.session.store.common_dir().display().to_string(),
            "set": map(&done.set),
            "already": map(&done.already),
            "queue": self.queue,
            "ttl_ms": self.session.config.ttl.ms(),
            "agent": self.session.agent,
            "durability": self.durability(),
            "remote": self.remote,
            "meeting": self.meeting.as_ref().map(Meeting::to_json),
            "next": self.next(),
        })
    }

    fn to_text(&self, done: &Done) -> String {
        let mut lines: Vec<String> = Vec::new();
        lines.extend(done.set.iter().map(|(key, value)| format!("set {key} = {value}")));
        lines.extend(done.already.iter().map(|(key, value)| format!("{key} = {value} was set already")));
        lines.extend(self.meeting.iter().flat_map(Meeting::to_text));
        let power = match self.session.config.durability {
            Durability::Power => "exit 0 survives a power cut",
            Durability::Process => "exit 0 survives the death of the process only",
        };
        let shared = match self.remote {
            Some(remote) => format!("'{remote}' is the authority: its refs decide (pm.remote)"),
            None => {
                "this repository alone; `pm init --remote <name>` shares it between machines (pm.remote)".to_owned()
            }
        };
        let rows = [
            ("ledger", format!("refs/pm/ in {}", self.session.store.common_dir().display())),
            ("queue", format!("{} (pm.queue)", self.queue)),
            ("lease", format!("{} without a heartbeat (pm.ttl)", span(self.session.config.ttl.ms()))),
            ("agent", format!("{} (--agent, $PM_AGENT_ID, pm.agent)", self.session.agent)),
            ("durability", format!("{}: {power} (pm.durability)", self.durability())),
            ("shared", shared),
        ];
        lines.extend(rows.iter().map(|(what, how)| format!("{what:<11}{how}")));
        lines.push(format!("next: `{}`", self.next().join("`, `")));
        lines.join("\n")
    }
}
