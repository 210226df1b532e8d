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

/// Sixty refs at one value, and two values to move them to.
fn sixty(store: &GitStore) -> (Vec<RefName>, [Oid; 3]) {
    let ids = ["first", "ours", "gits"].map(|text| append_done(store, &name(text), None, text));
    let names: Vec<_> = (0..60).map(|number| name(&format!("t{number}"))).collect();
    for name in &names {
        assert_eq!(swap(store, name, None, ids[0]).expect("moved"), Swap::Done);
    }
    (names, ids)
}

#[test]
fn of_git_and_a_move_of_many_exactly_one_moves_each_ref() {
    // Now and then git is done before the other begins, or the other way round.
    let both_had_a_part = (0..20).any(|_| git_and_a_move_of_many());
    assert!(both_had_a_part, "they never met");
}

/// Has git and a move of many move the same refs at once, in a repository of its own: of a packed-refs that is replaced
/// again and again within a second, git may believe an old one that it has read (it looks at size, seconds and inode, which
/// comes back). Whether both moved some.
fn git_and_a_move_of_many() -> bool {
    let repo = Repo::init(&[]);
    let mut store = repo.open();
    store.set_patience(lock::PATIENCE);
    let (names, [first, ours, gits]) = sixty(&store);
    let (by_us, by_git) = std::thread::scope(|scope| {
        let git = scope.spawn(|| {
            let moves = |name: &RefName| {
                let args = ["update-ref", name.as_str(), &gits.to_string(), &first.to_string()];
                repo.command().args(args).output().expect("git runs").status.success()
            };
            names.iter().map(moves).collect::<Vec<_>>()
        });
        until_git_has_begun(&store, &names, gits);
        let moves: Vec<_> = names.iter().map(|name| (name.clone(), Some(first), ours)).collect();
        (move_many(&store, &moves).expect("done"), git.join().expect("no panic"))
    });
    for (place, name) in names.iter().enumerate() {
        let now = store.tip(name).expect("read").expect("there");
        assert!(by_us[place] != by_git[place], "{name}: {} {}", by_us[place], by_git[place]);
        assert_eq!(now, if by_us[place] { ours } else { gits }, "{name}");
    }
    assert_clean(&store);
    by_us.contains(&true) && by_git.contains(&true)
}

/// Waits until git has moved the first of the refs.
fn until_git_has_begun(store: &GitStore, names: &[RefName], gits: Oid) {
    let begun = std::time::Instant::now();
    while store.tip(&names[0]).expect("read") != Some(gits) {
        assert!(begun.elapsed() < Duration::from_secs(30), "git moves nothing");
        std::thread::yield_now();
    }
}

#[test]
fn what_a_move_of_many_says_it_moved_is_moved_while_git_packs_the_refs() {
    let repo = Repo::init(&[]);
    let mut store = repo.open();
    store.set_patience(lock::PATIENCE);
    let (names, [first, ours, _]) = sixty(&store);
    let stop = AtomicBool::new(false);
    let moved = std::thread::scope(|scope| {
        let packer = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                repo.git(&["pack-refs", "--all", "--prune"]);
            }
        });
        let mut moved = Vec::new();
        for part in names.chunks(5) {
            let moves: Vec<_> = part.iter().map(|name| (name.clone(), Some(first), ours)).collect();
            moved.extend(move_many(&store, &moves).expect("done"));
        }
        stop.store(true, Ordering::Relaxed);
        packer.join().expect("git packs");
        moved
    });
    for (name, moved) in names.iter().zip(moved) {
        let now = store.tip(name).expect("read").expect("there");
        // One that was not moved was being packed: its old value was put back over the new one, and was seen there.
        assert_eq!(now, if moved { ours } else { first }, "{name}");
    }
    assert_clean(&store);
}
