//! What the tour may claim: judged from the records alone.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::id::{RecordId, TaskId};
use crate::ledger::resolve::{place, prefix};
use crate::ledger::verify::Findings;
use crate::protocol::record::{Content, Mark, Phase, Record};
use crate::session::Session;
use crate::store::Store;

/// What one chain says, as far as the audit asks.
struct Life {
    place: String,
    depends_on: Vec<TaskId>,
    /// The statuses, oldest first.
    statuses: Vec<(RecordId, Record)>,
}

/// Checks every rule that the tour shows, and returns how many records the ledger has.
///
/// # Errors
/// `Tour`, naming the rule that was broken.
pub fn check(session: &Session, recovered: &TaskId, dead_claim: &str, zombie_exit: i32) -> Result<usize> {
    let ledger = session.ledger();
    let mut findings = Findings::default();
    for (name, tip) in session.store.tips(&prefix(None))? {
        ledger.verify(&name, tip, &mut findings)?;
    }
    if let Some(fault) = findings.faults.first() {
        return broken(format!("{} breaks rule '{}': {}", fault.name, fault.rule, fault.found));
    }
    let mut lives = HashMap::new();
    let scan = ledger.scan(&prefix(None))?;
    for (name, state) in &scan.tasks {
        let mut statuses = Vec::new();
        for row in ledger.chain(name, state.tip) {
            let (id, record) = row?;
            if matches!(record.content, Content::Status(_)) {
                statuses.push((id, record));
            }
        }
        statuses.reverse();
        let depends_on = state.task.depends_on.clone();
        lives.insert(state.id, Life { place: place(state).to_string(), depends_on, statuses });
    }
    for (id, life) in &lives {
        let phases = life.statuses.iter().map(|(_, record)| phase(record)).collect::<Vec<_>>();
        let done = phases.iter().filter(|(phase, _)| *phase == Phase::Done).count();
        if done != 1 {
            return broken(format!("{} was closed {done} times", life.place));
        }
        let expected: &[(Phase, Option<Mark>)] = &[(Phase::New, None), (Phase::Working, None), (Phase::Done, None)];
        if id != recovered && phases != expected {
            return broken(format!("{} was handed out {} times", life.place, phases.len().saturating_sub(2)));
        }
        dependencies_came_first(&lives, life)?;
    }
    recovery(&lives[recovered], dead_claim)?;
    let refused = [ExitCode::WrongPhase.number(), ExitCode::LeaseLost.number()].map(i32::from);
    if !refused.contains(&zombie_exit) {
        return broken(format!("the dead worker's claim was answered with exit {zombie_exit}"));
    }
    Ok(findings.records)
}

fn phase(record: &Record) -> (Phase, Option<Mark>) {
    match &record.content {
        Content::Status(status) => (status.phase, status.mark),
        _ => unreachable!("only statuses are collected"),
    }
}

/// Rule 8, by the one clock that all processes of the tour share.
fn dependencies_came_first(lives: &HashMap<TaskId, Life>, life: &Life) -> Result<()> {
    let ms = |record: &Record| record.clock.map(|clock| clock.ms);
    let claims = life.statuses.iter().filter(|(_, record)| phase(record).0 == Phase::Working);
    for claim in claims.filter_map(|(_, record)| ms(record)) {
        for dependency in &life.depends_on {
            let Some(other) = lives.get(dependency) else { return broken(format!("{dependency} is gone")) };
            let closed = other.statuses.iter().filter(|(_, record)| phase(record).0 == Phase::Done);
            if closed.filter_map(|(_, record)| ms(record)).all(|closed| closed > claim) {
                return broken(format!("{} was claimed before {} was done", life.place, other.place));
            }
        }
    }
    Ok(())
}

/// The recovered task: claimed by the dead worker, taken back, claimed by another, done by that one.
fn recovery(life: &Life, dead_claim: &str) -> Result<()> {
    let phases: Vec<_> = life.statuses.iter().map(|(_, record)| phase(record)).collect();
    let expected = [
        (Phase::New, None),
        (Phase::Working, None),
        (Phase::New, Some(Mark::Reclaimed)),
        (Phase::Working, None),
        (Phase::Done, None),
    ];
    if phases != expected {
        return broken(format!("the life of {} is not that of a recovered task", life.place));
    }
    let agent = |at: usize| &life.statuses[at].1.agent;
    if life.statuses[1].0.to_string() != dead_claim || agent(1) == agent(3) || agent(3) != agent(4) {
        return broken(format!("{} was not finished by another worker than the dead one", life.place));
    }
    Ok(())
}

fn broken<T>(what: String) -> Result<T> {
    Err(Error::Tour(what))
}
