//! What the authority really does, tried out under a scratch name: hosts differ, and most do not tell.
//!
//! Everything happens below `doctor/<random>`, where the ledger is,, with commits that nothing else refers to. What must never happen
//! here: a scratch ref is left behind without being named; a ref of anybody else is touched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::remote::{Host, Pushed, ask};
use super::{Finding, some_of};
use crate::error::{Error, Result};
use crate::git_program::network::Couriers;
use crate::output::counted;
use crate::signals::heeded;

/// Above so many refs every push is slow: each reads all of them (`docs/decisions/0019-what-the-doctor-checks.md`).
const MANY_REFS: usize = 5_000;

/// What git says of a host that does not offer all or nothing.
const NOT_ATOMIC: &str = "does not support --atomic";

/// Where scratch refs are, below where the ledger is.
const SCRATCH: &str = "doctor/";

/// The conversation with one authority.
struct Probe<'a> {
    host: Host<'a>,
    remote: &'a str,
    /// Where the ledger is there: `pm.refPrefix`.
    prefix: &'a str,
    /// What a signal sets: the rest is then left out, but for clearing up.
    is_stopped: Arc<AtomicBool>,
    /// The names that may be there now.
    left: Vec<String>,
    findings: Vec<Finding>,
}

/// Why a probe goes no further: what there is to say was said.
struct Enough;

/// Asks the authority.
///
/// # Errors
/// `Io` where the scratch commits cannot be written here. An authority that cannot be reached is a finding.
pub fn run(couriers: &Couriers, remote: &str, prefix: &str) -> Result<Vec<Finding>> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let mut registered = Vec::new();
    for signal in heeded([SIGINT, SIGTERM, SIGHUP]) {
        let flag = Arc::clone(&is_stopped);
        registered.push(signal_hook::flag::register(signal, flag).map_err(Error::io("catching signals"))?);
    }
    let random =
        getrandom::u64().map_err(|error| Error::io("drawing random bits")(std::io::Error::other(error.to_string())))?;
    let commits = Commits::write(couriers)?;
    let mut probe =
        Probe { host: Host { couriers, remote }, remote, prefix, is_stopped, left: Vec::new(), findings: Vec::new() };
    if probe.try_all(&format!("{prefix}{SCRATCH}{random:016x}"), &commits).is_err()
        && probe.is_stopped.load(Ordering::Relaxed)
    {
        probe.findings.push(Finding::wrong("remote", "the probe was stopped half way", "run it again"));
    }
    probe.clear();
    for id in registered {
        let _was_registered = signal_hook::low_level::unregister(id);
    }
    Ok(probe.findings)
}

/// Three commits: `first`, and two that both stand on it.
struct Commits {
    first: String,
    second: String,
    other: String,
}

impl Commits {
    fn write(couriers: &Couriers) -> Result<Commits> {
        let git = |args: &[&str]| {
            let identity = ["-c", "user.name=pm doctor", "-c", "user.email=pm@localhost"];
            let (code, said, error) = ask(couriers, &[&identity, args].concat())?;
            match code {
                0 => Ok(said.trim().to_owned()),
                _ => Err(Error::io("writing a scratch commit")(std::io::Error::other(error.trim().to_owned()))),
            }
        };
        let tree = git(&["hash-object", "-t", "tree", "-w", "/dev/null"])?;
        let first = git(&["commit-tree", "-m", "pm doctor: first", &tree])?;
        let second = git(&["commit-tree", "-m", "pm doctor: second", "-p", &first, &tree])?;
        let other = git(&["commit-tree", "-m", "pm doctor: other", "-p", &first, &tree])?;
        Ok(Commits { first, second, other })
    }
}

impl Probe<'_> {
    fn note(&mut self, check: &'static str, found: impl Into<String>) {
        self.findings.push(Finding::note(check, found));
    }

    fn wrong(&mut self, check: &'static str, found: impl Into<String>, remedy: impl Into<String>) {
        self.findings.push(Finding::wrong(check, found, remedy));
    }

    /// Pushes, with these leases.
    fn push(&self, options: &[String], refspecs: &[String]) -> std::result::Result<Pushed, Enough> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(Enough);
        }
        Ok(self.host.push(options, refspecs))
    }

    /// Pushes where a host that was well so far must answer: no answer is no refusal.
    fn ask(&mut self, options: &[String], refspecs: &[String]) -> std::result::Result<Pushed, Enough> {
        let pushed = self.push(options, refspecs)?;
        if !pushed.is_answered() && !pushed.said.contains(NOT_ATOMIC) {
            let found = format!("'{}' did not say what became of a push: {}", self.remote, pushed.said);
            self.wrong("remote-answer", found, "run it again; if it stays so, see what its hooks do");
            return Err(Enough);
        }
        Ok(pushed)
    }

    /// Everything, one after the other.
    fn try_all(&mut self, name: &str, commits: &Commits) -> std::result::Result<(), Enough> {
        self.reach()?;
        self.create(name, commits)?;
        self.compare(name, commits)?;
        self.keep_together(name, commits)?;
        self.delete(name)
    }

    fn reach(&mut self) -> std::result::Result<(), Enough> {
        let (remote, started) = (self.remote, Instant::now());
        let tasks = match self.host.list(&[&format!("{}tasks/*", self.prefix)]) {
            Ok(tasks) => tasks.len(),
            Err(said) => {
                let remedy = format!("make `git ls-remote {remote}` work here first: network, URL, credentials");
                self.wrong("remote-reach", format!("the authority '{remote}' cannot be reached: {said}"), remedy);
                return Err(Enough);
            }
        };
        let took = started.elapsed().as_millis();
        let all = self.host.list(&[]).map_err(|_| Enough)?;
        let (refs, listed) = (counted(all.len(), "ref"), counted(tasks, "task"));
        self.note(
            "remote-reach",
            format!("'{remote}' can be reached: it has {refs}, {listed} among them; listing the tasks took {took} ms"),
        );
        if all.len() > MANY_REFS {
            let found = format!("'{remote}' advertises {refs}, and every push reads all of them");
            self.findings.push(Finding::note("remote-size", found).with("keep the ledger in a repository of its own"));
        }
        let scratch = format!("{}{SCRATCH}", self.prefix);
        let old: Vec<String> = all.into_iter().map(|row| row.0).filter(|name| name.starts_with(&scratch)).collect();
        if !old.is_empty() {
            let found = format!("scratch refs of another probe are at '{remote}': {}", some_of(&old));
            let remedy = "nothing, if a probe runs elsewhere now; else they are harmless, and whoever runs the host may remove them";
            self.findings.push(Finding::note("remote-scratch", found).with(remedy));
        }
        Ok(())
    }

    fn create(&mut self, name: &str, commits: &Commits) -> std::result::Result<(), Enough> {
        let (remote, prefix, absent) = (self.remote, self.prefix, [format!("--force-with-lease={name}:")]);
        self.left.push(name.to_owned());
        let pushed = self.push(&absent, &[format!("{}:{name}", commits.first)])?;
        if !pushed.took_in(name) {
            self.why_not_created(commits, &pushed.said)?;
            return Err(Enough);
        }
        let took = pushed.took.as_millis();
        match self.host.list(&[name]) {
            Ok(rows) if rows.iter().any(|row| row.1 == commits.first) => {
                self.note(
                    "remote-create",
                    format!("'{remote}' takes refs below {prefix} and shows them; a push took {took} ms"),
                );
            }
            _ => {
                let found = format!(
                    "'{remote}' takes refs below {prefix} but does not show them: no other machine would see a task"
                );
                self.wrong("remote-create", found, "transfer.hideRefs or uploadpack.hideRefs there must not hide them");
            }
        }
        let again = self.ask(&absent, &[format!("{}:{name}", commits.other)])?;
        self.refused(
            again.took_in(name),
            "remote-create-twice",
            "create a ref that exists already",
            "two machines cannot both plan one slug",
        );
        Ok(())
    }

    /// What kind of no it was.
    fn why_not_created(&mut self, commits: &Commits, said: &str) -> std::result::Result<(), Enough> {
        let (remote, prefix) = (self.remote, self.prefix);
        let branch = format!("refs/heads/pm-{SCRATCH}{}", self.left[0].rsplit('/').next().unwrap_or_default());
        let pushed = self.push(&[format!("--force-with-lease={branch}:")], &[format!("{}:{branch}", commits.first)])?;
        if pushed.took_in(&branch) {
            self.left.push(branch);
            let found = format!(
                "'{remote}' takes branches, and refuses {prefix}: a ledger cannot be shared through it so ({said})"
            );
            self.wrong(
                "remote-create",
                found,
                "on every machine `git config pm.refPrefix refs/heads/pm/` puts the ledger among the branches; else let it have a host that takes any ref: a bare repository that all can reach is enough",
            );
        } else {
            let found = format!("'{remote}' takes nothing from you, neither below {prefix} nor a branch: {said}");
            self.wrong("remote-create", found, "ask for the right to push there, or see what its hooks want");
        }
        Ok(())
    }

    /// That updates are compared with what was expected.
    fn compare(&mut self, name: &str, commits: &Commits) -> std::result::Result<(), Enough> {
        let Commits { first, second, other } = commits;
        let stale = self.ask(&[format!("--force-with-lease={name}:{other}")], &[format!("{second}:{name}")])?;
        self.refused(
            stale.took_in(name),
            "remote-stale",
            "update a ref that is not where it was expected",
            "of two machines that claim one task, one wins",
        );
        let right = self.ask(&[format!("--force-with-lease={name}:{first}")], &[format!("{second}:{name}")])?;
        if !right.took_in(name) {
            let found = format!("'{}' refuses an update that is right: {}", self.remote, right.said);
            self.wrong("remote-update", found, "see what its hooks and its protection of refs want");
            return Err(Enough);
        }
        let back = self.ask(&[], &[format!("{first}:{name}")])?;
        self.refused(
            back.took_in(name),
            "remote-rewind-plain",
            "move a ref back without force",
            "a plain push cannot undo records",
        );
        Ok(())
    }

    /// Says whether what must be refused was.
    fn refused(&mut self, was_taken: bool, check: &'static str, what: &str, so: &str) {
        let remote = self.remote;
        if was_taken {
            let found = format!("'{remote}' let a push {what}: records can be lost there");
            self.wrong(check, found, "let the ledger have another host; this one does not compare what it moves");
        } else {
            self.note(check, format!("'{remote}' does not let a push {what}: {so}"));
        }
    }

    /// That a push of several refs is all or nothing, and whether refs can be moved back.
    fn keep_together(&mut self, name: &str, commits: &Commits) -> std::result::Result<(), Enough> {
        let Commits { first, other, .. } = commits;
        let (remote, second_name) = (self.remote, format!("{name}-2"));
        self.left.push(second_name.clone());
        let leases = [
            "--atomic".to_owned(),
            format!("--force-with-lease={name}:{first}"),
            format!("--force-with-lease={second_name}:"),
        ];
        let both = self.ask(&leases, &[format!("{other}:{name}"), format!("{first}:{second_name}")])?;
        let is_atomic = !both.said.contains(NOT_ATOMIC);
        if !is_atomic {
            let found = format!(
                "'{remote}' does not take several refs at once: a branch and its task cannot be delivered together"
            );
            self.wrong("remote-atomic", found, "receive.advertiseAtomic must not be false there");
        } else if both.took_in(name) || both.took_in(&second_name) {
            let found =
                format!("'{remote}' took a part of an --atomic push that was stale: a zombie's branch could land");
            self.wrong("remote-atomic", found, "let the ledger have another host");
            return Ok(());
        }
        let options: &[String] = if is_atomic { &leases[..1] } else { &[] };
        let mut refspecs = vec![format!("+{first}:{name}")];
        if is_atomic {
            refspecs.push(format!("{first}:{second_name}"));
        }
        let forced = self.ask(options, &refspecs)?;
        let is_rewound = forced.took_in(name);
        if is_atomic && is_rewound != forced.took_in(&second_name) {
            let found = format!(
                "'{remote}' took one ref of an --atomic push and refused the other: a zombie's branch could land"
            );
            self.wrong("remote-atomic", found, "let the ledger have another host");
        } else if is_atomic {
            self.note(
                "remote-atomic",
                format!("'{remote}' takes several refs all or not at all: a branch and its task arrive together"),
            );
        }
        if is_rewound {
            let found = format!(
                "'{remote}' lets a forced push move a scratch ref back: unless a hook of pm's judges tasks there, whoever can push can undo acknowledged records (pm never forces)"
            );
            let remedy = "on a host of your own `pm hook install` in that repository; elsewhere, protect refs/pm/ if the host can (git's receive.denyNonFastForwards is for branches alone)";
            self.findings.push(Finding::note("remote-rewind", found).with(remedy));
        } else {
            self.note(
                "remote-rewind",
                format!("'{remote}' does not let even a forced push move a ref back: nobody can undo records"),
            );
        }
        Ok(())
    }

    fn delete(&mut self, name: &str) -> std::result::Result<(), Enough> {
        let pushed = self.push(&[], &[format!(":{name}")])?;
        if pushed.took_in(name) {
            self.left.retain(|left| left != name);
            self.note(
                "remote-delete",
                format!("'{}' lets a push delete refs, as moving closed tasks into an archive does", self.remote),
            );
        }
        Ok(())
    }

    /// Removes what is left, whatever happened, and names what cannot be removed.
    fn clear(&mut self) {
        let patterns: Vec<&str> = self.left.iter().map(String::as_str).collect();
        if patterns.is_empty() {
            return;
        }
        let rows = match self.host.list(&patterns) {
            Ok(rows) => rows,
            Err(said) => {
                let found = format!(
                    "'{}' could not be reached any more ({said}). These scratch refs may be left there: {}",
                    self.remote,
                    some_of(&self.left)
                );
                self.wrong("remote-delete", found, "whoever runs the host may remove them; they are harmless");
                return;
            }
        };
        let refspecs: Vec<String> = rows.iter().map(|(name, _)| format!(":{name}")).collect();
        if refspecs.is_empty() {
            return;
        }
        let said = self.host.push(&[], &refspecs).said;
        let left: Vec<String> = self.host.list(&patterns).unwrap_or(rows).into_iter().map(|row| row.0).collect();
        if !left.is_empty() {
            let found = format!(
                "'{}' does not let a push delete refs ({said}). These scratch refs stay there: {}",
                self.remote,
                some_of(&left)
            );
            self.wrong("remote-delete", found, "whoever runs the host may remove them; they are harmless. Closed tasks cannot be archived on such a host");
        }
    }
}
