//! Where a runner's commands work: where it was started, or each in a git worktree of its own.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::support::runner::{event, file, start, told, work, written};
use crate::support::{Repo, text};

/// A repository with one commit.
fn repo() -> Repo {
    let repo = Repo::new();
    fs::write(repo.path().join("file"), "one\n").expect("written");
    repo.git(&["add", "file"]);
    repo.git(&["commit", "--quiet", "--message", "one"]);
    repo
}

/// Where the worktree of a task of the default queue is.
fn worktree(repo: &Repo, slug: &str) -> PathBuf {
    repo.outside().join("repo.worktrees/default").join(slug)
}

/// The commit that the newest report of a task names.
fn reported(repo: &Repo, slug: &str) -> Option<String> {
    let shown = repo.pm(&["show", "--json", "--task", slug]).json();
    shown["reports"][0]["attributes"]["commit"].as_str().map(str::to_owned)
}

#[test]
fn a_commit_that_the_command_makes_is_in_its_report() {
    let repo = repo();
    repo.plan("a");
    repo.plan("b");
    work(&repo, &[], "[ $PM_SLUG = b ] || git commit --quiet --allow-empty --message two").ok();
    assert_eq!(reported(&repo, "a"), Some(repo.git(&["rev-parse", "HEAD"])));
    assert_eq!(reported(&repo, "b"), None, "HEAD has not moved");
}

#[test]
fn a_worktree_is_removed_when_its_work_is_done_and_committed() {
    let repo = repo();
    repo.plan("a");
    repo.plan("b");
    let script = "pwd >$OUT/$PM_SLUG; [ $PM_SLUG = b ] && exit; echo two >file; git commit --quiet --all --message two";
    let outcome = work(&repo, &["--worktree", "--agents", "2"], script).ok();
    for slug in ["a", "b"] {
        let dir = fs::canonicalize(repo.outside()).expect("there").join("repo.worktrees/default").join(slug);
        assert_eq!(fs::read_to_string(file(&repo, slug)).expect("written").trim(), dir.display().to_string());
        assert!(!dir.exists());
    }
    assert_eq!(event(&outcome, "summary")["done"], 2);
    // The branch holds the work, and the report names it. One without work is gone.
    assert_eq!(reported(&repo, "a"), Some(repo.git(&["rev-parse", "refs/heads/pm/default/a"])));
    assert_eq!(repo.git(&["show", "pm/default/a:file"]), "two");
    assert_eq!(repo.git(&["branch", "--list", "--format=%(refname:short)"]), "main\npm/default/a");
    assert_eq!(fs::read_to_string(repo.path().join("file")).expect("read"), "one\n", "this worktree is untouched");
    assert_eq!(repo.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(), 1);
}

#[test]
fn a_worktree_with_something_uncommitted_is_kept_and_named() {
    let repo = repo();
    repo.plan("a");
    let outcome = work(&repo, &["--worktree"], "echo draft >new").ok();
    let dir = worktree(&repo, "a");
    assert!(text(&event(&outcome, "done")["kept"]).ends_with("repo.worktrees/default/a"));
    assert_eq!(fs::read_to_string(dir.join("new")).expect("kept"), "draft\n");
}

#[test]
fn the_next_attempt_takes_up_the_worktree_of_the_last() {
    let repo = repo();
    repo.plan_with("a", &["--max-attempts", "2"]);
    let script = "if [ $PM_ATTEMPT = 1 ]; then echo half >new; exit 1; fi; \
                  cat new && git add new && git commit --quiet --message new";
    let outcome = work(&repo, &["--worktree", "--on-failure", "release"], script).ok();
    assert_eq!(told(&outcome), ["started a", "failed a", "started a", "done a", "summary"]);
    assert!(text(&event(&outcome, "failed")["kept"]).ends_with("default/a"));
    assert_eq!(event(&outcome, "done")["kept"], serde_json::Value::Null);
    assert_eq!(repo.git(&["show", "pm/default/a:new"]), "half");
    // After another removed the worktree by hand, the branch is taken up.
    repo.plan("b");
    repo.git(&["branch", "pm/default/b", "pm/default/a"]);
    work(&repo, &["--worktree"], "cat new").ok();
    assert_eq!(repo.git(&["rev-parse", "pm/default/b"]), repo.git(&["rev-parse", "pm/default/a"]));
}

/// A hook of git's that keeps every `git worktree add` waiting, after it said `$OUT/hook`.
fn slow_checkouts(repo: &Repo, seconds: &str) {
    let hooks = repo.git_dir().join("hooks");
    fs::create_dir_all(&hooks).expect("created");
    let hook = hooks.join("post-checkout");
    fs::write(&hook, format!("#!/bin/sh\necho >>$OUT/hook\nsleep {seconds}\n")).expect("written");
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("made executable");
}

#[test]
fn a_claim_is_kept_alive_while_its_worktree_is_made() {
    let repo = repo();
    for slug in ["a", "b", "c"] {
        repo.plan(slug);
    }
    slow_checkouts(&repo, "1.6");
    let started = std::time::Instant::now();
    // What the command may take does not count from before it began.
    let options = ["--worktree", "--ttl", "1s", "--timeout", "1s", "--agents", "3"];
    let outcome = work(&repo, &options, "git commit --quiet --allow-empty --message x").ok();
    assert_eq!(event(&outcome, "summary")["done"], 3);
    assert!(event(&outcome, "summary")["heartbeats"].as_u64() >= Some(9), "{outcome:?}");
    assert!(started.elapsed().as_secs() < 4, "one does not wait for the other: {:?}", started.elapsed());
}

#[test]
fn a_task_that_is_taken_away_while_its_worktree_is_made_is_not_begun() {
    let repo = repo();
    repo.plan("a");
    slow_checkouts(&repo, "0.8");
    let runner = start(&repo, &["--worktree", "--ttl", "60s", "--max-tasks", "1"], "touch $OUT/ran");
    written(&repo, "hook");
    repo.pm_as("operator", &["reclaim", "--task", "a"]).ok();
    let outcome = runner.outcome().exits(12);
    assert_eq!(told(&outcome), ["lost a", "summary"]);
    assert!(!file(&repo, "ran").exists());
}

#[test]
fn what_hooks_leave_in_the_background_does_not_pile_up() {
    let repo = repo();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    slow_checkouts(&repo, "0.1 & sleep 0.1 & sleep 0");
    let runner = start(&repo, &["--worktree", "--forever"], "sleep 0.4; echo >$OUT/$PM_SLUG");
    let children = || {
        let status = |pid: u64| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = format!("PPid:\t{}\n", runner.0.id());
        let pids = fs::read_dir("/proc").expect("listed").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter(|pid| status(*pid).contains(&parent)).count()
    };
    for slug in ["a", "b"] {
        written(&repo, slug);
    }
    crate::support::until("it has no children left", || (children() == 0).then_some(()));
}

#[test]
fn a_branch_without_a_commit_of_its_own_goes_whichever_attempt_made_it() {
    let repo = repo();
    repo.plan("a");
    work(&repo, &["--worktree", "--on-failure", "release"], "[ $PM_ATTEMPT = 2 ]").ok();
    assert_eq!(repo.git(&["branch", "--list", "pm/*"]), "");
}

#[test]
fn signals_end_the_making_of_a_worktree() {
    let repo = repo();
    repo.plan("a");
    slow_checkouts(&repo, "30");
    let runner = start(&repo, &["--worktree", "--forever"], "touch $OUT/ran");
    written(&repo, "hook");
    let started = std::time::Instant::now();
    runner.signal(Signal::INT);
    runner.signal(Signal::TERM);
    let outcome = runner.outcome().ok();
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    assert_eq!(told(&outcome), ["released a", "summary"]);
    assert!(!file(&repo, "ran").exists() && !worktree(&repo, "a").exists());
    assert_eq!(repo.git(&["branch", "--list", "pm/*"]), "");
}

#[test]
fn a_worktree_that_git_failed_to_make_leaves_nothing_behind() {
    let repo = repo();
    repo.plan("a");
    slow_checkouts(&repo, "0; exit 1");
    let outcome = work(&repo, &["--worktree", "--max-tasks", "1"], "touch $OUT/ran").exits(1);
    assert_eq!(told(&outcome), ["not-started a", "summary"]);
    assert!(!worktree(&repo, "a").exists() && !file(&repo, "ran").exists());
    fs::remove_file(repo.git_dir().join("hooks/post-checkout")).expect("removed");
    work(&repo, &["--worktree"], "git commit --quiet --allow-empty --message work").ok();
    assert_eq!(repo.git(&["merge-base", "main", "pm/default/a"]), repo.git(&["rev-parse", "main"]));
}

#[test]
fn a_worktree_that_a_killed_git_left_half_made_is_made_anew() {
    let repo = repo();
    repo.plan("a");
    let options = ["--worktree", "--on-failure", "release", "--max-tasks", "1"];
    work(&repo, &options, "rm file; exit 1").exits(1);
    // As it is until the checkout is complete.
    fs::write(repo.git_dir().join("worktrees/a/locked"), "initializing\n").expect("written");
    fs::remove_file(repo.git_dir().join("worktrees/a/index")).expect("removed");
    work(&repo, &["--worktree"], "[ -e file ] && [ -z \"$(git status --porcelain)\" ]").ok();
}

#[test]
fn who_lost_the_task_while_its_worktree_was_made_leaves_it_to_the_next_holder() {
    let repo = repo();
    repo.plan("a");
    slow_checkouts(&repo, "30");
    let first = start(&repo, &["--worktree", "--ttl", "3s", "--max-tasks", "1"], "touch $OUT/ran");
    written(&repo, "hook");
    repo.pm_as("operator", &["reclaim", "--task", "a"]).ok();
    // The worktree is there already, and only the hook still runs.
    let script = "echo draft >new; echo >$OUT/drafted; until [ -e $OUT/go ]; do sleep 0.02; done; \
                  git add new && git commit --quiet --message new";
    let second = start(&repo, &["--worktree", "--max-tasks", "1"], script);
    written(&repo, "drafted");
    let outcome = first.outcome().exits(12);
    assert_eq!(told(&outcome), ["lost a", "summary"]);
    fs::write(file(&repo, "go"), "").expect("written");
    second.outcome().ok();
    assert_eq!(repo.git(&["show", "pm/default/a:new"]), "draft");
    assert_eq!(repo.git(&["merge-base", "main", "pm/default/a"]), repo.git(&["rev-parse", "main"]));
}

#[test]
fn new_files_keep_a_worktree_also_where_git_says_nothing_of_them() {
    let repo = repo();
    repo.plan("a");
    repo.git(&["config", "status.showUntrackedFiles", "no"]);
    let outcome = work(&repo, &["--worktree"], "echo precious >new").ok();
    assert!(text(&event(&outcome, "done")["kept"]).ends_with("default/a"));
    assert!(worktree(&repo, "a").join("new").exists());
}

#[test]
fn commits_that_no_branch_holds_keep_their_worktree() {
    let repo = repo();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    let script = "[ $PM_SLUG = a ] && git switch --quiet --detach || git switch --quiet --create mine; \
                  git commit --quiet --allow-empty --message work";
    let outcome = work(&repo, &["--worktree"], script).ok();
    let kept: Vec<_> = crate::support::runner::events(&outcome).iter().map(|event| event["kept"].clone()).collect();
    assert!(text(&kept[1]).ends_with("default/a"), "{kept:?}");
    let head = |dir: &str| repo.git(&["-C", dir, "rev-parse", "HEAD"]);
    assert_eq!(reported(&repo, "a"), Some(head(&worktree(&repo, "a").display().to_string())));
    // On a branch of its own the commit is safe.
    assert_eq!(reported(&repo, "b"), Some(repo.git(&["rev-parse", "mine"])));
    assert!(!worktree(&repo, "b").exists());
}

#[test]
fn a_worktree_whose_directory_was_deleted_is_made_anew() {
    let repo = repo();
    repo.plan("a");
    work(&repo, &["--worktree", "--max-tasks", "1", "--on-failure", "release"], "exit 1").exits(1);
    fs::remove_dir_all(worktree(&repo, "a")).expect("removed");
    work(&repo, &["--worktree"], "[ -e file ]").ok();
    assert_eq!(repo.phase("a"), "done");
}

#[test]
fn one_task_that_cannot_begin_does_not_keep_the_others_from_it() {
    let repo = repo();
    for slug in ["a", "b", "c", "d", "e"] {
        repo.plan(slug);
    }
    fs::create_dir_all(worktree(&repo, "a")).expect("created");
    fs::write(worktree(&repo, "a").join("in-the-way"), "").expect("written");
    // The one in the way comes back to the queue, and may be tried again before the others are done.
    let outcome = work(&repo, &["--worktree", "--max-tasks", "7"], "true").exits(1);
    assert_eq!(event(&outcome, "summary")["done"], 4);
    assert_eq!(repo.phase("a"), "new");
    assert_eq!(repo.git(&["branch", "--list", "pm/*"]), "", "no branch is left behind");
}

#[test]
fn a_worktree_that_cannot_be_made_gives_the_task_back() {
    let repo = repo();
    repo.plan("a");
    repo.git(&["checkout", "--quiet", "-b", "pm/default/a"]);
    let outcome = work(&repo, &["--worktree"], "touch $OUT/ran").exits(1).says("3 times in a row");
    assert!(told(&outcome).contains(&"not-started a".to_owned()));
    assert!(!file(&repo, "ran").exists());
    assert_eq!(repo.phase("a"), "new");
}

#[test]
fn worktrees_go_where_they_are_asked_and_names_are_escaped_as_refs_are() {
    let repo = repo();
    repo.plan("flufl.lock");
    let root = file(&repo, "trees");
    let options = ["--worktree", "--worktree-root", &root.display().to_string()];
    work(&repo, &options, "pwd >$OUT/pwd; git commit --quiet --allow-empty --message x").ok();
    let dir = fs::read_to_string(file(&repo, "pwd")).expect("written");
    assert!(dir.trim().ends_with("trees/default/flufl%2elock"), "{dir}");
    assert!(repo.git(&["branch", "--list", "pm/*"]).contains("pm/default/flufl%2elock"));
}

#[test]
fn git_of_the_caller_does_not_leak_into_a_worktree() {
    let repo = repo();
    repo.plan("a");
    let git_dir = repo.git_dir().display().to_string();
    let args = ["work", "--worktree", "--json", "--", "sh", "-c", "git rev-parse --abbrev-ref HEAD"];
    repo.pm_with(&[("GIT_DIR", &git_dir)], &args).ok();
    let body = text(&repo.pm(&["show", "--json", "--task", "a"]).json()["reports"][0]["body"]);
    assert!(body.ends_with("\n\npm/default/a\n"), "{body}");
}

#[test]
fn a_runner_works_in_a_bare_repository_and_in_a_subdirectory() {
    let bare = Repo::init(&["--bare"]);
    bare.git(&["config", "pm.durability", "process"]);
    bare.plan("a");
    work(&bare, &[], "true").ok();
    assert_eq!((bare.phase("a"), reported(&bare, "a")), ("done".to_owned(), None));

    let mut repo = repo();
    repo.plan("a");
    let below = repo.path().join("below");
    fs::create_dir(&below).expect("created");
    repo.set_path(&below);
    work(&repo, &[], "basename $(pwd)").ok();
    assert!(text(&repo.pm(&["show", "--json", "--task", "a"]).json()["reports"][0]["body"]).ends_with("\nbelow\n"));
}
