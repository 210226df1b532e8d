//! Whether a report proves its task: the verifier of the task is asked, in whichever of its forms.
//!
//! `case` reads from the ledger what is to be judged, `form` tells the forms apart, `allow` is what this machine lets the
//! ledger start, `attestation` reads what a report says of itself, `llm` asks an LLM command line, `run` runs a command
//! with `group` and `kin` (all its processes), `guard` (who ends it when this process is gone) and `printed` (what is kept
//! of its output). Whoever calls keeps the claim alive meanwhile and records the outcome.
//!
//! What must never happen here: a command out of the ledger is started that this machine does not allow; a verifier
//! that did not say yes passes; a command runs on after its outcome is known; a wait without a bound.

pub mod allow;
pub mod attestation;
pub mod case;
pub mod form;
pub mod llm;
pub mod printed;

pub mod guard;

mod group;
mod kin;
mod run;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::id::{Queue, RecordId, Slug, TaskId};
use crate::protocol::record::{ContextId, Verification};

pub use self::allow::NotAllowed;
use self::form::Form;
pub use self::llm::LlmCli;
use self::printed::summary_of;
use self::run::{Ended, NotRun};

/// The exit code of a command that took too long, as `timeout` has it.
pub const TIMED_OUT: i32 = 124;

/// The exit code of a command that cannot be started, as shells have it.
pub const NOT_STARTED: i32 = 127;

/// How long what was told to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// What is verified: a report, for a task.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The task's verifier, as the ledger has it.
    pub verifier: &'a str,
    /// The task.
    pub task: TaskId,
    /// The report that is to be its proof.
    pub report: RecordId,
    /// The task's queue.
    pub queue: &'a Queue,
    /// The task's name in it.
    pub slug: &'a Slug,
    /// The task's title.
    pub task_title: &'a str,
    /// The task's text.
    pub task_body: Option<&'a str>,
    /// The report's title.
    pub report_title: &'a str,
    /// The report's text.
    pub report_body: Option<&'a str>,
}

impl Subject<'_> {
    /// What every command finds in its environment.
    fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("PM_TASK", self.task.to_string()),
            ("PM_REPORT", self.report.to_string()),
            ("PM_QUEUE", self.queue.to_string()),
            ("PM_SLUG", self.slug.to_string()),
            ("PM_VERIFIER", self.verifier.to_owned()),
        ]
    }
}

/// What this machine grants a verifier.
#[derive(Debug, Clone)]
pub struct Terms<'a> {
    /// The commands that may run here: the values of `pm.allowVerifier`.
    pub allow: &'a [String],
    /// How long a command may take.
    pub timeout: Duration,
    /// Where a command starts; else where this process is.
    pub dir: Option<&'a Path>,
    /// What it does not inherit of the environment.
    pub unset: &'a [&'a str],
    /// The context of who asks, if in one.
    pub context: Option<&'a ContextId>,
    /// The LLM command lines that may be asked. The first that is there is.
    pub llm_clis: Vec<LlmCli>,
    /// The program of pm, to guard commands with; without it they outlive this process if that is killed.
    pub guard: Option<PathBuf>,
}

impl<'a> Terms<'a> {
    /// Terms with the LLM command lines of this process's environment (`$PM_LLM_CLI`), and no guard.
    pub fn new(allow: &'a [String], timeout: Duration, dir: Option<&'a Path>) -> Terms<'a> {
        let llm_clis = LlmCli::known(std::env::var_os("PM_LLM_CLI"));
        Terms { allow, timeout, dir, unset: &[], context: None, llm_clis, guard: None }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The verifier has judged, or could not.
    Judged(Judgement),
    /// It was to stop, and nothing of it runs any more. Nothing is known.
    Stopped,
}

/// What a verifier said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// 0 passed, and nothing else. [`TIMED_OUT`], [`NOT_STARTED`], 128 and the number of the signal that killed it, or
    /// what it ended with.
    pub exit: i32,
    /// What there is to say, at most [`printed::SUMMARY_MAX`] bytes; fit for a record.
    pub summary: Option<String>,
    /// It took too long, and was killed.
    pub timed_out: bool,
}

impl Judgement {
    fn new(exit: i32, said: &str) -> Judgement {
        Judgement { exit, summary: summary_of(said), timed_out: false }
    }

    /// Whether the report proves the task.
    pub fn passed(&self) -> bool {
        self.exit == 0
    }

    /// As it is recorded, for the verifier that was asked.
    pub fn into_verification(self, verifier: &str) -> Verification {
        Verification { verifier: verifier.to_owned(), exit: self.exit, summary: self.summary }
    }
}

/// Why a verifier was not asked to the end.
#[derive(Debug, thiserror::Error)]
pub enum VerifierError {
    /// This machine does not let it run. Nothing was started.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The system failed. What had been started was killed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Asks the verifier of a task about a report. Runs in this thread; `stop` is asked about every 50 ms while a command
/// runs, and ends it when it says yes.
///
/// # Errors
/// `NotAllowed` where the verifier is a command that this machine does not allow; `Io` for what the system says. That a
/// command cannot be started, or takes too long, is an outcome.
pub fn verify(
    subject: &Subject<'_>,
    terms: &Terms<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, VerifierError> {
    let form = Form::of(subject.verifier);
    if form.is_command() {
        allow::permit(subject.verifier, terms.allow)?;
    }
    let judged = |exit, said: &str| Ok(Outcome::Judged(Judgement::new(exit, said)));
    match form {
        Form::Attested => match attestation::read(subject.verifier, subject.report_body) {
            Ok(evidence) => judged(0, &evidence),
            Err(faults) => judged(1, &attestation::complaint(subject.verifier, &faults)),
        },
        Form::Skill("") | Form::Prompt("") | Form::Shell("") => judged(NOT_STARTED, "the verifier says nothing"),
        _ if terms.dir.is_some_and(|dir| !dir.is_dir()) => {
            judged(NOT_STARTED, "the directory that the verifier should run in is not there")
        }
        Form::Skill(_) | Form::Prompt(_) => llm::ask(subject, form, terms, stop),
        Form::Shell(line) => run_shell(line, subject, terms, stop),
    }
}

/// Runs a verifier that is a shell command. A single plain word is a program, which is given the task and the report as
/// its arguments. Anything longer is a command line, run as it stands: more words at its end would change what
/// `cargo test -q`, `a && b` or `grep -q x file` mean, so there the two are `$1` and `$2` of the line.
fn run_shell(
    line: &str,
    subject: &Subject<'_>,
    terms: &Terms<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, VerifierError> {
    let script = if form::is_plain_word(line) { format!("{line} \"$@\"") } else { line.to_owned() };
    let words = ["sh".into(), "-c".into(), "--".into(), script, "sh".into()];
    let words = words.into_iter().chain([subject.task.to_string(), subject.report.to_string()]);
    let words: Vec<OsString> = words.map(OsString::from).collect();
    match run::run(command(&words, subject, terms), None, terms, stop) {
        Ok(ran) => Ok(match ran.ended {
            Ended::Stopped => Outcome::Stopped,
            Ended::TimedOut => timed_out(terms, &ran),
            Ended::Exit(exit) => {
                Outcome::Judged(Judgement { exit, summary: ran.printed.summary(""), timed_out: false })
            }
        }),
        Err(NotRun::NotStarted(error)) => {
            Ok(Outcome::Judged(Judgement::new(NOT_STARTED, &format!("the verifier cannot be started: {error}"))))
        }
        Err(NotRun::Failed(source)) => Err(VerifierError::Io { what: "running the verifier", source }),
    }
}

/// The outcome for a command that took too long.
fn timed_out(terms: &Terms<'_>, ran: &run::Ran) -> Outcome {
    let foreword = format!("timed out after {} s", terms.timeout.as_secs_f64());
    Outcome::Judged(Judgement { exit: TIMED_OUT, summary: ran.printed.summary(&foreword), timed_out: true })
}

/// A program with its arguments, ready to be started for this subject.
fn command(words: &[OsString], subject: &Subject<'_>, terms: &Terms<'_>) -> Command {
    let (program, args) = words.split_first().map_or((OsString::new(), words), |(first, rest)| (first.clone(), rest));
    let mut command = Command::new(program);
    command.args(args).envs(subject.variables());
    if let Some(context) = terms.context {
        command.env("PM_CONTEXT_ID", context.as_str());
    }
    for name in terms.unset {
        command.env_remove(name);
    }
    if let Some(dir) = terms.dir {
        command.current_dir(dir);
    }
    command
}
