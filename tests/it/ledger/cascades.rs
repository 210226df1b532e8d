//! Cascades and long rows of replacements: nobody gets in behind a cascade's back, and no successor is lost on the way.

use pm::ledger::cascade::Step;
use pm::ledger::replan::{Change, Spread};
use pm::protocol::record::Phase;
use pm::store::Store;
use pm::store::memory::MemoryStore;

use super::world::*;

/// Tasks below each other, all claimed by w1 but the last.
fn tree(store: &dyn Store, world: &World) {
    let own = world.ledger(store, "w1");
    let mut above = plan(&own, "top").id;
    for slug in ["middle", "leaf"] {
        act(&own, if slug == "middle" { "top" } else { "middle" }, claim()).expect("claimed");
        above = own.create(child(slug, above)).expect("planned").state.id;
    }
}

fn phases(store: &dyn Store, world: &World) -> [Option<Phase>; 3] {
    let ledger = world.ledger(store, "w1");
    ["top", "middle", "leaf"].map(|slug| found(&ledger, slug).state.phase())
}

#[test]
fn nobody_claims_what_a_cascade_has_taken_while_it_goes_on() {
    on_both_stores_twice(|store, elsewhere| {
        let world = World::new();
        tree(store, &world);
        let watched = Watched::new(store);
        // A puller that tries whatever may be free, all the time, but the uppermost.
        watched.before_every_swap(|| {
            let puller = world.ledger(elsewhere, "w2");
            for slug in ["middle", "leaf"] {
                drop(act(&puller, slug, claim()));
            }
        });
        let operator = world.ledger(&watched, "w3");
        let steps = operator.reclaim_all(&found(&operator, "top"), None).expect("reclaimed");
        // The leaf was free at first, and was claimed while what is above it still was.
        assert_eq!(phases(store, &world), [Some(Phase::New); 3], "{steps:?}");
        assert!(steps.iter().all(Step::is_changed) && steps.len() == 3, "{steps:?}");
    });
}

#[test]
fn who_claims_a_task_anew_after_a_cascade_took_it_keeps_it() {
    on_both_stores_twice(|store, elsewhere| {
        let world = World::new();
        tree(store, &world);
        let watched = Watched::new(store);
        watched.before_every_swap(|| drop(act(&world.ledger(elsewhere, "w2"), "top", claim())));
        let operator = world.ledger(&watched, "w3");
        let steps = operator.reclaim_all(&found(&operator, "top"), None).expect("reclaimed");
        let holder = found(&operator, "top").state.claim().map(|claim| claim.holder.to_string());
        assert_eq!(holder.as_deref(), Some("w2"), "{steps:?}");
        assert_eq!(phases(store, &world)[1..], [Some(Phase::New); 2]);
    });
}

#[test]
fn however_often_a_parent_was_replaced_its_children_keep_its_successor_open() {
    let (world, store) = (World::new(), MemoryStore::new());
    let own = world.ledger(&store, "w1");
    let first = plan(&own, "p").id;
    own.create(child("c", first)).expect("planned");
    own.create(new_task("after", &[first])).expect("planned");
    let mut newest = "p".to_owned();
    for round in 1..=70 {
        let change = Change { text: Some(Some(format!("{round}\n"))), verifier: None };
        let replanned = own.replan(&found(&own, &newest), &change, Spread::default(), None).expect("replaced");
        newest = replanned.clone.expect("a clone").task.slug.to_string();
        assert_eq!(newest, format!("p-r{round}"));
    }
    for intent in [claim(), report()] {
        act(&own, &newest, intent).expect("recorded");
    }
    assert_eq!(code(act(&own, &newest, finish())), 14, "its child is open");
    for (slug, intent) in [("c", cancel()), (&newest, finish()), ("after", claim())] {
        act(&own, slug, intent).expect("recorded");
    }
}
