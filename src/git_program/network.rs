//! git on its way to a remote and back.
//!
//! Each errand uses a git directory of its own, a *courier*: it shares the repository's objects and configuration, but
//! has only the refs that the errand needs. So git neither reads nor advertises the thousands of refs of a large ledger,
//! and no refspec, hook, shallow boundary or tracking ref of the repository has a say.
//!
//! What must never happen here: a wait without a bound; a ref of the repository is moved.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::LOOK;
use crate::error::{Error, Result};
use crate::id::{Oid, RefName};
use crate::store::{Mode, lock};

/// What makes a directory one of git's, and is locked here by who uses it.
const HEAD: &str = "HEAD";

/// How long a git that was told to end may take before it is killed.
const ENDING_MAX: Duration = Duration::from_secs(2);

/// How much of what git complains of is kept, in bytes.
const COMPLAINT_MAX: u64 = 1 << 16;

/// What of the environment reaches a git on an errand, of all that begins with `GIT_`: how to connect, which files
/// configure it, and what it is to trace.
const KEPT: [&str; 12] = [
    "GIT_SSH",
    "GIT_ASKPASS",
    "GIT_CONFIG",
    "GIT_TRACE",
    "GIT_CURL",
    "GIT_HTTP",
    "GIT_SSL",
    "GIT_PROXY",
    "GIT_ALLOW_PROTOCOL",
    "GIT_PROTOCOL_FROM_USER",
    "GIT_EXEC_PATH",
    "GIT_REDACT",
];

/// How a git on an errand ended.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Its exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
    /// It did not end in time, or was not wanted any more, and was ended.
    pub was_cut_off: bool,
}

/// How long an errand may take, and whether it is still wanted.
#[derive(Clone, Copy)]
pub struct Bounds<'a> {
    /// At most so long.
    pub time: Duration,
    /// Asked again and again: on a yes, git is told to end.
    pub stop: &'a dyn Fn() -> bool,
}

/// Where couriers are made, and for which repository.
#[derive(Debug, Clone)]
pub struct Couriers {
    /// The directory that all worktrees share.
    pub common_dir: PathBuf,
    /// The git directory of this worktree.
    pub git_dir: PathBuf,
    /// Where relative URLs count from: the worktree, else the git directory.
    pub here: PathBuf,
    /// Whether object ids have 32 bytes.
    pub is_sha256: bool,
}

/// A git directory for one errand. It is removed in the end; what a killed process leaves is swept after a day.
#[derive(Debug)]
pub struct Courier {
    dir: PathBuf,
    /// Locked: by its age alone, a clock that leaps would have it swept away under its git.
    _in_use: File,
    /// The git directory that git is told of: this one, or the repository's own.
    git_dir: PathBuf,
    common_dir: PathBuf,
    here: PathBuf,
}

impl Couriers {
    /// Where they are.
    pub fn dir(common_dir: &Path) -> PathBuf {
        common_dir.join("pm").join("couriers")
    }

    /// Removes what killed processes left: in use by nobody, and older than `max_age`. Returns how many.
    ///
    /// # Errors
    /// Failures of the file system.
    pub fn sweep(common_dir: &Path, max_age: Duration) -> std::io::Result<usize> {
        let entries = match fs::read_dir(Couriers::dir(common_dir)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut swept = 0;
        for entry in entries {
            let entry = entry?;
            // What vanishes meanwhile belonged to somebody who is done.
            let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) else { continue };
            let is_old = modified.elapsed().is_ok_and(|age| age > max_age);
            if is_old && !is_in_use(&entry.path()) && fs::remove_dir_all(entry.path()).is_ok() {
                swept += 1;
            }
        }
        Ok(swept)
    }

    /// Makes one that has these refs.
    ///
    /// # Errors
    /// `Io` where its files cannot be written.
    pub fn send(&self, refs: &[(RefName, Oid)]) -> Result<Courier> {
        let random = getrandom::u64().unwrap_or_default();
        let dir = Couriers::dir(&self.common_dir).join(format!("{}-{random:016x}", std::process::id()));
        let failed = |error| Error::io(format!("making {}", dir.display()))(error);
        fs::create_dir_all(dir.join("refs")).map_err(failed)?;
        let mut head = File::create(dir.join(HEAD)).map_err(failed)?;
        if !lock::try_lock(&head, Mode::Shared).map_err(failed)? {
            return Err(failed(std::io::Error::other("it is being swept away")));
        }
        head.write_all(b"ref: refs/heads/none\n").map_err(failed)?;
        let (common_dir, here) = (self.common_dir.clone(), self.here.clone());
        let courier = Courier { git_dir: dir.clone(), dir: dir.clone(), _in_use: head, common_dir, here };
        fs::write(courier.dir.join("config"), self.config()).map_err(failed)?;
        if !refs.is_empty() {
            fs::write(courier.dir.join("packed-refs"), packed_refs(refs)).map_err(failed)?;
        }
        Ok(courier)
    }

    /// Sends git in person: with the repository's own directory, for a push of code, whose hooks may need all of it.
    ///
    /// # Errors
    /// `Io` where its files cannot be written.
    pub fn go(&self) -> Result<Courier> {
        let mut courier = self.send(&[])?;
        courier.git_dir.clone_from(&self.git_dir);
        Ok(courier)
    }

    /// The configuration of a courier: the repository's, but for what makes it a repository of its own, and without the
    /// hooks of the code, whose business it is not.
    fn config(&self) -> String {
        let format = if self.is_sha256 { "1\n[extensions]\n\tobjectFormat = sha256" } else { "0" };
        let quoted = |path: PathBuf| path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        let (shared, own) = (quoted(self.common_dir.join("config")), quoted(self.git_dir.join("config.worktree")));
        format!(
            "[core]\n\trepositoryFormatVersion = {format}\n[include]\n\tpath = \"{shared}\"\n\tpath = \"{own}\"\n[core]\n\tbare = true\n\tlogAllRefUpdates = false\n\thooksPath = /dev/null\n"
        )
    }
}

/// Whether an errand is under way with this git directory. One that cannot be asked is nobody's.
fn is_in_use(courier: &Path) -> bool {
    let head = File::open(courier.join(HEAD));
    head.is_ok_and(|head| !lock::try_lock(&head, Mode::Exclusive).unwrap_or(true))
}

/// The text of a packed-refs file.
fn packed_refs(refs: &[(RefName, Oid)]) -> String {
    let mut rows: Vec<_> = refs.iter().collect();
    rows.sort();
    rows.dedup_by(|a, b| a.0 == b.0);
    let header = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
    rows.into_iter().fold(header, |text, (name, id)| text + &format!("{id} {name}\n"))
}

impl Courier {
    /// The object that one of its refs leads to after a fetch.
    pub fn tip(&self, name: &str) -> Option<Oid> {
        fs::read_to_string(self.dir.join(name)).ok()?.trim().parse().ok()
    }

    /// Runs git, which reads `input`.
    ///
    /// # Errors
    /// `Io` where git cannot be run.
    pub fn run(&self, args: &[String], input: &str, bounds: Bounds<'_>) -> Result<Ended> {
        self.run_traced(args, input, bounds, None, &mut || {})
    }

    /// As [`Courier::run`], and does something else while git is under way, which must not take long.
    ///
    /// # Errors
    /// `Io` where git cannot be run.
    pub fn run_while(&self, args: &[String], bounds: Bounds<'_>, meanwhile: &mut dyn FnMut()) -> Result<Ended> {
        self.run_traced(args, "", bounds, None, meanwhile)
    }

    /// As [`Courier::run`], for a push: also tells whether git began to send anything. Before it starts the program that
    /// packs what is sent, the other side has nothing that it could act on.
    ///
    /// # Errors
    /// `Io` where git cannot be run.
    pub fn run_push(&self, args: &[String], bounds: Bounds<'_>) -> Result<(Ended, bool)> {
        let trace = self.dir.join("trace");
        let ended = self.run_traced(args, "", bounds, Some(&trace), &mut || {})?;
        // Without a trace nothing is known, so it counts as sent.
        let trace = fs::read(&trace).unwrap_or_default();
        let has = |words: &[u8]| trace.windows(words.len()).any(|part| part == words);
        // A trace that does not tell of the end, though git came to it, is not whole.
        let is_whole = ended.was_cut_off || has(b"\"event\":\"exit\"");
        let has_sent = trace.is_empty() || !is_whole || has(b"\"pack-objects\"");
        Ok((ended, has_sent))
    }

    fn run_traced(
        &self,
        args: &[String],
        input: &str,
        bounds: Bounds<'_>,
        trace: Option<&Path>,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Ended> {
        let failed = |error| Error::io(format!("running git {}", args.join(" ")))(error);
        let mut child = self.command(args, trace).spawn().map_err(failed)?;
        let started = Instant::now();
        let (tell, told) = mpsc::channel();
        let input = input.to_owned();
        if let Some(mut pipe) = child.stdin.take() {
            // A git that ends early does not read it all.
            std::thread::spawn(move || pipe.write_all(input.as_bytes()));
        }
        let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
        let out = std::thread::spawn(move || {
            let text = read_all(stdout.as_mut());
            let _nobody_waits = tell.send(());
            text
        });
        let (tell_stderr, stderr_said) = mpsc::channel();
        std::thread::spawn(move || tell_stderr.send(read_beginning(stderr.as_mut())));
        let mut told_at: Option<Instant> = None;
        let group = Pid::from_child(&child);
        meanwhile();
        // git's own end closes its stdout. An ssh that it leaves behind for the next connection keeps stderr open.
        let status = loop {
            match told.recv_timeout(LOOK) {
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break child.wait().map_err(failed)?,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(status) = child.try_wait().map_err(failed)? {
                break status;
            }
            match told_at {
                None if (bounds.stop)() || started.elapsed() > bounds.time => {
                    let _ended_by_itself = kill_process_group(group, Signal::TERM);
                    told_at = Some(Instant::now());
                }
                Some(at) if at.elapsed() > ENDING_MAX => {
                    let _ended_by_itself = kill_process_group(group, Signal::KILL);
                }
                _ => {}
            }
        };
        if told_at.is_some() {
            // What git started may have outlived it.
            let _ended_by_itself = kill_process_group(group, Signal::KILL);
        }
        let stdout =
            if told_at.is_some() && !out.is_finished() { String::new() } else { out.join().unwrap_or_default() };
        let stderr = stderr_said.recv_timeout(Duration::from_millis(200)).unwrap_or_default();
        Ok(Ended { code: status.code(), stdout, stderr, was_cut_off: told_at.is_some() })
    }

    fn command(&self, args: &[String], trace: Option<&Path>) -> Command {
        let mut command = super::program();
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("GIT_") && !KEPT.iter().any(|kept| text.starts_with(kept)) {
                command.env_remove(&name);
            }
        }
        if let Some(trace) = trace {
            command.env("GIT_TRACE2_EVENT", trace);
        }
        command
            .env("GIT_OBJECT_DIRECTORY", self.common_dir.join("objects"))
            // Nobody is there to be asked.
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .arg("--git-dir")
            .arg(&self.git_dir)
            .args(["-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "fetch.writeCommitGraph=false"])
            .args(["-c", "push.followTags=false", "-c", "push.gpgSign=false", "-c", "push.pushOption="])
            .args(["-c", "submodule.recurse=false", "-c", "push.recurseSubmodules=no", "-c", "fetch.prune=false"])
            .args(args)
            .current_dir(&self.here)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A signal to the terminal's processes is for pm, which decides what comes of it.
            .process_group(0);
        command
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        // What stays is swept with other leftovers.
        let _swept_later = fs::remove_dir_all(&self.dir);
    }
}

/// The beginning of what git complains of, which is read to its end.
fn read_beginning(pipe: Option<&mut impl Read>) -> String {
    let Some(pipe) = pipe else { return String::new() };
    let text = read_all(Some(&mut pipe.by_ref().take(COMPLAINT_MAX)));
    let _rest = std::io::copy(pipe, &mut std::io::sink());
    text
}

fn read_all(pipe: Option<&mut impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let _what_could_be_read = pipe.read_to_end(&mut bytes);
    }
    // It is UTF-8 if nothing is wrong, which is found out at once, and not byte by byte.
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// A text with URLs in it, without the passwords in those.
pub fn without_password(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        let end = after.find(|c: char| c == '/' || c.is_whitespace() || c == '\'').unwrap_or(after.len());
        let (host, path) = after.split_at(end);
        match host.rsplit_once('@') {
            Some((user, host)) if user.contains(':') => {
                out.push_str(&format!("{}:***@{host}", user.split(':').next().unwrap_or_default()));
            }
            _ => out.push_str(host),
        }
        rest = path;
    }
    out + rest
}
