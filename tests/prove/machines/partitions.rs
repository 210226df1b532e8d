//! Machines whose network breaks: split, one way only, answers lost after the hub has committed, flapping, slow.
//!
//! When it is whole again, every command whose answer was lost is repeated, all machines synchronise, and then all
//! ledgers are the same and hold what was acknowledged, once.

mod judge;
mod worker;

use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::scene::{Fleet, PATIENCE, Way};
use super::told::Told;
use crate::random::Random;
use crate::servers::{Behaviour, Proxy};
use crate::support::{run_within, say};
use judge::Counts;
use worker::{Log, Worker};

/// The tasks of a run.
const TASKS: usize = 6;
/// How long the network is broken.
const BROKEN_FOR: Duration = Duration::from_secs(4);
/// The lease of all claims: so short that an outage can outlive it.
const TTL: &str = "900ms";
/// From one sweep to the next: a third of the lease.
const SWEEP_EVERY: Duration = Duration::from_millis(300);
/// How long the proxy waits for a push whose answer it is to lose.
const PUSHES_WITHIN: Duration = Duration::from_secs(1);
/// How many workers each machine has.
const WORKERS: usize = 2;

/// Told to everybody at once.
#[derive(Default)]
pub struct Stop {
    is_set: Mutex<bool>,
    rung: Condvar,
}

impl Stop {
    pub fn set(&self) {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.rung.notify_all();
    }

    pub fn is_set(&self) -> bool {
        *self.is_set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits so long, or until it is set.
    pub fn wait(&self, time: Duration) {
        let guard = self.is_set.lock().unwrap_or_else(PoisonError::into_inner);
        let _woken = self.rung.wait_timeout_while(guard, time, |is_set| !*is_set);
    }
}

/// Runs so many partitions, with seeds that follow one another.
pub fn prove(dir: &Path, runs: usize, seed: u64) -> Result<String> {
    let mut counts = Counts::default();
    let mut slowest = Duration::ZERO;
    for run in 0..runs {
        let seed = seed.wrapping_add(run as u64);
        let dir = dir.join(format!("partition-{run}"));
        std::fs::create_dir(&dir)?;
        let started = Instant::now();
        one(&dir, seed, &mut counts).with_context(|| format!("partition run {run}: --partitions 1 --seed {seed}"))?;
        slowest = slowest.max(started.elapsed());
        std::fs::remove_dir_all(&dir)?;
        if (run + 1) % 10 == 0 {
            say(&format!("machines: {} partition runs, {counts:?}", run + 1));
        }
    }
    let Counts {
        exits,
        acknowledged,
        unknown,
        unknown_accepted,
        recorded_anew,
        provisional,
        provisional_lost,
        reclaims,
        ..
    } = counts;
    Ok(format!(
        "{runs} partition runs: {acknowledged} acknowledged records all there; {unknown} answers lost, {unknown_accepted} of \
         those records had been accepted, each was resolved ({recorded_anew} repetitions were new commands); \
         {provisional} provisional records, {provisional_lost} lost, all with an account; {reclaims} claims swept; exits \
         {exits:?}; a run took at most {slowest:.1?}"
    ))
}

fn one(dir: &Path, seed: u64, counts: &mut Counts) -> Result<()> {
    let mut random = Random::new(seed);
    let has_http = Way::Http.lacks().is_none();
    let way = if has_http && random.percent(30) { Way::Http } else { Way::Daemon };
    let machines = 2 + usize::try_from(random.below(2))?;
    let line = |n: usize| format!("{{\"slug\":\"task-{n}\",\"title\":\"One of some\"}}\n");
    let plan: String = (0..TASKS).map(line).collect();
    let settings = [("pm.durability", "process"), ("pm.networkTimeout", "1s"), ("pm.ttl", TTL)];
    let fleet = Fleet::new(dir, way, machines, &plan, &settings)?;
    let held = run(&fleet, &mut random, counts);
    if held.is_err() {
        fleet.keep_hub(dir);
    }
    held
}

fn run(fleet: &Fleet, random: &mut Random, counts: &mut Counts) -> Result<()> {
    let (stop, log) = (Stop::default(), Mutex::new(Log::default()));
    let workers = Worker::all(fleet, WORKERS, TASKS, random, &stop, &log);
    let mut chaos = random.fork();
    std::thread::scope(|scope| {
        let mut threads: Vec<_> = workers.into_iter().map(|worker| scope.spawn(|| worker.run())).collect();
        threads.push(scope.spawn(|| sweep(fleet, &stop, &log)));
        let broken = break_network(fleet, &mut chaos, &stop);
        // Whatever happened: nobody waits for a network that stays broken.
        fleet.machines.iter().for_each(|machine| machine.proxy.set(Behaviour::Pass));
        stop.set();
        let ends: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        ends.into_iter().try_for_each(|end| end.ok().context("a worker's thread")?)?;
        broken
    })?;
    let mut log = log.into_inner().unwrap_or_else(PoisonError::into_inner);
    worker::repeat_all(fleet, &mut log)?;
    fleet.settle()?;
    let history = fleet.check()?;
    counts.runs += 1;
    judge::judge(fleet, &history, &log, counts)
}

/// The last machine takes stale claims away.
fn sweep(fleet: &Fleet, stop: &Stop, log: &Mutex<Log>) -> Result<()> {
    let number = fleet.machines.len() - 1;
    while !stop.is_set() {
        let args = vec!["sweep".to_owned()];
        let told = Told::run(number, &fleet.machines[number], "sweeper", "", args)?;
        ensure!([0, 8, 20, 21, 22].contains(&told.code), "{}", told.shown());
        log.lock().unwrap_or_else(PoisonError::into_inner).told.push(told);
        stop.wait(SWEEP_EVERY);
    }
    Ok(())
}

/// Breaks the network in one way after another.
fn break_network(fleet: &Fleet, random: &mut Random, stop: &Stop) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < BROKEN_FOR && !is_worked_off(fleet)? {
        let proxies: Vec<&Proxy> = fleet.machines.iter().map(|machine| &machine.proxy).collect();
        let one = proxies[usize::try_from(random.below(proxies.len() as u64))?];
        let hold = random.ms(80, 700);
        match random.below(12) {
            0 => one.set(Behaviour::Refuse),
            1 => one.set(Behaviour::Cut),
            2 => one.set(Behaviour::DropToServer),
            3 => one.set(Behaviour::DropToClient),
            4 => one.set(Behaviour::DropAnswerOfNextPush),
            5 => one.set(Behaviour::DropAnswersOfPushes),
            // Nobody can ask what became of it, either.
            6 | 7 => {
                let before = one.dropped_answers();
                one.set(Behaviour::DropAnswerOfNextPush);
                let armed = Instant::now();
                while one.dropped_answers() == before && armed.elapsed() < PUSHES_WITHIN && !stop.is_set() {
                    stop.wait(Duration::from_millis(2));
                }
                one.set(Behaviour::Cut);
            }
            8 if random.percent(50) => one.set(Behaviour::Flap { up: random.ms(100, 400), down: random.ms(50, 300) }),
            8 => one.set(Behaviour::Delay(random.ms(5, 120))),
            9 => one.set(Behaviour::CutAfterServerBytes(random.below(2_500))),
            // Pushes have arrived and wait, and their answers go nowhere, or their connections end.
            10 => {
                let gate = fleet.hub.close_gate();
                stop.wait(random.ms(50, 400));
                let after = if random.percent(50) { Behaviour::DropToClient } else { Behaviour::Cut };
                one.set(after);
                drop(gate);
            }
            _ => proxies.iter().for_each(|proxy| proxy.set(Behaviour::Cut)),
        }
        stop.wait(hold);
        if random.percent(60) {
            proxies.iter().for_each(|proxy| proxy.set(Behaviour::Pass));
            stop.wait(random.ms(50, 400));
        }
    }
    Ok(())
}

/// Whether every task is closed.
fn is_worked_off(fleet: &Fleet) -> Result<bool> {
    let mut command = fleet.at_hub().pm_command(["status", "--json"]);
    let told: Value = run_within(&mut command, PATIENCE)?.json()?;
    let count = |phase: &str| told["queues"]["default"][phase].as_u64().unwrap_or(0);
    Ok(count("new") + count("working") == 0)
}
