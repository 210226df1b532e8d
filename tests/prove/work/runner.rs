//! A `pm work` as a process of its own, and what it told.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{SWEEPER, Scene, TTL, process};
use crate::support::{STUCK, poll_until, run_within, text};

/// A running `pm work`. Its output goes to files, so that nobody has to listen for it to go on.
pub struct Runner {
    pub name: String,
    pub child: Child,
    told: PathBuf,
}

impl Runner {
    /// Starts one that runs `script` with sh for each task.
    pub fn start(scene: &Scene, name: &str, options: &[&str], script: &str) -> Result<Runner> {
        let told = scene.journal.with_file_name(format!("{name}.told"));
        let mut command = scene.repo.pm_command(["work", "--json", "--agent", name, "--ttl", TTL]);
        command.args(options).args(["--", "sh", "-c", script]);
        command.env(process::MARK, &scene.mark).env("JOURNAL", &scene.journal);
        let child = start(&mut command, &told)?;
        Ok(Runner { name: name.to_owned(), child, told })
    }

    /// The events so far. Half a line may be the end of one that was killed.
    pub fn events(&self) -> Result<Vec<Value>> {
        let told = fs::read_to_string(&self.told)?;
        let lines = told.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        lines.map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
    }

    /// The claims about which it told this.
    pub fn claims(&self, event: &str) -> Result<Vec<String>> {
        let events = self.events()?;
        let found = events.iter().filter(|told| told["event"] == event);
        found.map(|told| Ok(text(told, "/claim")?.to_owned())).collect()
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.child), signal).with_context(|| format!("{signal:?} for {}", self.name))
    }

    /// Fails if it has ended, which nobody asked it to.
    pub fn check_runs(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended by itself: {status}: {}", self.name, self.complaints());
        }
        Ok(())
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let mut status = None;
        poll_until(&format!("the end of {}", self.name), STUCK, || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })?;
        status.context("a status")
    }

    /// Waits for its end, which is to be with this exit code.
    pub fn wait_for(&mut self, code: i32) -> Result<()> {
        let status = self.wait()?;
        ensure!(status.code() == Some(code), "{} ended with {status}, not {code}: {}", self.name, self.complaints());
        Ok(())
    }

    /// What it wrote on stderr.
    pub fn complaints(&self) -> String {
        fs::read_to_string(self.told.with_extension("err")).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A poller that sweeps five times a second, killed when dropped.
pub struct Sweeper(Child);

impl Sweeper {
    pub fn start(scene: &Scene) -> Result<Sweeper> {
        // The first write of a repository is no part of what is proved.
        run_within(&mut scene.repo.pm_command(["sweep", "--agent", SWEEPER]), STUCK)?.ok()?;
        let mut command = scene.repo.pm_command(["poll", "run", "--json", "--interval", "200ms", "--agent", SWEEPER]);
        Ok(Sweeper(start(&mut command, &scene.journal.with_file_name("sweeper.told"))?))
    }

    /// Asks it to end, which it must do well.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::TERM)?;
        let mut status = None;
        poll_until("the end of the sweeper", Duration::from_secs(10), || {
            status = self.0.try_wait()?;
            Ok(status.is_some())
        })?;
        ensure!(status.is_some_and(|status| status.success()), "the sweeper ended with {status:?}");
        Ok(())
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Starts a command with its output in files.
fn start(command: &mut Command, told: &PathBuf) -> Result<Child> {
    let errors = File::create(told.with_extension("err"))?;
    Ok(command.stdout(Stdio::from(File::create(told)?)).stderr(errors).spawn()?)
}
