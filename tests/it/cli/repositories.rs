//! Every kind of repository: those that work, and those that are refused with a sentence that says what to do.

use std::path::Path;

use crate::support::confined::{is_root, missing};
use crate::support::{AGENT, Outcome, Repo, text};

/// Drives a task through its whole life and looks at it from every side.
fn works_end_to_end(repo: &Repo) {
    let task = repo.plan("a");
    repo.plan_with("b", &["--depends-on", "a"]);
    assert_eq!(repo.pm(&["next", "--json"]).json()["sha"], task.as_str());
    let pulled = repo.pm(&["pull", "--json"]).json();
    assert_eq!(pulled["task"]["sha"], task.as_str());
    repo.pm(&["heartbeat", "--task", &task[..10], "--claim", &text(&pulled["claim"]["sha"])]).ok();
    let file = repo.outside().join("attached");
    std::fs::write(&file, "kept").expect("written");
    let report = ["report", "--json", "--task", "a", "--title", "T", "--attach", &file.display().to_string()];
    let report = text(&repo.pm(&report).json()["sha"]);
    assert_eq!(repo.git(&["show", &format!("{report}:attached")]), "kept");
    repo.pm(&["finished", "--task", "a"]).ok();
    repo.pm_fed("{\"slug\":\"c\",\"title\":\"C\",\"depends_on_slugs\":[\"b\"]}", &["bulk-plan", "--input", "-"]).ok();
    assert_eq!(repo.pm(&["next", "--json"]).json()["attributes"]["slug"], "b");
    let counts = repo.pm(&["status", "--json"]).json();
    assert_eq!((&counts["queues"]["default"]["new"], &counts["blocked"]), (&2.into(), &1.into()));
    assert_eq!(repo.pm(&["sweep", "--json"]).json()["stale"], 0);
    repo.git(&["gc", "--quiet"]);
    assert_eq!(repo.pm(&["show", "--json", "--task", "a"]).json()["heartbeat_count"], 1);
    repo.assert_sound();
}

#[test]
fn a_repository_with_a_worktree_works() {
    works_end_to_end(&Repo::init(&[]));
}

#[test]
fn a_bare_repository_works() {
    works_end_to_end(&Repo::init(&["--bare"]));
}

#[test]
fn a_sha_256_repository_works() {
    let repo = Repo::init(&["--object-format=sha256"]);
    works_end_to_end(&repo);
    assert_eq!(repo.tip("a").len(), 64);
}

#[test]
fn a_subdirectory_works() {
    let mut repo = Repo::init(&[]);
    let deep = repo.path().join("some/where");
    std::fs::create_dir_all(&deep).expect("created");
    repo.set_path(deep);
    works_end_to_end(&repo);
}

#[test]
fn a_linked_worktree_shares_the_ledger() {
    let mut repo = Repo::init(&[]);
    repo.plan("from-main");
    let commit = repo.git(&["commit-tree", &repo.git_fed(b"", &["mktree"]), "-m", "first"]);
    repo.git(&["update-ref", "refs/heads/main", &commit]);
    let linked = repo.outside().join("linked");
    repo.git(&["worktree", "add", "--quiet", "-b", "side", &linked.display().to_string()]);
    let main = repo.path().to_owned();
    repo.set_path(&linked);
    let side = repo.git(&["commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "second"]);
    repo.git(&["update-ref", "refs/heads/side", &side]);
    repo.claim("from-main");
    let report = ["report", "--json", "--task", "from-main", "--title", "T", "--commit", "HEAD"];
    assert_eq!(repo.pm(&report).json()["attributes"]["commit"], side.as_str(), "HEAD is that of the worktree");
    repo.pm(&["finished", "--task", "from-main"]).ok();
    works_end_to_end(&repo);
    let from_linked = repo.refs();
    repo.set_path(&main);
    assert_eq!(repo.refs(), from_linked);
    assert_eq!(repo.phase("from-main"), "done");
    assert!(main.join(".git/refs/pm").is_dir() && main.join(".git/pm/locks").is_dir(), "pm's files are shared, too");
}

#[test]
fn the_repository_can_be_named_by_an_option_or_by_git_dir() {
    let mut repo = Repo::new();
    let home = repo.path().to_owned();
    let elsewhere = repo.outside().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("created");
    repo.set_path(&elsewhere);
    repo.pm(&["list"]).fails(18);
    let home_name = home.display().to_string();
    repo.pm(&["-C", &home_name, "plan", "--title", "By option", "--slug", "a"]).ok();
    repo.pm(&["-C", "../repo", "list"]).ok();
    let git_dir = home.join(".git").display().to_string();
    let by_env = |args: &[&str]| repo.pm_with(&[("GIT_DIR", &git_dir)], args);
    assert_eq!(by_env(&["list", "--json"]).json()["total"], 1);
    by_env(&["executing", "--task", "a"]).ok();
    let relative = repo.pm_with(&[("GIT_DIR", "../repo/.git")], &["show", "--json", "--task", "a"]).json();
    assert_eq!(relative["state"]["status"], "working");
    repo.pm_with(&[("GIT_DIR", "/nowhere")], &["list"]).fails(18).says("GIT_DIR");
    repo.set_path(&home);
    repo.assert_sound();
}

#[test]
fn without_a_name_or_email_pm_signs_with_its_own() {
    let repo = Repo::bare_of_config(&[]);
    repo.git(&["config", "core.fsync", "committed,reference"]);
    works_end_to_end(&repo);
    let by = repo.git(&["log", "-1", "--format=%an|%cn|%ae|%ce", "refs/pm/tasks/default/a"]);
    let fields: Vec<&str> = by.split('|').collect();
    assert_eq!(fields[..2], [AGENT, "pm"]);
    assert!(fields[2].starts_with("pm@") && fields[2] == fields[3], "{by}");
}

#[test]
fn the_author_is_the_agent_and_the_committer_is_gits_identity() {
    let repo = Repo::new();
    repo.plan("a");
    let who = |repo: &Repo| repo.git(&["log", "-1", "--format=%an <%ae> %cn <%ce>", "refs/pm/tasks/default/a"]);
    assert_eq!(who(&repo), "w1 <ada@example.com> Ada <ada@example.com>");
    let env = [("GIT_COMMITTER_NAME", "Eve <\n>"), ("GIT_COMMITTER_EMAIL", "eve@example.com")];
    repo.pm_with(&env, &["executing", "--task", "a"]).ok();
    assert_eq!(who(&repo), "w1 <ada@example.com> Eve <eve@example.com>");
    repo.assert_sound();
}

#[test]
fn where_there_is_no_repository_pm_says_how_to_get_one() {
    let repo = Repo::nowhere();
    repo.pm(&["list"]).fails(18).says("git init");
    repo.pm(&["plan", "--title", "T"]).fails(18);
    std::fs::write(repo.outside().join("file"), "").expect("written");
    repo.pm(&["-C", "file", "list"]).fails(18).says("file");
    std::fs::create_dir_all(repo.outside().join("broken/.git")).expect("created");
    repo.pm(&["-C", "broken", "list"]).fails(18);
}

#[test]
fn a_reftable_repository_is_refused_and_the_way_out_is_named() {
    let repo = Repo::nowhere();
    std::fs::create_dir(repo.path()).expect("created");
    repo.git(&["init", "--quiet", "--ref-format=reftable"]);
    for args in [&["list"][..], &["plan", "--title", "T"]] {
        repo.pm(args).fails(18).says("git refs migrate --ref-format=files");
    }
    assert!(!repo.path().join(".git/refs/pm").exists() && !repo.path().join(".git/pm").exists());
    repo.git(&["refs", "migrate", "--ref-format=files"]);
    repo.pm(&["plan", "--title", "T"]).ok();
}

#[test]
fn a_repository_with_an_unknown_extension_is_refused_as_git_does() {
    let repo = Repo::new();
    repo.git(&["config", "core.repositoryFormatVersion", "1"]);
    repo.git(&["config", "extensions.fromTheFuture", "true"]);
    repo.pm(&["list"]).fails(18).says("fromTheFuture");
}

#[test]
fn a_repository_of_another_user_is_refused_until_it_is_declared_safe() {
    if !is_root() && missing("root") {
        return;
    }
    let repo = Repo::new();
    repo.plan("a");
    let before = repo.refs();
    let chown = Outcome::of(&[], &mut repo.program("chown", &["-R", "65534:65534", "."]));
    chown.ok();
    for args in [&["list"][..], &["plan", "--title", "T"], &["executing", "--task", "a"]] {
        repo.pm(args).fails(18).says("belongs to another user").says("safe.directory");
    }
    let config = repo.outside().join("gitconfig");
    let safe = format!("[safe]\n\tdirectory = {}\n", repo.path().display());
    std::fs::write(&config, safe).expect("written");
    let trusted = [("GIT_CONFIG_GLOBAL", path(&config))];
    assert_eq!(repo.pm_with(&trusted, &["list", "--json"]).json()["total"], 1);
    let refs = Outcome::of(&[], repo.program("git", &["for-each-ref", "refs/pm"]).envs(trusted));
    assert_eq!(refs.ok().stdout.trim_end(), before, "nothing was moved");
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
