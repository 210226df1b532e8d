//! What it costs that a claim and a finish look at other tasks: `next`, `pull` and `finished` on three plans, in turns with
//! other builds of pm if some are named, and what each of them reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use pm::clock::SystemClock;
use pm::id::Queue;
use pm::ledger::{Identity, Ledger, Reach};
use pm::protocol::decide::Intent;
use pm::protocol::record::Report;
use pm::store::Store;
use pm::store::git::GitStore;

use crate::counting::{Counting, Reads};
use crate::many::{plan_file, timed_plan};
use crate::support::{Repo, isolated, run_within, say};
use crate::{Row, print_header, timed};

const CRATES: &str = include_str!("../../fixtures/plans/gitoxide-workspace.plan.json");
const AGENT: [&str; 2] = ["--agent", "w1"];
/// How long one command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Measures and prints. `beside`: other builds of pm.
pub fn measure(dir: &Path, runs: usize, beside: &[PathBuf]) -> Result<()> {
    fs::create_dir(dir)?;
    let crates = dir.join("crates.json");
    fs::write(&crates, CRATES)?;
    let thousand = plan_file(&dir.join("thousand.jsonl"), 1000)?;
    let debian = plan_file(&dir.join("debian.jsonl"), usize::MAX)?;
    for (what, plan) in [("71 crates", crates), ("1,000 packages", thousand), ("63,681 packages", debian)] {
        let mut grounds = vec![Ground::new(&dir.join(format!("{what}, this pm")), &plan, None)?];
        for (at, other) in beside.iter().enumerate() {
            grounds.push(Ground::new(&dir.join(format!("{what}, {at}")), &plan, Some(other))?);
        }
        for _ in 0..runs {
            grounds.iter_mut().try_for_each(Ground::round)?;
        }
        print_header(what);
        for ground in &grounds {
            let pm = ground.pm.as_deref().map_or(String::new(), |pm| pm.display().to_string());
            ground.rows.iter().for_each(|row| row.print(&pm));
        }
        for (what, Reads { commits, refs, listings }) in reads(&grounds[0].repo)? {
            say(&format!("{what}: {commits} commits, {refs} single refs, {listings} listings of refs"));
        }
    }
    Ok(())
}

/// A planned repository, and what is measured in it.
struct Ground {
    repo: Repo,
    pm: Option<PathBuf>,
    rows: [Row; 3],
}

impl Ground {
    fn new(dir: &Path, plan: &Path, pm: Option<&Path>) -> Result<Ground> {
        let repo = Repo::init(dir)?;
        timed_plan(&repo, plan)?;
        Ok(Ground { repo, pm: pm.map(Path::to_owned), rows: ["pm next", "pm pull", "pm finished"].map(Row::new) })
    }

    fn command(&self, args: &[&str]) -> Command {
        let Some(pm) = &self.pm else { return self.repo.pm_command([args, &AGENT].concat()) };
        let mut command = isolated(pm);
        command.arg("-C").arg(&self.repo.dir).args(args).args(AGENT);
        command
    }

    /// Works off one task.
    fn round(&mut self) -> Result<()> {
        let next = timed(&mut self.command(&["next"]))?;
        let pull = timed(&mut self.command(&["pull"]))?;
        let owned = run_within(&mut self.command(&["owned", "--json"]), PATIENCE)?.json()?;
        let task = owned["tasks"][0]["task"].as_str().context("a claim")?.to_owned();
        timed(&mut self.command(&["report", "--task", &task, "--title", "Did it"]))?;
        let finished = timed(&mut self.command(&["finished", "--task", &task]))?;
        self.rows.iter_mut().zip([next, pull, finished]).for_each(|(row, took)| row.took.push(took));
        Ok(())
    }
}

/// What the three read.
fn reads(repo: &Repo) -> Result<[(&'static str, Reads); 3]> {
    let store = GitStore::discover(&repo.dir)?;
    let counting = Counting::new(&store);
    let (clock, agent) = (SystemClock::new(), "w1".parse()?);
    let email = "prove@example.invalid".to_owned();
    let identity = Identity { committer: ("prove".to_owned(), email.clone()), email };
    let ledger =
        |store| Ledger { store, clock: &clock, identity: &identity, agent: &agent, context: None, reach: Reach::Alone };
    let (watched, unwatched) = (ledger(&counting as &dyn Store), ledger(&store as &dyn Store));
    let queue: Queue = "default".parse()?;
    let first = || -> Result<pm::ledger::find::Found> {
        let runnable = watched.runnable("refs/pm/tasks/default/", &[], &repo.dir)?;
        let (name, state) = runnable.tasks.into_iter().next().context("a runnable task")?;
        Ok(pm::ledger::find::Found { name, state })
    };
    first()?;
    let next = counting.take();
    let claimed = watched.append(first()?, Intent::Claim { ttl: None })?;
    let pull = counting.take();
    let task = claimed.state.id.to_string();
    let report = Report { title: "Did it".to_owned(), commit: None, synthetic: false, attachments: None };
    unwatched.append(unwatched.find(&task, &queue)?, Intent::Report { claim: None, report, body: None })?;
    let finish = Intent::Finish { claim: None, done: true, note: None, verified: None };
    watched.append(watched.find(&task, &queue)?, finish)?;
    Ok([("pm next", next), ("pm pull", pull), ("pm finished", counting.take())])
}
