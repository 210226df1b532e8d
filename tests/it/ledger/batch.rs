//! Batches: all or nothing, whoever gets in between.

use pm::error::{Error, FaultKind, PlanError, Result, Spot};
use pm::ledger::Ledger;
use pm::ledger::batch::{Batched, Named, Planned};
use pm::protocol::record::{Priority, Record};
use pm::store::memory::MemoryStore;
use pm::store::{Store, StoreError};

use super::world::*;

/// A task of a batch that depends on others of it, by index.
pub fn planned(line: usize, slug: &str, depends_on: &[usize]) -> Planned {
    Planned {
        spot: Spot::Line(line),
        slug: slug.parse().expect("a slug"),
        title: format!("Do {slug}"),
        body: Some("Text.\n".to_owned()),
        priority: Priority::default(),
        labels: Vec::new(),
        verifier: None,
        sticky: false,
        workdir: None,
        parent: None,
        depends_on: depends_on.iter().copied().map(Named::Batch).collect(),
    }
}

pub fn create_all(ledger: &Ledger<'_>, batch: &[Planned], accept_existing: bool) -> Result<Batched> {
    ledger.create_all(&queue(), batch, accept_existing, &mut |_| {})
}

fn count(store: &dyn Store) -> usize {
    store.tips("refs/pm/").expect("listed").len()
}

fn created(batched: &Batched) -> Vec<bool> {
    batched.placed.iter().map(|placed| placed.created).collect()
}

#[test]
fn a_batch_is_created_whatever_the_order_of_its_lines() {
    on_both_stores(|store| {
        let world = World::new();
        let ledger = world.ledger(store, "w1");
        let batch = [planned(1, "c", &[1, 2]), planned(2, "b", &[2]), planned(3, "a", &[])];
        let batched = create_all(&ledger, &batch, false).expect("created");
        let ids: Vec<_> = batched.placed.iter().map(|placed| placed.task).collect();
        let c = found(&ledger, "c").state;
        assert_eq!((c.id, &c.task.depends_on), (ids[0], &vec![ids[1], ids[2]]));
        assert_eq!(found(&ledger, "b").state.task.depends_on, [ids[2]]);
        let created: Vec<i64> = ["c", "b", "a"].map(|slug| found(&ledger, slug).state.task.created).to_vec();
        assert_eq!(created[1] - created[0], 1, "a microsecond a line keeps the order of the input");
        assert_eq!(created[2] - created[1], 1);
    });
}

#[test]
fn progress_counts_up_to_the_whole_batch() {
    let (world, store) = (World::new(), MemoryStore::new());
    let batch: Vec<_> = (0..10).map(|n| planned(n + 1, &format!("t{n}"), &[])).collect();
    let mut told = Vec::new();
    world.ledger(&store, "w1").create_all(&queue(), &batch, false, &mut |built| told.push(built)).expect("created");
    assert_eq!(told, (1..=10).collect::<Vec<_>>());
}

/// What is wrong with a batch, which must not be created.
fn faults(ledger: &Ledger<'_>, batch: &[Planned]) -> Vec<(Spot, FaultKind, String)> {
    let result = create_all(ledger, batch, false);
    let Err(Error::Plan(PlanError { faults, .. })) = result else { panic!("{result:?}") };
    faults.into_iter().map(|fault| (fault.spot, fault.kind, fault.found)).collect()
}

fn circle(line: usize, names: &str) -> (Spot, FaultKind, String) {
    (Spot::Line(line), FaultKind::Graph, format!("the plan has a cycle: {names}"))
}

#[test]
fn a_cycle_is_named_by_its_own_members_only() {
    let (world, store) = (World::new(), MemoryStore::new());
    // d waits for the cycle a -> c -> b -> a, and is no part of it.
    let batch = [planned(1, "d", &[1]), planned(2, "a", &[3]), planned(3, "b", &[1]), planned(4, "c", &[2])];
    let found = faults(&world.ledger(&store, "w1"), &batch);
    assert_eq!(found, [circle(2, "a -> c (line 4) -> b (line 3) -> a")]);
    assert_eq!(count(&store), 0);
}

#[test]
fn every_cycle_is_named_also_those_that_share_tasks() {
    let (world, store) = (World::new(), MemoryStore::new());
    let ledger = world.ledger(&store, "w1");
    let apart = [planned(1, "a", &[1]), planned(2, "b", &[0]), planned(3, "c", &[3]), planned(4, "d", &[2])];
    assert_eq!(faults(&ledger, &apart), [circle(1, "a -> b (line 2) -> a"), circle(3, "c -> d (line 4) -> c")]);
    let joined = [planned(1, "a", &[1]), planned(2, "b", &[0, 2]), planned(3, "c", &[1])];
    assert_eq!(faults(&ledger, &joined), [circle(1, "a -> b (line 2) -> a"), circle(2, "b -> c (line 3) -> b")]);
    // In two ways, which is one circle nevertheless.
    let twice = [planned(1, "a", &[1]), Planned { parent: Some(Named::Batch(0)), ..planned(2, "b", &[0]) }];
    assert_eq!(faults(&ledger, &twice), [circle(1, "a -> b (line 2) -> a")]);
    assert_eq!(count(&store), 0);
}

#[test]
fn the_cycles_that_are_looked_for_are_bounded_and_that_is_said() {
    let (world, store) = (World::new(), MemoryStore::new());
    let pairs: Vec<_> = (0..300).map(|n| planned(n + 1, &format!("t{n}"), &[n ^ 1])).collect();
    let found = faults(&world.ledger(&store, "w1"), &pairs);
    assert_eq!(found.len(), 100);
    assert!(found.last().is_some_and(|(_, _, found)| found.ends_with("there may be more, which were not looked for")));
}

#[test]
fn cycles_slugs_that_are_taken_and_closed_tasks_are_told_together() {
    on_both_stores(|store| {
        let world = World::new();
        let ledger = world.ledger(store, "w1");
        plan(&ledger, "taken");
        create_all(&ledger, &[planned(1, "same", &[])], false).expect("created");
        let closed = plan(&ledger, "closed").id;
        act(&ledger, "closed", cancel()).expect("cancelled");
        let before = count(store);
        let batch = [
            planned(1, "taken", &[]),
            planned(2, "a", &[2]),
            planned(3, "b", &[1, 4]),
            Planned { parent: Some(Named::Task(closed)), ..planned(4, "below", &[]) },
            planned(5, "same", &[]),
        ];
        let found = faults(&ledger, &batch);
        let told: Vec<_> = found.iter().map(|(spot, kind, _)| (spot.clone(), *kind)).collect();
        let line = Spot::Line;
        assert_eq!(
            told,
            [(line(1), FaultKind::Taken), (line(2), FaultKind::Graph), (line(4), FaultKind::Graph)],
            "{found:?}"
        );
        assert_eq!(code(create_all(&ledger, &batch, false)), 4);
        assert_eq!(code(create_all(&ledger, &batch, true)), 11);
        assert_eq!(count(store), before);
    });
}

#[test]
fn a_task_that_exists_is_another_one_where_the_plan_lets_it_wait_for_a_new_one() {
    on_both_stores(|store| {
        let world = World::new();
        let ledger = world.ledger(store, "w1");
        create_all(&ledger, &[planned(1, "a", &[]), planned(2, "b", &[])], false).expect("created");
        let below = Planned { parent: Some(Named::Batch(0)), ..planned(3, "b", &[]) };
        let found = faults(&ledger, &[planned(1, "new", &[]), planned(2, "a", &[0]), below]);
        let found: Vec<_> =
            found.iter().map(|(_, _, found)| found.rsplit_once("differs in ").expect("told").1).collect();
        assert_eq!(found, ["depends_on", "parent"]);
    });
}

#[test]
fn a_batch_is_idempotent_and_a_longer_one_adds_only_what_is_new() {
    on_both_stores(|store| {
        let world = World::new();
        let ledger = world.ledger(store, "w1");
        let batch = [planned(1, "a", &[]), planned(2, "b", &[0]), planned(3, "c", &[1])];
        let first = create_all(&ledger, &batch[..2], false).expect("created");
        let tips = store.tips("refs/pm/").expect("listed").len();
        let again = create_all(&ledger, &batch[..2], false).expect("nothing to do");
        assert_eq!((created(&again), tips), (vec![false, false], 2));
        let longer = create_all(&ledger, &batch, false).expect("created");
        assert_eq!(created(&longer), [false, false, true]);
        let ids = |batched: &Batched| batched.placed.iter().map(|placed| placed.task).collect::<Vec<_>>();
        assert_eq!(ids(&first), ids(&longer)[..2]);
        assert_eq!(found(&ledger, "c").state.task.depends_on, [ids(&first)[1]], "dependents name the id that exists");
    });
}

#[test]
fn a_slug_that_somebody_takes_with_the_same_definition_in_between_is_skipped() {
    on_both_stores(|store| {
        let world = World::new();
        let batch = [planned(1, "a", &[]), planned(2, "b", &[0])];
        let watched = Watched::new(store);
        watched.before_next_swap(|| drop(create_all(&world.ledger(store, "w2"), &batch[..1], false).expect("created")));
        let batched = create_all(&world.ledger(&watched, "w1"), &batch, false).expect("created");
        assert_eq!(created(&batched), [false, true]);
        let ledger = world.ledger(store, "w1");
        assert_eq!(
            found(&ledger, "b").state.task.depends_on,
            [found(&ledger, "a").state.id],
            "not on the one that lost"
        );
        let record: Record = ledger.record(&name("a"), found(&ledger, "a").state.id.record()).expect("readable");
        assert_eq!(record.agent.as_str(), "w2");
    });
}

#[test]
fn a_slug_that_somebody_takes_with_another_definition_in_between_stops_the_whole_batch() {
    on_both_stores(|store| {
        let world = World::new();
        let batch = [planned(1, "a", &[]), planned(2, "b", &[])];
        let watched = Watched::new(store);
        watched.before_next_swap(|| drop(plan(&world.ledger(store, "w2"), "b")));
        let result = create_all(&world.ledger(&watched, "w1"), &batch, false);
        let Err(Error::Plan(PlanError { faults, .. })) = result else { panic!("{result:?}") };
        assert!(faults.len() == 1 && faults[0].found.contains("differs in text"), "{faults:?}");
        assert_eq!(count(store), 1, "a was not created either");
    });
}

#[test]
fn tries_are_bounded_when_somebody_is_always_faster() {
    let (world, store) = (World::new(), MemoryStore::new());
    let batch: Vec<_> = (0..200).map(|n| planned(n + 1, &format!("t{n}"), &[])).collect();
    let watched = Watched::new(&store);
    let mut taken = 0;
    watched.before_every_swap(|| {
        assert!(taken < 200, "it never gives up");
        create_all(&world.ledger(&store, "w2"), &batch[taken..=taken], false).expect("created");
        taken += 1;
    });
    create_all(&world.ledger(&watched, "w1"), &batch, false).expect_err("given up");
    drop(watched);
    assert!((2..100).contains(&taken), "{taken}");
    assert_eq!(count(&store), taken);
}

#[test]
fn a_publication_that_fails_leaves_nothing() {
    let (world, store) = (World::new(), MemoryStore::new());
    let batch = [planned(1, "a", &[]), planned(2, "b", &[])];
    store.fail_next_swap(StoreError::Io { what: "writing".to_owned(), source: std::io::ErrorKind::StorageFull.into() });
    let ledger = world.ledger(&store, "w1");
    assert_eq!(code(create_all(&ledger, &batch, false)), 1);
    assert_eq!(count(&store), 0);
    create_all(&ledger, &batch, false).expect("created");
    assert_eq!(count(&store), 2);
}

#[test]
fn existing_tasks_are_taken_as_they_are_only_when_that_is_asked_for() {
    on_both_stores(|store| {
        let world = World::new();
        let ledger = world.ledger(store, "w1");
        let there = plan(&ledger, "a").id;
        let batch = [planned(1, "a", &[]), planned(2, "b", &[0])];
        assert_eq!(code(create_all(&ledger, &batch, false)), 4);
        assert_eq!(count(store), 1);
        let batched = create_all(&ledger, &batch, true).expect("created");
        assert_eq!((created(&batched), batched.placed[0].task), (vec![false, true], there));
        assert_eq!(found(&ledger, "b").state.task.depends_on, [there]);
    });
}

#[test]
fn a_task_that_is_damaged_is_not_planned_over() {
    let (world, store) = (World::new(), MemoryStore::new());
    let ledger = world.ledger(&store, "w1");
    let state = plan(&ledger, "a");
    store.lose(state.tip.0);
    let batch = [planned(1, "a", &[]), planned(2, "b", &[])];
    for accept_existing in [false, true] {
        assert_eq!(code(create_all(&ledger, &batch, accept_existing)), 19);
    }
    assert_eq!(count(&store), 1);
}
