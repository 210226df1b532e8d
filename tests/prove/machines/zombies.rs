//! Zombies: a worker is stopped for longer than its lease, its task is taken over on another machine, and when it wakes
//! up it can neither record nor deliver anything.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use super::history::History;
use super::scene::{Fleet, Machine, PATIENCE, Way};
use super::told::Told;
use crate::random::Random;
use crate::support::{Repo, pm, poll_until};

const TTL: &str = "300ms";
/// The branch that every second worker delivers to.
const BRANCH: &str = "refs/heads/delivered";
/// Claims, reports, says so, waits until it is told to go on, and finishes. Then it tells how that ended.
const ZOMBIE: &str = r#"
"$PM" -C "$REPO" executing --task "$SLUG" --ttl 300ms --json >"$LOG/claim" || exit 1
"$PM" -C "$REPO" report --task "$SLUG" --title "the zombie's" --json >"$LOG/report" || exit 1
[ -n "$EARLY" ] || : >"$LOG/ready"
while [ ! -e "$LOG/go" ]; do sleep 0.02; done
[ -z "$EARLY" ] || : >"$LOG/ready"
"$PM" -C "$REPO" finished --task "$SLUG" --json "$@" >"$LOG/finished" 2>&1
echo $? >"$LOG/code.new"
mv "$LOG/code.new" "$LOG/code"
"#;

/// When a worker is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    /// Before it finishes; the other has done the task when it wakes up.
    OtherIsDone,
    /// Before it finishes; the other is still at it when it wakes up.
    OtherWorks,
    /// While it finishes, anywhere in between.
    Finishing,
}

/// A stopped worker and all that it started, killed when dropped.
struct Zombie(Child);

impl Zombie {
    fn signal(&self, signal: Signal) -> Result<()> {
        kill_process_group(Pid::from_child(&self.0), signal).with_context(|| format!("{signal:?}"))
    }
}

impl Drop for Zombie {
    fn drop(&mut self) {
        let _gone = self.signal(Signal::KILL);
        let _reaped = self.0.wait();
    }
}

/// Stops so many workers.
pub fn prove(dir: &Path, times: usize) -> Result<String> {
    let line = |n: usize| format!("{{\"slug\":\"task-{n}\",\"title\":\"One of some\"}}\n");
    let plan: String = (0..times).map(line).collect();
    fs::create_dir(dir)?;
    let fleet = Fleet::new(dir, Way::Daemon, 2, &plan, &[("pm.durability", "process")])?;
    let mut random = Random::new(getrandom::u64()?);
    let here = &fleet.machines[0].repo;
    commit(here)?;
    here.git(["push", "--quiet", "origin", &format!("HEAD:{BRANCH}")])?;
    let (mut robbed, mut in_time, mut delivering) = (0, 0, 0);
    for round in 0..times {
        let stopped = [Stopped::OtherIsDone, Stopped::OtherWorks, Stopped::Finishing][round % 3];
        let log = dir.join(format!("zombie-{round}"));
        fs::create_dir(&log)?;
        let delivers = round % 2 == 1;
        delivering += usize::from(delivers);
        let told = one(&fleet, &format!("task-{round}"), &log, stopped, delivers, &mut random);
        match told.with_context(|| format!("zombie {round}, {stopped:?}")) {
            Ok(true) => robbed += 1,
            Ok(false) => in_time += 1,
            Err(error) => {
                fleet.keep_hub(dir);
                return Err(error);
            }
        }
    }
    fleet.settle()?;
    fleet.check()?.check_all_done()?;
    Ok(format!(
        "{times} workers stopped for longer than their lease, {delivering} of them delivering a branch: {robbed} robbed, \
         none of which moved a ref or the branch (6 or 12), {in_time} had finished before they were stopped, and kept that"
    ))
}

/// Whether the worker was robbed.
fn one(fleet: &Fleet, slug: &str, log: &Path, stopped: Stopped, delivers: bool, random: &mut Random) -> Result<bool> {
    let [here, there] = &fleet.machines[..] else { anyhow::bail!("two machines") };
    let branch = || fleet.at_hub().git(["rev-parse", BRANCH]);
    let work = commit(&here.repo)?;
    let branch_before = branch()?;
    let zombie = start(here, slug, log, stopped, delivers)?;
    let go = || fs::write(log.join("go"), "").context("go");
    if stopped == Stopped::Finishing {
        go()?;
    }
    poll_until("the worker is ready", PATIENCE, || Ok(log.join("ready").exists()))?;
    if stopped == Stopped::Finishing {
        // Where in its last command it stops is left to chance.
        std::thread::sleep(random.ms(0, 120));
    }
    zombie.signal(Signal::STOP)?;

    let step = |args: &[&str]| -> Result<Told> {
        Told::run(1, there, "heir", slug, args.iter().map(|&arg| arg.to_owned()).collect())
    };
    let swept = step(&["sweep", "--wait", "--ttl", TTL])?;
    ensure!(swept.code == 0, "{}", swept.shown());
    let claimed = step(&["executing", "--task", slug])?;
    if claimed.code == 6 && stopped == Stopped::Finishing {
        // It had finished before it was stopped.
        go_on(&zombie, log, &go)?;
        let code = fs::read_to_string(log.join("code"))?;
        ensure!(
            code.trim() == "0",
            "it had finished, and was told {code}: {}",
            fs::read_to_string(log.join("finished"))?
        );
        let expected = if delivers { work } else { branch_before };
        ensure!(branch()? == expected, "it had finished, and the branch is at {} instead of {expected}", branch()?);
        return Ok(false);
    }
    ensure!(claimed.code == 0, "{}", claimed.shown());
    let reported = step(&["report", "--task", slug, "--title", "the heir's"])?;
    ensure!(reported.code == 0, "{}", reported.shown());
    if stopped != Stopped::OtherWorks {
        let finished = step(&["finished", "--task", slug])?;
        ensure!(finished.code == 0, "{}", finished.shown());
    }
    let before = fleet.at_hub().tips()?;
    go_on(&zombie, log, &go)?;
    let (code, said) = (fs::read_to_string(log.join("code"))?, fs::read_to_string(log.join("finished"))?);
    // A closed task is named as such: nobody holds it.
    let expected: &[&str] = if stopped == Stopped::OtherWorks { &["12"] } else { &["6", "12"] };
    ensure!(expected.contains(&code.trim()), "the zombie's finish ended with {}: {said}", code.trim());
    ensure!(fleet.at_hub().tips()? == before, "the zombie moved a ref: {said}");
    ensure!(branch()? == branch_before, "the zombie moved the branch: {said}");
    if stopped == Stopped::OtherWorks {
        let finished = step(&["finished", "--task", slug])?;
        ensure!(finished.code == 0, "{}", finished.shown());
    }
    let history = History::read(&fleet.at_hub())?;
    let chain = history.chains.get(slug).context("a chain")?;
    let end = chain.last().context("records")?;
    ensure!(end.status == "done" && end.agent == "heir", "closed by {end:?}");
    Ok(true)
}

/// Some work: a commit on top of what there is.
fn commit(repo: &Repo) -> Result<String> {
    repo.git(["commit", "--quiet", "--allow-empty", "--message", "Work"])?;
    repo.git(["rev-parse", "HEAD"])
}

/// A worker in a process group of its own.
fn start(machine: &Machine, slug: &str, log: &Path, stopped: Stopped, delivers: bool) -> Result<Zombie> {
    let mut command = crate::support::isolated("sh");
    command.args(["-c", ZOMBIE, "zombie"]).args(if delivers { &["--deliver", "delivered"][..] } else { &[] });
    command.env("PM", pm()).env("REPO", &machine.repo.dir).env("SLUG", slug).env("LOG", log);
    command.env("PM_AGENT_ID", "zombie").env("EARLY", if stopped == Stopped::Finishing { "1" } else { "" });
    let said = File::create(log.join("said"))?;
    command.stdout(said.try_clone()?).stderr(said).stdin(Stdio::null()).process_group(0);
    Ok(Zombie(command.spawn()?))
}

/// Wakes the worker up, and waits until its last command has ended.
fn go_on(zombie: &Zombie, log: &Path, go: &dyn Fn() -> Result<()>) -> Result<()> {
    go()?;
    zombie.signal(Signal::CONT)?;
    poll_until("the zombie's end", PATIENCE, || Ok(log.join("code").exists()))
}
