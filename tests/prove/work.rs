//! The runner, `pm work`: what it holds is worked on by one command at a time, whatever is killed, taken away or stopped.
//!
//! Kills: runners, keepers and commands are killed at random, and every task is still done once. Losses: an operator
//! takes claims away, and their commands are ended. Stops: runners sleep longer than their lease, alone or with all
//! that they started, and wake up as nobody.
//!
//! What must never happen: two commands at work on one task at a time; a record under a claim that was taken away; a
//! process that outlives its claim, but where runner and keeper are killed together, which these proofs do not do.
//! Judged is what plain git reads, what the processes told, and which processes the system says are there.

mod chain;
mod kills;
mod losses;
mod process;
mod runner;
mod stops;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::Verdict;
use crate::support::{Repo, say};

/// The lease of all claims: the shortest that the runner asks for, so that much is lost.
const TTL: &str = "1s";
const TTL_MS: u64 = 1_000;
/// Who takes stale claims away.
const SWEEPER: &str = "sweeper";
/// How long processes may take to be gone after they have to be. A machine with more to do than it can is slow.
const GONE: Duration = Duration::from_secs(2);

/// Runners, keepers and commands killed, robbed and stopped: one command a task at a time, and every task done once
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Kills of runners, keepers and commands; with 0, as of the others, none of this is proved
    #[arg(long, default_value_t = 200)]
    kills: usize,
    /// Claims that are taken away while their command runs
    #[arg(long, default_value_t = 200)]
    losses: usize,
    /// Runners that are stopped for longer than their lease; every second one with all that it started
    #[arg(long, default_value_t = 20)]
    stops: usize,
}

impl Args {
    pub fn quick() -> Args {
        Args { kills: 8, losses: 8, stops: 2 }
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        if !Path::new("/proc/self/environ").exists() {
            return Ok(Verdict::Skipped("no /proc, so what is left of a command cannot be seen".to_owned()));
        }
        let mut figures = Vec::new();
        for (part, times) in [("kills", self.kills), ("losses", self.losses), ("stops", self.stops)] {
            if times == 0 {
                continue;
            }
            let scene = Scene::new(&scratch.join(part))?;
            let told = match part {
                "kills" => kills::prove(&scene, times)?,
                "losses" => losses::prove(&scene, times)?,
                _ => stops::prove(&scene, times)?,
            };
            scene.repo.check_clean()?;
            say(&format!("work: {told}"));
            figures.push(told);
        }
        Ok(Verdict::Held(figures.join("; ")))
    }
}

/// Where one part of the proof plays.
struct Scene {
    repo: Repo,
    /// What the commands write: a line each time, whole.
    journal: std::path::PathBuf,
    /// The value of [`process::MARK`] in the environment of all that is started here.
    mark: String,
}

impl Scene {
    fn new(dir: &Path) -> Result<Scene> {
        fs::create_dir(dir)?;
        let journal = dir.join("journal");
        fs::write(&journal, "")?;
        let mark = format!("{}-{}", std::process::id(), dir.display());
        Ok(Scene { repo: Repo::init(&dir.join("repo"))?, journal, mark })
    }

    /// Plans tasks `<prefix>-<number>`.
    fn plan(&self, prefix: &str, tasks: usize) -> Result<()> {
        let line = |n: usize| format!("{{\"slug\":\"{prefix}-{n}\",\"title\":\"One of many\"}}\n");
        let plan = self.repo.dir.join("plan.jsonl");
        fs::write(&plan, (0..tasks).map(line).collect::<String>())?;
        self.repo.pm(["bulk-plan", "--quiet", "--input", &plan.display().to_string()])?.ok()?;
        Ok(())
    }

    /// How many tasks are new, and how many are being worked on.
    fn open(&self) -> Result<(u64, u64)> {
        let status = self.repo.pm_json(["status"])?;
        let count = |phase: &str| status["queues"]["default"][phase].as_u64().unwrap_or(0);
        Ok((count("new"), count("working")))
    }

    /// What the commands wrote so far.
    fn journal(&self) -> Result<Vec<Line>> {
        fs::read_to_string(&self.journal)?.lines().map(Line::parse).collect()
    }
}

/// A line that a command wrote, in the order in which they were written.
#[derive(Debug)]
struct Line {
    what: String,
    task: String,
    claim: String,
}

impl Line {
    /// The part of a script that writes such lines.
    const NOTE: &str = "note() { echo \"$1 $PM_TASK $PM_CLAIM $$\" >>\"$JOURNAL\"; }\n";

    fn parse(line: &str) -> Result<Line> {
        let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
        ensure!(words.len() == 4 && words[2].len() == 40, "not a whole line of a journal: {line:?}");
        Ok(Line { what: words[0].clone(), task: words[1].clone(), claim: words[2].clone() })
    }
}

/// The clock that records carry, in milliseconds.
pub fn now_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}
