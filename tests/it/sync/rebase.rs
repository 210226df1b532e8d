//! What becomes of records that lost: which are put on top of the authority's, as what, and why the others are not.

use pm::protocol::apply::apply;
use pm::protocol::record::{Content, Record};
use pm::sync::reconcile::Action;

use super::{decided, rebased, script, standing, tip};
use crate::protocol::chain::Chain;

/// The fates of our records: `+` for one that is kept, `-` for one that is lost.
#[track_caller]
fn check(base: &str, ours: &str, theirs: &str, expected: &str) {
    let (rebased, _) = rebased(base, ours, theirs);
    let fates: String = rebased.fates.iter().map(|fate| if fate.outcome.is_ok() { '+' } else { '-' }).collect();
    assert_eq!(fates, expected, "{ours:?} beside {theirs:?} on {base:?}: {rebased:?}");
    assert_eq!(rebased.has_losses(), expected.contains('-'));
    for fate in rebased.fates.iter().filter(|fate| fate.outcome.is_err()) {
        assert!(fate.outcome.as_ref().is_err_and(|why| why.len() > 10), "a loss has its reason: {fate:?}");
    }
}

#[test]
fn what_the_holder_of_a_claim_that_still_holds_said_is_kept() {
    check("plan claim", "beat", "beat", "+");
    check("plan claim", "beat beat report beat", "beat report", "++++");
    check("plan claim", "beat report done", "beat", "+++");
    check("plan claim", "report done", "report", "++");
    check("plan claim", "report reject", "report", "++");
    check("plan claim", "release", "beat beat", "+");
    check("plan claim report", "done", "beat", "+");
    check("plan+verifier claim", "report done", "beat", "++");
    check("plan claim:w2", "report:w2 done:w2", "beat:w2", "++");
}

#[test]
fn a_claim_never_gets_a_second_life_nor_anything_that_was_built_on_it() {
    check("plan", "claim", "claim:w2", "-");
    check("plan", "claim beat report done", "claim:w2", "----");
    // Not even where the task is free there, and the same agent's.
    check("plan", "claim beat", "claim release", "--");
    check("plan", "claim beat", "claim", "--");
    check("plan claim", "release claim:w2 beat:w2 report:w2 done:w2", "beat", "+----");
    check("plan claim report done", "replan claim beat", "replan claim:w2", "---");
}

#[test]
fn what_others_than_the_holder_did_is_never_done_again() {
    for theirs in ["beat", "report", "beat report"] {
        check("plan claim", "sweep", theirs, "--");
        check("plan claim", "taken", theirs, "-");
        check("plan claim", "cancel", theirs, "--");
        check("plan+max1 claim", "kill", theirs, "---");
    }
    check("plan", "cancel", "claim", "--");
    check("plan", "supersede", "claim", "-");
    check("plan claim report done", "replan", "supersede", "-");
    check("plan claim report done", "supersede", "replan", "-");
    for theirs in ["claim", "taken", "cancel", "supersede"] {
        check("plan+sticky claim release", "taken", theirs, "-");
    }
    check("plan+sticky claim", "release taken", "beat", "+-");
    check("plan+sticky claim", "release taken claim+c2:w2", "beat", "+--");
    check("plan claim", "beat sweep", "report", "+--");
    check("plan claim", "beat taken claim:w2 beat:w2", "report", "+---");
}

#[test]
fn what_was_said_under_a_claim_that_ended_there_is_lost() {
    for theirs in ["sweep", "taken", "release", "report done", "cancel", "sweep claim", "taken claim:w2", "kill"] {
        let base = if theirs == "kill" { "plan+max1 claim" } else { "plan claim" };
        check(base, "beat report", theirs, "--");
        check(base, "report done", theirs, "--");
        check(base, "release", theirs, "-");
    }
}

#[test]
fn a_finish_whose_proof_is_not_the_newest_report_any_more_is_lost_and_says_so() {
    check("plan claim report", "done", "report", "-");
    check("plan claim report", "beat done", "beat report", "+-");
    check("plan claim report", "reject", "report", "-");
    // Its own report is put on top, and is the newest again.
    check("plan claim report", "report done", "report", "++");
    let (rebased, _) = rebased("plan claim report", "done", "report");
    let why = rebased.fates[0].outcome.clone().expect_err("lost");
    assert!(why.contains("report") || why.contains("proof"), "{why}");
}

#[test]
fn a_record_that_is_put_on_top_keeps_all_but_its_place() {
    let base = Chain::of("plan claim");
    let mut ours = script(&base, "beat report done", true);
    for (_, record) in &mut ours.records[base.records.len()..] {
        record.body = Some("what was said\n".to_owned());
        record.email = "w1@there".to_owned();
        record.unknown = vec![("X-More".to_owned(), "kept".to_owned())];
    }
    let standing = standing(&base, &ours, &script(&base, "beat report", false));
    let (Action::Rebase(rebased), anew) = decided(&standing) else { panic!("they parted") };
    assert_eq!(anew.len(), 3);
    let said = |record: &Record| {
        let words = (record.agent.clone(), record.email.clone(), record.at, record.clock, record.nonce);
        (words, record.body.clone(), record.unknown.clone(), record.content.kind())
    };
    for ((_, before), (_, after)) in standing.ours.iter().zip(&anew) {
        assert_eq!(said(before), said(after));
        assert_ne!((before.parent, before.seq), (after.parent, after.seq));
    }
    let (report, done) = (anew[1].0, &anew[2].1);
    assert_eq!(done.links.report, Some(report));
    assert!(matches!(&done.content, Content::Status(status) if status.proof == Some(report)), "the proof is mapped");
    assert_eq!(anew[0].1.links.heartbeat, Some(standing.theirs[0].0), "links lead into the chain of the authority");
    assert_eq!(rebased.state.tip, anew[2].0);
    // What is in the fates is what was put there.
    let kept: Vec<_> = rebased.fates.iter().filter_map(|fate| fate.outcome.clone().ok()).collect();
    assert_eq!(kept, anew.iter().map(|(id, _)| *id).collect::<Vec<_>>());
}

#[test]
fn what_was_settled_once_is_only_pushed_and_then_left_alone() {
    let base = Chain::of("plan claim");
    let standing = standing(&base, &script(&base, "beat report", true), &script(&base, "report", false));
    let (Action::Rebase(rebased), anew) = decided(&standing) else { panic!("they parted") };
    let (Action::Rebase(again), same) = decided(&standing) else { panic!("they parted") };
    assert_eq!((&again.fates, &same), (&rebased.fates, &anew), "decided again, the same comes of it");

    let mut theirs = script(&base, "report", false);
    let at_the_authority = theirs.clone();
    for (id, record) in anew {
        theirs.folded = Some(apply(theirs.folded.clone(), id, &record).expect("valid"));
        theirs.records.push((id, record));
    }
    let after = super::standing(&at_the_authority, &theirs, &at_the_authority);
    assert!(matches!(decided(&after).0, Action::Push), "{after:?}");
    let level = super::standing(&theirs, &theirs, &theirs);
    assert_eq!((tip(&theirs), matches!(decided(&level).0, Action::Nothing)), (Some(rebased.state.tip), true));
}
