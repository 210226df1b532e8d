//! `pm doctor`: what is wrong with this repository, host or setup, each with its remedy.

use std::path::Path;

use serde_json::{Value, json};

use crate::doctor::{Finding, Level, examine};
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::output::Output;

/// Find out what is wrong with this repository, host or setup, and how to mend it
///
/// Exits with 1 if anything is wrong; notes are not wrong.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also try out what the authority does (pm.remote), under a scratch name
    #[arg(long)]
    remote: bool,
    /// Mend what is safe to mend: core.fsync where it is unset, locks that nobody holds, files of the dead
    #[arg(long)]
    fix: bool,
}

impl Args {
    /// Examines.
    ///
    /// # Errors
    /// 2, 18; failures of the system. What is wrong is the result, with exit code 1.
    pub fn run(&self, dir: &Path, out: &Output) -> Result<ExitCode> {
        let findings = examine(dir, self.fix, self.remote)?;
        let number = |level| findings.iter().filter(|finding| finding.level == level).count();
        let (wrong, fixed) = (number(Level::Wrong), number(Level::Fixed));
        out.result(
            || {
                let findings: Vec<Value> = findings.iter().map(Finding::to_json).collect();
                json!({"findings": findings, "wrong": wrong, "fixed": fixed})
            },
            || {
                let mut blocks: Vec<String> = findings.iter().map(block).collect();
                blocks.push(match (wrong, number(Level::Note)) {
                    (0, 0) => "ok: nothing is wrong".to_owned(),
                    (0, notes) => format!("ok: nothing is wrong ({notes} worth knowing)"),
                    (wrong, notes) => format!("{wrong} wrong, {notes} worth knowing"),
                });
                blocks.join("\n")
            },
        );
        Ok(if wrong == 0 { ExitCode::Done } else { ExitCode::Failure })
    }
}

/// A finding for people.
fn block(finding: &Finding) -> String {
    let mut block = format!("{:<6} {}: {}", finding.level.as_str(), finding.check, finding.found);
    if let Some(remedy) = &finding.remedy {
        block.push_str(&format!("\n       remedy: {remedy}"));
    }
    block
}
