//! Tests of moving many refs at once, against git that moves and packs the same ones.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn move_many(store: &dyn Store, moves: &[Move]) -> Result<Vec<bool>, StoreError> {
    let all: Vec<_> = (0..=255).map(|shard| (shard, Mode::Exclusive)).collect();
    store.move_many(&store.lock(&all)?, moves)
}

fn delete(store: &dyn Store, name: &RefName, expected: Oid) -> Result<Swap, StoreError> {
    store.delete(&store.lock(&[(name.shard(), Mode::Exclusive)])?, name, expected)
}

/// What the trait promises of moving and removing refs. Leaves no ref behind.
pub(super) fn check(store: &dyn Store) {
    let [loose, packed, absent, wrong] = ["m-loose", "m-packed", "m-absent", "m-wrong"].map(name);
    let one = append_done(store, &loose, None, "one");
    assert_eq!(
        publish(store, &[(packed.clone(), one), (wrong.clone(), one)]).expect("done"),
        Publish::Done { shadowed: vec![] }
    );
    let two = append_done(store, &loose, Some(one), "two");
    let three = append_done(store, &loose, Some(two), "three");
    let moves = [
        (packed.clone(), Some(one), two),
        (loose.clone(), Some(three), two),
        (absent.clone(), None, three),
        (wrong.clone(), Some(two), three),
        (name("m-gone"), Some(two), three),
    ];
    assert_eq!(move_many(store, &moves).expect("done"), [true, true, true, false, false]);
    let now = |name: &RefName| store.tip(name).expect("read");
    assert_eq!([&packed, &loose, &absent, &wrong].map(now), [Some(two), Some(two), Some(three), Some(one)]);
    assert_eq!(now(&name("m-gone")), None);

    let four = append_done(store, &absent, Some(three), "loose above packed");
    assert_eq!(delete(store, &absent, three).expect("left"), Swap::HeadMoved { actual: Some(four) });
    for (name, tip) in [(&absent, four), (&packed, two), (&loose, two), (&wrong, one)] {
        assert_eq!(delete(store, name, tip).expect("done"), Swap::Done);
        assert_eq!(now(name), None, "no older value of {name} shows through");
    }
}

#[test]
fn of_git_and_many_moves_exactly_one_moves_each_ref_while_git_packs_them() {
    const REFS: usize = 60;
    let repo = Repo::init(&[]);
    let mut store = repo.open();
    store.set_patience(lock::PATIENCE);
    let names: Vec<_> = (0..REFS).map(|number| name(&format!("t{number}"))).collect();
    let ids = ["first", "ours", "gits"].map(|text| {
        append_done(&store, &name(text), None, text);
        store.tip(&name(text)).expect("read").expect("there")
    });
    let [first, ours, gits] = ids;
    for name in &names {
        assert_eq!(swap(&store, name, None, first).expect("moved"), Swap::Done);
    }
    let stop = AtomicBool::new(false);
    let (by_us, by_git) = std::thread::scope(|scope| {
        let packer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                repo.git(&["pack-refs", "--all", "--prune"]);
            }
        });
        let git = scope.spawn(|| {
            let moves = |name: &RefName| {
                let args = ["update-ref", name.as_str(), &gits.to_string(), &first.to_string()];
                repo.command().args(args).output().expect("git runs").status.success()
            };
            names.iter().rev().map(moves).collect::<Vec<_>>()
        });
        let mut by_us = Vec::new();
        for part in names.chunks(10) {
            let moves: Vec<_> = part.iter().map(|name| (name.clone(), Some(first), ours)).collect();
            by_us.extend(move_many(&store, &moves).expect("done"));
        }
        let mut by_git = git.join().expect("no panic");
        by_git.reverse();
        stop.store(true, Ordering::Relaxed);
        packer.join().expect("git packs");
        (by_us, by_git)
    });
    for (place, name) in names.iter().enumerate() {
        let now = store.tip(name).expect("read").expect("there");
        // git sees its own success only when it holds the ref; of ours, some may be undone by a pack that began before.
        assert!(!(by_us[place] && by_git[place]), "{name} was moved by both");
        match (by_us[place], by_git[place]) {
            (true, false) => assert_eq!(now, ours, "{name}"),
            (false, true) => assert_eq!(now, gits, "{name}"),
            _ => assert!([first, ours, gits].contains(&now), "{name}"),
        }
    }
    assert_clean(&store);
}
