//! Machines that share a hub: real clones, real servers, and a network before each machine that breaks when it is told to.
//!
//! What must never happen: two accepted claims of one attempt; an acknowledged record that the hub does not have when
//! the network is whole again; ledgers that stay apart; a claim taken away from who kept it alive; a record of a worker
//! that woke up after it was robbed. Judged is the hub's history as plain git reads it.

mod clocks;
mod fleets;
mod history;
mod partitions;
mod scene;
mod told;
mod zombies;

use std::path::Path;

use anyhow::Result;

use crate::Verdict;
use crate::support::say;
use scene::Way;

/// Fleets over real servers, with networks that break, clocks that lie, and workers that sleep
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Fleets of twenty workers on two or six machines; with 0, as of the others, none of this is proved
    #[arg(long, default_value_t = 0)]
    runs: usize,
    /// How many tasks of the plan of 71 crates a fleet works off
    #[arg(long, default_value_t = 71)]
    tasks: usize,
    /// Runs of two or three machines whose network breaks
    #[arg(long, default_value_t = 0)]
    partitions: usize,
    /// Rounds on machines whose wall clocks are ten years ahead, ten years behind, and jumping
    #[arg(long, default_value_t = 0)]
    clocks: usize,
    /// Workers that are stopped for longer than their lease
    #[arg(long, default_value_t = 0)]
    zombies: usize,
    /// The seed of the first partition run, printed where one is broken; else random
    #[arg(long)]
    seed: Option<u64>,
}

/// A part of the proof: so many times.
type Part<'a> = &'a dyn Fn(usize) -> Result<String>;

impl Args {
    pub fn quick() -> Args {
        Args { runs: 1, tasks: 12, partitions: 1, clocks: 1, zombies: 2, seed: None }
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        if let Some(what) = Way::Daemon.lacks() {
            return Ok(Verdict::Skipped(format!("needs {what}")));
        }
        let mut figures = Vec::new();
        let seed = self.seed.unwrap_or_else(|| u64::from(getrandom::u32().unwrap_or_default()));
        let parts: [(usize, Part); 4] = [
            (self.runs, &|times| fleets::prove(scratch, times, self.tasks)),
            (self.partitions, &|times| partitions::prove(scratch, times, seed)),
            (self.clocks, &|times| clocks::prove(&scratch.join("clocks"), times)),
            (self.zombies, &|times| zombies::prove(&scratch.join("zombies"), times)),
        ];
        for (times, prove) in parts {
            if times > 0 {
                let told = prove(times)?;
                say(&format!("machines: {told}"));
                figures.push(told);
            }
        }
        Ok(Verdict::Held(figures.join("; ")))
    }
}
