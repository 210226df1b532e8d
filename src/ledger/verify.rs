//! Checking whole chains against every rule: the judgement that no shortcut through links can give.

use super::Ledger;
use super::judge::judge;
use crate::error::{Error, Result};
use crate::id::{Oid, RecordId, RefName};
use crate::protocol::record::{Content, Record};
use crate::store::StoreError;

/// One fault of one chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFault {
    /// The ref.
    pub name: RefName,
    /// The commit, where there is one.
    pub commit: Option<RecordId>,
    /// The rule, by its name in `apply::Rule`, or `unreadable`, `place`, `fast-forward`.
    pub rule: String,
    /// What was found.
    pub found: String,
}

impl ChainFault {
    /// A commit that is missing, or is no record.
    pub fn unreadable(name: &RefName, commit: Option<RecordId>, found: String) -> ChainFault {
        ChainFault { name: name.clone(), commit, rule: "unreadable".to_owned(), found }
    }
}

impl std::fmt::Display for ChainFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.commit.map_or(String::new(), |commit| format!(" commit {commit}"));
        write!(f, "{}:{at} breaks the rule '{}': {}", self.name, self.rule, self.found)
    }
}

/// A report whose commit of the work is no longer in this repository: no fault of the ledger, but worth saying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneWork {
    /// The ref.
    pub name: RefName,
    /// The report.
    pub report: RecordId,
    /// The commit that it names.
    pub work: Oid,
}

/// What a verification found.
#[derive(Debug, Default)]
pub struct Findings {
    /// Tasks looked at.
    pub tasks: usize,
    /// Records read.
    pub records: usize,
    /// Everything that is wrong.
    pub faults: Vec<ChainFault>,
    /// Work that is gone.
    pub gone: Vec<GoneWork>,
}

impl Ledger<'_> {
    /// Walks the chain at `name`, whose tip was read already, and checks every rule.
    ///
    /// # Errors
    /// Only failures of the system; faults of the chain are findings.
    pub fn verify(&self, name: &RefName, tip: std::result::Result<Oid, StoreError>, out: &mut Findings) -> Result<()> {
        out.tasks += 1;
        let tip = match tip {
            Ok(tip) => RecordId(tip),
            Err(error @ StoreError::BrokenRef { .. }) => {
                out.faults.push(ChainFault::unreadable(name, None, error.to_string()));
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let mut chain = Vec::new();
        for row in self.chain(name, tip) {
            match row.and_then(|row| self.check_objects(name, &row).map(|()| row)) {
                Ok(row) => chain.push(row),
                Err(Error::Damaged { commit, found, .. }) => {
                    out.faults.push(ChainFault::unreadable(name, Some(commit), found));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        out.records += chain.len();
        chain.reverse();
        for (id, record) in &chain {
            if let Content::Report(report) = &record.content
                && let Some(work) = report.commit
                && matches!(self.store.read_commit(work), Err(StoreError::Missing { .. }))
            {
                out.gone.push(GoneWork { name: name.clone(), report: *id, work });
            }
        }
        out.faults.extend(judge(name, None, &chain).err());
        Ok(())
    }

    /// Checks that the objects of a record are what their ids say.
    fn check_objects(&self, name: &RefName, (id, record): &(RecordId, Record)) -> Result<()> {
        let attachments = match &record.content {
            Content::Report(report) => report.attachments,
            _ => None,
        };
        for object in std::iter::once(id.0).chain(attachments) {
            self.store.check(object).map_err(|error| match error {
                StoreError::Missing { .. } | StoreError::Damaged { .. } => {
                    Error::Damaged { name: name.clone(), commit: *id, found: error.to_string() }
                }
                error => error.into(),
            })?;
        }
        Ok(())
    }
}
