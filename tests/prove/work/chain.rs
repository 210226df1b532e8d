//! The claims of one task, as its chain tells them.
//!
//! What must never happen here: a chain is believed in which two hold the task at a time, or somebody records who does
//! not hold it.

use anyhow::{Context, Result, bail, ensure};

use crate::support::{Record, Repo};

/// A claim and what became of it.
#[derive(Debug)]
pub struct Claim {
    pub sha: String,
    pub agent: String,
    /// When its holder last recorded something that kept it alive.
    pub renewed_ms: u64,
    pub end: Option<End>,
}

/// How a claim ended.
#[derive(Debug)]
pub struct End {
    /// The status that ended it: `new`, `done`, `rejected`.
    pub status: String,
    /// Who wrote that.
    pub by: String,
    pub at_ms: u64,
}

impl Claim {
    /// Whether this one took it away from its holder.
    pub fn was_taken_by(&self, agent: &str) -> bool {
        self.end.as_ref().is_some_and(|end| end.by == agent)
    }
}

/// All tasks: the id of each, and its claims, oldest first.
///
/// # Errors
/// When a chain breaks the rules of claims.
pub fn all(repo: &Repo, may_take_away: &[&str]) -> Result<Vec<(String, Vec<Claim>)>> {
    let name = |name: &String| name.starts_with("refs/pm/tasks/").then(|| name.clone());
    let names: Vec<_> = repo.tips()?.keys().filter_map(name).collect();
    let read = |name: String| {
        let records = repo.records(&name)?;
        let task = records.first().context("an empty chain")?.sha.clone();
        Ok((task, claims(&records, may_take_away).with_context(|| name)?))
    };
    names.into_iter().map(read).collect()
}

/// The claims of a chain, which follow one another: from a claim to the next status its holder records, and nobody
/// else, but who may take it away.
pub fn claims(records: &[Record], may_take_away: &[&str]) -> Result<Vec<Claim>> {
    let mut claims: Vec<Claim> = Vec::new();
    for record in records {
        let said = format!("{} {} {} by {}", record.sha, record.kind, record.status, record.agent);
        let open = claims.last_mut().filter(|claim| claim.end.is_none());
        let is_by_holder = open.as_ref().is_some_and(|claim| claim.agent == record.agent);
        match (record.kind.as_str(), record.status.as_str(), open) {
            ("Task", ..) => ensure!(claims.is_empty(), "a second beginning: {said}"),
            ("TaskStatus", "working", None) => {
                let is_closed =
                    claims.last().and_then(|claim| claim.end.as_ref()).is_some_and(|end| end.status != "new");
                ensure!(!is_closed, "a claim of a closed task: {said}");
                let (sha, agent) = (record.sha.clone(), record.agent.clone());
                claims.push(Claim { sha, agent, renewed_ms: record.clock_ms, end: None });
            }
            ("TaskStatus", "working", Some(held)) => bail!("a second holder beside {}: {said}", held.agent),
            ("TaskStatus", "new", None) => ensure!(claims.is_empty(), "nobody held what is given back: {said}"),
            (_, _, None) => bail!("nobody holds the task: {said}"),
            (_, _, Some(held)) if !is_by_holder && !may_take_away.contains(&&*record.agent) => {
                bail!("{} holds the task: {said}", held.agent)
            }
            ("TaskStatus", status, Some(held)) => {
                let (status, by) = (status.to_owned(), record.agent.clone());
                held.end = Some(End { status, by, at_ms: record.clock_ms });
            }
            (_, _, Some(held)) if is_by_holder => held.renewed_ms = record.clock_ms,
            // Of a sweeper, just before it takes the claim away.
            (..) => {}
        }
    }
    Ok(claims)
}

/// Checks that the last of a task's claims, and no other, closed it, as done by its holder. Returns that claim.
pub fn done_once(claims: &[Claim]) -> Result<&Claim> {
    let (last, earlier) = claims.split_last().context("a task that nobody claimed")?;
    let end = last.end.as_ref().with_context(|| format!("{} is still held by {}", last.sha, last.agent))?;
    ensure!(end.status == "done" && end.by == last.agent, "the end is not done by the holder: {last:?}");
    for claim in earlier {
        let status = claim.end.as_ref().map_or("", |end| &end.status);
        ensure!(status == "new", "{} was followed by another claim, and ended {status:?}", claim.sha);
    }
    Ok(last)
}
