//! `pm hook`: a repository that judges what is pushed to it.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::hub::install::{Installed, Placed, Settled, install};
use crate::hub::push::{Update, judge_all, line};
use crate::ledger::verify::ChainFault;
use crate::output::Output;
use crate::session::Session;
use crate::store::git::GitStore;

/// Make a repository a hub that judges what is pushed to it
///
/// A hub takes a push only if every record in it keeps every rule, and moves the refs of tasks only forwards. It judges
/// what `pm verify` would, before git moves a ref. docs/guides/a-hub.md tells how to set one up, and what hosts without
/// hooks can do.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
#[command(disable_help_subcommand = true)]
enum Action {
    /// Put the hook in place
    ///
    /// Writes the hook pre-receive, which calls this very pm, and sets receive.fsckObjects and core.fsync where they are
    /// unset. Leaves alone what others have set, and refuses with 18 where another hook is there already. Done again, it
    /// changes nothing, or updates the hook.
    Install(InstallArgs),
    /// Judge a push: what the hook runs
    ///
    /// Reads lines <old> <new> <ref>, as git gives them to the hook pre-receive, and writes nothing. Exits with 1 if
    /// anything is refused: one line on stderr for each ref, with the rule that it breaks.
    PreReceive,
}

#[derive(Debug, clap::Args)]
struct InstallArgs {
    /// The repository; else the one around the current directory
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
}

impl Args {
    /// Installs the hook, or is the hook.
    ///
    /// # Errors
    /// 18 where there is no usable repository, or another hook; 2 where the input is not git's; failures of the system.
    pub fn run(&self, here: &Path, out: &Output) -> Result<ExitCode> {
        match &self.action {
            Action::Install(args) => args.run(here, out).map(|()| ExitCode::Done),
            Action::PreReceive => pre_receive(here, out),
        }
    }
}

impl InstallArgs {
    fn run(&self, here: &Path, out: &Output) -> Result<()> {
        if self.repo.is_some() && std::env::var_os("GIT_DIR").is_some() {
            return Err(Error::Usage("--repo and $GIT_DIR both name a repository; unset one of them".to_owned()));
        }
        let dir = self.repo.as_ref().map_or_else(|| here.to_owned(), |repo| here.join(repo));
        let dir = std::path::absolute(&dir).map_err(Error::io(format!("finding {}", dir.display())))?;
        let program = std::env::current_exe().map_err(Error::io("finding the program of pm itself"))?;
        let installed = install(&GitStore::discover(&dir)?, &program)?;
        for warning in &installed.warnings {
            out.warning(warning);
        }
        for note in &installed.notes {
            out.note(&format!("note: {note}"));
        }
        out.result(|| to_json(&installed), || to_text(&installed));
        Ok(())
    }
}

fn to_json(installed: &Installed) -> Value {
    let settings: Vec<Value> = installed
        .settings
        .iter()
        .map(|setting| json!({"key": setting.key, "value": setting.value, "outcome": setting.settled.as_str()}))
        .collect();
    json!({
        "hook": installed.hook.display().to_string(),
        "outcome": installed.placed.as_str(),
        "settings": settings,
        "notes": installed.notes,
        "warnings": installed.warnings,
    })
}

fn to_text(installed: &Installed) -> String {
    let hook = installed.hook.display();
    let mut lines = Vec::new();
    if installed.placed != Placed::Unchanged {
        lines.push(format!("{} {hook}", installed.placed.as_str()));
    }
    let set = installed.settings.iter().filter(|setting| setting.settled == Settled::Set);
    lines.extend(set.map(|setting| format!("set {}={}", setting.key, setting.value)));
    if lines.is_empty() {
        lines.push(format!("nothing to do: {hook} judges what is pushed"));
    }
    lines.join("\n")
}

/// Judges what is pushed.
fn pre_receive(here: &Path, out: &Output) -> Result<ExitCode> {
    let mut pushed = Vec::new();
    std::io::stdin().lock().read_to_end(&mut pushed).map_err(Error::io("reading what is pushed"))?;
    // A name that is not UTF-8 is no task's, whatever stands in place of its bytes.
    let updates: Vec<Update> = String::from_utf8_lossy(&pushed).lines().map(str::parse).collect::<Result<_>>()?;
    let session = Session::judging(here, out.clone())?;
    let refused = judge_all(&session.ledger(), &updates);
    if out.is_json() {
        let fault = |fault: &ChainFault| json!({"ref": fault.name, "commit": fault.commit, "rule": fault.rule, "found": fault.found});
        let value = || json!({"refs": updates.len(), "refused": refused.iter().map(fault).collect::<Vec<_>>()});
        out.result(value, String::new);
    } else {
        refused.iter().for_each(|fault| out.refusal(&line(fault)));
    }
    if refused.is_empty() {
        return Ok(ExitCode::Done);
    }
    if !out.is_json() {
        out.refusal(&format!(
            "pm: nothing of this push was taken ({} of {} refs refused); fetch what this hub has, and push what follows \
             from it",
            refused.len(),
            updates.len()
        ));
    }
    Ok(ExitCode::Failure)
}
