//! Chains built from a script of words, as `plan claim beat report done`; `claim:w2` is another agent's claim,
//! `claim+c2` one from context c2, and `plan+verifier` a task with options.
//!
//! Links and counters are found by reading the records below, not by asking the state under test.

use pm::id::{AgentId, Oid, RecordId, TaskId};
use pm::protocol::apply::{Invalid, apply};
use pm::protocol::record::{
    ClockReading, Content, Heartbeat, Links, Mark, Nonce, Phase, Record, Report, Status, Task, Verification,
};
use pm::protocol::state::TaskState;

pub fn agent(name: &str) -> AgentId {
    name.parse().expect("an agent id")
}

/// A made-up commit id: the records of a chain have 1, 2, 3 …, and nothing has one above 900.
pub fn id(number: usize) -> RecordId {
    let mut digest = [0; 20];
    digest[12..].copy_from_slice(&(number as u64).to_be_bytes());
    RecordId(Oid::from_bytes(&digest).expect("20 bytes are an id"))
}

/// A task with the options named, joined by `+`.
pub fn task(options: &str) -> Task {
    let mut task = Task {
        queue: "default".parse().expect("a queue"),
        slug: "build".parse().expect("a slug"),
        title: "Build it".to_owned(),
        created: 1_795_983_303_000_001,
        priority: 2.try_into().expect("a priority"),
        depends_on: Vec::new(),
        parent: None,
        spawned_at: None,
        verifier: None,
        sticky: false,
        workdir: None,
        ttl: None,
        max_attempts: None,
        labels: Vec::new(),
    };
    for option in options.split('+').filter(|option| !option.is_empty()) {
        match option {
            "dependency" => task.depends_on.push(TaskId(id(901).0)),
            "parent" => task.parent = Some(TaskId(id(902).0)),
            "verifier" => task.verifier = Some("make test".to_owned()),
            "sticky" => task.sticky = true,
            "workdir" => task.workdir = Some("web".to_owned()),
            "ttl" => task.ttl = Some("90s".parse().expect("a ttl")),
            max => task.max_attempts = Some(max.strip_prefix("max").and_then(|n| n.parse().ok()).expect("an option")),
        }
    }
    task
}

/// The records of one task, and the state that `apply` made of them.
#[derive(Debug, Clone, Default)]
pub struct Chain {
    pub records: Vec<(RecordId, Record)>,
    pub folded: Option<TaskState>,
}

impl Chain {
    /// Runs a script in which every record is valid.
    pub fn of(script: &str) -> Chain {
        let mut chain = Chain::default();
        for word in script.split_whitespace().flat_map(spelled_out) {
            let record = chain.next(&word);
            chain.push(record).unwrap_or_else(|broken| panic!("'{word}' in '{script}': {broken}"));
        }
        chain
    }

    pub fn state(&self) -> &TaskState {
        self.folded.as_ref().expect("a chain that began")
    }

    /// Puts a record on top, if `apply` lets it.
    pub fn push(&mut self, record: Record) -> Result<RecordId, Invalid> {
        let id = id(self.records.len() + 1);
        self.folded = Some(apply(self.folded.clone(), id, &record)?);
        self.records.push((id, record));
        Ok(id)
    }

    /// The newest record for which `is` holds.
    pub fn newest(&self, is: impl Fn(&Record) -> bool) -> Option<RecordId> {
        self.records.iter().rev().find(|(_, record)| is(record)).map(|(id, _)| *id)
    }

    /// The commits of all claims, oldest first.
    pub fn claims(&self) -> Vec<RecordId> {
        let is_claim = |record: &Record| phase(record) == Some(Phase::Working);
        self.records.iter().filter(|(_, record)| is_claim(record)).map(|(id, _)| *id).collect()
    }

    /// The commits of all reports, oldest first.
    pub fn reports(&self) -> Vec<RecordId> {
        let is_report = |record: &Record| matches!(record.content, Content::Report(_));
        self.records.iter().filter(|(_, record)| is_report(record)).map(|(id, _)| *id).collect()
    }

    /// What links a new record must carry.
    pub fn links(&self) -> Links {
        Links {
            task: self.records.first().map(|(id, _)| id.as_task()),
            status: self.newest(|record| phase(record).is_some()),
            report: self.newest(|record| matches!(record.content, Content::Report(_))),
            heartbeat: self.newest(|record| matches!(record.content, Content::Heartbeat(_))),
        }
    }

    /// The record that a word stands for, on top of this chain: right in all its links and counters, whether or not
    /// it may stand there.
    pub fn next(&self, word: &str) -> Record {
        let (verb, who) = word.split_once(':').unwrap_or((word, author(word)));
        let (verb, options) = verb.split_once('+').unwrap_or((verb, ""));
        let content = match verb {
            "task" => Content::Task(Box::new(task(options))),
            "beat" => Content::Heartbeat(Heartbeat::default()),
            "preempt" => Content::Heartbeat(Heartbeat { preempt: true, progress: None }),
            "report" => Content::Report(report(false)),
            "synthetic" => Content::Report(report(true)),
            verb => Content::Status(Box::new(self.next_status(verb, options))),
        };
        let is_task = matches!(content, Content::Task(_));
        self.signed(who, if is_task { Links::default() } else { self.links() }, content)
    }

    fn signed(&self, who: &str, links: Links, content: Content) -> Record {
        let seq = self.records.len() as u64;
        Record {
            parent: self.records.last().map(|(id, _)| *id),
            agent: agent(who),
            email: "pm@host".to_owned(),
            at: 1_795_983_303 + seq as i64,
            links,
            seq,
            clock: Some(ClockReading { id: 7, ms: 1000 * seq }),
            nonce: Nonce(seq),
            body: None,
            content,
            unknown: Vec::new(),
        }
    }

    fn next_status(&self, verb: &str, options: &str) -> Status {
        let links = self.links();
        let below = self.records.iter().rev().find_map(|(_, record)| match &record.content {
            Content::Status(status) => Some(status.as_ref().clone()),
            _ => None,
        });
        let below = below.unwrap_or(Status::new(Phase::New, 0, 0));
        let same =
            |phase| Status { context: below.context.clone(), ..Status::new(phase, below.attempt, below.reclaims) };
        let reported = self.records.iter().any(|(_, record)| {
            matches!(&record.content, Content::Report(report) if !report.synthetic)
                && record.links.status == links.status
        });
        let swept = if reported { 0 } else { below.reclaims + 1 };
        let given_task = self.folded.as_ref().map_or_else(|| task(""), |state| state.task.as_ref().clone());
        let proof = links.report;
        match verb {
            "new" => Status::new(Phase::New, 0, 0),
            "clone" => Status { replan_of: Some(TaskId(id(903).0)), ..Status::new(Phase::New, 0, 0) },
            "claim" => {
                let given = if options.is_empty() { "c1" } else { options };
                let context = given_task.sticky.then(|| given.parse().expect("a context"));
                let context = if options.is_empty() { below.context.clone().or(context) } else { context };
                Status { attempt: below.attempt + 1, context, ..same(Phase::Working) }
            }
            "release" => Status { reclaims: 0, mark: Some(Mark::Released), ..same(Phase::New) },
            "done" => {
                let passed = |verifier| Verification { verifier, exit: 0, summary: None };
                Status { proof, verification: given_task.verifier.map(passed), ..same(Phase::Done) }
            }
            "reject" => Status { proof, ..same(Phase::Rejected) },
            "taken" => Status { reclaims: 0, context: None, mark: Some(Mark::Reclaimed), ..same(Phase::New) },
            "swept" => Status { reclaims: swept, context: None, mark: Some(Mark::Reclaimed), ..same(Phase::New) },
            "killed" => {
                Status { proof, reclaims: swept, context: None, mark: Some(Mark::Reclaimed), ..same(Phase::Rejected) }
            }
            "cancelled" => Status { proof, mark: Some(Mark::Cancelled), ..same(Phase::Rejected) },
            "replan" => Status { reclaims: 0, mark: Some(Mark::Replanned), ..same(Phase::New) },
            "supersede" => Status { superseded_by: Some(TaskId(id(904).0)), ..same(Phase::Superseded) },
            verb => panic!("no such word: {verb}"),
        }
    }
}

/// The phase that a record enters.
pub fn phase(record: &Record) -> Option<Phase> {
    match &record.content {
        Content::Status(status) => Some(status.phase),
        _ => None,
    }
}

fn report(synthetic: bool) -> Report {
    Report { title: "It is built".to_owned(), commit: None, synthetic, attachments: None }
}

/// Who writes what, where the script does not say.
fn author(word: &str) -> &'static str {
    match word.split('+').next().unwrap_or_default() {
        "claim" | "beat" | "report" | "release" | "done" | "reject" => "w1",
        _ => "op",
    }
}

/// The records of a word that stands for several.
pub fn spelled_out(word: &str) -> Vec<String> {
    let (verb, who) = word.split_once(':').map_or((word, String::new()), |(verb, who)| (verb, format!(":{who}")));
    let (verb, options) = verb.split_once('+').map_or((verb, String::new()), |(verb, more)| (verb, format!("+{more}")));
    let words: &[&str] = match verb {
        "plan" => &["task", "new"],
        "sweep" => &["preempt", "swept"],
        "kill" => &["synthetic", "preempt", "killed"],
        "cancel" => &["synthetic", "cancelled"],
        verb => &[verb],
    };
    let options = |verb: &str| if ["task", "claim"].contains(&verb) { options.as_str() } else { "" };
    words.iter().map(|verb| format!("{verb}{}{who}", options(verb))).collect()
}
