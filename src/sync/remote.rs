//! The remote of a ledger: listing, fetching and pushing tasks, by the `git` program.
//!
//! What must never happen here: a push without the value that it expects at the other side; an answer that was lost
//! counts as a no.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::report::{self, Verdict};
use super::run::Watcher;
use crate::error::{Error, Result};
use crate::git_program::network::{Bounds, Courier, Couriers, Ended, without_password};
use crate::id::{Oid, RefName};

/// Where the ledger is at the remote unless `pm.refPrefix` says otherwise.
pub const PREFIX: &str = "refs/pm/";

/// So many tasks are asked for by name; more, by a pattern. (A hundred refspecs take a server of 100,000 refs half a
/// minute, a pattern two seconds.)
pub(super) const NAMED_MAX: usize = 64;

/// So many tips are fetched at once. git's walk over commits of which none leads to another takes the square of their
/// number, on both sides: 63,681 tasks take a minute and more at once, and ten seconds in parts.
const TIPS_MAX: usize = 4_096;

/// So many creations in one push name what they expect.
const LEASES_MAX: usize = 500;

/// How much of what git complained of is shown.
const COMPLAINT_LINES: usize = 6;

/// One ref to move at the remote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The task's ref.
    pub name: RefName,
    /// Where it must be; `None`: it must not exist.
    pub expected: Option<Oid>,
    /// Where it is to be: a descendant.
    pub new: Oid,
}

/// A branch that goes along with a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its full name at the remote.
    pub branch: String,
    /// The commit; the branch only moves forwards to it.
    pub commit: Oid,
}

/// How a push ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pushed {
    /// The other side answered for every ref, or its answer was lost: then [`Verdict::Unknown`] stands for it.
    Answered {
        /// What became of each task, by its ref here.
        tasks: BTreeMap<RefName, Verdict>,
        /// What became of the branch.
        branch: Option<Verdict>,
        /// What the other side said, for people.
        said: String,
    },
    /// Nothing was sent.
    NotSent {
        /// What git complained of.
        why: String,
    },
}

/// A remote that holds the ledger.
pub struct Remote {
    /// Its name in the configuration.
    pub name: String,
    prefix: String,
    couriers: Couriers,
    pub(super) configured: Duration,
    pub(super) time: Cell<Duration>,
    pub(super) deadline: Cell<Option<Instant>>,
}

/// What is known of a remote before anybody talks to it.
pub struct Address {
    /// Its name in the configuration.
    pub name: String,
    /// Where the ledger is there: ends in `/`.
    pub prefix: String,
    /// How long an errand for single tasks may take.
    pub time: Duration,
}

impl Remote {
    /// A remote; nothing is asked of it yet.
    pub fn new(address: Address, couriers: Couriers) -> Remote {
        let Address { name, prefix, time } = address;
        Remote { name, prefix, couriers, configured: time, time: Cell::new(time), deadline: Cell::new(None) }
    }

    /// A task's ref as the remote calls it.
    fn there(&self, name: &RefName) -> String {
        format!("{}{}", self.prefix, name.as_str().strip_prefix(PREFIX).unwrap_or(name.as_str()))
    }

    /// The ref that the remote calls `there`.
    fn here(&self, there: &str) -> Option<RefName> {
        Some(RefName::from_full(format!("{PREFIX}{}", there.strip_prefix(&self.prefix)?)))
    }

    /// What the remote has below prefixes that end in `/`, by our names; does something else while it answers.
    ///
    /// # Errors
    /// `Unreachable`.
    pub fn list(
        &self,
        prefixes: &[String],
        stop: &dyn Fn() -> bool,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<BTreeMap<RefName, Oid>> {
        let patterns = prefixes.iter().map(|prefix| self.there(&RefName::from_full(format!("{prefix}*"))));
        self.list_patterns(patterns, self.whole(stop), meanwhile)
    }

    /// Where these tasks are at the remote. A task that is not there is missing in the answer.
    ///
    /// # Errors
    /// `Unreachable`.
    pub fn list_names(&self, names: &[RefName], stop: &dyn Fn() -> bool) -> Result<BTreeMap<RefName, Oid>> {
        let found = self.list_patterns(names.iter().map(|name| self.there(name)), self.single(stop), &mut || {})?;
        Ok(found.into_iter().filter(|(name, _)| names.contains(name)).collect())
    }

    fn list_patterns(
        &self,
        patterns: impl Iterator<Item = String>,
        bounds: Bounds<'_>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<BTreeMap<RefName, Oid>> {
        let courier = self.couriers.send(&[])?;
        let args =
            words(&["ls-remote", "--quiet", "--refs", &self.name]).into_iter().chain(patterns).collect::<Vec<_>>();
        let ended = courier.run_while(&args, bounds, meanwhile)?;
        if ended.code != Some(0) {
            return Err(self.unreachable(&ended));
        }
        let row = |line: &str| {
            let (id, name) = line.split_once('\t')?;
            Some((self.here(name)?, id.parse().ok()?))
        };
        Ok(ended.stdout.lines().filter_map(row).collect())
    }

    /// Fetches the objects of a few tasks, and returns where they are at the remote. `known` is what was last seen of
    /// them there, which is not sent again.
    ///
    /// # Errors
    /// `Unreachable`.
    pub fn fetch(
        &self,
        names: &[RefName],
        known: &BTreeMap<RefName, Oid>,
        stop: &dyn Fn() -> bool,
    ) -> Result<BTreeMap<RefName, Oid>> {
        let courier = self.couriers.send(&fetched(known))?;
        let ended = self.run_fetch(&courier, &self.refspecs(names), self.single(stop))?;
        if ended.code == Some(0) {
            // git rewrites no ref that is there already.
            let tip = |name: &RefName| courier.tip(at(name).as_str()).or_else(|| known.get(name).copied());
            return Ok(names.iter().filter_map(|name| Some((name.clone(), tip(name)?))).collect());
        }
        if !ended.stderr.contains("find remote ref") {
            return Err(self.unreachable(&ended));
        }
        // git fetches nothing where one of several is missing.
        let there = self.list_names(names, stop)?;
        self.fetch_objects(&there, known, &[], Watcher::silent(stop))?;
        Ok(there)
    }

    /// Fetches the objects of tasks of which the remote has just said where they are: by the ids of their tips. A remote
    /// that does not give those out, or no more, is asked for the tasks, many of them by the patterns of `prefixes`, which
    /// end in `/`; `known` must then hold all that was last seen below them.
    ///
    /// # Errors
    /// `Unreachable`.
    pub fn fetch_objects(
        &self,
        tips: &BTreeMap<RefName, Oid>,
        known: &BTreeMap<RefName, Oid>,
        prefixes: &[String],
        watcher: Watcher<'_>,
    ) -> Result<()> {
        let mut known = known.clone();
        let mut rest: Vec<_> = tips.iter().map(|(name, tip)| (name.clone(), *tip)).collect();
        while !rest.is_empty() && !(watcher.stop)() {
            (watcher.tell)("fetching", tips.len() - rest.len(), tips.len());
            let part = rest.split_off(rest.len().saturating_sub(TIPS_MAX));
            let had = part.iter().filter_map(|(name, _)| Some((at(name), *known.get(name)?))).collect::<Vec<_>>();
            let ids: String = part.iter().map(|(_, tip)| format!("{tip}\n")).collect();
            let ended = self.run_fetch(&self.couriers.send(&had)?, &ids, self.whole(watcher.stop))?;
            match ended.code {
                Some(0) => known.extend(part),
                _ if ended.was_cut_off => return Err(self.unreachable(&ended)),
                _ => {
                    rest.extend(part);
                    let names: Vec<_> = rest.into_iter().map(|(name, _)| name).collect();
                    return self.fetch_by_name(&names, &known, prefixes, watcher.stop);
                }
            }
        }
        Ok(())
    }

    fn fetch_by_name(
        &self,
        names: &[RefName],
        known: &BTreeMap<RefName, Oid>,
        prefixes: &[String],
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        let courier = self.couriers.send(&fetched(known))?;
        let refspecs = if names.len() > NAMED_MAX && !prefixes.is_empty() {
            let patterns: Vec<_> = prefixes.iter().map(|prefix| RefName::from_full(format!("{prefix}*"))).collect();
            self.refspecs(&patterns)
        } else {
            self.refspecs(names)
        };
        let ended = self.run_fetch(&courier, &refspecs, self.whole(stop))?;
        match ended.code {
            // 1: refs of the courier could not be written, which nobody needs. A missing object is found when it is read.
            Some(0 | 1) => Ok(()),
            _ => Err(self.unreachable(&ended)),
        }
    }

    fn refspecs(&self, names: &[RefName]) -> String {
        names.iter().map(|name| format!("+{}:{}\n", self.there(name), at(name))).collect()
    }

    fn run_fetch(&self, courier: &Courier, refspecs: &str, bounds: Bounds<'_>) -> Result<Ended> {
        courier.run(&self.fetch_args(), refspecs, bounds)
    }

    fn fetch_args(&self) -> Vec<String> {
        words(&[
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            // A partial clone lacks parts of the code, never of the ledger.
            "--no-filter",
            "--no-show-forced-updates",
            "--refmap=",
            "--stdin",
            &self.name,
        ])
    }

    /// Pushes tasks, each only from where it is expected. With a `delivery`, which goes with a single task, or `atomic`, all
    /// or nothing.
    ///
    /// # Errors
    /// Failures of the system here; what the remote did is in the result.
    pub fn push(
        &self,
        updates: &[Update],
        delivery: Option<&Delivery>,
        atomic: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Pushed> {
        let staged: Vec<_> = updates
            .iter()
            .map(|update| (RefName::from_full(update.name.as_str().replacen(PREFIX, "refs/out/", 1)), update.new))
            .collect();
        let courier = if delivery.is_some() { self.couriers.go()? } else { self.couriers.send(&staged)? };
        // A mirror of the code would be pushed as a whole and forced.
        let mirror = format!("remote.{}.mirror=false", self.name);
        let mut args = words(&["-c", &mirror, "push", "--porcelain", "--no-follow-tags", "--no-signed"]);
        if delivery.is_none() {
            args.push("--no-verify".to_owned());
        }
        if atomic || delivery.is_some() {
            args.push("--atomic".to_owned());
        }
        // A creation needs no lease: git moves a ref that exists to nothing but its descendants, and what is created here has
        // no other ancestors. So many leases would be more than a command line can hold.
        let leased = updates.iter().filter(|update| update.expected.is_some() || updates.len() <= LEASES_MAX);
        for update in leased {
            let expected = update.expected.map_or(String::new(), |expected| expected.to_string());
            args.push(format!("--force-with-lease={}:{expected}", self.there(&update.name)));
        }
        args.push(self.name.clone());
        match updates {
            [] => {}
            [update] => args.push(format!("{}:{}", update.new, self.there(&update.name))),
            _ => args.push(format!("refs/out/*:{}*", self.prefix)),
        }
        if let Some(delivery) = delivery {
            args.push(format!("{}:{}", delivery.commit, delivery.branch));
        }
        let bounds = if updates.len() > NAMED_MAX { self.whole(stop) } else { self.single(stop) };
        let (ended, has_sent) = courier.run_push(&args, bounds)?;
        let mut verdicts = report::parse(&ended.stdout);
        if verdicts.is_empty() && !has_sent {
            return Ok(Pushed::NotSent { why: complaint(&ended) });
        }
        let mut verdict = |name: &str| verdicts.remove(name).unwrap_or(Verdict::Unknown);
        let tasks = updates.iter().map(|update| (update.name.clone(), verdict(&self.there(&update.name)))).collect();
        let branch = delivery.map(|delivery| verdict(&delivery.branch));
        Ok(Pushed::Answered { tasks, branch, said: complaint(&ended) })
    }

    /// Removes a task that is at `expected`; the inner error is why the remote did not. Only for a chain of which no record
    /// keeps the rules.
    ///
    /// # Errors
    /// Failures of the system here.
    pub fn remove(&self, name: &RefName, expected: Oid) -> Result<std::result::Result<(), String>> {
        let courier = self.couriers.send(&[])?;
        let there = self.there(name);
        let mirror = format!("remote.{}.mirror=false", self.name);
        let mut args = words(&["-c", &mirror, "push", "--porcelain", "--no-verify"]);
        args.push(format!("--force-with-lease={there}:{expected}"));
        args.extend([self.name.clone(), format!(":{there}")]);
        let ended = courier.run(&args, "", self.single(&|| false))?;
        match report::parse(&ended.stdout).remove(&there) {
            Some(Verdict::Accepted) => Ok(Ok(())),
            _ => Ok(Err(complaint(&ended))),
        }
    }

    fn unreachable(&self, ended: &Ended) -> Error {
        Error::Unreachable { remote: self.name.clone(), why: complaint(ended) }
    }
}

/// Where a courier keeps a task that it fetches.
fn at(name: &RefName) -> RefName {
    RefName::from_full(name.as_str().replacen(PREFIX, "refs/at/", 1))
}

fn fetched(known: &BTreeMap<RefName, Oid>) -> Vec<(RefName, Oid)> {
    known.iter().map(|(name, tip)| (at(name), *tip)).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// What git complained of, in a few lines that are safe to show.
fn complaint(ended: &Ended) -> String {
    let lines = ended.stderr.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("hint:"));
    let mut said: Vec<String> = lines
        .take(COMPLAINT_LINES)
        .map(|line| line.chars().take(300).map(|c| if c.is_control() { '?' } else { c }).collect())
        .collect();
    if ended.was_cut_off {
        said.insert(0, "it did not answer in time".to_owned());
    }
    if said.is_empty() {
        said.push(format!("git ended with {}", ended.code.map_or("a signal".to_owned(), |code| code.to_string())));
    }
    without_password(&said.join("; "))
}
