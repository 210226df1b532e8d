//! One worker of `random-kills`, as a process of its own: it pulls, heartbeats, reports and finishes, plans more when
//! nothing is left, and kills some of the pm processes that it starts.
//!
//! What must never happen here: a record is logged as acknowledged before pm exited with 0.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::support::{Repo, random_below, text};

/// A pm that is to be killed is so within this time, which most of them need less than.
const KILL_WITHIN_US: u64 = 12_000;
/// A step that is refused for the moment, or killed, is tried again so often.
const TRIES: usize = 200;

/// Part of random-kills: one worker
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long)]
    repo: PathBuf,
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    agent: String,
    /// Of a hundred pm processes, how many are killed
    #[arg(long, default_value_t = 0)]
    kill_percent: u64,
    /// Plan more when nothing is left
    #[arg(long)]
    refill: bool,
}

/// How a pm process ended.
enum End {
    Done(Value),
    Killed,
    Code(i32),
}

struct Worker {
    repo: Repo,
    log: File,
    agent: String,
    kill_percent: u64,
    planned: usize,
}

impl Args {
    pub fn run(&self) -> Result<()> {
        let log = OpenOptions::new().append(true).open(&self.log)?;
        let stop = self.log.with_file_name("stop");
        let repo = Repo { dir: self.repo.clone() };
        let mut worker = Worker { repo, log, agent: self.agent.clone(), kill_percent: self.kill_percent, planned: 0 };
        while !stop.exists() {
            match worker.pm(&["pull"])? {
                End::Done(Value::Null) if self.refill => worker.plan()?,
                End::Done(Value::Null) => std::thread::sleep(Duration::from_millis(20)),
                End::Done(pulled) => {
                    let slug = text(&pulled, "/task/attributes/slug")?.to_owned();
                    worker.acknowledged(text(&pulled, "/claim/sha")?, &slug)?;
                    worker.work(&slug, text(&pulled, "/claim/sha")?)?;
                }
                // The claim may have been recorded all the same.
                End::Killed => worker.resume()?,
                End::Code(8 | 21) => {}
                End::Code(code) => bail!("pull: exit {code}"),
            }
        }
        Ok(())
    }
}

impl Worker {
    /// Finds the claims that this worker holds without knowing it, and goes on with them.
    fn resume(&mut self) -> Result<()> {
        for _ in 0..TRIES {
            let End::Done(owned) = self.pm(&["owned"])? else { continue };
            for task in owned["tasks"].as_array().context("tasks")? {
                self.work(text(task, "/slug")?, text(task, "/state/claim")?)?;
            }
            return Ok(());
        }
        bail!("owned never succeeded")
    }

    /// Keeps a claim alive for a while, then reports and finishes.
    fn work(&mut self, slug: &str, claim: &str) -> Result<()> {
        let named = ["--task", slug, "--claim", claim];
        for _ in 0..random_below(4) {
            if !self.step(slug, &[&["heartbeat"], &named[..]].concat())? {
                return Ok(());
            }
        }
        let report = [&["report"], &named[..], &["--title", "did it", "--text", "all of it"]].concat();
        let _closed_or_lost = self.step(slug, &report)? && self.step(slug, &[&["finished"], &named[..]].concat())?;
        Ok(())
    }

    /// Runs a command until it is acknowledged (true) or refused for good.
    fn step(&mut self, slug: &str, args: &[&str]) -> Result<bool> {
        for _ in 0..TRIES {
            match self.pm(args)? {
                End::Done(record) => {
                    self.acknowledged(text(&record, "/sha")?, slug)?;
                    return Ok(true);
                }
                End::Killed | End::Code(8 | 21) => {}
                // The lease is lost, or the task is closed: by the command that was killed before, for all we know.
                End::Code(6 | 12) => return Ok(false),
                End::Code(code) => bail!("{args:?}: exit {code}"),
            }
        }
        bail!("{args:?} never succeeded")
    }

    /// Plans one task, or a few at once.
    fn plan(&mut self) -> Result<()> {
        self.planned += 1;
        let slug = format!("{}-{}", self.agent, self.planned);
        if random_below(3) > 0 {
            let planned = ["plan", "--slug", &slug, "--title", "a task"];
            for _ in 0..TRIES {
                match self.pm(&planned)? {
                    End::Done(planned) => return self.acknowledged(text(&planned, "/status/sha")?, &slug),
                    End::Killed | End::Code(21) => {}
                    // Recorded by one that was killed.
                    End::Code(4) => return Ok(()),
                    End::Code(code) => bail!("plan: exit {code}"),
                }
            }
            bail!("plan never succeeded");
        }
        let input = self.repo.dir.join(format!("{slug}.jsonl"));
        let line = |n: usize| format!("{{\"slug\":\"{slug}-{n}\",\"title\":\"one of three\"}}\n");
        std::fs::write(&input, (0..3).map(line).collect::<String>())?;
        let input = input.to_string_lossy().into_owned();
        for _ in 0..TRIES {
            match self.pm(&["bulk-plan", "--input", &input])? {
                End::Done(planned) => {
                    for task in planned["tasks"].as_array().context("tasks")? {
                        self.acknowledged(text(task, "/task")?, text(task, "/slug")?)?;
                    }
                    return Ok(());
                }
                End::Killed | End::Code(8 | 21) => {}
                End::Code(code) => bail!("bulk-plan: exit {code}"),
            }
        }
        bail!("bulk-plan never succeeded")
    }

    fn acknowledged(&mut self, record: &str, slug: &str) -> Result<()> {
        // One write, so that a kill leaves a whole line or a part that no newline ends.
        Ok(self.log.write_all(format!("ack {record} {slug}\n").as_bytes())?)
    }

    /// Runs pm, and now and then kills it.
    fn pm(&mut self, args: &[&str]) -> Result<End> {
        let mut command = self.repo.pm_command(args);
        command.args(["--json", "--agent", &self.agent]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn()?;
        if random_below(100) < self.kill_percent {
            std::thread::sleep(Duration::from_micros(random_below(KILL_WITHIN_US)));
            child.kill()?;
        }
        let output = child.wait_with_output()?;
        if output.status.signal().is_some() {
            writeln!(self.log, "killed {}", args[0])?;
            return Ok(End::Killed);
        }
        let code = output.status.code().unwrap_or(-1);
        self.log.write_all(format!("end {} {code} {}\n", args[0], started.elapsed().as_millis()).as_bytes())?;
        if code == 0 {
            return Ok(End::Done(serde_json::from_slice(&output.stdout)?));
        }
        if ![4, 6, 8, 12, 21].contains(&code) {
            bail!("{args:?}: exit {code}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(End::Code(code))
    }
}
