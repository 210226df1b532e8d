//! The long proofs, with real processes: `cargo test --release --test prove -- <proof> [options]`, or `-- --quick` for
//! a small version of all of them.
//!
//! Each proof ends in one line, `proof NAME: ...`, and the exit code is 1 if any was broken. A proof that cannot run
//! here (no strace, no loop devices) says so and is skipped; where `CI` is set that is a failure, too.

mod claim_race;
#[path = "../it/support/coherence/mod.rs"]
mod coherence;
mod drain;
mod family_race;
mod kill_points;
mod machines;
mod plans;
mod poller;
mod power;
mod random;
mod random_kills;
#[path = "../it/support/servers/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests, which use all of it")]
mod servers;
mod support;
#[path = "../it/support/wait.rs"]
mod wait;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Parser, Subcommand};
use support::say;

/// How a proof ended that was not broken.
enum Verdict {
    /// With its figures.
    Held(String),
    /// It cannot run here; why.
    Skipped(String),
}

/// Proofs of pm with real processes.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_required = false, arg_required_else_help = true)]
struct Cli {
    /// A small version of every proof, in less than a minute
    #[arg(long)]
    quick: bool,
    /// Where scratch repositories are made; else the system's temporary directory
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(subcommand)]
    proof: Option<Proof>,
}

#[derive(Subcommand)]
enum Proof {
    ClaimRace(claim_race::Args),
    Drain(drain::Args),
    FamilyRace(family_race::Args),
    KillPoints(kill_points::Args),
    RandomKills(random_kills::Args),
    Power(power::Args),
    Poller(poller::Args),
    Work(work::Args),
    Machines(machines::Args),
    Plans(plans::Args),
    /// Part of random-kills: one worker
    #[command(hide = true)]
    Worker(random_kills::worker::Args),
}

impl Proof {
    fn name(&self) -> &'static str {
        match self {
            Proof::ClaimRace(_) => "claim-race",
            Proof::Drain(_) => "drain",
            Proof::FamilyRace(_) => "family-race",
            Proof::KillPoints(_) => "kill-points",
            Proof::RandomKills(_) => "random-kills",
            Proof::Power(_) => "power",
            Proof::Poller(_) => "poller",
            Proof::Work(_) => "work",
            Proof::Machines(_) => "machines",
            Proof::Plans(_) => "plans",
            Proof::Worker(_) => "worker",
        }
    }

    fn quick() -> Vec<Proof> {
        let mut proofs =
            vec![Proof::ClaimRace(claim_race::Args::quick()), Proof::KillPoints(kill_points::Args::quick())];
        proofs.push(Proof::FamilyRace(family_race::Args::quick()));
        proofs.extend(drain::Args::quick().map(Proof::Drain));
        proofs.push(Proof::RandomKills(random_kills::Args::quick()));
        proofs.push(Proof::Poller(poller::Args::quick()));
        proofs.push(Proof::Work(work::Args::quick()));
        proofs.push(Proof::Machines(machines::Args::quick()));
        proofs.push(Proof::Plans(plans::Args::quick()));
        proofs.extend(power::Args::quick().map(Proof::Power));
        proofs
    }

    fn run(&self, scratch: &std::path::Path) -> Result<Verdict> {
        match self {
            Proof::ClaimRace(args) => args.run(scratch),
            Proof::Drain(args) => args.run(scratch),
            Proof::FamilyRace(args) => args.run(scratch),
            Proof::KillPoints(args) => args.run(scratch),
            Proof::RandomKills(args) => args.run(scratch),
            Proof::Power(args) => args.run(scratch),
            Proof::Poller(args) => args.run(scratch),
            Proof::Work(args) => args.run(scratch),
            Proof::Machines(args) => args.run(scratch),
            Proof::Plans(args) => args.run(scratch),
            Proof::Worker(args) => args.run().map(|()| Verdict::Held(String::new())),
        }
    }

    /// Runs it in a scratch directory of its own, which is kept if the proof is broken. Whether it holds.
    fn prove(&self, dir: &std::path::Path) -> Result<bool> {
        let name = self.name();
        let scratch = tempfile::Builder::new().prefix("prove-").tempdir_in(dir)?;
        let started = Instant::now();
        let verdict = self.run(scratch.path());
        let seconds = started.elapsed().as_secs_f32();
        let holds = match verdict {
            Ok(Verdict::Held(figures)) => {
                say(&format!("proof {name}: {figures}; {seconds:.1} s"));
                true
            }
            Ok(Verdict::Skipped(why)) => {
                say(&format!("proof {name}: skipped: {why}"));
                std::env::var_os("CI").is_none()
            }
            Err(error) => {
                let kept = scratch.keep();
                say(&format!("proof {name}: BROKEN: {error:#}; everything is left in {}", kept.display()));
                return Ok(false);
            }
        };
        Ok(holds)
    }
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    if let Some(Proof::Worker(args)) = &cli.proof {
        args.run()?;
        return Ok(ExitCode::SUCCESS);
    }
    if cli.quick || matches!(cli.proof, Some(Proof::Power(_))) {
        power::image::own_mounts();
    }
    let dir = cli.dir.unwrap_or_else(std::env::temp_dir);
    let proofs = if cli.quick { Proof::quick() } else { cli.proof.into_iter().collect() };
    let mut all_hold = true;
    for proof in proofs {
        all_hold &= proof.prove(&dir)?;
    }
    Ok(if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
