//! One append: `pm heartbeat` beside `git commit-tree` and `git update-ref`, with everything synced and with nothing;
//! and the floor below it: a process, a pm that does nothing, one that opens the repository and reads a task.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::support::{Repo, isolated, text};
use crate::{Row, print_header, timed};

/// At most this part of git's pair is what is asked for, and this is the aim.
const BOUNDS: &str = "bound 0.70, aim 0.60";
/// How many commands run before the first that counts.
const WARM_UP: usize = 3;

/// A repository with a task that is being worked on, and a ref for git's own commits.
struct Ground {
    repo: Repo,
    /// Given to git on its command line.
    fsync: &'static [&'static str],
    message: String,
    git_tip: String,
}

const GIT_REF: &str = "refs/other/one";

impl Ground {
    fn new(dir: &Path, durability: &str, fsync: &'static [&'static str]) -> Result<Ground> {
        let repo = Repo::init(dir)?;
        repo.git(["config", "pm.durability", durability])?;
        if durability == "process" {
            // git's own defaults.
            repo.git(["config", "--unset", "core.fsync"])?;
        }
        repo.pm_json(["plan", "--slug", "one", "--title", "A task", "--agent", "w1"])?;
        repo.pm_json(["executing", "--task", "one", "--agent", "w1"])?;
        let heartbeat = repo.pm_json(["heartbeat", "--task", "one", "--agent", "w1"])?;
        // git writes the very same message.
        let message = repo.git(["log", "-1", "--format=%B", text(&heartbeat, "/sha")?])?;
        let git_tip = text(&heartbeat, "/sha")?.to_owned();
        repo.git(["update-ref", GIT_REF, &git_tip])?;
        Ok(Ground { repo, fsync, message: message.trim_end().to_owned(), git_tip })
    }

    fn heartbeat(&self) -> Result<Duration> {
        timed(&mut self.repo.pm_command(["heartbeat", "--task", "one", "--agent", "w1"]))
    }

    /// `git commit-tree` and `git update-ref`, as a script would run them.
    fn pair(&mut self) -> Result<Duration> {
        let started = Instant::now();
        let mut commit = self.repo.git_command(self.fsync);
        commit.args(["commit-tree", "-p", &self.git_tip, "-m", &self.message, EMPTY_TREE]);
        let output = commit.output()?;
        anyhow::ensure!(output.status.success(), "commit-tree: {}", String::from_utf8_lossy(&output.stderr));
        let new = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let mut update = self.repo.git_command(self.fsync);
        timed(update.args(["update-ref", GIT_REF, &new, &self.git_tip]))?;
        self.git_tip = new;
        Ok(started.elapsed())
    }
}

const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// Measures and prints.
pub fn measure(dir: &Path, runs: usize) -> Result<()> {
    std::fs::create_dir(dir)?;
    let mut power = Ground::new(&dir.join("power"), "power", &["-c", "core.fsync=all"])?;
    let mut process = Ground::new(&dir.join("process"), "process", &[])?;
    let mut rows = [
        "true",
        "pm --version",
        "pm show (opens the repository, reads one chain)",
        "pm heartbeat",
        "git commit-tree + update-ref, core.fsync=all",
        "pm heartbeat, pm.durability=process",
        "git commit-tree + update-ref, git's defaults",
    ]
    .map(Row::new);
    for run in 0..runs + WARM_UP {
        let took = [
            timed(&mut isolated("true"))?,
            timed(&mut power.repo.pm_command(["--version"]))?,
            timed(&mut power.repo.pm_command(["show", "--task", "one"]))?,
            power.heartbeat()?,
            power.pair()?,
            process.heartbeat()?,
            process.pair()?,
        ];
        if run >= WARM_UP {
            rows.iter_mut().zip(took).for_each(|(row, took)| row.took.push(took));
        }
    }
    print_header("one append");
    let ratio = |mine: usize, other: usize| rows[mine].median().as_secs_f64() / rows[other].median().as_secs_f64();
    for (index, row) in rows.iter().enumerate() {
        row.print(&match index {
            3 | 5 => format!("{:.2} of git's pair ({BOUNDS})", ratio(index, index + 1)),
            _ => String::new(),
        });
    }
    Ok(())
}
