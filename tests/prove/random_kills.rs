//! Workers, and single pm processes, are killed with SIGKILL at random moments, and the fleet goes on.
//!
//! After every kill, whatever that worker was told is recorded is reachable. No command is ever stuck; what dead workers
//! held is swept and worked off; and in the end nothing is wrong with the repository.

pub mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::Verdict;
use crate::support::{Repo, STUCK, isolated, pm, poll_until, random_below, say};

/// Between two sweeps.
const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// Of claims: short, so that sweeps have work, and some living worker loses its lease now and then.
const TTL: &str = "1s";
/// The bound of working off what is left.
const DRAIN: Duration = Duration::from_secs(300);

/// Workers and pm processes killed at random: nothing acknowledged is lost, nothing gets stuck
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many kills
    #[arg(long, default_value_t = 1000)]
    kills: usize,
    /// Workers at a time
    #[arg(long, default_value_t = 6)]
    workers: usize,
}

/// A running worker.
struct Worker {
    agent: String,
    log: PathBuf,
    child: Child,
}

/// What the logs say.
#[derive(Debug, Default)]
struct Logged {
    /// Records by slug.
    acknowledged: BTreeMap<String, BTreeSet<String>>,
    /// How often each command ended how: `<verb> <code>`.
    ends: BTreeMap<String, usize>,
    killed: usize,
    longest_ms: u64,
}

impl Args {
    pub fn quick() -> Args {
        Args { kills: 30, workers: 3 }
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        let repo = Repo::init(&scratch.join("repo"))?;
        let logs = scratch.join("logs");
        fs::create_dir(&logs)?;
        let mut fleet: Vec<Worker> = (0..self.workers).map(|n| start(&repo, &logs, n, true)).collect::<Result<_>>()?;
        let outcome = self.kill(&repo, &logs, &mut fleet);
        fs::write(logs.join("stop"), "")?;
        for worker in &mut fleet {
            let mut ended = || Ok(worker.child.try_wait()?.is_some());
            poll_until("the end of a worker", STUCK * 2, &mut ended).or_else(|error| {
                worker.child.kill()?;
                Err(error)
            })?;
        }
        let (workers_killed, swept) = outcome?;
        let left = work_off(&repo, &logs)?;
        let logged = Logged::read_all(&logs)?;
        let acknowledged = check_reachable(&repo, &logged)?;
        let locks = check_locks(&repo)?;
        repo.check_clean()?;
        ensure!(logged.longest_ms < STUCK.as_millis() as u64, "a command took {} ms", logged.longest_ms);
        Ok(Verdict::Held(format!(
            "{workers_killed} workers and {} single pm processes killed, {acknowledged} acknowledged records all there, {} \
             claims swept meanwhile and {left} tasks worked off afterwards, the longest command took {} ms, {locks} leftover \
             locks were pm's own and healed; git fsck --strict and pm verify clean; ends {:?}",
            logged.killed, swept, logged.longest_ms, logged.ends
        )))
    }

    /// Kills and replaces workers until there were enough kills. Returns how many workers that were, and how many
    /// claims were swept meanwhile.
    fn kill(&self, repo: &Repo, logs: &Path, fleet: &mut [Worker]) -> Result<(usize, usize)> {
        let (mut workers_killed, mut processes_killed, mut swept) = (0, 0, 0);
        let mut started = fleet.len();
        let mut last_sweep = Instant::now();
        let mut grew = (Instant::now(), 0);
        while workers_killed + processes_killed < self.kills {
            std::thread::sleep(Duration::from_micros(random_below(60_000)));
            let worker = &mut fleet[random_below(self.workers as u64) as usize];
            let pid = Pid::from_child(&worker.child);
            if let Some(status) = worker.child.try_wait()? {
                let said = fs::read_to_string(worker.log.with_extension("err"))?;
                bail!("{} ended by itself: {status}: {said}", worker.agent);
            }
            // With the pm that it runs, or without: that one then ends on its own, unheard.
            match random_below(2) {
                0 => kill_process_group(pid, Signal::KILL)?,
                _ => kill_process(pid, Signal::KILL)?,
            }
            worker.child.wait()?;
            workers_killed += 1;
            let logged = Logged::read(&worker.log)?;
            processes_killed += logged.killed;
            check_reachable(repo, &logged).with_context(|| format!("{} was killed", worker.agent))?;
            *worker = start(repo, logs, started, true)?;
            started += 1;

            if last_sweep.elapsed() > SWEEP_EVERY {
                let outcome = repo.pm_json(["sweep", "--ttl", TTL, "--agent", "sweeper"])?;
                swept += outcome["reclaimed"].as_array().map_or(0, Vec::len);
                last_sweep = Instant::now();
            }
            let bytes = total_bytes(logs)?;
            if bytes > grew.1 {
                grew = (Instant::now(), bytes);
            }
            ensure!(grew.0.elapsed() < STUCK, "nothing went on for {STUCK:?}");
            if workers_killed % 100 == 0 {
                say(&format!("random-kills: {workers_killed} workers, {processes_killed} pm processes so far"));
            }
        }
        Ok((workers_killed, swept))
    }
}

/// Starts a worker in a process group of its own.
fn start(repo: &Repo, logs: &Path, number: usize, kills: bool) -> Result<Worker> {
    let agent = format!("k{number}");
    let log = logs.join(format!("{agent}.log"));
    fs::write(&log, "")?;
    let mut command = isolated(std::env::current_exe()?);
    command.env("PROVE_PM", pm());
    command.arg("worker").arg("--repo").arg(&repo.dir).arg("--log").arg(&log).args(["--agent", &agent]);
    if kills {
        command.args(["--kill-percent", "15", "--refill"]);
    }
    let errors = fs::File::create(logs.join(format!("{agent}.err")))?;
    let child = command.stdout(Stdio::null()).stderr(errors).process_group(0).spawn()?;
    Ok(Worker { agent, log, child })
}

impl Logged {
    fn read(log: &Path) -> Result<Logged> {
        let mut logged = Logged::default();
        logged.add(log)?;
        Ok(logged)
    }

    fn read_all(logs: &Path) -> Result<Logged> {
        let mut logged = Logged::default();
        for entry in fs::read_dir(logs)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                logged.add(&path)?;
            }
        }
        Ok(logged)
    }

    fn add(&mut self, log: &Path) -> Result<()> {
        // A worker that was killed may have left half a line: nobody was told of that one.
        for line in fs::read_to_string(log)?.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["ack", record, slug] => {
                    self.acknowledged.entry(slug.to_owned()).or_default().insert(record.to_owned());
                }
                ["end", verb, code, took_ms] => {
                    *self.ends.entry(format!("{verb} {code}")).or_default() += 1;
                    self.longest_ms = self.longest_ms.max(took_ms.parse()?);
                }
                ["killed", _] => self.killed += 1,
                _ => bail!("{}: '{line}'", log.display()),
            }
        }
        Ok(())
    }
}

/// Checks that all acknowledged records are in the chains of their tasks. Returns how many they are.
fn check_reachable(repo: &Repo, logged: &Logged) -> Result<usize> {
    let mut count = 0;
    for (slug, records) in &logged.acknowledged {
        let chain = repo.git(["rev-list", "--first-parent", &format!("refs/pm/tasks/default/{slug}"), "--"])?;
        let chain: BTreeSet<_> = chain.lines().collect();
        if let Some(lost) = records.iter().find(|record| !chain.contains(record.as_str())) {
            bail!("{lost} of {slug} was acknowledged and is lost");
        }
        count += records.len();
    }
    Ok(count)
}

/// Sweeps what dead workers hold, and has one worker finish everything that is left. Returns how much that was.
fn work_off(repo: &Repo, logs: &Path) -> Result<u64> {
    fs::remove_file(logs.join("stop"))?;
    let open = || -> Result<u64> {
        let status = repo.pm_json(["status"])?;
        let count = |phase: &str| status["queues"]["default"][phase].as_u64().unwrap_or(0);
        Ok(count("new") + count("working"))
    };
    let left = open()?;
    repo.pm_json(["sweep", "--ttl", "1ms", "--force", "--agent", "sweeper"])?;
    let mut worker = start(repo, logs, 1_000_000, false)?;
    let worked_off = poll_until("working off what is left", DRAIN, || {
        ensure!(worker.child.try_wait()?.is_none(), "the last worker ended by itself");
        Ok(open()? == 0)
    });
    fs::write(logs.join("stop"), "")?;
    worker.child.wait()?;
    worked_off?;
    Ok(left)
}

/// A lock that is left must be provably a dead pm's, and not in the way of the next one. Returns how many were left.
fn check_locks(repo: &Repo) -> Result<usize> {
    let locks = repo.lock_files()?;
    let mut prepared = BTreeSet::new();
    for entry in fs::read_dir(repo.git_dir().join("pm/locks"))? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "value") {
            prepared.insert(entry.metadata()?.ino());
        }
    }
    for lock in &locks {
        ensure!(prepared.contains(&lock.metadata()?.ino()), "{} is nobody's", lock.display());
        let slug = lock.file_stem().and_then(|name| name.to_str()).context("the name of a lock")?;
        // Every task that exists was finished after all the kills; so this one was never created.
        let done = repo.pm(["plan", "--slug", slug, "--title", "at last"])?;
        ensure!(done.code() == 0, "{}: {}", lock.display(), done.stderr);
    }
    ensure!(repo.lock_files()?.is_empty(), "locks are left");
    Ok(locks.len())
}

fn total_bytes(logs: &Path) -> Result<u64> {
    fs::read_dir(logs)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}
