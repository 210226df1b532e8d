//! The runner: a thousand tasks of a command that does nothing, beside shell loops of the single commands; and what a
//! runner costs that has nothing to do.
//!
//! What became of the tasks is counted by plain git. Processor time is that of whole process trees, by the kernel's word.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::support::{Repo, isolated, pm, poll_until, random_below, say, shown};
use crate::{Row, print_header, timed};

const TASKS: usize = 1000;
/// Agents of the runner, and shell loops.
const WORKERS: usize = 4;
/// Idle agents.
const IDLE: usize = 50;
/// The kernel counts processor time for users in hundredths of a second, on every platform.
const TICK: Duration = Duration::from_millis(10);
/// The bound of the start of one task.
const STUCK: Duration = Duration::from_secs(30);

/// What a worker does who has only the single commands. A lost race is tried again.
const LOOP: &str = r#"
    while :; do
        taken=$("$PM" pull --quiet --shell --agent "$0") || continue
        eval "$taken"
        [ -n "$TASK" ] || exit 0
        "$TRUE"
        "$PM" report --quiet --task "$TASK" --title done >/dev/null || exit
        "$PM" finished --quiet --task "$TASK" >/dev/null || exit
    done"#;

/// What one way of working off the tasks has cost.
#[derive(Default)]
struct Way {
    what: String,
    took: Vec<Duration>,
    processor: Vec<Duration>,
    heartbeats: usize,
    commits: usize,
}

/// A thousand tasks, both ways, in turns; then the idle runner.
pub fn measure(dir: &Path, runs: usize, long_runs: usize, idle: Duration) -> Result<()> {
    fs::create_dir(dir)?;
    let planned = planned(&dir.join("planned"))?;
    let mut worked = None;
    for durability in ["power", "process"] {
        planned.git(["config", "pm.durability", durability])?;
        let mut ways = [Way::new("pm work --agents 4 -- true"), Way::new("4 shell loops of pull, report, finished")];
        for run in 0..long_runs {
            for (number, way) in ways.iter_mut().enumerate() {
                let repo = planned.copy_to(&dir.join(format!("{durability}-{run}-{number}")))?;
                // What the copy left to be written is not the workers'.
                timed(&mut isolated("sync"))?;
                way.measure(&repo, if number == 0 { with_runner } else { with_loops })?;
                if number == 0 && worked.is_none() {
                    worked = Some(repo);
                } else {
                    fs::remove_dir_all(&repo.dir)?;
                }
            }
        }
        say("");
        let title = format!("{TASKS} tasks of true, durability {durability}");
        say(&format!(
            "{title:<46} {:>9} {:>9} {:>9} {:>12} {:>11} {:>11}",
            "tasks/s", "least", "most", "cpu ms/task", "beats/task", "commits"
        ));
        ways.iter().for_each(Way::print);
    }
    measure_idle(&worked.context("no run, so there is no ledger of done tasks")?, runs, idle)
}

impl Way {
    fn new(what: &str) -> Way {
        Way { what: what.to_owned(), ..Way::default() }
    }

    /// Works off all tasks of a repository, and counts what that took.
    fn measure(&mut self, repo: &Repo, start: fn(&Repo) -> Result<Vec<Child>>) -> Result<()> {
        let before = commits(repo)?;
        let (processor, started) = (processor_of_children()?, Instant::now());
        for mut worker in start(repo)? {
            let status = worker.wait()?;
            ensure!(status.success(), "{}: {status}", self.what);
        }
        self.took.push(started.elapsed());
        // Those whom a worker waited for count as its own.
        self.processor.push(processor_of_children()? - processor);
        self.commits += commits(repo)? - before;
        self.heartbeats += heartbeats(repo)?;
        let done = done(repo)?;
        ensure!(done == TASKS, "{}: {done} of {TASKS} tasks are done", self.what);
        Ok(())
    }

    fn print(&self) {
        let mut rates: Vec<f64> = self.took.iter().map(|took| TASKS as f64 / took.as_secs_f64()).collect();
        rates.sort_by(f64::total_cmp);
        let rate = |at: usize| rates.get(at).copied().unwrap_or_default();
        let mut processor: Vec<_> = self.processor.clone();
        processor.sort();
        let processor = processor.get(processor.len() / 2).copied().unwrap_or_default().as_secs_f64() * 1000.0;
        let tasks = (TASKS * self.took.len()) as f64;
        say(&format!(
            "{:<46} {:>9.1} {:>9.1} {:>9.1} {:>12.2} {:>11.3} {:>11.3}",
            self.what,
            rate(rates.len() / 2),
            rate(0),
            rate(rates.len().saturating_sub(1)),
            processor / TASKS as f64,
            self.heartbeats as f64 / tasks,
            self.commits as f64 / tasks,
        ));
    }
}

/// A ledger of a thousand tasks that nobody has touched.
fn planned(dir: &Path) -> Result<Repo> {
    let repo = Repo::init(dir)?;
    let line = |n: usize| format!("{{\"slug\":\"task-{n}\",\"title\":\"One of a thousand\"}}\n");
    let plan = dir.join("plan.jsonl");
    fs::write(&plan, (0..TASKS).map(line).collect::<String>())?;
    timed(repo.pm_command(["bulk-plan", "--quiet", "--input"]).arg(&plan))?;
    Ok(repo)
}

fn with_runner(repo: &Repo) -> Result<Vec<Child>> {
    let mut command = repo.pm_command(["work", "--quiet", "--json", "--agent", "runner", "--until-empty"]);
    Ok(vec![start(command.args(["--agents", &WORKERS.to_string(), "--", "true"]))?])
}

fn with_loops(repo: &Repo) -> Result<Vec<Child>> {
    // The shell's own true would be no process.
    let program = ["/usr/bin/true", "/bin/true"].into_iter().find(|path| Path::new(path).exists());
    let program = program.context("the program true")?;
    let start_loop = |number: usize| {
        let mut command = isolated("sh");
        command.args(["-c", LOOP, &format!("loop-{number}")]).current_dir(&repo.dir);
        start(command.env("PM", pm()).env("TRUE", program))
    };
    (0..WORKERS).map(start_loop).collect()
}

fn start(command: &mut Command) -> Result<Child> {
    command.stdout(Stdio::null()).spawn().with_context(|| shown(command))
}

fn commits(repo: &Repo) -> Result<usize> {
    Ok(repo.git(["rev-list", "--count", "--glob=refs/pm/"])?.trim().parse()?)
}

fn heartbeats(repo: &Repo) -> Result<usize> {
    let log = repo.git(["log", "--glob=refs/pm/", "--format=%(trailers:key=Record,valueonly)"])?;
    Ok(log.lines().filter(|line| *line == "TaskHeartbeat").count())
}

/// How many tasks were closed as done.
fn done(repo: &Repo) -> Result<usize> {
    let log = repo.git(["log", "--glob=refs/pm/", "--format=%(trailers:key=Status,valueonly)"])?;
    Ok(log.lines().filter(|line| *line == "done").count())
}

/// The processor time of all processes that this one has waited for, and of those that they have.
fn processor_of_children() -> Result<Duration> {
    ticks("self", 13)
}

/// The processor time of a process itself.
fn processor_of(process: &Child) -> Result<Duration> {
    ticks(&process.id().to_string(), 11)
}

/// Two neighbouring counters of `/proc/<process>/stat`, the time in programs and in the kernel, added up. They are
/// counted from 0 behind the name.
fn ticks(process: &str, at: usize) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<_> = stat.rsplit_once(')').context("a name")?.1.split_whitespace().collect();
    let [user, system] = fields.get(at..at + 2).context("a counter")? else { return Ok(Duration::ZERO) };
    Ok(TICK * (user.parse::<u32>()? + system.parse::<u32>()?))
}

/// Fifty agents that wait over a ledger of done tasks; then how soon they start what is planned.
fn measure_idle(repo: &Repo, runs: usize, idle: Duration) -> Result<()> {
    let started = repo.dir.join("started");
    fs::create_dir(&started)?;
    let mut command = repo.pm_command(["work", "--quiet", "--json", "--agent", "idle", "--forever"]);
    command.args(["--agents", &IDLE.to_string(), "--", "sh", "-c", ": >\"$OUT/$PM_SLUG\""]).env("OUT", &started);
    let runner = Killed(start(&mut command)?);
    // Until they have read the ledger, and found nothing.
    std::thread::sleep(Duration::from_secs(5).min(idle));
    let (before, since) = (processor_of(&runner.0)?, Instant::now());
    std::thread::sleep(idle);
    let used = processor_of(&runner.0)? - before;
    let took = since.elapsed();

    let mut from_plan = Row::new("from the end of pm plan to the command's start");
    for number in 0..runs {
        // The longest pause between two looks is reached by then; and any moment of it is met.
        std::thread::sleep(Duration::from_millis(3_000 + random_below(1_000)));
        let slug = format!("late-{number}");
        timed(&mut repo.pm_command(["plan", "--slug", &slug, "--title", "One more"]))?;
        let planned = Instant::now();
        let file = started.join(&slug);
        poll_until("the start of a task", STUCK, || Ok(file.exists()))?;
        from_plan.took.push(planned.elapsed());
    }
    print_header(&format!("{IDLE} idle agents of one pm work, over {TASKS} done tasks"));
    from_plan.print("");
    say(&format!(
        "{:<58} {:>8.2}% of a core, {:.2} s in {:.0} s",
        "processor time while nothing happens",
        used.as_secs_f64() / took.as_secs_f64() * 100.0,
        used.as_secs_f64(),
        took.as_secs_f64()
    ));
    Ok(())
}

/// Killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}
