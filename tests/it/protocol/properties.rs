//! Properties of the fold and the decisions, over random walks of several agents on one task.
//!
//! A [`Model`] says in a page what the rules are, knowing nothing of records; every step of a walk is compared with
//! it, and every walk must keep what section 4 of the design promises.

use std::cell::RefCell;
use std::collections::BTreeMap;

use pm::id::{AgentId, RecordId};
use pm::protocol::apply::{Rule, apply, end};
use pm::protocol::decide::{Facts, Intent, Others, Stamp, decide};
use pm::protocol::record::{Nonce, Phase, Record, Report};
use pm::protocol::state::{BrokenLink, TaskState, from_tip};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::chain::{Chain, agent, id, phase, task};
use super::for_all;

/// The longest walk, in steps.
const STEPS: usize = 25;

/// The most direct reads of objects that a state may cost, beyond the tip (design, section 3).
const READS: usize = 3;

const AGENTS: [&str; 4] = ["w1", "w2", "s1", "op"];

/// What an agent does next. The number chooses among claims, tips or limits.
#[derive(Debug, Clone, Copy)]
enum Act {
    Claim,
    Beat(u8),
    Report(u8),
    Release(u8),
    Finish(u8, bool),
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
    (0..20_u8, any::<u8>()).prop_map(|(kind, n)| match kind {
        0..4 => Act::Claim,
        4 | 5 => Act::Beat(n),
        6 | 7 => Act::Report(n),
        8 => Act::Release(n),
        9 => Act::Finish(n, true),
        10 => Act::Finish(n, false),
        11..=13 => Act::Sweep(n),
        14 => Act::SweepLate(n),
        15 => Act::Reclaim(n),
        16 => Act::Cancel,
        17 => Act::Replan,
        18 if n < 64 => Act::Supersede,
        _ => Act::Zombie(n),
    })
}

fn walk() -> impl Strategy<Value = (u8, Vec<(usize, Act)>)> {
    (0..6_u8, prop::collection::vec((0..AGENTS.len(), act()), 0..=STEPS))
}

/// The rules, without records.
#[derive(Debug, Clone)]
struct Model {
    limit: Option<u32>,
    phase: Phase,
    holder: Option<(AgentId, RecordId)>,
    reported: bool,
    attempt: u64,
    reclaims: u64,
}

impl Model {
    /// Whether `who` may act as the holder, naming a claim or not.
    fn holds(&self, who: &AgentId, named: Option<RecordId>) -> bool {
        self.holder.as_ref().is_some_and(|(holder, claim)| named.map_or(who == holder, |named| named == *claim))
    }

    fn leave(&mut self, phase: Phase, reclaims: u64) {
        (self.phase, self.reclaims, self.holder, self.reported) = (phase, reclaims, None, false);
    }

    /// What the intent does, or `None` if it is refused. `new` is the id that a claim would get.
    fn step(&mut self, who: &AgentId, intent: &Intent, tip: RecordId, new: RecordId) -> Option<&'static str> {
        let working = self.phase == Phase::Working;
        match intent {
            Intent::Claim { .. } if self.phase == Phase::New => {
                (self.phase, self.holder, self.reported) = (Phase::Working, Some((who.clone(), new)), false);
                self.attempt += 1;
                Some("claim")
            }
            Intent::Heartbeat { claim, .. } if working && self.holds(who, *claim) => Some("beat"),
            Intent::Report { claim, .. } if working && self.holds(who, *claim) => {
                self.reported = true;
                Some("report")
            }
            Intent::Release { claim, .. } if working && self.holds(who, *claim) => {
                self.leave(Phase::New, 0);
                Some("release")
            }
            Intent::Finish { claim, done, .. } if working && self.holds(who, *claim) && self.reported => {
                self.leave(if *done { Phase::Done } else { Phase::Rejected }, self.reclaims);
                Some("finish")
            }
            Intent::Sweep { observed, max_attempts, .. } if working && *observed == tip => {
                let reclaims = if self.reported { 0 } else { self.reclaims + 1 };
                let limit = u64::from(self.limit.unwrap_or(*max_attempts));
                let kill = limit > 0 && reclaims >= limit;
                self.leave(if kill { Phase::Rejected } else { Phase::New }, reclaims);
                Some(if kill { "kill" } else { "sweep" })
            }
            Intent::Reclaim { claim, .. } if working => {
                let current = self.holder.as_ref().map(|(_, claim)| *claim);
                if claim.is_some() && *claim != current {
                    return None;
                }
                self.leave(Phase::New, 0);
                Some("reclaim")
            }
            _ => None,
        }
    }

    /// What an operator's hand-written records do.
    fn operate(&mut self, act: Act) -> Option<&'static str> {
        let closed = matches!(self.phase, Phase::Done | Phase::Rejected);
        let open = matches!(self.phase, Phase::New | Phase::Working);
        match act {
            Act::Cancel if open => {
                self.leave(Phase::Rejected, self.reclaims);
                Some("cancel")
            }
            Act::Replan if closed => {
                self.leave(Phase::New, 0);
                Some("replan")
            }
            Act::Supersede if closed || self.phase == Phase::New => {
                self.leave(Phase::Superseded, self.reclaims);
                Some("supersede")
            }
            _ => None,
        }
    }
}

/// One walk under way.
struct Walk {
    chain: Chain,
    model: Model,
    /// Every state at which the chain could have been read.
    past: Vec<TaskState>,
}

impl Walk {
    fn new(options: u8) -> Walk {
        let options = ["", "+max0", "+max1", "+max2", "+max3", "+ttl"][usize::from(options)];
        let chain = Chain::of(&format!("plan{options}"));
        let model = Model {
            limit: task(options.trim_start_matches('+')).max_attempts,
            phase: Phase::New,
            holder: None,
            reported: false,
            attempt: 0,
            reclaims: 0,
        };
        Walk { past: vec![chain.state().clone()], chain, model }
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

    fn intent(&self, act: Act) -> Option<Intent> {
        let tip = self.chain.state().tip;
        let late = |n: u8| self.chain.records[usize::from(n) % self.chain.records.len()].0;
        let sweep = |observed, n: u8| Intent::Sweep { observed, reason: None, max_attempts: u32::from(n % 3) };
        Some(match act {
            Act::Claim => Intent::Claim { ttl: None },
            Act::Beat(n) => Intent::Heartbeat { claim: self.named(n), progress: None },
            Act::Report(n) => {
                let report =
                    Report { title: "It is built".to_owned(), commit: None, synthetic: false, attachments: None };
                Intent::Report { claim: self.named(n), report, body: None }
            }
            Act::Release(n) => Intent::Release { claim: self.named(n), reason: None },
            Act::Finish(n, done) => Intent::Finish { claim: self.named(n), done, note: None, verified: None },
            Act::Sweep(n) => sweep(tip, n),
            Act::SweepLate(n) => sweep(late(n), n),
            Act::Reclaim(n) => Intent::Reclaim { claim: self.named(n), reason: None },
            Act::Cancel | Act::Replan | Act::Supersede | Act::Zombie(_) => return None,
        })
    }

    /// The records that an agent would write on top of a state, with ids from `first` on.
    fn decided(state: &TaskState, intent: &Intent, who: &AgentId, first: usize) -> Option<Vec<Record>> {
        let drafts = decide(state, intent, &Facts { agent: who, context: None, others: &Others::default() }).ok()?;
        let mut state = state.clone();
        let mut records = Vec::new();
        for draft in drafts {
            let stamp = Stamp { email: "pm@host", at: 0, clock: None, nonce: Nonce(state.seq) };
            let record = draft.into_record(Some(&state), &stamp);
            let id = id(first + records.len());
            state = apply(Some(state), id, &record).expect("apply accepts whatever decide emits");
            records.push(record);
        }
        Some(records)
    }

    /// Takes one step; tells what came of it.
    fn step(&mut self, who: &AgentId, act: Act) -> Result<&'static str, TestCaseError> {
        if let Act::Zombie(n) = act {
            return self.zombie(who, n);
        }
        let (tip, new) = (self.chain.state().tip, id(self.chain.records.len() + 1));
        let Some(intent) = self.intent(act) else {
            let expected = self.model.operate(act);
            let words: &[&str] = match act {
                Act::Cancel => &["synthetic", "cancelled"],
                Act::Replan => &["replan"],
                _ => &["supersede"],
            };
            let written = words.iter().all(|word| self.chain.push(self.chain.next(word)).is_ok());
            prop_assert_eq!(written, expected.is_some(), "{:?} in {:?}", act, self.model);
            return Ok(expected.unwrap_or("refused"));
        };
        let expected = self.model.step(who, &intent, tip, new);
        let records = Walk::decided(self.chain.state(), &intent, who, self.chain.records.len() + 1);
        prop_assert_eq!(records.is_some(), expected.is_some(), "{:?} in {:?}", intent, self.model);
        for record in records.unwrap_or_default() {
            prop_assert!(self.chain.push(record).is_ok());
        }
        Ok(expected.unwrap_or("refused"))
    }

    /// Records that were decided against an older state never enter the chain, not even with a fresh parent.
    fn zombie(&mut self, who: &AgentId, n: u8) -> Result<&'static str, TestCaseError> {
        let now = self.chain.state().clone();
        let then = &self.past[usize::from(n / 8) % self.past.len()];
        let claim = then.claim().map(|claim| claim.id);
        let intent = match n % 8 {
            0 | 1 => Intent::Claim { ttl: None },
            2 => Intent::Heartbeat { claim, progress: None },
            3 => Intent::Release { claim, reason: None },
            4 | 5 => Intent::Finish { claim, done: true, note: None, verified: None },
            6 => Intent::Reclaim { claim, reason: None },
            _ => Intent::Sweep { observed: then.tip, reason: None, max_attempts: 1 },
        };
        let Some(records) = Walk::decided(then, &intent, who, 800).filter(|_| then.tip != now.tip) else {
            return Ok("idle");
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
        prop_assert_eq!(state.proof().is_some(), model.reported);
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
        for (who, act) in steps {
            let came_of_it = walk.step(&agent(AGENTS[who]), act)?;
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
        "cancel",
        "replan",
        "supersede",
        "zombie",
        "refused",
    ] {
        let times = seen.get(outcome).copied().unwrap_or(0);
        assert!(times >= 200, "'{outcome}' happened {times} times: nothing is proven about it ({seen:?})");
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
        for record in Walk::decided(chain.state(), &intent, &agent("s1"), first).expect("a claim to sweep") {
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
