//! What the proofs share: scratch repositories, bounded commands, and a reading of the ledger by plain git.
//!
//! What must never happen here: the code under test judges itself. What a chain holds is read with `git log` and its
//! trailers; of pm only what it printed, and how it ended, is believed.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// The program under test: the one built with the proofs, unless `$PROVE_PM` names another.
pub fn pm() -> OsString {
    std::env::var_os("PROVE_PM").unwrap_or_else(|| env!("CARGO_BIN_EXE_pm").into())
}

/// The bound of one command. Nothing in pm may take longer than 15 s, whatever was killed before it.
pub const STUCK: Duration = Duration::from_secs(15);
/// The bound of one command of git's that works on the whole repository.
const SLOW: Duration = Duration::from_secs(300);

/// A command without anything of this machine's configuration.
pub fn isolated(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1"), ("HOME", "/nonexistent")]);
    command.env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Done {
    /// The exit code; -1 if it was killed.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// What it printed, if it succeeded.
    pub fn ok(self) -> Result<String> {
        ensure!(self.status.success(), "{}: {}", self.status, self.stderr.trim());
        Ok(self.stdout)
    }

    /// The JSON that it printed, if it succeeded.
    pub fn json(self) -> Result<Value> {
        let text = self.ok()?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }
}

/// Runs a command to its end.
///
/// # Errors
/// When it takes longer than `limit`; it is killed then.
pub fn run_within(command: &mut Command, limit: Duration) -> Result<Done> {
    let started = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().with_context(|| shown(command))?;
    let pid = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(limit) else {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
        bail!("stuck for more than {limit:?}: {}", shown(command));
    };
    let output = output.with_context(|| shown(command))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Done {
        status: output.status,
        stdout: text(output.stdout),
        stderr: text(output.stderr),
        took: started.elapsed(),
    })
}

/// A command as one line, for messages.
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// One record, as plain git tells it.
#[derive(Debug, Clone)]
pub struct Record {
    pub sha: String,
    pub agent: String,
    /// `Task`, `TaskStatus`, `TaskReport`, `TaskHeartbeat`.
    pub kind: String,
    /// Of a status, else empty.
    pub status: String,
    /// The monotonic clock when it was written.
    pub clock_ms: u64,
    /// Of a Task: the ids that it depends on.
    pub depends_on: Vec<String>,
}

/// A scratch repository.
#[derive(Debug, Clone)]
pub struct Repo {
    pub dir: PathBuf,
}

impl Repo {
    /// Creates one, with `core.fsync` as pm would set it, so that no command of a proof is a first write.
    pub fn init(dir: &Path) -> Result<Repo> {
        let mut init = isolated("git");
        run_within(init.args(["init", "--quiet", "--initial-branch=main"]).arg(dir), SLOW)?.ok()?;
        let repo = Repo { dir: dir.to_owned() };
        for (key, value) in
            [("user.name", "prove"), ("user.email", "prove@example.invalid"), ("core.fsync", "committed,reference")]
        {
            repo.git(["config", key, value])?;
        }
        Ok(repo)
    }

    pub fn git_dir(&self) -> PathBuf {
        self.dir.join(".git")
    }

    /// `pm -C <repository>` with these arguments, to be run by the caller.
    pub fn pm_command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = isolated(pm());
        command.arg("-C").arg(&self.dir).args(args);
        command
    }

    /// Runs `pm`, which must not get stuck.
    pub fn pm<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Done> {
        run_within(&mut self.pm_command(args), STUCK)
    }

    /// Runs `pm --json`, which must succeed.
    pub fn pm_json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Value> {
        let mut command = self.pm_command(args);
        run_within(command.arg("--json"), SLOW)?.json().with_context(|| shown(&command))
    }

    /// `git -C <repository>` with these arguments, to be run by the caller.
    pub fn git_command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = isolated("git");
        command.arg("-C").arg(&self.dir).args(args);
        command
    }

    /// Runs git, which must succeed, and returns what it printed.
    pub fn git<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let mut command = self.git_command(args);
        run_within(&mut command, SLOW)?.ok().with_context(|| shown(&command))
    }

    /// All refs of the ledger and their tips.
    pub fn tips(&self) -> Result<BTreeMap<String, String>> {
        let rows = self.git(["for-each-ref", "--format=%(refname) %(objectname)", "refs/pm/"])?;
        let row = |row: &str| row.split_once(' ').map(|(name, tip)| (name.to_owned(), tip.to_owned()));
        rows.lines().map(|line| row(line).with_context(|| line.to_owned())).collect()
    }

    /// The chain of one ref, oldest record first, read by plain git.
    pub fn records(&self, name: &str) -> Result<Vec<Record>> {
        // The trailers are found without a divider: git log never looks for one.
        const FORMAT: &str = "--format=%x02%H%x01%an%x01%(trailers:key=Record,valueonly,separator=%x20)\
            %x01%(trailers:key=Status,valueonly,separator=%x20)%x01%(trailers:key=Clock,valueonly,separator=%x20)\
            %x01%(trailers:key=Depends-On,valueonly,separator=%x20)";
        let log = self.git(["log", "--first-parent", "--reverse", FORMAT, name, "--"])?;
        let record = |row: &str| -> Option<Record> {
            let mut fields = row.trim_end().split('\u{1}');
            Some(Record {
                sha: fields.next()?.to_owned(),
                agent: fields.next()?.to_owned(),
                kind: fields.next()?.to_owned(),
                status: fields.next()?.to_owned(),
                clock_ms: fields.next()?.split_once(' ')?.1.parse().ok()?,
                depends_on: fields.next()?.split_whitespace().map(str::to_owned).collect(),
            })
        };
        log.split('\u{2}').skip(1).map(|row| record(row).with_context(|| format!("{name}: {row:?}"))).collect()
    }

    /// What `git fsck --strict` finds wrong; dangling objects are not wrong.
    pub fn fsck(&self) -> Result<Vec<String>> {
        let done = run_within(&mut self.git_command(["fsck", "--strict", "--no-dangling", "--no-progress"]), SLOW)?;
        let said = format!("{}{}", done.stdout, done.stderr);
        let mut faults: Vec<String> =
            said.lines().filter(|line| !line.starts_with("notice:")).map(str::to_owned).collect();
        if !done.status.success() && faults.is_empty() {
            faults.push(format!("git fsck: {}", done.status));
        }
        Ok(faults)
    }

    /// Fails unless `git fsck --strict` and `pm verify` find nothing wrong. Returns what `pm verify` counted.
    pub fn check_clean(&self) -> Result<Value> {
        let faults = self.fsck()?;
        ensure!(faults.is_empty(), "git fsck: {}", faults.join("; "));
        let verified = self.pm_json(["verify"])?;
        ensure!(verified["faults"].as_array().is_some_and(Vec::is_empty), "pm verify: {verified}");
        Ok(verified)
    }

    /// git's lock files, anywhere in the repository. What lies in pm's own directory is locked through the kernel.
    pub fn lock_files(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut dirs = vec![self.git_dir()];
        while let Some(dir) = dirs.pop() {
            let entries = match fs::read_dir(&dir) {
                // Removed meanwhile, by whoever packs refs.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                if entry.path() == self.git_dir().join("pm") {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    dirs.push(entry.path());
                } else if entry.path().extension() == Some(OsStr::new("lock")) {
                    found.push(entry.path());
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// A copy of the whole repository, in a directory that does not exist yet.
    pub fn copy_to(&self, dir: &Path) -> Result<Repo> {
        copy_dir(&self.dir, dir)?;
        Ok(Repo { dir: dir.to_owned() })
    }
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// A field of pm's JSON that is a string.
pub fn text<'a>(value: &'a Value, pointer: &str) -> Result<&'a str> {
    value.pointer(pointer).and_then(Value::as_str).with_context(|| format!("no {pointer} in {value}"))
}

/// A number from 0 to below `bound`. Proofs are not repeatable by a seed: the scheduling of processes is not, either.
pub fn random_below(bound: u64) -> u64 {
    getrandom::u64().map_or(0, |random| random % bound.max(1))
}

/// Calls `probe` every few milliseconds until it says yes.
///
/// # Errors
/// When it has not within `limit`.
pub fn poll_until(what: &str, limit: Duration, mut probe: impl FnMut() -> Result<bool>) -> Result<()> {
    let started = Instant::now();
    while !probe()? {
        ensure!(started.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Prints one line at once, whatever stdout is.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // A reader that left is not a broken proof: the exit code still tells.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
