//! Rules 8 and 9, one step at a time: what a decision relies on changes between it and its swap. Long, since each way in
//! which that can happen is a test of its own.
//!
//! The decision must then be made again. Nothing may come of it that the rules forbid at the moment when it is recorded,
//! and nothing that they allow may fail for good.

use pm::error::{Error, Result};
use pm::id::TaskId;
use pm::ledger::Ledger;
use pm::ledger::append::Appended;
use pm::ledger::batch::{Named, Planned};
use pm::ledger::create::NewTask;
use pm::protocol::decide::Intent;
use pm::protocol::graph::SUCCESSORS_MAX;
use pm::protocol::record::Phase;
use pm::protocol::refusal::Refusal;
use pm::protocol::sticky::Misfit;
use pm::store::Store;
use pm::store::memory::MemoryStore;

use super::batch::{create_all, planned};
use super::world::*;

/// What w1 does, while `meanwhile` happens between its decision and its swap.
fn between(
    store: &dyn Store,
    world: &World,
    meanwhile: impl FnOnce(&Ledger<'_>),
    act: impl FnOnce(&Ledger<'_>) -> Result<Appended>,
) -> Result<Appended> {
    let watched = Watched::new(store);
    watched.before_next_swap(|| meanwhile(&world.ledger(store, "w2")));
    act(&world.ledger_in(&watched, "w1", "c1"))
}

fn phase(ledger: &Ledger<'_>, slug: &str) -> Option<Phase> {
    found(ledger, slug).state.phase()
}

/// Carries out what nobody refuses.
#[track_caller]
fn done(ledger: &Ledger<'_>, slug: &str, intents: &[Intent]) {
    intents.iter().cloned().for_each(|intent| drop(act(ledger, slug, intent).expect("recorded")));
}

/// Claims, reports and finishes a task.
fn work_off(ledger: &Ledger<'_>, slug: &str) {
    done(ledger, slug, &[claim(), report(), finish()]);
}

/// Plans `parent` and has w1 claim and report it.
fn reported_parent(store: &dyn Store, world: &World) -> TaskId {
    let ledger = world.ledger(store, "w1");
    let parent = plan(&ledger, "parent").id;
    done(&ledger, "parent", &[claim(), report()]);
    parent
}

fn planned_below(line: usize, slug: &str, parent: Named) -> Planned {
    Planned { parent: Some(parent), ..planned(line, slug, &[]) }
}

/// A finish of `parent` that is refused since `child` was planned meanwhile.
fn check_child_comes_first(meanwhile: impl Fn(&Ledger<'_>, TaskId)) {
    on_both_stores(|store| {
        let world = World::new();
        let parent = reported_parent(store, &world);
        let result = between(store, &world, |other| meanwhile(other, parent), |own| act(own, "parent", finish()));
        let Refusal::ChildrenOpen { open } = refusal(result) else { panic!("closed over an open child") };
        let own = world.ledger(store, "w1");
        assert_eq!((open.len(), open[0].task), (1, found(&own, "child").state.id));
        assert_eq!(phase(&own, "parent"), Some(Phase::Working));
        // Once the child is settled the parent can be finished.
        work_off(&own, "child");
        done(&own, "parent", &[finish()]);
    });
}

#[test]
fn a_child_that_is_planned_before_its_parent_is_finished_keeps_it_open() {
    check_child_comes_first(|other, parent| drop(other.create(child("child", parent)).expect("planned")));
}

#[test]
fn a_child_that_is_planned_in_a_batch_keeps_its_parent_open() {
    check_child_comes_first(|other, parent| {
        let batch = [planned_below(1, "child", Named::Task(parent))];
        create_all(other, &batch, false).expect("planned");
    });
}

#[test]
fn a_child_of_an_existing_task_of_the_same_batch_keeps_it_open() {
    check_child_comes_first(|other, _| {
        let batch = [planned(1, "parent", &[]), planned_below(2, "child", Named::Batch(0))];
        create_all(other, &batch, true).expect("planned");
    });
}

/// What plans a child under `parent` is refused since that is finished meanwhile, and plans nothing.
fn check_parent_comes_first(plan_child: impl Fn(&Ledger<'_>, TaskId) -> Result<()>) {
    on_both_stores(|store| {
        let world = World::new();
        let parent = reported_parent(store, &world);
        let watched = Watched::new(store);
        watched.before_next_swap(|| done(&world.ledger(store, "w1"), "parent", &[finish()]));
        assert_eq!(code(plan_child(&world.ledger(&watched, "w2"), parent)), 11);
        assert_eq!(store.tips("refs/pm/").expect("listed").len(), 1, "no child below a task that is done");
    });
}

#[test]
fn a_parent_that_is_finished_before_its_child_is_planned_stays_closed() {
    check_parent_comes_first(|ledger, parent| ledger.create(child("child", parent)).map(drop));
}

#[test]
fn a_parent_that_is_finished_before_a_batch_below_it_is_planned_stays_closed() {
    check_parent_comes_first(|ledger, parent| {
        let batch = [planned_below(1, "child", Named::Task(parent)), planned(2, "other", &[0])];
        create_all(ledger, &batch, false).map(drop)
    });
}

#[test]
fn a_parent_of_the_batch_that_is_there_already_and_is_finished_meanwhile_stays_closed() {
    check_parent_comes_first(|ledger, _| {
        let batch = [planned(1, "parent", &[]), planned_below(2, "child", Named::Batch(0))];
        create_all(ledger, &batch, true).map(drop)
    });
}

#[test]
fn a_child_is_planned_whatever_its_open_parent_does_meanwhile() {
    let acts: [(&[Intent], bool); 3] =
        [(&[heartbeat(None)], true), (&[report()], true), (&[release(), claim(), report()], false)];
    for (acts, is_same_status) in acts {
        on_both_stores_twice(|store, elsewhere| {
            let world = World::new();
            let parent = reported_parent(store, &world);
            let holder = world.ledger(elsewhere, "w1");
            let status = || found(&holder, "parent").state.status.expect("a status").id;
            let before = status();
            let watched = Watched::new(store);
            watched.before_next_swap(|| done(&holder, "parent", acts));
            let created = world.ledger(&watched, "w2").create(child("child", parent)).expect("planned").state;
            assert_eq!((created.task.spawned_at, status() == before), (Some(status()), is_same_status));
        });
    }
}

#[test]
fn a_child_that_is_opened_again_keeps_its_parent_open() {
    on_both_stores(|store| {
        let world = World::new();
        let parent = reported_parent(store, &world);
        let own = world.ledger(store, "w1");
        own.create(child("child", parent)).expect("planned");
        work_off(&own, "child");
        let meanwhile = |other: &Ledger<'_>| done(other, "child", &[replan()]);
        assert_eq!(code(between(store, &world, meanwhile, |own| act(own, "parent", finish()))), 14);
    });
}

/// A task that is to replace another one.
fn clone(new: NewTask, original: TaskId) -> NewTask {
    NewTask { replan_of: Some(original), ..new }
}

#[test]
fn a_child_that_is_replaced_leaves_its_successor_to_its_parent() {
    on_both_stores(|store| {
        let world = World::new();
        let parent = reported_parent(store, &world);
        let own = world.ledger(store, "w1");
        let original = own.create(child("child", parent)).expect("planned").state.id;
        work_off(&own, "child");
        let meanwhile = |other: &Ledger<'_>| {
            let clone = other.create(clone(child("child-r1", parent), original)).expect("planned").state.id;
            done(other, "child", &[supersede(clone)]);
        };
        let result = between(store, &world, meanwhile, |own| act(own, "parent", finish()));
        let Refusal::ChildrenOpen { open } = refusal(result) else { panic!("closed over an open child") };
        assert_eq!(open[0].task, found(&own, "child-r1").state.id);
        done(&own, "child-r1", &[cancel()]);
        done(&own, "parent", &[finish()]);
    });
}

#[test]
fn the_children_of_a_task_that_was_replaced_are_those_of_its_successor() {
    on_both_stores(|store| {
        let world = World::new();
        let own = world.ledger(store, "w1");
        let original = plan(&own, "parent").id;
        let first = own.create(child("child", original)).expect("planned").state.id;
        let successor = own.create(clone(new_task("parent-r1", &[]), original)).expect("planned").state.id;
        assert_eq!(code(act(&own, "parent-r1", claim())), 11, "the original still stands");
        done(&own, "parent", &[supersede(successor)]);
        assert_eq!(code(act(&own, "child", claim())), 15, "the successor is new");
        assert_eq!(code(own.create(child("late", original))), 11, "nobody becomes a child of what was replaced");
        done(&own, "parent-r1", &[claim(), report()]);
        assert_eq!(code(act(&own, "parent-r1", finish())), 14);
        work_off(&own, "child");
        // Whatever replaces a child names the parent by the id that was replaced.
        let meanwhile =
            |other: &Ledger<'_>| drop(other.create(clone(child("child-r1", original), first)).expect("planned"));
        let result = between(store, &world, meanwhile, |own| act(own, "parent-r1", finish()));
        assert_eq!(code(result), 14, "the clone is open");
    });
}

/// A claim of `a`, which waits for `other` as `wait` says, while that does something.
fn claim_while(store: &dyn Store, wait: impl Fn(&Ledger<'_>) -> NewTask, meanwhile: &[Intent]) -> Result<Appended> {
    let world = World::new();
    let own = world.ledger(store, "w1");
    let new = wait(&own);
    own.create(new).expect("planned");
    let result = between(store, &world, |_| done(&own, "other", meanwhile), |own| act(own, "a", claim()));
    let expected = if result.is_ok() { Phase::Working } else { Phase::New };
    assert_eq!(phase(&own, "a"), Some(expected));
    result
}

fn after_a_dependency(ledger: &Ledger<'_>) -> NewTask {
    let dependency = plan(ledger, "other").id;
    work_off(ledger, "other");
    new_task("a", &[dependency])
}

fn below_a_parent(ledger: &Ledger<'_>) -> NewTask {
    let parent = plan(ledger, "other").id;
    done(ledger, "other", &[claim()]);
    child("a", parent)
}

#[test]
fn a_dependency_that_is_opened_again_before_the_claim_is_noticed() {
    on_both_stores(|store| {
        let result = claim_while(store, after_a_dependency, &[replan()]);
        let Refusal::DependenciesOpen { open } = refusal(result) else { panic!("not noticed") };
        assert_eq!(open[0].phase, Some(Phase::New));
    });
}

#[test]
fn a_dependency_that_is_opened_and_done_again_lets_the_claim_through() {
    on_both_stores(|store| {
        let life = [replan(), claim(), report(), finish()];
        claim_while(store, after_a_dependency, &life).expect("claimed at the second try");
    });
}

#[test]
fn a_parent_that_is_given_back_before_the_claim_is_noticed() {
    for back in [release(), reclaim()] {
        on_both_stores(|store| assert_eq!(code(claim_while(store, below_a_parent, std::slice::from_ref(&back))), 15));
    }
}

#[test]
fn a_parent_that_is_given_back_and_claimed_again_lets_the_claim_through() {
    on_both_stores(|store| {
        claim_while(store, below_a_parent, &[reclaim(), claim(), heartbeat(None)]).expect("claimed");
    });
}

#[test]
fn a_dependency_that_is_replaced_before_the_claim_is_followed_to_its_successor() {
    for is_done in [false, true] {
        on_both_stores(|store| {
            let world = World::new();
            let own = world.ledger(store, "w1");
            own.create(after_a_dependency(&own)).expect("planned");
            let successor = plan(&own, "successor").id;
            if is_done {
                work_off(&own, "successor");
            }
            let meanwhile = |other: &Ledger<'_>| done(other, "other", &[supersede(successor)]);
            match between(store, &world, meanwhile, |own| act(own, "a", claim())) {
                Ok(_) => assert!(is_done, "claimed over an open successor"),
                Err(error) => assert_eq!((error.exit_code().number(), is_done), (11, false)),
            }
        });
    }
}

#[test]
fn of_two_clones_only_the_one_that_replaced_the_task_can_be_claimed() {
    on_both_stores(|store| {
        let world = World::new();
        let own = world.ledger(store, "w1");
        let original = plan(&own, "other").id;
        let [_, b] = ["a", "b"].map(|slug| own.create(clone(new_task(slug, &[]), original)).expect("planned").state.id);
        assert_eq!(code(act(&own, "a", claim())), 11);
        done(&own, "other", &[supersede(b)]);
        assert_eq!(code(act(&own, "a", claim())), 11, "by exactly this one");
        done(&own, "b", &[claim()]);
    });
}

/// A claim of the sticky task `a` from c1, while `b`, which is tied to it, is claimed from `context`.
fn claim_of_tied(store: &dyn Store, context: &str, then: &[Intent]) -> Result<Appended> {
    let world = World::new();
    let own = world.ledger(store, "w1");
    let [a, b] = ["a", "b"].map(|slug| own.create(sticky(slug, &[])).expect("planned").state.id);
    own.create(sticky("joint", &[a, b])).expect("planned");
    let meanwhile = |_: &Ledger<'_>| {
        let other = world.ledger_in(store, "w2", context);
        done(&other, "b", &[claim()]);
        done(&other, "b", then);
    };
    between(store, &world, meanwhile, |own| act(own, "a", claim()))
}

#[test]
fn a_tied_task_that_another_context_claims_first_is_noticed() {
    on_both_stores(|store| {
        let Refusal::Context(Misfit::Other { wanted, given }) = refusal(claim_of_tied(store, "c2", &[])) else {
            panic!("not noticed")
        };
        assert_eq!((wanted.context.to_string(), given.to_string()), ("c2".to_owned(), "c1".to_owned()));
    });
}

#[test]
fn a_tied_task_that_another_context_finished_or_gave_back_still_counts() {
    for then in [vec![release()], vec![report(), finish()], vec![cancel()]] {
        on_both_stores(|store| assert_eq!(code(claim_of_tied(store, "c2", &then)), 10));
    }
}

#[test]
fn a_tied_task_that_the_same_context_claims_or_that_is_freed_again_lets_the_claim_through() {
    on_both_stores(|store| drop(claim_of_tied(store, "c1", &[]).expect("claimed")));
    on_both_stores(|store| drop(claim_of_tied(store, "c2", &[reclaim()]).expect("claimed")));
    on_both_stores(|store| drop(claim_of_tied(store, "c2", &[release(), reclaim()]).expect("claimed")));
    on_both_stores(|store| {
        drop(claim_of_tied(store, "c2", &[report(), finish(), replan(), reclaim()]).expect("claimed"));
    });
}

#[test]
fn what_is_tied_later_takes_no_claim_away_but_no_context_can_claim_it_anew() {
    on_both_stores(|store| {
        let world = World::new();
        let (one, two) = (world.ledger_in(store, "w1", "c1"), world.ledger_in(store, "w2", "c2"));
        let [a, b] = ["a", "b"].map(|slug| one.create(sticky(slug, &[])).expect("planned").state.id);
        done(&one, "a", &[claim()]);
        done(&two, "b", &[claim()]);
        one.create(sticky("joint", &[a, b])).expect("planned");
        done(&one, "a", &[heartbeat(None), report(), finish()]);
        done(&two, "b", &[release()]);
        for ledger in [&one, &two] {
            let misfit = refusal(act(ledger, "b", claim()));
            assert!(matches!(misfit, Refusal::Context(Misfit::Split { .. })), "{misfit}");
        }
    });
}

#[test]
fn two_plans_that_only_together_make_a_circle_are_not_both_taken() {
    on_both_stores(|store| {
        let world = World::new();
        let own = world.ledger(store, "w1");
        let [a, b] = ["a", "b"].map(|slug| plan(&own, slug).id);
        // Each is to be a part of one task, and waits for the other.
        let [mut in_a, mut in_b] = [new_task("in-a", &[b]), new_task("in-b", &[a])];
        (in_a.task.parent, in_b.task.parent) = (Some(a), Some(b));
        let result = between(store, &world, |other| drop(other.create(in_b).expect("planned")), |own| own.create(in_a));
        let Err(Error::InvalidGraph(found)) = result else { panic!("both were planned: {result:?}") };
        assert!(found.contains("default/in-a") && found.contains("default/in-b"), "{found}");
    });
}

#[test]
fn a_batch_and_a_plan_that_only_together_make_a_circle_are_not_both_taken() {
    on_both_stores(|store| {
        let world = World::new();
        let own = world.ledger(store, "w1");
        let [a, b] = ["a", "b"].map(|slug| plan(&own, slug).id);
        let mut in_b = new_task("in-b", &[a]);
        in_b.task.parent = Some(b);
        let mut in_a = planned_below(1, "in-a", Named::Task(a));
        in_a.depends_on.push(Named::Task(b));
        let watched = Watched::new(store);
        watched.before_next_swap(|| drop(own.create(in_b).expect("planned")));
        assert_eq!(code(create_all(&world.ledger(&watched, "w2"), &[in_a], false)), 11);
    });
}

#[test]
fn a_circle_through_a_task_of_the_batch_that_is_there_already_is_refused() {
    on_both_stores(|store| {
        let world = World::new();
        let own = world.ledger(store, "w1");
        let a = plan(&own, "a").id;
        let after = own.create(new_task("after-a", &[a])).expect("planned").state.id;
        // a waits for its new part, which waits for what waits for a.
        let mut part = planned_below(2, "part", Named::Batch(0));
        part.depends_on.push(Named::Task(after));
        assert_eq!(code(create_all(&own, &[planned(1, "a", &[]), part], true)), 11);
        assert_eq!(store.tips("refs/pm/").expect("listed").len(), 2, "nothing was planned");
    });
}

#[test]
fn a_circle_that_a_clone_would_close_when_it_takes_its_place_is_refused() {
    on_both_stores(|store| {
        let world = World::new();
        let own = world.ledger(store, "w1");
        let original = plan(&own, "a").id;
        let successor = own.create(clone(new_task("a-r1", &[]), original)).expect("planned").state.id;
        // A part of the clone that waits for the original would wait for its own parent.
        for (part, waits_for) in [(successor, original), (original, successor)] {
            let mut new = new_task("part", &[waits_for]);
            new.task.parent = Some(part);
            assert_eq!(code(own.create(new)), 11);
            let mut new = planned_below(1, "part", Named::Task(part));
            new.depends_on.push(Named::Task(waits_for));
            assert_eq!(code(create_all(&own, &[new], false)), 11);
        }
        // Once it is called off it is a task like any other.
        done(&own, "a-r1", &[cancel(), replan()]);
        let mut new = new_task("part", &[original]);
        new.task.parent = Some(successor);
        own.create(new).expect("planned");
    });
}

#[test]
fn next_offers_exactly_what_a_claim_takes_however_often_a_dependency_was_replaced() {
    let world = World::new();
    for length in [3, SUCCESSORS_MAX + 1, SUCCESSORS_MAX + 2] {
        let store = MemoryStore::new();
        let own = world.ledger(&store, "w1");
        let ids: Vec<_> = (0..length).map(|n| plan(&own, &format!("r{n}")).id).collect();
        own.create(new_task("a", &ids[..1])).expect("planned");
        work_off(&own, &format!("r{}", length - 1));
        for (n, pair) in ids.windows(2).enumerate() {
            done(&own, &format!("r{n}"), &[supersede(pair[1])]);
        }
        let runnable = own.runnable("refs/pm/tasks/", &[], std::path::Path::new("/")).expect("read");
        let is_offered = runnable.tasks.iter().any(|(offered, _)| *offered == name("a"));
        assert_eq!(act(&own, "a", claim()).is_ok(), is_offered, "{length} in a row");
        assert_eq!(is_offered, length <= SUCCESSORS_MAX + 1);
    }
}
