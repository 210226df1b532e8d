//! Forged records: each is refused on top of a valid chain, by the very rule that it breaks.
//!
//! `chain` gives every record right links and counters, so that a row breaks exactly what it says. A row of `FORGED`
//! is a record that `apply` accepts until it is forged; a row of `MISPLACED` is one that is whole, but may not stand
//! there. Long, since the rows of all rules stand together.

use pm::id::TaskId;
use pm::protocol::apply::Rule::{self, *};
use pm::protocol::apply::end;
use pm::protocol::record::{Content, Mark, Phase, Record, Status, Verification};

use super::chain::{Chain, agent, id};

/// What a chain holds, which record comes next, how it is forged, and the rule that this breaks.
type Forged = (&'static str, &'static str, fn(&mut Record), Rule);

fn status(record: &mut Record) -> &mut Status {
    match &mut record.content {
        Content::Status(status) => status,
        other => panic!("a {} where a status is forged", other.kind()),
    }
}

fn verifier(record: &mut Record, verifier: &str, exit: i32, reason: &str) {
    status(record).verification = Some(Verification { verifier: verifier.to_owned(), exit, summary: None });
    status(record).reason = Some(reason.to_owned());
}

fn context(record: &mut Record, context: &str) {
    status(record).context = Some(context.parse().expect("a context"));
}

fn ttl(record: &mut Record) {
    status(record).ttl = Some("5s".parse().expect("a ttl"));
}

fn other_task() -> Option<TaskId> {
    Some(id(999).as_task())
}

/// The ids: 1 is the Task, 2 its first status, 3 the first claim.
const FORGED: &[Forged] = &[
    // Its place in the chain.
    ("plan", "claim", |r| r.parent = Some(id(1)), Links),
    ("plan", "claim", |r| r.parent = None, Links),
    ("plan claim", "beat", |r| r.parent = Some(id(2)), Links),
    ("plan", "claim", |r| r.seq += 1, Links),
    ("plan", "claim", |r| r.seq -= 1, Links),
    ("plan", "claim", |r| r.seq = 0, Links),
    ("plan claim", "beat", |r| r.seq = u64::MAX, Links),
    ("plan", "claim", |r| r.links.task = other_task(), Links),
    ("plan", "claim", |r| r.links.task = Some(id(2).as_task()), Links),
    ("plan", "claim", |r| r.links.task = None, Links),
    // Stale, missing and made-up links.
    ("plan", "claim", |r| r.links.status = None, Links),
    ("plan claim release", "claim", |r| r.links.status = Some(id(2)), Links),
    ("plan claim release claim", "beat", |r| r.links.status = Some(id(3)), Links),
    ("plan claim release claim", "report", |r| r.links.status = Some(id(3)), Links),
    ("plan claim release claim", "release", |r| r.links.status = Some(id(3)), Links),
    ("plan claim release claim report", "done", |r| r.links.status = Some(id(3)), Links),
    ("plan claim release claim", "preempt", |r| r.links.status = Some(id(3)), Links),
    ("plan claim release claim", "taken", |r| r.links.status = Some(id(3)), Links),
    ("plan claim", "synthetic", |r| r.links.status = Some(id(2)), Links),
    ("plan claim report", "beat", |r| r.links.report = None, Links),
    ("plan claim report report", "beat", |r| r.links.report = Some(id(4)), Links),
    ("plan claim", "beat", |r| r.links.report = Some(id(999)), Links),
    ("plan claim report release claim", "beat", |r| r.links.report = None, Links),
    ("plan claim report", "report", |r| r.links.report = None, Links),
    ("plan claim report", "done", |r| r.links.report = None, Links),
    ("plan cancel replan", "claim", |r| r.links.report = None, Links),
    ("plan claim beat", "beat", |r| r.links.heartbeat = None, Links),
    ("plan claim beat beat", "beat", |r| r.links.heartbeat = Some(id(4)), Links),
    ("plan claim beat release claim", "beat", |r| r.links.heartbeat = None, Links),
    ("plan claim sweep", "claim", |r| r.links.heartbeat = None, Links),
    ("plan claim preempt", "swept", |r| r.links.heartbeat = None, Links),
    ("task", "new", |r| r.links.status = Some(id(1)), Links),
    // The first two records.
    ("", "task", |r| r.parent = Some(id(999)), Links),
    ("", "task", |r| r.seq = 1, Links),
    (
        "",
        "task",
        |r| {
            if let Content::Task(task) = &mut r.content {
                task.spawned_at = Some(id(999));
            }
        },
        Fields,
    ),
    ("task", "new", |r| status(r).phase = Phase::Working, Beginning),
    ("task", "new", |r| status(r).phase = Phase::Rejected, Beginning),
    ("task", "new", |r| status(r).attempt = 1, Beginning),
    ("task", "new", |r| status(r).reclaims = 1, Beginning),
    ("task", "new", |r| context(r, "c1"), Beginning),
    ("task", "new", ttl, Beginning),
    ("task", "new", |r| status(r).proof = Some(id(1)), Beginning),
    ("task", "new", |r| status(r).mark = Some(Mark::Replanned), Beginning),
    ("task", "new", |r| status(r).superseded_by = other_task(), Beginning),
    ("task", "new", |r| verifier(r, "make test", 0, "why not"), Beginning),
    ("task", "clone", |r| status(r).replan_of = Some(id(1).as_task()), Fields),
    // Rule 2.
    ("plan claim", "beat", |r| r.agent = agent("w2"), Holder),
    ("plan claim", "beat", |r| r.agent = agent("W1"), Holder),
    ("plan claim", "beat", |r| r.agent = agent("op"), Holder),
    ("plan claim", "report", |r| r.agent = agent("w2"), Holder),
    ("plan claim", "release", |r| r.agent = agent("w2"), Holder),
    ("plan claim report", "done", |r| r.agent = agent("w2"), Holder),
    ("plan claim report", "reject", |r| r.agent = agent("op"), Holder),
    ("plan claim sweep claim:w2", "beat:w2", |r| r.agent = agent("w1"), Holder),
    ("plan claim report taken claim:w2", "report:w2", |r| r.agent = agent("w1"), Holder),
    ("plan claim preempt", "swept", |r| r.agent = agent("w2"), Prepared),
    ("plan claim preempt", "swept", |r| status(r).mark = Some(Mark::Released), Prepared),
    ("plan claim preempt", "swept", |r| status(r).mark = None, Prepared),
    ("plan claim preempt", "swept", |r| status(r).mark = Some(Mark::Cancelled), Prepared),
    ("plan synthetic", "cancelled", |r| r.agent = agent("w2"), Prepared),
    ("plan claim synthetic", "cancelled", |r| r.agent = agent("w1"), Prepared),
    ("plan claim synthetic", "preempt", |r| r.agent = agent("w2"), Prepared),
    ("plan claim synthetic preempt", "killed", |r| r.agent = agent("w2"), Prepared),
    ("plan synthetic", "cancelled", |r| status(r).mark = None, Prepared),
    ("plan claim synthetic", "cancelled", |r| status(r).mark = Some(Mark::Reclaimed), Prepared),
    ("plan synthetic", "cancelled", |r| status(r).phase = Phase::Superseded, Prepared),
    // Transitions.
    ("plan", "claim", |r| status(r).phase = Phase::Done, Transition),
    ("plan", "claim", |r| status(r).phase = Phase::New, Transition),
    ("plan", "claim", |r| status(r).phase = Phase::Rejected, Transition),
    ("plan", "claim", |r| status(r).mark = Some(Mark::Reclaimed), Transition),
    ("plan+sticky claim release", "taken", |r| status(r).mark = None, Transition),
    ("plan+sticky claim release", "taken", |r| status(r).mark = Some(Mark::Released), Transition),
    ("plan+sticky claim release", "taken", |r| status(r).mark = Some(Mark::Replanned), Transition),
    ("plan claim", "release", |r| status(r).mark = None, Transition),
    ("plan claim", "release", |r| status(r).mark = Some(Mark::Replanned), Transition),
    ("plan claim report", "done", |r| status(r).mark = Some(Mark::Cancelled), Transition),
    ("plan claim report", "reject", |r| status(r).mark = Some(Mark::Reclaimed), Transition),
    ("plan claim report done", "replan", |r| status(r).mark = None, Transition),
    ("plan claim report done", "replan", |r| status(r).mark = Some(Mark::Released), Transition),
    ("plan claim report done", "replan", |r| status(r).phase = Phase::Working, Transition),
    ("plan", "supersede", |r| status(r).mark = Some(Mark::Replanned), Transition),
    ("plan claim preempt", "swept", |r| status(r).phase = Phase::Rejected, Transition),
    ("plan claim preempt", "swept", |r| status(r).phase = Phase::Done, Transition),
    ("plan claim synthetic preempt", "killed", |r| status(r).phase = Phase::New, Transition),
    // Counters.
    ("plan", "claim", |r| status(r).attempt = 0, Counters),
    ("plan", "claim", |r| status(r).attempt = 2, Counters),
    ("plan claim release", "claim", |r| status(r).attempt = 1, Counters),
    ("plan claim", "release", |r| status(r).attempt = 0, Counters),
    ("plan claim report", "done", |r| status(r).attempt = 2, Counters),
    ("plan claim preempt", "swept", |r| status(r).reclaims = 0, Counters),
    ("plan claim preempt", "swept", |r| status(r).reclaims = 2, Counters),
    ("plan claim report preempt", "swept", |r| status(r).reclaims = 1, Counters),
    ("plan claim sweep", "claim", |r| status(r).reclaims = 0, Counters),
    ("plan claim sweep claim", "release", |r| status(r).reclaims = 1, Counters),
    ("plan claim sweep claim", "taken", |r| status(r).reclaims = 1, Counters),
    ("plan claim sweep claim report", "done", |r| status(r).reclaims = 0, Counters),
    ("plan claim sweep synthetic", "cancelled", |r| status(r).reclaims = 0, Counters),
    ("plan claim sweep claim report done", "replan", |r| status(r).reclaims = 1, Counters),
    ("plan claim synthetic preempt", "killed", |r| status(r).reclaims = 2, Counters),
    ("plan+sticky", "claim", |r| status(r).context = None, Counters),
    ("plan+sticky claim release", "claim", |r| context(r, "c2"), Counters),
    ("plan+sticky claim", "release", |r| status(r).context = None, Counters),
    ("plan+sticky claim report", "done", |r| context(r, "c2"), Counters),
    ("plan+sticky claim preempt", "swept", |r| context(r, "c1"), Counters),
    ("plan+sticky claim", "taken", |r| context(r, "c1"), Counters),
    ("plan+sticky claim release", "taken", |r| context(r, "c1"), Counters),
    ("plan+sticky claim release", "taken", |r| context(r, "c2"), Counters),
    ("plan+sticky claim release", "taken", |r| status(r).attempt = 2, Counters),
    ("plan+sticky claim release", "taken", |r| status(r).reclaims = 1, Counters),
    ("plan", "claim", |r| context(r, "c1"), Fields),
    ("plan claim", "release", |r| context(r, "c1"), Counters),
    // Rule 5.
    ("plan claim report", "done", |r| status(r).proof = None, Proof),
    ("plan claim report", "reject", |r| status(r).proof = None, Proof),
    ("plan claim report", "done", |r| status(r).proof = Some(id(3)), Proof),
    ("plan claim report", "done", |r| status(r).proof = Some(id(999)), Proof),
    ("plan claim report report", "done", |r| status(r).proof = Some(id(4)), Proof),
    ("plan synthetic", "cancelled", |r| status(r).proof = None, Proof),
    ("plan claim report synthetic", "cancelled", |r| status(r).proof = Some(id(4)), Proof),
    ("plan claim synthetic preempt", "killed", |r| status(r).proof = None, Proof),
    // Rule 6.
    ("plan+verifier claim report", "done", |r| status(r).verification = None, Verifier),
    ("plan+verifier claim report", "done", |r| verifier(r, "make test", 1, "it failed, but who cares"), Verifier),
    ("plan+verifier claim report", "done", |r| verifier(r, "make test", -1, "too short"), Verifier),
    ("plan+verifier claim report", "done", |r| verifier(r, "make test", -1, "     short     "), Verifier),
    ("plan+verifier claim report", "done", |r| verifier(r, "make test", -2, "it was not there at all"), Verifier),
    ("plan+verifier claim report", "done", |r| verifier(r, "true", 0, "this one passes"), Verifier),
    ("plan+verifier claim report", "reject", |r| verifier(r, "false", 1, "this one fails"), Verifier),
    ("plan claim report", "done", |r| verifier(r, "true", 0, "nobody asked for it"), Verifier),
    (
        "plan+verifier claim report",
        "done",
        |r| {
            verifier(r, "make test", -1, "");
            status(r).reason = None;
        },
        Verifier,
    ),
    // Fields that mean nothing there.
    ("plan claim", "release", ttl, Fields),
    ("plan claim report", "done", ttl, Fields),
    ("plan claim preempt", "swept", ttl, Fields),
    ("plan", "supersede", ttl, Fields),
    ("plan", "supersede", |r| status(r).superseded_by = None, Fields),
    ("plan", "supersede", |r| status(r).superseded_by = Some(id(1).as_task()), Fields),
    ("plan", "claim", |r| status(r).superseded_by = other_task(), Fields),
    ("plan claim report done", "replan", |r| status(r).superseded_by = other_task(), Fields),
    ("plan", "claim", |r| status(r).replan_of = other_task(), Fields),
    ("plan claim report done", "replan", |r| status(r).replan_of = other_task(), Fields),
    ("plan claim report", "release", |r| status(r).proof = Some(id(4)), Fields),
    ("plan claim report release", "claim", |r| status(r).proof = Some(id(4)), Fields),
    ("plan claim report done", "supersede", |r| status(r).proof = Some(id(4)), Fields),
    ("plan+verifier claim report", "release", |r| verifier(r, "make test", 0, "it passed"), Fields),
    ("plan+verifier synthetic", "cancelled", |r| verifier(r, "make test", 1, "it failed"), Fields),
    ("plan+verifier claim synthetic preempt", "killed", |r| verifier(r, "make test", 1, "it failed"), Fields),
];

/// A valid chain, and a record that may not follow.
const MISPLACED: &[(&str, &str, Rule)] = &[
    // A chain begins with a Task and its first status, and has neither twice.
    ("", "new", Beginning),
    ("", "beat", Beginning),
    ("", "report", Beginning),
    ("task", "task", Links),
    ("task", "beat", Beginning),
    ("task", "preempt", Beginning),
    ("task", "report", Beginning),
    ("task", "synthetic", Transition),
    ("task", "claim", Beginning),
    ("task", "supersede", Beginning),
    ("plan", "task", Links),
    ("plan claim", "task", Links),
    ("plan", "new", Transition),
    ("plan claim", "new", Transition),
    ("plan", "clone", Transition),
    // A task that nobody holds takes a claim, and nothing of a holder's.
    ("plan", "beat", Transition),
    ("plan", "report", Transition),
    ("plan", "release", Transition),
    ("plan", "done", Transition),
    ("plan", "reject", Transition),
    ("plan", "preempt", Transition),
    ("plan", "taken", Transition),
    ("plan", "swept", Transition),
    ("plan", "killed", Transition),
    ("plan", "cancelled", Transition),
    ("plan", "replan", Transition),
    // Unless it is bound to a context: from that it is taken, once.
    ("plan claim release", "taken", Transition),
    ("plan+sticky", "taken", Transition),
    ("plan+sticky claim release taken", "taken", Transition),
    ("plan+sticky claim report done", "taken", Transition),
    ("plan+sticky claim release", "preempt", Transition),
    ("plan+sticky claim release synthetic", "taken", Prepared),
    // A task that is held is not claimed, replanned or replaced.
    ("plan claim", "claim", Transition),
    ("plan claim", "claim:w2", Transition),
    ("plan claim", "replan", Transition),
    ("plan claim", "supersede", Transition),
    ("plan claim", "cancelled", Transition),
    ("plan claim report", "cancelled", Transition),
    ("plan claim", "swept", Counters),
    ("plan claim", "killed", Transition),
    // Proof.
    ("plan claim", "done", Proof),
    ("plan claim", "reject", Proof),
    ("plan claim report release claim", "done", Proof),
    ("plan claim report sweep claim:w2", "done:w2", Proof),
    ("plan claim report done replan claim", "done", Proof),
    ("plan cancel replan claim", "reject", Proof),
    // What prepares something is followed by just that.
    ("plan synthetic", "claim", Prepared),
    ("plan synthetic", "synthetic", Prepared),
    ("plan synthetic", "supersede", Prepared),
    ("plan synthetic", "beat", Transition),
    ("plan synthetic", "preempt", Transition),
    ("plan synthetic", "killed", Prepared),
    ("plan claim synthetic", "beat", Prepared),
    ("plan claim synthetic", "report", Prepared),
    ("plan claim synthetic", "release", Prepared),
    ("plan claim synthetic", "done", Prepared),
    ("plan claim synthetic", "taken", Prepared),
    ("plan claim synthetic", "swept", Prepared),
    ("plan claim preempt", "beat", Prepared),
    ("plan claim preempt", "beat:op", Prepared),
    ("plan claim preempt", "preempt", Prepared),
    ("plan claim preempt", "report", Prepared),
    ("plan claim preempt", "synthetic", Prepared),
    ("plan claim report preempt", "done", Prepared),
    ("plan claim preempt", "release", Prepared),
    ("plan claim preempt", "claim:w2", Prepared),
    ("plan claim preempt", "taken", Counters),
    ("plan claim preempt", "killed", Transition),
    ("plan claim synthetic preempt", "swept", Transition),
    ("plan claim synthetic preempt", "cancelled", Prepared),
    // Max-Attempts.
    ("plan+max1 claim preempt", "swept", Transition),
    ("plan+max2 claim sweep claim preempt", "swept", Transition),
    ("plan+max2 claim synthetic preempt", "killed", Transition),
    ("plan+max2 claim sweep claim report synthetic preempt", "killed", Transition),
    ("plan+max0 claim sweep claim synthetic preempt", "killed", Transition),
    ("plan claim report synthetic preempt", "killed", Transition),
    // A closed task is left by a replan only, a superseded one never.
    ("plan claim report done", "claim", Transition),
    ("plan claim report done", "beat", Transition),
    ("plan claim report done", "report", Transition),
    ("plan claim report done", "synthetic", Transition),
    ("plan claim report reject", "done", Transition),
    ("plan cancel", "claim", Transition),
    ("plan supersede", "claim", Transition),
    ("plan supersede", "replan", Transition),
    ("plan supersede", "supersede", Transition),
];

/// Valid chains, none of which may end there.
const UNFINISHED: &[(&str, Rule)] = &[
    ("task", Beginning),
    ("plan synthetic", Prepared),
    ("plan claim synthetic", Prepared),
    ("plan claim preempt", Prepared),
    ("plan claim report preempt", Prepared),
    ("plan claim synthetic preempt", Prepared),
];

/// What a chain holds, which record comes next, and how it is varied.
type Varied = (&'static str, &'static str, fn(&mut Record));

/// Unusual, but right: the same records, varied in what a writer is free to choose.
const ALLOWED: &[Varied] = &[
    ("plan", "claim", ttl),
    ("plan", "claim:w9", |r| status(r).reason = Some("my turn".to_owned())),
    ("plan+ttl", "claim", |r| r.clock = None),
    ("plan claim", "beat", |r| r.at = -1),
    ("plan claim", "beat", |r| r.body = Some("still here\n".to_owned())),
    ("plan claim", "beat", |r| r.unknown = vec![("X-Later".to_owned(), "1".to_owned())]),
    ("plan claim", "report", |r| r.email = "other@host".to_owned()),
    ("plan claim", "taken", |r| r.agent = agent("w1")),
    ("plan claim preempt:w1", "swept:w1", |r| status(r).reason = Some("my own".to_owned())),
    ("plan claim synthetic:w1", "cancelled:w1", |r| status(r).reason = Some("never mind".to_owned())),
    ("plan claim release", "claim:w2", |r| status(r).context = None),
    ("plan+sticky", "claim", |r| context(r, "c9")),
    ("plan+sticky claim taken", "claim", |r| context(r, "c9")),
    ("plan+sticky claim sweep", "claim", |r| context(r, "c9")),
    ("plan+verifier claim report", "done", |r| verifier(r, "make test", 0, "ok")),
    ("plan+verifier claim report", "done", |r| verifier(r, "make test", -1, "0123456789")),
    ("plan+verifier claim report", "done", |r| verifier(r, "make test", -1, "ä23456789ä")),
    ("plan+verifier claim report", "reject", |r| verifier(r, "make test", 1, "no")),
    ("plan+verifier claim report", "reject", |r| verifier(r, "make test", -1, "no")),
    ("plan+verifier claim report", "reject", |r| status(r).verification = None),
    ("task", "new", |r| status(r).reason = Some("as agreed".to_owned())),
    ("task", "clone", |r| status(r).reason = Some("with a better text".to_owned())),
    ("plan+parent", "claim", |r| r.agent = agent("w2")),
];

/// `apply` refuses the record on top of the chain, by this rule.
fn check(script: &str, word: &str, record: Record, rule: Rule) {
    match Chain::of(script).push(record) {
        Err(broken) => assert_eq!(broken.rule, rule, "a '{word}' on '{script}': {broken}"),
        Ok(_) => panic!("a '{word}' on '{script}' was accepted against the rule '{rule}'"),
    }
}

#[test]
fn a_forged_record_is_refused_by_the_rule_that_it_breaks() {
    for (row, &(script, word, forge, rule)) in FORGED.iter().enumerate() {
        let mut record = Chain::of(script).next(word);
        if let Err(broken) = Chain::of(script).push(record.clone()) {
            panic!("row {row}: '{word}' on '{script}' is no valid record to forge: {broken}");
        }
        let genuine = record.clone();
        forge(&mut record);
        assert_ne!(record, genuine, "row {row} forges nothing");
        check(script, &format!("forged {word} (row {row})"), record, rule);
    }
}

#[test]
fn what_a_writer_is_free_to_choose_is_accepted() {
    for &(script, word, vary) in ALLOWED {
        let mut chain = Chain::of(script);
        let mut record = chain.next(word);
        vary(&mut record);
        if let Err(broken) = chain.push(record) {
            panic!("a varied '{word}' on '{script}': {broken}");
        }
    }
}

#[test]
fn a_whole_record_in_the_wrong_place_is_refused() {
    for &(script, word, rule) in MISPLACED {
        check(script, word, Chain::of(script).next(word), rule);
    }
}

#[test]
fn a_chain_never_ends_in_a_record_that_prepares_another() {
    for &(script, rule) in UNFINISHED {
        let broken = end(Chain::of(script).state()).expect_err(script);
        assert_eq!(broken.rule, rule, "{script}");
    }
}

#[test]
fn forgeries_break_every_rule_there_is() {
    let rules: Vec<Rule> = FORGED.iter().map(|row| row.3).collect();
    for rule in [Beginning, Links, Transition, Holder, Prepared, Counters, Proof, Verifier, Fields] {
        assert!(rules.iter().filter(|broken| **broken == rule).count() >= 4, "{rule}");
    }
}
