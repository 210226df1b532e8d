//! The same command again, after its answer was lost: what it asks for may be recorded already.
//!
//! What must never happen here: a record answers for a command that asks for something else.

use std::time::Duration;

use super::remote::Delivery;
use super::settle::Link;
use crate::error::{Error, Result};
use crate::id::{ANSWERS, RecordId, RefName};
use crate::ledger::Ledger;
use crate::ledger::append::Appended;
use crate::ledger::create::NewTask;
use crate::ledger::judge::Row;
use crate::protocol::decide::{Draft, Intent, Verified};
use crate::protocol::lease::DEFAULT_TTL_MS;
use crate::protocol::record::{Content, Record, Status, Ttl};
use crate::protocol::state::TaskState;

/// A claim whose answer was lost is what the same command asks for again while it is not older than this
/// part of the lease.
const FRESH_PART: u64 = 10;

/// For so many seconds the same command again is taken for a repetition, where somebody else found out that the record
/// got in.
const REPEATED_WITHIN_S: i64 = 600;

/// A record of an earlier command whose answer was lost, now that its fate is known.
pub(super) struct Resolved {
    pub tip: RecordId,
    pub accepted: bool,
    /// The branch that was delivered with it.
    pub delivery: Option<Delivery>,
}

impl Link {
    /// What is said where the fate of an earlier record is not known: of the command that recorded it, that it is not known;
    /// of any other, that it recorded nothing.
    pub(super) fn still_open(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        error: Error,
        asks: impl FnOnce(&TaskState, &[Row]) -> bool,
    ) -> Error {
        let Error::AnswerLost { place, record, remote, why } = error else { return error };
        match sent_together(ledger, name, record) {
            Some((below, sent)) if asks(&below, &sent) => Error::AnswerLost { place, record, remote, why },
            _ => Error::Unreachable {
                remote,
                why: format!(
                    "{why}; an earlier record of {place}, {record}, is on its way there, and its fate is not known"
                ),
            },
        }
    }

    /// The answer to an intent, where it was lost: by what was just found out, or by what others found out before.
    pub(super) fn answered(
        &self,
        ledger: &Ledger<'_>,
        name: &RefName,
        resolved: Option<Resolved>,
        intent: &Intent,
        state: &TaskState,
    ) -> Result<Option<(Appended, Option<Delivery>)>> {
        for resolved in resolved.into_iter().chain(self.answer(ledger, name)?) {
            let tip = resolved.tip;
            if let Some(answer) = repeated(ledger, name, resolved, intent, state)? {
                self.forget_answer(ledger, name, tip)?;
                return Ok(Some(answer));
            }
        }
        Ok(None)
    }

    /// Keeps a record that got in until its sender asks for it again. A heartbeat is rather sent once more: there is no
    /// harm in two, but in one that is believed to be newer than it is.
    pub(super) fn keep_answer(&self, ledger: &Ledger<'_>, name: &RefName, tip: RecordId) -> Result<()> {
        if !is_heartbeat(&ledger.record(name, tip)?) {
            let before = ledger.store.tip(&name.answer()).ok().flatten().map(RecordId);
            // What cannot be kept is recorded anew.
            let _kept = ledger.move_ref(&name.answer(), before, tip);
        }
        Ok(())
    }

    /// The record that got in, and whose sender does not know so yet. Whoever has recorded something else of the task since
    /// then repeats nothing: asked for again, it is wanted once more.
    pub(super) fn answer(&self, ledger: &Ledger<'_>, name: &RefName) -> Result<Option<Resolved>> {
        let Some(tip) = ledger.store.tip(&name.answer()).ok().flatten().map(RecordId) else { return Ok(None) };
        let sent = ledger.record(name, tip).ok().filter(|sent| !is_old(ledger, sent));
        let (Some(sent), Some(here)) = (sent, ledger.store.tip(name)?.map(RecordId)) else { return Ok(None) };
        let since = ledger.fork(name, tip, here)?;
        let went_on = |(_, record): &Row| record.agent == sent.agent && !is_heartbeat(record);
        if since.base != Some(tip) || since.theirs.iter().any(went_on) {
            return Ok(None);
        }
        Ok(Some(Resolved { tip, accepted: true, delivery: self.noted_delivery(ledger, name)? }))
    }

    /// Forgets what is no answer any more, after something else was recorded. Only for who has the turn.
    pub(super) fn forget_superseded(&self, ledger: &Ledger<'_>, name: &RefName) -> Result<()> {
        match ledger.store.tip(&name.answer())? {
            Some(tip) if self.answer(ledger, name)?.is_none() => self.forget_answer(ledger, name, RecordId(tip)),
            _ => Ok(()),
        }
    }

    /// Its sender knows, or will not ask any more. Only for who has the turn.
    pub(super) fn forget_answer(&self, ledger: &Ledger<'_>, name: &RefName, tip: RecordId) -> Result<()> {
        ledger.drop_ref(&name.answer(), tip).map(drop)?;
        match ledger.store.tip(&name.pending())? {
            // What is noted belongs to that one.
            Some(_) => Ok(()),
            None => self.note_delivery(ledger, name, None),
        }
    }

    /// Forgets the answers that nobody asked for in time.
    pub(super) fn forget_old_answers(&self, ledger: &Ledger<'_>) -> Result<()> {
        for (answer, tip) in ledger.store.tips(ANSWERS)? {
            let name = answer.of_task_below(ANSWERS);
            let Ok(tip) = tip.map(RecordId) else { continue };
            if ledger.record(&name, tip).map_or(true, |sent| is_old(ledger, &sent))
                && let Some(_turn) = self.try_turn(&name, Duration::ZERO)?
            {
                // What is in the way now is gone the next time.
                let _forgotten = self.forget_answer(ledger, &name, tip);
            }
        }
        Ok(())
    }
}

fn is_heartbeat(record: &Record) -> bool {
    matches!(record.content, Content::Heartbeat(_))
}

/// Whether nobody asks any more for a record.
fn is_old(ledger: &Ledger<'_>, record: &Record) -> bool {
    // Also what a clock that was set back dates in the future.
    ledger.clock.wall_seconds().saturating_sub(record.at).abs() > REPEATED_WITHIN_S
}

/// Whether a record of an earlier command, whose answer was lost, is what this intent asks for: then it is the answer.
fn repeated(
    ledger: &Ledger<'_>,
    name: &RefName,
    resolved: Resolved,
    intent: &Intent,
    state: &TaskState,
) -> Result<Option<(Appended, Option<Delivery>)>> {
    let Resolved { tip, accepted: true, delivery } = resolved else { return Ok(None) };
    let record = ledger.record(name, tip)?;
    let Some((below, sent)) = sent_together(ledger, name, tip) else { return Ok(None) };
    if !asks_for(ledger, &below, intent, &sent) {
        return Ok(None);
    }
    let is_claim = matches!(intent, Intent::Claim { .. });
    // A claim begins a lease when it is recorded: long ago, it is no answer for whoever asks now, who would count the
    // lease from now. (`owned` tells of it.) A heartbeat may be: its sender knows since when it asks.
    let age_s = ledger.clock.wall_seconds().saturating_sub(record.at);
    let ttl_ms = state.claim().and_then(|claim| claim.ttl).map_or(DEFAULT_TTL_MS, Ttl::ms);
    let is_fresh = u64::try_from(age_s).is_ok_and(|age_s| age_s.saturating_mul(1000 * FRESH_PART) <= ttl_ms);
    if is_claim && !is_fresh {
        return Ok(None);
    }
    if is_claim && state.claim().map(|claim| claim.id) != Some(tip) {
        return Ok(None);
    }
    // Whoever takes a task away means the claim or the binding that is there now.
    if matches!(intent, Intent::Reclaim { .. }) && (state.claim().is_some() || state.context().is_some()) {
        return Ok(None);
    }
    Ok(Some((ledger.appended(state.clone(), sent), delivery)))
}

/// The records that were sent together, of which this is the last, oldest first, and what they were decided on: a status may
/// stand on records that only prepare it.
fn sent_together(ledger: &Ledger<'_>, name: &RefName, tip: RecordId) -> Option<(TaskState, Vec<Row>)> {
    let prepares = |record: &Record| match &record.content {
        Content::Heartbeat(beat) => beat.preempt,
        Content::Report(report) => report.synthetic,
        Content::Task(_) | Content::Status(_) => false,
    };
    let last = ledger.record(name, tip).ok()?;
    let mut below = last.parent?;
    let mut sent = vec![(tip, last)];
    loop {
        let record = ledger.record(name, below).ok()?;
        if !prepares(&record) {
            sent.reverse();
            return Some((ledger.state_at(name, below).ok()?, sent));
        }
        let parent = record.parent?;
        sent.push((below, record));
        below = parent;
    }
}

/// Whether an intent, decided on what lies below some records, would have made those records.
pub(super) fn asks_for(ledger: &Ledger<'_>, below: &TaskState, intent: &Intent, sent: &[Row]) -> bool {
    let mut intent = intent.clone();
    if let (Intent::Finish { verified, .. }, Some((_, Record { content: Content::Status(status), .. }))) =
        (&mut intent, sent.last())
        && let (Some(report), Some(verification)) = (status.proof, &status.verification)
    {
        // It may have run again since, and print something else, or not at all: the task is closed already.
        *verified = Some(Verified { report, verification: verification.clone() });
    }
    let Ok(decided) = ledger.decide(below, &mut intent, false) else { return false };
    let is_same = |(draft, (_, record)): (&Draft, &Row)| {
        // What is synthetic closes the task over the report that was sent with it.
        let content = match (&draft.content, &record.content) {
            (Content::Status(asked), Content::Status(sent)) if asked.proof.is_none() => {
                Content::Status(Box::new(Status { proof: sent.proof, ..(**asked).clone() }))
            }
            (content, _) => content.clone(),
        };
        draft.agent == record.agent && content == record.content && draft.body == record.body
    };
    decided.drafts.len() == sent.len() && decided.drafts.iter().zip(sent).all(is_same)
}

/// The creation of an earlier command whose answer was lost, if it is the one that is asked for now.
pub(super) fn same_creation(
    ledger: &Ledger<'_>,
    name: &RefName,
    state: &TaskState,
    tip: RecordId,
    new: &NewTask,
) -> Result<Option<Appended>> {
    let first = ledger.record(name, state.id.record())?;
    let Content::Task(planned) = &first.content else { return Ok(None) };
    if !new.task.is_same_definition(planned) || first.body != new.body || first.agent != *ledger.agent {
        return Ok(None);
    }
    let status = ledger.record(name, tip)?;
    if status.parent != Some(state.id.record()) {
        return Ok(None);
    }
    Ok(Some(ledger.appended(state.clone(), vec![(state.id.record(), first), (tip, status)])))
}
