//! Every exit code that this build can give: stdout, stderr and code together, for people and as JSON.

use pm::exit_code::ExitCode;

use crate::support::redact::Redactor;
use crate::support::snapshot::{self, transcript};
use crate::support::{AGENT, Outcome, Repo, task_ref};

/// Runs commands that change nothing, each as text and with `--json`, and compares both with the snapshot of `code`.
fn check(code: ExitCode, repo: &Repo, redactor: Redactor, commands: &[(&str, &[&str])]) {
    let mut outcomes = Vec::new();
    for (agent, args) in commands {
        let as_text = repo.pm_as(agent, args).exits(i32::from(code.number()));
        let as_json = repo.pm_as(agent, &[args, &["--json"][..]].concat()).exits(i32::from(code.number()));
        check_error_object(code, &as_json);
        outcomes.extend([as_text, as_json]);
    }
    compare(code, redactor, &outcomes);
}

/// With `--json` a failure leaves stdout empty, and its object on stderr carries the code twice.
fn check_error_object(code: ExitCode, outcome: &Outcome) {
    // These two are results, not errors: open claims, and the findings of `verify`.
    if code == ExitCode::Done || !outcome.stdout.is_empty() {
        outcome.stdout_json();
        return;
    }
    let error = outcome.error();
    assert_eq!(error["code"], code.name(), "{outcome:?}");
    assert_eq!(error["exit"], code.number(), "{outcome:?}");
    assert!(error["message"].is_string(), "{outcome:?}");
}

fn compare(code: ExitCode, mut redactor: Redactor, outcomes: &[Outcome]) {
    let name = format!("exit-codes/{:02}-{}.txt", code.number(), code.name());
    snapshot::check(&name, &transcript(&mut redactor, outcomes));
}

fn place(repo: &Repo) -> Redactor {
    Redactor::new().place(repo.path(), "<repo>").place(repo.outside(), "<outside>")
}

#[test]
fn exit_0_means_done_also_when_there_was_nothing_to_do() {
    let repo = Repo::new();
    let commands: [&[&str]; 6] = [&["next"], &["pull"], &["list"], &["owned", "--strict"], &["sweep"], &["verify"]];
    check(ExitCode::Done, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_1_means_an_unexpected_failure_or_open_claims_under_strict_or_that_the_time_is_over() {
    let repo = Repo::new();
    let task = repo.plan("a");
    repo.claim(&task);
    std::fs::write(repo.path().join("file"), "").expect("written");
    let commands: [&[&str]; 3] =
        [&["owned", "--strict"], &["man", "file/below"], &["wait", "--task", "a", "--timeout", "1ms"]];
    check(ExitCode::Failure, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_2_means_a_wrong_call() {
    let repo = Repo::new();
    repo.plan("a");
    std::fs::write(repo.path().join("plan"), "{\"slug\":\"b\",\"title\":\"B\",\"priority\":9}\n{\"title\":\"\"}\nx\n")
        .expect("written");
    let commands: [&[&str]; 10] = [
        &["plan"],
        &["frobnicate"],
        &["plan", "--title", "two\nlines"],
        &["plan", "--title", "A", "--slug", "a/b"],
        &["plan", "--title", "A", "--priority", "5"],
        &["plan", "--title", "A", "--ttl", "soon"],
        &["list", "--agent", "two words"],
        &["report", "--task", "a", "--title", "T", "--text-file", "absent"],
        &["bulk-plan", "--input", "plan"],
        &["log", "--since", "yesterday"],
    ];
    check(ExitCode::Usage, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_4_means_that_the_slug_is_taken() {
    let repo = Repo::new();
    repo.plan("a");
    std::fs::write(repo.path().join("plan"), "{\"slug\":\"a\",\"title\":\"Other\",\"labels\":[\"x\"]}")
        .expect("written");
    check(
        ExitCode::SlugTaken,
        &repo,
        place(&repo),
        &[(AGENT, &["plan", "--title", "Do a", "--slug", "a"]), (AGENT, &["bulk-plan", "--input", "plan"])],
    );
}

#[test]
fn exit_5_means_that_the_parent_has_no_status() {
    let repo = Repo::new();
    let task = repo.plan("half");
    repo.git(&["update-ref", &task_ref("half"), &task]);
    let commands: [&[&str]; 1] = [&["plan", "--title", "T", "--parent", "half"]];
    check(ExitCode::ParentWithoutStatus, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_6_means_that_the_task_is_in_the_wrong_phase() {
    let repo = Repo::new();
    for slug in ["new", "working", "done"] {
        repo.plan(slug);
    }
    repo.claim("working");
    repo.work_off("done");
    let commands: [(&str, &[&str]); 8] = [
        (AGENT, &["executing", "--task", "working"]),
        ("w2", &["executing", "--task", "working"]),
        (AGENT, &["executing", "--task", "done"]),
        (AGENT, &["heartbeat", "--task", "new"]),
        (AGENT, &["report", "--task", "done", "--title", "Late"]),
        (AGENT, &["release", "--task", "new"]),
        (AGENT, &["reclaim", "--task", "new"]),
        (AGENT, &["wait", "--task", "done", "--status", "working"]),
    ];
    check(ExitCode::WrongPhase, &repo, place(&repo), &commands);
}

#[test]
fn exit_7_means_that_there_is_no_report_under_this_very_claim() {
    let repo = Repo::new();
    let task = repo.plan("a");
    repo.claim(&task);
    repo.pm(&["report", "--task", "a", "--title", "Of the first attempt"]).ok();
    repo.pm(&["release", "--task", "a"]).ok();
    repo.claim(&task);
    check(
        ExitCode::NoReport,
        &repo,
        place(&repo),
        &[(AGENT, &["finished", "--task", "a"]), (AGENT, &["finished", "--task", "a", "--rejected"])],
    );
}

#[test]
fn exit_8_means_that_the_task_has_moved_on() {
    let repo = Repo::new();
    let task = repo.plan("a");
    let observed = repo.claim(&task);
    repo.pm(&["heartbeat", "--task", "a"]).ok();
    check(
        ExitCode::RaceLost,
        &repo,
        place(&repo),
        &[
            (AGENT, &["reclaim", "--task", "a", "--if-tip", &observed]),
            ("supervisor", &["reclaim", "--task", "a", "--if-tip", &observed]),
        ],
    );
}

/// A task that is held, with a report, and whose verifier is this command.
fn reported(verifier: &str) -> Repo {
    let repo = Repo::new();
    repo.plan_with("a", &["--verifier", verifier]);
    repo.claim("a");
    repo.pm(&["report", "--task", "a", "--title", "It is done"]).ok();
    repo
}

#[test]
fn exit_9_means_that_the_verifier_failed_or_is_not_allowed() {
    let commands: [&[&str]; 1] = [&["finished", "--task", "a"]];
    let repo = reported("echo it is red; exit 3");
    let mut outcomes = Vec::new();
    for is_allowed in [false, true] {
        if is_allowed {
            repo.git(&["config", "--add", "pm.allowVerifier", "echo it is red; exit 3"]);
        }
        for args in commands.into_iter().chain([&["finished", "--task", "a", "--json"][..]]) {
            let outcome = repo.pm(args).fails(9);
            if args.contains(&"--json") {
                check_error_object(ExitCode::VerifierFailed, &outcome);
            }
            outcomes.push(outcome);
        }
    }
    compare(ExitCode::VerifierFailed, place(&repo), &outcomes);
}

#[test]
fn exit_10_means_that_the_context_does_not_fit() {
    let repo = Repo::new();
    repo.plan_with("a", &["--sticky"]);
    repo.plan_with("b", &["--sticky", "--depends-on", "a"]);
    repo.pm(&["executing", "--task", "a", "--context-id", "c1"]).ok();
    let commands: [&[&str]; 4] = [
        &["executing", "--task", "b"],
        &["executing", "--task", "b", "--context-id", "c2"],
        &["heartbeat", "--task", "a", "--context-id", "c2"],
        &["report", "--task", "a", "--title", "T"],
    ];
    check(ExitCode::ContextMismatch, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_11_means_that_the_graph_does_not_allow_it() {
    let repo = Repo::new();
    repo.plan("first");
    repo.plan_with("second", &["--depends-on", "first"]);
    repo.plan("bad");
    repo.claim("bad");
    repo.pm(&["report", "--task", "bad", "--title", "It cannot be done"]).ok();
    repo.pm(&["finished", "--task", "bad", "--rejected"]).ok();
    std::fs::write(
        repo.path().join("plan"),
        "{\"slug\":\"a\",\"title\":\"A\",\"depends_on_slugs\":[\"c\"]}\n\
         {\"slug\":\"b\",\"title\":\"B\",\"depends_on_slugs\":[\"a\"]}\n\
         {\"slug\":\"c\",\"title\":\"C\",\"depends_on_slugs\":[\"b\"]}\n",
    )
    .expect("written");
    let commands: [&[&str]; 5] = [
        &["executing", "--task", "second"],
        &["plan", "--title", "T", "--slug", "t", "--depends-on", "t"],
        &["plan", "--title", "T", "--depends-on", "absent"],
        &["plan", "--title", "T", "--depends-on", "first,bad"],
        &["bulk-plan", "--input", "plan"],
    ];
    check(ExitCode::InvalidGraph, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_12_means_that_the_lease_is_lost() {
    let repo = Repo::new();
    let task = repo.plan("a");
    let old = repo.claim(&task);
    repo.pm(&["release", "--task", "a"]).ok();
    repo.claim(&task);
    let commands: [(&str, &[&str]); 5] = [
        ("w2", &["heartbeat", "--task", "a"]),
        ("w2", &["report", "--task", "a", "--title", "T"]),
        ("w2", &["release", "--task", "a"]),
        ("w2", &["finished", "--task", "a"]),
        (AGENT, &["heartbeat", "--task", "a", "--claim", &old]),
    ];
    check(ExitCode::LeaseLost, &repo, place(&repo), &commands);
}

#[test]
fn exit_13_means_that_the_verifier_was_skipped_without_a_reason() {
    let repo = reported("make check");
    let skip = ["finished", "--task", "a", "--skip-verifier"];
    let commands: [&[&str]; 2] = [&skip, &[&skip[..], &["--note", "too short"]].concat()];
    check(ExitCode::SkipWithoutNote, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_14_and_15_mean_that_parents_come_first_and_end_last() {
    let repo = Repo::new();
    repo.plan("parent");
    repo.plan_with("child", &["--parent", "parent"]);
    let commands: [&[&str]; 1] = [&["executing", "--task", "child"]];
    check(ExitCode::ParentNotClaimed, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
    repo.claim("parent");
    repo.pm(&["report", "--task", "parent", "--title", "Nearly"]).ok();
    let commands: [&[&str]; 2] = [&["finished", "--task", "parent"], &["finished", "--task", "parent", "--rejected"]];
    check(ExitCode::ChildrenOpen, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_16_means_that_the_chain_has_no_status() {
    let repo = Repo::new();
    let task = repo.plan("half");
    repo.git(&["update-ref", &task_ref("half"), &task]);
    let commands: [&[&str]; 2] = [&["executing", "--task", "half"], &["heartbeat", "--task", "half"]];
    check(ExitCode::NoStatus, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
    repo.pm(&["verify"]).exits(19);
}

#[test]
fn exit_17_means_that_there_is_no_such_task() {
    let repo = Repo::new();
    repo.plan("a");
    let status = repo.tip("a");
    let commands: [&[&str]; 6] = [
        &["show", "--task", "absent"],
        &["show", "--task", "default/absent"],
        &["executing", "--task", "0123456789012345678901234567890123456789"],
        &["heartbeat", "--task", &status],
        &["show", "--task", "g-is-no-digit"],
        &["verify", "--task", "absent"],
    ];
    check(ExitCode::UnknownTask, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_18_means_that_there_is_no_repository_that_pm_can_use() {
    let repo = Repo::nowhere();
    let commands: [&[&str]; 3] = [&["list"], &["plan", "--title", "T"], &["-C", "absent", "status"]];
    check(ExitCode::UnusableRepository, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_19_means_that_the_ledger_is_damaged() {
    let repo = Repo::new();
    repo.plan("a");
    // A commit of the same bytes in every run, so that it needs no redaction to be told from others.
    let tree = repo.git_fed(b"", &["mktree"]);
    let foreign = repo.git(&["commit-tree", &tree, "-m", "not a record"]);
    repo.git(&["update-ref", &task_ref("foreign"), &foreign]);
    let commands: [&[&str]; 4] = [
        &["show", "--task", "foreign"],
        &["executing", "--task", "foreign"],
        &["verify"],
        &["verify", "--task", "foreign"],
    ];
    check(ExitCode::Damaged, &repo, place(&repo), &commands.map(|args| (AGENT, args)));
}

#[test]
fn exit_21_means_that_a_foreign_lock_was_not_freed_in_time_and_it_is_named_and_left_alone() {
    let repo = Repo::new();
    let foreign = ["as-text", "as-json"].map(|slug| {
        repo.plan(slug);
        let lock = repo.git_dir().join(format!("{}.lock", task_ref(slug)));
        std::fs::write(&lock, "not yours").expect("written");
        lock
    });
    let before = repo.refs();
    let started = std::time::Instant::now();
    // Both wait at once: the bound is ten seconds.
    let outcomes = std::thread::scope(|scope| {
        let text = scope.spawn(|| repo.pm(&["executing", "--task", "as-text"]));
        let json = repo.pm(&["executing", "--task", "as-json", "--json"]);
        [text.join().expect("ended"), json]
    });
    let took = started.elapsed().as_secs();
    assert!((9..16).contains(&took), "{took} s");
    for (outcome, lock) in outcomes.iter().zip(&foreign) {
        outcome.clone().fails(21).says(&lock.display().to_string());
        assert_eq!(std::fs::read(lock).expect("still there"), b"not yours");
    }
    assert_eq!(repo.refs(), before, "nothing was moved");
    check_error_object(ExitCode::LockTimeout, &outcomes[1]);
    compare(ExitCode::LockTimeout, place(&repo), &outcomes);
    for lock in &foreign {
        std::fs::remove_file(lock).expect("removed by its owner");
    }
    repo.pm(&["executing", "--task", "as-text"]).ok();
    repo.assert_sound();
}

/// The codes of pollers and authorities; other files try those out.
const ELSEWHERE: [ExitCode; 4] =
    [ExitCode::NotRunning, ExitCode::Unreachable, ExitCode::AnswerLost, ExitCode::DeliveryRefused];

#[test]
fn every_code_that_this_build_can_give_has_a_snapshot_here_and_is_documented_as_possible() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots/exit-codes");
    let mut found: Vec<String> = std::fs::read_dir(dir)
        .expect("listed")
        .map(|entry| entry.expect("read").file_name().into_string().expect("UTF-8"))
        .collect();
    found.sort();
    let file = |code: &ExitCode| format!("{:02}-{}.txt", code.number(), code.name());
    let here = ExitCode::ALL.iter().filter(|code| !ELSEWHERE.contains(code));
    assert_eq!(found, here.map(file).collect::<Vec<_>>());
    let table = include_str!("../../../docs/exit-codes.md");
    for code in ExitCode::ALL {
        let begins = format!("| {} | {} |", code.number(), code.name());
        let row = table.lines().find(|line| line.starts_with(&begins)).expect("a row");
        let can_be = found.contains(&file(&code)) || ELSEWHERE.contains(&code);
        assert_eq!(row.ends_with("| yes |"), can_be, "{row}");
    }
}
