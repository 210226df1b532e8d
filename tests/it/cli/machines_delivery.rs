//! A branch moves together with the record that closes its task, or not at all: at a hub, and in one repository.

use crate::support::fleet::{REMOTE, assert_level, killed_on_its_way, lost, own, refs_at, two};
use crate::support::servers::Hub;
use crate::support::{Repo, task_ref, text};

/// A hub with a branch `main`, and two machines that have it; the first has claimed and reported `t`.
fn world() -> (Hub, Repo, Repo) {
    let (hub, a, b) = two();
    commit(&a, "base");
    a.git(&["push", "--quiet", "origin", "HEAD:refs/heads/main"]);
    b.git(&["fetch", "--quiet", "origin"]);
    b.git(&["checkout", "--quiet", "-B", "main", "origin/main"]);
    a.plan("t");
    a.claim("t");
    a.pm(&["report", "--task", "t", "--title", "T"]).ok();
    (hub, a, b)
}

/// Commits something, and returns it.
fn commit(repo: &Repo, what: &str) -> String {
    repo.git(&["commit", "--quiet", "--allow-empty", "--message", what]);
    repo.git(&["rev-parse", "HEAD"])
}

fn main_at(hub: &Hub) -> String {
    hub.tip("refs/heads/main").expect("a branch")
}

const FINISH: [&str; 5] = ["finished", "--task", "t", "--deliver", "main"];

#[test]
fn work_and_record_reach_the_hub_together() {
    let (hub, a, _) = world();
    let work = commit(&a, "work");
    a.pm(&FINISH).ok();
    assert_eq!(main_at(&hub), work);
    assert_eq!(a.phase("t"), "done");
    assert_level(&hub, &a, "t");
    assert_eq!(own(&a, "refs/pm-pending"), "");
}

#[test]
fn what_the_report_names_is_delivered_and_not_what_is_checked_out() {
    let (hub, a, _) = world();
    let work = commit(&a, "work");
    a.pm(&["report", "--task", "t", "--title", "T", "--commit", "HEAD"]).ok();
    commit(&a, "something else");
    a.pm(&FINISH).ok();
    assert_eq!(main_at(&hub), work);
}

#[test]
fn a_zombie_moves_neither_record_nor_branch() {
    let (hub, a, b) = world();
    commit(&a, "work of a zombie");
    b.pm_as("w2", &["sync"]).ok();
    b.pm_as("w2", &["reclaim", "--task", "t"]).ok();
    b.claim_as("w2", "t");
    let there = (refs_at(&hub), main_at(&hub));
    a.pm(&FINISH).fails(12).says("w2");
    assert_eq!((refs_at(&hub), main_at(&hub)), there);
    // It knows now, and is told so again.
    a.pm(&FINISH).fails(12);
    assert_eq!((refs_at(&hub), main_at(&hub)), there);
}

#[test]
fn a_branch_that_moved_on_refuses_both_and_takes_both_after_a_rebase() {
    let (hub, a, b) = world();
    commit(&a, "work");
    let others = commit(&b, "others' work");
    b.git(&["push", "--quiet", "origin", "HEAD:refs/heads/main"]);
    let error = a.pm(&[&FINISH[..], &["--json"]].concat()).fails(23).error();
    assert_eq!((&error["code"], &error["branch"]), (&"delivery_refused".into(), &"refs/heads/main".into()));
    assert_eq!((main_at(&hub), a.phase("t").as_str()), (others, "working"));
    assert_eq!(own(&a, "refs/pm-pending"), "", "nothing is on its way");
    a.git(&["pull", "--quiet", "--rebase", "origin", "main"]);
    a.pm(&FINISH).ok();
    assert_eq!(main_at(&hub), a.git(&["rev-parse", "HEAD"]));
    assert_level(&hub, &a, "t");
}

#[test]
fn a_branch_that_may_not_be_moved_says_what_the_hub_said() {
    let (hub, a, _) = world();
    commit(&a, "work");
    let hook = "#!/bin/sh\n[ \"$1\" != refs/heads/main ] || { echo protected >&2; exit 1; }\n";
    let path = hub.path().join("hooks/update");
    std::fs::create_dir_all(hub.path().join("hooks")).expect("made");
    std::fs::write(&path, hook).expect("written");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    a.pm(&FINISH).fails(23).says("protected");
    assert_eq!(a.phase("t"), "working");
}

#[test]
fn a_delivery_that_was_cut_off_is_delivered_whole_by_the_same_command_again() {
    for is_settled_by_another in [false, true] {
        let (hub, a, _) = world();
        let work = commit(&a, "work");
        let before = main_at(&hub);
        let record = killed_on_its_way(&hub, &a, &FINISH);
        let noted = format!("refs/pm-pending-branches/default/t/refs/heads/main {work}");
        assert_eq!((own(&a, "refs/pm-pending-branches"), main_at(&hub)), (noted, before));
        if is_settled_by_another {
            a.pm(&["sync"]).ok();
            assert_eq!(main_at(&hub), work);
        }
        let again = a.pm(&[&FINISH[..], &["--json"]].concat()).json();
        assert_eq!(text(&again["sha"]), record, "that same record");
        assert_eq!(again["delivered"], serde_json::json!({"branch": "main", "commit": work}));
        assert_eq!(main_at(&hub), work);
        assert_level(&hub, &a, "t");
        for left in ["refs/pm-pending", "refs/pm-pending-branches", "refs/pm-answers"] {
            assert_eq!(own(&a, left), "");
        }
    }
}

#[test]
fn a_branch_that_moves_on_while_a_delivery_is_on_its_way_frees_the_task() {
    let (hub, a, b) = world();
    commit(&a, "work");
    let record = killed_on_its_way(&hub, &a, &FINISH);
    // Somebody else was faster with the branch: what was sent from its old value can never get in.
    b.git(&["fetch", "--quiet", REMOTE, "main"]);
    b.git(&["reset", "--quiet", "--hard", "FETCH_HEAD"]);
    let theirs = commit(&b, "theirs");
    b.git(&["push", "--quiet", REMOTE, "HEAD:main"]);
    a.pm(&FINISH).fails(23).says("it has moved on");
    assert_eq!((own(&a, "refs/pm-pending"), lost(&a, "t")[0].0.as_str()), (String::new(), record.as_str()));
    assert_eq!((main_at(&hub), a.phase("t").as_str()), (theirs, "working"));
    // Rebased, all of it gets in.
    a.git(&["fetch", "--quiet", REMOTE, "main"]);
    a.git(&["rebase", "--quiet", "FETCH_HEAD"]);
    let work = a.git(&["rev-parse", "HEAD"]);
    a.pm(&["report", "--task", "t", "--title", "rebased", "--commit", "HEAD"]).ok();
    a.pm(&FINISH).ok();
    assert_eq!((main_at(&hub), a.phase("t").as_str()), (work, "done"));
}

#[test]
fn a_record_that_was_sent_without_a_branch_is_no_answer_for_one_with_it() {
    let (hub, a, _) = world();
    commit(&a, "work");
    let before = main_at(&hub);
    killed_on_its_way(&hub, &a, &["finished", "--task", "t"]);
    a.pm(&FINISH).fails(23).says("did not deliver");
    assert_eq!((main_at(&hub), a.phase("t").as_str()), (before, "done"));
}

#[test]
fn a_claim_that_never_reached_the_hub_gives_no_fence() {
    let (_hub, a, _) = world();
    a.pm(&["plan", "--title", "P", "--slug", "p", "--offline"]).ok();
    let claim = a.pm(&["executing", "--task", "p", "--offline", "--json"]).json();
    assert_eq!((&claim["provisional"], &claim["fence"]), (&true.into(), &serde_json::Value::Null));
    a.pm(&["fence", "--task", "p", "--claim", &text(&claim["sha"])]).fails(17).says("provisional");
    a.pm(&["fence", "--task", "p", "--claim", &text(&claim["sha"]), "--offline"]).fails(2);
}

#[test]
fn a_sync_that_finishes_a_delivery_delivers_the_branch_with_it() {
    let (hub, a, _) = world();
    let work = commit(&a, "work");
    killed_on_its_way(&hub, &a, &FINISH);
    a.pm(&["sync"]).ok();
    assert_eq!((main_at(&hub), a.phase("t").as_str()), (work, "done"));
    assert_level(&hub, &a, "t");
}

#[test]
fn a_delivery_cannot_be_offline_and_wants_a_branch() {
    let (hub, a, _) = world();
    let there = refs_at(&hub);
    a.pm(&[&FINISH[..], &["--offline"]].concat()).fails(2).says("offline");
    for branch in ["-f", "a..b", "", "x y"] {
        a.pm(&["finished", "--task", "t", "--deliver", branch]).fails(2);
    }
    a.pm(&["finished", "--task", "t", "--deliver", "main", "--rejected"]).fails(2);
    assert_eq!((refs_at(&hub), a.phase("t").as_str()), (there, "working"));
}

/// One repository with a claimed and reported task, standing on a branch `work` above `main`.
fn alone() -> Repo {
    let repo = Repo::new();
    commit(&repo, "base");
    repo.git(&["checkout", "--quiet", "-b", "work"]);
    commit(&repo, "work");
    repo.plan("t");
    repo.claim("t");
    repo.pm(&["report", "--task", "t", "--title", "T"]).ok();
    repo
}

#[test]
fn in_one_repository_the_branch_moves_with_the_record() {
    let repo = alone();
    repo.pm(&FINISH).ok();
    assert_eq!(repo.git(&["rev-parse", "main"]), repo.git(&["rev-parse", "work"]));
    assert_eq!(repo.phase("t"), "done");
    assert!(repo.git(&["reflog", "main"]).contains("pm: delivered"), "the branch's own history says who moved it");
    repo.assert_sound();
}

#[test]
fn in_one_repository_neither_moves_where_one_cannot() {
    let repo = alone();
    let before = repo.git(&["for-each-ref"]);
    // A zombie.
    repo.pm_as("w2", &["finished", "--task", "t", "--deliver", "main"]).fails(12);
    assert_eq!(repo.git(&["for-each-ref"]), before);
    // A branch that is checked out elsewhere.
    let elsewhere = repo.outside().join("elsewhere").display().to_string();
    repo.git(&["worktree", "add", "--quiet", &elsewhere, "main"]);
    repo.pm(&FINISH).fails(23).says("checked out");
    // One that has moved on.
    repo.git(&["-C", &elsewhere, "commit", "--quiet", "--allow-empty", "--message", "others"]);
    let before = repo.git(&["for-each-ref"]);
    repo.pm(&FINISH).fails(23).says("moved on");
    assert_eq!(repo.git(&["for-each-ref"]), before);
    assert!(!repo.git_dir().join(format!("{}.lock", task_ref("t"))).exists());
    repo.git(&["worktree", "remove", "--force", &elsewhere]);
    repo.git(&["rebase", "--quiet", "main"]);
    repo.pm(&FINISH).ok();
    assert_eq!(repo.git(&["rev-parse", "main"]), repo.git(&["rev-parse", "work"]));
}

#[test]
fn a_runner_delivers_what_is_committed_and_gives_back_what_is_not_on_top() {
    let (hub, a, _) = world();
    a.pm(&["release", "--task", "t"]).ok();
    a.plan("u");
    let job = "git fetch -q origin && git rebase -q origin/main && date +%N >$PM_SLUG && git add . && git commit -qm $PM_SLUG";
    let args = ["work", "--agents", "2", "--worktree", "--deliver", "main", "--", "sh", "-c", job];
    a.git(&["fetch", "--quiet", "origin"]);
    a.pm(&args);
    // One may have lost to the other, and was given back until it had been put on top.
    assert_eq!((a.phase("t").as_str(), a.phase("u").as_str()), ("done", "done"));
    let log = hub.git(&["log", "--format=%s", "main"]);
    let mut delivered: Vec<&str> = log.lines().filter(|line| ["t", "u"].contains(line)).collect();
    delivered.sort_unstable();
    delivered.dedup();
    assert_eq!(delivered, ["t", "u"], "{log}");
}
