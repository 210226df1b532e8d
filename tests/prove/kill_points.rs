//! SIGKILL before every file syscall of every writing command, by strace's fault injection.
//!
//! Long, since it holds the table of commands, points and what may be found after each.
//!
//! Each point starts from an identical copy of one repository. Afterwards the ledger is as it was before or as the
//! command would have left it, never between; git finds nothing wrong; the same command and one after it work at
//! once; and no lock is left.

mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::cases::{CASES, Case};
use crate::Verdict;
use crate::support::{Repo, STUCK, isolated, pm, run_within, say};

/// Every syscall that can touch a file. Reads are among them: a kill there shows that nothing was changed before.
const SYSCALLS: [&str; 33] = [
    "access",
    "close",
    "copy_file_range",
    "fallocate",
    "fcntl",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "getdents64",
    "link",
    "linkat",
    "lseek",
    "mkdir",
    "mkdirat",
    "newfstatat",
    "open",
    "openat",
    "pread64",
    "pwrite64",
    "read",
    "readlink",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "statx",
    "unlink",
    "unlinkat",
    "write",
    "writev",
    "sync_file_range",
    "utimensat",
];
/// Those after which a file may differ.
const WRITES: [&str; 19] = [
    "close",
    "copy_file_range",
    "fdatasync",
    "flock",
    "fsync",
    "ftruncate",
    "link",
    "linkat",
    "mkdir",
    "mkdirat",
    "pwrite64",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "unlink",
    "unlinkat",
    "write",
    "writev",
];
/// More calls of one kind than any of these commands makes.
const CALLS_MAX: usize = 2000;
/// A syscall that is not made every time (a directory for an object may be there already) is waited for so often.
const REPEATS: usize = 8;

/// SIGKILL at every file syscall of every writing command: the state is the old or the new one
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only these commands
    #[arg(long = "command", value_name = "NAME")]
    commands: Vec<String>,
    /// Only syscalls that write
    #[arg(long)]
    writes_only: bool,
}

/// What all points counted.
#[derive(Default)]
struct Totals {
    points: usize,
    old: usize,
    new: usize,
    longest: Duration,
    config_locks: usize,
}

impl Args {
    pub fn quick() -> Args {
        Args { commands: vec!["executing".to_owned(), "heartbeat".to_owned()], writes_only: true }
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        if run_within(Command::new("strace").arg("-V"), STUCK).is_err() {
            return Ok(Verdict::Skipped("there is no strace".to_owned()));
        }
        let seed = seed(&scratch.join("seed"))?;
        let mut totals = Totals::default();
        let mut told = Vec::new();
        for case in &CASES {
            if !self.commands.is_empty() && !self.commands.iter().any(|name| name == case.name) {
                continue;
            }
            let before = totals.points;
            self.case(case, &seed, scratch, &mut totals).with_context(|| case.name.to_owned())?;
            told.push(format!("{} {}", case.name, totals.points - before));
            say(&format!("kill-points: {} killed at {} points", case.name, totals.points - before));
        }
        Ok(Verdict::Held(format!(
            "{} points ({}), {} left the old state and {} the new one, none another; git fsck --strict and pm verify clean; \
             the next two commands took at most {} ms; no lock left{}",
            totals.points,
            told.join(", "),
            totals.old,
            totals.new,
            totals.longest.as_millis(),
            match totals.config_locks {
                0 => String::new(),
                n => format!(", but {n} times git's own config.lock, of a killed `git config`"),
            }
        )))
    }

    fn case(&self, case: &Case, seed: &Repo, scratch: &Path, totals: &mut Totals) -> Result<()> {
        let counts = count_syscalls(case, seed, scratch)?;
        let wanted = if self.writes_only { &WRITES[..] } else { &SYSCALLS[..] };
        for (syscall, count) in counts.iter().filter(|(syscall, _)| wanted.contains(&syscall.as_str())) {
            let mut survived = 0;
            for nth in 1..=CALLS_MAX {
                let dir = scratch.join("point");
                let killed = loop {
                    let repo = copy(seed, &dir, case)?;
                    let killed = kill_at(case, &repo, syscall, nth)?;
                    let judged = judge(case, &repo, seed, killed, totals);
                    judged.with_context(|| format!("killed at {syscall} number {nth}"))?;
                    fs::remove_dir_all(&dir)?;
                    // Past the last one, unless it is one of those that are not made every time.
                    if killed || nth > *count || survived >= REPEATS {
                        break killed;
                    }
                    survived += 1;
                };
                if !killed {
                    break;
                }
                totals.points += 1;
            }
        }
        Ok(())
    }
}

/// The repository that every point starts from.
fn seed(dir: &Path) -> Result<Repo> {
    let repo = Repo::init(dir)?;
    fs::write(dir.join("attached.txt"), "found it\n")?;
    let line = |slug: &str| format!("{{\"slug\":\"{slug}\",\"title\":\"A task\"}}\n");
    fs::write(dir.join("batch.jsonl"), ["one", "two", "three"].map(line).concat())?;
    for slug in ["free", "held"] {
        repo.pm_json(["plan", "--slug", slug, "--title", "A task", "--agent", "w1"])?;
    }
    repo.git(["pack-refs", "--all"])?;
    repo.pm_json(["executing", "--task", "held", "--agent", "w1"])?;
    repo.pm_json(["heartbeat", "--task", "held", "--agent", "w1"])?;
    repo.pm_json(["report", "--task", "held", "--agent", "w1", "--title", "some"])?;
    for slug in ["one", "two"] {
        repo.pm_json(["plan", "--queue", "stale", "--slug", slug, "--title", "A task", "--agent", "w1"])?;
        repo.pm_json(["executing", "--queue", "stale", "--task", slug, "--agent", "w2", "--ttl", "1ms"])?;
    }
    for (slug, parent) in [("root", None), ("child", Some("root")), ("grandchild", Some("child"))] {
        let parent = parent.map(|parent| ["--parent", parent]).into_iter().flatten();
        let args = ["plan", "--queue", "tree", "--slug", slug, "--title", "A task", "--agent", "w1"];
        repo.pm_json(args.into_iter().chain(parent))?;
    }
    for slug in ["root", "child"] {
        repo.pm_json(["executing", "--queue", "tree", "--task", slug, "--agent", "w1"])?;
    }
    for (slug, depends_on) in [("one", None), ("two", Some("one"))] {
        let depends_on = depends_on.map(|on| ["--depends-on", on]).into_iter().flatten();
        let args = ["plan", "--queue", "closed", "--slug", slug, "--title", "A task", "--agent", "w1"];
        repo.pm_json(args.into_iter().chain(depends_on))?;
        repo.pm_json(["executing", "--queue", "closed", "--task", slug, "--agent", "w1"])?;
        repo.pm_json(["report", "--queue", "closed", "--task", slug, "--agent", "w1", "--title", "some"])?;
        repo.pm_json(["finished", "--queue", "closed", "--task", slug, "--agent", "w1"])?;
    }
    Ok(repo)
}

fn copy(seed: &Repo, dir: &Path, case: &Case) -> Result<Repo> {
    let repo = seed.copy_to(dir)?;
    if case.name == "first-write" {
        repo.git(["config", "--unset", "core.fsync"])?;
    }
    Ok(repo)
}

fn strace(case: &Case, repo: &Repo, options: &[&str]) -> Command {
    let mut strace = isolated("strace");
    strace.args(options).arg(pm()).args(case.args).args(["--agent", "w1", "--quiet"]).current_dir(&repo.dir);
    strace
}

/// How often the undisturbed command makes each syscall.
fn count_syscalls(case: &Case, seed: &Repo, scratch: &Path) -> Result<BTreeMap<String, usize>> {
    let dir = scratch.join("count");
    let repo = copy(seed, &dir, case)?;
    let log = scratch.join("syscalls");
    let log_option = log.to_string_lossy();
    run_within(&mut strace(case, &repo, &["-f", "-qq", "-o", &log_option]), STUCK)?.ok()?;
    let mut counts = BTreeMap::new();
    for line in fs::read_to_string(&log)?.lines() {
        // `1234  openat(AT_FDCWD, ...`
        let call = line.split_once(' ').map_or(line, |(_, call)| call.trim_start());
        if let Some((name, _)) = call.split_once('(') {
            *counts.entry(name.to_owned()).or_default() += 1;
        }
    }
    fs::remove_dir_all(&dir)?;
    Ok(counts)
}

/// Runs the command, killed as it enters its `nth` such syscall, which is then not carried out. Whether it was.
fn kill_at(case: &Case, repo: &Repo, syscall: &str, nth: usize) -> Result<bool> {
    let trace = format!("trace={syscall}");
    let inject = format!("inject={syscall}:signal=SIGKILL:when={nth}");
    let options = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let done = run_within(&mut strace(case, repo, &options), STUCK)?;
    match (done.status.signal(), done.status.code()) {
        // strace ends as its child did.
        (Some(9), _) => Ok(true),
        (_, Some(0)) => Ok(false),
        _ => bail!("{}: {}", done.status, done.stderr),
    }
}

/// Checks the ledger after the kill, and goes on working with it.
fn judge(case: &Case, repo: &Repo, seed: &Repo, killed: bool, totals: &mut Totals) -> Result<()> {
    let refs: Vec<String> = case.refs.iter().map(|place| format!("refs/pm/tasks/{place}")).collect();
    let before = seed.tips()?;
    let after = repo.tips()?;
    for (name, tip) in &before {
        let found = after.get(name).with_context(|| format!("{name} is gone"))?;
        ensure!(found == tip || refs.contains(name), "{name} moved");
    }
    let known: BTreeSet<&String> = before.keys().chain(&refs).collect();
    ensure!(after.keys().all(|name| known.contains(name)), "an unknown ref: {after:?}");
    let mut moved = Vec::new();
    for (name, grows) in refs.iter().zip(case.grows) {
        let growth = growth(repo, before.get(name), after.get(name))?;
        ensure!(growth == 0 || growth == *grows, "{name} grew by {growth} records");
        moved.push(growth > 0);
    }
    let (any, all) = (moved.contains(&true), !moved.contains(&false));
    ensure!(!case.all_or_none || any == all, "only a part is recorded: {moved:?}");
    ensure!(killed || all, "acknowledged, and not recorded");
    *(if any { &mut totals.new } else { &mut totals.old }) += usize::from(killed);
    let faults = repo.fsck()?;
    ensure!(faults.is_empty(), "git fsck: {faults:?}");

    // The same command again, as a worker would that does not know what became of the first one.
    let mut command = isolated(pm());
    let again = run_within(command.args(case.args).args(["--agent", "w1"]).current_dir(&repo.dir), STUCK)?;
    let expected = if all { case.again } else { 0 };
    ensure!(again.code() == expected, "again: exit {}: {}", again.code(), again.stderr);
    let mut took = again.took;
    if !case.next.is_empty() {
        let next = repo.pm(case.next.iter().chain(&["--agent", "w1"]))?;
        ensure!(next.code() == 0, "next: exit {}: {}", next.code(), next.stderr);
        took += next.took;
    }
    totals.longest = totals.longest.max(took);

    // Nothing is recorded twice, but for what is meant to be.
    let last = repo.tips()?;
    let repeats = all && case.repeats;
    for (index, (name, grows)) in refs.iter().zip(case.grows).enumerate() {
        let grown = growth(repo, before.get(name), last.get(name))?;
        let next = usize::from(index == 0 && !case.next.is_empty());
        let expected = grows * (1 + usize::from(repeats)) + next;
        ensure!(grown == expected, "{name} grew by {grown} records in all, not by {expected}");
    }
    repo.check_clean()?;
    let (config, left): (Vec<_>, Vec<_>) =
        repo.lock_files()?.into_iter().partition(|path| path.ends_with(".git/config.lock"));
    ensure!(left.is_empty(), "locks are left: {left:?}");
    totals.config_locks += config.len();
    ensure!(config.is_empty() || case.name == "first-write", "git's configuration is locked");
    Ok(())
}

/// How many records lie between two tips; the older one must be an ancestor of the newer.
fn growth(repo: &Repo, old: Option<&String>, new: Option<&String>) -> Result<usize> {
    let Some(new) = new else { return Ok(0) };
    if let Some(old) = old {
        repo.git(["merge-base", "--is-ancestor", old, new])?;
    }
    let range = old.map_or_else(|| new.clone(), |old| format!("{old}..{new}"));
    Ok(repo.git(["rev-list", "--count", &range])?.trim().parse()?)
}
