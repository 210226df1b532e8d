//! Frozen ledgers: every format that was ever released is read for ever, to the byte.
//!
//! `fixtures/ledgers/v1` was made once, by this script, with the pm that froze format 1; it is never made again. A later
//! format gets a directory and a script of its own.
//!
//! ```sh
//! set -eu  # in an empty directory, with $PM, and under `unshare --time --monotonic 1000 --fork`: a clock of nobody
//! git init --quiet --initial-branch=main .
//! git config user.name Ada; git config user.email ada@example.com
//! git config core.fsync none; git config pm.durability process
//! pm() { agent=$1; shift; "$PM" --agent "$agent" --quiet "$@" >/dev/null; }
//! tree=$(git mktree </dev/null)
//! work=$(GIT_AUTHOR_DATE='@1796000000 +0000' GIT_COMMITTER_DATE='@1796000000 +0000' git commit-tree "$tree" -m 'The work')
//! git update-ref refs/heads/main "$work"
//! printf 'all 12 tests passed\n' >"a log.txt"; printf '' >empty
//! forged=$(printf 'Above.\n\n---\nRecord: TaskStatus\nStatus: done\n\nSigned-off-by: x <x@example.com>')
//! # Every state that this format knows how to reach without a replan, and every kind of record.
//! pm planner plan --slug plain --title 'Plain' --text 'Nobody has touched it.'
//! pm planner plan --slug all --title 'Übergröße → 日本語 🦀' --text "$forged" --queue q --priority 0 \
//!     --label b --label a:1 --ttl 90s --max-attempts 3 --depends-on default/plain
//! pm planner plan --slug done --title 'Record: TaskStatus'
//! pm w1 executing --task done --ttl 1500ms
//! pm w1 heartbeat --task done
//! pm w1 heartbeat --task done --progress 'half of it \ and a
//! second line '
//! pm w1 report --task done --title 'First try' --text "$forged"
//! pm w1 heartbeat --task done
//! pm w1 report --task done --title 'It works' --commit main --attach 'a log.txt' --attach empty
//! pm w1 finished --task done --note ' well done'
//! pm planner plan --slug rejected --title 'Impossible'
//! pm w1 executing --task rejected
//! pm w1 report --task rejected --title 'It cannot be done'
//! pm w1 finished --task rejected --rejected
//! pm planner plan --slug released --title 'Given back, then held'
//! pm w1 executing --task released
//! pm w1 heartbeat --task released
//! pm w1 release --task released --reason 'it rains'
//! pm host.example:8/a@b+c-d_e executing --task released --ttl 1h
//! pm host.example:8/a@b+c-d_e report --task released --title 'So far'
//! pm host.example:8/a@b+c-d_e heartbeat --task released
//! pm planner plan --slug swept --title 'Swept, after a report and without one' --max-attempts 2
//! pm w1 executing --task swept; pm w1 report --task swept --title 'Half'; sleep 0.01
//! pm sweeper sweep --ttl 1ms
//! pm w1 executing --task swept; sleep 0.01
//! pm sweeper sweep --ttl 1ms
//! pm planner plan --slug deadly --title 'Kills every worker' --max-attempts 2
//! pm w1 executing --task deadly; sleep 0.01; pm sweeper sweep --ttl 1ms
//! pm w2 executing --task deadly; sleep 0.01; pm sweeper sweep --ttl 1ms
//! pm planner plan --slug reclaimed --title 'Taken by an operator'
//! pm w1 executing --task reclaimed
//! pm boss reclaim --task reclaimed --reason 'the machine burns'
//! for slug in python3-flufl.lock con nul.x ends. libstdc++6; do pm planner plan --slug "$slug" --title "Odd: $slug"; done
//! pm w1 executing --task python3-flufl.lock
//! pm planner plan --queue aux --slug prn.lock --title 'Odd, in an odd queue'
//! printf '%s\n' '{"slug":"second","title":"Second","depends_on_slugs":["first","done"],"labels":["batch"]}' \
//!     '{"slug":"first","title":"First","text":"Of a batch.","priority":4}' | pm planner bulk-plan --input -
//! git gc --quiet
//! git fast-export --all --reencode=no >ledger.fast-export
//! # Then, with that file in its place: FREEZE=overwrite cargo test --test it frozen
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pm::id::{RecordId, RefName};
use pm::protocol::{apply, codec};
use pm::store::Store;
use pm::store::git::GitStore;
use serde_json::{Value, json};
use snapbox::data::DataFormat;
use snapbox::{Assert, Data};

use crate::support::{Repo, text};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/ledgers/v1").join(name)
}

/// A repository that holds the frozen ledger.
fn thawed() -> Repo {
    let repo = Repo::new();
    let export = std::fs::read(fixture("ledger.fast-export")).expect("the frozen ledger");
    repo.git_fed(&export, &["fast-import", "--quiet"]);
    repo
}

/// The states of all tasks, without what depends on the time of reading.
fn states(repo: &Repo) -> Value {
    let mut list = repo.pm(&["list", "--json"]).json();
    for task in list["tasks"].as_array_mut().expect("an array") {
        let state = task["state"].as_object_mut().expect("an object");
        for field in ["age_ms", "lease_left_ms"] {
            state.remove(field).expect("a field that depends on the time");
        }
    }
    list
}

#[test]
fn every_ref_state_and_record_of_the_frozen_ledger_is_read_as_it_was_written() {
    let repo = thawed();
    let refs = repo.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/pm"]);
    let refs: BTreeMap<&str, &str> = refs.lines().filter_map(|line| line.split_once(' ')).collect();
    let told = json!({
        "refs": refs,
        "states": states(&repo),
        "records": repo.pm(&["log", "--json"]).json(),
        "verify": repo.pm(&["verify", "--json"]).json(),
    });
    let expected = Data::read_from(&fixture("ledger.json"), Some(DataFormat::Text)).raw();
    // Not with the other snapshots: this one is not to be overwritten by accident.
    Assert::new().action_env("FREEZE").eq(Data::text(format!("{told:#}\n")).raw(), expected);
    repo.assert_sound();
}

#[test]
fn every_record_of_the_frozen_ledger_would_be_written_to_the_same_bytes_today() {
    let repo = thawed();
    let store = GitStore::discover(repo.path()).expect("usable");
    let mut records = 0;
    for (name, tip) in store.tips("refs/pm/").expect("listed") {
        let mut next = Some(RecordId(tip.expect("whole")));
        let mut chain = Vec::new();
        while let Some(id) = next {
            let commit = store.read_commit(id.0).expect("readable");
            let record = codec::decode(&commit).expect("a record");
            assert_eq!(codec::encode(&record, commit.committer.clone()), commit, "{name}: {id}");
            assert_eq!(store.write_commit(&commit).expect("written"), id.0, "{name}");
            next = record.parent;
            chain.push((id, record));
            records += 1;
        }
        let fold = |state, (id, record): &(RecordId, _)| Some(apply::apply(state, *id, record).expect("valid"));
        let state = chain.iter().rev().fold(None, fold).expect("a chain has a record");
        apply::end(&state).expect("a whole chain");
        assert_eq!(RefName::of_task(&state.task.queue, &state.task.slug), name);
    }
    assert!(records > 50, "{records}");
}

#[test]
fn the_frozen_ledger_holds_every_state_kind_and_mark_that_this_pm_can_write() {
    let repo = thawed();
    let export = std::fs::read_to_string(fixture("ledger.fast-export")).expect("text");
    for line in [
        "Record: Task",
        "Record: TaskStatus",
        "Record: TaskReport",
        "Record: TaskHeartbeat",
        "Format: 1",
        "Status: new",
        "Status: working",
        "Status: done",
        "Status: rejected",
        "Reclaimed: true",
        "Released: true",
        "Synthetic: true",
        "Preempt: true",
        "Ttl: 90s",
        "Ttl: 1500ms",
        "Max-Attempts: 3",
        "Label: a:1",
        "Priority: 0",
    ] {
        assert!(export.lines().any(|found| found == line), "{line}");
    }
    for key in [
        "Depends-On",
        "Proof",
        "Reason",
        "Progress",
        "Commit",
        "Prev-Report",
        "Prev-Heartbeat",
        "Prev-Status",
        "Claim-Status",
        "Clock",
    ] {
        assert!(export.lines().any(|found| found.starts_with(&format!("{key}: "))), "{key}");
    }
    let report = repo.git(&["log", "-1", "--skip=1", "--format=%H", "refs/pm/tasks/default/done"]);
    assert_eq!(repo.git(&["show", &format!("{report}:a log.txt")]), "all 12 tests passed");
}

#[test]
fn work_goes_on_in_a_frozen_ledger() {
    let repo = thawed();
    // Claims of another boot are watched; those that were swept before can be claimed at once.
    let told = repo.pm(&["sweep", "--json", "--ttl", "1h"]).json();
    assert_eq!(
        (told["reclaimed"].as_array().map(Vec::len), told["observing"].as_array().map(Vec::len)),
        (Some(0), Some(2))
    );
    repo.work_off("plain");
    assert_eq!(text(&repo.pm(&["pull", "--json", "--queue", "q"]).json()["task"]["attributes"]["slug"]), "all");
    repo.work_off("swept");
    repo.pm_as("boss", &["reclaim", "--task", "python3-flufl.lock"]).ok();
    repo.work_off("python3-flufl.lock");
    repo.pm(&["executing", "--task", "deadly"]).fails(6);
    repo.assert_sound();
}
