//! Properties of the decision, for any two random suffixes of records on a random base.

use std::cell::Cell;
use std::collections::HashSet;

use pm::ledger::judge::judge;
use pm::protocol::record::{Content, Mark, Phase, Record};
use pm::sync::reconcile::Action;
use proptest::prelude::*;

use super::{decided, grown, name, standing};
use crate::protocol::chain::Chain;
use crate::protocol::for_all;

/// What may be recorded, and by whom.
const WORDS: [&str; 22] = [
    "claim",
    "claim:w2",
    "beat",
    "beat:w2",
    "beat",
    "beat:w2",
    "report",
    "report:w2",
    "report",
    "release",
    "release:w2",
    "done",
    "done:w2",
    "reject",
    "sweep",
    "sweep",
    "taken",
    "kill",
    "cancel",
    "replan",
    "supersede",
    "beat",
];

/// How a task may have begun.
const BEGINNINGS: [&str; 7] = [
    "plan",
    "plan claim",
    "plan claim",
    "plan+max1 claim",
    "plan+verifier claim:w2 report:w2",
    "plan+sticky claim beat report",
    "plan claim report done",
];

fn words(most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(&WORDS[..]), 0..=most)
}

/// Whether a record is one that its holder may say again: all that is ever put on top of others' records.
fn may_be_repeated(record: &Record) -> bool {
    match &record.content {
        Content::Heartbeat(beat) => !beat.preempt,
        Content::Report(report) => !report.synthetic,
        Content::Status(status) => matches!(
            (status.phase, status.mark),
            (Phase::New, Some(Mark::Released)) | (Phase::Done | Phase::Rejected, None)
        ),
        Content::Task(_) => false,
    }
}

#[test]
fn any_two_suffixes_are_brought_together_with_every_rule_kept_and_every_record_accounted_for() {
    let (kept_ones, lost_ones, taken, pushed) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    let count = |cell: &Cell<usize>, by: usize| cell.set(cell.get() + by);
    let begun = prop::sample::select(&BEGINNINGS[..]);
    for_all((begun, words(2), words(8), words(8)), |(begun, first, ours, theirs)| {
        let base = grown(&Chain::of(begun), &first, false);
        let standing = standing(&base, &grown(&base, &ours, true), &grown(&base, &theirs, false));
        let (action, anew) = decided(&standing);
        match (&action, standing.ours.is_empty(), standing.theirs.is_empty()) {
            (Action::Nothing, true, true) => {}
            (Action::Push, false, true) => count(&pushed, 1),
            (Action::Take(state), true, false) => {
                prop_assert_eq!(judge(&name(), standing.base.clone(), &standing.theirs), Ok((**state).clone()));
                count(&taken, 1);
            }
            (Action::Rebase(rebased), false, false) => {
                // All of theirs, then what was made anew: the whole keeps every rule, and ends where it is said to end.
                let whole = [standing.theirs.clone(), anew.clone()].concat();
                prop_assert_eq!(judge(&name(), standing.base.clone(), &whole), Ok(rebased.state.clone()));
                let fates: Vec<_> = rebased.fates.iter().map(|fate| fate.record).collect();
                prop_assert_eq!(fates, standing.ours.iter().map(|(id, _)| *id).collect::<Vec<_>>());
                let stand_ins: Vec<_> = rebased.fates.iter().filter_map(|fate| fate.outcome.clone().ok()).collect();
                prop_assert_eq!(&stand_ins, &anew.iter().map(|(id, _)| *id).collect::<Vec<_>>());
                let mut nonces = HashSet::new();
                for (fate, (_, before)) in rebased.fates.iter().zip(&standing.ours) {
                    let Ok(new) = &fate.outcome else { continue };
                    let (_, after) = anew.iter().find(|(id, _)| id == new).expect("put");
                    prop_assert!(may_be_repeated(before), "{:?} was repeated", before);
                    prop_assert_eq!(before.content.kind(), after.content.kind());
                    prop_assert_eq!((&before.agent, before.at, before.nonce), (&after.agent, after.at, after.nonce));
                    prop_assert!(nonces.insert(after.nonce), "twice");
                }
                count(&kept_ones, anew.len());
                count(&lost_ones, rebased.fates.len() - anew.len());
            }
            other => prop_assert!(false, "{:?}", other),
        }
        Ok(())
    });
    for (what, times) in [("kept", kept_ones), ("lost", lost_ones), ("taken", taken), ("pushed", pushed)] {
        assert!(times.get() >= 200, "only {} were {what}: nothing is proven about it", times.get());
    }
}
