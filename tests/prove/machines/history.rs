//! The ledger's history at a hub, as plain git tells it, and the rules that it must keep.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, bail, ensure};

use crate::support::Repo;

/// One record.
#[derive(Debug, Clone)]
pub struct Record {
    pub sha: String,
    pub parent: String,
    pub agent: String,
    /// `Task`, `TaskStatus`, `TaskReport`, `TaskHeartbeat`.
    pub kind: String,
    /// Of a status, else empty.
    pub status: String,
    pub seq: usize,
    /// Of a status: claims so far.
    pub attempt: usize,
    /// The claim that it was made under; of a status, the status before it.
    pub under: String,
    pub nonce: String,
    /// The monotonic clock when it was written.
    pub clock_ms: u64,
    /// Of a sweeper, who takes a claim away.
    pub is_sweepers: bool,
    /// Of a Task: the ids that it depends on.
    pub depends_on: Vec<String>,
}

/// A claim, and how it ended.
#[derive(Debug)]
pub struct Claim<'a> {
    pub record: &'a Record,
    /// The last record of its holder that kept it alive.
    pub last: &'a Record,
    pub end: Option<&'a Record>,
}

/// All tasks.
#[derive(Debug)]
pub struct History {
    /// Each task's records by its slug, oldest first.
    pub chains: BTreeMap<String, Vec<Record>>,
    /// Where each record is.
    pub slugs: HashMap<String, String>,
}

const FIELDS: [&str; 10] =
    ["Record", "Status", "Seq", "Attempt", "Claim-Status", "Prev-Status", "Nonce", "Clock", "Depends-On", "Reclaimed"];

impl History {
    /// Reads it from a repository.
    pub fn read(repo: &Repo) -> Result<History> {
        let trailers = FIELDS.map(|key| format!("%x01%(trailers:key={key},valueonly,separator=%x20)")).concat();
        let format = format!("--format=%x02%H%x01%P%x01%an{trailers}%x01%(trailers:key=Preempt,valueonly)");
        // Before the records: what is recorded meanwhile comes on top, and is left out.
        let tips = repo.tips()?;
        let log = repo.git(["log", "--glob=refs/pm/tasks/*", &format])?;
        let rows = log.split('\u{2}').skip(1).map(|row| parse(row).with_context(|| format!("{row:?}")));
        let records: HashMap<String, Record> =
            rows.map(|record| record.map(|record| (record.sha.clone(), record))).collect::<Result<_>>()?;
        let mut history = History { chains: BTreeMap::new(), slugs: HashMap::new() };
        for (name, tip) in tips {
            let slug = name.rsplit('/').next().unwrap_or_default().to_owned();
            let mut chain = Vec::new();
            let mut at = tip;
            while !at.is_empty() {
                let record = records.get(&at).with_context(|| format!("{name}: no {at}"))?.clone();
                history.slugs.insert(record.sha.clone(), slug.clone());
                at.clone_from(&record.parent);
                chain.push(record);
            }
            chain.reverse();
            history.chains.insert(slug, chain);
        }
        Ok(history)
    }

    /// Whether a record is in the history of this task.
    pub fn has(&self, slug: &str, sha: &str) -> bool {
        self.slugs.get(sha).is_some_and(|found| found == slug)
    }

    /// Checks the rules of claims in every chain: see [`claims`].
    pub fn check(&self) -> Result<()> {
        for (slug, chain) in &self.chains {
            claims(chain).with_context(|| slug.clone())?;
        }
        Ok(())
    }

    /// Checks that every task was done once, by the holder of its last claim, and only after all that it depends on.
    pub fn check_all_done(&self) -> Result<()> {
        let mut done_ms = HashMap::new();
        for (slug, chain) in &self.chains {
            let claims = claims(chain)?;
            let last = claims.last().with_context(|| format!("{slug}: nobody claimed it"))?;
            let end = last.end.with_context(|| format!("{slug}: still held by {}", last.record.agent))?;
            ensure!(end.status == "done" && end.agent == last.record.agent, "{slug}: ended by {end:?}");
            let closing = chain.iter().filter(|record| matches!(&*record.status, "done" | "rejected")).count();
            ensure!(closing == 1, "{slug}: closed {closing} times");
            done_ms.insert(chain[0].sha.clone(), end.clock_ms);
        }
        for (slug, chain) in &self.chains {
            for claim in claims(chain)? {
                for dependency in &chain[0].depends_on {
                    let done = done_ms.get(dependency).with_context(|| format!("{slug}: no {dependency}"))?;
                    let at = claim.record.clock_ms;
                    ensure!(at >= *done, "{slug}: claimed at {at}, before {dependency} was done at {done}");
                }
            }
        }
        Ok(())
    }
}

/// The claims of a chain, which follow one another and have growing numbers; what is recorded under one is its holder's,
/// but for a sweeper's.
pub fn claims(chain: &[Record]) -> Result<Vec<Claim<'_>>> {
    let mut claims: Vec<Claim> = Vec::new();
    for (depth, record) in chain.iter().enumerate() {
        let said = format!("{} {} {} by {}", record.sha, record.kind, record.status, record.agent);
        ensure!(record.seq == depth, "seq {} at depth {depth}: {said}", record.seq);
        let open = claims.last().is_some_and(|claim| claim.end.is_none());
        match (&*record.kind, &*record.status) {
            ("Task", _) => ensure!(depth == 0, "a second beginning: {said}"),
            ("TaskStatus", "new") if depth == 1 => {}
            ("TaskStatus", "working") => {
                ensure!(!open, "a second holder: {said}");
                ensure!(record.attempt == claims.len() + 1, "attempt {}: {said}", record.attempt);
                ensure!(
                    claims.last().and_then(|claim| claim.end).is_none_or(|end| end.status == "new"),
                    "closed: {said}"
                );
                claims.push(Claim { record, last: record, end: None });
            }
            _ if !open => bail!("nobody holds the task: {said}"),
            (kind, _) => {
                let claim = claims.last_mut().context("an open claim")?;
                let holder = &claim.record.agent;
                ensure!(record.is_sweepers || record.agent == *holder, "{holder} holds the task: {said}");
                ensure!(record.under == claim.record.sha, "recorded under {}: {said}", record.under);
                if kind == "TaskStatus" {
                    claim.end = Some(record);
                } else if !record.is_sweepers {
                    claim.last = record;
                }
            }
        }
    }
    Ok(claims)
}

fn parse(row: &str) -> Result<Record> {
    let fields: Vec<&str> = row.trim_end_matches('\n').split('\u{1}').map(str::trim).collect();
    let [sha, parent, agent, kind, status, seq, attempt, claim, prev, nonce, clock, depends_on, reclaimed, preempt] =
        fields[..]
    else {
        bail!("{} fields", fields.len());
    };
    let under = if kind == "TaskStatus" { prev } else { claim };
    Ok(Record {
        sha: sha.to_owned(),
        parent: parent.to_owned(),
        agent: agent.to_owned(),
        kind: kind.to_owned(),
        status: status.to_owned(),
        seq: if kind == "Task" { 0 } else { seq.parse().context("seq")? },
        attempt: attempt.parse().unwrap_or(0),
        under: under.to_owned(),
        nonce: nonce.to_owned(),
        clock_ms: clock.split_once(' ').context("a clock")?.1.parse()?,
        is_sweepers: !reclaimed.is_empty() || !preempt.is_empty(),
        depends_on: depends_on.split_whitespace().map(str::to_owned).collect(),
    })
}
