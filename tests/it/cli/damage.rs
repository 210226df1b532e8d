//! Damage: it is named, nothing is moved, and the other tasks go on.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::{Repo, task_ref, text};

/// A ledger of three tasks; `broken` is about to be damaged, and `dependent` waits for it.
fn ledger() -> Repo {
    let repo = Repo::new();
    repo.plan("broken");
    repo.plan_with("dependent", &["--depends-on", "broken"]);
    repo.plan("healthy");
    repo
}

/// The file of a loose object.
pub(super) fn object_file(repo: &Repo, id: &str) -> PathBuf {
    repo.git_dir().join("objects").join(&id[..2]).join(&id[2..])
}

/// Asserts that the damage of one task (`ref_name`) is named by everything that meets it and stops nothing else.
/// `found` is what its name must come with.
fn check(repo: &Repo, ref_name: &str, found: &str) {
    let before = std::fs::read_to_string(repo.git_dir().join(ref_name)).expect("a loose ref");
    let slug = ref_name.rsplit('/').next().expect("a slug");

    // Whoever asks for that very task is told.
    for args in [
        &["show", "--task", slug][..],
        &["executing", "--task", slug],
        &["heartbeat", "--task", slug],
        &["report", "--task", slug, "--title", "T"],
        &["release", "--task", slug],
        &["finished", "--task", slug],
        &["reclaim", "--task", slug],
        &["plan", "--title", "T", "--slug", slug],
    ] {
        repo.pm(args).fails(19).says(ref_name).says(found);
        let error = repo.pm(&[args, &["--json"]].concat()).fails(19).error();
        assert_eq!(error["code"], "damaged");
    }

    // Whoever asks for all of them is warned, and gets the others.
    for args in
        [&["next"][..], &["list"], &["status"], &["queues"], &["owned"], &["sweep"], &["next", "--all"], &["log"]]
    {
        let outcome = repo.pm(args).ok().says(ref_name);
        assert!(outcome.stderr.starts_with("warning: "), "{outcome:?}");
    }
    let list = repo.pm(&["list", "--json"]).ok();
    let list: Value = serde_json::from_str(&list.stdout).expect("JSON");
    assert_eq!(list["damaged"][0]["ref"], ref_name);
    let slugs: Vec<String> =
        list["tasks"].as_array().expect("an array").iter().map(|task| text(&task["slug"])).collect();
    assert!(slugs.contains(&"healthy".to_owned()) && slugs.contains(&"dependent".to_owned()), "{slugs:?}");

    // The damaged task is never handed out, nor is one that waits for it; the healthy one is.
    assert_eq!(repo.pm(&["next", "--json"]).stdout_json()["attributes"]["slug"], "healthy");
    assert_eq!(repo.pm(&["pull", "--json"]).stdout_json()["task"]["attributes"]["slug"], "healthy");
    repo.pm(&["heartbeat", "--task", "healthy"]).ok();
    repo.pm(&["report", "--task", "healthy", "--title", "T"]).ok();
    // It may be an open child of anybody; but this one has no children that are known.
    repo.pm(&["finished", "--task", "healthy"]).ok();
    assert_eq!(repo.pm(&["pull", "--json"]).stdout_json(), Value::Null);
    repo.pm(&["show", "--task", "dependent"]).ok();
    repo.pm(&["plan", "--title", "One more"]).ok();
    repo.pm_fed("{\"title\":\"Two more\"}", &["bulk-plan", "--input", "-"]).ok();

    let verify = repo.pm(&["verify", "--json"]).exits(19).stdout_json();
    let faults = verify["faults"].as_array().expect("an array");
    assert!(!faults.is_empty() && faults.iter().all(|fault| fault["ref"] == ref_name), "{verify}");
    assert!(faults.iter().any(|fault| text(&fault["found"]).contains(found)), "{verify}");
    repo.pm(&["verify", "--task", slug]).exits(19);
    repo.pm(&["verify", "--task", "healthy"]).ok();

    let after = std::fs::read_to_string(repo.git_dir().join(ref_name)).expect("a loose ref");
    assert_eq!(after, before, "nothing was moved");
}

#[test]
fn a_ref_whose_object_is_missing_is_named() {
    let repo = ledger();
    std::fs::remove_file(object_file(&repo, &repo.tip("broken"))).expect("a loose object");
    check(&repo, &task_ref("broken"), "the object is missing");
}

#[test]
fn a_ref_to_an_id_that_never_was_is_named() {
    let repo = ledger();
    let id = "0123456789012345678901234567890123456789";
    std::fs::write(repo.git_dir().join(task_ref("broken")), format!("{id}\n")).expect("written");
    check(&repo, &task_ref("broken"), "the object is missing");
}

#[test]
fn a_foreign_commit_at_a_ref_is_named() {
    let repo = ledger();
    let foreign = repo.git(&["commit-tree", &repo.git_fed(b"", &["mktree"]), "-m", "code"]);
    repo.git(&["update-ref", &task_ref("broken"), &foreign]);
    check(&repo, &task_ref("broken"), "it is no record of pm");
}

#[test]
fn a_tree_at_a_ref_is_named() {
    let repo = ledger();
    let tree = repo.git_fed(b"", &["mktree"]);
    repo.git(&["update-ref", &task_ref("broken"), &tree]);
    check(&repo, &task_ref("broken"), "it is a tree, not a commit");
}

#[test]
fn garbage_in_a_ref_file_is_named() {
    for garbage in ["garbage", "", "ref: refs/heads/main\n"] {
        let repo = ledger();
        std::fs::write(repo.git_dir().join(task_ref("broken")), garbage).expect("written");
        check(&repo, &task_ref("broken"), "does not hold an object id");
    }
}

#[test]
fn the_record_of_another_task_at_a_ref_is_named() {
    let repo = ledger();
    let other = repo.tip("healthy");
    repo.git(&["update-ref", &task_ref("broken"), &other]);
    check(&repo, &task_ref("broken"), "its chain belongs to refs/pm/tasks/default/healthy");
}

#[test]
fn a_second_ref_to_a_task_is_named_and_the_first_goes_on() {
    let repo = ledger();
    repo.work_off("broken");
    let tip = repo.tip("broken");
    let second = "refs/pm/tasks/default/second";
    repo.git(&["update-ref", second, &tip]);
    repo.pm(&["executing", "--task", "second"]).fails(19).says("belongs to refs/pm/tasks/default/broken");
    repo.pm(&["list"]).ok().says(second);
    assert_eq!(repo.phase("broken"), "done");
    let verify = repo.pm(&["verify", "--json"]).exits(19).stdout_json();
    assert_eq!(verify["faults"].as_array().map(Vec::len), Some(1));
    assert_eq!((&verify["faults"][0]["ref"], &verify["faults"][0]["rule"]), (&second.into(), &"place".into()));
    assert_eq!(repo.pm(&["pull", "--json"]).stdout_json()["task"]["attributes"]["slug"], "dependent");
}

#[test]
fn a_ref_that_is_not_spelled_as_pm_spells_it_is_named() {
    let repo = ledger();
    let tip = repo.tip("healthy");
    for stray in ["refs/pm/tasks/default/Healthy", "refs/pm/tasks/stray", "refs/pm/tasks/default/deep/er"] {
        repo.git(&["update-ref", stray, &tip]);
        repo.pm(&["list"]).ok().says(stray);
        repo.pm(&["verify"]).exits(19);
        repo.git(&["update-ref", "-d", stray]);
    }
    repo.pm(&["verify"]).ok();
}

#[test]
fn a_record_that_breaks_a_rule_deep_in_a_chain_is_found_by_verify() {
    let repo = ledger();
    repo.claim("healthy");
    let tip = repo.tip("healthy");
    // A heartbeat by somebody who does not hold the task, with everything else in order.
    let raw = repo.git(&["cat-file", "commit", &tip]);
    repo.pm(&["heartbeat", "--task", "healthy"]).ok();
    let beat = repo.git(&["cat-file", "commit", &repo.tip("healthy")]);
    assert_ne!(raw, beat);
    let forged = format!("{}\n", beat.replace("author w1 ", "author w2 "));
    let forged = repo.git_fed(forged.as_bytes(), &["hash-object", "-t", "commit", "-w", "--stdin"]);
    repo.git(&["update-ref", &task_ref("healthy"), &forged]);
    let verify = repo.pm(&["verify", "--json"]).exits(19).stdout_json();
    assert_eq!(verify["faults"][0]["commit"], forged.as_str());
    assert_eq!(verify["faults"][0]["rule"], "holder");
}

#[test]
fn a_format_from_the_future_is_refused() {
    let repo = ledger();
    let raw = repo.git(&["cat-file", "commit", &format!("{}~", task_ref("broken"))]);
    let future = format!("{}\n", raw.replace("Format: 1", "Format: 2"));
    let future = repo.git_fed(future.as_bytes(), &["hash-object", "-t", "commit", "-w", "--stdin"]);
    repo.git(&["update-ref", &task_ref("broken"), &future]);
    check(&repo, &task_ref("broken"), "use a newer pm");
}

#[test]
fn work_that_is_gone_is_told_by_verify_and_is_no_fault_of_the_ledger() {
    let repo = ledger();
    repo.claim("healthy");
    let work = repo.git(&["commit-tree", &repo.git_fed(b"", &["mktree"]), "-m", "work"]);
    let report = ["report", "--json", "--task", "healthy", "--title", "T", "--commit", &work];
    let report = text(&repo.pm(&report).json()["sha"]);
    std::fs::remove_file(object_file(&repo, &work)).expect("a loose object");
    let verify = repo.pm(&["verify", "--json"]).json();
    assert_eq!(verify["gone"], serde_json::json!([{"ref": task_ref("healthy"), "report": report, "work": work}]));
}

#[test]
fn a_damaged_object_is_named_and_no_bytes_make_pm_panic() {
    let repo = ledger();
    let path = object_file(&repo, &repo.tip("broken"));
    let whole = std::fs::read(&path).expect("a loose object");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x40;
    let cut = |len: usize| whole[..len].to_vec();
    for bytes in [cut(0), cut(1), cut(10), cut(whole.len() / 2), cut(whole.len() - 10), flipped, vec![b'x'; 300]] {
        std::fs::remove_file(&path).expect("removable");
        std::fs::write(&path, &bytes).expect("written");
        let outcome = repo.pm(&["show", "--task", "broken"]).fails(19).says("broken");
        assert!(!outcome.stderr.contains("panicked"), "{outcome:?}");
        repo.pm(&["list"]).ok().says("broken");
        assert_eq!(repo.pm(&["next", "--json"]).stdout_json()["attributes"]["slug"], "healthy");
        repo.pm(&["verify"]).exits(19);
    }
}

#[test]
fn bytes_that_do_not_hash_to_their_id_are_found_by_verify_as_by_git_fsck() {
    let repo = ledger();
    repo.claim("broken");
    let tip = repo.tip("broken");
    // A well-formed record by another holder, put under the name of the true one: no link and no ref changes.
    let forged = format!("{}\n", repo.git(&["cat-file", "commit", &tip])).replace("author w1 ", "author w2 ");
    let forged = repo.git_fed(forged.as_bytes(), &["hash-object", "-t", "commit", "-w", "--stdin"]);
    std::fs::rename(object_file(&repo, &forged), object_file(&repo, &tip)).expect("replaced");
    assert_ne!(repo.git_outcome(&["fsck"]).code, 0);
    let verify = repo.pm(&["verify", "--json"]).exits(19).stdout_json();
    assert_eq!(verify["faults"][0]["commit"], tip.as_str());
}
