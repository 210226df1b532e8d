//! Whole lives of many tasks: random plans of parents, dependencies and sticky tasks, workers in several contexts who die
//! and go wrong, supervisors who sweep, reclaim, cancel and replan; on the real ledger, over a store in memory.
//!
//! An [`Oracle`] that knows the rules, and nothing of pm, judges every single step: pm must allow what it allows, and refuse
//! everything else with the exit code that it says. In the end, when the supervisors have stopped, the workers get
//! everything closed that the rules let anybody close.
//!
//! Long, since a life has many kinds of steps, and every one is judged.

mod oracle;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pm::error::Error;
use pm::id::{RecordId, RefName};
use pm::ledger::Ledger;
use pm::ledger::create::NewTask;
use pm::ledger::find::Found;
use pm::protocol::decide::{Intent, Verified};
use pm::protocol::record::{Phase, Verification};
use pm::protocol::state::TaskState;
use pm::store::memory::MemoryStore;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use self::oracle::{Agent, Answer, At, Oracle, Said, Task};
use super::world::*;
use crate::protocol::for_all_of;

/// How many whole lives are simulated; `PROPTEST_CASES` raises it.
const LIVES: u32 = 60;

/// How many plans are worked off in two orders.
const PLANS: u32 = 20;

/// The workers, each with its context. One of them has none.
const WORKERS: [Agent; 4] = [("w1", Some("c1")), ("w2", Some("c2")), ("w3", Some("c3")), ("w4", None)];

const SUPERVISOR: Agent = ("sweeper", None);

/// Random numbers, all from one seed.
struct Chance(u64);

impl Chance {
    /// A number below `bound` (xorshift*).
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound.max(1)
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        for at in (1..all.len()).rev() {
            let other = self.below(at + 1);
            all.swap(at, other);
        }
    }
}

/// A world of tasks, and what the oracle thinks of it.
struct Life<'a> {
    world: &'a World,
    store: &'a MemoryStore,
    oracle: Oracle,
    states: Vec<TaskState>,
    /// Claims whose workers are dead.
    abandoned: BTreeSet<At>,
    chance: Chance,
    /// How often each thing happened, or was refused with which code.
    seen: BTreeMap<String, usize>,
}

impl<'a> Life<'a> {
    fn new(world: &'a World, store: &'a MemoryStore, seed: u64) -> Life<'a> {
        let chance = Chance(seed | 1);
        Life {
            world,
            store,
            oracle: Oracle::default(),
            states: Vec::new(),
            abandoned: BTreeSet::new(),
            chance,
            seen: BTreeMap::new(),
        }
    }

    fn ledger(&self, (agent, context): Agent) -> Ledger<'a> {
        match context {
            Some(context) => self.world.ledger_in(self.store, agent, context),
            None => self.world.ledger(self.store, agent),
        }
    }

    fn name(&self, at: At) -> RefName {
        let task = &self.states[at].task;
        RefName::of_task(&task.queue, &task.slug)
    }

    /// Holds pm's answer against the oracle's.
    fn compare<T>(&mut self, what: &str, at: At, expected: Answer, found: &Result<T, Error>) -> TestCaseResult {
        let found = found.as_ref().map(drop).map_err(|error| (error.exit_code().number(), error.to_string()));
        let seen = match &found {
            Ok(()) => what.to_owned(),
            Err((code, _)) => format!("{what} {code}"),
        };
        *self.seen.entry(seen).or_default() += 1;
        let code = found.as_ref().map_err(|(code, _)| *code).copied();
        prop_assert_eq!(code, expected, "{} of {}: pm says {:?}; {:?}", what, at, found, self.oracle);
        Ok(())
    }

    /// Carries out an intent of somebody's. True if it was allowed.
    fn act(
        &mut self,
        what: &str,
        at: At,
        agent: Agent,
        intent: Intent,
        expected: Answer,
    ) -> Result<bool, TestCaseError> {
        let ledger = self.ledger(agent);
        let name = self.name(at);
        let state = ledger.state(&name).expect("readable").expect("there");
        let result = ledger.append(Found { name, state }, intent);
        self.compare(what, at, expected, &result)?;
        let Ok(appended) = result else { return Ok(false) };
        self.states[at] = appended.state;
        Ok(true)
    }

    /// After an intent was carried out, and the oracle was told: both see the task in one state.
    fn check(&self, at: At) -> TestCaseResult {
        let (task, state) = (&self.oracle[at], &self.states[at]);
        let holder = state.claim().map(|claim| claim.holder.to_string());
        prop_assert_eq!(state.phase(), Some(task.phase));
        prop_assert_eq!(holder.as_deref(), task.holder);
        prop_assert_eq!(state.context().map(|context| context.as_str()), task.context);
        Ok(())
    }

    // What can happen.

    fn plan(&mut self, task: Task) -> TestCaseResult {
        let ledger = self.ledger(SUPERVISOR);
        let at = self.states.len();
        let slug = format!("t{at}");
        let mut new: NewTask = new_task(&slug, &[]);
        new.task.queue = ["default", "other"][task.queue].parse().expect("a queue");
        new.task.depends_on = task.depends_on.iter().map(|at| self.states[*at].id).collect();
        new.task.parent = task.parent.map(|at| self.states[at].id);
        new.task.sticky = task.sticky;
        new.task.verifier = task.verifier.then(|| "true".to_owned());
        new.replan_of = task.replaces.map(|at| self.states[at].id);
        let is_clone = task.replaces.is_some();
        let expected = self.oracle.plan(&task);
        // As `pm plan` does it: what can never be done is no dependency.
        let fits = task.depends_on.iter().filter(|_| !is_clone).try_for_each(|at| {
            let state = ledger.state(&self.name(*at)).expect("readable").expect("there");
            ledger.check_dependency(&state)
        });
        let result = fits.and_then(|()| ledger.create(new));
        self.compare(if is_clone { "clone" } else { "plan" }, at, expected, &result)?;
        if let Ok(created) = result {
            let is_sticky = task.sticky || task.parent.is_some_and(|parent| self.oracle[parent].sticky);
            prop_assert_eq!(created.state.task.sticky, is_sticky);
            self.states.push(created.state);
            self.oracle.planned(Task { sticky: is_sticky, ..task });
        }
        Ok(())
    }

    fn claim(&mut self, at: At, agent: Agent) -> Result<bool, TestCaseError> {
        let expected = self.oracle.claim(at, agent);
        let is_claimed = self.act("claim", at, agent, claim(), expected)?;
        if is_claimed {
            self.oracle.claimed(at, agent);
        }
        self.check(at)?;
        Ok(is_claimed)
    }

    fn beat(&mut self, at: At, agent: Agent) -> TestCaseResult {
        let expected = self.oracle.hold(at, agent);
        self.act("beat", at, agent, heartbeat(None), expected)?;
        self.check(at)
    }

    fn report(&mut self, at: At, agent: Agent) -> TestCaseResult {
        let expected = self.oracle.hold(at, agent);
        if self.act("report", at, agent, report(), expected)? {
            self.oracle.reported(at);
        }
        self.check(at)
    }

    fn release(&mut self, at: At, agent: Agent) -> TestCaseResult {
        let task = &self.oracle[at];
        let expected = match task.phase {
            Phase::Working if task.holder == Some(agent.0) => Ok(()),
            Phase::Working => Err(12),
            _ => Err(6),
        };
        if self.act("release", at, agent, release(), expected)? {
            self.oracle.left(at, Phase::New);
        }
        self.check(at)
    }

    fn finish(&mut self, at: At, agent: Agent, done: bool, said: Said) -> Result<bool, TestCaseError> {
        let expected = self.oracle.finish(at, agent, done, said);
        let proof = self.states[at].report.map_or(self.states[at].tip, |report| report.id);
        let verified = |report: RecordId, exit| {
            Some(Verified { report, verification: Verification { verifier: "true".to_owned(), exit, summary: None } })
        };
        let (verified, note) = match said {
            Said::Nothing => (None, "because"),
            Said::Passed => (verified(proof, 0), "because"),
            Said::Failed => (verified(proof, 1), "because"),
            Said::Skipped => (verified(proof, -1), "ten letters"),
            Said::Unsaid => (verified(proof, -1), "9 letters"),
            Said::Stale => (verified(self.states[at].id.record(), 0), "because"),
        };
        let intent = Intent::Finish { claim: None, done, note: Some(note.to_owned()), verified };
        let is_finished = self.act(if done { "finish" } else { "reject" }, at, agent, intent, expected)?;
        if is_finished {
            self.oracle.left(at, if done { Phase::Done } else { Phase::Rejected });
        }
        self.check(at)?;
        Ok(is_finished)
    }

    /// Takes a task away, by a supervisor's sweep or by an operator's word: from its holder, or from its context.
    fn take(&mut self, at: At) -> TestCaseResult {
        let expected = self.oracle.take(at);
        let (what, intent) =
            if self.chance.one_in(2) { ("sweep", sweep(self.states[at].tip)) } else { ("reclaim", reclaim()) };
        let what = if self.oracle.phase(at) == Phase::New { "unbind" } else { what };
        if self.act(what, at, SUPERVISOR, intent, expected)? {
            self.oracle.taken(at);
        }
        self.abandoned.remove(&at);
        self.check(at)
    }

    fn cancel(&mut self, at: At) -> TestCaseResult {
        let expected = if matches!(self.oracle.phase(at), Phase::New | Phase::Working) { Ok(()) } else { Err(6) };
        if self.act("cancel", at, SUPERVISOR, cancel(), expected)? {
            self.oracle.left(at, Phase::Rejected);
            self.abandoned.remove(&at);
        }
        self.check(at)
    }

    fn replan(&mut self, at: At) -> TestCaseResult {
        let expected = if matches!(self.oracle.phase(at), Phase::Done | Phase::Rejected) { Ok(()) } else { Err(6) };
        if self.act("replan", at, SUPERVISOR, replan(), expected)? {
            self.oracle.reopened(at);
        }
        self.check(at)
    }

    fn supersede(&mut self, at: At, by: At) -> TestCaseResult {
        let can_be = matches!(self.oracle.phase(at), Phase::New | Phase::Done | Phase::Rejected);
        let intent = supersede(self.states[by].id);
        if self.act("supersede", at, SUPERVISOR, intent, if can_be { Ok(()) } else { Err(6) })? {
            self.oracle.superseded(at, by);
        }
        self.check(at)
    }

    // Who does what.

    /// The plan of one more task, of those that are there. Some name what they may not.
    fn draw(&mut self) -> Task {
        let count = self.states.len();
        // Mostly something recent, so that plans are deep as well as wide.
        let earlier =
            |life: &mut Chance| count - 1 - if life.one_in(3) { life.below(count) } else { life.below(count.min(6)) };
        let chance = &mut self.chance;
        let mut queue = usize::from(chance.one_in(5));
        let parent = (count > 0 && chance.below(5) < 2).then(|| earlier(chance));
        if let Some(parent) = parent.filter(|_| !chance.one_in(20)) {
            queue = self.oracle[parent].queue;
        }
        let wanted = if count == 0 { 0 } else { chance.pick(&[0, 0, 0, 1, 1, 2, 3]) };
        let mut depends_on: Vec<At> = (0..wanted).map(|_| earlier(chance)).collect();
        depends_on.sort_unstable();
        depends_on.dedup();
        Task {
            queue,
            parent,
            depends_on,
            sticky: chance.one_in(4),
            verifier: chance.one_in(3),
            replaces: None,
            phase: Phase::New,
            holder: None,
            context: None,
            reports: 0,
            successor: None,
        }
    }

    /// Any task; mostly one that is in one of these phases.
    fn any(&mut self, phases: &[Phase]) -> At {
        let fitting: Vec<At> = (0..self.states.len()).filter(|at| phases.contains(&self.oracle.phase(*at))).collect();
        if fitting.is_empty() || self.chance.one_in(6) {
            return self.chance.below(self.states.len());
        }
        self.chance.pick(&fitting)
    }

    /// One step of a worker that may well be wrong.
    fn work(&mut self) -> TestCaseResult {
        let phase = self.chance.pick(&[Phase::New, Phase::Working, Phase::Working]);
        let at = self.any(&[phase]);
        let mut agent = self.chance.pick(&WORKERS);
        let holder = self.oracle[at].holder.filter(|_| !self.abandoned.contains(&at) && !self.chance.one_in(8));
        if let Some(holder) = holder {
            agent = WORKERS.into_iter().find(|(name, _)| *name == holder).expect("a worker");
        }
        if self.chance.one_in(10) {
            agent.1 = self.chance.pick(&[None, Some("c1"), Some("c2")]);
        }
        let all = [Said::Nothing, Said::Passed, Said::Passed, Said::Failed, Said::Skipped, Said::Unsaid, Said::Stale];
        let said = self.chance.pick(&all);
        match self.chance.below(if holder.is_some() { 10 } else { 30 }) {
            0 => self.beat(at, agent),
            1..=3 => self.report(at, agent),
            4 => self.release(at, agent),
            5 => self.finish(at, agent, false, said).map(drop),
            6..=9 => self.finish(at, agent, true, said).map(drop),
            _ => self.claim(at, agent).map(drop),
        }
    }

    /// A task that nobody holds and that is bound to a context.
    fn any_bound(&self) -> Option<At> {
        (0..self.states.len()).rfind(|at| self.oracle.is_bound(*at))
    }

    /// One step of a supervisor, or the death of a worker.
    fn supervise(&mut self) -> TestCaseResult {
        let what = self.chance.below(20);
        if let (16.., Some(at)) = (what, self.any_bound()) {
            return self.take(at);
        }
        let at = self.any(match what {
            0..=3 => &[Phase::Working],
            4 => &[Phase::New, Phase::Working],
            _ => &[Phase::Done, Phase::Rejected],
        });
        match what {
            0..=3 => self.take(at),
            4 => self.cancel(at),
            5..=8 => self.replan(at),
            9..=12 => {
                // Replaced by a clone; now and then whoever does it is killed in between, and somebody completes it later.
                let original = &self.oracle[at];
                if matches!(original.phase, Phase::Working | Phase::Superseded) {
                    return Ok(());
                }
                let clone = Task {
                    replaces: Some(at),
                    phase: Phase::New,
                    context: None,
                    reports: 0,
                    holder: None,
                    ..original.clone()
                };
                let by = self.states.len();
                self.plan(clone)?;
                let is_planned = self.states.len() > by;
                if is_planned && !self.chance.one_in(3) { self.supersede(at, by) } else { Ok(()) }
            }
            13 => {
                let unfinished = |at: &At| self.oracle[*at].replaces.is_some() && self.oracle.phase(*at) == Phase::New;
                let clone = (0..self.states.len()).find(unfinished);
                clone.map_or(Ok(()), |clone| {
                    let original = self.oracle[clone].replaces.expect("a clone");
                    self.supersede(original, clone)
                })
            }
            _ => {
                let (dead, _) = self.chance.pick(&WORKERS);
                let held = (0..self.states.len()).filter(|at| self.oracle[*at].holder == Some(dead));
                self.abandoned.extend(held);
                Ok(())
            }
        }
    }

    /// The end: every claim of a dead worker is swept, and the workers go on until none of them gets any further.
    fn end(&mut self, is_rejected: &dyn Fn(At) -> bool) -> TestCaseResult {
        for at in std::mem::take(&mut self.abandoned) {
            self.take(at)?;
        }
        let mut all: Vec<At> = (0..self.states.len()).collect();
        loop {
            let mut has_moved = false;
            self.chance.shuffle(&mut all);
            for at in all.clone() {
                let mut workers = WORKERS;
                self.chance.shuffle(&mut workers);
                for agent in workers {
                    has_moved |= self.get_on(at, agent, is_rejected(at))?;
                }
            }
            if !has_moved {
                return self.check_end();
            }
        }
    }

    /// A worker does what is next for a task, if it can. What it cannot do is tried now and then, to be refused.
    fn get_on(&mut self, at: At, agent: Agent, is_rejected: bool) -> Result<bool, TestCaseError> {
        let is_tried = self.chance.one_in(40);
        match self.oracle.phase(at) {
            Phase::New if is_tried || self.oracle.claim(at, agent).is_ok() => self.claim(at, agent),
            Phase::Working if self.oracle[at].holder == Some(agent.0) => {
                // It may have claimed the task in another context than it is in now.
                let agent = (agent.0, self.oracle[at].context.or(agent.1));
                if self.oracle[at].reports == 0 {
                    self.report(at, agent)?;
                    return Ok(true);
                }
                let can = self.oracle.finish(at, agent, !is_rejected, Said::Passed).is_ok();
                if can || is_tried { self.finish(at, agent, !is_rejected, Said::Passed) } else { Ok(false) }
            }
            _ => Ok(false),
        }
    }

    /// Whatever is open now is so for a reason that the rules give, and nothing that could be claimed is left.
    fn check_end(&mut self) -> TestCaseResult {
        let stuck = self.oracle.stuck();
        for at in (0..self.states.len()).filter(|at| matches!(self.oracle.phase(*at), Phase::New | Phase::Working)) {
            prop_assert!(stuck.contains(&at), "nobody can close {}, and no rule says why: {:?}", at, self.oracle);
            *self.seen.entry("stuck".to_owned()).or_default() += 1;
        }
        for agent in WORKERS {
            self.check_offers(agent)?;
        }
        // Everything that is open was tried once more by somebody.
        for at in 0..if self.states.len() < 40 { self.states.len() } else { 0 } {
            let agent = self.chance.pick(&WORKERS);
            prop_assert!(!self.claim(at, agent)?);
        }
        Ok(())
    }

    /// `next` offers exactly what a claim would take.
    fn check_offers(&mut self, agent: Agent) -> TestCaseResult {
        let runnable = self.ledger(agent).runnable("refs/pm/tasks/", &[], Path::new("/")).expect("read");
        let offered: BTreeSet<_> = runnable.tasks.iter().map(|(_, state)| state.id).collect();
        let claimable = (0..self.states.len()).filter(|at| self.oracle.claim(*at, agent).is_ok());
        let claimable: BTreeSet<_> = claimable.map(|at| self.states[at].id).collect();
        prop_assert_eq!(offered, claimable, "what {:?} is offered; {:?}", agent, self.oracle);
        Ok(())
    }
}

/// One whole life of so many tasks.
fn live(count: usize, seed: u64, seen: &RefCell<BTreeMap<String, usize>>) -> TestCaseResult {
    let (world, store) = (World::new(), MemoryStore::new());
    let mut life = Life::new(&world, &store, seed);
    // Most are planned before anybody works; the others while they do.
    let at_first = 1 + life.chance.below(count);
    for _ in 0..at_first {
        let task = life.draw();
        life.plan(task)?;
    }
    let mut later = count - at_first;
    // Some lives are quiet, and some are full of supervisors.
    let calm = life.chance.pick(&[3, 10, 40]);
    for _ in 0..count * 4 {
        if later > 0 && life.chance.one_in(5) {
            later -= 1;
            let task = life.draw();
            life.plan(task)?;
        } else if life.chance.one_in(calm) {
            life.supervise()?;
        } else {
            life.work()?;
        }
        if life.chance.one_in(20) {
            let agent = life.chance.pick(&WORKERS);
            life.check_offers(agent)?;
        }
    }
    // Contexts may be gone for good.
    if let Some(at) = life.any_bound() {
        life.take(at)?;
    }
    life.end(&|_| false)?;
    life.seen.into_iter().for_each(|(what, times)| *seen.borrow_mut().entry(what).or_default() += times);
    Ok(())
}

/// How many tasks: mostly few. Where more cases are asked for, there are up to two hundred now and then.
fn counts() -> impl Strategy<Value = usize> {
    let most = if std::env::var_os("PROPTEST_CASES").is_some() { 200_usize } else { 40 };
    prop_oneof![10 => 2..12_usize, 6 => 12..30_usize, 1 => 30..=most]
}

#[test]
fn every_claim_and_finish_of_a_fleets_life_is_allowed_and_refused_as_the_rules_say() {
    let seen = RefCell::new(BTreeMap::new());
    for_all_of(LIVES, (counts(), any::<u64>()), |(count, seed)| live(count, seed, &seen));
    let seen = seen.into_inner();
    let all = [
        "plan",
        "plan 11",
        "claim",
        "claim 6",
        "claim 10",
        "claim 11",
        "claim 15",
        "finish",
        "finish 14",
        "sweep",
        "unbind",
        "unbind 6",
        "cancel",
        "replan",
        "clone",
        "supersede",
        "stuck",
    ];
    assert!(all.iter().all(|what| seen.contains_key(*what)), "nothing is proven about one of {all:?}: {seen:?}");
}

/// The phases in the end, when a plan is worked off by workers alone, in an order that the seed says.
fn worked_off(count: usize, plan: u64, order: u64) -> Result<(Vec<Phase>, usize), TestCaseError> {
    let (world, store) = (World::new(), MemoryStore::new());
    let mut life = Life::new(&world, &store, plan);
    for _ in 0..count {
        let task = life.draw();
        life.plan(task)?;
    }
    // Which tasks their workers reject is a matter of the tasks.
    let rejected: Vec<bool> = (0..count).map(|_| life.chance.one_in(12)).collect();
    life.chance = Chance(order | 1);
    life.end(&|at| rejected[at])?;
    let open = life.oracle.all().iter().filter(|task| matches!(task.phase, Phase::New | Phase::Working)).count();
    Ok((life.oracle.all().iter().map(|task| task.phase).collect(), open))
}

#[test]
fn without_supervisors_a_plan_ends_the_same_in_whatever_order_it_is_worked_off() {
    let (closed, left) = (Cell::new(0), Cell::new(0));
    for_all_of(PLANS, (counts(), any::<u64>(), any::<u64>()), |(count, plan, order)| {
        let (phases, open) = worked_off(count, plan, order)?;
        prop_assert_eq!(&phases, &worked_off(count, plan, !order)?.0);
        closed.set(closed.get() + phases.len() - open);
        left.set(left.get() + open);
        Ok(())
    });
    assert!(closed.get() > 100 && left.get() > 0, "{} closed, {} left", closed.get(), left.get());
}
