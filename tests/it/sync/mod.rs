//! What is to be done about one task that two machines have: the pure decision, without any machine.
//!
//! The chains are those of `protocol::chain`. The records of the base have the ids 1, 2, 3 …, those of the authority go
//! on from there, those that only this machine has begin at 300, and those that are made anew at 600.

mod properties;
mod rebase;
mod table;

use std::convert::Infallible;

use pm::id::{RecordId, RefName};
use pm::ledger::judge::Row;
use pm::protocol::apply::{apply, end};
use pm::protocol::record::Record;
use pm::sync::reconcile::{Action, Rebased, Standing, reconcile};

use crate::protocol::chain::{Chain, id, spelled_out};

/// The ref that the chains belong to.
fn name() -> RefName {
    RefName::from_full("refs/pm/tasks/default/build".to_owned())
}

/// Puts a record on top, with an id of this machine's own.
fn push_ours(chain: &mut Chain, record: Record) -> bool {
    let id = id(300 + chain.records.len());
    let Ok(state) = apply(chain.folded.clone(), id, &record) else { return false };
    chain.folded = Some(state);
    chain.records.push((id, record));
    true
}

/// The chain with these words on top, the records being the authority's or this machine's own. Words that may not stand
/// there are left out.
fn grown(base: &Chain, words: &[&str], is_ours: bool) -> Chain {
    let mut chain = base.clone();
    for word in words {
        let mut longer = chain.clone();
        let fits = spelled_out(word).iter().all(|word| {
            let record = longer.next(word);
            if is_ours { push_ours(&mut longer, record) } else { longer.push(record).is_ok() }
        });
        if fits && longer.folded.as_ref().is_some_and(|state| end(state).is_ok()) {
            chain = longer;
        }
    }
    chain
}

/// The same, where every word must stand there.
fn script(base: &Chain, words: &str, is_ours: bool) -> Chain {
    let words: Vec<&str> = words.split_whitespace().collect();
    let chain = grown(base, &words, is_ours);
    let records: usize = words.iter().map(|word| spelled_out(word).len()).sum();
    assert_eq!(chain.records.len(), base.records.len() + records, "every word of {words:?} may stand there");
    chain
}

fn tip(chain: &Chain) -> Option<RecordId> {
    chain.records.last().map(|(id, _)| *id)
}

/// How a task stands: both chains grew from the base, which the authority was seen to have.
fn standing(base: &Chain, ours: &Chain, theirs: &Chain) -> Standing {
    let above = |chain: &Chain| -> Vec<Row> { chain.records[base.records.len()..].to_vec() };
    Standing {
        name: name(),
        local: tip(ours),
        remote: tip(theirs),
        had: tip(base),
        still_has: true,
        base: base.folded.clone(),
        ours: above(ours),
        theirs: above(theirs),
    }
}

/// Decides, with ids from 600 on for what is made anew; also returns those records.
fn decided(standing: &Standing) -> (Action, Vec<Row>) {
    let mut anew = Vec::new();
    let put = |record: &Record| {
        let id = id(600 + anew.len());
        anew.push((id, record.clone()));
        Ok::<_, Infallible>(id)
    };
    let Ok(action) = reconcile(standing, put);
    (action, anew)
}

/// What becomes of records of ours beside records of theirs, both on a common base.
fn rebased(base: &str, ours: &str, theirs: &str) -> (Rebased, Vec<Row>) {
    let base = Chain::of(base);
    let standing = standing(&base, &script(&base, ours, true), &script(&base, theirs, false));
    match decided(&standing) {
        (Action::Rebase(rebased), anew) => (*rebased, anew),
        (other, _) => panic!("{other:?}"),
    }
}
