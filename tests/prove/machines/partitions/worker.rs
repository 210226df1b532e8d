//! A worker of a partition run: claims, keeps alive, reports and closes task after task, now and then without asking the
//! authority, and runs again what was left unknown: at once, or when the network is whole again.

use std::sync::Mutex;

use anyhow::Result;

use super::Stop;
use crate::machines::scene::{Fleet, Machine};
use crate::machines::told::Told;
use crate::random::Random;

/// How often a worker repeats at once what was unknown, or reached nobody.
const REPEATS_MAX: usize = 3;

/// A command whose answer was lost, and what its repetitions told.
pub struct Unknown {
    pub first: Told,
    /// The last one.
    pub repeated: Option<Told>,
}

/// All that was told in a run.
#[derive(Default)]
pub struct Log {
    pub told: Vec<Told>,
    pub unknown: Vec<Unknown>,
}

/// One worker.
pub struct Worker<'a> {
    pub number: usize,
    pub machine: &'a Machine,
    pub agent: String,
    pub random: Random,
    pub tasks: usize,
    pub stop: &'a Stop,
    pub log: &'a Mutex<Log>,
    pub steps: usize,
}

impl<'a> Worker<'a> {
    /// The workers of a fleet, so many on each machine.
    pub fn all(
        fleet: &'a Fleet,
        each: usize,
        tasks: usize,
        random: &mut Random,
        stop: &'a Stop,
        log: &'a Mutex<Log>,
    ) -> Vec<Worker<'a>> {
        let numbers = (0..fleet.machines.len()).flat_map(|number| (0..each).map(move |at| (number, at)));
        let worker = |(number, at): (usize, usize)| {
            let machine = &fleet.machines[number];
            let agent = format!("{}-w{at}", machine.name);
            Worker { number, machine, agent, random: random.fork(), tasks, stop, log, steps: 0 }
        };
        numbers.map(worker).collect()
    }

    /// Works until the run is over.
    pub fn run(mut self) -> Result<()> {
        while !self.stop.is_set() {
            let claimed = if self.random.percent(50) {
                self.step("", &["pull"])?
            } else {
                let slug = format!("task-{}", self.random.below(self.tasks as u64));
                self.step(&slug, &["executing", "--task", &slug])?
            };
            match (claimed.code, claimed.record.clone()) {
                (0, Some(claim)) => self.work(&claimed.slug, &claim)?,
                // Unknown for now. If it is held, it is found again, or swept.
                (22, _) => {}
                _ => self.stop.wait(self.random.ms(10, 60)),
            }
        }
        Ok(())
    }

    /// The life of one claim.
    fn work(&mut self, slug: &str, claim: &str) -> Result<()> {
        let task = ["--task", slug, "--claim", claim];
        loop {
            self.steps += 1;
            let title = format!("{} {} did {slug}", self.agent, self.steps);
            let told = match self.random.below(10) {
                0..4 => self.step(slug, &[&["heartbeat"], &task[..]].concat())?,
                4..8 => self.step(slug, &[&["report", "--title", &title], &task[..]].concat())?,
                8 => self.step(slug, &[&["finished"], &task[..]].concat())?,
                _ if self.random.percent(50) => self.step(slug, &[&["release"], &task[..]].concat())?,
                // Walks away without a word.
                _ => return Ok(()),
            };
            let is_over = matches!(told.verb(), "finished" | "release") && matches!(told.code, 0 | 22);
            if is_over || matches!(told.code, 6 | 12) || self.stop.is_set() {
                return Ok(());
            }
        }
    }

    /// One command, with its repetitions.
    fn step(&mut self, slug: &str, args: &[&str]) -> Result<Told> {
        let mut args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        if self.random.percent(8) {
            args.push("--offline".to_owned());
        }
        let first = self.tell(slug, &args)?;
        let mut last = first.clone();
        let at_once = self.random.percent(60);
        let mut repeats = 0;
        while (last.code == 20 || last.code == 22 && at_once) && repeats < REPEATS_MAX && !self.stop.is_set() {
            repeats += 1;
            last = self.tell(slug, &args)?;
            if first.code == 20 && last.code == 22 {
                // Another command's story begins here.
                break;
            }
        }
        if first.code == 22 {
            let repeated = (repeats > 0).then(|| last.clone());
            self.log().unknown.push(Unknown { first, repeated });
        } else if last.code == 22 {
            self.log().unknown.push(Unknown { first: last.clone(), repeated: None });
        }
        Ok(last)
    }

    fn tell(&self, slug: &str, args: &[String]) -> Result<Told> {
        let told = Told::run(self.number, self.machine, &self.agent, slug, args.to_vec())?;
        self.log().told.push(told.clone());
        Ok(told)
    }

    fn log(&self) -> std::sync::MutexGuard<'a, Log> {
        self.log.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Repeats, on a whole network, every command that is still unknown.
///
/// # Errors
/// When one stays unknown.
pub fn repeat_all(fleet: &Fleet, log: &mut Log) -> Result<()> {
    for unknown in &mut log.unknown {
        let is_open = unknown.repeated.as_ref().is_none_or(|told| matches!(told.code, 20 | 22));
        for _ in 0..REPEATS_MAX {
            if !is_open || unknown.repeated.as_ref().is_some_and(|told| !matches!(told.code, 20 | 22)) {
                break;
            }
            let first = &unknown.first;
            let machine = &fleet.machines[first.machine];
            // The next task may be another one.
            let slug = if first.verb() == "pull" { "" } else { &first.slug };
            let told = Told::run(first.machine, machine, &first.agent, slug, first.args.clone())?;
            log.told.push(told.clone());
            unknown.repeated = Some(told);
        }
    }
    Ok(())
}
