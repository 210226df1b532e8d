//! How long pm takes, in whole processes, beside what git takes for the same: `cargo bench --bench speed -- --help`.
//!
//! All rows of a group are measured in turns in one run on one file system, so that they can be compared. Only ratios
//! mean anything elsewhere. Nothing here fails for being slow: figures are printed, with the bounds beside them.

mod append;
mod counting;
mod graph;
mod machines;
mod many;
#[path = "../it/support/servers/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the tests, which use all of it")]
mod servers;
#[path = "../prove/support.rs"]
#[allow(dead_code, reason = "shared with the proofs, which use all of it")]
mod support;
#[path = "../it/support/wait.rs"]
mod wait;
mod work;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use support::{say, shown};

/// Medians of whole processes, pm beside git
#[derive(Parser)]
struct Cli {
    /// How often each command is measured
    #[arg(long, default_value_t = 20)]
    runs: usize,
    /// How often the long ones are (whole batches, sweeps, the Debian plan)
    #[arg(long, default_value_t = 5)]
    long_runs: usize,
    /// Where scratch repositories are made, which decides the file system; else the system's temporary directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How long the idle runner is watched, in seconds
    #[arg(long, default_value_t = 60)]
    idle_seconds: u64,
    /// Another pm, whose `next`, `pull` and `finished` are measured in turns with this one's; several are allowed
    #[arg(long, value_name = "FILE")]
    beside: Vec<PathBuf>,
    /// Only one group
    #[arg(long, value_enum)]
    only: Option<Group>,
    /// Given by cargo bench
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Group {
    /// One append, beside git's two commands
    Append,
    /// A thousand tasks
    Thousand,
    /// The plan of Debian's packages
    Debian,
    /// What looks at other tasks, on plans of 71, 1,000 and 63,681
    Graph,
    /// The runner, beside shell loops, and idle
    Work,
    /// A hub and its machines
    Machines,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let dir = cli.dir.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = tempfile::Builder::new().prefix("speed-").tempdir_in(dir)?;
    say(&format!("{} runs a row, {} of the long ones, in {}", cli.runs, cli.long_runs, scratch.path().display()));
    let wanted = |group| cli.only.is_none_or(|only| only == group);
    if wanted(Group::Append) {
        append::measure(&scratch.path().join("append"), cli.runs)?;
    }
    if wanted(Group::Thousand) {
        many::thousand(&scratch.path().join("thousand"), cli.runs, cli.long_runs)?;
    }
    if wanted(Group::Debian) {
        many::debian(&scratch.path().join("debian"), cli.long_runs)?;
    }
    if wanted(Group::Graph) {
        graph::measure(&scratch.path().join("graph"), cli.runs, &cli.beside)?;
    }
    if wanted(Group::Work) {
        let idle = Duration::from_secs(cli.idle_seconds);
        work::measure(&scratch.path().join("work"), cli.runs, cli.long_runs, idle)?;
    }
    if wanted(Group::Machines) {
        machines::measure(&scratch.path().join("machines"), cli.runs, cli.long_runs)?;
    }
    Ok(())
}

/// One row of a table: what was measured, and how long each run took.
struct Row {
    what: String,
    took: Vec<Duration>,
}

impl Row {
    fn new(what: &str) -> Row {
        Row { what: what.to_owned(), took: Vec::new() }
    }

    fn median(&self) -> Duration {
        let mut took = self.took.clone();
        took.sort();
        took.get(took.len() / 2).copied().unwrap_or_default()
    }

    /// Prints the row; `note` says what it is to be compared with.
    fn print(&self, note: &str) {
        let ms = |duration: Option<&Duration>| duration.map_or(0.0, |duration| duration.as_secs_f64() * 1000.0);
        let median = self.median();
        let (least, most) = (ms(self.took.iter().min()), ms(self.took.iter().max()));
        say(&format!("{:<58} {:>9.2} {least:>9.2} {most:>9.2}  {note}", self.what, ms(Some(&median))));
    }
}

fn print_header(title: &str) {
    say("");
    say(&format!("{title:<58} {:>9} {:>9} {:>9}", "median ms", "least", "most"));
}

/// How long a command takes from its start to its end. Its output is thrown away.
fn timed(command: &mut Command) -> Result<Duration> {
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let started = Instant::now();
    let child = command.spawn().with_context(|| shown(command))?;
    let output = child.wait_with_output()?;
    let took = started.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {}: {}", shown(command), output.status, said.trim());
    Ok(took)
}
