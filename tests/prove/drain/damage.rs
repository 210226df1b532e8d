//! What `git gc --prune=now` beside writers breaks, whether pm names all of it, and how far git can repair it.
//!
//! What must never happen here: the ledger is listed by a command that leaves broken refs out, as `git for-each-ref`
//! does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::Logged;
use crate::support::{Repo, STUCK, isolated, run_within};

/// Figures over all rounds.
#[derive(Debug, Default)]
pub struct Totals {
    tasks: usize,
    broken: usize,
    acknowledged: usize,
    unreadable: usize,
    repaired: usize,
    lost: usize,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} tasks have unreadable records, {} of {} acknowledged records cannot be reached, each such task is \
             named by pm verify and exits 19; {} were set back to their newest readable record by hand, which gives up {} \
             acknowledged records",
            self.broken, self.tasks, self.unreadable, self.acknowledged, self.repaired, self.lost
        )
    }
}

/// Compares what git finds broken with what pm names, then repairs what can be repaired.
///
/// # Errors
/// When there is damage that pm does not name, or names where there is none, or a record is gone without damage.
pub fn judge(repo: &Repo, logged: &Logged, totals: &mut Totals) -> Result<()> {
    let tips = raw_tips(repo)?;
    let mut broken = BTreeSet::new();
    let mut reachable = BTreeSet::new();
    for (name, tip) in &tips {
        match objects(repo, tip)? {
            Some(objects) => reachable.extend(objects),
            None => drop(broken.insert(name.clone())),
        }
    }
    let verified = run_within(repo.pm_command(["verify", "--json"]).arg("--quiet"), STUCK)?;
    ensure!([0, 19].contains(&verified.code()), "pm verify: exit {}: {}", verified.code(), verified.stderr);
    let verified: Value = serde_json::from_str(&verified.stdout).context("pm verify")?;
    let faults = verified["faults"].as_array().context("faults")?;
    let named: BTreeSet<String> = faults.iter().filter_map(|fault| fault["ref"].as_str().map(str::to_owned)).collect();
    ensure!(broken == named, "git finds {broken:?} broken, pm verify names {verified}");
    for name in &broken {
        let place = name.strip_prefix("refs/pm/tasks/").unwrap_or(name);
        let shown = repo.pm(["show", "--task", place])?;
        // Only what is in an attached file is none of its business.
        let records_are_whole = run_within(&mut repo.git_command(["rev-list", &tips[name]]), STUCK)?.status.success();
        ensure!(shown.code() == 19 || records_are_whole, "show {name}: exit {}: {}", shown.code(), shown.stdout);
    }

    // What is acknowledged and not reachable must belong to a task that is named.
    let broken_tips: BTreeSet<&str> = broken.iter().map(String::as_str).collect();
    let lost: Vec<_> = logged.acknowledged.iter().filter(|(record, _)| !reachable.contains(*record)).collect();
    let repaired = repair(repo, &broken_tips)?;
    for (record, (task, _)) in &lost {
        ensure!(repaired.contains_key(task), "{record} of {task} is lost, and nothing is broken there");
    }
    let after = repo.pm(["verify", "--json"])?;
    let complete = repaired.values().all(Option::is_some);
    ensure!(!complete || after.code() == 0, "after the repair: {}", after.stdout);

    let kept: BTreeSet<String> = repaired.values().flatten().flatten().cloned().collect();
    totals.tasks += tips.len();
    totals.broken += broken.len();
    totals.acknowledged += logged.acknowledged.len();
    totals.unreadable += lost.len();
    totals.repaired += repaired.values().flatten().count();
    totals.lost += lost.iter().filter(|(record, _)| !kept.contains(*record)).count();
    Ok(())
}

/// All objects that are reachable from a commit, or nothing if one of them is missing or broken.
fn objects(repo: &Repo, commit: &str) -> Result<Option<BTreeSet<String>>> {
    let done = run_within(&mut repo.git_command(["rev-list", "--objects", commit]), STUCK)?;
    let ids = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    Ok(done.status.success().then(|| done.stdout.lines().map(ids).collect()))
}

/// Sets each broken ref back to its newest record whose whole history is readable, as an operator would with plain
/// git. Returns, by task, what is then reachable, or nothing where not even the Task record is left.
fn repair(repo: &Repo, broken: &BTreeSet<&str>) -> Result<BTreeMap<String, Option<BTreeSet<String>>>> {
    let mut repaired = BTreeMap::new();
    if broken.is_empty() {
        return Ok(repaired);
    }
    let all = repo.git(["cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"])?;
    let commits: String =
        all.lines().filter_map(|line| line.strip_prefix("commit ")).map(|id| format!("{id}\n")).collect();
    let list = repo.dir.join("commits");
    fs::write(&list, commits)?;
    let format = "--format=%H %(trailers:key=Task,valueonly,separator=%x20) %(trailers:key=Seq,valueonly,separator=%x20) \
                  %(trailers:key=Queue,valueonly,separator=%x20)/%(trailers:key=Slug,valueonly,separator=%x20)";
    let mut log = isolated("git");
    log.arg("-C").arg(&repo.dir).args(["log", "--no-walk", "--stdin", format]).stdin(fs::File::open(&list)?);
    let rows = run_within(&mut log, STUCK)?.ok()?;
    // Of each task: where it is, and its records by seq.
    let mut places: BTreeMap<String, String> = BTreeMap::new();
    let mut records: BTreeMap<String, BTreeMap<u64, String>> = BTreeMap::new();
    for row in rows.lines() {
        let words: Vec<_> = row.split(' ').collect();
        match words[..] {
            // The Task record itself has no Task trailer.
            [id, "", seq, place] => {
                places.insert(format!("refs/pm/tasks/{place}"), id.to_owned());
                records.entry(id.to_owned()).or_default().insert(seq.parse()?, id.to_owned());
            }
            [id, task, seq, _] => drop(records.entry(task.to_owned()).or_default().insert(seq.parse()?, id.to_owned())),
            _ => anyhow::bail!("a foreign commit: {row}"),
        }
    }
    for name in broken {
        let Some(task) = places.get(*name) else {
            repaired.insert((*name).to_owned(), None);
            continue;
        };
        let mut found = None;
        for record in records.get(task).into_iter().flat_map(|records| records.values().rev()) {
            if let Some(objects) = objects(repo, record)? {
                repo.git(["update-ref", name, record])?;
                found = Some(objects);
                break;
            }
        }
        repaired.insert(task.clone(), found);
    }
    Ok(repaired)
}

/// All refs of the ledger as they stand in their files, loose before packed.
fn raw_tips(repo: &Repo) -> Result<BTreeMap<String, String>> {
    let packed = fs::read_to_string(repo.git_dir().join("packed-refs")).unwrap_or_default();
    let row = |line: &str| line.split_once(' ').map(|(id, name)| (name.to_owned(), id.to_owned()));
    let mut tips: BTreeMap<_, _> = packed.lines().filter(|line| line.contains(" refs/pm/")).filter_map(row).collect();
    fn walk(dir: &Path, name: &str, tips: &mut BTreeMap<String, String>) -> Result<()> {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                walk(&entry.path(), &name, tips)?;
            } else if !name.ends_with(".lock") {
                tips.insert(name, fs::read_to_string(entry.path())?.trim().to_owned());
            }
        }
        Ok(())
    }
    let loose = repo.git_dir().join("refs/pm");
    if loose.is_dir() {
        walk(&loose, "refs/pm", &mut tips)?;
    }
    Ok(tips)
}
