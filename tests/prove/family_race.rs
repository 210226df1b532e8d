//! Two processes at the same moment, of which the rules about other tasks let only one have its way: a child is planned
//! while its parent is finished (rule 9), two contexts claim tasks that are tied (rule 8).
//!
//! Both are started by shells that wait for the end of one pipe. Which of them is started first alternates.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use crate::Verdict;
use crate::support::{Repo, isolated, pm, say};

/// The shell says that it is ready, waits for the pipe to be closed, and becomes pm.
const RACER: &str = r#"printf .; read -r go; exec "$0" "$@" </dev/null >/dev/null"#;

/// Parents finish while children are planned, tied tasks are claimed at once: one wins, each round
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rounds of each kind, each with fresh tasks
    #[arg(long, default_value_t = 1000)]
    rounds: usize,
}

impl Args {
    pub fn quick() -> Args {
        Args { rounds: 20 }
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        let repo = Repo::init(&scratch.join("repo"))?;
        let (mut families, mut ties) = (BTreeMap::new(), BTreeMap::new());
        for round in 0..self.rounds {
            let codes = family(&repo, round).with_context(|| format!("family {round}"))?;
            *families.entry(codes).or_insert(0) += 1;
            let codes = tie(&repo, round).with_context(|| format!("tie {round}"))?;
            *ties.entry(codes).or_insert(0) += 1;
            if (round + 1) % 100 == 0 {
                say(&format!("family-race: {} rounds, exits so far {families:?} and {ties:?}", round + 1));
            }
        }
        repo.check_clean()?;
        ensure!(families.len() > 1 || self.rounds < 1000, "one side always wins: {families:?}");
        let told = |seen: &BTreeMap<[i32; 2], i32>| {
            let one = |([a, b], times): (&[i32; 2], &i32)| format!("{times} times {a} and {b}");
            seen.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        Ok(Verdict::Held(format!(
            "{} rounds each; `finished` of a parent beside `plan` of its child exited with {}; `executing` of two tied \
             tasks in two contexts with {}",
            self.rounds,
            told(&families),
            told(&ties)
        )))
    }
}

/// A parent is finished while a child is planned. The queue is the round's own, so that all rounds cost the same.
fn family(repo: &Repo, round: usize) -> Result<[i32; 2]> {
    let queue = format!("family-{round}");
    let parent = format!("{queue}/parent");
    repo.pm_json(["plan", "--title", "a parent", "--slug", "parent", "--queue", &queue])?;
    repo.pm_json(["executing", "--task", &parent, "--agent", "w1"])?;
    repo.pm_json(["report", "--task", &parent, "--agent", "w1", "--title", "it is done"])?;
    let finish = ["finished", "--task", &parent, "--agent", "w1"];
    let plan = ["plan", "--title", "a child", "--slug", "child", "--parent", &parent, "--queue", &queue];
    let codes = at_once(repo, [&finish, &plan], round % 2 == 1)?;
    // What happened is what plain git finds.
    let ends_in = repo.records(&format!("refs/pm/tasks/{parent}"))?.pop().context("no parent")?.status;
    let child = format!("refs/pm/tasks/{queue}/child");
    let is_planned = !repo.git(["for-each-ref", &child])?.is_empty();
    match codes {
        [14, 0] => ensure!(ends_in != "done" && is_planned, "{codes:?}, but the parent is {ends_in:?}"),
        [0, 11] => ensure!(ends_in == "done" && !is_planned, "{codes:?}, but a child is there: {is_planned}"),
        _ => anyhow::bail!("the exit codes are {codes:?}"),
    }
    Ok(codes)
}

/// Two tasks that a third one needs are claimed in two contexts.
fn tie(repo: &Repo, round: usize) -> Result<[i32; 2]> {
    let queue = format!("tie-{round}");
    let [a, b] = ["a", "b"].map(|slug| format!("{queue}/{slug}"));
    let plan = |slug: &str, more: &[&str]| {
        let args = ["plan", "--title", "sticky", "--slug", slug, "--queue", &queue, "--sticky"];
        repo.pm_json(args.iter().chain(more))
    };
    plan("a", &[])?;
    plan("b", &[])?;
    plan("joint", &["--depends-on", &format!("{a},{b}")])?;
    let claim_a = ["executing", "--task", &a, "--agent", "w1", "--context-id", "c1"];
    let claim_b = ["executing", "--task", &b, "--agent", "w2", "--context-id", "c2"];
    let codes = at_once(repo, [&claim_a, &claim_b], round % 2 == 1)?;
    let mut working = 0;
    for task in [&a, &b] {
        let tip = repo.records(&format!("refs/pm/tasks/{task}"))?.pop().context("no task")?;
        working += usize::from(tip.status == "working");
    }
    ensure!(working == 1, "{codes:?}, and {working} of two tied tasks are bound");
    ensure!(matches!(codes, [0, 10] | [10, 0]), "the exit codes are {codes:?}");
    Ok(codes)
}

/// Runs two commands at once, and returns their exit codes in their order.
fn at_once(repo: &Repo, commands: [&[&str]; 2], is_swapped: bool) -> Result<[i32; 2]> {
    let (barrier, gate) = std::io::pipe()?;
    let (mut ready, racers_ready) = std::io::pipe()?;
    let mut racers = [None, None];
    for place in if is_swapped { [1, 0] } else { [0, 1] } {
        let mut racer = isolated("sh");
        racer.args(["-c", RACER]).arg(pm()).arg("-C").arg(&repo.dir).args(commands[place]);
        racer.stdin(Stdio::from(barrier.try_clone()?)).stdout(racers_ready.try_clone()?).stderr(Stdio::null());
        racers[place] = Some(racer.spawn()?);
    }
    drop((barrier, racers_ready));
    ready.read_exact(&mut [0; 2]).context("waiting for both to be ready")?;
    drop(gate);
    let mut codes = [0; 2];
    for (code, racer) in codes.iter_mut().zip(&mut racers) {
        *code = racer.as_mut().context("not started")?.wait()?.code().unwrap_or(-1);
    }
    Ok(codes)
}
