//! What is to be done about one task whose tip here is not the one at the authority: decided, not done (design,
//! section 7).
//!
//! Pure: the tips and the records between them come in, an action goes out. Nothing here reads a ref, asks a remote or
//! moves anything; the records that it makes up are handed to the caller, who gives them their ids.
//!
//! What must never happen here: a record of the authority is given up for one of ours; a claim gets a second life under
//! a new id, for a fencing token never changes under its holder.

use std::collections::HashMap;

use crate::id::{AgentId, RecordId, RefName};
use crate::ledger::judge::{Row, judge};
use crate::ledger::verify::ChainFault;
use crate::protocol::apply;
use crate::protocol::decide::{Draft, Stamp};
use crate::protocol::record::{Content, Mark, Phase, Record};
use crate::protocol::state::TaskState;

/// A task as it stands here and there.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The task's ref.
    pub name: RefName,
    /// The tip here.
    pub local: Option<RecordId>,
    /// The tip at the authority.
    pub remote: Option<RecordId>,
    /// What the authority is known to have had.
    pub had: Option<RecordId>,
    /// Whether the tip at the authority leads to that.
    pub still_has: bool,
    /// Where the two chains part: the state there.
    pub base: Option<TaskState>,
    /// The records that only the chain here has, oldest first.
    pub ours: Vec<Row>,
    /// The records that only the chain there has, oldest first.
    pub theirs: Vec<Row>,
}

/// What is to be done about a task.
#[derive(Debug, Clone)]
pub enum Action {
    /// Both are the same.
    Nothing,
    /// The authority lacks the records of ours.
    Push,
    /// We lack records of the authority, which hold every rule: move our tip to the authority's.
    Take(Box<TaskState>),
    /// Both have records that the other lacks. The authority's stay; ours are given up, but for what was made anew.
    Rebase(Box<Rebased>),
    /// The authority had records that are gone there: that is loss, not news.
    Alarm(Gone),
    /// Records break a rule. `theirs`: those of the authority, else ours.
    Refuse {
        /// Whose they are.
        theirs: bool,
        /// Which.
        fault: ChainFault,
    },
    /// Two tasks that were planned apart have one name.
    Collision,
}

/// How records vanished at the authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// The whole task is gone.
    Vanished,
    /// Its tip is an older record of the same chain, as after the restore of a backup.
    FellBack,
    /// Its chain was replaced by another one.
    Rewritten,
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Gone::Vanished => "the task was there and is gone",
            Gone::FellBack => "it fell back to an older record",
            Gone::Rewritten => "its chain was replaced by another one",
        })
    }
}

/// A chain of ours, put on top of the authority's.
#[derive(Debug, Clone)]
pub struct Rebased {
    /// The state at the new tip.
    pub state: TaskState,
    /// What each record of ours became, oldest first.
    pub fates: Vec<Fate>,
}

impl Rebased {
    /// Whether some record of ours has nothing that stands for it.
    pub fn has_losses(&self) -> bool {
        self.fates.iter().any(|fate| fate.outcome.is_err())
    }
}

/// What became of one record that the authority did not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// The record.
    pub record: RecordId,
    /// Its kind, and its phase if it is a status.
    pub what: String,
    /// Its author.
    pub agent: AgentId,
    /// The record that stands for it now, or why there is none.
    pub outcome: Result<RecordId, String>,
}

/// Decides about one task. Records that are made anew get their id from `put`.
///
/// # Errors
/// What `put` returns.
pub fn reconcile<E>(standing: &Standing, put: impl FnMut(&Record) -> Result<RecordId, E>) -> Result<Action, E> {
    let name = &standing.name;
    let (local, remote) = match (standing.local, standing.remote) {
        (_, None) if standing.had.is_some() => return Ok(Action::Alarm(Gone::Vanished)),
        (None, None) => return Ok(Action::Nothing),
        (Some(_), None) => return Ok(judged_ours(standing)),
        (_, Some(_)) if !standing.still_has => {
            let fell_back = standing.theirs.is_empty();
            return Ok(Action::Alarm(if fell_back { Gone::FellBack } else { Gone::Rewritten }));
        }
        (local, Some(remote)) => (local, remote),
    };
    if local == Some(remote) {
        return Ok(Action::Nothing);
    }
    if standing.theirs.is_empty() {
        return Ok(judged_ours(standing));
    }
    if local.is_some() && standing.base.is_none() {
        return Ok(Action::Collision);
    }
    let there = match judge(name, standing.base.clone(), &standing.theirs) {
        Ok(there) => there,
        Err(fault) => return Ok(Action::Refuse { theirs: true, fault }),
    };
    if standing.ours.is_empty() {
        return Ok(Action::Take(Box::new(there)));
    }
    rebase(there, &standing.ours, put).map(|rebased| Action::Rebase(Box::new(rebased)))
}

/// Nothing is pushed that breaks a rule.
fn judged_ours(standing: &Standing) -> Action {
    match judge(&standing.name, standing.base.clone(), &standing.ours) {
        Ok(_) => Action::Push,
        Err(fault) => Action::Refuse { theirs: false, fault },
    }
}

/// Puts records of ours on top of the authority's state, in order: each is judged again, and one that does not fit is
/// given up.
fn rebase<E>(
    there: TaskState,
    ours: &[Row],
    mut put: impl FnMut(&Record) -> Result<RecordId, E>,
) -> Result<Rebased, E> {
    let mut state = there;
    let mut renamed: HashMap<RecordId, RecordId> = HashMap::new();
    let mut fates = Vec::with_capacity(ours.len());
    for (id, record) in ours {
        let outcome = match anew(&state, *id, record, &renamed) {
            Ok(record) => {
                let new = put(&record)?;
                let checked = apply::apply(Some(state), new, &record);
                state =
                    checked.unwrap_or_else(|invalid| panic!("a record that was just found valid is not: {invalid}"));
                renamed.insert(*id, new);
                Ok(new)
            }
            Err(why) => Err(why),
        };
        fates.push(Fate { record: *id, what: described(record), agent: record.agent.clone(), outcome });
    }
    Ok(Rebased { state, fates })
}

/// The record as it would stand on top of `state`: same author, same date, same words, new links.
fn anew(
    state: &TaskState,
    id: RecordId,
    record: &Record,
    renamed: &HashMap<RecordId, RecordId>,
) -> Result<Record, String> {
    let now = |id: RecordId| renamed.get(&id).copied().unwrap_or(id);
    let mut content = record.content.clone();
    match &mut content {
        Content::Heartbeat(beat) if !beat.preempt => {}
        Content::Report(report) if !report.synthetic => {}
        Content::Status(status) if is_holders_word(status.phase, status.mark) => status.proof = status.proof.map(now),
        _ => {
            return Err(
                "the first push wins: what others recorded meanwhile stays, and this is never repeated".to_owned()
            );
        }
    }
    if record.links.status.map(now) != state.status.as_ref().map(|at| at.id) {
        return Err("the claim that it was recorded under is not the current one at the authority".to_owned());
    }
    let draft = Draft { agent: record.agent.clone(), content, body: record.body.clone() };
    let stamp = Stamp { email: &record.email, at: record.at, clock: record.clock, nonce: record.nonce };
    let anew = Record { unknown: record.unknown.clone(), ..draft.into_record(Some(state), &stamp) };
    match apply::apply(Some(state.clone()), id, &anew).and_then(|state| apply::end(&state)) {
        Ok(()) => Ok(anew),
        Err(invalid) => Err(invalid.to_string()),
    }
}

/// Whether a status says what its holder did: a release or a finish.
fn is_holders_word(phase: Phase, mark: Option<Mark>) -> bool {
    matches!((phase, mark), (Phase::New, Some(Mark::Released)) | (Phase::Done | Phase::Rejected, None))
}

fn described(record: &Record) -> String {
    match &record.content {
        Content::Status(status) => format!("TaskStatus({})", status.phase),
        other => other.kind().to_string(),
    }
}
