//! Many processes claim one task at the same moment: exactly one gets it.
//!
//! Every racer is a real `pm executing`, started by a shell that waits for the end of a pipe which they all share. Of
//! ten rounds, three are run under one agent id (only the nonce tells those claims apart) and three on a packed ref.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Verdict;
use crate::support::{Repo, isolated, pm, say, text};

/// The shell says that it is ready, waits for the pipe to be closed, and becomes pm.
const RACER: &str = r#"printf .; read -r go; exec "$0" "$@" </dev/null"#;

/// Many processes claim one task: exactly one wins, each round
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Racers in a round
    #[arg(long, default_value_t = 64)]
    processes: usize,
    /// Rounds, each with a fresh task
    #[arg(long, default_value_t = 1000)]
    rounds: usize,
}

impl Args {
    pub fn quick() -> Args {
        Args { processes: 16, rounds: 10 }
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        let repo = Repo::init(&scratch.join("repo"))?;
        let mut exits = BTreeMap::new();
        for round in 0..self.rounds {
            self.round(&repo, round, &mut exits).with_context(|| format!("round {round}"))?;
            if (round + 1) % 100 == 0 {
                say(&format!("claim-race: {} rounds, exits so far {exits:?}", round + 1));
            }
        }
        repo.check_clean()?;
        Ok(Verdict::Held(format!(
            "{} rounds of {} processes, one winner each; exits {exits:?}",
            self.rounds, self.processes
        )))
    }

    fn round(&self, repo: &Repo, round: usize, exits: &mut BTreeMap<i32, usize>) -> Result<()> {
        let slug = format!("round-{round}");
        repo.pm_json(["plan", "--title", "a prize", "--slug", &slug])?;
        if matches!(round % 10, 2 | 5 | 8) {
            repo.git(["pack-refs", "--all"])?;
        }
        let one_name = matches!(round % 10, 3 | 5 | 7);
        let agents: Vec<String> =
            (0..self.processes).map(|n| if one_name { "twin".to_owned() } else { format!("w{n}") }).collect();

        let (mut racers, printed, refused) = race(repo, &slug, &agents)?;
        let mut winner = None;
        for (racer, agent) in racers.iter_mut().zip(&agents) {
            let code = racer.wait()?.code().unwrap_or(-1);
            *exits.entry(code).or_default() += 1;
            match code {
                0 => ensure!(winner.replace(agent).is_none(), "two processes won"),
                6 | 8 => {}
                _ => anyhow::bail!("exit {code}: {refused}"),
            }
        }
        let winner = winner.context("nobody won")?;

        // What the winner was told is what plain git finds recorded, and nothing else is.
        let claim: Value = serde_json::from_str(&printed).with_context(|| format!("printed: {printed}"))?;
        let chain = repo.records(&format!("refs/pm/tasks/default/{slug}"))?;
        let kinds: Vec<_> = chain.iter().map(|record| (record.kind.as_str(), record.status.as_str())).collect();
        ensure!(kinds == [("Task", ""), ("TaskStatus", "new"), ("TaskStatus", "working")], "the chain is {kinds:?}");
        ensure!(chain[2].sha == text(&claim, "/sha")?, "recorded {}, acknowledged {claim}", chain[2].sha);
        ensure!(chain[2].agent == *winner, "recorded for {}, acknowledged to {winner}", chain[2].agent);
        Ok(())
    }
}

/// Starts all racers, lets them go at once, and returns them with all that they printed.
fn race(repo: &Repo, slug: &str, agents: &[String]) -> Result<(Vec<Child>, String, String)> {
    let (barrier, gate) = std::io::pipe()?;
    let (mut output, racers_output) = std::io::pipe()?;
    let (mut errors, racers_errors) = std::io::pipe()?;
    let mut racers = Vec::with_capacity(agents.len());
    for agent in agents {
        let mut racer = isolated("sh");
        racer.args(["-c", RACER]).arg(pm()).arg("-C").arg(&repo.dir);
        racer.args(["executing", "--task", slug, "--agent", agent, "--json"]);
        racer.stdin(Stdio::from(barrier.try_clone()?)).stdout(racers_output.try_clone()?);
        racers.push(racer.stderr(racers_errors.try_clone()?).spawn()?);
    }
    drop((barrier, racers_output, racers_errors));
    output.read_exact(&mut vec![0; agents.len()]).context("waiting for the racers to be ready")?;
    drop(gate);
    // Errors are read beside, lest a full pipe stop the racers.
    let errors = std::thread::spawn(move || {
        let mut said = Vec::new();
        errors.read_to_end(&mut said).map(|_| String::from_utf8_lossy(&said).into_owned())
    });
    let mut printed = String::new();
    output.read_to_string(&mut printed)?;
    let said = errors.join().ok().context("reading errors")??;
    Ok((racers, printed, said))
}
