//! Verifiers, below the command line: what they are told, what is made of their answers, and that they end.

mod commands;
mod ends;
mod llm;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pm::id::{Queue, RecordId, Slug};
use pm::protocol::codec::{decode, encode};
use pm::protocol::record::{Content, Phase, Status};
use pm::verifier::{Judgement, LlmCli, Outcome, Subject, Terms, VerifierError, verify};

use crate::protocol::arbitrary::committer;
use crate::protocol::golden::{oid, record};
use crate::support::DEADLINE;

/// A directory to run verifiers in, and what is asked about.
pub struct Scene {
    dir: tempfile::TempDir,
    pub allow: Vec<String>,
    pub timeout: Duration,
    pub llm_clis: Vec<LlmCli>,
    pub task_body: String,
    pub report_body: String,
}

impl Scene {
    /// Everything is allowed, and there is no LLM command line.
    pub fn new() -> Scene {
        Scene {
            dir: tempfile::tempdir().expect("a directory"),
            allow: vec!["*".to_owned()],
            timeout: DEADLINE,
            llm_clis: Vec::new(),
            task_body: "the text of the task\n".to_owned(),
            report_body: "the text of the report\n".to_owned(),
        }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a script, which may be run at once: whoever starts a process meanwhile does not have it open.
    pub fn script(&self, name: &str, text: &str) {
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1""#;
        let done = Command::new("sh").args(["-c", write, "sh", name, text]).current_dir(self.path()).status();
        assert!(done.expect("a shell").success());
    }

    /// What a file holds, trimmed; empty where there is none.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default().trim().to_owned()
    }

    /// The process whose id a command noted.
    pub fn pid(&self, name: &str) -> u64 {
        self.read(name).parse().expect("a process id")
    }

    pub fn verify_until(&self, verifier: &str, stop: &(dyn Fn() -> bool + Sync)) -> Result<Outcome, VerifierError> {
        let subject = Subject {
            verifier,
            task: task().as_task(),
            report: report(),
            queue: &"web".parse::<Queue>().expect("a queue"),
            slug: &"build-login".parse::<Slug>().expect("a slug"),
            task_title: "Build the login",
            task_body: Some(&self.task_body),
            report_title: "built",
            report_body: Some(&self.report_body),
        };
        let mut terms = Terms::new(&self.allow, self.timeout, Some(self.path()));
        terms.llm_clis.clone_from(&self.llm_clis);
        verify(&subject, &terms, stop)
    }

    /// The judgement of a verifier that nobody stops. Whatever it is, it can be recorded.
    #[track_caller]
    pub fn judgement(&self, verifier: &str) -> Judgement {
        match self.verify_until(verifier, &|| false) {
            Ok(Outcome::Judged(judgement)) => {
                assert_recordable(verifier, &judgement);
                judgement
            }
            other => panic!("{verifier}: {other:?}"),
        }
    }

    /// Exit code and summary.
    #[track_caller]
    pub fn judged(&self, verifier: &str) -> (i32, String) {
        let judgement = self.judgement(verifier);
        assert!(!judgement.timed_out, "{judgement:?}");
        (judgement.exit, judgement.summary.unwrap_or_default())
    }
}

pub fn task() -> RecordId {
    RecordId(oid(1))
}

pub fn report() -> RecordId {
    RecordId(oid(2))
}

/// A closing status holds it, and reads back.
#[track_caller]
fn assert_recordable(verifier: &str, judgement: &Judgement) {
    let verification = Some(judgement.clone().into_verification(verifier));
    let record = record(Content::Status(Box::new(Status { verification, ..Status::new(Phase::Done, 1, 0) })));
    assert_eq!(decode(&encode(&record, committer())).as_ref(), Ok(&record));
    assert!(judgement.summary.as_ref().is_none_or(|summary| summary.len() <= 4096), "{judgement:?}");
}
