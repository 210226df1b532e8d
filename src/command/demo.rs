//! `pm demo`: the tour.

use serde_json::json;

use crate::demo;
use crate::error::{Error, Result};
use crate::output::Output;

/// Take the tour: a real plan, a fleet, a killed worker, its recovery
///
/// Loads a plan of 71 real crates into a scratch repository, lets real worker processes work it off, kills one of
/// them in mid-claim, sweeps, and shows what happened. Fails if any rule was broken.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many workers; at least 2, since one of them dies
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=64))]
    agents: u64,
}

impl Args {
    /// Takes it.
    ///
    /// # Errors
    /// `Tour` where any rule was broken.
    pub fn run(&self, out: &Output) -> Result<()> {
        let agents = usize::try_from(self.agents).map_err(|error| Error::Usage(error.to_string()))?;
        let tour = demo::run(agents, out)?;
        out.result(
            || {
                json!({
                    "repository": tour.repository.display().to_string(),
                    "tasks": tour.tasks,
                    "records": tour.records,
                    "took_ms": tour.took.as_millis() as u64,
                    "killed": tour.victim,
                    "recovered": tour.task,
                    "recovered_in_ms": tour.recovered_in.as_millis() as u64,
                    "zombie_exit": tour.zombie_exit,
                })
            },
            || {
                [
                    format!(
                        "\n{} tasks done by {agents} workers in {:.1} s, {} records, no rule broken.",
                        tour.tasks,
                        tour.took.as_secs_f64(),
                        tour.records
                    ),
                    format!(
                        "{} died holding {}; the task was free again after {} ms and another worker finished it.",
                        tour.victim,
                        tour.task,
                        tour.recovered_in.as_millis()
                    ),
                    format!("The dead worker's claim, used again, was refused with exit {}.", tour.zombie_exit),
                    format!("\nThe life of {}, oldest first, from plain git log:\n", tour.task),
                    tour.life.trim_end().to_owned(),
                    "\nLook around:".to_owned(),
                    format!("  cd {}", tour.repository.display()),
                    "  pm status; pm list; pm log --oneline".to_owned(),
                    format!("  {}", tour.life_command),
                ]
                .join("\n")
            },
        );
        Ok(())
    }
}
