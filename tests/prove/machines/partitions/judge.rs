//! The verdict over a partition run: all that was told, against the history that the hub has in the end.
//!
//! What must never happen here: pm judges itself. The hub's history, and what each machine keeps as lost, is read by plain
//! git; of pm only what it told its callers is used.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::worker::{Log, Unknown};
use crate::machines::history::History;
use crate::machines::scene::{Fleet, Machine};
use crate::machines::told::Told;

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts {
    pub runs: usize,
    pub exits: BTreeMap<i32, usize>,
    pub acknowledged: usize,
    pub unknown: usize,
    /// Unknown at first, and accepted in the end.
    pub unknown_accepted: usize,
    /// A command was repeated after another process had settled what became of the first, and recorded anew.
    pub recorded_anew: usize,
    pub provisional: usize,
    pub provisional_lost: usize,
    pub reclaims: usize,
}

/// What a machine keeps of what lost.
struct Lost {
    /// All records that are reachable from its lost tips.
    records: BTreeSet<String>,
    /// All records that an account names.
    accounts: BTreeSet<String>,
}

/// Checks everything that was told in a run.
pub fn judge(fleet: &Fleet, history: &History, log: &Log, counts: &mut Counts) -> Result<()> {
    let lost: Vec<Lost> = fleet.machines.iter().map(Lost::of).collect::<Result<_>>()?;
    let nonces: HashMap<&str, &str> =
        history.chains.values().flatten().map(|record| (&*record.nonce, &*record.sha)).collect();
    let mut claimants: HashMap<&str, &str> = HashMap::new();
    for told in &log.told {
        *counts.exits.entry(told.code).or_default() += 1;
        let expected = [0, 6, 7, 8, 12, 20, 21, 22].contains(&told.code);
        ensure!(expected, "no command may end so here: {}", told.shown());
        let (0, Some(record)) = (told.code, &told.record) else { continue };
        if told.provisional {
            counts.provisional += 1;
            provisional(&fleet.machines[told.machine], history, &nonces, &lost[told.machine], told, record, counts)?;
            continue;
        }
        counts.acknowledged += 1;
        ensure!(history.has(&told.slug, record), "acknowledged and lost: {}", told.shown());
        if told.is_claim() {
            let before = claimants.insert(record, &told.agent);
            ensure!(before.is_none_or(|agent| agent == told.agent), "{before:?} has the same claim: {}", told.shown());
        }
    }
    accounted_for(fleet, history, log)?;
    counts.unknown += log.unknown.len();
    for unknown in &log.unknown {
        resolved(history, &lost, log, unknown, counts).with_context(|| {
            let repeated = unknown.repeated.as_ref().map(Told::shown).unwrap_or_default();
            format!("{}; repeated: {repeated}", unknown.first.shown())
        })?;
    }
    counts.reclaims += history.chains.values().flatten().filter(|it| it.is_sweepers && it.kind == "TaskStatus").count();
    Ok(())
}

/// Every record of a worker was acknowledged to it, or named to it as unknown: nothing is there of which it was told that it
/// was not recorded.
fn accounted_for(fleet: &Fleet, history: &History, log: &Log) -> Result<()> {
    let told: BTreeSet<&str> = log.told.iter().filter_map(|told| told.record.as_deref()).collect();
    let mut anew = BTreeSet::new();
    for told in log.told.iter().filter(|told| told.provisional) {
        let record = told.record.as_deref().unwrap_or_default();
        anew.insert(nonce(&fleet.machines[told.machine], record)?);
    }
    for (slug, chain) in &history.chains {
        for record in chain.iter().filter(|record| !["planner", "sweeper", "syncer"].contains(&&*record.agent)) {
            let is_known = told.contains(&*record.sha) || anew.contains(&record.nonce);
            ensure!(is_known, "{slug}: recorded, but its author was never told so: {record:?}");
        }
    }
    Ok(())
}

fn nonce(machine: &Machine, record: &str) -> Result<String> {
    let nonce = machine.repo.git(["log", "-1", "--format=%(trailers:key=Nonce,valueonly)", record])?;
    Ok(nonce.trim().to_owned())
}

/// A record that was made without asking the authority is there, is there anew, or lost with an account.
fn provisional(
    machine: &Machine,
    history: &History,
    nonces: &HashMap<&str, &str>,
    lost: &Lost,
    told: &Told,
    record: &str,
    counts: &mut Counts,
) -> Result<()> {
    if history.has(&told.slug, record) {
        return Ok(());
    }
    ensure!(lost.records.contains(record), "provisional and gone: {}", told.shown());
    ensure!(lost.accounts.contains(record), "lost without an account: {}", told.shown());
    match nonces.get(&*nonce(machine, record)?) {
        Some(anew) => ensure!(!told.is_claim(), "a claim came back as {anew}: {}", told.shown()),
        None => counts.provisional_lost += 1,
    }
    Ok(())
}

/// What was unknown has been resolved, and truly.
fn resolved(history: &History, lost: &[Lost], log: &Log, unknown: &Unknown, counts: &mut Counts) -> Result<()> {
    let Unknown { first, repeated } = unknown;
    let record = first.record.as_ref().context("exit 22 names the record")?;
    let repeated = repeated.as_ref().context("never repeated")?;
    let is_there = history.slugs.contains_key(record);
    counts.unknown_accepted += usize::from(is_there);
    ensure!(
        is_there || lost[first.machine].records.contains(record),
        "the record is neither accepted nor kept as lost"
    );
    if first.verb() == "pull" {
        // The next task may be another one.
        return Ok(());
    }
    let settled_by_another = log.told.iter().any(|other| could_settle(other, first, repeated));
    // The worker's next step may have been the same command, and have got that record as its answer.
    let is_answered = log.told.iter().any(|other| other.code == 0 && other.record == first.record);
    match repeated.code {
        0 if repeated.provisional || repeated.coalesced => Ok(()),
        0 => {
            let now = repeated.record.as_ref().context("an acknowledged record")?;
            ensure!(history.has(&first.slug, now), "acknowledged and lost");
            if now != record && is_there {
                // What its sender repeats after it went on, or a heartbeat, or a claim that is too old to be an answer, is a
                // new command. Any other repetition gets that record, whoever found out that it got in.
                let is_new =
                    matches!(first.verb(), "heartbeat" | "pull" | "executing") || went_on(log, first, repeated);
                ensure!(is_answered || settled_by_another && is_new, "both records are there: it was recorded twice");
                counts.recorded_anew += usize::from(!is_answered);
            }
            Ok(())
        }
        20 | 22 => bail!("still unknown on a whole network"),
        _ if !is_there || repeated.yours || settled_by_another => Ok(()),
        // It was there, and lost to a sweep before it was asked for again.
        _ if first.is_claim() => Ok(()),
        code => bail!("the record is there, but the repetition ended with {code}"),
    }
}

/// Whether a command on the same machine may have found out what became of the first: then the repetition is a new
/// command. (Also one that reached the hub, and in the end could not.)
fn could_settle(other: &Told, first: &Told, repeated: &Told) -> bool {
    let is_between = other.ended >= first.started && other.started <= repeated.ended;
    let is_itself = other.args == first.args && other.agent == first.agent;
    let sees_it = other.slug == first.slug || matches!(other.verb(), "pull" | "sweep" | "sync");
    other.machine == first.machine && is_between && !is_itself && sees_it
}

/// Whether its sender has recorded something else of the task before it repeated the first command.
fn went_on(log: &Log, first: &Told, repeated: &Told) -> bool {
    log.told.iter().any(|other| {
        let is_between = other.started >= first.ended && other.ended <= repeated.started;
        let is_theirs = other.agent == first.agent && other.slug == first.slug && other.args != first.args;
        is_between && is_theirs && other.verb() != "heartbeat" && matches!(other.code, 0 | 22)
    })
}

impl Lost {
    fn of(machine: &Machine) -> Result<Lost> {
        let tips = machine.repo.git(["for-each-ref", "--format=%(objectname)", "refs/pm-lost/"])?;
        let records = match tips.is_empty() {
            true => String::new(),
            false => machine.repo.git(["rev-list", "--glob=refs/pm-lost/*"])?,
        };
        let mut accounts = BTreeSet::new();
        for tip in tips.lines() {
            let file = machine.repo.git_dir().join("pm/lost").join(tip);
            let text = fs::read(&file).with_context(|| format!("the account {}", file.display()))?;
            let account: Value = serde_json::from_slice(&text)?;
            let rows = account["records"].as_array().into_iter().flatten();
            accounts.extend(rows.filter_map(|row| Some(row["record"].as_str()?.to_owned())));
        }
        Ok(Lost { records: records.lines().map(str::to_owned).collect(), accounts })
    }
}
