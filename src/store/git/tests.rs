//! Tests of the store against real repositories, with the `git` program as the other party: what every store
//! promises, opening, objects. Those of reading are in [`reading`], of refs and locks in [`refs`], of
//! the care for objects beside a gc in [`rescue`].

mod many;
mod reading;
mod refs;
mod rescue;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use crate::commit::Signature;
use crate::id::TASKS;
use crate::store::memory::MemoryStore;

const SHORT: Duration = Duration::from_millis(30);

/// A repository in a temporary directory, and git to work on it.
struct Repo {
    dir: tempfile::TempDir,
}

impl Repo {
    fn init(options: &[&str]) -> Repo {
        let repo = Repo { dir: tempfile::tempdir().expect("a directory") };
        repo.git(&[&["init", "--quiet", "--initial-branch=main"], options].concat());
        repo
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("git");
        command.current_dir(self.path()).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "G").env(format!("GIT_{role}_EMAIL"), "g@example.com");
        }
        command
    }

    /// Runs git, which must succeed, and returns what it printed.
    fn git(&self, args: &[&str]) -> String {
        let output = self.command().args(args).output().expect("git runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?}: {stderr}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Asserts that git finds nothing wrong.
    fn fsck(&self) {
        let output = self.command().args(["fsck", "--strict", "--no-dangling"]).output().expect("git runs");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let said: Vec<_> = said.lines().filter(|line| !line.starts_with("notice:")).collect();
        assert!(output.status.success() && said.is_empty(), "{said:?}");
    }

    fn open(&self) -> GitStore {
        let mut store = GitStore::discover(self.path()).expect("usable");
        store.set_durability(Durability::Process);
        store.set_patience(SHORT);
        store
    }
}

fn name(slug: &str) -> RefName {
    RefName::from_full(format!("{TASKS}q/{slug}"))
}

fn commit(parent: Option<Oid>, text: &str) -> Commit {
    let by = Signature { name: b"w1".to_vec(), email: b"w@example.com".to_vec(), seconds: 1_800_000_000, offset: 3600 };
    Commit {
        tree: None,
        parents: parent.into_iter().collect(),
        author: by.clone(),
        committer: by,
        message: format!("{text}\n").into_bytes(),
    }
}

fn swap(store: &dyn Store, name: &RefName, expected: Option<Oid>, new: Oid) -> Result<Swap, StoreError> {
    let held = store.lock(&[(name.shard(), Mode::Exclusive)])?;
    store.compare_and_swap(&held, name, expected, new)
}

/// Writes a commit on `expected` and moves the ref to it.
fn append(store: &dyn Store, name: &RefName, expected: Option<Oid>, text: &str) -> Result<(Oid, Swap), StoreError> {
    let new = store.write_commit(&commit(expected, text))?;
    Ok((new, swap(store, name, expected, new)?))
}

fn append_done(store: &dyn Store, name: &RefName, expected: Option<Oid>, text: &str) -> Oid {
    let (new, outcome) = append(store, name, expected, text).expect("appended");
    assert_eq!(outcome, Swap::Done);
    new
}

fn publish(store: &dyn Store, refs: &[(RefName, Oid)]) -> Result<Publish, StoreError> {
    let all: Vec<_> = (0..=255).map(|shard| (shard, Mode::Exclusive)).collect();
    store.publish(&store.lock(&all)?, refs)
}

fn tips(store: &dyn Store) -> Vec<(RefName, Oid)> {
    let rows = store.tips(TASKS).expect("listed");
    rows.into_iter().map(|(name, value)| (name, value.expect("whole"))).collect()
}

/// Asserts that pm left no file of its own behind.
fn assert_clean(store: &GitStore) {
    let left: Vec<_> = fs::read_dir(store.common_dir().join("pm/locks")).expect("listed").flatten().collect();
    let left: Vec<_> = left.iter().filter(|entry| entry.path().extension().is_some()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Everything that the trait promises and that any store can be asked.
fn check(store: &dyn Store) {
    let (a, b) = (name("a"), name("b"));
    assert_eq!(store.tip(&a).expect("read"), None);
    assert!(tips(store).is_empty());

    let first = append_done(store, &a, None, "first");
    let second = append_done(store, &a, Some(first), "second");
    assert_eq!(store.read_commit(second).expect("read"), commit(Some(first), "second"));
    let (_, outcome) = append(store, &a, Some(first), "too late").expect("decided");
    assert_eq!(outcome, Swap::HeadMoved { actual: Some(second) });
    let (_, outcome) = append(store, &a, None, "twice").expect("decided");
    assert_eq!(outcome, Swap::HeadMoved { actual: Some(second) });
    let (_, outcome) = append(store, &b, Some(second), "from nowhere").expect("decided");
    assert_eq!(outcome, Swap::HeadMoved { actual: None });
    assert_eq!(tips(store), [(a.clone(), second)]);

    let mut pack = store.begin_pack().expect("begun");
    let packed: Vec<Oid> = (0..300).map(|i| pack.add(&commit(None, &format!("packed {i}"))).expect("added")).collect();
    assert_eq!(pack.add(&commit(None, "packed 7")).expect("added"), packed[7], "the same commit has the same id");
    pack.finish().expect("finished");
    let batch: Vec<_> = (0..300).map(|i| (name(&format!("p{i}")), packed[i])).collect();
    let taken = [&batch[..3], &[(a.clone(), first)]].concat();
    assert_eq!(publish(store, &taken).expect("decided"), Publish::Taken { names: vec![a.clone()] });
    assert_eq!(tips(store).len(), 1, "all or nothing");
    assert_eq!(publish(store, &batch).expect("done"), Publish::Done { shadowed: Vec::new() });
    assert_eq!(publish(store, &batch[7..9]).expect("decided"), Publish::Taken { names: vec![name("p7"), name("p8")] });
    assert_eq!(store.read_commit(packed[299]).expect("read"), commit(None, "packed 299"));
    let third = append_done(store, &batch[0].0, Some(packed[0]), "on a packed ref");

    let listed = tips(store);
    assert_eq!(listed.len(), 301);
    assert!(listed.is_sorted_by(|x, y| x.0 < y.0));
    assert!(listed.contains(&(batch[0].0.clone(), third)) && listed.contains(&batch[1]));

    many::check(store);
    let files = [("b.txt".to_owned(), b"B".to_vec()), ("a.txt".to_owned(), vec![0, 255])];
    let tree = store.write_files(&files).expect("written");
    assert_eq!(store.file_names(tree).expect("read"), ["a.txt", "b.txt"]);
    let report = Commit { tree: Some(tree), ..commit(Some(second), "report") };
    let report_id = store.write_commit(&report).expect("written");
    assert_eq!(swap(store, &a, Some(second), report_id).expect("moved"), Swap::Done);
    assert_eq!(store.read_commit(report_id).expect("read"), report);
    for bad in ["", "x/y", "x\0y"] {
        assert!(store.write_files(&[(bad.to_owned(), Vec::new())]).is_err(), "{bad:?}");
    }
    assert!(store.write_files(&[files[0].clone(), files[0].clone()]).is_err(), "a name comes twice");

    let missing: Oid = "00000000000000000000000000000000deadbeef".parse().expect("an id");
    assert!(matches!(store.read_commit(missing), Err(StoreError::Missing { id }) if id == missing));
    assert!(matches!(store.read_commit(tree), Err(StoreError::Damaged { .. })));

    let hex = packed[5].to_string();
    assert_eq!(store.commits_with_prefix(&hex[..12]).expect("searched"), [packed[5]]);
    assert_eq!(store.commits_with_prefix(&hex).expect("searched"), [packed[5]]);
    for none in [&hex[..3], "", "nothex!", &tree.to_string(), &format!("{hex}0")] {
        assert!(store.commits_with_prefix(none).expect("searched").is_empty(), "{none}");
    }
}

#[test]
fn the_memory_store_behaves_as_promised() {
    check(&MemoryStore::new());
}

#[test]
fn every_kind_of_repository_behaves_as_promised_and_git_finds_nothing_wrong() {
    for options in [&[][..], &["--bare"], &["--object-format=sha256"]] {
        let repo = Repo::init(options);
        let store = repo.open();
        check(&store);
        assert_clean(&store);
        repo.fsck();
        let listed: Vec<_> = tips(&store).iter().map(|(name, id)| format!("{id} commit\t{name}")).collect();
        assert_eq!(repo.git(&["for-each-ref", "refs/pm"]), listed.join("\n"), "git sees the same");
        assert_eq!(repo.git(&["show", &format!("{}:b.txt", name("a"))]), "B");
        repo.git(&["gc", "--quiet"]);
        assert_eq!(tips(&repo.open()).len(), 301);
        let tip = store.tip(&name("p1")).expect("read");
        append_done(&repo.open(), &name("p1"), tip, "after a gc");
        repo.fsck();
    }
}

#[test]
fn power_durability_needs_no_more_than_a_repository() {
    let repo = Repo::init(&[]);
    let mut store = repo.open();
    store.set_durability(Durability::Power);
    check(&store);
    repo.fsck();
}

#[test]
fn a_worktree_and_a_subdirectory_share_the_refs_of_their_repository() {
    let repo = Repo::init(&[]);
    repo.git(&["commit", "--quiet", "--allow-empty", "-m", "c"]);
    repo.git(&["worktree", "add", "--quiet", "wt"]);
    let main = repo.open();
    let id = append_done(&main, &name("a"), None, "main");
    fs::create_dir(repo.path().join("wt/sub")).expect("a directory");
    let worktree = GitStore::discover(&repo.path().join("wt/sub")).expect("usable");
    assert_eq!(worktree.tip(&name("a")).expect("read"), Some(id));
    assert_eq!(worktree.common_dir().canonicalize().ok(), main.common_dir().canonicalize().ok());
    assert_eq!(worktree.work_dir().and_then(|dir| dir.canonicalize().ok()), repo.path().join("wt").canonicalize().ok());
    append_done(&worktree, &name("a"), Some(id), "worktree");
    assert_ne!(worktree.git_dir(), main.git_dir());
}

#[test]
fn what_pm_cannot_use_is_refused_with_the_next_step() {
    let check = |dir: &Path, part: &str| match GitStore::discover(dir) {
        Err(StoreError::Unusable { reason }) => assert!(reason.contains(part), "{reason}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{} was opened", dir.display()),
    };
    let reftable = Repo::init(&["--ref-format=reftable"]);
    check(reftable.path(), "git refs migrate --ref-format=files");
    let unknown = Repo::init(&[]);
    unknown.git(&["config", "core.repositoryFormatVersion", "1"]);
    unknown.git(&["config", "extensions.fromTheFuture", "true"]);
    check(unknown.path(), "fromTheFuture");
    let none = tempfile::tempdir().expect("a directory");
    check(none.path(), "git init");
    check(Path::new("/nonexistent"), "/nonexistent");
}

#[test]
fn the_repository_of_another_user_is_refused_where_git_refuses_it() {
    let repo = Repo::init(&[]);
    for path in [repo.path().to_owned(), repo.path().join(".git")] {
        if std::os::unix::fs::chown(path, Some(65534), None).is_err() {
            // Only root can set this up.
            return;
        }
    }
    // With the configuration of whoever runs this, since that is what is read here; it may trust everything.
    let status = Command::new("git").arg("-C").arg(repo.path()).arg("rev-parse").stderr(Stdio::null()).status();
    match GitStore::discover(repo.path()) {
        Err(StoreError::Unusable { reason }) => assert!(reason.contains("safe.directory /"), "{reason}"),
        Err(other) => panic!("{other}"),
        Ok(_) => assert!(status.expect("git runs").success(), "git refuses it"),
    }
}

#[test]
fn people_name_commits_by_id_prefix_branch_and_tag() {
    let repo = Repo::init(&[]);
    repo.git(&["commit", "--quiet", "--allow-empty", "-m", "c"]);
    repo.git(&["tag", "-a", "-m", "t", "v1"]);
    let (store, head) = (repo.open(), repo.git(&["rev-parse", "HEAD"]));
    for rev in ["HEAD", "main", "refs/heads/main", "v1", &head[..8], &head, &head.to_uppercase()] {
        assert_eq!(store.resolve_commit(rev).expect(rev).to_string(), head, "{rev}");
    }
    for (rev, found) in
        [("nope", "no such ref"), ("HEAD~1", "no such ref"), ("", "no such ref"), ("HEAD^{tree}", "no such ref")]
    {
        let error = store.resolve_commit(rev).expect_err(rev).to_string();
        assert!(error.contains(found) && error.contains(rev), "{error}");
    }
    repo.git(&["update-ref", "refs/x/tree", "HEAD^{tree}"]);
    assert!(matches!(store.resolve_commit("refs/x/tree"), Err(StoreError::NoCommit { .. })));
    assert!(matches!(store.resolve_commit(&"1".repeat(40)), Err(StoreError::Missing { .. })));
}

#[test]
fn configuration_is_read_as_git_reads_it() {
    let repo = Repo::init(&[]);
    for (key, value) in [("pm.ttl", "60s"), ("pm.Remote", "origin"), ("pm.sub.key", "v"), ("user.name", "N")] {
        repo.git(&["config", key, value]);
    }
    repo.git(&["config", "--add", "pm.ttl", "90s"]);
    repo.git(&["config", "user.email", "n@example.com"]);
    let store = repo.open();
    assert_eq!(store.config_string("pm.ttl").as_deref(), Some("90s"));
    assert_eq!(store.config_strings("pm.ttl"), ["60s", "90s"]);
    assert_eq!(store.config_string("pm.none"), None);
    assert_eq!(store.config_keys("pm"), ["pm.remote", "pm.sub.key", "pm.ttl"]);
    assert_eq!(store.user_email().as_deref(), Some("n@example.com"));
    assert_eq!(store.object_hash_len(), 20);
}

#[test]
fn a_damaged_object_is_an_error_that_names_it() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let id = append_done(&store, &name("a"), None, "x");
    let hex = id.to_string();
    let path = store.common_dir().join("objects").join(&hex[..2]).join(&hex[2..]);
    let whole = fs::read(&path).expect("read");
    let overwrite = |content: &[u8]| {
        fs::remove_file(&path).expect("removed");
        fs::write(&path, content).expect("written");
    };
    for content in [&b""[..], b"garbage", &whole[..whole.len() / 2]] {
        overwrite(content);
        let error = repo.open().read_commit(id).expect_err("damaged");
        assert!(matches!(&error, StoreError::Damaged { id: named, .. } if *named == id), "{error}");
    }
    overwrite(b"");
    assert_eq!(store.write_commit(&commit(None, "x")).expect("written again"), id);
    store.objects.persist().expect("persisted");
    assert!(repo.open().read_commit(id).is_ok(), "an empty file, as a power cut leaves it, is replaced");
}

#[test]
fn a_pack_that_is_dropped_unfinished_leaves_nothing() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let mut pack = store.begin_pack().expect("begun");
    let id = pack.add(&commit(None, "x")).expect("added");
    drop(pack);
    store.begin_pack().expect("begun").finish().expect("an empty one too");
    assert_eq!(fs::read_dir(store.common_dir().join("objects/pack")).expect("listed").count(), 0);
    assert!(matches!(store.read_commit(id), Err(StoreError::Missing { .. })));
}

#[test]
fn git_index_pack_agrees_with_our_index() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let mut pack = store.begin_pack().expect("begun");
    for i in 0..200 {
        // Sizes around the borders of the size encoding and of the compression buffer.
        pack.add(&commit(None, &"x".repeat(i * 23))).expect("added");
    }
    pack.add(&commit(None, &format!("{:?}", (0..20_000).collect::<Vec<_>>()))).expect("added");
    pack.finish().expect("finished");
    let dir = store.common_dir().join("objects/pack");
    let find = |extension: &str| -> PathBuf {
        let mut paths = fs::read_dir(&dir).expect("listed").flatten().map(|entry| entry.path());
        paths.find(|path| path.extension().is_some_and(|found| found == extension)).expect("found")
    };
    let (pack, index) = (find("pack"), find("idx"));
    let stdout = Stdio::from(fs::File::create(repo.path().join("out")).expect("created"));
    let status = repo.command().args(["index-pack", "--strict", "-o", "own.idx"]).arg(&pack).stdout(stdout).status();
    assert!(status.expect("git runs").success());
    assert_eq!(fs::read(repo.path().join("own.idx")).expect("read"), fs::read(index).expect("read"));
}

#[test]
fn a_commit_that_lost_its_race_leaves_nothing() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let files = |dir: &Path| {
        fs::read_dir(dir).expect("listed").filter(|entry| entry.as_ref().is_ok_and(|e| e.path().is_file())).count()
    };
    let objects = store.common_dir().join("objects");
    store.write_commit(&commit(None, "lost")).expect("written");
    assert_eq!(files(&objects), 1, "a temporary file");
    store.discard_commits();
    assert_eq!(files(&objects), 0);
    drop(store.write_commit(&commit(None, "of a process that ends")));
    drop(store);
    assert_eq!(files(&objects), 0);
}

#[test]
fn old_temporaries_are_swept_and_young_ones_are_not() {
    let repo = Repo::init(&[]);
    let store = repo.open();
    let path = store.common_dir().join("objects/.tmpAbC123");
    fs::write(&path, "").expect("written");
    assert_eq!(store.sweep_temporaries(Duration::from_secs(3600)).expect("swept"), 0);
    assert_eq!(store.sweep_temporaries(Duration::ZERO).expect("swept"), 1);
    assert!(!path.exists());
}
