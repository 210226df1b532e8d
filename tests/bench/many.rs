//! Many tasks: a thousand of them planned, listed, counted and swept; and the plan of all Debian packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::support::{Repo, isolated, say};
use crate::{Row, print_header, timed};

const DEBIAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/plans/debian-bookworm.plan.jsonl.xz");
/// How many tasks a thousand is.
const THOUSAND: usize = 1000;

/// Unpacks the Debian plan with the `xz` program, and keeps its first `lines`: it is in dependency order.
pub fn plan_file(path: &Path, lines: usize) -> Result<PathBuf> {
    let output = Command::new("xz").args(["--decompress", "--stdout", DEBIAN]).output().context("running xz")?;
    ensure!(output.status.success(), "xz: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).context("the plan is text")?;
    fs::write(path, text.split_inclusive('\n').take(lines).collect::<String>())?;
    Ok(path.to_owned())
}

/// `pm bulk-plan` of a file.
fn bulk_plan(repo: &Repo, plan: &Path) -> Command {
    let mut command = repo.pm_command(["bulk-plan", "--quiet", "--input"]);
    command.arg(plan);
    command
}

/// Plans what is in a file.
pub fn timed_plan(repo: &Repo, plan: &Path) -> Result<Duration> {
    timed(&mut bulk_plan(repo, plan))
}

/// A thousand tasks.
pub fn thousand(dir: &Path, runs: usize, long_runs: usize) -> Result<()> {
    fs::create_dir(dir)?;
    let plan = plan_file(&dir.join("plan.jsonl"), THOUSAND)?;
    let mut batch = Row::new("pm bulk-plan of 1,000 tasks");
    for run in 0..runs {
        let repo = Repo::init(&dir.join(format!("batch-{run}")))?;
        batch.took.push(timed(&mut bulk_plan(&repo, &plan))?);
        fs::remove_dir_all(&repo.dir)?;
    }

    let planned = Repo::init(&dir.join("planned"))?;
    timed(&mut bulk_plan(&planned, &plan))?;
    let worked = worked(&dir.join("worked"))?;
    let mut rows = [
        "pm next, 1,000 bulk-planned tasks",
        "pm next, 1,000 tasks with loose chains of 5 records",
        "pm status, 1,000 bulk-planned tasks",
        "pm status, 1,000 tasks with loose chains of 5 records",
    ]
    .map(Row::new);
    for _ in 0..runs {
        let took = [
            timed(&mut planned.pm_command(["next"]))?,
            timed(&mut worked.pm_command(["next"]))?,
            timed(&mut planned.pm_command(["status"]))?,
            timed(&mut worked.pm_command(["status"]))?,
        ];
        rows.iter_mut().zip(took).for_each(|(row, took)| row.took.push(took));
    }

    let claimed = claimed(&dir.join("claimed"))?;
    let mut sweep = Row::new("pm sweep, 1,000 stale claims");
    let mut again = Row::new("pm sweep, nothing to do");
    for run in 0..long_runs {
        let repo = claimed.copy_to(&dir.join(format!("sweep-{run}")))?;
        // What the copy left to be written is not the sweep's.
        timed(&mut isolated("sync"))?;
        sweep.took.push(timed(&mut repo.pm_command(["sweep", "--quiet"]))?);
        again.took.push(timed(&mut repo.pm_command(["sweep"]))?);
        let left = repo.pm_json(["status"])?;
        ensure!(left.pointer("/queues/default/working") == Some(&0.into()), "not all were swept: {left}");
        fs::remove_dir_all(&repo.dir)?;
    }

    print_header("a thousand tasks");
    batch.print("bound 200 ms");
    rows.iter().for_each(|row| row.print("bound 20 ms"));
    sweep.print("");
    again.print("");
    Ok(())
}

/// A thousand tasks without dependencies, in a repository whose fixture is built without syncing.
fn independent(dir: &Path) -> Result<Repo> {
    let repo = Repo::init(dir)?;
    repo.git(["config", "pm.durability", "process"])?;
    let line = |n: usize| format!("{{\"slug\":\"task-{n}\",\"title\":\"One of a thousand\"}}\n");
    let plan = dir.join("plan.jsonl");
    fs::write(&plan, (0..THOUSAND).map(line).collect::<String>())?;
    timed(&mut bulk_plan(&repo, &plan))?;
    Ok(repo)
}

/// Each was claimed, kept alive and given back: its tip, its claim and its ref are loose.
fn worked(dir: &Path) -> Result<Repo> {
    let repo = independent(dir)?;
    for n in 0..THOUSAND {
        let slug = format!("task-{n}");
        for verb in ["executing", "heartbeat", "release"] {
            timed(&mut repo.pm_command([verb, "--task", &slug, "--agent", "w1"]))?;
        }
    }
    repo.git(["config", "pm.durability", "power"])?;
    Ok(repo)
}

/// Each is claimed, and stale at once.
fn claimed(dir: &Path) -> Result<Repo> {
    let repo = independent(dir)?;
    for n in 0..THOUSAND {
        let slug = format!("task-{n}");
        timed(&mut repo.pm_command(["executing", "--task", &slug, "--agent", "w1", "--ttl", "1ms"]))?;
    }
    repo.git(["config", "pm.durability", "power"])?;
    Ok(repo)
}

/// The plan of all packages.
pub fn debian(dir: &Path, runs: usize) -> Result<()> {
    fs::create_dir(dir)?;
    let plan = plan_file(&dir.join("plan.jsonl"), usize::MAX)?;
    let mut batch = Row::new("pm bulk-plan of the Debian plan");
    let mut next = Row::new("pm next on it");
    let mut status = Row::new("pm status on it");
    let mut peak_kib = 0;
    for run in 0..runs {
        let repo = Repo::init(&dir.join(format!("repo-{run}")))?;
        let (took, kib) = timed_with_peak(&mut bulk_plan(&repo, &plan))?;
        batch.took.push(took);
        peak_kib = peak_kib.max(kib);
        next.took.push(timed(&mut repo.pm_command(["next"]))?);
        status.took.push(timed(&mut repo.pm_command(["status"]))?);
        fs::remove_dir_all(&repo.dir)?;
    }
    print_header("the Debian plan (63,681 tasks)");
    batch.print(&format!("bound 5000 ms; peak memory {} MiB, bound 400 MiB", peak_kib / 1024));
    next.print("");
    status.print("");
    Ok(())
}

/// As [`timed`], with the most memory that was resident, in KiB: the kernel's own high-water mark, read until the end.
fn timed_with_peak(command: &mut Command) -> Result<(Duration, u64)> {
    let started = Instant::now();
    let mut child = command.stdout(Stdio::null()).spawn()?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let text = fs::read_to_string(&status_file).unwrap_or_default();
        let mark = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak = peak.max(mark.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    };
    let took = started.elapsed();
    ensure!(status.success(), "{status}");
    if peak == 0 {
        say("the peak memory could not be read");
    }
    Ok((took, peak))
}
