//! A hub behind a server, and machines that have it as their authority.
//!
//! What must never happen here: a process or a thread of a run outlives its [`Fleet`].

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::history::History;
use crate::servers::{GitDaemon, HttpBackend, Hub, Proxy, Server, Sshd};
use crate::support::{Repo, isolated, pm, run_within};

/// The bound of one command that talks to a hub: many times what pm allows itself, with a `pm.networkTimeout` of seconds.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// How often all machines synchronise until nothing changes any more. Each exchange can only bring records that were
/// made before, so few are needed.
const ROUNDS_MAX: usize = 12;

/// By what a hub is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Daemon,
    Http,
    Ssh,
}

impl Way {
    /// What it needs and is not here.
    pub fn lacks(self) -> Option<&'static str> {
        match self {
            Way::Daemon => GitDaemon::lacks(),
            Way::Http => HttpBackend::lacks(),
            Way::Ssh => Sshd::lacks(),
        }
    }
}

/// One machine: a clone, and the network before it.
pub struct Machine {
    pub name: String,
    pub repo: Repo,
    pub proxy: Proxy,
}

/// Machines and their hub.
pub struct Fleet {
    pub machines: Vec<Machine>,
    pub hub: Hub,
    /// Dropped after what talks to it.
    server: Box<dyn Server + Sync>,
}

impl Fleet {
    /// A hub with this plan, and so many machines which all have it. `settings` are git configuration of each.
    pub fn new(dir: &Path, way: Way, machines: usize, plan: &str, settings: &[(&str, &str)]) -> Result<Fleet> {
        let hub = Hub::new();
        let (server, ssh): (Box<dyn Server + Sync>, _) = match way {
            Way::Daemon => (Box::new(GitDaemon::start(&hub)), None),
            Way::Http => (Box::new(HttpBackend::start(&hub)), None),
            Way::Ssh => {
                let sshd = Sshd::start(&hub);
                let ssh = sshd.ssh_command();
                (Box::new(sshd), Some(ssh))
            }
        };
        let mut fleet = Fleet { machines: Vec::new(), hub, server };
        fleet.plan(dir, plan)?;
        for at in 0..machines {
            let name = format!("m{at}");
            let repo = Repo::init(&dir.join(&name))?;
            let proxy = Proxy::start(fleet.server.addr());
            repo.git(["remote", "add", "origin", &fleet.server.url_at(proxy.addr())])?;
            if let Some(ssh) = &ssh {
                repo.git(["config", "core.sshCommand", ssh])?;
            }
            for (key, value) in [("pm.remote", "origin")].iter().chain(settings) {
                repo.git(["config", key, value])?;
            }
            let machine = Machine { name, repo, proxy };
            machine.sync()?;
            fleet.machines.push(machine);
        }
        Ok(fleet)
    }

    fn plan(&self, dir: &Path, plan: &str) -> Result<()> {
        let file = dir.join("plan");
        std::fs::write(&file, plan)?;
        let mut command = isolated(pm());
        command
            .arg("-C")
            .arg(self.hub.path())
            .args(["bulk-plan", "--quiet", "--agent", "planner", "--input"])
            .arg(file);
        run_within(&mut command, PATIENCE)?.ok()?;
        Ok(())
    }

    /// The hub, as a repository that plain git can be asked about.
    pub fn at_hub(&self) -> Repo {
        Repo { dir: self.hub.path().to_owned() }
    }

    /// Synchronises all machines until nothing changes any more.
    ///
    /// # Errors
    /// When they do not settle, or one of them leaves something alone.
    pub fn settle(&self) -> Result<()> {
        let mut before = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let told: Vec<Value> = self.machines.iter().map(Machine::sync).collect::<Result<_>>()?;
            let open = |told: &Value| {
                ["raced", "unknown", "pushed"]
                    .iter()
                    .any(|list| told[list].as_array().is_some_and(|rows| !rows.is_empty()))
            };
            let now = self.all_tips()?;
            if now == before && !told.iter().any(open) {
                return Ok(());
            }
            before = now;
        }
        anyhow::bail!("the machines do not settle within {ROUNDS_MAX} rounds of pm sync")
    }

    /// The tasks' refs of the hub and of every machine.
    fn all_tips(&self) -> Result<Vec<String>> {
        let here = self.machines.iter().map(|machine| machine.repo.clone());
        std::iter::once(self.at_hub()).chain(here).map(|repo| tips(&repo)).collect()
    }

    /// Checks what must hold after every healed run, whatever happened in it; returns the hub's history.
    pub fn check(&self) -> Result<History> {
        let tips = self.all_tips()?;
        for (machine, theirs) in self.machines.iter().zip(&tips[1..]) {
            ensure!(*theirs == tips[0], "{} and the hub differ:\n{theirs}\nthe hub:\n{}", machine.name, tips[0]);
            let pending = machine.repo.git(["for-each-ref", "refs/pm-pending/"])?;
            ensure!(pending.is_empty(), "{}: still on its way: {pending}", machine.name);
            let verified = machine.repo.pm_json(["verify"])?;
            ensure!(verified["faults"].as_array().is_some_and(Vec::is_empty), "{}: {verified}", machine.name);
        }
        self.at_hub().check_clean().context("the hub")?;
        let history = History::read(&self.at_hub())?;
        history.check().context("the hub's history")?;
        Ok(history)
    }

    /// Keeps the hub of a broken run beside the machines: it is in a temporary directory of its own.
    pub fn keep_hub(&self, dir: &Path) {
        let mut copy = isolated("cp");
        copy.arg("-r").arg(self.hub.path()).arg(dir.join("hub.git"));
        let _what_can_be_kept = run_within(&mut copy, PATIENCE);
    }
}

fn tips(repo: &Repo) -> Result<String> {
    repo.git(["for-each-ref", "--format=%(refname) %(objectname)", "refs/pm/tasks/"])
}

impl Machine {
    /// `pm sync`, which must leave nothing alone. A race or a lost answer is told, and is no failure here.
    pub fn sync(&self) -> Result<Value> {
        let done = run_within(&mut self.repo.pm_command(["sync", "--json", "--agent", "syncer"]), PATIENCE)?;
        ensure!(
            matches!(done.code(), 0 | 20),
            "{}: pm sync: {}: {}{}",
            self.name,
            done.code(),
            done.stdout,
            done.stderr
        );
        serde_json::from_str(&done.stdout).with_context(|| format!("{}: pm sync: {}", self.name, done.stderr))
    }
}
