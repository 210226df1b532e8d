//! An operator takes claims away while their commands run: these are ended, and nothing is recorded for them any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use super::runner::{Runner, Sweeper};
use super::{GONE, Line, SWEEPER, Scene, TTL_MS, chain, now_ms, process};
use crate::support::{STUCK, poll_until, random_below, say};

/// Agents, and so claims, at a time.
const AGENTS: usize = 8;
const OPERATOR: &str = "operator";
/// How long after the loss the last process of a command must be gone: the next heartbeat tells, a third of the TTL
/// later, and a sixth of it is the grace.
const LIMIT: Duration = Duration::from_millis(TTL_MS + 500);
/// And on average: half of the time between two heartbeats, the grace, and much room.
const NOTICED: Duration = Duration::from_millis(TTL_MS / 2);

/// What a task's command does, by the last digit of its claim, which is random. Half of them ignore SIGTERM, and half
/// have started others, one of them in a session of its own.
const COMMAND: &str = "
    case $PM_CLAIM in
    *[0-3]) note ready; exec sleep 30 ;;
    *[4-7]) trap '' TERM; note ready; while :; do sleep 30; done ;;
    *[89ab]) sleep 30 & setsid sleep 30 & note ready; wait ;;
    *) trap '' TERM; (sleep 30; :) & setsid sh -c 'sleep 30; :' & note ready; while :; do sleep 30; done ;;
    esac";

/// A claim that was taken away.
struct Taken {
    claim: String,
    at: Instant,
    /// When nothing of it was left.
    gone: Option<Duration>,
}

pub fn prove(scene: &Scene, losses: usize) -> Result<String> {
    let _whatever_happens = process::NoneLeft(scene);
    // A task that was lost is left alone by its runner for a while, so there are others to take.
    scene.plan("long", losses + AGENTS)?;
    // Where the machine is so slow that a lease lapses, somebody has to bring that task back.
    let sweeper = Sweeper::start(scene)?;
    let script = format!("{}{COMMAND}", Line::NOTE);
    let agents = AGENTS.to_string();
    let mut runner =
        Runner::start(scene, "runner", &["--forever", "--agents", &agents, "--on-stop", "release"], &script)?;
    let mut taken: Vec<Taken> = Vec::new();
    while taken.len() < losses {
        runner.check_runs()?;
        let mut round = take_away(scene, &taken, (losses - taken.len()).min(AGENTS))?;
        watch(scene, &mut round)?;
        taken.append(&mut round);
        if taken.len().is_multiple_of(80) {
            say(&format!("work: {} claims taken away so far", taken.len()));
        }
    }
    let told = || Ok(runner.claims("lost")?.len() >= losses);
    poll_until("the runner tells what it lost", GONE, told)?;
    runner.signal(Signal::TERM)?;
    runner.wait_for(12)?;
    let left = process::all(scene)?;
    ensure!(left.is_empty(), "the runner has ended, and left {left:?}");

    // Everything can be taken again, and done.
    let mut last = Runner::start(scene, "last", &["--until-empty", "--agents", "2"], "exit 0")?;
    last.wait_for(0)?;
    sweeper.stop()?;
    judge(scene, &taken, &runner, &last)
}

/// Takes so many claims away, from commands that have started all that they start.
fn take_away(scene: &Scene, before: &[Taken], wanted: usize) -> Result<Vec<Taken>> {
    let mut ready = BTreeMap::new();
    poll_until("the commands run", STUCK, || {
        let earlier: BTreeSet<_> = before.iter().map(|taken| taken.claim.as_str()).collect();
        ready = scene.journal()?.into_iter().map(|line| (line.claim, line.task)).collect();
        ready.retain(|claim, _| !earlier.contains(claim.as_str()));
        Ok(ready.len() >= wanted)
    })?;
    // At any moment between two heartbeats.
    std::thread::sleep(Duration::from_millis(random_below(TTL_MS / 3)));
    let mut taken = Vec::new();
    for (claim, task) in ready.into_iter().take(wanted) {
        let mut code = 8;
        // A heartbeat may win the race; then it is tried again.
        poll_until("the operator takes the task", STUCK, || {
            let done = scene.repo.pm(["reclaim", "--task", &task, "--agent", OPERATOR])?;
            code = done.code();
            ensure!(matches!(code, 0 | 6 | 8), "pm reclaim of {claim}: {}", done.stderr);
            Ok(code != 8)
        })?;
        // With 6 it had lapsed, and the sweeper was faster.
        if code == 0 {
            taken.push(Taken { claim, at: Instant::now(), gone: None });
        }
    }
    Ok(taken)
}

/// Watches the processes of these claims until none is left.
fn watch(scene: &Scene, round: &mut [Taken]) -> Result<()> {
    while round.iter().any(|taken| taken.gone.is_none()) {
        let all = process::all(scene)?;
        let alive: BTreeSet<_> = all.iter().filter_map(|process| process.claim.as_deref()).collect();
        for taken in round.iter_mut().filter(|taken| taken.gone.is_none()) {
            let took = taken.at.elapsed();
            if !alive.contains(taken.claim.as_str()) {
                taken.gone = Some(took);
            }
            ensure!(took < LIMIT, "{} was taken away {took:?} ago, and its command runs", taken.claim);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Holds the chains against what was taken away and what the runner told of it.
fn judge(scene: &Scene, taken: &[Taken], runner: &Runner, last: &Runner) -> Result<String> {
    let tasks = chain::all(&scene.repo, &[OPERATOR, SWEEPER])?;
    let mut in_chains = BTreeSet::new();
    let mut longest_quiet_ms = 0;
    for (task, claims) in &tasks {
        let closing = chain::done_once(claims).with_context(|| format!("task {task}"))?;
        ensure!(closing.agent.starts_with(&last.name), "not done by the last runner: {closing:?}");
        for claim in claims.iter().filter(|claim| claim.was_taken_by(OPERATOR)) {
            in_chains.insert(claim.sha.as_str());
            let at_ms = claim.end.as_ref().map_or_else(now_ms, |end| end.at_ms);
            longest_quiet_ms = longest_quiet_ms.max(at_ms.saturating_sub(claim.renewed_ms));
        }
    }
    let told: Vec<String> = runner.claims("lost")?;
    let lost: BTreeSet<_> = told.iter().map(String::as_str).collect();
    let by_us: BTreeSet<_> = taken.iter().map(|taken| taken.claim.as_str()).collect();
    ensure!(lost.len() == told.len(), "told as lost more than once");
    ensure!(by_us == in_chains, "taken away by us and by git's word: {:?}", by_us.symmetric_difference(&in_chains));
    // It may lose one more where the machine is so slow that no heartbeat got in: that is no fault, and not ours.
    ensure!(by_us.is_subset(&lost), "never told as lost: {:?}", by_us.difference(&lost));
    let lapsed = lost.len() - by_us.len();
    ensure!(lapsed * 20 <= by_us.len(), "{lapsed} leases lapsed, though nobody took them");
    let longest = taken.iter().filter_map(|taken| taken.gone).max().unwrap_or_default();
    let total: Duration = taken.iter().filter_map(|taken| taken.gone).sum();
    let mean = total / u32::try_from(taken.len().max(1))?;
    // Otherwise it is only the keeper that ends them, when the renewals stay away.
    ensure!(mean < NOTICED, "the last process was gone {mean:?} later on average: no heartbeat told of the loss");
    Ok(format!(
        "{} claims taken away, told as lost, and not recorded for again, {} tasks done once by others; the last process was gone {} ms \
         later on average, {} ms at most ({LIMIT:?} is the bound; up to {longest_quiet_ms} ms since the last heartbeat); \
         {lapsed} others lapsed; the runner ended with 12 and left none",
        taken.len(),
        tasks.len(),
        mean.as_millis(),
        longest.as_millis()
    ))
}
