//! What happens to new records while a `git gc --prune=now` deletes what it did not see.

use super::*;

/// Makes the repository look as if a gc ran: its `gc.pid` names this very process, which lives.
fn start_gc(repo: &Repo) -> PathBuf {
    let path = repo.path().join(".git/gc.pid");
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    fs::write(&path, format!("{} {host}", std::process::id())).expect("written");
    path
}

fn loose(repo: &Repo, id: Oid) -> PathBuf {
    let hex = id.to_string();
    repo.path().join(".git/objects").join(&hex[..2]).join(&hex[2..])
}

fn rescued(repo: &Repo) -> usize {
    fs::read_dir(repo.path().join(".git/pm/rescue")).map_or(0, |entries| entries.count())
}

#[test]
fn an_object_that_a_running_gc_deletes_is_put_back_by_the_next_reader() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    start_gc(&repo);
    let first = append_done(&store, &name("a"), None, "kept while a gc runs");
    fs::remove_file(loose(&repo, first)).expect("deleted, as a gc does");
    let read = repo.open().read_commit(first).expect("put back");
    assert_eq!(read.message, b"kept while a gc runs\n");
    repo.fsck();
}

#[test]
fn whoever_only_reads_puts_nothing_back() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    start_gc(&repo);
    let first = append_done(&store, &name("a"), None, "kept while a gc runs");
    fs::remove_file(loose(&repo, first)).expect("deleted, as a gc does");
    let reading = GitStore::discover_for_reading(repo.path()).expect("opened");
    assert!(matches!(reading.read_commit(first), Err(StoreError::Missing { .. })));
    assert!(!loose(&repo, first).exists());
}

#[test]
fn an_object_that_was_deleted_before_its_ref_moved_is_written_again() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    start_gc(&repo);
    let id = store.write_commit(&commit(None, "unlucky")).expect("written");
    store.objects.persist().expect("persisted");
    fs::remove_file(loose(&repo, id)).expect("deleted, as a gc does");
    assert_eq!(swap(&store, &name("a"), None, id).expect("moved"), Swap::Done);
    assert!(loose(&repo, id).exists());
    repo.fsck();
}

#[test]
fn the_first_append_after_the_gc_puts_everything_back_and_empties_the_folder() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let gc_pid = start_gc(&repo);
    let first = append_done(&store, &name("a"), None, "one");
    fs::remove_file(loose(&repo, first)).expect("deleted, as a gc does");
    assert!(rescued(&repo) > 0);
    fs::remove_file(gc_pid).expect("the gc ends");
    append_done(&store, &name("b"), None, "two");
    assert_eq!(rescued(&repo), 0);
    assert!(loose(&repo, first).exists());
    repo.fsck();
}

#[test]
fn a_pack_that_a_running_gc_deletes_is_put_back() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    start_gc(&repo);
    let mut pack = store.begin_pack().expect("begun");
    let id = pack.add(&commit(None, "packed")).expect("added");
    pack.finish().expect("finished");
    assert!(matches!(publish(&store, &[(name("a"), id)]), Ok(Publish::Done { .. })));
    let packs = repo.path().join(".git/objects/pack");
    for entry in fs::read_dir(&packs).expect("listed") {
        fs::remove_file(entry.expect("an entry").path()).expect("deleted, as a gc does");
    }
    assert_eq!(repo.open().read_commit(id).expect("put back").message, b"packed\n");
    repo.fsck();
}

#[test]
fn a_stale_gc_pid_costs_nothing() {
    let repo = Repo::init(&[]);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // No process has this number: it is above the highest that the kernel gives.
    fs::write(repo.path().join(".git/gc.pid"), format!("{} {host}", i32::MAX)).expect("written");
    append_done(&repo.open(), &name("a"), None, "one");
    assert_eq!(rescued(&repo), 0);
}

#[test]
fn an_object_that_a_gc_deleted_before_it_ended_is_written_again() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let id = store.write_commit(&commit(None, "late")).expect("written");
    store.objects.persist().expect("persisted");
    // A whole `git gc --prune=now` while this process waits for a lock.
    fs::remove_file(loose(&repo, id)).expect("deleted, as a gc does");
    assert_eq!(swap(&store, &name("a"), None, id).expect("moved"), Swap::Done);
    assert!(loose(&repo, id).exists());
    repo.fsck();
}

#[test]
fn a_repack_leaves_a_pack_alone_until_its_refs_are_published() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let keeps = || {
        let names = fs::read_dir(repo.path().join(".git/objects/pack")).expect("listed");
        names
            .filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some_and(|end| end == "keep")))
            .count()
    };
    let mut pack = store.begin_pack().expect("begun");
    let id = pack.add(&commit(None, "packed")).expect("added");
    pack.finish().expect("finished");
    repo.git(&["repack", "-adq"]);
    assert!(matches!(publish(&store, &[(name("a"), id)]), Ok(Publish::Done { .. })));
    assert_eq!(repo.open().read_commit(id).expect("still there").message, b"packed\n");
    assert_eq!(keeps(), 0);
    repo.git(&["repack", "-adq"]);
    repo.fsck();
}

#[test]
fn a_batch_that_is_given_up_leaves_its_pack_to_git() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let mut pack = store.begin_pack().expect("begun");
    pack.add(&commit(None, "never published")).expect("added");
    pack.finish().expect("finished");
    drop(store);
    repo.git(&["repack", "-adq"]);
    let left = fs::read_dir(repo.path().join(".git/objects/pack")).expect("listed").count();
    assert_eq!(left, 0);
}
