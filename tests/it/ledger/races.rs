//! Races, one step at a time: somebody else gets in between a decision and its swap.
//!
//! A lost race is not the caller's error: the intent is decided again on what is there now, and what was meant for one
//! claim is never decided against a newer one. (What other tasks do meanwhile is in `families`.)

use std::cell::Cell;

use pm::error::{Error, Result};
use pm::id::RecordId;
use pm::ledger::Ledger;
use pm::ledger::append::Appended;
use pm::protocol::decide::Intent;
use pm::protocol::record::{Content, Phase};
use pm::protocol::refusal::Refusal;
use pm::store::memory::MemoryStore;
use pm::store::{Store, StoreError};

use super::world::*;

/// Prepares a task, then carries out an intent of w1's into which `intruder` gets in between decision and swap.
fn race(
    store: &dyn Store,
    prepare: impl Fn(&Ledger<'_>),
    intent: Intent,
    intruder: impl Fn(&dyn Store, &World),
) -> pm::error::Result<pm::ledger::append::Appended> {
    let world = World::new();
    let own = world.ledger(store, "w1");
    if own.state(&name("a")).expect("readable").is_none() {
        plan(&own, "a");
        prepare(&own);
    }
    let watched = Watched::new(store);
    watched.before_next_swap(|| intruder(store, &world));
    act(&world.ledger(&watched, "w1"), "a", intent)
}

fn as_other(store: &dyn Store, world: &World, agent: &str, intents: Vec<Intent>) {
    let ledger = world.ledger(store, agent);
    for intent in intents {
        act(&ledger, "a", intent).expect("the intruder gets in");
    }
}

#[test]
fn a_claim_that_loses_to_another_claim_has_lost_the_race() {
    on_both_stores(|store| {
        let result = race(store, |_| {}, claim(), |store, world| as_other(store, world, "w2", vec![claim()]));
        let Refusal::RaceLost { held: Some(held) } = refusal(result) else { panic!("not a lost race") };
        assert_eq!((held.holder.as_str(), held.yours), ("w2", false));
    });
}

#[test]
fn a_claim_that_loses_to_one_under_its_own_name_is_told_so() {
    on_both_stores(|store| {
        let result = race(store, |_| {}, claim(), |store, world| as_other(store, world, "w1", vec![claim()]));
        let Refusal::RaceLost { held: Some(held) } = refusal(result) else { panic!("not a lost race") };
        assert!(held.yours);
    });
}

#[test]
fn a_claim_that_finds_the_task_free_again_after_a_lost_race_gets_it() {
    on_both_stores(|store| {
        let intruder = |store: &dyn Store, world: &World| as_other(store, world, "w2", vec![claim(), release()]);
        let appended = race(store, |_| {}, claim(), intruder).expect("claimed");
        let holder = appended.state.claim().expect("a claim");
        assert_eq!((holder.holder.as_str(), holder.seq), ("w1", 4));
    });
}

#[test]
fn a_claim_of_a_task_that_was_taken_before_is_in_the_wrong_phase() {
    on_both_stores(|store| {
        let world = World::new();
        plan(&world.ledger(store, "w1"), "a");
        act(&world.ledger(store, "w2"), "a", claim()).expect("claimed");
        assert_eq!(code(act(&world.ledger(store, "w1"), "a", claim())), 6);
    });
}

#[test]
fn a_heartbeat_that_loses_to_a_heartbeat_of_the_same_claim_has_what_it_wanted() {
    on_both_stores(|store| {
        let prepare = |ledger: &Ledger<'_>| drop(act(ledger, "a", claim()).expect("claimed"));
        let intruder = |store: &dyn Store, world: &World| as_other(store, world, "w1", vec![heartbeat(None)]);
        let appended = race(store, prepare, heartbeat(None), intruder).expect("coalesced");
        assert!(appended.coalesced);
        assert_eq!(appended.state.seq, 3, "one heartbeat was written, not two");
        assert_eq!(appended.last().0, appended.state.tip);
        assert!(matches!(appended.last().1.content, Content::Heartbeat(_)));
    });
}

#[test]
fn a_heartbeat_that_loses_to_a_report_of_the_same_claim_is_written_after_it() {
    on_both_stores(|store| {
        let prepare = |ledger: &Ledger<'_>| drop(act(ledger, "a", claim()).expect("claimed"));
        let intruder = |store: &dyn Store, world: &World| as_other(store, world, "w1", vec![report()]);
        let appended = race(store, prepare, heartbeat(None), intruder).expect("recorded");
        assert!(!appended.coalesced);
        assert_eq!((appended.state.seq, appended.state.tip), (4, appended.last().0));
        assert_eq!(
            appended.last().1.links.report,
            appended.state.report.map(|report| report.id),
            "it names the report"
        );
    });
}

#[test]
fn what_is_meant_for_one_claim_is_never_decided_against_a_newer_one_of_the_same_agent() {
    let intents =
        [heartbeat(None), report(), release(), Intent::Finish { claim: None, done: false, note: None, verified: None }];
    for intent in intents {
        on_both_stores(|store| {
            let prepare = |ledger: &Ledger<'_>| {
                act(ledger, "a", claim()).expect("claimed");
                act(ledger, "a", report()).expect("reported");
            };
            let intruder = |store: &dyn Store, world: &World| {
                as_other(store, world, "sweeper", vec![reclaim()]);
                // The same name claims it anew: a second process of the same worker.
                as_other(store, world, "w1", vec![claim(), report()]);
            };
            let result = race(store, prepare, intent.clone(), intruder);
            assert!(matches!(refusal(result), Refusal::LeaseLost { named: Some(_), .. }), "{intent:?}");
        });
    }
}

#[test]
fn what_loses_to_a_reclaim_finds_the_task_in_the_wrong_phase() {
    for intent in [heartbeat(None), report(), release(), finish()] {
        on_both_stores(|store| {
            let prepare = |ledger: &Ledger<'_>| {
                act(ledger, "a", claim()).expect("claimed");
                act(ledger, "a", report()).expect("reported");
            };
            let intruder = |store: &dyn Store, world: &World| as_other(store, world, "sweeper", vec![reclaim()]);
            let result = race(store, prepare, intent.clone(), intruder);
            assert!(matches!(refusal(result), Refusal::WrongPhase { phase: Phase::New, .. }), "{intent:?}");
        });
    }
}

#[test]
fn a_finish_that_loses_to_a_newer_report_closes_over_that_one() {
    on_both_stores(|store| {
        let prepare = |ledger: &Ledger<'_>| {
            act(ledger, "a", claim()).expect("claimed");
            act(ledger, "a", report()).expect("reported");
        };
        let intruder = |store: &dyn Store, world: &World| as_other(store, world, "w1", vec![report()]);
        let appended = race(store, prepare, finish(), intruder).expect("finished");
        let Content::Status(status) = &appended.last().1.content else { panic!("not a status") };
        assert_eq!(status.proof, appended.last().1.parent, "the proof is the newest report");
    });
}

#[test]
fn a_sweep_that_loses_to_a_heartbeat_leaves_the_task_alone() {
    on_both_stores(|store| {
        let world = World::new();
        let own = world.ledger(store, "w1");
        plan(&own, "a");
        let observed = act(&own, "a", claim()).expect("claimed").state.tip;
        let watched = Watched::new(store);
        watched.before_next_swap(|| as_other(store, &world, "w1", vec![heartbeat(None)]));
        let result = act(&world.ledger(&watched, "sweeper"), "a", sweep(observed));
        assert!(matches!(refusal(result), Refusal::RaceLost { held: Some(_) }));
        let state = found(&own, "a").state;
        assert_eq!((state.phase(), state.seq), (Some(Phase::Working), 3), "the heartbeat is the newest record");
    });
}

#[test]
fn a_reclaim_that_loses_to_another_claim_leaves_that_one_alone() {
    on_both_stores(|store| {
        let world = World::new();
        plan(&world.ledger(store, "w1"), "a");
        act(&world.ledger(store, "w1"), "a", claim()).expect("claimed");
        let watched = Watched::new(store);
        watched.before_next_swap(|| {
            as_other(store, &world, "w1", vec![release()]);
            as_other(store, &world, "w2", vec![claim()]);
        });
        let result = act(&world.ledger(&watched, "sweeper"), "a", reclaim());
        let Refusal::RaceLost { held: Some(held) } = refusal(result) else { panic!("not a lost race") };
        assert_eq!(held.holder.as_str(), "w2");
    });
}

/// A supervisor frees a sticky task that c1 gave back, while others do something with it.
fn free(store: &dyn Store, intent: impl Fn(RecordId) -> Intent, meanwhile: &[(&str, Intent)]) -> Result<Appended> {
    let world = World::new();
    let own = world.ledger_in(store, "w1", "c1");
    own.create(sticky("a", &[])).expect("planned");
    [claim(), release()].into_iter().for_each(|intent| drop(act(&own, "a", intent).expect("recorded")));
    let observed = found(&own, "a").state.tip;
    let watched = Watched::new(store);
    watched.before_next_swap(|| {
        for (agent, intent) in meanwhile {
            act(&world.ledger_in(store, agent, "c1"), "a", intent.clone()).expect("recorded");
        }
    });
    let result = act(&world.ledger(&watched, "sweeper"), "a", intent(observed));
    let now = found(&own, "a").state;
    assert_eq!(now.context().is_none(), result.is_ok(), "what came meanwhile stays");
    result
}

#[test]
fn a_reclaim_that_is_to_free_a_task_leaves_who_claims_it_first_alone() {
    let reclaim = |_| reclaim();
    for intent in [&reclaim as &dyn Fn(RecordId) -> Intent, &sweep] {
        on_both_stores(|store| drop(free(store, intent, &[]).expect("freed")));
        on_both_stores(|store| {
            let Refusal::RaceLost { held: Some(held) } = refusal(free(store, intent, &[("w2", claim())])) else {
                panic!("not a lost race")
            };
            assert_eq!(held.holder.as_str(), "w2");
        });
        // It was claimed and given back: whoever did that may well come back to it.
        on_both_stores(|store| {
            let lost = refusal(free(store, intent, &[("w2", claim()), ("w2", release())]));
            assert_eq!(lost, Refusal::RaceLost { held: None });
        });
    }
}

#[test]
fn a_reclaim_that_is_to_take_a_claim_does_not_free_what_its_holder_gave_back() {
    on_both_stores(|store| {
        let world = World::new();
        let own = world.ledger_in(store, "w1", "c1");
        own.create(sticky("a", &[])).expect("planned");
        act(&own, "a", claim()).expect("claimed");
        let watched = Watched::new(store);
        watched.before_next_swap(|| drop(act(&own, "a", release()).expect("released")));
        let lost = refusal(act(&world.ledger(&watched, "sweeper"), "a", reclaim()));
        assert_eq!(lost, Refusal::RaceLost { held: None });
        assert!(found(&own, "a").state.context().is_some());
    });
}

#[test]
fn retries_are_bounded_and_running_out_of_them_is_a_lost_race() {
    let store = MemoryStore::new();
    let world = World::new();
    let own = world.ledger(&store, "w1");
    plan(&own, "a");
    act(&own, "a", claim()).expect("claimed");
    let times = Cell::new(0_u32);
    let watched = Watched::new(&store);
    watched.before_every_swap(|| {
        times.set(times.get() + 1);
        assert!(times.get() < 10_000, "it never gives up");
        act(&own, "a", report()).expect("the intruder gets in");
    });
    let result = act(&world.ledger(&watched, "w1"), "a", release());
    assert!(matches!(refusal(result), Refusal::RaceLost { held: Some(_) }));
    assert!((2..=1000).contains(&times.get()), "{}", times.get());
    let state = found(&own, "a").state;
    assert_eq!(state.phase(), Some(Phase::Working));
    assert_eq!(state.seq, 2 + u64::from(times.get()), "nothing but the intruder's records was kept");
}

#[test]
fn of_two_creations_of_one_slug_the_second_is_told_who_won() {
    on_both_stores(|store| {
        let world = World::new();
        let watched = Watched::new(store);
        watched.before_next_swap(|| drop(plan(&world.ledger(store, "w2"), "a")));
        let result = world.ledger(&watched, "w1").create(new_task("a", &[]));
        let Err(Error::SlugTaken { task, .. }) = result else { panic!("{result:?}") };
        assert_eq!(task, found(&world.ledger(store, "w1"), "a").state.id);
    });
}

#[test]
fn a_ref_that_vanishes_in_between_is_damage_and_never_a_fresh_start() {
    let store = MemoryStore::new();
    let world = World::new();
    plan(&world.ledger(&store, "w1"), "a");
    store.on_next_swap(Box::new(|store| store.force(&name("a"), None)));
    assert_eq!(code(act(&world.ledger(&store, "w1"), "a", claim())), 19);
    assert_eq!(store.tip(&name("a")).expect("read"), None);
}

#[test]
fn a_swap_that_fails_moves_nothing_and_can_be_tried_again() {
    let store = MemoryStore::new();
    let world = World::new();
    let ledger = world.ledger(&store, "w1");
    let planned = plan(&ledger, "a");
    let full = || StoreError::Io { what: "writing".to_owned(), source: std::io::ErrorKind::StorageFull.into() };
    store.fail_next_swap(full());
    assert_eq!(code(act(&ledger, "a", claim())), 1);
    assert_eq!(found(&ledger, "a").state.tip, planned.tip);
    store.fail_next_swap(full());
    assert_eq!(code(ledger.create(new_task("b", &[]))), 1);
    act(&ledger, "a", claim()).expect("claimed");
    plan(&ledger, "b");
}

#[test]
fn a_record_that_may_not_be_durable_is_said_to_be_unknown() {
    let store = MemoryStore::new();
    let world = World::new();
    let ledger = world.ledger(&store, "w1");
    plan(&ledger, "a");
    store.fail_next_swap(StoreError::RecordedUnknown { name: name("a"), source: std::io::ErrorKind::Other.into() });
    let error = act(&ledger, "a", claim()).expect_err("not durable");
    assert_eq!(error.to_json()["error"]["recorded"], "unknown");
    assert_eq!(error.exit_code().number(), 1);
}

#[test]
fn a_sweep_reports_a_lost_race_as_raced_and_goes_on() {
    use pm::ledger::sweep::Terms;
    use pm::protocol::lease::TtlRule;
    use pm::protocol::record::Ttl;

    on_both_stores(|store| {
        let world = World::new();
        let own = world.ledger(store, "w1");
        for slug in ["a", "b"] {
            plan(&own, slug);
            act(&own, slug, claim()).expect("claimed");
        }
        world.clock.advance(1000);
        let watched = Watched::new(store);
        watched.before_next_swap(|| as_other(store, &world, "w1", vec![heartbeat(None)]));
        let dir = tempfile::tempdir().expect("a directory");
        let ttl = TtlRule { default: Ttl::from_ms(500).expect("a ttl"), force: false };
        let terms = Terms { ttl, trust_clocks: false, max_attempts: 0, dry_run: false };
        let outcome = world
            .ledger(&watched, "sweeper")
            .sweep("refs/pm/tasks/", dir.path(), &terms, &|| false)
            .expect("no failure");
        assert_eq!((outcome.stale, outcome.raced.len(), outcome.reclaimed.len()), (2, 1, 1));
        assert_eq!(outcome.raced[0].judged.name, name("a"));
        assert_eq!(found(&own, "a").state.phase(), Some(Phase::Working));
        assert_eq!(found(&own, "b").state.phase(), Some(Phase::New));
    });
}
