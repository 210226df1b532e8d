//! A fleet drains a real plan while git's own maintenance runs beside it.
//!
//! Judged from the chains as plain git reads them and from what the workers logged after each exit 0: every task is
//! done exactly once, no task was handed out twice, what was acknowledged is there, and nothing else is.
//!
//! With `--maintenance prune-now` git deletes objects that are still being referenced, as its documentation warns. What
//! is proven then is that no such damage goes unnamed, and what it takes to repair it is told.

pub mod damage;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::Verdict;
use crate::support::{Record, Repo, isolated, pm, run_within, say};

const PLAN: &str = include_str!("../../fixtures/plans/gitoxide-workspace.plan.json");
const WORKER: &str = include_str!("drain-worker.sh");
/// The pause between two runs of a maintenance command. Never none: `git pack-refs` in a tight loop loses updates of
/// git's own, since it trusts file times of whole seconds.
const PAUSE: Duration = Duration::from_millis(300);
/// The bound of a round.
const ROUND: Duration = Duration::from_secs(300);
/// A fleet that logged nothing for so long is done, or has damaged tasks before it.
const QUIET: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Maintenance {
    /// `git gc`, `git pack-refs --all` and `git repack -ad`
    Gc,
    /// `git gc --prune=now`
    PruneNow,
}

impl Maintenance {
    fn commands(self) -> &'static [&'static [&'static str]] {
        match self {
            Maintenance::Gc => &[&["gc", "--quiet"], &["pack-refs", "--all"], &["repack", "-adq"]],
            Maintenance::PruneNow => &[&["gc", "--quiet", "--prune=now"]],
        }
    }
}

/// A fleet drains a real plan beside git's maintenance: every task once, none lost, in order
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Worker processes
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// How often the plan is drained, each time in a fresh repository
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// What runs beside the fleet
    #[arg(long, value_enum, default_value_t = Maintenance::Gc)]
    maintenance: Maintenance,
}

/// What all rounds counted.
#[derive(Debug, Default)]
struct Totals {
    tasks: usize,
    finished: usize,
    records: usize,
    batches: usize,
    maintenance: BTreeMap<String, Maintained>,
    exits: BTreeMap<String, usize>,
    damage: damage::Totals,
}

impl Args {
    pub fn quick() -> [Args; 2] {
        [Maintenance::Gc, Maintenance::PruneNow].map(|maintenance| Args { workers: 4, rounds: 1, maintenance })
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        let mut totals = Totals::default();
        for round in 0..self.rounds {
            let dir = scratch.join(format!("round-{round}"));
            self.round(&dir, &mut totals).with_context(|| format!("round {round}"))?;
            fs::remove_dir_all(&dir)?;
            say(&format!("drain: {} rounds, {} records so far", round + 1, totals.records));
        }
        let Totals { tasks, finished, records, batches, maintenance, exits, damage } = totals;
        let maintenance: Vec<_> = maintenance
            .iter()
            .map(|(what, (runs, failed))| format!("{what} {runs} times (failed: {failed:?})"))
            .collect();
        let beside = format!(
            "{} workers, {} rounds, {finished} of {tasks} tasks finished, {records} records, {batches} batches planned meanwhile, beside {}; \
             exits that were not 0: {exits:?}",
            self.workers,
            self.rounds,
            maintenance.join(", ")
        );
        Ok(Verdict::Held(match self.maintenance {
            Maintenance::Gc => {
                format!("every task done once, none lost, in order, git fsck --strict clean: {beside}")
            }
            Maintenance::PruneNow => format!("all damage is named: {damage}; {beside}"),
        }))
    }

    fn round(&self, dir: &Path, totals: &mut Totals) -> Result<()> {
        fs::create_dir(dir)?;
        let (repo, log) = (Repo::init(&dir.join("repo"))?, dir.join("log"));
        fs::create_dir(&log)?;
        fs::write(log.join("notes.txt"), "what was found\n")?;
        fs::write(dir.join("plan.json"), PLAN)?;
        let plan = dir.join("plan.json");
        let planned = repo.pm_json(["bulk-plan".as_ref(), "--input".as_ref(), plan.as_os_str()])?;
        let total = planned["created"].as_u64().context("the number of planned tasks")? as usize;

        let stop = AtomicBool::new(false);
        let batches = std::thread::scope(|scope| -> Result<Batches> {
            let maintainers: Vec<_> = self
                .maintenance
                .commands()
                .iter()
                .map(|command| scope.spawn(|| maintain(&repo, command, &stop)))
                .collect();
            let planner = scope.spawn(|| plan_batches(&repo, dir, &stop));
            let drained = self.drain(&repo, &log, total);
            stop.store(true, Ordering::Relaxed);
            for (command, maintainer) in self.maintenance.commands().iter().zip(maintainers) {
                let (runs, failed) = maintainer.join().ok().context("maintenance")??;
                let entry = totals.maintenance.entry(format!("git {}", command.join(" "))).or_default();
                entry.0 += runs;
                failed.into_iter().for_each(|(why, count)| *entry.1.entry(why).or_default() += count);
            }
            let batches = planner.join().ok().context("the planner")??;
            drained?;
            Ok(batches)
        })?;

        let mut logged = Logged::read(&log)?;
        for (exit, count) in batches.1 {
            *logged.exits.entry(exit).or_default() += count;
        }
        let batches = batches.0;
        for (exit, count) in &logged.exits {
            *totals.exits.entry(exit.clone()).or_default() += count;
        }
        totals.tasks += total;
        totals.finished += logged.finished;
        totals.batches += batches.len();
        match self.maintenance {
            Maintenance::Gc => {
                totals.records += check(&repo, total, &logged)?;
                let retried = |exit: &String| exit.ends_with(" 8") || exit.ends_with(" 21");
                ensure!(logged.exits.keys().all(retried), "commands failed: {:?}", logged.exits);
                for task in batches.iter().flat_map(|batch| batch.split_whitespace()) {
                    repo.git(["cat-file", "-e", task]).context("a planned task of a batch is lost")?;
                }
                let verified = repo.check_clean()?;
                let tasks = verified["tasks"].as_u64().context("tasks")? as usize;
                ensure!(tasks == total + batches.len() * BATCH, "{tasks} tasks are there");
            }
            Maintenance::PruneNow => {
                totals.records += logged.acknowledged.len();
                damage::judge(&repo, &logged, &mut totals.damage)?;
            }
        }
        Ok(())
    }

    /// Starts the workers and waits for them.
    fn drain(&self, repo: &Repo, log: &Path, total: usize) -> Result<()> {
        let mut workers: Vec<Child> = Vec::new();
        for n in 0..self.workers {
            fs::write(log.join(format!("w{n}.log")), "")?;
        }
        for n in 0..self.workers {
            let mut worker = isolated("sh");
            worker.args(["-c", WORKER, "worker", &format!("w{n}")]);
            worker.env("PM", pm()).env("REPO", &repo.dir).env("LOG", log).env("TOTAL", total.to_string());
            workers.push(worker.stdout(Stdio::null()).spawn()?);
        }
        let started = Instant::now();
        let mut grew = (Instant::now(), 0);
        while workers.iter_mut().any(|worker| matches!(worker.try_wait(), Ok(None))) {
            let acknowledged = Logged::read(log)?.acknowledged.len();
            if acknowledged > grew.1 {
                grew = (Instant::now(), acknowledged);
            }
            if grew.0.elapsed() > QUIET || started.elapsed() > ROUND {
                fs::write(log.join("stop"), "")?;
            }
            if started.elapsed() > ROUND + QUIET {
                workers.iter_mut().try_for_each(Child::kill)?;
                bail!("the workers did not end within {ROUND:?}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// How many tasks the planner plans at once.
const BATCH: usize = 30;

/// How often a maintenance command ran, and how it failed how often: two of git's own may well get in each other's way.
type Maintained = (usize, BTreeMap<String, usize>);

/// Runs one maintenance command again and again.
fn maintain(repo: &Repo, command: &[&str], stop: &AtomicBool) -> Result<Maintained> {
    let (mut runs, mut failed) = (0, BTreeMap::new());
    while !stop.load(Ordering::Relaxed) {
        let done = run_within(&mut repo.git_command(command), ROUND)?;
        runs += 1;
        if !done.status.success() {
            // The last thing that it says, up to the first name.
            let why = done.stderr.lines().last().and_then(|line| line.split('\'').next()).unwrap_or_default();
            let words: Vec<_> = why.split_whitespace().filter(|word| word.len() < 40).collect();
            *failed.entry(format!("{}: {}", done.status, words.join(" "))).or_default() += 1;
        }
        std::thread::sleep(PAUSE);
    }
    Ok((runs, failed))
}

/// The ids of each acknowledged batch, and how the others ended.
type Batches = (Vec<String>, BTreeMap<String, usize>);

/// Plans batches in another queue meanwhile.
fn plan_batches(repo: &Repo, dir: &Path, stop: &AtomicBool) -> Result<Batches> {
    let input: PathBuf = dir.join("batch.jsonl");
    let (mut batches, mut exits) = (Vec::new(), BTreeMap::new());
    while !stop.load(Ordering::Relaxed) {
        let lines: Vec<_> =
            (0..BATCH).map(|n| format!(r#"{{"slug":"batch-{}-{n}","title":"one of many"}}"#, batches.len())).collect();
        fs::write(&input, lines.join("\n"))?;
        let args = ["bulk-plan", "--queue", "more", "--input"];
        let done = run_within(repo.pm_command(args).arg(&input), ROUND)?;
        let first_words =
            |text: &str| text.lines().filter_map(|line| line.split_whitespace().next()).collect::<Vec<_>>().join(" ");
        match done.code() {
            0 => batches.push(first_words(&done.stdout)),
            code => {
                if ![8, 21].contains(&code) {
                    say(&format!("drain: bulk-plan: exit {code}: {}", done.stderr.trim()));
                }
                *exits.entry(format!("bulk-plan {code}")).or_default() += 1;
            }
        }
        std::thread::sleep(PAUSE / 3);
    }
    Ok((batches, exits))
}

/// What the workers logged.
#[derive(Debug, Default)]
pub struct Logged {
    /// Record to task and agent.
    pub acknowledged: BTreeMap<String, (String, String)>,
    /// Tasks in the order in which they were handed out, with the claim.
    pub pulls: Vec<(String, String)>,
    /// How many tasks were finished.
    finished: usize,
    /// `<verb> <code>`, and how often.
    pub exits: BTreeMap<String, usize>,
}

impl Logged {
    pub fn read(dir: &Path) -> Result<Logged> {
        let mut logged = Logged::default();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let Some(agent) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".log")) else { continue };
            let text = fs::read_to_string(&path)?;
            // The last line may still be on its way.
            for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
                let words: Vec<_> = line.split(' ').collect();
                match words[..] {
                    ["exit", code, verb, ..] => *logged.exits.entry(format!("{verb} {code}")).or_default() += 1,
                    [verb, record, task] => {
                        let new = logged.acknowledged.insert(record.to_owned(), (task.to_owned(), agent.to_owned()));
                        ensure!(new.is_none(), "{record} was acknowledged twice");
                        match verb {
                            "pull" => logged.pulls.push((task.to_owned(), record.to_owned())),
                            "finished" => logged.finished += 1,
                            _ => {}
                        }
                    }
                    _ => bail!("{}: '{line}'", path.display()),
                }
            }
        }
        Ok(logged)
    }
}

/// Judges the chains of the plan. Returns how many records they hold.
fn check(repo: &Repo, total: usize, logged: &Logged) -> Result<usize> {
    let handed_out: BTreeSet<_> = logged.pulls.iter().map(|(task, _)| task).collect();
    ensure!(handed_out.len() == logged.pulls.len(), "a task was handed out twice: {:?}", logged.pulls);
    ensure!(handed_out.len() == total, "{} of {total} tasks were handed out", handed_out.len());

    let names: Vec<String> = repo.tips()?.into_keys().filter(|name| name.starts_with(DEFAULT)).collect();
    ensure!(names.len() == total, "{} of {total} refs are there", names.len());
    let chains: BTreeMap<String, Vec<Record>> = names
        .iter()
        .map(|name| Ok((repo.records(name)?.first().context("a chain is empty")?.sha.clone(), repo.records(name)?)))
        .collect::<Result<_>>()?;
    let at = |task: &str, status: &str| -> Result<&Record> {
        let chain = chains.get(task).with_context(|| format!("no chain of {task}"))?;
        let mut found = chain.iter().filter(|record| record.status == status);
        let record = found.next().with_context(|| format!("{task} was never {status}"))?;
        ensure!(found.next().is_none(), "{task} was {status} more than once");
        Ok(record)
    };
    let mut records = 0;
    for (task, chain) in &chains {
        records += chain.len();
        ensure!(chain.last().is_some_and(|tip| tip.status == "done"), "{task} does not end as done");
        let (claim, _) = (at(task, "working")?, at(task, "done")?);
        // After its two first records a chain is exactly what its worker was told.
        for record in &chain[2..] {
            let (for_task, by) = logged
                .acknowledged
                .get(&record.sha)
                .with_context(|| format!("{} of {task} was never acknowledged", record.sha))?;
            ensure!(for_task == task && *by == record.agent, "{} is not where {by} put it", record.sha);
        }
        for dependency in &chain[0].depends_on {
            let done = at(dependency, "done")?;
            ensure!(done.clock_ms <= claim.clock_ms, "{task} was claimed before {dependency} was done");
        }
    }
    ensure!(records - 2 * total == logged.acknowledged.len(), "acknowledged records are lost");
    Ok(records)
}

/// The queue of the plan.
pub const DEFAULT: &str = "refs/pm/tasks/default/";
