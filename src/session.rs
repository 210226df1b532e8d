//! What every command works with: the repository, its configuration, who asks, and where to say it.

use std::cell::Cell;
use std::env::VarError;
use std::path::{Path, PathBuf};

use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::git_program::network::{Couriers, without_password};
use crate::git_program::{FSYNC, Git};
use crate::id::{AgentId, Queue};
use crate::ledger::chain::cut_off;
use crate::ledger::{Identity, Ledger, Reach};
use crate::output::Output;
use crate::poll::StateRoot;
use crate::protocol::record::ContextId;
use crate::store::git::GitStore;
use crate::store::{Durability, StoreError};
use crate::sync::remote::{Address, Remote};
use crate::sync::settle::Link;

/// Who asks, as given on the command line.
#[derive(Debug, Clone, Default)]
pub struct Caller {
    /// `--agent`.
    pub agent: Option<AgentId>,
    /// `--context-id`.
    pub context: Option<String>,
    /// `--offline`.
    pub is_offline: bool,
}

/// How it is known who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// `--agent`.
    Option,
    /// `$PM_AGENT_ID`.
    Variable,
    /// The context id.
    Context,
    /// `pm.agent`.
    Configuration,
    /// The host and the process that called pm: another one in the next pipe or subshell.
    Process,
}

/// A command's view of the world.
pub struct Session {
    /// The repository.
    pub store: GitStore,
    /// Its configuration.
    pub config: Config,
    /// What time it is.
    pub clock: SystemClock,
    /// Who asks.
    pub agent: AgentId,
    /// How that is known.
    pub naming: Naming,
    /// In which context, if in one: what a sticky task is bound to.
    pub context: Option<ContextId>,
    /// Where the caller works, without symbolic links: which tasks with a work directory are for it.
    pub dir: PathBuf,
    /// Where to say it.
    pub out: Output,
    identity: Identity,
    /// Whether this process has seen to `core.fsync` already.
    fsync_seen_to: Cell<bool>,
    /// The way to the remote that decides, if one does.
    authority: Option<Link>,
    /// Records stay here for now (`--offline`).
    is_offline: bool,
}

impl Session {
    /// Opens the repository that `dir` is in.
    ///
    /// # Errors
    /// `Unusable` (18) where there is none that pm can use, `Usage` for a wrong configuration.
    pub fn open(dir: &Path, caller: &Caller, out: Output) -> Result<Session> {
        let store = GitStore::discover(dir)?;
        for warning in Config::unknown_keys(&store) {
            out.warning(&warning);
        }
        Session::over(store, dir, caller, out)
    }

    /// As [`Session::open`], for who has opened it before: what is unknown was said then.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn reopen(dir: &Path, caller: &Caller, out: Output) -> Result<Session> {
        Session::over(GitStore::discover(dir)?, dir, caller, out)
    }

    /// Opens the repository to judge what is pushed to it: for a hook, which acts as nobody and writes nothing.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn judging(dir: &Path, out: Output) -> Result<Session> {
        let caller = Caller { agent: Some("hub".parse()?), ..Caller::default() };
        Session::over(GitStore::discover_for_reading(dir)?, dir, &caller, out)
    }

    fn over(mut store: GitStore, dir: &Path, caller: &Caller, out: Output) -> Result<Session> {
        let cut = cut_off(&store, &store.shallow_boundary()?);
        if cut > 0 {
            let reason = format!(
                "this is a shallow clone of the ledger: the history of {cut} tasks is cut off. `git fetch --unshallow <remote> 'refs/pm/*:refs/pm-remote/<remote>/*'` brings the rest"
            );
            return Err(StoreError::Unusable { reason }.into());
        }
        let config = Config::read(&store)?;
        store.set_durability(config.durability);
        let context = context(caller)?;
        let (agent, naming) = agent(caller, context.as_ref(), &config)?;
        let fallback = || format!("pm@{}", hostname());
        let (name, email) = store.committer().unwrap_or_else(|| ("pm".to_owned(), fallback()));
        let identity = Identity {
            committer: (git_safe(&name, "pm"), git_safe(&email, &fallback())),
            email: git_safe(&store.user_email().unwrap_or_default(), &fallback()),
        };
        let fsync_seen_to = Cell::new(config.fsync_is_set || config.durability == Durability::Process);
        let authority = config.remote.as_ref().map(|remote| link(&store, &config, remote, true));
        let is_offline = caller.is_offline;
        Ok(Session {
            store,
            config,
            clock: SystemClock::new(),
            agent,
            naming,
            context,
            dir: dir.canonicalize().unwrap_or_else(|_| dir.to_owned()),
            out,
            identity,
            fsync_seen_to,
            authority,
            is_offline,
        })
    }

    /// The way to the remote that decides, if one does.
    pub fn authority(&self) -> Option<&Link> {
        self.authority.as_ref()
    }

    /// Whether what is recorded stays here for now.
    pub fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// The way to a remote: the one that decides, or another one of this repository.
    ///
    /// # Errors
    /// `Usage` where there is no such remote, `Unusable` where it cannot be used.
    pub fn link_to(&self, remote: &str) -> Result<Link> {
        check_remote(&self.store, remote)?;
        let is_authority = self.config.remote.as_deref().is_none_or(|authority| authority == remote);
        Ok(link(&self.store, &self.config, remote, is_authority))
    }

    /// The ledger, for reading.
    pub fn ledger(&self) -> Ledger<'_> {
        Ledger {
            store: &self.store,
            clock: &self.clock,
            identity: &self.identity,
            agent: &self.agent,
            context: self.context.as_ref(),
            reach: Reach::Alone,
        }
    }

    /// The ledger, for writing; where a remote decides, through that. The first write makes git's own maintenance safe for
    /// the ledger, and says so once.
    ///
    /// # Errors
    /// `Usage` or `Unusable` where `pm.remote` names a remote that cannot be used.
    pub fn writer(&self) -> Result<Ledger<'_>> {
        Ok(Ledger { reach: self.reach()?, ..self.local_writer() })
    }

    /// The ledger, for finding what is to be written: where a remote decides, it is asked for what is not known here.
    ///
    /// # Errors
    /// As [`Session::writer`].
    pub fn finder(&self) -> Result<Ledger<'_>> {
        Ok(Ledger { reach: self.reach()?, ..self.ledger() })
    }

    /// The ledger, for writing what may still lose where a remote decides.
    pub fn provisional_writer(&self) -> Ledger<'_> {
        let reach = if self.authority.is_some() { Reach::Provisional } else { Reach::Alone };
        Ledger { reach, ..self.local_writer() }
    }

    fn reach(&self) -> Result<Reach<'_>> {
        Ok(match (&self.authority, self.is_offline) {
            (None, _) => Reach::Alone,
            (Some(_), true) => Reach::Provisional,
            (Some(link), false) => {
                check_remote(&self.store, &link.remote.name)?;
                Reach::Through(link)
            }
        })
    }

    /// As [`Session::writer`], for what is recorded in this repository alone: the caller sees to the rest.
    pub fn local_writer(&self) -> Ledger<'_> {
        if !self.fsync_seen_to.replace(true) {
            match Git::new(self.store.common_dir()).set_fsync_if_unset() {
                Ok(true) => self.out.note(&format!(
                    "note: set core.fsync={FSYNC} in this repository, so that git's own maintenance cannot lose refs in a power cut"
                )),
                // Another first write was faster.
                Ok(false) => {}
                Err(error) => self.out.note(&format!(
                    "note: core.fsync is not set and could not be set ({error}); until it is, a power cut after `git gc` can lose refs"
                )),
            }
        }
        self.ledger()
    }

    /// The queue of a command that needs one: what was asked for, else `pm.queue`, else `default`.
    pub fn queue(&self, asked: Option<&Queue>) -> Result<Queue> {
        match asked.or(self.config.queue.as_ref()) {
            Some(queue) => Ok(queue.clone()),
            None => Ok("default".parse()?),
        }
    }

    /// Where pm keeps its own local files: `<git-common-dir>/pm`.
    pub fn state_dir(&self) -> PathBuf {
        self.store.common_dir().join("pm")
    }

    /// Removes temporary files and directories that killed processes left, once they are older than `max_age`.
    ///
    /// # Errors
    /// Failures of the file system.
    pub fn sweep_leftovers(&self, max_age: std::time::Duration) -> Result<()> {
        self.store.sweep_temporaries(max_age)?;
        let swept = Couriers::sweep(self.store.common_dir(), max_age);
        swept.map(drop).map_err(Error::io("removing what killed processes left in pm/couriers"))
    }

    /// Where the poller keeps its files.
    pub fn state_root(&self) -> StateRoot {
        StateRoot::of(self.store.common_dir(), self.config.state_root.as_deref())
    }

    /// The wall clock, in seconds since 1970.
    pub fn now(&self) -> i64 {
        self.clock.wall_seconds()
    }
}

/// Refuses a remote that pm cannot use: one that is not configured, or that is read and written at different places.
fn check_remote(store: &GitStore, remote: &str) -> Result<()> {
    let urls = store.config_strings(&format!("remote.{remote}.url"));
    let Some(url) = urls.first() else {
        let known = store.remotes();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Error::Usage(format!(
            "this repository has no remote '{remote}' (there are: {known}); `git remote add {remote} URL` adds one, `git config pm.remote NAME` names the one that decides"
        )));
    };
    let different =
        urls.iter().chain(&store.config_strings(&format!("remote.{remote}.pushurl"))).any(|other| other != url);
    let rewritten = store.rewritten_for_pushes().iter().any(|beginning| url.starts_with(beginning.as_str()));
    if different || rewritten {
        let reason = format!(
            "the remote '{remote}' is read and written at different URLs, so what was pushed could not be read back; give the ledger a remote of its own with one URL: `git remote add ledger {}`, `git config pm.remote ledger`",
            without_password(url)
        );
        return Err(Error::Store(StoreError::Unusable { reason }));
    }
    Ok(())
}

fn link(store: &GitStore, config: &Config, remote: &str, is_authority: bool) -> Link {
    let address = Address { name: remote.to_owned(), prefix: config.ref_prefix.clone(), time: config.network_timeout };
    Link { remote: Remote::new(address, couriers(store)), state_dir: store.common_dir().join("pm"), is_authority }
}

/// Who goes to remotes for a repository.
pub fn couriers(store: &GitStore) -> Couriers {
    Couriers {
        common_dir: store.common_dir().to_owned(),
        git_dir: store.git_dir().to_owned(),
        here: store.work_dir().unwrap_or_else(|| store.common_dir().to_owned()),
        is_sha256: store.object_hash_len() == 32,
    }
}

/// In which context the caller is (commands.md): `--context-id`, else `$PM_CONTEXT_ID`.
fn context(caller: &Caller) -> Result<Option<ContextId>> {
    let context = match caller.context.clone().filter(|context| !context.is_empty()) {
        Some(context) => Some(context),
        None => env("PM_CONTEXT_ID")?,
    };
    let parsed = context.map(|context| context.parse()).transpose();
    parsed.map_err(|error| Error::Usage(format!("the context id (--context-id, $PM_CONTEXT_ID) is {error}")))
}

/// Who is asking (commands.md): `--agent`, else `$PM_AGENT_ID`, else the context, else `pm.agent`, else the host
/// and the process that called pm: so that the heartbeat of the same shell still owns the claim.
fn agent(caller: &Caller, context: Option<&ContextId>, config: &Config) -> Result<(AgentId, Naming)> {
    if let Some(agent) = &caller.agent {
        return Ok((agent.clone(), Naming::Option));
    }
    if let Some(agent) = env("PM_AGENT_ID")? {
        let agent = agent.parse().map_err(|error| Error::Usage(format!("$PM_AGENT_ID: {error}")))?;
        return Ok((agent, Naming::Variable));
    }
    if let Some(context) = context {
        let first: String = context.as_str().chars().take(12).collect();
        return Ok((format!("worker-{first}").parse()?, Naming::Context));
    }
    if let Some(agent) = &config.agent {
        return Ok((agent.clone(), Naming::Configuration));
    }
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    Ok((format!("{}-{parent}", hostname()).parse()?, Naming::Process))
}

/// An environment variable; one that is empty counts as unset.
///
/// # Errors
/// `Usage` where it is not UTF-8: whoever set it meant something.
pub fn env(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Error::Usage(format!("${name} is not UTF-8"))),
    }
}

/// The host's name, made of characters that an agent id may have.
pub fn hostname() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let safe: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).take(100).collect();
    if safe.is_empty() { "localhost".to_owned() } else { safe }
}

/// A name or email without what git does not allow in one; `fallback` when nothing is left.
fn git_safe(text: &str, fallback: &str) -> String {
    let safe: String = text.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect();
    let safe = safe.trim();
    if safe.is_empty() { fallback.to_owned() } else { safe.to_owned() }
}
