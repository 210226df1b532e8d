//! The decision table: what becomes of every intent in every state (design, section 4).
//!
//! The tables below are the specification, a cell for every pair. The caller is always `w1`. A number is the exit
//! code of a refusal; a word stands for the records that are written: `claim`, `beat`, `report`, `freed` (released),
//! `done`, `reject`, `taken` (an operator's reclaim), `swept N` and `kill N` (returned to the queue, or rejected, by
//! a sweep that is the N-th in a row).

use std::collections::BTreeSet;

use pm::commit::Signature;
use pm::id::TaskId;
use pm::protocol::apply::{apply, end};
use pm::protocol::codec::{decode, encode};
use pm::protocol::decide::{Draft, Facts, Intent, Others, Stamp, decide};
use pm::protocol::record::{Content, Mark, Nonce, Phase, Report};
use pm::protocol::refusal::{HeldBy, Refusal, Unmet};
use pm::protocol::state::TaskState;

use super::chain::{Chain, agent, id};

/// Every state, and the chain that leads to it.
const STATES: [(&str, &str); 35] = [
    ("no status", "task"),
    ("new", "plan"),
    ("dependency open", "plan+dependency"),
    ("released", "plan claim release"),
    ("swept", "plan claim sweep"),
    ("taken away", "plan claim taken"),
    ("replanned", "plan claim report done replan"),
    ("mine", "plan claim"),
    ("mine, beating", "plan claim beat beat"),
    ("mine again", "plan claim release claim"),
    ("another's", "plan claim:w2"),
    ("another's now", "plan claim sweep claim:w2"),
    ("reported", "plan claim report"),
    ("reported before", "plan claim report release claim"),
    ("another reported", "plan claim:w2 report:w2"),
    ("swept twice", "plan claim sweep claim sweep claim"),
    ("one left of 2", "plan+max2 claim sweep claim"),
    ("same, reported", "plan+max2 claim sweep claim report"),
    ("one in all", "plan+max1 claim"),
    ("no limit", "plan+max0 claim sweep claim"),
    ("done", "plan claim report done"),
    ("rejected", "plan claim report reject"),
    ("cancelled", "plan cancel"),
    ("killed", "plan+max1 claim kill"),
    ("superseded", "plan supersede"),
    ("new, parent", "plan+parent"),
    ("new, verifier", "plan+verifier"),
    ("new, sticky", "plan+sticky"),
    ("new, workdir", "plan+workdir"),
    ("new, clone", "task clone"),
    ("new, bound", "plan+sticky claim release"),
    ("reported, parent", "plan+parent claim report"),
    ("reported, verifier", "plan+verifier claim report"),
    ("reported, sticky", "plan+sticky claim report"),
    ("reported, workdir", "plan+workdir claim report"),
];

/// `@` names the current claim (or the last one that was), `!` one that is not current; `sweep!` observed an older
/// tip, `sweep/2` has a default limit of 2.
const WORK: &str = "
                   | claim  | beat   | beat@  | beat!  | report | report@ | report! | release | release@ | release!
no status          | 16     | 16     | 16     | 16     | 16     | 16      | 16      | 16      | 16       | 16
new                | claim  | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
dependency open    | 11     | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
released           | claim  | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
swept              | claim  | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
taken away         | claim  | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
replanned          | claim  | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
mine               | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
mine, beating      | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
mine again         | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
another's          | 6      | 12     | beat   | 12     | 12     | report  | 12      | 12      | freed    | 12
another's now      | 6      | 12     | beat   | 12     | 12     | report  | 12      | 12      | freed    | 12
reported           | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
reported before    | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
another reported   | 6      | 12     | beat   | 12     | 12     | report  | 12      | 12      | freed    | 12
swept twice        | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
one left of 2      | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
same, reported     | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
one in all         | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
no limit           | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
done               | 6      | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
rejected           | 6      | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
cancelled          | 6      | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
killed             | 6      | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
superseded         | 6      | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
new, parent        | 15     | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
new, verifier      | claim  | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
new, sticky        | claim  | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
new, workdir       | claim  | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
new, clone         | 11     | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
new, bound         | claim  | 6      | 6      | 6      | 6      | 6       | 6       | 6       | 6        | 6
reported, parent   | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
reported, verifier | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
reported, sticky   | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
reported, workdir  | 6      | beat   | beat   | 12     | report | report  | 12      | freed   | freed    | 12
";

/// Closing, and taking away.
const CLOSE: &str = "
                   | done | done@ | done! | reject | reject@ | reject! | sweep   | sweep! | sweep/1 | sweep/2 | reclaim | reclaim@ | reclaim!
no status          | 16   | 16    | 16    | 16     | 16      | 16      | 16      | 16     | 16      | 16      | 16      | 16       | 16
new                | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
dependency open    | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
released           | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
swept              | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
taken away         | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
replanned          | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
mine               | 7    | 7     | 12    | 7      | 7       | 12      | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
mine, beating      | 7    | 7     | 12    | 7      | 7       | 12      | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
mine again         | 7    | 7     | 12    | 7      | 7       | 12      | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
another's          | 12   | 7     | 12    | 12     | 7       | 12      | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
another's now      | 12   | 7     | 12    | 12     | 7       | 12      | swept 2 | 8      | kill 2  | kill 2  | taken   | taken    | 8
reported           | done | done  | 12    | reject | reject  | 12      | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
reported before    | 7    | 7     | 12    | 7      | 7       | 12      | swept 1 | 8      | kill 1  | swept 1 | taken   | taken    | 8
another reported   | 12   | done  | 12    | 12     | reject  | 12      | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
swept twice        | 7    | 7     | 12    | 7      | 7       | 12      | swept 3 | 8      | kill 3  | kill 3  | taken   | taken    | 8
one left of 2      | 7    | 7     | 12    | 7      | 7       | 12      | kill 2  | 8      | kill 2  | kill 2  | taken   | taken    | 8
same, reported     | done | done  | 12    | reject | reject  | 12      | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
one in all         | 7    | 7     | 12    | 7      | 7       | 12      | kill 1  | 8      | kill 1  | kill 1  | taken   | taken    | 8
no limit           | 7    | 7     | 12    | 7      | 7       | 12      | swept 2 | 8      | swept 2 | swept 2 | taken   | taken    | 8
done               | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
rejected           | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
cancelled          | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
killed             | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
superseded         | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
new, parent        | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
new, verifier      | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
new, sticky        | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
new, workdir       | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
new, clone         | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
new, bound         | 6    | 6     | 6     | 6      | 6       | 6       | 6       | 6      | 6       | 6       | 6       | 6        | 6
reported, parent   | done | done  | 12    | reject | reject  | 12      | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
reported, verifier | 9    | 9     | 12    | reject | reject  | 12      | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
reported, sticky   | done | done  | 12    | reject | reject  | 12      | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
reported, workdir  | done | done  | 12    | reject | reject  | 12      | swept 0 | 8      | swept 0 | swept 0 | taken   | taken    | 8
";

/// The intent that a column stands for, against a chain.
fn intent(column: &str, chain: &Chain) -> Intent {
    let claims = chain.claims();
    let named = match column.chars().last() {
        Some('@') => Some(claims.last().copied().unwrap_or(id(999))),
        Some('!') => Some(claims.iter().rev().nth(1).copied().unwrap_or(id(999))),
        _ => None,
    };
    let (verb, limit) = column.trim_end_matches(['@', '!']).split_once('/').unwrap_or((column, "0"));
    let reason = Some("because".to_owned());
    let report = Report { title: "It is built".to_owned(), commit: None, synthetic: false, attachments: None };
    match verb.trim_end_matches(['@', '!']) {
        "claim" => Intent::Claim { ttl: None },
        "beat" => Intent::Heartbeat { claim: named, progress: reason },
        "report" => Intent::Report { claim: named, report, body: Some("all of it\n".to_owned()) },
        "release" => Intent::Release { claim: named, reason },
        "done" => Intent::Finish { claim: named, done: true, note: reason, verified: None },
        "reject" => Intent::Finish { claim: named, done: false, note: reason, verified: None },
        "sweep" => {
            let older = chain.records.iter().rev().nth(1).map_or(id(999), |(id, _)| *id);
            let observed = if named.is_some() { older } else { chain.state().tip };
            Intent::Sweep { observed, reason, max_attempts: limit.parse().expect("a limit") }
        }
        "reclaim" => Intent::Reclaim { claim: named, reason },
        verb => panic!("no such intent: {verb}"),
    }
}

/// The exit code of a refusal, once it is seen to tell the truth about the state.
fn refused(state: &TaskState, refusal: &Refusal) -> String {
    let me = agent("w1");
    let current =
        state.claim().map(|claim| HeldBy { yours: claim.holder == me, holder: claim.holder, claim: claim.id });
    assert!(!refusal.to_string().is_empty());
    let code = match refusal {
        Refusal::NoStatus => 16,
        Refusal::WrongPhase { phase, held, .. } => {
            assert_eq!((Some(*phase), held), (state.phase(), &current));
            6
        }
        Refusal::LeaseLost { agent, held, .. } => {
            assert_eq!((agent, Some(held)), (&me, current.as_ref()));
            12
        }
        Refusal::LeaseLapsed { .. } => panic!("only a fence is refused so: {refusal}"),
        Refusal::NoReport => 7,
        Refusal::RaceLost { held } => {
            assert_eq!(*held, current);
            8
        }
        Refusal::DependenciesOpen { open } => {
            assert_eq!(open.len(), state.task.depends_on.len());
            11
        }
        Refusal::Contradiction { .. } => 19,
        Refusal::NotReplacedYet { .. } => 11,
        Refusal::ParentNotClaimed { .. } => 15,
        Refusal::ChildrenOpen { .. } => 14,
        Refusal::Context(_) => 10,
        Refusal::NotVerified { .. } => 9,
        Refusal::SkipWithoutNote => 13,
    };
    code.to_string()
}

/// What was decided, once `apply` has taken every record of it, the codec has carried each, and the chain may end.
fn written(before: &TaskState, drafts: Vec<Draft>) -> String {
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
    let is_preempt = |content: &Content| matches!(content, Content::Heartbeat(beat) if beat.preempt);
    let is_synthetic = |content: &Content| matches!(content, Content::Report(report) if report.synthetic);
    let holder = before.claim().map(|claim| claim.holder);
    let by_holder = kinds.iter().all(|(author, _)| Some(author) == holder.as_ref());
    let by_me = kinds.iter().all(|(author, _)| *author == agent("w1"));
    match kinds.iter().map(|(_, content)| content).collect::<Vec<_>>()[..] {
        [Content::Heartbeat(beat)] if !beat.preempt && by_holder => "beat".to_owned(),
        [Content::Report(report)] if !report.synthetic && by_holder => "report".to_owned(),
        [Content::Status(status)] => match (status.phase, status.mark) {
            (Phase::Working, None) if by_me => "claim".to_owned(),
            (Phase::New, Some(Mark::Released)) if by_holder => "freed".to_owned(),
            (Phase::New, Some(Mark::Reclaimed)) if by_me => "taken".to_owned(),
            (Phase::Done, None) if by_holder => "done".to_owned(),
            (Phase::Rejected, None) if by_holder => "reject".to_owned(),
            other => panic!("an unheard-of status: {other:?}"),
        },
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

/// Decides one pair.
fn outcome(script: &str, column: &str) -> String {
    let chain = Chain::of(script);
    let state = chain.state();
    let is_new = |task: TaskId| Unmet { task, place: None, phase: Some(Phase::New) };
    let others = Others {
        unmet: state.task.depends_on.iter().map(|task| is_new(*task)).collect(),
        parent: state.task.parent.map(is_new),
        original: state.replan_of().map(is_new),
        ..Others::default()
    };
    let (me, context) = (agent("w1"), "c1".parse().expect("a context"));
    let facts = Facts { agent: &me, context: Some(&context), others: &others };
    match decide(state, &intent(column, &chain), &facts) {
        Ok(drafts) => written(state, drafts),
        Err(refusal) => refused(state, &refusal),
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
        let (_, script) = STATES.iter().find(|(name, _)| *name == row[0]).expect("a known state");
        assert_eq!(row.len(), columns.len() + 1, "{line}");
        for (column, expected) in columns.iter().zip(&row[1..]) {
            let found = outcome(script, column);
            if found != *expected {
                wrong.push(format!("{column} when {}: {found}, not {expected}", row[0]));
            }
        }
        rows.push(row[0]);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(rows, STATES.map(|(name, _)| name), "every state once, in order");
    columns
}

#[test]
fn every_intent_in_every_state_comes_out_as_the_table_says() {
    let columns: Vec<&str> = check(WORK).into_iter().chain(check(CLOSE)).collect();
    let distinct: BTreeSet<&str> = columns.iter().copied().collect();
    assert_eq!(distinct.len(), columns.len(), "no column twice");
    let verbs: BTreeSet<&str> =
        distinct.iter().map(|column| column.split(['@', '!', '/']).next().unwrap_or("")).collect();
    let all = ["beat", "claim", "done", "reclaim", "reject", "release", "report", "sweep"];
    assert_eq!(verbs, BTreeSet::from(all), "every kind of intent has its columns");
    assert_eq!(STATES.len() * columns.len(), 805, "the pairs that docs/testing.md counts");
}
