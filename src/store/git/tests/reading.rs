//! What reading makes of objects that are not there, and of those that it may not look at.

use super::*;

#[test]
fn what_cannot_be_looked_at_is_not_called_missing() {
    let repo = Repo::init(&[]);
    let pack_dir = repo.path().join(".git/objects/pack");
    let store = repo.open();
    let mut pack = store.begin_pack().expect("begun");
    let packed = pack.add(&commit(None, "packed")).expect("added");
    pack.finish().expect("finished");
    let missing: Oid = "00000000000000000000000000000000deadbeef".parse().expect("an id");
    let reads = |id| repo.open().read_commit(id);
    assert!(reads(packed).is_ok() && matches!(reads(missing), Err(StoreError::Missing { .. })));
    // A link to itself fails to open, also for root.
    let only_io = |id| match reads(id) {
        Err(StoreError::Io { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    let index = fs::read_dir(&pack_dir).expect("listed").map(|entry| entry.expect("an entry").path());
    let index = index.into_iter().find(|path| path.extension().is_some_and(|of| of == "idx")).expect("an index");
    fs::rename(&index, index.with_extension("kept")).expect("renamed");
    std::os::unix::fs::symlink(&index, &index).expect("linked");
    let name = index.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(only_io(packed).contains(&name), "the pack that it may be in");
    assert!(only_io(missing).contains(&name));
    fs::rename(index.with_extension("kept"), &index).expect("renamed");
    assert!(reads(packed).is_ok());

    let loose = repo.path().join(".git/objects/00/000000000000000000000000000000deadbeef");
    fs::create_dir_all(loose.parent().expect("a directory")).expect("made");
    std::os::unix::fs::symlink(&loose, &loose).expect("linked");
    assert!(only_io(missing).contains("deadbeef"));
    fs::rename(&pack_dir, pack_dir.with_extension("kept")).expect("renamed");
    fs::remove_file(&loose).expect("removed");
    assert!(matches!(reads(packed), Err(StoreError::Missing { .. })), "no packs at all");
}
