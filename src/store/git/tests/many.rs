//! Tests of moving many refs at once, against git that moves and packs the same ones.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

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
