//! Two threads on a real repository at the same moment, each with a store of its own, as two processes have: of two acts
//! that the rules do not allow together, exactly one is taken.
//!
//! Nobody chooses the moment here; the interleavings one by one are in `families`, and real processes in thousands of
//! rounds in the proof `family-race`.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;

use pm::error::Result;
use pm::id::{Queue, RefName};
use pm::ledger::Ledger;
use pm::ledger::batch::Named;
use pm::ledger::create::NewTask;
use pm::ledger::find::Found;
use pm::protocol::decide::Intent;
use pm::protocol::record::Phase;
use pm::protocol::state::TaskState;

use super::batch::planned;
use super::world::*;
use crate::protocol::at_least;
use crate::support::Repo;

/// Rounds of every contest, if both outcomes were seen by then; `PROPTEST_CASES` raises it.
const ROUNDS: u32 = 40;

/// The most rounds that are played to see both.
const ROUNDS_MAX: usize = 400;

/// One side of a round: a ledger, and the queue that belongs to the round alone.
struct Side<'a> {
    ledger: Ledger<'a>,
    queue: Queue,
}

impl Side<'_> {
    fn state(&self, slug: &str) -> Result<Option<TaskState>> {
        self.ledger.state(&RefName::of_task(&self.queue, &slug.parse()?))
    }

    fn phase(&self, slug: &str) -> Option<Phase> {
        self.state(slug).expect("readable").and_then(|state| state.phase())
    }

    fn plan(&self, mut new: NewTask) -> Result<TaskState> {
        new.task.queue = self.queue.clone();
        Ok(self.ledger.create(new)?.state)
    }

    fn act(&self, slug: &str, intents: &[Intent]) -> Result<()> {
        for intent in intents {
            let state = self.state(slug)?.expect("there");
            let name = RefName::of_task(&self.queue, &state.task.slug);
            self.ledger.append(Found { name, state }, intent.clone())?;
        }
        Ok(())
    }
}

/// What one side does in a round.
type Act = fn(&Side<'_>) -> Result<()>;

/// Plays rounds until both sides have won some: first `prepare`, then both acts at once, then `check`, which is told the
/// exit codes of both, and says whether that may be.
fn contest(prepare: Act, acts: [Act; 2], check: fn(&Side<'_>, [u8; 2]) -> bool) {
    let repo = Repo::new();
    let mut seen: BTreeMap<[u8; 2], usize> = BTreeMap::new();
    std::thread::scope(|scope| {
        let start = |(agent, context, act): (&'static str, &'static str, Act)| {
            let (begin, rounds) = channel::<usize>();
            let (end, ends) = channel::<u8>();
            let repo = &repo;
            scope.spawn(move || {
                let (world, store) = (World::new(), open(repo));
                for round in rounds {
                    let side = Side { ledger: world.ledger_in(&store, agent, context), queue: queue_of(round) };
                    // Now this side has a start, now the other one.
                    // A longer one from round to round, since some acts take many times as long as others.
                    let late = if agent == "w1" { round % 7 * (1 + round * 4) } else { round / 7 % 7 };
                    (0..late).for_each(|_| drop(side.state("nobody")));
                    end.send(act(&side).map_or_else(|error| error.exit_code().number(), |()| 0)).expect("heard");
                }
            });
            (begin, ends)
        };
        let [first, second] = [("w1", "c1", acts[0]), ("w2", "c2", acts[1])].map(start);
        let (world, store) = (World::new(), open(&repo));
        let rounds = at_least(ROUNDS) as usize;
        for round in 0..rounds.max(ROUNDS_MAX) {
            let side = Side { ledger: world.ledger_in(&store, "w1", "c1"), queue: queue_of(round) };
            prepare(&side).expect("prepared");
            [&first, &second].into_iter().for_each(|(begin, _)| begin.send(round).expect("at work"));
            let codes = [&first, &second].map(|(_, ends)| ends.recv().expect("at work"));
            assert!(check(&side, codes), "round {round} ended with {codes:?}");
            *seen.entry(codes).or_default() += 1;
            if round + 1 >= rounds && seen.keys().any(|[a, _]| *a == 0) && seen.keys().any(|[a, _]| *a != 0) {
                break;
            }
        }
        drop((first, second));
    });
    assert!(seen.len() > 1, "one side always wins: {seen:?}");
    repo.assert_sound();
}

fn queue_of(round: usize) -> Queue {
    format!("r{round}").parse().expect("a queue")
}

fn plan_and_report_a_parent(side: &Side<'_>) -> Result<()> {
    side.plan(new_task("parent", &[]))?;
    side.act("parent", &[claim(), report()])
}

fn finish_the_parent(side: &Side<'_>) -> Result<()> {
    side.act("parent", &[finish()])
}

fn plan_a_child(side: &Side<'_>) -> Result<()> {
    let parent = side.state("parent")?.expect("there").id;
    side.plan(child("child", parent)).map(drop)
}

fn plan_children_in_a_batch(side: &Side<'_>) -> Result<()> {
    let parent = side.state("parent")?.expect("there").id;
    let below = |line, slug, parent| pm::ledger::batch::Planned { parent: Some(parent), ..planned(line, slug, &[]) };
    let batch = [below(1, "child", Named::Task(parent)), below(2, "grandchild", Named::Batch(0))];
    side.ledger.create_all(&side.queue, &batch, false, &mut |_| {}).map(drop)
}

/// Either the child is planned and the parent open, or the parent is closed and has no child.
fn is_one_of_both(side: &Side<'_>, codes: [u8; 2]) -> bool {
    match codes {
        [14, 0] => side.phase("parent") == Some(Phase::Working) && side.phase("child") == Some(Phase::New),
        [0, 11] => side.phase("parent") == Some(Phase::Done) && side.phase("child").is_none(),
        _ => false,
    }
}

#[test]
fn a_child_is_planned_or_its_parent_is_finished_but_never_both() {
    contest(plan_and_report_a_parent, [finish_the_parent, plan_a_child], is_one_of_both);
}

#[test]
fn a_batch_of_children_is_planned_or_their_parent_is_finished_but_never_both() {
    contest(plan_and_report_a_parent, [finish_the_parent, plan_children_in_a_batch], is_one_of_both);
}

#[test]
fn a_dependency_is_opened_again_before_the_claim_or_after_it() {
    let prepare = |side: &Side<'_>| {
        let dependency = side.plan(new_task("dependency", &[]))?.id;
        side.act("dependency", &[claim(), report(), finish()])?;
        side.plan(new_task("task", &[dependency])).map(drop)
    };
    let claim_it = |side: &Side<'_>| side.act("task", &[claim()]);
    let replan_it = |side: &Side<'_>| side.act("dependency", &[replan()]);
    contest(prepare, [claim_it, replan_it], |side, codes| {
        let claimed = if codes[0] == 0 { Phase::Working } else { Phase::New };
        let is_known = matches!(codes, [0 | 11, 0]);
        is_known && side.phase("task") == Some(claimed) && side.phase("dependency") == Some(Phase::New)
    });
}

#[test]
fn of_two_contexts_that_claim_two_tied_tasks_at_most_one_binds() {
    let prepare = |side: &Side<'_>| {
        let a = side.plan(sticky("a", &[]))?.id;
        let b = side.plan(sticky("b", &[]))?.id;
        side.plan(sticky("joint", &[a, b])).map(drop)
    };
    contest(prepare, [|side| side.act("a", &[claim()]), |side| side.act("b", &[claim()])], |side, codes| {
        let working = ["a", "b"].map(|slug| side.phase(slug) == Some(Phase::Working));
        matches!((codes, working), ([0, 10], [true, false]) | ([10, 0], [false, true]))
    });
}

#[test]
fn a_parent_is_given_back_before_its_child_is_claimed_or_after_that() {
    let prepare = |side: &Side<'_>| {
        let parent = side.plan(new_task("parent", &[]))?.id;
        side.act("parent", &[claim()])?;
        side.plan(child("child", parent)).map(drop)
    };
    let reclaim_it = |side: &Side<'_>| side.act("parent", &[reclaim()]);
    contest(prepare, [|side| side.act("child", &[claim()]), reclaim_it], |side, codes| {
        let claimed = if codes[0] == 0 { Phase::Working } else { Phase::New };
        matches!(codes, [0 | 15, 0]) && side.phase("child") == Some(claimed)
    });
}

#[test]
fn of_two_plans_that_together_make_a_circle_one_is_taken() {
    let prepare = |side: &Side<'_>| {
        side.plan(new_task("a", &[]))?;
        side.plan(new_task("b", &[])).map(drop)
    };
    fn plan_between(side: &Side<'_>, slug: &str, parent: &str, dependency: &str) -> Result<()> {
        let [parent, dependency] = [parent, dependency].map(|slug| side.state(slug));
        let mut new = new_task(slug, &[dependency?.expect("there").id]);
        new.task.parent = Some(parent?.expect("there").id);
        side.plan(new).map(drop)
    }
    let acts: [Act; 2] = [|side| plan_between(side, "in-a", "a", "b"), |side| plan_between(side, "in-b", "b", "a")];
    contest(prepare, acts, |_, codes| matches!(codes, [0, 11] | [11, 0]));
}
