//! `pm verify`: every chain against every rule.

use serde_json::{Value, json};

use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::id::Queue;
use crate::ledger::resolve::prefix;
use crate::ledger::verify::{ChainFault, Findings, GoneWork};
use crate::output::counted;
use crate::session::Session;
use crate::store::Store;

/// Check every chain against every rule
///
/// Walks each chain from its tip to its Task and judges every record. Exits with 19 if there is a fault.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The queue; else all queues
    #[arg(long, value_name = "QUEUE", conflicts_with = "task")]
    queue: Option<Queue>,
    /// One task, by <queue>/<slug> or a slug in the default queue, however damaged it is; or by its id
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
}

impl Args {
    /// Checks.
    ///
    /// # Errors
    /// Failures of the system; 17. Faults are the result, with exit code 19.
    pub fn run(&self, session: &Session) -> Result<ExitCode> {
        let ledger = session.ledger();
        let mut findings = Findings::default();
        for (name, tip) in self.tips(session)? {
            ledger.verify(&name, tip, &mut findings)?;
        }
        session.out.result(|| to_json(&findings), || to_text(&findings));
        Ok(if findings.faults.is_empty() { ExitCode::Done } else { ExitCode::Damaged })
    }

    fn tips(&self, session: &Session) -> Result<Vec<crate::store::RefRow>> {
        let Some(asked) = &self.task else { return Ok(session.store.tips(&prefix(self.queue.as_ref()))?) };
        let queue = session.queue(None)?;
        let (queue, slug) = match asked.split_once('/') {
            Some((queue, slug)) => (queue.parse()?, slug.parse().ok()),
            None => (queue, asked.parse().ok()),
        };
        // A damaged task cannot be found through its state, so its name is enough.
        if let Some(slug) = slug {
            let name = crate::id::RefName::of_task(&queue, &slug);
            if let Some(tip) = session.store.tip(&name).map_or_else(|error| Some(Err(error)), |tip| tip.map(Ok)) {
                return Ok(vec![(name, tip)]);
            }
        }
        let found = session.ledger().find(asked, &queue)?;
        Ok(vec![(found.name, Ok(found.state.tip.0))])
    }
}

fn to_json(findings: &Findings) -> Value {
    let fault = |fault: &ChainFault| json!({"ref": fault.name, "commit": fault.commit, "rule": fault.rule, "found": fault.found});
    let gone = |gone: &GoneWork| json!({"ref": gone.name, "report": gone.report, "work": gone.work.to_string()});
    json!({
        "tasks": findings.tasks,
        "records": findings.records,
        "faults": findings.faults.iter().map(fault).collect::<Vec<_>>(),
        "gone": findings.gone.iter().map(gone).collect::<Vec<_>>(),
    })
}

fn to_text(findings: &Findings) -> String {
    let fault = |fault: &ChainFault| {
        let commit = fault.commit.map_or(String::new(), |commit| format!(" commit {commit}"));
        format!("{}{commit}: rule '{}': {}", fault.name, fault.rule, fault.found)
    };
    let mut lines: Vec<String> = findings.faults.iter().map(fault).collect();
    lines.extend(findings.gone.iter().map(|gone| {
        format!(
            "{}: the work of report {} is gone: commit {} is not in this repository",
            gone.name, gone.report, gone.work
        )
    }));
    let faults = findings.faults.len();
    lines.push(format!(
        "{}, {}, {}",
        counted(findings.tasks, "task"),
        counted(findings.records, "record"),
        counted(faults, "fault")
    ));
    lines.join("\n")
}
