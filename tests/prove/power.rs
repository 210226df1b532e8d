//! Power cuts: a file system is shut down without flushing its journal, right after records were acknowledged.
//!
//! Several writers append at once, plan, claim, heartbeat, report, finish and plan batches; what pm acknowledged is
//! noted outside the file system. After the cut all of it must be there. With `--gc` git's own maintenance comes between
//! the acknowledgement and the cut. With `--durability process`, which promises nothing about power, losses must be
//! seen: a proof that could not fail proves nothing.

pub mod image;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use self::image::{Image, Kind};
use crate::Verdict;
use crate::support::{Repo, STUCK, isolated, random_below, run_within, say, text};

/// How many tasks a batch plans.
const BATCH: usize = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Durability {
    Power,
    Process,
}

/// Power cuts right after acknowledged records: nothing acknowledged is lost
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many cuts
    #[arg(long, default_value_t = 40)]
    cuts: usize,
    /// Run git gc, and git pack-refs every other time, before each cut; of four cuts one is in the middle of it
    #[arg(long)]
    gc: bool,
    /// What pm.durability is set to
    #[arg(long, value_enum, default_value_t = Durability::Power)]
    durability: Durability,
    /// The file system
    #[arg(long, value_enum, default_value_t = Kind::Ext4)]
    fs: Kind,
    /// Writers at a time; one more plans batches
    #[arg(long, default_value_t = 3)]
    writers: usize,
}

/// What was acknowledged: slug and record.
type Acknowledged = Mutex<Vec<(String, String)>>;

/// What all cuts counted.
#[derive(Debug, Default)]
struct Totals {
    acknowledged: usize,
    lost: usize,
    unreadable: usize,
    torn: usize,
    gc_failed: usize,
}

impl Args {
    pub fn quick() -> [Args; 3] {
        let args = |cuts, gc, durability| Args { cuts, gc, durability, fs: Kind::Ext4, writers: 2 };
        [args(2, false, Durability::Power), args(2, true, Durability::Power), args(2, false, Durability::Process)]
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Verdict::Skipped("only root can mount and shut down file systems".to_owned()));
        }
        let mut image = Image::new(self.fs, scratch)?;
        if let Err(error) = image.format() {
            return Ok(Verdict::Skipped(format!("no file system can be mounted here: {error:#}")));
        }
        let mut totals = Totals::default();
        let mut repo = self.init(&image)?;
        let acknowledged = Acknowledged::default();
        let mut earlier = BTreeSet::new();
        for cut in 0..self.cuts {
            let cut_off = self.cut(&mut image, &repo, cut, &acknowledged);
            totals.gc_failed += cut_off.with_context(|| format!("cut {cut}"))?;
            let all = std::mem::take(&mut *acknowledged.lock().map_err(|_| anyhow::anyhow!("a writer panicked"))?);
            let broken = self.check(&repo, &all, &mut totals).with_context(|| format!("after cut {cut}"))?;
            match self.durability {
                Durability::Power => {
                    ensure!(!broken, "cut {cut}: {totals:?}");
                    // A later cut must not take what survived an earlier one.
                    earlier.extend(all.into_iter().map(|(_, record)| record));
                    let reachable = repo.git(["rev-list", "--objects", "--glob=refs/pm/*"])?;
                    let reachable: BTreeSet<_> = reachable.lines().collect();
                    let lost = earlier.iter().find(|record| !reachable.contains(record.as_str()));
                    ensure!(lost.is_none(), "cut {cut}: {lost:?} had survived an earlier cut");
                }
                // Whatever is left is no ground to go on from.
                Durability::Process => {
                    image.format()?;
                    repo = self.init(&image)?;
                }
            }
            if (cut + 1) % 10 == 0 {
                say(&format!("power: {} cuts, {totals:?}", cut + 1));
            }
        }
        image.unmount()?;
        self.verdict(&totals)
    }

    fn verdict(&self, totals: &Totals) -> Result<Verdict> {
        let Totals { acknowledged, lost, unreadable, torn, gc_failed } = totals;
        let figures = format!(
            "{} cuts of {:?}{}, pm.durability={:?}: of {acknowledged} acknowledged records {lost} lost, {unreadable} tasks \
             unreadable; {torn} torn objects, git gc failed {gc_failed} times",
            self.cuts,
            self.fs,
            if self.gc { " with git gc before" } else { "" },
            self.durability,
        );
        if self.durability == Durability::Process {
            ensure!(*lost > 0, "nothing was lost without syncing, so this proof cannot fail: {figures}");
        }
        // A record that nobody was told of may be gone, but must leave nothing behind that stops git's maintenance.
        ensure!(*gc_failed == 0, "git gc no longer works: {figures}");
        Ok(Verdict::Held(figures))
    }

    fn init(&self, image: &Image) -> Result<Repo> {
        let repo = Repo::init(&image.mount_point.join("repo"))?;
        let durability = if self.durability == Durability::Process { "process" } else { "power" };
        repo.git(["config", "pm.durability", durability])?;
        // The ground that everything stands on is not what is put to the test.
        run_within(&mut isolated("sync"), STUCK)?.ok()?;
        Ok(repo)
    }

    /// Lets the writers write, cuts the power, and brings the file system back. Returns how often git's maintenance
    /// failed before the cut.
    fn cut(&self, image: &mut Image, repo: &Repo, cut: usize, acknowledged: &Acknowledged) -> Result<usize> {
        let stop = AtomicBool::new(false);
        let gc_failed = std::thread::scope(|scope| -> Result<usize> {
            let writer = |n: usize| Writer { repo, name: format!("c{cut}-w{n}"), acknowledged, stop: &stop };
            let mut writers: Vec<_> = (1..=self.writers).map(|n| scope.spawn(move || writer(n).work())).collect();
            writers.push(scope.spawn(move || writer(0).plan_batches()));
            std::thread::sleep(Duration::from_millis(100 + random_below(400)));
            let end = |writers: &mut Vec<std::thread::ScopedJoinHandle<'_, Result<()>>>| -> Result<()> {
                stop.store(true, Ordering::SeqCst);
                writers.drain(..).try_for_each(|writer| writer.join().ok().context("a writer")?)
            };
            let (mut maintenance, mut failed) = (None, 0);
            if self.gc {
                // What the cut is to take are the renames of the maintenance, so nobody else syncs meanwhile.
                end(&mut writers)?;
                let commands: [&[&str]; 2] = [&["gc", "--quiet"], &["pack-refs", "--all"]];
                for command in &commands[..1 + cut % 2] {
                    if cut % 4 == 3 {
                        maintenance = Some(repo.git_command(*command).stderr(Stdio::null()).spawn()?);
                        std::thread::sleep(Duration::from_millis(random_below(60)));
                        break;
                    }
                    failed += usize::from(!maintain(repo, command)?);
                }
                // One more record, whose syncs write out the journal: with the renames of the maintenance in it.
                let planned = repo.pm_json(["plan", "--slug", &format!("c{cut}-last"), "--title", "the last"])?;
                note(acknowledged, &format!("c{cut}-last"), text(&planned, "/status/sha")?)?;
            }
            // From here on commands may fail.
            stop.store(true, Ordering::SeqCst);
            image.shut_down()?;
            end(&mut writers)?;
            if let Some(mut maintenance) = maintenance {
                maintenance.wait()?;
            }
            Ok(failed)
        })?;
        image.unmount()?;
        image.mount()?;
        Ok(gc_failed)
    }

    /// Compares what is there with what was acknowledged. Whether anything is wrong.
    fn check(&self, repo: &Repo, all: &[(String, String)], totals: &mut Totals) -> Result<bool> {
        let mut chains: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (slug, record) in all {
            chains.entry(slug).or_default().insert(record);
        }
        let before = (totals.lost, totals.unreadable);
        for (slug, records) in &chains {
            let name = format!("refs/pm/tasks/default/{slug}");
            let chain = run_within(&mut repo.git_command(["rev-list", "--objects", &name, "--"]), STUCK)?;
            totals.unreadable += usize::from(!chain.status.success());
            let found: BTreeSet<_> = chain.stdout.lines().map(|line| line.split(' ').next().unwrap_or(line)).collect();
            totals.lost += records.difference(&found).count();
        }
        totals.acknowledged += all.len();
        let verified = run_within(&mut repo.pm_command(["verify", "--json"]), STUCK * 4)?;
        let broken = before != (totals.lost, totals.unreadable) || verified.code() != 0;
        if self.durability == Durability::Power {
            ensure!(verified.code() == 0, "pm verify: {}{}", verified.stdout, verified.stderr);
            // Files that were renamed into place before they were synced.
            let faults = repo.fsck()?;
            totals.torn += faults.iter().filter(|fault| fault.ends_with("is empty")).count();
            let missing: Vec<_> = faults.iter().filter(|fault| fault.starts_with("missing")).collect();
            ensure!(missing.is_empty(), "git fsck: {missing:?}");
            // The next command heals what a pm left that the cut took away: only then is git's maintenance free again.
            let slug = format!("after-{}", repo.tips()?.len());
            let next = repo.pm(["plan", "--slug", &slug, "--title", "after the cut"])?;
            ensure!(next.code() == 0, "after the cut: {}", next.stderr);
            if !self.gc {
                totals.gc_failed += usize::from(!maintain(repo, &["gc", "--quiet"])?);
            }
        }
        Ok(broken)
    }
}

/// One writer; it stops at its first failure after the cut.
struct Writer<'a> {
    repo: &'a Repo,
    name: String,
    acknowledged: &'a Acknowledged,
    stop: &'a AtomicBool,
}

impl Writer<'_> {
    /// Plans tasks and works them off.
    fn work(&self) -> Result<()> {
        for n in 0.. {
            let slug = format!("{}-{n}", self.name);
            let steps: [&[&str]; 6] = [
                &["plan", "--slug", &slug, "--title", "a task"],
                &["executing", "--task", &slug],
                &["heartbeat", "--task", &slug],
                &["heartbeat", "--task", &slug],
                &["report", "--task", &slug, "--title", "did it", "--text", "all of it"],
                &["finished", "--task", &slug],
            ];
            for step in steps {
                let Some(printed) = self.run(step)? else { return Ok(()) };
                let pointer = if step[0] == "plan" { "/status/sha" } else { "/sha" };
                note(self.acknowledged, &slug, text(&printed, pointer)?)?;
            }
        }
        Ok(())
    }

    /// Plans batches.
    fn plan_batches(&self) -> Result<()> {
        // Outside of the file system that is cut off.
        let plan = self.repo.dir.parent().and_then(Path::parent).context("scratch")?.join("batch.jsonl");
        for n in 0.. {
            let line = |task: usize| format!("{{\"slug\":\"{}-{n}-{task}\",\"title\":\"one of many\"}}\n", self.name);
            std::fs::write(&plan, (0..BATCH).map(line).collect::<String>())?;
            let Some(printed) = self.run(&["bulk-plan", "--input", &plan.to_string_lossy()])? else { return Ok(()) };
            for task in printed["tasks"].as_array().context("tasks")? {
                note(self.acknowledged, text(task, "/slug")?, text(task, "/task")?)?;
            }
        }
        Ok(())
    }

    /// Runs a command until it is acknowledged. Nothing when the power is gone, or the writer is to stop.
    fn run(&self, args: &[&str]) -> Result<Option<serde_json::Value>> {
        while !self.stop.load(Ordering::SeqCst) {
            let mut command = self.repo.pm_command(args);
            let done = run_within(command.args(["--json", "--agent", &self.name]), STUCK)?;
            match done.code() {
                0 => return done.json().map(Some),
                8 | 21 => {}
                _ if self.stop.load(Ordering::SeqCst) => return Ok(None),
                code => bail!("{args:?}: exit {code}: {}", done.stderr),
            }
        }
        Ok(None)
    }
}

/// Runs a maintenance command. Whether it succeeded; if not, what it said is printed.
fn maintain(repo: &Repo, command: &[&str]) -> Result<bool> {
    let done = run_within(&mut repo.git_command(command), STUCK * 4)?;
    if !done.status.success() {
        say(&format!("power: git {} failed: {}", command.join(" "), done.stderr.trim()));
    }
    Ok(done.status.success())
}

fn note(acknowledged: &Acknowledged, slug: &str, record: &str) -> Result<()> {
    let mut noted = acknowledged.lock().map_err(|_| anyhow::anyhow!("a writer panicked"))?;
    noted.push((slug.to_owned(), record.to_owned()));
    Ok(())
}
