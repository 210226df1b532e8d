//! What the tests of the command line share: a repository of their own, and pm and git run inside it.
//!
//! Nothing of the machine may leak in: every program starts with an empty environment but `PATH`, its own `HOME` and
//! no system or user configuration of git. Nothing may leak out: everything lives below one temporary directory.

#[allow(unused_imports, reason = "shared with the proofs, which use all of it")]
pub mod coherence;
pub mod confined;
pub mod fleet;
pub mod hub;
pub mod poller;
pub mod process;
pub mod redact;
pub mod runner;
pub mod servers;
pub mod snapshot;
pub mod wait;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
pub use wait::{DEADLINE, until};

/// The agent that asks unless a test names another.
pub const AGENT: &str = "w1";

/// A git repository in a temporary directory.
pub struct Repo {
    dir: tempfile::TempDir,
    /// Where programs start.
    root: PathBuf,
    /// What every program is run under, such as `setpriv …`.
    prefix: Vec<OsString>,
}

impl Repo {
    /// A throwaway repository with an identity: nothing in it is synced, which most tests need not wait for.
    pub fn new() -> Repo {
        let repo = Repo::init(&[]);
        repo.git(&["config", "pm.durability", "process"]);
        repo
    }

    /// A repository with these options of `git init`, with an identity, and made safe for power cuts already, so that
    /// pm has nothing to say about it.
    pub fn init(options: &[&str]) -> Repo {
        let repo = Repo::bare_of_config(options);
        for (key, value) in
            [("user.name", "Ada"), ("user.email", "ada@example.com"), ("core.fsync", "committed,reference")]
        {
            repo.git(&["config", key, value]);
        }
        repo
    }

    /// A repository with nothing in its configuration but what `git init` puts there.
    pub fn bare_of_config(options: &[&str]) -> Repo {
        let repo = Repo::nowhere();
        std::fs::create_dir(&repo.root).expect("a fresh directory");
        repo.git(&[&["init", "--quiet", "--initial-branch=main", "--template="], options].concat());
        repo
    }

    /// A place for a repository where there is none.
    pub fn nowhere() -> Repo {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("repo");
        Repo { dir, root, prefix: Vec::new() }
    }

    /// Where programs start.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// A directory that is no part of the repository and goes away with it.
    pub fn outside(&self) -> &Path {
        self.dir.path()
    }

    /// The directory that holds refs and objects.
    pub fn git_dir(&self) -> PathBuf {
        let dir = self.git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]);
        PathBuf::from(dir)
    }

    /// Starts programs somewhere else from now on.
    pub fn set_path(&mut self, path: impl Into<PathBuf>) {
        self.root = path.into();
    }

    /// Runs every program under another one from now on.
    pub fn set_prefix(&mut self, prefix: &[&str]) {
        self.prefix = prefix.iter().map(OsString::from).collect();
    }

    /// A program, ready to run in the repository with an environment of its own.
    pub fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut line = self.prefix.iter().cloned().chain([program.into()]).chain(args.iter().map(OsString::from));
        let mut command = Command::new(line.next().expect("a program"));
        command.args(line).current_dir(if self.root.is_dir() { &self.root } else { self.dir.path() });
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.dir.path()).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.env("GIT_CEILING_DIRECTORIES", self.dir.path().parent().unwrap_or(self.dir.path()));
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").stdin(Stdio::null());
        command
    }

    /// pm, asked by nobody in particular.
    pub fn pm_command(&self, args: &[&str]) -> Command {
        self.program(env!("CARGO_BIN_EXE_pm"), args)
    }

    /// Runs pm as [`AGENT`].
    pub fn pm(&self, args: &[&str]) -> Outcome {
        self.pm_as(AGENT, args)
    }

    /// Runs pm as this agent.
    pub fn pm_as(&self, agent: &str, args: &[&str]) -> Outcome {
        Outcome::of(args, self.pm_command(args).env("PM_AGENT_ID", agent))
    }

    /// Runs pm as [`AGENT`] with these environment variables.
    pub fn pm_with(&self, env: &[(&str, &str)], args: &[&str]) -> Outcome {
        Outcome::of(args, self.pm_command(args).env("PM_AGENT_ID", AGENT).envs(env.iter().copied()))
    }

    /// Runs pm as [`AGENT`] with this on its standard input.
    pub fn pm_fed(&self, input: &str, args: &[&str]) -> Outcome {
        let mut child = self
            .pm_command(args)
            .env("PM_AGENT_ID", AGENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("pm starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        // It may refuse its arguments without reading.
        let _ignored = stdin.write_all(input.as_bytes());
        drop(stdin);
        Outcome::from_output(args, child.wait_with_output().expect("pm ends"))
    }

    /// Runs git, which must succeed, and returns what it printed, trimmed at the end.
    pub fn git(&self, args: &[&str]) -> String {
        let outcome = self.git_outcome(args);
        assert_eq!(outcome.code, 0, "git {args:?}: {}", outcome.stderr);
        outcome.stdout.trim_end().to_owned()
    }

    /// Runs git, whatever comes of it.
    pub fn git_outcome(&self, args: &[&str]) -> Outcome {
        Outcome::of(args, &mut self.program("git", args))
    }

    /// Runs git with this on its standard input; it must succeed.
    pub fn git_fed(&self, input: &[u8], args: &[&str]) -> String {
        let mut child = self
            .program("git", args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("git starts");
        child.stdin.take().expect("a pipe").write_all(input).expect("git reads its input");
        let outcome = Outcome::from_output(args, child.wait_with_output().expect("git ends"));
        assert_eq!(outcome.code, 0, "git {args:?}: {}", outcome.stderr);
        outcome.stdout.trim_end().to_owned()
    }

    /// Plans a task with this slug in the default queue; returns its id.
    pub fn plan(&self, slug: &str) -> String {
        self.plan_with(slug, &[])
    }

    /// As [`Repo::plan`], with more options.
    pub fn plan_with(&self, slug: &str, options: &[&str]) -> String {
        let title = format!("Do {slug}");
        let args = [&["plan", "--json", "--title", &title, "--slug", slug], options].concat();
        text(&self.pm(&args).json()["task"]["sha"])
    }

    /// Claims a task as [`AGENT`]; returns the claim.
    pub fn claim(&self, task: &str) -> String {
        self.claim_as(AGENT, task)
    }

    /// Claims a task as this agent; returns the claim.
    pub fn claim_as(&self, agent: &str, task: &str) -> String {
        text(&self.pm_as(agent, &["executing", "--json", "--task", task]).json()["sha"])
    }

    /// Claims, reports and finishes a task as [`AGENT`].
    pub fn work_off(&self, task: &str) {
        self.claim(task);
        self.pm(&["report", "--task", task, "--title", "It is done"]).ok();
        self.pm(&["finished", "--task", task]).ok();
    }

    /// The state of a task, as `pm show` tells it.
    pub fn state(&self, task: &str) -> Value {
        self.pm(&["show", "--json", "--task", task]).json()["state"].clone()
    }

    /// The phase of a task.
    pub fn phase(&self, task: &str) -> String {
        text(&self.state(task)["status"])
    }

    /// Where the ref of a task of the default queue points, by git's word.
    pub fn tip(&self, slug: &str) -> String {
        self.git(&["rev-parse", &task_ref(slug)])
    }

    /// Every ref of the ledger with its value, by git's word.
    pub fn refs(&self) -> String {
        self.git(&["for-each-ref", "refs/pm"])
    }

    /// Asserts that git finds nothing wrong with the objects, and pm nothing with the chains.
    pub fn assert_sound(&self) {
        let fsck = self.git_outcome(&["fsck", "--strict", "--no-dangling", "--no-progress"]);
        let said = format!("{}{}", fsck.stdout, fsck.stderr);
        let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("notice:")).collect();
        assert!(fsck.code == 0 && said.is_empty(), "git fsck: {said:?}");
        self.pm(&["verify"]).ok();
    }
}

/// The ref of a task of the default queue whose slug needs no escape.
pub fn task_ref(slug: &str) -> String {
    format!("refs/pm/tasks/default/{slug}")
}

/// A JSON string, which it must be.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no string")).to_owned()
}

/// What a program did: stdout, stderr and exit code belong together.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its arguments, for messages.
    pub args: Vec<String>,
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

impl Outcome {
    /// Runs a command to its end.
    pub fn of(args: &[&str], command: &mut Command) -> Outcome {
        Outcome::from_output(args, command.output().unwrap_or_else(|error| panic!("{command:?} starts: {error}")))
    }

    /// What a program that has ended did. One that was killed by signal 9 has the code -9.
    pub fn from_output(args: &[&str], output: std::process::Output) -> Outcome {
        use std::os::unix::process::ExitStatusExt;
        let code = output.status.code().or_else(|| output.status.signal().map(|signal| -signal));
        Outcome {
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            stdout: String::from_utf8(output.stdout).expect("stdout is UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("stderr is UTF-8"),
            code: code.expect("an exit code or a signal"),
        }
    }

    /// Asserts exit code 0.
    #[track_caller]
    pub fn ok(self) -> Outcome {
        self.exits(0)
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Outcome {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Asserts that it failed with this code, said why on stderr, and printed nothing.
    #[track_caller]
    pub fn fails(self, code: i32) -> Outcome {
        assert_eq!((self.code, self.stdout.as_str()), (code, ""), "{self:?}");
        assert!(!self.stderr.is_empty(), "{self:?}");
        self
    }

    /// Asserts that stderr says this.
    #[track_caller]
    pub fn says(self, what: &str) -> Outcome {
        assert!(self.stderr.contains(what), "'{what}' is not in {self:?}");
        self
    }

    /// Asserts success, and that stdout is one JSON value on one line; returns it.
    #[track_caller]
    pub fn json(self) -> Value {
        let outcome = self.ok();
        outcome.stdout_json()
    }

    /// The one JSON value on stdout, whatever the exit code.
    #[track_caller]
    pub fn stdout_json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The error object on stderr: the last line of it, since warnings may stand above.
    #[track_caller]
    pub fn error(&self) -> Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {self:?}"));
        value["error"].clone()
    }
}
