//! The decision table: what becomes of every intent in every state (design, section 4).
//!
//! The tables below this file are the specification, a cell for every pair. The caller is always `w1`, in context `c1`. A
//! number is the exit code of a refusal; a word stands for the records that are written: `claim`, `beat`, `report`, `freed`
//! (released), `done`, `passed` (done, as the verifier said), `skipped` (done, without it), `reject`, `failed` (rejected, as
//! the verifier said), `taken` (an operator's reclaim), `unbound` (one of a task that nobody holds), `swept N` and `kill N`
//! (returned to the queue, or rejected, by a sweep that is the N-th in a row), `cancelled`, `reopened`, `replaced`.
//!
//! `@` names the current claim (or the last one that was), `!` one that is not current; `*` asks from another context, `-`
//! from none. `sweep!` observed an older tip, `sweep/2` has a default limit of 2.

mod closing;
mod planning;
mod states;
mod supervising;
mod taking;
mod verifying;
mod working;

use std::collections::{BTreeMap, BTreeSet};

use pm::commit::Signature;
use pm::id::{RecordId, RefName, TaskId};
use pm::protocol::apply::{apply, end};
use pm::protocol::codec::{decode, encode};
use pm::protocol::decide::{Draft, Facts, Intent, Others, Stamp, Verified, decide};
use pm::protocol::record::{Content, ContextId, Mark, Nonce, Phase, Report, Status, Verification};
use pm::protocol::refusal::{HeldBy, Obscured, Refusal, Unmet, Unread};
use pm::protocol::state::TaskState;
use pm::protocol::sticky::{Bound, Misfit};

use self::states::STATES;
use super::chain::{Chain, agent, id};

/// The intent that a column stands for, against a chain, and the context that it comes from.
fn asked(column: &str, chain: &Chain) -> (Intent, Option<ContextId>) {
    let is_mark = |c: char| ['@', '!', '*', '-'].contains(&c);
    let (verb, marks) = column.split_at(column.find(is_mark).unwrap_or(column.len()));
    let claims = chain.claims();
    let named = if marks.contains('@') {
        Some(claims.last().copied().unwrap_or(id(999)))
    } else if marks.contains('!') {
        Some(claims.iter().rev().nth(1).copied().unwrap_or(id(999)))
    } else {
        None
    };
    let context = match (marks.contains('*'), marks.contains('-')) {
        (_, true) => None,
        (true, _) => Some("c9"),
        _ => Some("c1"),
    };
    (intent(verb, named, chain), context.map(|context| context.parse().expect("a context")))
}

fn intent(verb: &str, named: Option<RecordId>, chain: &Chain) -> Intent {
    let reason = Some("because".to_owned());
    let report = Report { title: "It is built".to_owned(), commit: None, synthetic: false, attachments: None };
    let finish =
        |done, note: &str, verified| Intent::Finish { claim: named, done, note: Some(note.to_owned()), verified };
    let said = |report: RecordId, verifier: &str, exit| {
        Some(Verified { report, verification: Verification { verifier: verifier.to_owned(), exit, summary: None } })
    };
    let reports: Vec<RecordId> = chain.reports();
    let (newest, older) = (reports.last(), reports.iter().rev().nth(1));
    let (newest, older) = (newest.copied().unwrap_or(id(998)), older.copied().unwrap_or(id(999)));
    let (verb, limit) = verb.split_once('/').unwrap_or((verb, "0"));
    match verb {
        "claim" => Intent::Claim { ttl: None },
        "beat" => Intent::Heartbeat { claim: named, progress: reason },
        "report" => Intent::Report { claim: named, report, body: Some("all of it\n".to_owned()) },
        "release" => Intent::Release { claim: named, reason },
        "done" => finish(true, "because", None),
        "reject" => finish(false, "because", None),
        "passed" => finish(true, "because", said(newest, "make test", 0)),
        "failed" => finish(true, "because", said(newest, "make test", 1)),
        "skipped" => finish(true, "ten letters", said(newest, "make test", -1)),
        "unsaid" => finish(true, " 9 letters ", said(newest, "make test", -1)),
        "mistaken" => finish(true, "because", said(newest, "true", 0)),
        "stale" => finish(true, "because", said(older, "make test", 0)),
        "gave up" => finish(false, "because", said(newest, "make test", 1)),
        "too late" => finish(false, "because", said(older, "make test", 1)),
        "sweep" => {
            let older = chain.records.iter().rev().nth(1).map_or(id(999), |(id, _)| *id);
            let observed = if named.is_some() { older } else { chain.state().tip };
            Intent::Sweep { observed, reason, max_attempts: limit.parse().expect("a limit") }
        }
        "reclaim" => Intent::Reclaim { status: named, reason },
        "cancel" => Intent::Cancel { reason },
        "replan" => Intent::Replan { note: reason },
        "supersede" => Intent::Supersede { by: TaskId(id(904).0), note: reason },
        verb => panic!("no such intent: {verb}"),
    }
}

/// What other tasks have to say, by the words of the table of states.
fn others(words: &str) -> Others {
    let open = |number: usize| Unmet { task: TaskId(id(number).0), place: None, phase: Some(Phase::New) };
    let mut others = Others::default();
    for word in words.split_whitespace() {
        match word {
            "dependency" => others.unmet.push(open(901)),
            "parent" => others.parent = Some(open(902)),
            "original" => others.original = Some(open(903)),
            "child" => others.open_children.push(open(905)),
            "unread" => {
                let name = RefName::from_full("refs/pm/tasks/default/gone".to_owned());
                let unread = vec![Unread { name, found: "the object is missing".to_owned() }];
                (others.unread_children, others.unread_ties) = (unread.clone(), unread);
            }
            context => {
                let place = ("default".parse().expect("a queue"), "tied".parse().expect("a slug"));
                others.tied.push(Bound { place, context: context.parse().expect("a context"), phase: Phase::Done });
            }
        }
    }
    others
}

/// The exit code of a refusal, once it is seen to tell the truth about the state.
fn refused(state: &TaskState, facts: &Facts<'_>, refusal: &Refusal) -> String {
    let current = state.claim().map(|claim| HeldBy {
        yours: claim.holder == *facts.agent,
        holder: claim.holder,
        claim: claim.id,
    });
    assert!(!refusal.to_string().is_empty());
    let code = match refusal {
        Refusal::NoStatus => 16,
        Refusal::WrongPhase { phase, held, successor, .. } => {
            assert_eq!((Some(*phase), held), (state.phase(), &current));
            assert_eq!(successor.as_ref().map(|successor| successor.task), state.superseded_by());
            6
        }
        Refusal::LeaseLost { agent, held, .. } => {
            assert_eq!((agent, Some(held)), (facts.agent, current.as_ref()));
            12
        }
        Refusal::LeaseLapsed { .. } => panic!("only a fence is refused so: {refusal}"),
        Refusal::NoReport => 7,
        Refusal::RaceLost { held } => {
            assert_eq!(*held, current);
            8
        }
        Refusal::Outdated { verified, newest } => {
            assert_eq!(Some(*newest), state.proof());
            assert_ne!(verified, newest);
            8
        }
        Refusal::DependenciesOpen { open } => {
            assert_eq!(*open, facts.others.unmet);
            11
        }
        Refusal::Contradiction { .. } => 19,
        Refusal::NotReplacedYet { original } => {
            assert_eq!(Some(original.task), state.replan_of());
            11
        }
        Refusal::ParentNotClaimed { parent } => {
            assert_eq!(Some(parent.task), state.task.parent);
            15
        }
        Refusal::ChildrenOpen { open } => {
            assert_eq!(*open, facts.others.open_children);
            14
        }
        Refusal::Context(misfit) => {
            match misfit {
                Misfit::Missing { .. } => assert_eq!(facts.context, None),
                Misfit::Other { wanted, given } => {
                    assert_eq!(facts.context, Some(given));
                    assert_ne!(wanted.context, *given);
                }
                Misfit::Split { first, second } => assert_ne!(first.context, second.context),
            }
            10
        }
        Refusal::NotVerified { verifier } => {
            assert_eq!(Some(verifier), state.task.verifier.as_ref());
            9
        }
        Refusal::Obscured { what, unread } => {
            let others = facts.others;
            let hidden = if *what == Obscured::Ties { &others.unread_ties } else { &others.unread_children };
            assert_eq!(unread, hidden);
            19
        }
        Refusal::Replaced { .. } => panic!("only a replan that found the successor is refused so: {refusal}"),
        Refusal::SkipWithoutNote => 13,
    };
    code.to_string()
}

/// What was decided, once `apply` has taken every record of it, the codec has carried each, and the chain may end.
fn written(before: &TaskState, facts: &Facts<'_>, drafts: Vec<Draft>) -> String {
    let mut state = before.clone();
    let mut kinds = Vec::new();
    for (n, draft) in drafts.into_iter().enumerate() {
        let stamp = Stamp { email: "pm@host", at: 0, clock: None, nonce: Nonce(n as u64) };
        let record = draft.into_record(Some(&state), &stamp);
        let commit = encode(&record, Signature { name: Vec::new(), email: Vec::new(), seconds: 0, offset: 0 });
        assert_eq!(decode(&commit).as_ref(), Ok(&record));
        kinds.push((record.agent.clone(), record.content.clone()));
        state = apply(Some(state), id(800 + n), &record).expect("apply accepts whatever decide emits");
    }
    end(&state).expect("a chain may end after a whole decision");
    check_binding(before, &state, facts);
    let is_preempt = |content: &Content| matches!(content, Content::Heartbeat(beat) if beat.preempt);
    let is_synthetic = |content: &Content| matches!(content, Content::Report(report) if report.synthetic);
    let holder = before.claim().map(|claim| claim.holder);
    let by_holder = kinds.iter().all(|(author, _)| Some(author) == holder.as_ref());
    let by_me = kinds.iter().all(|(author, _)| author == facts.agent);
    match kinds.iter().map(|(_, content)| content).collect::<Vec<_>>()[..] {
        [Content::Heartbeat(beat)] if !beat.preempt && by_holder => "beat".to_owned(),
        [Content::Report(report)] if !report.synthetic && by_holder => "report".to_owned(),
        [Content::Status(status)] if by_holder && status.proof.is_some() => closed(before, status).to_owned(),
        [Content::Status(status)] => match (status.phase, status.mark) {
            (Phase::Working, None) if by_me => "claim",
            (Phase::New, Some(Mark::Released)) if by_holder => "freed",
            (Phase::New, Some(Mark::Reclaimed)) if by_me && before.phase() == Some(Phase::New) => "unbound",
            (Phase::New, Some(Mark::Reclaimed)) if by_me => "taken",
            (Phase::New, Some(Mark::Replanned)) if by_me => "reopened",
            (Phase::Superseded, None) if by_me && status.superseded_by == Some(TaskId(id(904).0)) => "replaced",
            other => panic!("an unheard-of status: {other:?}"),
        }
        .to_owned(),
        [report, Content::Status(status)] if by_me && is_synthetic(report) => {
            assert_eq!((status.phase, status.mark), (Phase::Rejected, Some(Mark::Cancelled)));
            "cancelled".to_owned()
        }
        [preempt, Content::Status(status)] if by_me && is_preempt(preempt) => {
            assert_eq!((status.phase, status.mark), (Phase::New, Some(Mark::Reclaimed)));
            format!("swept {}", status.reclaims)
        }
        [report, preempt, Content::Status(status)] if by_me && is_synthetic(report) && is_preempt(preempt) => {
            assert_eq!((status.phase, status.mark), (Phase::Rejected, Some(Mark::Reclaimed)));
            format!("kill {}", status.reclaims)
        }
        _ => panic!("an unheard-of decision: {kinds:?}"),
    }
}

/// How the holder closed the task.
fn closed(before: &TaskState, status: &Status) -> &'static str {
    assert_eq!(status.proof, before.proof(), "the newest report under this claim");
    assert_eq!(status.mark, None);
    let said = status.verification.as_ref();
    assert!(said.is_none_or(|said| Some(&said.verifier) == before.task.verifier.as_ref()));
    match (status.phase, said.map(|said| said.exit)) {
        (Phase::Done, None) => "done",
        (Phase::Done, Some(0)) => "passed",
        (Phase::Done, Some(-1)) => "skipped",
        (Phase::Rejected, None) => "reject",
        (Phase::Rejected, Some(1)) => "failed",
        other => panic!("an unheard-of end: {other:?}"),
    }
}

/// A claim of a sticky task binds it to the caller's context, a reclaim frees it, and nothing else touches that.
fn check_binding(before: &TaskState, after: &TaskState, facts: &Facts<'_>) {
    let status = &after.status.as_ref().expect("a status").status;
    let expected = match (status.phase, status.mark) {
        _ if after.status.as_ref().map(|at| at.id) == before.status.as_ref().map(|at| at.id) => before.context(),
        (Phase::Working, _) if before.task.sticky => facts.context,
        (_, Some(Mark::Reclaimed)) => None,
        _ => before.context(),
    };
    assert_eq!(after.context(), expected);
}

/// Decides one pair.
fn outcome(script: &str, words: &str, column: &str) -> String {
    let chain = Chain::of(script);
    let (others, me) = (others(words), agent("w1"));
    let (intent, context) = asked(column, &chain);
    let facts = Facts { agent: &me, context: context.as_ref(), others: &others };
    match decide(chain.state(), &intent, &facts) {
        Ok(drafts) => written(chain.state(), &facts, drafts),
        Err(refusal) => refused(chain.state(), &facts, &refusal),
    }
}

/// Checks every pair of a table, and that the table has every state once. Returns its columns.
fn check(table: &str) -> Vec<&str> {
    let cells = |line| -> Vec<&str> { str::split(line, '|').map(str::trim).collect() };
    let mut lines = table.trim_matches('\n').lines();
    let columns = cells(lines.next().expect("a head"))[1..].to_vec();
    let mut wrong = Vec::new();
    let mut rows = Vec::new();
    for line in lines {
        let row = cells(line);
        let (_, script, others) = STATES.iter().find(|(name, ..)| *name == row[0]).expect("a known state");
        assert_eq!(row.len(), columns.len() + 1, "{line}");
        for (column, expected) in columns.iter().zip(&row[1..]) {
            let found = outcome(script, others, column);
            if found != *expected {
                wrong.push(format!("{column} when {}: {found}, not {expected}", row[0]));
            }
        }
        rows.push(row[0]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(rows, STATES.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), "every state once, in order");
    columns
}

#[test]
fn every_intent_in_every_state_comes_out_as_the_table_says() {
    let tables =
        [taking::TAKE, working::WORK, closing::CLOSE, verifying::VERIFY, supervising::SUPERVISE, planning::PLAN];
    let columns: Vec<&str> = tables.into_iter().flat_map(check).collect();
    let distinct: BTreeSet<&str> = columns.iter().copied().collect();
    assert_eq!(distinct.len(), columns.len(), "no column twice");
    // What there is to be asked: a new kind of intent does not get past this without a column of its own.
    let mut columns_of: BTreeMap<String, usize> = BTreeMap::new();
    for column in &distinct {
        let (intent, _) = asked(column, &Chain::of("plan claim"));
        let kind = match intent {
            Intent::Claim { .. } => "claim",
            Intent::Heartbeat { .. } => "heartbeat",
            Intent::Report { .. } => "report",
            Intent::Release { .. } => "release",
            Intent::Finish { .. } => "finish",
            Intent::Sweep { .. } => "sweep",
            Intent::Reclaim { .. } => "reclaim",
            Intent::Cancel { .. } => "cancel",
            Intent::Replan { .. } => "replan",
            Intent::Supersede { .. } => "supersede",
        };
        *columns_of.entry(kind.to_owned()).or_default() += 1;
    }
    assert_eq!(columns_of.len(), 10, "every kind of intent has its columns: {columns_of:?}");
    assert_eq!(STATES.len() * columns.len(), 3626, "the pairs that docs/testing.md counts");
}

#[test]
fn what_does_not_ask_for_a_context_comes_out_the_same_in_any_and_in_none() {
    for (name, script, others) in STATES {
        for verb in ["release", "release@", "sweep", "sweep!", "reclaim", "reclaim!", "cancel", "replan", "supersede"] {
            let own = outcome(script, others, verb);
            for mark in ["*", "-"] {
                assert_eq!(outcome(script, others, &format!("{verb}{mark}")), own, "{verb}{mark} when {name}");
            }
        }
    }
}

#[test]
fn a_plain_task_asks_for_no_context_whatever_is_done_with_it() {
    let verbs = ["claim", "beat", "report", "release", "done", "reject", "passed", "sweep", "reclaim", "cancel"];
    for (name, script, others) in STATES.iter().filter(|(_, script, _)| !script.contains("+sticky")) {
        for verb in verbs {
            let own = outcome(script, others, verb);
            for mark in ["*", "-"] {
                assert_eq!(outcome(script, others, &format!("{verb}{mark}")), own, "{verb}{mark} when {name}");
            }
        }
    }
}
