//! Properties of the fold and the decisions, over random walks of several agents on one task.
//!
//! A [`Model`] says in a page what the rules are, knowing nothing of records; every step of a walk is compared with
//! it, and every walk must keep what section 4 of the design promises.

mod model;

use std::cell::RefCell;
use std::collections::BTreeMap;

use pm::error::{Error, Place};
use pm::id::{RecordId, TaskId};
use pm::protocol::apply::{Rule, apply, end};
use pm::protocol::decide::{Facts, Intent, Others, Stamp, Verified, decide};
use pm::protocol::record::{ContextId, Nonce, Phase, Record, Report, Verification};
use pm::protocol::refusal::{Refusal, Unmet};
use pm::protocol::state::{BrokenLink, TaskState, from_tip};
use pm::protocol::sticky::Bound;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use self::model::Model;
use super::chain::{Chain, agent, id, phase};
use super::for_all;

/// The longest walk, in steps.
const STEPS: usize = 25;

/// The most direct reads of objects that a state may cost, beyond the tip (design, section 3).
const READS: usize = 3;

/// The agents, each with the context that it works in.
const AGENTS: [(&str, Option<&str>); 4] = [("w1", Some("c1")), ("w2", Some("c2")), ("s1", Some("c1")), ("op", None)];

/// The options of the task; one with a verifier comes more often, since much is asked about that.
const OPTIONS: [&str; 10] = [
    "",
    "+max0",
    "+max1",
    "+max2",
    "+max3+ttl",
    "+sticky",
    "+sticky+max2",
    "+verifier",
    "+sticky+verifier",
    "+verifier",
];

/// What an agent does next. The number chooses among claims, tips or limits.
#[derive(Debug, Clone, Copy)]
enum Act {
    Claim,
    Beat(u8),
    Report(u8),
    Release(u8),
    Finish(u8, bool),
    /// Finishes, and says what the verifier said, of which report, and why.
    FinishVerified(u8, bool),
    Sweep(u8),
    SweepLate(u8),
    Reclaim(u8),
    Cancel,
    Replan,
    Supersede,
    /// Wakes up after a pause, and writes what was right then.
    Zombie(u8),
}

fn act() -> impl Strategy<Value = Act> {
    (0..28_u8, any::<u8>()).prop_map(|(kind, n)| match kind {
        0..4 => Act::Claim,
        4 | 5 => Act::Beat(n),
        6 | 7 => Act::Report(n),
        8 => Act::Release(n),
        9 => Act::Finish(n, true),
        10 => Act::Finish(n, false),
        11..=13 => Act::Sweep(n),
        14 => Act::SweepLate(n),
        15 => Act::Reclaim(n),
        16 if n < 64 => Act::Cancel,
        17 => Act::Replan,
        18 if n < 64 => Act::Supersede,
        19 => Act::FinishVerified(n, n % 8 > 0),
        16 | 18 | 20 | 22..26 => Act::FinishVerified(n, true),
        21 => Act::Report(n),
        _ => Act::Zombie(n),
    })
}

/// Every other walk begins with a claim and a report of it: much can be asked of those.
fn walk() -> impl Strategy<Value = (usize, Vec<Step>)> {
    let steps = prop::collection::vec((0..AGENTS.len(), act(), 0..8_u8), 0..=STEPS);
    (0..OPTIONS.len(), any::<bool>(), steps).prop_map(|(options, is_reported, steps)| {
        let begun = [(0, Act::Claim, u8::MAX), (0, Act::Report(0), u8::MAX)];
        (options, begun.into_iter().filter(|_| is_reported).chain(steps).collect())
    })
}

/// Who does what, and what other tasks have to say (mostly nothing).
type Step = (usize, Act, u8);

fn others(n: u8) -> Others {
    let open = || Unmet { task: TaskId(id(901).0), place: None, phase: Some(Phase::New) };
    let tied = |context: &str| {
        let place = ("default".parse().expect("a queue"), "tied".parse().expect("a slug"));
        vec![Bound { place, context: context.parse().expect("a context"), phase: Phase::Done }]
    };
    match n {
        0 => Others { unmet: vec![open()], ..Others::default() },
        1 => Others { parent: Some(open()), ..Others::default() },
        2 => Others { open_children: vec![open()], ..Others::default() },
        3 => Others { tied: tied("c1"), ..Others::default() },
        4 => Others { tied: [tied("c2"), tied("c1")].concat(), ..Others::default() },
        _ => Others::default(),
    }
}

fn code(refusal: Refusal) -> u8 {
    let place = Place { queue: "default".parse().expect("a queue"), slug: "build".parse().expect("a slug") };
    Error::Refused { task: TaskId(id(1).0), place, refusal }.exit_code().number()
}

/// One walk under way.
struct Walk {
    chain: Chain,
    model: Model,
    /// Every state at which the chain could have been read.
    past: Vec<TaskState>,
}

impl Walk {
    fn new(options: usize) -> Walk {
        let chain = Chain::of(&format!("plan{}", OPTIONS[options]));
        Walk { past: vec![chain.state().clone()], chain, model: Model::new(OPTIONS[options]) }
    }

    /// No claim, the newest one, or any; as the number says.
    fn named(&self, n: u8) -> Option<RecordId> {
        let claims = self.chain.claims();
        match n % 3 {
            1 => Some(claims.last().copied().unwrap_or(id(999))),
            2 => Some(claims.get(usize::from(n / 3) % claims.len().max(1)).copied().unwrap_or(id(999))),
            _ => None,
        }
    }

    fn intent(&self, act: Act) -> Intent {
        let tip = self.chain.state().tip;
        let late = |n: u8| self.chain.records[usize::from(n) % self.chain.records.len()].0;
        let sweep = |observed, n: u8| Intent::Sweep { observed, reason: None, max_attempts: u32::from(n % 3) };
        match act {
            Act::Claim => Intent::Claim { ttl: None },
            Act::Beat(n) => Intent::Heartbeat { claim: self.named(n), progress: None },
            Act::Report(n) => {
                let report =
                    Report { title: "It is built".to_owned(), commit: None, synthetic: false, attachments: None };
                Intent::Report { claim: self.named(n), report, body: None }
            }
            Act::Release(n) => Intent::Release { claim: self.named(n), reason: None },
            Act::Finish(n, done) => Intent::Finish { claim: self.named(n), done, note: None, verified: None },
            Act::FinishVerified(n, done) => {
                let note = Some(if n & 8 == 0 { "too short" } else { "long enough" }.to_owned());
                let report = self.chain.reports().iter().rev().nth(usize::from(n % 8 == 7)).copied();
                let exit = [0, -1, -1, 1][usize::from(n / 16 % 4)];
                let verification = Verification { verifier: "make test".to_owned(), exit, summary: None };
                let verified = Some(Verified { report: report.unwrap_or(id(999)), verification });
                Intent::Finish { claim: self.named(n), done, note, verified }
            }
            Act::Sweep(n) => sweep(tip, n),
            Act::SweepLate(n) => sweep(late(n), n),
            Act::Reclaim(n) => {
                let current = self.chain.state().status.as_ref().map(|at| at.id);
                Intent::Reclaim { status: if n % 4 == 3 { current } else { self.named(n) }, reason: None }
            }
            Act::Cancel => Intent::Cancel { reason: None },
            Act::Replan => Intent::Replan { note: None },
            Act::Supersede => Intent::Supersede { by: TaskId(id(904).0), note: None },
            Act::Zombie(_) => unreachable!("it has its intents from the past"),
        }
    }

    /// The records that would be written on top of a state, with ids from `first` on.
    fn decided(state: &TaskState, intent: &Intent, facts: &Facts<'_>, first: usize) -> Result<Vec<Record>, Refusal> {
        let drafts = decide(state, intent, facts)?;
        let mut state = state.clone();
        let mut records = Vec::new();
        for draft in drafts {
            let stamp = Stamp { email: "pm@host", at: 0, clock: None, nonce: Nonce(state.seq) };
            let record = draft.into_record(Some(&state), &stamp);
            let id = id(first + records.len());
            state = apply(Some(state), id, &record).expect("apply accepts whatever decide emits");
            records.push(record);
        }
        Ok(records)
    }

    /// Takes one step; tells what came of it.
    fn step(&mut self, (who, act, around): Step) -> Result<String, TestCaseError> {
        let (name, context) = AGENTS[who];
        let (who, others) = (agent(name), others(around));
        let context: Option<ContextId> = context.map(|context| context.parse().expect("a context"));
        let facts = Facts { agent: &who, context: context.as_ref(), others: &others };
        if let Act::Zombie(n) = act {
            return self.zombie(&facts, n).map(str::to_owned);
        }
        let (tip, first) = (self.chain.state().tip, self.chain.records.len() + 1);
        let intent = self.intent(act);
        let expected = self.model.step(&intent, &facts, tip, id(first));
        let records = Walk::decided(self.chain.state(), &intent, &facts, first).map_err(code);
        prop_assert_eq!(
            records.as_ref().err(),
            expected.as_ref().err(),
            "{:?} by {:?} in {:?}",
            intent,
            facts,
            self.model
        );
        for record in records.unwrap_or_default() {
            prop_assert!(self.chain.push(record).is_ok());
        }
        Ok(expected.map_or_else(|code| code.to_string(), str::to_owned))
    }

    /// Records that were decided against an older state never enter the chain, not even with a fresh parent.
    fn zombie(&mut self, facts: &Facts<'_>, n: u8) -> Result<&'static str, TestCaseError> {
        let now = self.chain.state().clone();
        let then = &self.past[usize::from(n / 11) % self.past.len()];
        let claim = then.claim().map(|claim| claim.id);
        let intent = match n % 11 {
            0 | 1 => Intent::Claim { ttl: None },
            2 => Intent::Heartbeat { claim, progress: None },
            3 => Intent::Release { claim, reason: None },
            4 | 5 => Intent::Finish { claim, done: true, note: None, verified: None },
            6 => Intent::Reclaim { status: then.status.as_ref().map(|at| at.id), reason: None },
            7 => Intent::Cancel { reason: None },
            8 => Intent::Replan { note: None },
            9 => Intent::Supersede { by: TaskId(id(904).0), note: None },
            _ => Intent::Sweep { observed: then.tip, reason: None, max_attempts: 1 },
        };
        let records = match Walk::decided(then, &intent, facts, 800) {
            Ok(records) if then.tip != now.tip => records,
            _ => return Ok("idle"),
        };
        for record in records {
            let broken = apply(Some(now.clone()), id(899), &record).expect_err("a stale record");
            prop_assert_eq!(broken.rule, Rule::Links);
            let fresh = Record { parent: Some(now.tip), seq: now.seq + 1, ..record };
            if fresh.links != self.chain.links() {
                let broken = apply(Some(now.clone()), id(899), &fresh).expect_err("a stale record with a fresh parent");
                prop_assert_eq!(broken.rule, Rule::Links);
            }
        }
        Ok("zombie")
    }

    /// What must hold after every step.
    fn check(&mut self) -> TestCaseResult {
        let state = self.chain.state();
        let (model, status) = (&self.model, state.status.as_ref().expect("a status"));
        prop_assert_eq!(end(state), Ok(()));
        prop_assert_eq!(status.status.phase, model.phase);
        prop_assert_eq!((status.status.attempt, status.status.reclaims), (model.attempt, model.reclaims));
        prop_assert_eq!(state.claim().map(|claim| (claim.holder, claim.id)), model.holder.clone());
        prop_assert_eq!((state.proof(), state.context()), (model.report, model.context.as_ref()));
        prop_assert_eq!(state.seq as usize, self.chain.records.len() - 1);
        prop_assert_eq!(model.phase == Phase::Working, model.holder.is_some());

        // The tip and what it links to say the same.
        let mut reads = 0;
        let record = |id: RecordId| self.chain.records.iter().find(|(at, _)| *at == id).map(|(_, record)| record);
        let tip = record(state.tip).expect("the tip");
        let read = |id| {
            reads += 1;
            Ok::<Record, BrokenLink>(record(id).expect("a link into the chain").clone())
        };
        prop_assert_eq!(from_tip(state.tip, tip, read), Ok(state.clone()));
        prop_assert!(reads <= READS, "{} reads", reads);
        self.past.push(state.clone());
        Ok(())
    }

    /// What must hold of a whole chain.
    fn check_chain(&self) -> TestCaseResult {
        let mut folded = None;
        let (mut claims, mut closed) = (Vec::new(), false);
        for (id, record) in &self.chain.records {
            let again = apply(folded.clone(), *id, record);
            folded = Some(apply(folded, *id, record).expect("accepted before"));
            prop_assert_eq!(again.ok(), folded.clone(), "folding is deterministic");
            let Some(entered) = phase(record) else { continue };
            if entered == Phase::Working {
                claims.push(record.seq);
            }
            prop_assert!(!closed || matches!(entered, Phase::New | Phase::Superseded), "closed leaves only by replan");
            closed = matches!(entered, Phase::Done | Phase::Rejected);
        }
        prop_assert_eq!(folded.as_ref(), self.chain.folded.as_ref());
        prop_assert!(claims.is_sorted_by(|a, b| a < b), "claims grow strictly");
        prop_assert_eq!(claims.len() as u64, self.model.attempt);
        Ok(())
    }
}

#[test]
fn random_walks_keep_every_promise() {
    let seen = RefCell::new(BTreeMap::new());
    for_all(walk(), |(options, steps)| {
        let mut walk = Walk::new(options);
        walk.check()?;
        for step in steps {
            let came_of_it = walk.step(step)?;
            *seen.borrow_mut().entry(came_of_it).or_insert(0) += 1;
            walk.check()?;
        }
        walk.check_chain()
    });
    let seen = seen.into_inner();
    for outcome in [
        "claim",
        "beat",
        "report",
        "release",
        "finish",
        "sweep",
        "kill",
        "reclaim",
        "unbind",
        "cancel",
        "replan",
        "supersede",
        "zombie",
        "6",
        "7",
        "8",
        "9",
        "10",
        "11",
        "12",
        "13",
        "14",
        "15",
    ] {
        let times = seen.get(outcome).copied().unwrap_or(0);
        assert!(times >= 100, "'{outcome}' happened {times} times: nothing is proven about it ({seen:?})");
    }
}

/// A few sweeps, a report that breaks the row, then sweeps until the task is rejected.
fn check_limit(limit: u32, before: u32, own: bool) {
    let options = if own { format!("+max{limit}") } else { String::new() };
    let mut chain = Chain::of(&format!("plan{options}{} claim report sweep", " claim sweep".repeat(before as usize)));
    for sweep in 1..=limit {
        assert_eq!(chain.state().phase(), Some(Phase::New), "before sweep {sweep} of {limit}");
        chain.push(chain.next("claim")).expect("a claim");
        let intent = Intent::Sweep { observed: chain.state().tip, reason: None, max_attempts: limit };
        let first = chain.records.len() + 1;
        let facts = Facts { agent: &agent("s1"), context: None, others: &Others::default() };
        for record in Walk::decided(chain.state(), &intent, &facts, first).expect("a claim to sweep") {
            chain.push(record).expect("apply accepts whatever decide emits");
        }
    }
    assert_eq!(chain.state().phase(), Some(Phase::Rejected));
}

#[test]
fn a_task_is_rejected_at_exactly_the_last_sweep_in_a_row() {
    for limit in 1..=8 {
        for before in 0..limit {
            check_limit(limit, before, true);
            check_limit(limit, before, false);
        }
    }
}

#[test]
fn a_parent_waits_for_tasks_that_are_new_or_working_only() {
    let waiting: Vec<Phase> = Phase::ALL.into_iter().filter(|phase| !phase.is_settled()).collect();
    assert_eq!(waiting, [Phase::New, Phase::Working]);
}
