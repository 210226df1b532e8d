//! What a chain says of its own task: statuses, claims and what was recorded under them, and what is wrong with that.

use super::read::{Record, Task};
use super::{Fault, Rule};

/// No command of pm takes longer: so long after it was written, at the latest, a record is in its place.
const PATIENCE_MS: u64 = 15_000;

/// A task's life.
#[derive(Debug)]
pub struct Life<'a> {
    pub task: &'a Task,
    /// Oldest first.
    pub statuses: Vec<Status<'a>>,
    pub claims: Vec<Claim<'a>>,
}

/// A status.
///
/// A record is written before the ref moves to it, so others can see it a little later than it says: not before
/// `record.ms`, and for certain from `seen_ms` on, when something was written on top of it.
#[derive(Debug, Clone, Copy)]
pub struct Status<'a> {
    pub record: &'a Record,
    pub seen_ms: u64,
}

impl<'a> Status<'a> {
    pub fn what(&self) -> &'a str {
        self.record.what()
    }

    /// The context that the task is bound to from then on.
    pub fn context(&self) -> Option<&'a str> {
        self.record.one("Context")
    }
}

/// A claim, and how it ended.
#[derive(Debug)]
pub struct Claim<'a> {
    pub record: &'a Record,
    pub reports: Vec<&'a Record>,
    pub end: Option<&'a Record>,
    /// Whether it was taken away after a preempt heartbeat.
    pub is_swept: bool,
}

/// A chain that is being read.
struct Reader<'a, 'b> {
    life: Life<'a>,
    /// Who has announced to take the claim away.
    preempted_by: Option<&'a str>,
    faults: &'b mut Vec<Fault>,
}

impl<'a> Life<'a> {
    /// Of a task.
    pub fn of(task: &'a Task, faults: &mut Vec<Fault>) -> Life<'a> {
        let life = Life { task, statuses: Vec::new(), claims: Vec::new() };
        let mut reader = Reader { life, preempted_by: None, faults };
        for depth in 0..task.records.len() {
            reader.read(depth);
        }
        let is_settled = reader.life.statuses.last().is_some_and(|at| matches!(at.what(), "done" | "superseded"));
        if let (false, Some(tip)) = (is_settled, task.records.last()) {
            reader.fault(Rule::Done, tip, "is the end, and the task is not done");
        }
        reader.life
    }
}

impl<'a> Reader<'a, '_> {
    fn fault(&mut self, rule: Rule, record: &Record, found: &str) {
        let found = format!("{} {} by {} {found}", record.what(), record.sha, record.author);
        self.faults.push(Fault { rule, slug: self.life.task.slug.clone(), found });
    }

    fn read(&mut self, depth: usize) {
        let records = &self.life.task.records;
        let (record, next) = (&records[depth], records.get(depth + 1));
        if record.parents.len() != usize::from(depth > 0) || (record.what() == "Task") != (depth == 0) {
            self.fault(Rule::Chain, record, "does not belong there");
        }
        if record.one("Seq") != Some(&depth.to_string()) {
            self.fault(Rule::Seq, record, &format!("is not numbered {depth}"));
        }
        if depth > 0 && record.ms < records[depth - 1].ms {
            self.fault(Rule::Clock, record, "is older than what it follows");
        }
        let preempted_by = self.preempted_by.take();
        if preempted_by.is_some_and(|by| record.one("Reclaimed").is_none() || by != record.author) {
            self.fault(Rule::OnlyTheHolder, record, "follows a preempt heartbeat that it does not belong to");
        }
        match record.one("Record") {
            Some("TaskStatus") => {
                self.status(record, preempted_by.is_some());
                let late = record.ms + PATIENCE_MS;
                let seen_ms = next.map_or(late, |next| next.ms.min(late));
                self.life.statuses.push(Status { record, seen_ms });
            }
            Some("TaskReport") if record.one("Synthetic").is_none() => {
                if self.is_holders(record, record.one("Claim-Status"))
                    && let Some(claim) = self.life.claims.last_mut()
                {
                    claim.reports.push(record);
                }
            }
            Some("TaskHeartbeat") if record.one("Preempt").is_some() => self.preempted_by = Some(&record.author),
            Some("TaskHeartbeat") => {
                self.is_holders(record, record.one("Claim-Status"));
            }
            _ => {}
        }
    }

    /// Whether there is a holder, who wrote this under the claim.
    fn is_holders(&mut self, record: &Record, under: Option<&str>) -> bool {
        let open = self.life.claims.last().filter(|claim| claim.end.is_none());
        let is_so = open.is_some_and(|claim| {
            claim.record.author == record.author && under.is_none_or(|under| under == claim.record.sha)
        });
        if !is_so {
            self.fault(Rule::OnlyTheHolder, record, "is not the holder's, under its claim");
        }
        is_so
    }

    fn status(&mut self, record: &'a Record, is_swept: bool) {
        let before = self.life.statuses.last().copied();
        if record.one("Prev-Status") != before.map(|at| at.record.sha.as_str()) {
            self.fault(Rule::Chain, record, "does not name the status before it");
        }
        let was = before.map_or("", |at| at.what());
        match record.what() {
            "working" => self.claim(record, was),
            "new" if was.is_empty() => {}
            "new" if record.one("Reclaimed").is_some() => {
                let is_open = self.life.claims.last().is_some_and(|claim| claim.end.is_none());
                let is_bound = was == "new" && before.is_some_and(|at| at.context().is_some());
                if !is_open && (is_swept || !is_bound) {
                    self.fault(Rule::OnlyTheHolder, record, "takes away what nobody holds, and no context has");
                }
            }
            "new" if record.one("Replanned").is_some() => {}
            "new" => {
                self.is_holders(record, before.map(|at| at.record.sha.as_str()));
            }
            "done" => {
                self.is_holders(record, before.map(|at| at.record.sha.as_str()));
                self.proof(record);
            }
            "rejected" | "superseded" => {}
            _ => self.fault(Rule::Chain, record, "is no status"),
        }
        // A binding ends by a reclaim, and by nothing else.
        let bound = before.and_then(|at| at.context()).filter(|_| record.one("Reclaimed").is_none());
        let keeps = record.one("Context") == bound || (bound.is_none() && record.what() == "working");
        if !keeps {
            self.fault(Rule::Context, record, &format!("changes the context, which was {bound:?}"));
        }
        if record.what() != "working"
            && let Some(claim) = self.life.claims.last_mut().filter(|claim| claim.end.is_none())
        {
            (claim.end, claim.is_swept) = (Some(record), is_swept);
        }
    }

    fn claim(&mut self, record: &'a Record, was: &str) {
        if was == "working" {
            self.fault(Rule::OneHolder, record, "is a second claim beside another");
        } else if was != "new" {
            self.fault(Rule::Chain, record, &format!("follows {was:?}"));
        }
        let seq = |record: &Record| record.one("Seq").and_then(|seq| seq.parse::<u64>().ok());
        let last = self.life.claims.last().map(|claim| seq(claim.record));
        if last.is_some_and(|last| last >= seq(record)) {
            self.fault(Rule::Seq, record, "has no larger number than the claim before it");
        }
        if record.one("Attempt") != Some(&(self.life.claims.len() + 1).to_string()) {
            self.fault(Rule::Seq, record, "does not count the claims before it");
        }
        if self.life.task.is_sticky() != record.one("Context").is_some() {
            let found = if self.life.task.is_sticky() { "has no context" } else { "has a context, and is not sticky" };
            self.fault(Rule::Context, record, found);
        }
        self.life.claims.push(Claim { record, reports: Vec::new(), end: None, is_swept: false });
    }

    fn proof(&mut self, record: &Record) {
        let reports =
            self.life.claims.last().filter(|claim| claim.end.is_none()).map_or(&[][..], |claim| &claim.reports);
        if !reports.iter().any(|report| record.one("Proof") == Some(&report.sha)) {
            self.fault(Rule::Proof, record, "is not proven by a report that was made under its claim");
        }
    }
}
