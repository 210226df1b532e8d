//! Reading a state off its tip alone: what is refused, and what a forged ledger can do to the decisions.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pm::protocol::apply::{apply, end};
use pm::protocol::decide::{Facts, Intent, Others, Stamp, Verified, decide};
use pm::protocol::record::{Content, Links, Nonce, Record, Report, Verification};
use pm::protocol::state::{BrokenLink, TaskState, from_tip};
use proptest::prelude::*;

use super::arbitrary::Dice;
use super::chain::{Chain, agent, id, task};
use super::for_all;

/// What a chain holds, how one of its records (by its number) is forged, and what is found wrong with which record.
type Broken = (&'static str, usize, fn(&mut Record), usize, &'static str);

/// Records 1 and 2 are the Task and its first status; the tip is the last of the script.
const BROKEN: &[Broken] = &[
    (
        "plan claim beat",
        1,
        |r| r.content = Chain::of("plan claim").next("beat").content,
        1,
        "a TaskHeartbeat where the Task should be",
    ),
    ("plan claim beat", 3, |r| r.links.task = Some(id(999).as_task()), 3, "it belongs to another task"),
    ("plan claim beat", 3, |r| r.links.task = None, 3, "it belongs to another task"),
    ("plan claim beat", 3, |r| r.seq = 3, 3, "its seq 3 is not below the tip's 3"),
    (
        "plan claim beat",
        3,
        |r| r.content = Chain::of("plan claim").next("beat").content,
        3,
        "a TaskHeartbeat where a TaskStatus should be",
    ),
    ("plan claim beat", 4, |r| r.links.status = None, 4, "it names no status"),
    ("plan claim beat", 4, |r| r.links.status = Some(id(2)), 4, "it was made under a status that is no claim"),
    ("plan claim beat", 4, |r| r.links.status = Some(id(1)), 1, "it belongs to another task"),
    ("plan claim beat", 4, |r| r.links.report = Some(id(3)), 3, "a TaskStatus where a TaskReport should be"),
    ("plan claim report", 4, |r| r.links.status = None, 4, "it names no status"),
    ("plan claim report", 4, |r| r.links.status = Some(id(2)), 4, "it was made under a status that is no claim"),
    ("plan claim report beat", 4, |r| r.links.task = Some(id(999).as_task()), 4, "it belongs to another task"),
    ("plan claim report beat", 4, |r| r.seq = 9, 4, "its seq 9 is not below the tip's 4"),
    ("plan claim report beat", 4, |r| r.links.status = None, 4, "a TaskReport where a TaskReport should be"),
    ("plan claim report done", 5, |r| r.links.report = Some(id(3)), 3, "a TaskStatus where a TaskReport should be"),
    ("plan claim preempt", 4, |_| (), 4, "it is a preempt heartbeat without the reclaim that it prepares"),
    ("plan claim synthetic", 4, |_| (), 4, "it is a synthetic report without the status that it prepares"),
];

/// The state at the tip of a chain, with at most three reads.
fn read(chain: &Chain) -> Result<TaskState, BrokenLink> {
    let (tip, record) = chain.records.last().expect("a chain");
    let mut reads = 0;
    from_tip(*tip, record, |wanted| {
        reads += 1;
        assert!(reads <= 3, "a fourth read");
        Ok(chain.records.iter().find(|(at, _)| *at == wanted).expect("a link into the chain").1.clone())
    })
}

/// Reading finds the fault.
fn check(script: &str, forged: usize, forge: fn(&mut Record), at: usize, found: &str) {
    let mut chain = Chain::of(script);
    forge(&mut chain.records[forged - 1].1);
    assert_eq!(read(&chain), Err(BrokenLink { record: id(at), found: found.to_owned() }), "{script}");
}

#[test]
fn a_tip_that_contradicts_what_it_links_to_is_not_believed() {
    for &(script, forged, forge, at, found) in BROKEN {
        check(script, forged, forge, at, found);
    }
}

#[test]
fn a_tip_says_the_same_as_the_whole_chain() {
    for script in [
        "task",
        "plan",
        "plan claim",
        "plan claim beat",
        "plan claim report",
        "plan claim beat report beat",
        "plan cancel",
        "plan claim cancel",
        "plan claim report release",
        "plan claim report release claim beat",
        "plan claim sweep",
        "plan claim report sweep claim beat",
        "plan claim kill",
        "plan claim report done",
        "plan claim report reject replan",
        "plan supersede",
        "plan+sticky claim beat report release claim",
        "task clone claim",
    ] {
        let chain = Chain::of(script);
        assert_eq!(read(&chain).as_ref(), Ok(chain.state()), "{script}");
    }
}

/// A state as `from_tip` reads it off a ledger that somebody forged: of records that are whole, but whose numbers,
/// links and fields are anything.
fn forged_state(dice: &mut Dice) -> Option<TaskState> {
    let (is_plain, kind) = (dice.flip(), dice.roll(3));
    let [mut tip, mut status, report, mut defined] = [kind, 2, 1, 3].map(|kind| dice.record_of(kind));
    if is_plain {
        // Nothing that this build refuses to judge: only the counters and links are strange.
        defined.content = Content::Task(Box::new(task("max2")));
        for record in [&mut status, &mut tip] {
            if let Content::Status(status) = &mut record.content {
                (status.context, status.replan_of) = (None, None);
            }
        }
    }
    let links = Links { task: Some(id(1).as_task()), status: Some(id(2)), ..status.links };
    let report_link = tip.links.report.map(|_| id(3));
    // A tip that is no status must be its holder's, or nothing is read off it at all.
    let agent = if matches!(tip.content, Content::Status(_)) { tip.agent.clone() } else { status.agent.clone() };
    let tip = Record { agent, links: Links { report: report_link, ..links }, seq: tip.seq.max(2), ..tip };
    from_tip(id(4), &tip, |read| {
        let below = if read == id(1) {
            &defined
        } else if read == id(2) {
            &status
        } else {
            &report
        };
        Ok::<Record, BrokenLink>(Record { links, seq: below.seq % tip.seq, ..below.clone() })
    })
    .ok()
}

#[test]
fn a_forged_ledger_never_makes_a_decision_panic_or_contradict_the_fold() {
    let decisions = RefCell::new(BTreeMap::new());
    for_all((prop::collection::vec(any::<u32>(), 160..220), any::<u8>()), |(numbers, n)| {
        let Some(state) = forged_state(&mut Dice::new(numbers)) else { return Ok(()) };
        let claim = state.claim().map(|claim| claim.id);
        let report = Report { title: "It is built".to_owned(), commit: None, synthetic: true, attachments: None };
        let said = |verifier: String| Verification { verifier, exit: i32::from(n % 3) - 1, summary: None };
        let verifier = state.task.verifier.clone().unwrap_or("make test".to_owned());
        let verified = state.proof().map(|report| Verified { report, verification: said(verifier) });
        for intent in [
            Intent::Claim { ttl: None },
            Intent::Heartbeat { claim, progress: None },
            Intent::Report { claim, report, body: None },
            Intent::Release { claim, reason: None },
            Intent::Finish { claim, done: true, note: None, verified: None },
            Intent::Finish { claim, done: false, note: None, verified: None },
            Intent::Sweep { observed: state.tip, reason: None, max_attempts: u32::from(n % 4) },
            Intent::Reclaim { status: claim, reason: None },
            Intent::Finish { claim, done: n % 2 == 0, note: Some("ten letters".to_owned()), verified },
            Intent::Cancel { reason: None },
            Intent::Replan { note: None },
            Intent::Supersede { by: id(904).as_task(), note: None },
        ] {
            let context = "c1".parse().expect("a context");
            let facts = Facts { agent: &agent("w1"), context: Some(&context), others: &Others::default() };
            let Ok(drafts) = decide(&state, &intent, &facts) else { continue };
            let mut next = state.clone();
            for (nth, draft) in drafts.into_iter().enumerate() {
                let stamp = Stamp { email: "pm@host", at: 0, clock: None, nonce: Nonce(0) };
                let record = draft.into_record(Some(&next), &stamp);
                match apply(Some(next), id(800 + nth), &record) {
                    Ok(after) => next = after,
                    Err(broken) => return Err(TestCaseError::fail(format!("{intent:?}: {broken}"))),
                }
            }
            prop_assert_eq!(end(&next), Ok(()));
            *decisions.borrow_mut().entry(intent.verb().to_string()).or_insert(0) += 1;
        }
        Ok(())
    });
    let decisions = decisions.into_inner();
    assert!(decisions.len() == 9 && decisions.values().all(|times| *times >= 50), "{decisions:?}");
}
