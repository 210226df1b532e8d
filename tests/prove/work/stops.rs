//! Runners are stopped for longer than their lease, alone or with all that they started; another takes the task; then
//! they wake up, and must find out that they are nobody.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::chain::{self, Claim};
use super::runner::{Runner, Sweeper};
use super::{GONE, Line, SWEEPER, Scene, TTL_MS, now_ms, process};
use crate::support::{STUCK, poll_until, random_below, say};

/// A command that does not end for the asking, with one child in its group and one in a session of its own.
const COMMAND: &str = "
    trap '' TERM
    sleep 60 &
    setsid sleep 60 &
    note ready
    while :; do sleep 60; done";
/// What it starts: the keeper, the shell, two children, and the sleep that it waits for.
const PROCESSES: usize = 5;
/// What the other runner's command does: it is at work when the first runner wakes up.
const OTHER: &str = "note other; sleep 1; note end";

/// What one round has shown.
struct Round {
    /// By how much the command was gone before its lease was over, where only the runner was stopped.
    spare_ms: Option<u64>,
    /// How long after the awakening nothing was left, where everything was stopped.
    gone: Option<Duration>,
}

pub fn prove(scene: &Scene, stops: usize) -> Result<String> {
    let _whatever_happens = process::NoneLeft(scene);
    let mut rounds = Vec::new();
    for number in 0..stops {
        let round = one(scene, number).with_context(|| format!("stop {number}"))?;
        rounds.push(round);
        if rounds.len() % 10 == 0 {
            say(&format!("work: {} stops so far", rounds.len()));
        }
    }
    process::wait_until_gone(scene, None, GONE)?;
    let tasks = chain::all(&scene.repo, &[SWEEPER])?;
    ensure!(tasks.len() == stops, "{} tasks for {stops} stops", tasks.len());
    for (task, claims) in &tasks {
        chain::done_once(claims).with_context(|| format!("task {task}"))?;
        let agents: Vec<_> = claims.iter().map(|claim| &claim.agent[..5]).collect();
        ensure!(agents == ["first", "other"], "task {task} was claimed by {agents:?}");
    }
    let alone: Vec<_> = rounds.iter().filter_map(|round| round.spare_ms).collect();
    let whole: Vec<_> = rounds.iter().filter_map(|round| round.gone).collect();
    Ok(format!(
        "{stops} stops: {} of the runner alone, its command gone at least {} ms before the lease was over; {} of all its \
         processes, gone at most {} ms after they woke up; the task was done by another, and the sleeper recorded nothing",
        alone.len(),
        alone.iter().min().copied().unwrap_or_default(),
        whole.len(),
        whole.iter().max().copied().unwrap_or_default().as_millis()
    ))
}

/// One runner that is stopped, robbed and woken up.
fn one(scene: &Scene, number: usize) -> Result<Round> {
    let stops_all = number % 2 == 1;
    scene.plan(&format!("stop-{number}"), 1)?;
    let script = |command: &str| format!("{}{command}", Line::NOTE);
    let mut first = Runner::start(scene, &format!("first-{number}"), &["--max-tasks", "1"], &script(COMMAND))?;
    let Line { claim, task, .. } = line_of_running(scene, &first)?;
    // At any moment between two heartbeats.
    std::thread::sleep(Duration::from_millis(random_below(TTL_MS / 3)));
    stop(scene, &first)?;
    let stopped = if stops_all { process::of_claim(scene, &claim)? } else { Vec::new() };
    for process in &stopped {
        process.signal(Signal::STOP);
    }

    let sweeper = Sweeper::start(scene)?;
    let name = format!("refs/pm/tasks/default/stop-{number}-0");
    let mut gone_ms = None;
    let mut robbed = Vec::new();
    poll_until("the sweeper takes the claim away", STUCK, || {
        if gone_ms.is_none() && process::of_claim(scene, &claim)?.is_empty() {
            gone_ms = Some(now_ms());
        }
        robbed = chain::claims(&scene.repo.records(&name)?, &[SWEEPER])?;
        Ok(robbed.iter().any(|claim| claim.was_taken_by(SWEEPER)))
    })?;
    let spare_ms = match stops_all {
        true => None,
        false => Some(spare_ms(gone_ms, robbed.first().context("a claim")?)?),
    };

    let mut other = Runner::start(scene, &format!("other-{number}"), &["--until-empty"], &script(OTHER))?;
    let is_at_work = || Ok(scene.journal()?.iter().any(|line| line.what == "other" && line.task == task));
    poll_until("the other runner works on it", STUCK, is_at_work)?;
    // What woke up earlier finds the others asleep: so all orders are tried.
    let runner_is_first = random_below(2) == 0;
    if runner_is_first {
        first.signal(Signal::CONT)?;
    }
    for process in &stopped {
        process.signal(Signal::CONT);
    }
    first.signal(Signal::CONT)?;
    let gone = process::wait_until_gone(scene, Some(&claim), GONE)?;
    first.wait_for(12)?;
    ensure!(first.claims("lost")? == [claim.as_str()], "the sleeper did not tell that it lost {claim}");
    other.wait_for(0)?;
    sweeper.stop()?;
    Ok(Round { spare_ms, gone: stops_all.then_some(gone) })
}

/// What the runner's command wrote, once all its processes are there.
fn line_of_running(scene: &Scene, runner: &Runner) -> Result<Line> {
    let mut found = None;
    poll_until("the command runs", STUCK, || {
        let Some(claim) = runner.claims("started")?.pop() else { return Ok(false) };
        found = scene.journal()?.into_iter().find(|line| line.claim == claim);
        Ok(found.is_some() && process::of_claim(scene, &claim)?.len() == PROCESSES)
    })?;
    found.context("a line")
}

/// Stops a runner, but not in the middle of a record: whoever sleeps with the lock of a task in hand keeps everybody
/// from that task, also the sweeper, and then nobody else can be at work on it.
fn stop(scene: &Scene, runner: &Runner) -> Result<()> {
    let pid = runner.child.id().to_string();
    poll_until("a runner without a lock", STUCK, || {
        runner.signal(Signal::STOP)?;
        let is_stopped = || Ok(fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") T "));
        poll_until("the runner sleeps", STUCK, is_stopped)?;
        let holds = holds_lock(scene, &pid)?;
        if holds {
            runner.signal(Signal::CONT)?;
        }
        Ok(!holds)
    })
}

/// Whether a process holds a lock of tasks, by the system's word: of each it names the process and the file's inode.
fn holds_lock(scene: &Scene, pid: &str) -> Result<bool> {
    let inode = |entry: std::io::Result<fs::DirEntry>| Ok(format!(":{}", entry?.metadata()?.ino()));
    let inodes = fs::read_dir(scene.repo.git_dir().join("pm/locks"))?.map(inode).collect::<Result<Vec<_>>>()?;
    let is_held = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_his = words.get(4) == Some(&pid);
        is_his && words.get(5).is_some_and(|file| inodes.iter().any(|inode| file.ends_with(inode)))
    };
    Ok(fs::read_to_string("/proc/locks").unwrap_or_default().lines().any(is_held))
}

/// By how much a command was gone before its lease was over, which is a TTL after the last record of its holder.
fn spare_ms(gone_ms: Option<u64>, claim: &Claim) -> Result<u64> {
    let over_ms = claim.renewed_ms + TTL_MS;
    let gone_ms = gone_ms.context("the command was still there when its claim was taken away")?;
    over_ms.checked_sub(gone_ms).with_context(|| format!("gone at {gone_ms}, when the lease was over since {over_ms}"))
}
