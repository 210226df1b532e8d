//! Runners, keepers and processes of commands are killed at random while a fleet works off a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;

use super::chain::{self, Claim};
use super::process::{self, Process};
use super::runner::{Runner, Sweeper};
use super::{GONE, Line, SWEEPER, Scene, TTL_MS, now_ms};
use crate::support::{poll_until, random_below, say};

/// Runners at a time; each has two agents.
const RUNNERS: usize = 3;
/// Tasks that are planned at a time, when less than half as many are left.
const BATCH: usize = 30;
/// After the kill of a runner or of a keeper the other of the two is spared for so long: where both are killed at once
/// nobody is left to end what their command has started.
const SPARED: Duration = Duration::from_secs(2);
/// How long after the death of their runner the last process of its commands must be gone: they are asked at once, and
/// killed after a sixth of the TTL. Without that they would be there until the lease lapses.
const WIDOWED: Duration = Duration::from_millis(TTL_MS * 6 / 10);
/// The bound of working off what is left.
const DRAIN: Duration = Duration::from_secs(120);

/// What a task's command does, by the last digit of its claim, which is random. Some leave behind a process that writes
/// for as long as it lives, and does not end for the asking; one of them in a session of its own.
const COMMAND: &str = "
    forever='trap \"\" TERM; while :; do echo \"child $PM_TASK $PM_CLAIM $$\" >>\"$JOURNAL\"; sleep 0.05; done'
    note start
    case $PM_CLAIM in
    *[0-2]) ;;
    *[3-5]) sleep 0.1 ;;
    *[678]) sleep 0.3 ;;
    *9) sleep 1 ;;
    *[abc]) sh -c \"$forever\" & sleep 0.2 ;;
    *) setsid sh -c \"$forever\" & sleep 0.2 ;;
    esac
    note end";

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Runner,
    Keeper,
    /// A process that a command is, or has started.
    Command,
}

/// How many were killed of each.
#[derive(Debug, Default)]
struct Kills {
    runners: usize,
    keepers: usize,
    commands: usize,
}

impl Kills {
    fn all(&self) -> usize {
        self.runners + self.keepers + self.commands
    }

    /// What to kill next. A runner is spared so often that it falls behind; the others wait for it then.
    fn draw(&self) -> Kind {
        match random_below(3) {
            0 if self.keepers <= self.runners + 1 => Kind::Keeper,
            1 if self.commands <= self.runners * 2 + 1 => Kind::Command,
            _ => Kind::Runner,
        }
    }
}

/// The runners, also those that were killed: what they told counts.
struct Fleet<'a> {
    scene: &'a Scene,
    script: String,
    running: Vec<Runner>,
    /// With the time of their death.
    dead: Vec<(Runner, u64)>,
    /// Processes that are not to be killed, until then.
    spared: BTreeMap<i32, Instant>,
    kills: Kills,
    /// Claims whose runner was killed, and when.
    widows: Vec<(String, Instant)>,
    /// The longest that something of theirs was still there.
    widowed: Duration,
}

pub fn prove(scene: &Scene, kills: usize) -> Result<String> {
    let _whatever_happens = process::NoneLeft(scene);
    let sweeper = Sweeper::start(scene)?;
    let script = format!("{}{COMMAND}", Line::NOTE);
    let mut fleet = Fleet {
        scene,
        script,
        running: Vec::new(),
        dead: Vec::new(),
        spared: BTreeMap::new(),
        kills: Kills::default(),
        widows: Vec::new(),
        widowed: Duration::ZERO,
    };
    for _ in 0..RUNNERS {
        fleet.reinforce()?;
    }
    let mut batches = 0;
    let mut told = 0;
    while fleet.kills.all() < kills {
        if scene.open()?.0 < BATCH as u64 / 2 {
            scene.plan(&format!("batch-{batches}"), BATCH)?;
            batches += 1;
        }
        fleet.watch(Duration::from_micros(random_below(150_000)))?;
        fleet.kill_somebody()?;
        if fleet.kills.all() >= told + 100 {
            told = fleet.kills.all();
            say(&format!("work: {told} kills, {batches} batches of {BATCH} tasks so far"));
        }
    }
    poll_until("working off what is left", DRAIN, || {
        std::thread::sleep(Duration::from_millis(100));
        fleet.running.iter_mut().try_for_each(Runner::check_runs)?;
        Ok(scene.open()? == (0, 0))
    })?;
    fleet.disband()?;
    sweeper.stop()?;
    let gone = process::wait_until_gone(scene, None, GONE)?;
    let judged = fleet.judge()?;
    let Kills { runners, keepers, commands } = fleet.kills;
    Ok(format!(
        "{} kills ({runners} runners, {keepers} keepers, {commands} processes of commands), {judged}; the commands of a \
         killed runner were gone {} ms later at most, and nothing was left {} ms after the end",
        fleet.kills.all(),
        fleet.widowed.as_millis(),
        gone.as_millis()
    ))
}

impl Fleet<'_> {
    /// Starts one more runner, under a name that nobody had before.
    fn reinforce(&mut self) -> Result<()> {
        let name = format!("r{}", self.running.len() + self.dead.len());
        let options = ["--forever", "--agents", "2", "--on-failure", "release"];
        self.running.push(Runner::start(self.scene, &name, &options, &self.script)?);
        Ok(())
    }

    /// Lets time pass, and watches what is left of killed runners.
    fn watch(&mut self, time: Duration) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < time {
            if !self.widows.is_empty() {
                let all = process::all(self.scene)?;
                let alive: BTreeSet<_> = all.iter().filter_map(|process| process.claim.as_deref()).collect();
                for (claim, since) in &self.widows {
                    self.widowed = self.widowed.max(since.elapsed());
                    let is_gone = !alive.contains(claim.as_str());
                    ensure!(
                        is_gone || since.elapsed() < WIDOWED,
                        "the runner of {claim} is dead, and its command lives"
                    );
                }
                self.widows.retain(|(claim, _)| alive.contains(claim.as_str()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Kills a process of a kind that is drawn, if one is there that may be.
    fn kill_somebody(&mut self) -> Result<()> {
        self.running.iter_mut().try_for_each(Runner::check_runs)?;
        self.spared.retain(|_, until| *until > Instant::now());
        let processes = process::all(self.scene)?;
        let kind = self.kills.draw();
        let may_be_killed = |process: &&Process| match kind {
            Kind::Runner => self.running.iter().any(|runner| runner.child.id() == process.pid.unsigned_abs()),
            Kind::Keeper => process.is_keeper,
            Kind::Command => process.claim.is_some() && !process.is_keeper,
        };
        let is_spared = |process: &&Process| self.spared.contains_key(&process.pid);
        let found: Vec<_> = processes.iter().filter(may_be_killed).filter(|process| !is_spared(process)).collect();
        let Some(process) = found.get(random_below(found.len() as u64) as usize) else { return Ok(()) };
        match kind {
            Kind::Runner => self.kill_runner(process.pid, &processes),
            Kind::Keeper => {
                // Its runner is to see to what it leaves; one without a runner has to see to it itself.
                let has_runner = self.running.iter().any(|runner| runner.child.id() == process.parent.unsigned_abs());
                if has_runner && process.signal(Signal::KILL) {
                    self.spared.insert(process.parent, Instant::now() + SPARED);
                    self.kills.keepers += 1;
                }
                Ok(())
            }
            Kind::Command => {
                self.kills.commands += usize::from(process.signal(Signal::KILL));
                Ok(())
            }
        }
    }

    fn kill_runner(&mut self, pid: i32, processes: &[Process]) -> Result<()> {
        let is_it = |runner: &Runner| runner.child.id() == pid.unsigned_abs();
        let at = self.running.iter().position(is_it).context("a runner")?;
        let mut runner = self.running.swap_remove(at);
        runner.child.kill()?;
        runner.child.wait()?;
        // Its keepers are nobody's children now, so that no kill finds a runner for them.
        self.dead.push((runner, now_ms()));
        let keepers = processes.iter().filter(|process| process.is_keeper && process.parent == pid);
        self.widows.extend(keepers.filter_map(|keeper| Some((keeper.claim.clone()?, Instant::now()))));
        self.kills.runners += 1;
        self.reinforce()
    }

    /// Has all runners end.
    fn disband(&mut self) -> Result<()> {
        for runner in &mut self.running {
            runner.signal(Signal::TERM)?;
            let status = runner.wait()?;
            // Commands were killed, and leases lost.
            let is_fine = matches!(status.code(), Some(0 | 1 | 12));
            ensure!(is_fine, "{} ended with {status}: {}", runner.name, runner.complaints());
        }
        Ok(())
    }

    /// Holds the chains against what was killed when, what the runners told, and what the commands wrote.
    fn judge(&self) -> Result<String> {
        let tasks = chain::all(&self.scene.repo, &[SWEEPER])?;
        let mut closing = BTreeSet::new();
        for (task, claims) in &tasks {
            closing.insert(chain::done_once(claims).with_context(|| format!("task {task}"))?.sha.clone());
        }
        let claims: Vec<&Claim> = tasks.iter().flat_map(|(_, claims)| claims).collect();
        for (runner, died_ms) in &self.dead {
            let agents = format!("{}-", runner.name);
            let posthumous = |claim: &&&Claim| {
                let ended_ms = claim.end.as_ref().filter(|end| end.by == claim.agent).map_or(0, |end| end.at_ms);
                claim.agent.starts_with(&agents) && claim.renewed_ms.max(ended_ms) > *died_ms
            };
            if let Some(claim) = claims.iter().find(posthumous) {
                bail!("{} was killed at {died_ms}, and recorded more: {claim:?}", runner.name);
            }
        }
        let mut told_done = BTreeSet::new();
        for runner in self.running.iter().chain(self.dead.iter().map(|(runner, _)| runner)) {
            told_done.extend(runner.claims("done")?);
        }
        ensure!(told_done.is_subset(&closing), "told as done, and are not: {:?}", told_done.difference(&closing));
        let lines = judge_journal(&self.scene.journal()?, &tasks, &closing)?;
        let taken_away = claims.iter().filter(|claim| claim.was_taken_by(SWEEPER)).count();
        Ok(format!(
            "{} tasks done once each under {} claims, {taken_away} of them swept; {lines} lines of their commands, none \
             of an earlier claim's after one of a later claim's",
            tasks.len(),
            claims.len()
        ))
    }
}

/// Holds what the commands wrote against the claims: each began once at most, one after another, and what closed a task
/// ran to its end. Returns the number of lines.
fn judge_journal(lines: &[Line], tasks: &[(String, Vec<Claim>)], closing: &BTreeSet<String>) -> Result<usize> {
    let mut order = BTreeMap::new();
    for (task, claims) in tasks {
        for (at, claim) in claims.iter().enumerate() {
            order.insert(claim.sha.as_str(), (task.as_str(), at));
        }
    }
    let mut latest: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut begun, mut ended) = (BTreeSet::new(), BTreeSet::new());
    for line in lines {
        let (task, at) = *order.get(line.claim.as_str()).with_context(|| format!("of no claim: {line:?}"))?;
        ensure!(task == line.task, "of another task: {line:?}");
        let latest = latest.entry(task).or_default();
        ensure!(*latest <= at, "a later claim's command was at work already: {line:?}");
        *latest = at;
        match line.what.as_str() {
            "start" => ensure!(begun.insert(line.claim.as_str()), "began twice: {line:?}"),
            "end" => ensure!(ended.insert(line.claim.as_str()), "ended twice: {line:?}"),
            _ => {}
        }
    }
    let unfinished = closing.iter().find(|claim| !ended.contains(claim.as_str()) || !begun.contains(claim.as_str()));
    ensure!(unfinished.is_none(), "closed as done, but its command did not end: {unfinished:?}");
    Ok(lines.len())
}
