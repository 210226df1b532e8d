//! A hub and its machines: what one record costs that is written through, and what a synchronisation costs, by the number
//! of tasks at the hub. Beside `git ls-remote`, which no synchronisation can do without.
//!
//! The machines do not sync their files (`pm.durability=process`), so that the network's part is seen; the hub does.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::servers::{GitDaemon, HttpBackend, Hub, Proxy, Server, Sshd};
use crate::support::{Repo, isolated, pm, say, text};
use crate::{Row, print_header, timed};

/// How many tasks there are at the hub, by turns.
const SIZES: [usize; 3] = [100, 10_000, 50_000];
/// How many tasks change at once.
const CHANGED: usize = 10_000;

/// Measures and prints.
pub fn measure(dir: &Path, runs: usize, long_runs: usize) -> Result<()> {
    if let Some(what) = GitDaemon::lacks() {
        say(&format!("machines: skipped: needs {what}"));
        return Ok(());
    }
    fs::create_dir(dir)?;
    each_server(&dir.join("servers"), runs)?;
    for size in SIZES {
        let dir = dir.join(size.to_string());
        fs::create_dir(&dir)?;
        sized(&dir, size, runs, long_runs)?;
        fs::remove_dir_all(&dir)?;
    }
    changed(&dir.join("changed"), long_runs)
}

/// A hub with so many tasks, all new.
fn hub_of(dir: &Path, tasks: usize) -> Result<Hub> {
    let hub = Hub::new();
    let line = |n: usize| format!("{{\"slug\":\"task-{n}\",\"title\":\"One of many\"}}\n");
    let plan = dir.join("plan.jsonl");
    fs::write(&plan, (0..tasks).map(line).collect::<String>())?;
    let mut planned = isolated(pm());
    planned.arg("-C").arg(hub.path()).args(["bulk-plan", "--quiet", "--agent", "planner", "--input"]).arg(&plan);
    timed(&mut planned)?;
    Ok(hub)
}

/// A machine with this URL as its authority.
fn machine(dir: &Path, url: &str) -> Result<Repo> {
    let repo = Repo::init(dir)?;
    repo.git(["remote", "add", "origin", url])?;
    for (key, value) in [("pm.durability", "process"), ("pm.remote", "origin")] {
        repo.git(["config", key, value])?;
    }
    Ok(repo)
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

fn sync(repo: &Repo) -> Result<Duration> {
    timed(&mut repo.pm_command(["sync"]))
}

/// One heartbeat over each server, at a hub of a hundred tasks.
fn each_server(dir: &Path, runs: usize) -> Result<()> {
    fs::create_dir(dir)?;
    let hub = hub_of(dir, 100)?;
    let mut lines: Vec<(Repo, Row)> = Vec::new();
    let mut add = |name: &str, url: &str, ssh: Option<String>| -> Result<()> {
        let repo = machine(&dir.join(name), url)?;
        if let Some(ssh) = ssh {
            repo.git(["config", "core.sshCommand", &ssh])?;
        }
        sync(&repo)?;
        let slug = format!("task-{}", lines.len());
        repo.pm_json(["executing", "--task", &slug, "--agent", "w1"])?;
        lines.push((repo, Row::new(&format!("pm heartbeat, written through {name}"))));
        Ok(())
    };
    let daemon = GitDaemon::start(&hub);
    add("a path", &hub.path().display().to_string(), None)?;
    add("git daemon", &daemon.url(), None)?;
    let http = HttpBackend::lacks().is_none().then(|| HttpBackend::start(&hub));
    if let Some(http) = &http {
        add("http", &http.url(), None)?;
    }
    let sshd = Sshd::lacks().is_none().then(|| Sshd::start(&hub));
    if let Some(sshd) = &sshd {
        add("ssh", &sshd.url(), Some(sshd.ssh_command()))?;
    }
    for _ in 0..runs {
        for (at, (repo, row)) in lines.iter_mut().enumerate() {
            let slug = format!("task-{at}");
            row.took.push(timed(&mut repo.pm_command(["heartbeat", "--task", &slug, "--agent", "w1"]))?);
        }
    }
    print_header("one record, by the way to the hub (100 tasks)");
    lines.iter().for_each(|(_, row)| row.print(""));
    Ok(())
}

/// Claims and syncs at a hub of one size.
fn sized(dir: &Path, size: usize, runs: usize, long_runs: usize) -> Result<()> {
    let hub = hub_of(dir, size)?;
    let daemon = GitDaemon::start(&hub);
    let proxy = Proxy::start(daemon.addr());
    let url = daemon.url_at(proxy.addr());
    let carried = |before: u64| proxy.carried_bytes() - before;

    let mut first = Row::new("first pm sync of a fresh clone");
    let mut first_bytes = 0;
    for run in 0..long_runs {
        let repo = machine(&dir.join(format!("fresh-{run}")), &url)?;
        let before = proxy.carried_bytes();
        first.took.push(sync(&repo)?);
        first_bytes = carried(before);
        fs::remove_dir_all(&repo.dir)?;
    }

    let over_tcp = machine(&dir.join("tcp"), &url)?;
    let by_path = machine(&dir.join("path"), &hub.path().display().to_string())?;
    sync(&over_tcp)?;
    sync(&by_path)?;
    let mut rows = [
        "pm sync, nothing to do, git daemon",
        "git ls-remote 'refs/pm/tasks/*', git daemon",
        "pm sync, nothing to do, by path",
        "git ls-remote 'refs/pm/tasks/*', by path",
        "pm executing, git daemon",
        "git push of one new ref (the floor), git daemon",
        "pm executing, by path",
        "git push of one new ref (the floor), by path",
    ]
    .map(Row::new);
    let mut bytes = [0; 8];
    let mut next = 0;
    let mut slug = || {
        next += 1;
        format!("task-{}", next - 1)
    };
    let runs = runs.min(size / 2);
    for run in 0..runs {
        // What the last round claimed by the other way is none of the next sync's business.
        sync(&over_tcp)?;
        sync(&by_path)?;
        let claim = |repo: &Repo, slug: &str| timed(&mut repo.pm_command(["executing", "--task", slug]));
        let listed = |repo: &Repo| timed(&mut repo.git_command(["ls-remote", "origin", "refs/pm/tasks/*"]));
        let pushed = |repo: &Repo, tip: &str, way: &str| {
            timed(&mut repo.git_command(["push", "-q", "origin", &format!("{tip}:refs/floor/{way}-{run}")]))
        };
        // An object that the hub has already: the least that a push can be.
        let tip = by_path.git(["rev-parse", "refs/pm/tasks/default/task-0"])?;
        let tip = tip.trim();
        let (one, other) = (slug(), slug());
        let steps: [(usize, &dyn Fn() -> Result<Duration>); 8] = [
            (0, &|| sync(&over_tcp)),
            (1, &|| listed(&over_tcp)),
            (2, &|| sync(&by_path)),
            (3, &|| listed(&by_path)),
            (4, &|| claim(&over_tcp, &one)),
            (5, &|| pushed(&over_tcp, tip, "tcp")),
            (6, &|| claim(&by_path, &other)),
            (7, &|| pushed(&by_path, tip, "path")),
        ];
        for (index, step) in steps {
            let before = proxy.carried_bytes();
            rows[index].took.push(step()?);
            bytes[index] = carried(before);
        }
    }

    print_header(&format!("a hub of {size} tasks"));
    let ratio = |mine: usize| ms(rows[mine].median()) / ms(rows[mine + 1].median());
    first.print(&format!("{first_bytes} bytes"));
    for (index, row) in rows.iter().enumerate() {
        row.print(&match index {
            0 => format!("{:.2} of git ls-remote (bound 2.00), {} bytes", ratio(0), bytes[0]),
            2 => format!("{:.2} of git ls-remote (bound 2.00)", ratio(2)),
            4 => format!("{:.2} of the push, {} bytes", ratio(4), bytes[4]),
            6 => format!("{:.2} of the push", ratio(6)),
            1 | 5 => format!("{} bytes", bytes[index]),
            _ => String::new(),
        });
    }
    Ok(())
}

/// A sync of many tasks that changed: each was claimed, here or there.
fn changed(dir: &Path, long_runs: usize) -> Result<()> {
    fs::create_dir(dir)?;
    let hub = hub_of(dir, CHANGED)?;
    let daemon = GitDaemon::start(&hub);
    let worker = machine(&dir.join("worker"), &daemon.url())?;
    sync(&worker)?;
    let idle = worker.copy_to(&dir.join("idle"))?;
    claim_all(&worker)?;

    let mut push = Row::new("pm sync, 10,000 tasks to push");
    let mut take = Row::new("pm sync, 10,000 tasks to take");
    for run in 0..long_runs {
        // A second hub, so that every run begins alike.
        let other = Hub::new();
        copy_hub(&hub, &other)?;
        let daemon = GitDaemon::start(&other);
        let (pushes, takes) =
            (worker.copy_to(&dir.join(format!("push-{run}")))?, idle.copy_to(&dir.join(format!("take-{run}")))?);
        for repo in [&pushes, &takes] {
            repo.git(["remote", "set-url", "origin", &daemon.url()])?;
        }
        timed(&mut isolated("sync"))?;
        push.took.push(sync(&pushes)?);
        let started = Instant::now();
        let output = takes.pm_command(["sync", "--json"]).output()?;
        take.took.push(started.elapsed());
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let taken = told["taken"].as_array().context("a list")?.len();
        ensure!(taken == CHANGED, "{taken} tasks were taken, not {CHANGED}");
        fs::remove_dir_all(&pushes.dir)?;
        fs::remove_dir_all(&takes.dir)?;
    }
    print_header("a hub of 10,000 tasks, each of which was claimed");
    push.print("");
    take.print("");
    Ok(())
}

/// Makes `to` what `from` is.
fn copy_hub(from: &Hub, to: &Hub) -> Result<()> {
    let refs = "refs/pm/*:refs/pm/*";
    let mut fetch = isolated("git");
    fetch.arg("--git-dir").arg(to.path()).args(["fetch", "--quiet", "--no-tags"]).arg(from.path()).arg(refs);
    timed(&mut fetch)?;
    to.git(&["pack-refs", "--all"]);
    Ok(())
}

/// Claims every task, for now only here.
fn claim_all(repo: &Repo) -> Result<()> {
    for n in 0..CHANGED {
        let slug = format!("task-{n}");
        timed(&mut repo.pm_command(["executing", "--offline", "--task", &slug, "--agent", "w1"]))?;
    }
    let claimed = repo.pm_json(["status"])?;
    let working = claimed.pointer("/queues/default/working").and_then(serde_json::Value::as_u64);
    ensure!(working == Some(CHANGED as u64), "not all were claimed: {}", text(&claimed, "/queues").unwrap_or_default());
    Ok(())
}
