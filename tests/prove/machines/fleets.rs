//! Fleets: twenty workers on two or six machines work off a plan with dependencies. Half of the machines use the runner,
//! half shell loops. In the middle one machine's workers are killed, and what they held is taken over by others.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::history::{History, claims};
use super::scene::{Fleet, Machine, PATIENCE, Way};
use crate::support::{pm, poll_until, run_within, say};

/// The crates of a real workspace, with what they depend on.
const PLAN: &str = include_str!("../../../fixtures/plans/gitoxide-workspace.plan.json");
const LOOP: &str = include_str!("loop-worker.sh");
/// What the runner runs.
const JOB: &str = r#"echo "$PM_SLUG $PM_CLAIM $PM_AGENT_ID" >>"$LOG/jobs""#;
const WORKERS: usize = 20;
/// How long one fleet may take for its plan.
const WORKED_OFF_WITHIN: Duration = Duration::from_secs(240);

/// The lease of all claims, and how often a poller sweeps: more than three times in it.
///
/// Twenty workers that each need a third of a second of two processors for a connection over ssh cannot renew leases of
/// three seconds: they would take each other's tasks away for ever, and rightly so.
fn lease(way: Way) -> (&'static str, &'static str) {
    if way == Way::Ssh { ("15s", "4s") } else { ("3s", "900ms") }
}

#[derive(Debug, Default)]
struct Counts {
    acknowledged: usize,
    jobs: usize,
    reclaims: usize,
    /// How the loops' commands ended that did not with 0.
    exits: BTreeMap<String, usize>,
    ways: BTreeMap<String, usize>,
}

/// Processes of one machine, in a group of their own; killed when dropped.
struct Group {
    child: Child,
}

impl Group {
    fn start(command: &mut Command, log: &Path, name: &str) -> Result<Group> {
        let (out, err) =
            (File::create(log.join(format!("{name}.out")))?, File::create(log.join(format!("{name}.err")))?);
        let child = command.process_group(0).stdin(Stdio::null()).stdout(out).stderr(err).spawn()?;
        Ok(Group { child })
    }

    fn kill(&mut self, signal: Signal) {
        let _gone = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill(Signal::KILL);
        let _reaped = self.child.wait();
    }
}

/// Runs so many fleets.
pub fn prove(dir: &Path, runs: usize, tasks: usize) -> Result<String> {
    // In the order of what depends on what, so that the first ones are a plan of their own.
    let plan: Vec<Value> = serde_json::from_str(PLAN)?;
    let plan = serde_json::to_string(&plan[..tasks.min(plan.len())])?;
    let mut counts = Counts::default();
    let mut slowest = Duration::ZERO;
    for run in 0..runs {
        let dir = dir.join(format!("fleet-{run}"));
        fs::create_dir(&dir)?;
        let started = Instant::now();
        one(&dir, run, &plan, &mut counts).with_context(|| format!("fleet {run}"))?;
        slowest = slowest.max(started.elapsed());
        fs::remove_dir_all(&dir)?;
        if (run + 1) % 5 == 0 {
            say(&format!("machines: {} fleets, {counts:?}", run + 1));
        }
    }
    let Counts { acknowledged, jobs, reclaims, exits, ways } = counts;
    Ok(format!(
        "{runs} fleets of {WORKERS} workers ({ways:?}), one machine's killed in each: every task done once by the holder of \
         its last claim and after what it depends on, {jobs} jobs, {reclaims} claims swept, {acknowledged} acknowledged \
         records all at the hub, all ledgers the same; exits of the loops that were not 0: {exits:?}; a fleet took at \
         most {slowest:.1?}"
    ))
}

/// The way of a run: ssh seldom, since each connection costs a third of a second.
fn way(run: usize) -> Way {
    let wanted = match run % 10 {
        9 => Way::Ssh,
        n if n % 2 == 1 => Way::Http,
        _ => Way::Daemon,
    };
    if wanted.lacks().is_some() { Way::Daemon } else { wanted }
}

fn one(dir: &Path, run: usize, plan: &str, counts: &mut Counts) -> Result<()> {
    let (way, machines) = (way(run), if run % 4 < 2 { 2 } else { 6 });
    *counts.ways.entry(format!("{way:?} with {machines} machines")).or_default() += 1;
    // Each tenth run as it is by default: synced to the disk.
    let durability = if run % 10 == 5 { "power" } else { "process" };
    let fleet = Fleet::new(dir, way, machines, plan, &[("pm.durability", durability), ("pm.ttl", lease(way).0)])?;
    let held = work_off(dir, &fleet, way, run, counts);
    if held.is_err() {
        fleet.keep_hub(dir);
    }
    held
}

fn work_off(dir: &Path, fleet: &Fleet, way: Way, run: usize, counts: &mut Counts) -> Result<()> {
    let (ttl, sweep_every) = lease(way);
    let log = dir.join("log");
    fs::create_dir(&log)?;
    fs::write(log.join("jobs"), "")?;
    let stop = log.join("stop");
    let total = fleet.machines.len();
    let mut groups = Vec::new();
    for (at, machine) in fleet.machines.iter().enumerate() {
        let workers = WORKERS / total + usize::from(at < WORKERS % total);
        groups.push(workers_of(machine, workers, (at + run).is_multiple_of(2), ttl, &log)?);
    }
    // The last machine only sweeps and works, the first is the one that is killed.
    let pollers: Vec<Group> = [1, total - 1]
        .into_iter()
        .take(total - 1)
        .map(|at| {
            let machine = &fleet.machines[at];
            let mut poller = machine.repo.pm_command(["poll", "run", "--interval", sweep_every, "--agent", "sweeper"]);
            Group::start(&mut poller, &log, &format!("poller-{at}"))
        })
        .collect::<Result<_>>()?;

    let third = fleet.at_hub().tips()?.len() / 3;
    poll_until("a third of the jobs", WORKED_OFF_WITHIN, || Ok(jobs(&log)?.len() >= third))?;
    groups[0].kill(Signal::KILL);
    let worked_off = poll_until("all tasks done", WORKED_OFF_WITHIN, || is_done(fleet));
    fs::write(&stop, "")?;
    for group in &mut groups[1..] {
        // The loops see the file; a runner ends by itself, since nothing is left.
        poll_until("the end of the workers", PATIENCE, || Ok(group.child.try_wait()?.is_some()))?;
    }
    drop((groups, pollers));
    worked_off?;

    fleet.settle()?;
    let history = fleet.check()?;
    history.check_all_done()?;
    judge(&history, &log, counts)
}

/// Starts the workers of a machine: the runner, or shell loops.
fn workers_of(machine: &Machine, workers: usize, runner: bool, ttl: &str, log: &Path) -> Result<Group> {
    let name = &machine.name;
    let mut command = if runner {
        let agents = workers.to_string();
        let mut command = machine.repo.pm_command(["work", "--json", "--agent", name, "--agents", &agents]);
        command.args(["--ttl", ttl, "--", "sh", "-c", JOB]);
        command
    } else {
        let script = log.join("loop-worker.sh");
        fs::write(&script, LOOP)?;
        let mut command = crate::support::isolated("sh");
        let all = format!("for n in $(seq {workers}); do sh \"$0\" {name}-$n & done; wait");
        command.args(["-c", &all]).arg(script);
        command.env("PM", pm()).env("REPO", &machine.repo.dir).env("STOP", log.join("stop"));
        command
    };
    Group::start(command.env("LOG", log), log, name)
}

fn jobs(log: &Path) -> Result<Vec<String>> {
    Ok(fs::read_to_string(log.join("jobs"))?.lines().map(str::to_owned).collect())
}

fn is_done(fleet: &Fleet) -> Result<bool> {
    let told: Value = run_within(&mut fleet.at_hub().pm_command(["status", "--json"]), PATIENCE)?.json()?;
    let count = |phase: &str| told["queues"]["default"][phase].as_u64().unwrap_or(0);
    Ok(count("new") + count("working") == 0)
}

/// All that was told to workers is at the hub, and each task was done by a job that ran under its last claim.
fn judge(history: &History, log: &Path, counts: &mut Counts) -> Result<()> {
    let jobs = jobs(log)?;
    counts.jobs += jobs.len();
    for (slug, chain) in &history.chains {
        let claims = claims(chain)?;
        let last = claims.last().context("done, so claimed")?;
        let job = format!("{slug} {} {}", last.record.sha, last.record.agent);
        ensure!(jobs.contains(&job), "{slug} is done, but no job ran under its last claim");
        counts.reclaims += claims.iter().filter(|claim| claim.end.is_some_and(|end| end.is_sweepers)).count();
    }
    for entry in fs::read_dir(log)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        // What was killed may have left half a line.
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        match path.extension().and_then(std::ffi::OsStr::to_str) {
            Some("log") => {
                for line in lines {
                    match line.split(' ').collect::<Vec<_>>()[..] {
                        ["exit", code, verb, ..] => *counts.exits.entry(format!("{verb} {code}")).or_default() += 1,
                        [_, record, slug] => {
                            ensure!(history.has(slug, record), "acknowledged and lost: {}: {line}", path.display());
                            counts.acknowledged += 1;
                        }
                        _ => anyhow::bail!("{}: {line:?}", path.display()),
                    }
                }
            }
            Some("out") => {
                for line in lines {
                    let event: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
                    for record in ["claim", "report"].iter().filter_map(|key| event[key].as_str()) {
                        let is_there = history.slugs.contains_key(record);
                        ensure!(is_there, "acknowledged and lost: {}: {event}", path.display());
                        counts.acknowledged += 1;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}
