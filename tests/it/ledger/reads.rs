//! What a command costs does not depend on how long a chain is: nothing walks one.

use pm::commit::Signature;
use pm::id::RecordId;
use pm::ledger::sweep::Terms;
use pm::protocol::codec;
use pm::protocol::decide::Intent;
use pm::protocol::lease::TtlRule;
use pm::protocol::record::{Nonce, Ttl};
use pm::protocol::state::TaskState;
use pm::store::git::GitStore;
use pm::store::memory::MemoryStore;
use pm::store::{Durability, Store};

use super::world::*;
use crate::support::Repo;

/// Plans a task as w1, claims it, and lets it have so many records: reports and heartbeats among them.
fn long_chain(world: &World, store: &dyn Store, slug: &str, length: u64) {
    let ledger = world.ledger(store, "w1");
    plan(&ledger, slug);
    for intent in [claim(), heartbeat(None), report()] {
        act(&ledger, slug, intent).expect("recorded");
    }
    let start = act(&ledger, slug, heartbeat(None)).expect("recorded");
    // The rest is heartbeats, each written by hand upon the last: deciding every one of them would take minutes.
    let mut record = start.last().1.clone();
    let by = Signature { name: b"Ada".to_vec(), email: b"a@example.com".to_vec(), seconds: 0, offset: 0 };
    let mut tip = start.state.tip;
    for seq in start.state.seq + 1..length {
        record.seq = seq;
        record.parent = Some(tip);
        record.links.heartbeat = Some(tip);
        record.nonce = Nonce(seq);
        tip = RecordId(store.write_commit(&codec::encode(&record, by.clone())).expect("written"));
    }
    let end = TaskState { tip, ..start.state.clone() };
    publish(store, slug, &start.state, &end);
    let state = found(&ledger, slug).state;
    assert_eq!((state.seq + 1, state.tip), (length, tip));
}

/// How many objects and refs each command reads on a task whose chain is this long.
fn reads(store: &dyn Store, length: u64) -> Vec<(&'static str, usize)> {
    let world = World::new();
    long_chain(&world, store, "a", length);
    let watched = Watched::new(store);
    let (worker, sweeper) = (world.ledger(&watched, "w1"), world.ledger(&watched, "sweeper"));
    let work = |intent: Intent| drop(act(&worker, "a", intent).expect("recorded"));
    let dir = tempfile::tempdir().expect("a directory");
    let sweep = |ttl_ms, taken| {
        let ttl = TtlRule { default: Ttl::from_ms(ttl_ms).expect("a ttl"), force: false };
        let terms = Terms { ttl, trust_clocks: false, max_attempts: 0, dry_run: false };
        world.clock.advance(10);
        let outcome = sweeper.sweep("refs/pm/tasks/", dir.path(), &terms, &|| false).expect("swept");
        assert_eq!(outcome.reclaimed.len(), taken, "{outcome:?}");
    };
    let commands: [(&str, &dyn Fn()); 11] = [
        ("sweep of a fresh claim", &|| sweep(3_600_000, 0)),
        ("heartbeat", &|| work(heartbeat(None))),
        ("report", &|| work(report())),
        ("refused claim", &|| assert_eq!(code(act(&worker, "a", claim())), 6)),
        ("sweep of a stale claim", &|| sweep(1, 1)),
        ("refused heartbeat", &|| assert_eq!(code(act(&worker, "a", heartbeat(None))), 6)),
        ("claim", &|| work(claim())),
        ("release", &|| work(release())),
        ("claim after a release", &|| work(claim())),
        ("reclaim", &|| work(reclaim())),
        ("claim, report and finish", &|| [claim(), report(), finish()].into_iter().for_each(work)),
    ];
    let measure = |(what, command): (&'static str, &dyn Fn())| {
        watched.take_reads();
        command();
        (what, watched.take_reads())
    };
    commands.into_iter().map(measure).collect()
}

#[test]
fn a_chain_of_10_records_costs_as_many_reads_as_one_of_100_000() {
    let short = reads(&MemoryStore::new(), 10);
    let long = reads(&MemoryStore::new(), 100_000);
    assert_eq!(short, long);
    let of = |what: &str| short.iter().find(|(name, _)| *name == what).map(|(_, reads)| *reads);
    // A ref, and at most four objects: the tip, the task, the status and the report.
    assert!(of("heartbeat").is_some_and(|reads| reads <= 5), "{short:?}");
    assert!(of("sweep of a fresh claim").is_some_and(|reads| reads <= 5), "{short:?}");
}

#[test]
fn the_store_itself_counts_the_same() {
    let count = |length| {
        let (world, store) = (World::new(), MemoryStore::new());
        long_chain(&world, &store, "a", length);
        store.reset_counts();
        act(&world.ledger(&store, "w1"), "a", heartbeat(None)).expect("recorded");
        (store.reads(), store.listings())
    };
    assert_eq!(count(10), count(1_000));
    assert_eq!(count(10).1, 0, "a heartbeat lists no refs");
}

#[test]
fn a_real_repository_is_read_no_more_than_that_either() {
    let measure = |length| {
        let repo = Repo::new();
        let mut store = GitStore::discover(repo.path()).expect("usable");
        store.set_durability(Durability::Process);
        let reads = reads(&store, length);
        repo.pm(&["verify"]).ok();
        reads
    };
    let short = measure(10);
    assert_eq!(short, measure(1_000));
    assert_eq!(short, reads(&MemoryStore::new(), 10), "the stores differ in nothing but where they are");
}

#[test]
fn a_claim_reads_its_dependencies_and_nothing_of_their_past() {
    let count = |length: u64| {
        let (world, store) = (World::new(), MemoryStore::new());
        long_chain(&world, &store, "dependency", length);
        let ledger = world.ledger(&store, "w1");
        let dependency = act(&ledger, "dependency", finish()).expect("finished").state.id;
        ledger.create(new_task("dependent", &[dependency])).expect("created");
        store.reset_counts();
        act(&ledger, "dependent", Intent::Claim { ttl: None }).expect("claimed");
        store.reads()
    };
    assert_eq!(count(10), count(1_000));
}

/// The most objects that the state of a task costs: the tip, and up to three that it names.
const STATE: usize = 4;

/// As many, when only its id is known: the Task record leads to the ref.
const STATE_BY_ID: usize = STATE + 1;

/// How many objects are read, and how often refs are listed, by one intent of w1's in context c1.
fn cost(store: &MemoryStore, world: &World, slug: &str, intent: Intent) -> (usize, usize) {
    store.reset_counts();
    act(&world.ledger_in(store, "w1", "c1"), slug, intent).expect("recorded");
    (store.reads(), store.listings())
}

#[test]
fn a_claim_reads_its_parent_once_and_nothing_of_its_past() {
    let count = |length: u64, bystanders: usize| {
        let (world, store) = (World::new(), MemoryStore::new());
        long_chain(&world, &store, "parent", length);
        let ledger = world.ledger(&store, "w1");
        ledger.create(child("a", found(&ledger, "parent").state.id)).expect("planned");
        (0..bystanders).for_each(|n| drop(plan(&ledger, &format!("b{n}"))));
        cost(&store, &world, "a", claim())
    };
    assert_eq!(count(10, 0), count(1_000, 100));
    let (reads, listings) = count(10, 0);
    assert!(reads <= STATE + STATE_BY_ID, "{reads} reads");
    assert_eq!(listings, 0);
}

#[test]
fn a_claim_of_a_sticky_task_reads_every_task_once_and_one_that_is_not_reads_none_of_them() {
    let count = |is_sticky: bool, bystanders: usize| {
        let (world, store) = (World::new(), MemoryStore::new());
        let ledger = world.ledger(&store, "w1");
        ledger.create(if is_sticky { sticky("a", &[]) } else { new_task("a", &[]) }).expect("planned");
        for n in 0..bystanders {
            plan(&ledger, &format!("b{n}"));
            act(&ledger, &format!("b{n}"), claim()).expect("claimed");
        }
        cost(&store, &world, "a", claim())
    };
    let [(alone, _), (among, listings)] = [count(true, 0), count(true, 50)];
    assert!(among <= alone + 50 * STATE, "{alone}, and {among} among 50 others");
    assert_eq!(listings, 1);
    assert_eq!(count(false, 0), count(false, 50));
}

#[test]
fn a_finish_reads_two_objects_a_task_of_its_queue_and_the_state_of_its_children() {
    let count = |bystanders: usize, children: usize, elsewhere: usize, length: u64| {
        let (world, store) = (World::new(), MemoryStore::new());
        long_chain(&world, &store, "a", length);
        let ledger = world.ledger(&store, "w1");
        let parent = found(&ledger, "a").state.id;
        for n in 0..bystanders {
            plan(&ledger, &format!("b{n}"));
            act(&ledger, &format!("b{n}"), claim()).expect("claimed");
        }
        for n in 0..children {
            ledger.create(child(&format!("c{n}"), parent)).expect("planned");
            for intent in [claim(), report(), finish()] {
                act(&ledger, &format!("c{n}"), intent).expect("recorded");
            }
        }
        for n in 0..elsewhere {
            let mut new = new_task(&format!("d{n}"), &[]);
            new.task.queue = "other".parse().expect("a queue");
            ledger.create(new).expect("planned");
        }
        cost(&store, &world, "a", finish())
    };
    let (alone, listings) = count(0, 0, 0, 10);
    // Its own state, itself as a task of the queue, and, once more under the locks, the names alone.
    assert!(alone <= STATE + 2, "{alone} reads");
    assert_eq!(listings, 2);
    assert_eq!(count(0, 0, 50, 1_000), (alone, 2), "neither other queues nor the past cost anything");
    let (among, _) = count(50, 0, 0, 10);
    assert!(among <= alone + 50 * 2, "{alone}, and {among} among 50 others");
    let (with_children, _) = count(0, 20, 0, 10);
    assert!(with_children <= alone + 20 * (2 + STATE), "{alone}, and {with_children} with 20 children");
}

#[test]
fn a_sweep_that_is_stopped_while_it_reads_takes_nothing_and_forgets_nothing() {
    let (world, store) = (World::new(), MemoryStore::new());
    let worker = world.ledger(&store, "w1");
    for slug in ["a", "b", "c"] {
        plan(&worker, slug);
        act(&worker, slug, claim()).expect("claimed");
    }
    let sweeper = world.ledger(&store, "sweeper");
    let dir = tempfile::tempdir().expect("a directory");
    let ttl = TtlRule { default: Ttl::from_ms(1).expect("a ttl"), force: false };
    let terms = Terms { ttl, trust_clocks: false, max_attempts: 0, dry_run: false };
    world.clock.advance(10);
    store.reset_counts();
    let asked = std::cell::Cell::new(0);
    let after_the_first = || asked.replace(asked.get() + 1) == 1;
    let outcome = sweeper.sweep("refs/pm/tasks/", dir.path(), &terms, &after_the_first).expect("stopped");
    assert_eq!((outcome.scanned, outcome.stale, outcome.reclaimed.len()), (0, 0, 0));
    assert_eq!(store.reads(), 2, "the tip of one task, and its Task");
    assert!(sweeper.scan_until("refs/pm/tasks/", &|| true).expect("stopped").is_none());
    let outcome = sweeper.sweep("refs/pm/tasks/", dir.path(), &terms, &|| false).expect("swept");
    assert_eq!(outcome.reclaimed.len(), 3);
}
