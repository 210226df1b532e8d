//! The poller: of two that start at once one runs, whatever was killed before; its heartbeat is whole whatever is killed
//! while it is written; and it does not grow.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::Verdict;
use crate::support::{Repo, STUCK, isolated, pm, run_within, say};

/// What is called on the files of the heartbeat.
const CALLS: [&str; 8] = ["openat", "statx", "newfstatat", "write", "fsync", "close", "rename", "unlink"];
/// More calls of one kind than two heartbeats make.
const CALLS_MAX: usize = 50;
/// The most memory of its own that it may have over one task, however many cycles it ran, in KiB. It is another in each
/// run, and goes up and down in steps of the heap: 412 to 744 in sixty runs of 1,000 to 10,000 cycles.
const OWN_KIB: u64 = 1_024;

/// Pollers started at once, killed, watched: one runs, its heartbeat is whole, it does not grow
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rounds of two starts at once; every second poller is killed, not stopped
    #[arg(long, default_value_t = 500)]
    rounds: usize,
    /// Reads of the heartbeat while it is rewritten and its writer killed
    #[arg(long, default_value_t = 100_000)]
    reads: usize,
    /// Cycles in which the poller must not grow
    #[arg(long, default_value_t = 10_000)]
    cycles: usize,
    /// Tasks that an idle cycle reads
    #[arg(long, default_value_t = 10_000)]
    tasks: usize,
}

impl Args {
    pub fn quick() -> Args {
        Args { rounds: 10, reads: 2_000, cycles: 2_000, tasks: 100 }
    }

    pub fn run(&self, scratch: &Path) -> Result<Verdict> {
        let starts = self.starts(&Repo::init(&scratch.join("starts"))?)?;
        say(&format!("poller: {starts}"));
        let heartbeats = self.heartbeats(&Repo::init(&scratch.join("heartbeats"))?)?;
        say(&format!("poller: {heartbeats}"));
        let idle = self.idle(&Repo::init(&scratch.join("idle"))?)?;
        Ok(Verdict::Held(format!("{starts}; {heartbeats}; {idle}")))
    }

    /// Two starts at once, round after round: one runs, and it is the one that both name.
    fn starts(&self, repo: &Repo) -> Result<String> {
        let _none_is_left = Stopped(repo);
        let (mut killed, mut longest) = (0, Duration::ZERO);
        for round in 0..self.rounds {
            let started = Instant::now();
            let start = || {
                let mut command = repo.pm_command(["poll", "start", "--json", "--interval", "2ms"]);
                command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
            };
            let (one, other) = (start()?, start()?);
            let outputs = [one.wait_with_output()?, other.wait_with_output()?];
            longest = longest.max(started.elapsed());
            let won: Vec<_> = outputs.iter().filter(|output| output.status.success()).collect();
            let lost: Vec<_> = outputs.iter().filter(|output| output.status.code() == Some(1)).collect();
            ensure!(won.len() == 1 && lost.len() == 1, "round {round}: {outputs:?}");
            let pid = serde_json::from_slice::<Value>(&won[0].stdout)?["pid"].clone();
            let named = serde_json::from_slice::<Value>(&lost[0].stderr)?["error"]["pid"].clone();
            ensure!(named == pid, "round {round}: the loser names {named}, the winner is {pid}: {lost:?}");
            let running = pollers(repo)?;
            ensure!(running.len() == 1 && pid == running[0], "round {round}: {running:?} run, {pid} should");
            if round % 2 == 0 {
                let pid = Pid::from_raw(running[0]).context("a process id")?;
                kill_process(pid, Signal::KILL)?;
                killed += 1;
                // What the kernel frees a moment after the kill is free; nothing is cleaned up by hand.
                let started = Instant::now();
                while is_running(repo)? {
                    ensure!(started.elapsed() < STUCK, "round {round}: the lock of a killed poller is still held");
                }
            } else {
                repo.pm(["poll", "stop"])?.ok()?;
                ensure!(pollers(repo)?.is_empty(), "round {round}: it was stopped, and is there");
            }
        }
        Ok(format!(
            "{} rounds of two starts, one ran each; {killed} were killed and left nothing to clean up; a round took at most {} ms",
            self.rounds,
            longest.as_millis()
        ))
    }

    /// SIGKILL at every syscall on the heartbeat's files, beside a reader that never sees half of one.
    fn heartbeats(&self, repo: &Repo) -> Result<String> {
        if run_within(Command::new("strace").arg("-V"), STUCK).is_err() {
            return Ok("no strace: no heartbeat was killed".to_owned());
        }
        repo.pm(["poll", "run", "--once"])?.ok()?;
        let path = repo.git_dir().join("pm/poll-status.json");
        let temporary = path.with_extension("json.tmp");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read_again_and_again(&path, self.reads, &done));
            let result = (|| {
                let mut points = 0;
                loop {
                    for call in CALLS {
                        for nth in 1..=CALLS_MAX {
                            let killed = killed_at(repo, &[&path, &temporary], call, nth)?;
                            points += usize::from(killed);
                            ensure!(!is_running(repo)?, "{call} {nth}: a killed poller holds the lock");
                            if !killed {
                                break;
                            }
                            let again = repo.pm(["poll", "run", "--once"])?;
                            again.ok().with_context(|| format!("after a kill at {call} {nth}"))?;
                        }
                    }
                    if reader.is_finished() {
                        return Ok(points);
                    }
                }
            })();
            done.store(true, Ordering::Relaxed);
            let reads = reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
            let points = result?;
            Ok(format!("{points} kills while the heartbeat was written, none of {reads} reads saw half of one"))
        })
    }

    /// What a cycle costs that finds nothing to do, and whether thousands of them make the process grow.
    fn idle(&self, repo: &Repo) -> Result<String> {
        let line = |n: usize| format!("{{\"slug\":\"task-{n}\",\"title\":\"One of many\"}}\n");
        let plan = repo.dir.join("plan.jsonl");
        fs::write(&plan, (0..self.tasks).map(line).collect::<String>())?;
        repo.pm(["bulk-plan", "--quiet", "--input", &plan.display().to_string()])?.ok()?;
        let poller = Poller::run(repo, "1ms")?;
        let wait = |cycles: usize| poller.wait_for_cycles(cycles);
        wait(20)?;
        let (before, cpu_before, at) = (poller.memory_kib()?, poller.cpu_ms()?, Instant::now());
        wait(40)?;
        let (cpu, took) = ((poller.cpu_ms()? - cpu_before) / 20, at.elapsed().as_millis() / 20);
        let peak = poller.memory_kib()?;
        drop(poller);

        let small = Repo::init(&repo.dir.join("small"))?;
        small.pm_json(["plan", "--title", "one"])?;
        let poller = Poller::run(&small, "1ms")?;
        let warm = self.cycles / 4;
        poller.wait_for_cycles(warm)?;
        let young = poller.memory_kib()?;
        poller.wait_for_cycles(self.cycles)?;
        let old = poller.memory_kib()?;
        ensure!(old <= OWN_KIB, "it grew from {young} KiB to {old} KiB in {} cycles", self.cycles);
        Ok(format!(
            "a cycle over {} tasks with nothing to do takes {took} ms ({cpu} ms of processor time), in {} KiB of memory \
             ({before} after 20 cycles); after {} cycles over one task {old} KiB, after {warm} it was {young}",
            self.tasks, peak, self.cycles
        ))
    }
}

/// A poller in the foreground that prints a line of JSON for each cycle, killed when dropped.
struct Poller {
    child: Child,
    lines: std::cell::RefCell<std::io::Lines<std::io::BufReader<std::process::ChildStdout>>>,
    seen: std::cell::Cell<usize>,
}

impl Poller {
    fn run(repo: &Repo, interval: &str) -> Result<Poller> {
        use std::io::BufRead;
        let mut command = repo.pm_command(["poll", "run", "--json", "--interval", interval]);
        // What is free at the end of its heap goes back at once, so that its memory is what it holds.
        command.env("MALLOC_TRIM_THRESHOLD_", "0").env("MALLOC_TOP_PAD_", "0");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let stdout = child.stdout.take().context("a pipe")?;
        let lines = std::io::BufReader::new(stdout).lines().into();
        Ok(Poller { child, lines, seen: 0.into() })
    }

    /// Waits until so many cycles are over since the start.
    fn wait_for_cycles(&self, cycles: usize) -> Result<()> {
        while self.seen.get() < cycles {
            let line = self.lines.borrow_mut().next().context("it ended")??;
            let cycle: Value = serde_json::from_str(&line)?;
            ensure!(cycle["errors"] == 0, "{line}");
            self.seen.set(self.seen.get() + 1);
        }
        Ok(())
    }

    fn proc(&self, file: &str) -> Result<String> {
        Ok(fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))?)
    }

    /// What it has of the memory now, of its own: pages of the program itself come and go with what else the machine does.
    fn memory_kib(&self) -> Result<u64> {
        // Counted page by page. `status` has the same figure, but of a counter for each processor of which a process may
        // be 32 pages behind: 128 KiB that come and go.
        let rollup = self.proc("smaps_rollup")?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).context("Anonymous")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }

    /// The processor time that it has used.
    fn cpu_ms(&self) -> Result<u64> {
        let stat = self.proc("schedstat")?;
        Ok(stat.split(' ').next().context("a number")?.parse::<u64>()? / 1_000_000)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Stops the poller of a repository, also when the proof is broken.
struct Stopped<'a>(&'a Repo);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _stopped = self.0.pm(["poll", "stop"]);
    }
}

/// The processes that poll this repository, by the system's word.
fn pollers(repo: &Repo) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    let cwd = fs::canonicalize(repo.git_dir())?;
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let polls = String::from_utf8_lossy(&line).contains("\0poll\0run\0");
        if polls && fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|dir| dir == cwd) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn is_running(repo: &Repo) -> Result<bool> {
    match repo.pm(["poll", "status"])?.code() {
        0 => Ok(true),
        3 => Ok(false),
        code => bail!("poll status exits with {code}"),
    }
}

/// Runs one cycle that is killed at the nth call of this kind on one of these paths; whether it came to that.
fn killed_at(repo: &Repo, paths: &[&PathBuf], call: &str, nth: usize) -> Result<bool> {
    let mut command = isolated("strace");
    command.args(["-qq", "-o", "/dev/null"]);
    for path in paths {
        command.arg("-P").arg(path);
    }
    command.args(["-e", &format!("inject={call}:signal=KILL:when={nth}")]);
    command.arg(pm()).arg("-C").arg(&repo.dir).args(["poll", "run", "--once"]);
    let done = run_within(&mut command, STUCK)?;
    let killed = done.status.signal() == Some(9) || done.status.code() == Some(137);
    ensure!(killed || done.status.success(), "{call} {nth}: {}: {}", done.status, done.stderr);
    Ok(killed)
}

/// Reads the heartbeat until that was often enough and `done` is said. Returns how often.
fn read_again_and_again(path: &Path, at_least: usize, done: &AtomicBool) -> Result<usize> {
    let mut reads = 0;
    while reads < at_least && !done.load(Ordering::Relaxed) {
        let bytes = fs::read(path)?;
        let value: Value = serde_json::from_slice(&bytes)
            .with_context(|| format!("half a heartbeat: {}", String::from_utf8_lossy(&bytes)))?;
        ensure!(value["startedAt"].is_string() && value.get("lastCycle").is_some(), "{value}");
        reads += 1;
        // Not faster than the kills: a read takes a hundredth of what a kill does.
        if reads % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(reads)
}
