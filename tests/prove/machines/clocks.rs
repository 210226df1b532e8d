//! Clocks that lie: one machine is ten years ahead, one ten years behind, and one jumps between the two with every
//! command. All of them sweep.
//!
//! What must never happen: a claim is taken away less than its lease after its newest record, or for a silence in which
//! nobody could be heard. Whoever is silent is
//! robbed within the lease, two periods of the sweep and one more sweep. (Judged by the monotonic clock, which is the
//! same for all of them, and which no command here is lied to about.)

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::history::{History, claims};
use super::partitions::Stop;
use super::scene::{Fleet, Way};
use super::told::Told;
use crate::servers::Behaviour;
use crate::support::{isolated, pm};
use crate::work::now_ms;

/// What shifts the wall clock of a command.
const FAKETIME: &str = "faketime";
const AHEAD: &str = "+3650d";
const BEHIND: &str = "-3650d";
/// At least so far apart are the dates of records that were written under such clocks.
const APART_SECONDS: i64 = 19 * 365 * 24 * 3600;
/// The lease of all claims.
const TTL_MS: u64 = 3_000;
const TTL: &str = "3s";
/// From the start of one sweep, or heartbeat, to that of the next: a little less than a third of the lease.
const EVERY: Duration = Duration::from_millis(900);
/// How long a round may take until all who are silent are robbed.
const ROBBED_WITHIN: Duration = Duration::from_secs(60);

/// One sweep: who, and when it began and ended.
struct Sweep {
    agent: String,
    started_ms: u64,
    ended_ms: u64,
}

/// Runs so many rounds: on each machine, one worker that keeps its claim alive, and one that falls silent.
pub fn prove(dir: &Path, rounds: usize) -> Result<String> {
    if isolated(FAKETIME).arg("--version").output().is_err() {
        ensure!(std::env::var_os("CI").is_none(), "CI must have {FAKETIME}");
        return Ok(format!("clocks: skipped: needs {FAKETIME}"));
    }
    fs::create_dir(dir)?;
    let line = |n: usize| format!("{{\"slug\":\"task-{n}\",\"title\":\"One of some\"}}\n");
    let plan: String = (0..rounds * 6 + 1).map(line).collect();
    let fleet = Fleet::new(dir, Way::Daemon, 3, &plan, &[("pm.durability", "process"), ("pm.ttl", TTL)])?;
    let held = (0..rounds).try_for_each(|round| one(&fleet, round).with_context(|| format!("round {round}")));
    let figures = held.and_then(|()| {
        outage(&fleet, &format!("task-{}", rounds * 6)).context("an outage")?;
        fleet.settle()?;
        fleet.check()
    });
    let Ok(history) = &figures else {
        fleet.keep_hub(dir);
        return figures.map(|_| String::new());
    };
    let (early, robbed) = margins(history)?;
    let dates = fleet.at_hub().git(["log", "--glob=refs/pm/tasks/*", "--format=%at"])?;
    let dates: Vec<i64> = dates.lines().map(str::parse).collect::<Result<_, _>>()?;
    let apart = dates.iter().max().zip(dates.iter().min()).map_or(0, |(most, least)| most - least);
    ensure!(apart > APART_SECONDS, "the clocks were only {apart} s apart");
    Ok(format!(
        "{rounds} rounds on clocks 10 years ahead, 10 years behind, and jumping: no claim was taken away before its lease \
         was over (the soonest {early} ms after its newest record, lease {TTL_MS} ms), {} that were silent were, at most \
         {} ms after theirs",
        robbed.len(),
        robbed.iter().max().copied().unwrap_or(0)
    ))
}

/// A command of a machine under its clock.
fn under_its_clock(fleet: &Fleet, number: usize, agent: &str, slug: &str, args: &[&str], at: usize) -> Result<Told> {
    let offset = match number {
        0 => AHEAD,
        1 => BEHIND,
        _ if at.is_multiple_of(2) => AHEAD,
        _ => BEHIND,
    };
    let mut command: Command = isolated(FAKETIME);
    command.args(["--exclude-monotonic", "-f", offset]).arg(pm()).arg("-C").arg(&fleet.machines[number].repo.dir);
    command.args(args).args(["--json", "--agent", agent]);
    Told::by(command, number, agent, slug, args.iter().map(|&arg| arg.to_owned()).collect())
}

fn one(fleet: &Fleet, round: usize) -> Result<()> {
    let (stop, sweeps) = (Stop::default(), Mutex::new(Vec::new()));
    let slug = |which: usize| format!("task-{}", round * 6 + which);
    for number in 0..3 {
        for which in [number, number + 3] {
            let (agent, slug) = (format!("w{which}"), slug(which));
            let claimed = under_its_clock(fleet, number, &agent, &slug, &["executing", "--task", &slug], which)?;
            ensure!(claimed.code == 0, "{}", claimed.shown());
        }
    }
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for number in 0..3 {
            let (stop, sweeps) = (&stop, &sweeps);
            threads.push(scope.spawn(move || keep_alive(fleet, number, &slug(number), stop)));
            // In every other round one machine sweeps alone, so that nobody makes up for it.
            if round.is_multiple_of(2) || number == round / 2 % 3 {
                threads.push(scope.spawn(move || sweep(fleet, number, stop, sweeps)));
            }
        }
        let silent: Vec<String> = (3..6).map(slug).collect();
        let robbed = crate::support::poll_until("all who are silent are robbed", ROBBED_WITHIN, || {
            let history = History::read(&fleet.at_hub())?;
            let is_robbed = |slug: &String| history.chains[slug].last().is_some_and(|last| last.is_sweepers);
            // The hub has more to do than to be read.
            stop.wait(Duration::from_millis(100));
            Ok(silent.iter().all(is_robbed) || threads.iter().any(std::thread::ScopedJoinHandle::is_finished))
        });
        stop.set();
        let ends: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        ends.into_iter().try_for_each(|end| end.ok().context("a thread")?)?;
        robbed
    })?;
    let sweeps = sweeps.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let history = History::read(&fleet.at_hub())?;
    (3..6).map(slug).try_for_each(|slug| in_time(&history, &slug, &sweeps).with_context(|| slug))
}

/// Nobody reaches the hub for longer than the lease: neither who keeps a claim alive, nor who sweeps. When the network is
/// whole again, the sweep comes first, and must not count what nobody could have heard.
fn outage(fleet: &Fleet, slug: &str) -> Result<()> {
    let step = |number: usize, agent: &str, args: &[&str]| -> Result<()> {
        let told = under_its_clock(fleet, number, agent, slug, args, 0)?;
        ensure!(told.code == 0, "{}", told.shown());
        Ok(())
    };
    step(0, "w0", &["executing", "--task", slug])?;
    step(1, "sweeper-1", &["sweep"])?;
    step(0, "w0", &["heartbeat", "--task", slug])?;
    step(1, "sweeper-1", &["sweep"])?;
    fleet.machines.iter().for_each(|machine| machine.proxy.set(Behaviour::Cut));
    Stop::default().wait(Duration::from_millis(TTL_MS * 3 / 2));
    fleet.machines.iter().for_each(|machine| machine.proxy.set(Behaviour::Pass));
    step(1, "sweeper-1", &["sweep"])?;
    step(0, "w0", &["heartbeat", "--task", slug])
}

/// Sends heartbeats until the round is over, then closes the task, which it must still hold.
fn keep_alive(fleet: &Fleet, number: usize, slug: &str, stop: &Stop) -> Result<()> {
    let agent = format!("w{number}");
    let mut at = 0;
    let mut step = |args: &[&str]| {
        at += 1;
        under_its_clock(fleet, number, &agent, slug, &[args, &["--task", slug]].concat(), at)
    };
    while !stop.is_set() {
        let started = Instant::now();
        let told = step(&["heartbeat"])?;
        ensure!(matches!(told.code, 0 | 8), "{}", told.shown());
        stop.wait(EVERY.saturating_sub(started.elapsed()));
    }
    for args in [&["report", "--title", "kept alive"][..], &["finished"]] {
        let told = step(args)?;
        ensure!(told.code == 0, "{}", told.shown());
    }
    Ok(())
}

fn sweep(fleet: &Fleet, number: usize, stop: &Stop, sweeps: &Mutex<Vec<Sweep>>) -> Result<()> {
    let agent = format!("sweeper-{number}");
    for at in 0.. {
        let (started, started_ms) = (Instant::now(), now_ms());
        let told = under_its_clock(fleet, number, &agent, "", &["sweep"], at)?;
        ensure!(told.code == 0, "{}", told.shown());
        let swept = Sweep { agent: agent.clone(), started_ms, ended_ms: now_ms() };
        sweeps.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(swept);
        if stop.is_set() {
            break;
        }
        stop.wait(EVERY.saturating_sub(started.elapsed()));
    }
    Ok(())
}

/// Checks that a claim which was left alone was taken away in time, by the sweeps of who did it: a lease, two of their
/// periods and one sweep after its newest record. Where this machine was too slow for a third of the lease, each reading
/// counts as one third: five periods.
fn in_time(history: &History, slug: &str, sweeps: &[Sweep]) -> Result<()> {
    let chain = history.chains.get(slug).context("a chain")?;
    let claims = claims(chain)?;
    let [claim] = &claims[..] else { anyhow::bail!("one claim") };
    let end = claim.end.context("an end")?;
    let silent_ms = end.clock_ms - claim.last.clock_ms;
    let mut theirs: Vec<&Sweep> =
        sweeps.iter().filter(|sweep| sweep.agent == end.agent && sweep.ended_ms >= claim.last.clock_ms).collect();
    theirs.retain(|sweep| sweep.started_ms <= end.clock_ms);
    let begin = theirs.iter().map(|sweep| sweep.started_ms).collect::<Vec<_>>();
    let first = begin.first().context("no sweep")?.saturating_sub(claim.last.clock_ms);
    let period = begin.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0).max(first);
    let longest = theirs.iter().map(|sweep| sweep.ended_ms - sweep.started_ms).max().unwrap_or(0);
    let periods_ms = if period <= TTL_MS / 3 { TTL_MS + 2 * period } else { 5 * period };
    let bound = periods_ms + longest;
    ensure!(
        silent_ms <= bound,
        "silent for {silent_ms} ms, with sweeps every {period} ms that took up to {longest} ms"
    );
    Ok(())
}

/// The shortest silence after which a claim was taken away, and the silences of all that were.
fn margins(history: &History) -> Result<(u64, Vec<u64>)> {
    let mut silences = Vec::new();
    for (slug, chain) in &history.chains {
        for claim in claims(chain)? {
            let Some(end) = claim.end else { continue };
            if end.is_sweepers {
                let silent_ms = end.clock_ms.saturating_sub(claim.last.clock_ms);
                ensure!(silent_ms > TTL_MS, "{slug}: taken away {silent_ms} ms after its newest record");
                silences.push(silent_ms);
            }
        }
    }
    Ok((silences.iter().min().copied().unwrap_or(0), silences))
}
