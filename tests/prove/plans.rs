//! A plan of parents, children and sticky tasks, worked off by several contexts, some of whose workers are killed.
//!
//! What must never happen here: a plan that is left unfinished; a task claimed before what it waits for; a parent closed
//! before its children; tasks that are tied together in two contexts. Judged is the ledger as plain git tells it, by
//! `coherence`, which knows nothing of pm and whose own teeth are tried out by `cargo test`.

mod crew;
mod plan;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use crew::{CONTEXTS, SWEEPER, Way, Worker};
use plan::Plan;
use rustix::process::Signal;

use crate::Verdict;
use crate::coherence::{Figures, Ledger, Task, judge};
use crate::random::Random;
use crate::support::{Repo, say};

/// How long one plan may take.
const WORKED_OFF_WITHIN: Duration = Duration::from_secs(180);
/// How often git is asked how far the work is.
const LOOK: Duration = Duration::from_millis(200);

/// A plan of families, half of it sticky, worked off by three contexts whose workers are killed: done, and coherent
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How often the plan is worked off in each way
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// Only in this way
    #[arg(long, value_enum)]
    way: Option<Way>,
    /// How many of the crates are planned
    #[arg(long, default_value_t = 71)]
    crates: usize,
    /// The seed of the first run, which is printed where one is broken; else random
    #[arg(long)]
    seed: Option<u64>,
}

/// What all runs of one way counted.
#[derive(Debug, Default)]
struct Totals {
    sums: Figures,
    /// Claims whose workers were killed.
    orphaned: usize,
    /// Parents that a runner gave back, since nobody was at work on their children and it had nothing more to do.
    given_up: usize,
    /// How commands ended that did not with 0.
    exits: BTreeMap<String, usize>,
    acknowledged: usize,
    slowest: Duration,
    took: Duration,
}

impl Args {
    pub fn quick() -> Args {
        Args { runs: 1, way: None, crates: 71, seed: None }
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        if !Path::new("/proc/self/stat").exists() {
            return Ok(Verdict::Skipped("no /proc, so it cannot be seen whether a process is stopped".to_owned()));
        }
        let first = self.seed.unwrap_or_else(|| u64::from(getrandom::u32().unwrap_or_default()));
        let mut figures = Vec::new();
        for way in [Way::Loops, Way::Runners].into_iter().filter(|way| self.way.is_none_or(|only| only == *way)) {
            let mut totals = Totals::default();
            for run in 0..self.runs {
                let seed = first + run as u64;
                let dir = scratch.join(format!("{way:?}-{run}").to_lowercase());
                fs::create_dir(&dir)?;
                let held = one(&dir, way, run, self.crates, &mut Random::new(seed), &mut totals);
                held.with_context(|| format!("{way:?}, run {run}, --seed {seed}"))?;
                fs::remove_dir_all(&dir)?;
                if (run + 1) % 5 == 0 {
                    say(&format!("plans: {way:?}: {} runs", run + 1));
                }
            }
            let told = totals.told(way, self.runs);
            say(&format!("plans: {told}"));
            figures.push(told);
        }
        Ok(Verdict::Held(figures.join("; ")))
    }
}

impl Totals {
    fn told(&self, way: Way, runs: usize) -> String {
        let Figures { tasks, records, claims, swept, sticky, groups, .. } = &self.sums;
        let mean = self.took.as_secs_f32() / runs.max(1) as f32;
        format!(
            "{way:?}: {runs} plans done and coherent: {tasks} tasks, {sticky} of them sticky, in {} groups of up to {}, in \
             {CONTEXTS} contexts; {claims} claims, {} of them left by killed workers, {swept} swept, {} parents \
             given up by runners; {records} records, {} \
             acknowledged ones all there; exits that were not 0: {:?}; {mean:.1} s a plan, at most {:.1} s",
            groups.len(),
            groups.iter().max().unwrap_or(&0),
            self.orphaned,
            self.given_up,
            self.acknowledged,
            self.exits,
            self.slowest.as_secs_f32(),
        )
    }

    fn add(&mut self, figures: Figures, took: Duration) {
        let sums = &mut self.sums;
        sums.tasks += figures.tasks;
        sums.records += figures.records;
        sums.claims += figures.claims;
        sums.swept += figures.swept;
        sums.sticky += figures.sticky;
        sums.groups.extend(figures.groups);
        self.took += took;
        self.slowest = self.slowest.max(took);
    }
}

fn one(dir: &Path, way: Way, run: usize, crates: usize, random: &mut Random, totals: &mut Totals) -> Result<()> {
    let repo = Repo::init(&dir.join("repo"))?;
    // Each fifth run as it is by default: synced to the disk.
    repo.git(["config", "pm.durability", if run % 5 == 4 { "power" } else { "process" }])?;
    let log = dir.join("log");
    fs::create_dir(&log)?;
    let plan = plan::plan(crates, random)?;
    let file = dir.join("plan.json");
    fs::write(&file, &plan.json)?;
    repo.pm_json(["bulk-plan".as_ref(), "--input".as_ref(), file.as_os_str()])?;

    let started = Instant::now();
    let stop = AtomicBool::new(false);
    let orphaned = std::thread::scope(|scope| {
        let sweeping = scope.spawn(|| crew::sweep(&repo, &stop));
        let worked = match way {
            Way::Loops => by_loops(&repo, &log, &plan, random),
            Way::Runners => by_runners(&repo, &log, &plan, random, run % 2 == 1),
        };
        stop.store(true, Ordering::SeqCst);
        sweeping.join().ok().context("the sweeper")??;
        worked
    })?;
    check(&repo, &log, &plan, &orphaned, started.elapsed(), totals)
}

/// Six shell loops. Returns the claims that the killed ones left.
fn by_loops(repo: &Repo, log: &Path, plan: &Plan, random: &mut Random) -> Result<Vec<String>> {
    let mut workers: Vec<Worker> =
        (0..2 * CONTEXTS).map(|number| Worker::start_loop(repo, log, number)).collect::<Result<_>>()?;
    let mut orphaned = Vec::new();
    let mut spared: Option<String> = None;
    for (done, holds_a_parent) in [(plan.tasks / 5, true), (plan.tasks / 2, false)] {
        done_at_least(repo, plan, done)?;
        let may_be_killed = |worker: &Worker| Some(&worker.context) != spared.as_ref();
        let (victim, claims) = kill_one(repo, &mut workers, holds_a_parent, random, may_be_killed)?;
        // Each context keeps one of its two workers.
        spared = Some(victim.context.clone());
        orphaned.extend(claims);
    }
    done_at_least(repo, plan, plan.tasks)?;
    fs::write(log.join("stop"), "")?;
    for worker in &mut workers {
        let status = worker.wait()?;
        ensure!(status.code().is_some(), "{}: {status}: {}", worker.name, worker.complaint());
    }
    Ok(orphaned)
}

/// Three runners, one of which is killed; whoever has ended is started again, as a supervisor would. Returns the claims that
/// the killed one left.
fn by_runners(repo: &Repo, log: &Path, plan: &Plan, random: &mut Random, is_for_ever: bool) -> Result<Vec<String>> {
    fs::write(log.join("jobs"), "")?;
    let start = |number: usize| Worker::start_runner(repo, log, number, is_for_ever);
    let mut workers: Vec<Worker> = (0..CONTEXTS).map(start).collect::<Result<_>>()?;
    done_at_least(repo, plan, plan.tasks / 3)?;
    let (victim, orphaned) = kill_one(repo, &mut workers, true, random, |_| true)?;
    // The context of a number is that of all numbers so far away.
    workers.push(start(victim.number + CONTEXTS)?);
    let started = Instant::now();
    loop {
        let open = open(repo)?;
        if open.is_empty() {
            break;
        }
        ensure!(started.elapsed() < WORKED_OFF_WITHIN, "not done within {WORKED_OFF_WITHIN:?}: {}", open.join(", "));
        for worker in &mut workers {
            if let Some(status) = worker.ended()? {
                ensure!(!is_for_ever, "{}: {status}: {}", worker.name, worker.complaint());
                check_end(worker, status, is_for_ever)?;
                *worker = start(worker.number + CONTEXTS)?;
            }
        }
        std::thread::sleep(LOOK);
    }
    if is_for_ever {
        workers.iter().try_for_each(|worker| worker.signal(Signal::TERM))?;
    }
    for worker in &mut workers {
        let status = worker.wait()?;
        check_end(worker, status, is_for_ever)?;
    }
    Ok(orphaned)
}

/// Fails unless a runner ended as it may: for what was to run for ever, only when it was told to.
fn check_end(worker: &Worker, status: ExitStatus, is_for_ever: bool) -> Result<()> {
    let is_fine = match status.code() {
        // 12: a lease was lost, which on a machine with more to do than it can may be.
        Some(0 | 12) => true,
        // Nobody was at work on the children of what it held, and they were not for its context: others took it over.
        Some(1) if !is_for_ever => gave_up_parents_only(&worker.told()?)?,
        _ => false,
    };
    ensure!(is_fine, "{}: {status}: {}", worker.name, worker.complaint());
    Ok(())
}

/// Whether a runner failed at nothing but waiting for children.
fn gave_up_parents_only(told: &str) -> Result<bool> {
    for line in told.lines() {
        let event: serde_json::Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let why = event["why"].as_str().unwrap_or_default();
        let is_failure = matches!(event["event"].as_str(), Some("failed" | "rejected" | "not-started"));
        if is_failure && !why.starts_with("its children are left open") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Kills one of the workers in the middle of its work, and takes it away. Returns it and the claims that it left.
fn kill_one(
    repo: &Repo,
    workers: &mut Vec<Worker>,
    holds_a_parent: bool,
    random: &mut Random,
    may_be_killed: impl Fn(&Worker) -> bool,
) -> Result<(Worker, Vec<String>)> {
    let started = Instant::now();
    while started.elapsed() < WORKED_OFF_WITHIN {
        let at = random.below(workers.len() as u64) as usize;
        if !may_be_killed(&workers[at]) {
            continue;
        }
        let claims = workers[at].kill_with_a_claim(repo, holds_a_parent)?;
        if !claims.is_empty() {
            return Ok((workers.swap_remove(at), claims));
        }
        std::thread::sleep(random.ms(1, 30));
    }
    bail!("no worker held anything")
}

/// The tasks that are not done, as git tells.
fn open(repo: &Repo) -> Result<Vec<String>> {
    let tasks = Ledger::read(&repo.dir)?.tasks.into_iter();
    let is_open = |task: &Task| task.records.last().is_none_or(|tip| tip.what() != "done");
    Ok(tasks.filter(is_open).map(|task| task.slug).collect())
}

/// Waits until so many tasks of the plan are done.
fn done_at_least(repo: &Repo, plan: &Plan, tasks: usize) -> Result<()> {
    let started = Instant::now();
    loop {
        let open = open(repo)?;
        if open.len() + tasks <= plan.tasks {
            return Ok(());
        }
        ensure!(started.elapsed() < WORKED_OFF_WITHIN, "not done within {WORKED_OFF_WITHIN:?}: {}", open.join(", "));
        std::thread::sleep(LOOK);
    }
}

/// Judges what was left behind.
fn check(repo: &Repo, log: &Path, plan: &Plan, orphaned: &[String], took: Duration, totals: &mut Totals) -> Result<()> {
    let (figures, faults) = judge(&repo.dir)?;
    ensure!(faults.is_empty(), "{}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
    ensure!(figures.tasks == plan.tasks, "{} of {} tasks are there", figures.tasks, plan.tasks);
    ensure!((1..=CONTEXTS).contains(&figures.contexts), "sticky tasks were done in {} contexts", figures.contexts);
    let ledger = Ledger::read(&repo.dir)?;
    let sticky = ledger.tasks.iter().filter(|task| task.is_sticky()).map(|task| task.slug.clone()).collect();
    ensure!(plan.sticky == sticky, "sticky are {sticky:?}, and not {:?}", plan.sticky);
    let with_parent = ledger.tasks.iter().filter(|task| task.one("Parent").is_some()).count();
    ensure!(with_parent == plan.tasks - plan.families, "{with_parent} tasks have a parent");
    for claim in orphaned {
        let mut records = ledger.tasks.iter().flat_map(|task| &task.records);
        let end = records.find(|record| record.what() == "new" && record.one("Prev-Status") == Some(claim));
        let is_swept = end.is_some_and(|end| end.author == SWEEPER && end.one("Reclaimed").is_some());
        ensure!(is_swept, "{claim} of a killed worker was not swept");
    }
    acknowledged(&ledger, log, totals)?;
    repo.check_clean()?;
    totals.orphaned += orphaned.len();
    totals.add(figures, took);
    Ok(())
}

/// Everything that the workers were told is there, and nothing failed that may not fail.
fn acknowledged(ledger: &Ledger, log: &Path, totals: &mut Totals) -> Result<()> {
    let find = |record: &str| {
        let chain = ledger.tasks.iter().find(|task| task.records.iter().any(|known| known.sha == record));
        chain.map(|task| task.id())
    };
    for entry in fs::read_dir(log)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        // What was killed may have left half a line.
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            match (path.extension().and_then(|kind| kind.to_str()), &line.split(' ').collect::<Vec<_>>()[..]) {
                (Some("log"), ["exit", code, verb, ..]) => {
                    let may_be = matches!((*verb, *code), (_, "6" | "8" | "12" | "21") | ("finished", "14"));
                    ensure!(may_be, "{}: {line}", path.display());
                    *totals.exits.entry(format!("{verb} {code}")).or_default() += 1;
                }
                (Some("log"), [_, record, task]) => {
                    ensure!(find(record) == Some(task), "acknowledged and lost: {}: {line}", path.display());
                    totals.acknowledged += 1;
                }
                (Some("out"), [_, ..]) if line.starts_with('{') => {
                    let event: serde_json::Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
                    totals.given_up += usize::from(event["event"] == "failed");
                    for record in ["claim", "report"].iter().filter_map(|key| event[key].as_str()) {
                        ensure!(find(record).is_some(), "acknowledged and lost: {}: {line}", path.display());
                        totals.acknowledged += 1;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}
