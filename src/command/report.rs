//! `pm report`: say what was done.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{ClaimArgs, TaskArgs, TextArgs, print_record};
use crate::error::{Error, Result};
use crate::id::{Oid, shown};
use crate::ledger::resolve::place;
use crate::protocol::decide::Intent;
use crate::protocol::record::Report;
use crate::protocol::{text, view};
use crate::session::Session;
use crate::store::{Store, StoreError};

/// Say what was done
///
/// Several reports are allowed; the last one is the proof that closes the task. Control characters are removed from
/// the text; attached files are kept byte for byte and are read with `git show <report>:<name>`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
    #[command(flatten)]
    claim: ClaimArgs,
    /// One line, at most 200 characters
    #[arg(long)]
    title: String,
    #[command(flatten)]
    text: TextArgs,
    /// A file to attach, under its own name; may be repeated
    #[arg(long = "attach", value_name = "FILE")]
    attachments: Vec<PathBuf>,
    /// The commit that holds the work: a branch, HEAD, or an id. Its branch keeps it alive, not this record
    #[arg(long, value_name = "REV")]
    commit: Option<String>,
}

impl Args {
    /// Records it.
    ///
    /// # Errors
    /// 6, 12, 16, 17; 2 for texts, files or commits that cannot be used.
    pub fn run(&self, session: &Session) -> Result<()> {
        let title = text::checked_title(&text::stripped(&self.title))?;
        let body = self.text.read_else("attach it as a file instead (--attach FILE)")?;
        let body = body.map_or(Ok(None), |body| text::checked_report(&body))?;
        let claim = self.claim.named()?;
        let commit = self.commit.as_deref().map(|rev| work(session, rev)).transpose()?;
        let files = self.files()?;
        let ledger = session.writer()?;
        let found = self.task.find(session, &session.finder()?)?;
        let mut report = Report { title, commit, synthetic: false, attachments: None };
        if !files.is_empty() {
            // A refused report leaves no files behind.
            ledger.allows(&found, &Intent::Report { claim, report: report.clone(), body: None })?;
            report.attachments = Some(session.store.write_files(&files).map_err(|error| match error {
                // A name that git keeps out of every tree.
                StoreError::Io { what, source } if source.kind() == ErrorKind::InvalidInput => Error::Usage(what),
                error => error.into(),
            })?);
        }
        let appended = ledger.append(found, Intent::Report { claim, report, body })?;
        let (id, record) = appended.last();
        let mut names: Vec<_> = files.into_iter().map(|(name, _)| name).collect();
        names.sort();
        print_record(
            &session.out,
            &appended,
            || {
                let mut value = view::record(*id, record, &names);
                value["attributes"]["attachments"] = json!(names);
                value
            },
            || format!("reported on {} (report {id})", place(&appended.state)),
        );
        Ok(())
    }

    /// The attached files, read before anything is written.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut files: Vec<(String, Vec<u8>)> = Vec::new();
        for path in &self.attachments {
            let name = file_name(path)?;
            if files.iter().any(|(other, _)| *other == name) {
                return Err(Error::Usage(format!("two attached files are named {name}; rename one")));
            }
            let content = std::fs::read(path)
                .map_err(|error| Error::Usage(format!("cannot read {}: {error}", path.display())))?;
            files.push((name, content));
        }
        Ok(files)
    }
}

fn file_name(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if !name.chars().any(char::is_control) && !name.eq_ignore_ascii_case(".git") => Ok(name.to_owned()),
        _ => Err(Error::Usage(format!("{} has no name that an attachment can have", path.display()))),
    }
}

/// The commit that the caller names. One that is not here is the caller's mistake, no damage of the ledger.
fn work(session: &Session, rev: &str) -> Result<Oid> {
    session.store.resolve_commit(rev).map_err(|error| match error {
        StoreError::Missing { .. } => {
            StoreError::NoCommit { rev: shown(rev), found: "this repository has no such object".to_owned() }.into()
        }
        error => error.into(),
    })
}
