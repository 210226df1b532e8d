//! A runner and tasks that hang together: parents, contexts, verifiers.

use std::collections::HashSet;

use serde_json::json;

use rustix::process::Signal;

use crate::support::fleet::two;
use crate::support::runner::{event, events, file, start, told, work, written};
use crate::support::{Repo, task_ref, text, until};

/// The script of a command that runs `pm` with these arguments, as somebody who knows nothing of the claim.
fn pm(args: &str) -> String {
    format!("env -u PM_CLAIM '{}' {args} >/dev/null", env!("CARGO_BIN_EXE_pm"))
}

/// Plans tasks from `[slug, parent, dependencies…]`.
fn plan(repo: &Repo, rows: &[&[&str]]) {
    let line = |row: &&[&str]| {
        let mut task = json!({"slug": row[0], "title": row[0], "depends_on_slugs": row[2..]});
        if !row[1].is_empty() {
            task["parent_slug"] = json!(row[1]);
        }
        task.to_string()
    };
    let lines: Vec<_> = rows.iter().map(line).collect();
    repo.pm_fed(&lines.join("\n"), &["bulk-plan", "--input", "-"]).ok();
}

#[test]
fn one_agent_alone_gets_through_a_tree() {
    let repo = Repo::new();
    plan(
        &repo,
        &[&["root", ""], &["a", "root"], &["b", "root", "a"], &["a1", "a"], &["a2", "a", "a1"], &["after", "", "root"]],
    );
    let outcome = work(&repo, &["--agents", "1"], "true").ok();
    let order: Vec<_> = told(&outcome);
    let at = |what: &str| order.iter().position(|told| told == what).unwrap_or_else(|| panic!("{what}: {order:?}"));
    for (before, after) in [
        ("started root", "started a"),
        ("started a", "started a1"),
        ("done a1", "started a2"),
        ("done a2", "done a"),
        ("done a", "started b"),
        ("done b", "done root"),
        ("done root", "started after"),
    ] {
        assert!(at(before) < at(after), "{before} comes before {after}: {order:?}");
    }
    for slug in ["root", "a", "b", "a1", "a2", "after"] {
        assert_eq!(repo.phase(slug), "done", "{slug}");
        assert_eq!(repo.state(slug)["attempt"], 1, "{slug}");
    }
    repo.assert_sound();
}

#[test]
fn children_that_nobody_will_settle_are_not_waited_for() {
    let repo = Repo::new();
    plan(&repo, &[&["never", ""], &["root", ""], &["child", "root", "never"], &["after", "", "root"]]);
    repo.pm(&["cancel", "--task", "never"]).ok();
    let outcome = work(&repo, &["--agents", "2"], "true").exits(1);
    let why = text(&event(&outcome, "failed")["why"]);
    assert!(why.contains("child is new"), "{why}");
    assert_eq!(repo.phase("root"), "new", "it is given back");
}

#[test]
fn children_that_somebody_else_works_on_are_waited_for_with_the_claim_kept_alive() {
    let repo = Repo::new();
    plan(&repo, &[&["root", ""], &["child", "root"]]);
    // The command lets somebody else take the child, before the runner can.
    let script = format!("PM_CLAIM= '{}' executing --task child --agent other >/dev/null", env!("CARGO_BIN_EXE_pm"));
    let runner = start(&repo, &["--ttl", "1s"], &script);
    let beats = || repo.pm(&["show", "--json", "--task", "root"]).json()["heartbeat_count"].as_u64();
    until("two leases have gone by", || (beats() >= Some(6)).then_some(()));
    assert_eq!(repo.phase("root"), "working");
    repo.pm_as("other", &["report", "--task", "child", "--title", "done"]).ok();
    repo.pm_as("other", &["finished", "--task", "child"]).ok();
    runner.outcome().ok();
    assert_eq!(repo.phase("root"), "done");
    assert_eq!(repo.state("root")["attempt"], 1);
}

#[test]
fn a_runner_takes_what_its_context_may_and_says_what_it_leaves() {
    let repo = Repo::new();
    repo.plan_with("mine", &["--sticky"]);
    repo.plan_with("also-mine", &["--sticky", "--depends-on", "mine"]);
    repo.plan_with("theirs", &["--sticky"]);
    repo.plan("anybodys");
    repo.pm_as("other", &["executing", "--task", "theirs", "--context-id", "c2"]).ok();
    repo.pm_as("other", &["release", "--task", "theirs"]).ok();
    let outcome = work(&repo, &[], "true").ok();
    assert_eq!(told(&outcome), ["started anybodys", "done anybodys", "left-blocked", "summary"]);
    assert!(outcome.stderr.contains("only in another context"), "{}", outcome.stderr);
    let outcome = work(&repo, &["--context-id", "c1"], "true").ok();
    assert!(told(&outcome).contains(&"done also-mine".to_owned()), "{:?}", told(&outcome));
    assert_eq!(repo.state("also-mine")["context_id"], "c1");
    assert_eq!((repo.phase("theirs"), repo.state("theirs")["context_id"].clone()), ("new".to_owned(), json!("c2")));
    work(&repo, &["--context-id", "c2"], "true").ok();
    assert_eq!(repo.phase("theirs"), "done");
    repo.assert_sound();
}

#[test]
fn a_runner_asks_verifiers_and_takes_a_no_for_a_failure() {
    let repo = Repo::new();
    let verifier = "test $PM_SLUG = good && echo seen";
    repo.plan_with("good", &["--verifier", verifier]);
    repo.plan_with("bad", &["--verifier", verifier]);
    repo.git(&["config", "--add", "pm.allowVerifier", verifier]);
    let outcome = work(&repo, &["--agents", "2"], "true").exits(1);
    assert_eq!(event(&outcome, "rejected")["why"], "the verifier failed with exit 1");
    let closed = |slug| {
        let shown = repo.pm(&["show", "--json", "--task", slug]).json();
        shown["statuses"].as_array().and_then(|all| all.last()).expect("a status")["attributes"].clone()
    };
    assert_eq!((&closed("good")["status"], &closed("good")["verifier_summary"]), (&json!("done"), &json!("seen")));
    assert_eq!((&closed("bad")["status"], &closed("bad")["verifier_exit"]), (&json!("rejected"), &json!(1)));
    repo.assert_sound();
}

#[test]
fn a_task_whose_verifier_is_not_allowed_here_is_left_alone_and_named_and_the_others_are_worked_on() {
    let repo = Repo::new();
    for slug in ["v1", "v2", "v3"] {
        repo.plan_with(slug, &["--verifier", "test -e x", "--priority", "0"]);
    }
    repo.plan("t1");
    repo.plan_with("after", &["--depends-on", "v1"]);
    let outcome = work(&repo, &[], "touch $OUT/$PM_SLUG").ok();
    assert_eq!(told(&outcome), ["started t1", "done t1", "left-blocked", "summary"], "{outcome:?}");
    for slug in ["v1", "v2", "v3"] {
        let named = format!("default/{slug}: the verifier is a command");
        assert_eq!(outcome.stderr.matches(&named).count(), 1, "{}", outcome.stderr);
        assert_eq!(repo.state(slug)["attempt"], 0, "{slug} was not claimed");
        assert!(!file(&repo, slug).exists(), "no work is done that could not be closed");
    }
    // What is said is what helps.
    let line = "git config --add pm.allowVerifier 'test -e x'";
    assert!(outcome.stderr.contains(line), "{}", outcome.stderr);
    repo.git(&["config", "--add", "pm.allowVerifier", "test -e x"]);
    work(&repo, &[], "touch x").ok();
    assert_eq!(["v1", "v2", "v3", "after"].map(|slug| repo.phase(slug)), ["done"; 4]);
    repo.assert_sound();
}

#[test]
fn a_command_and_a_verifier_are_in_the_context_of_their_runner() {
    let repo = Repo::new();
    let verifier = "echo $PM_CONTEXT_ID >>$OUT/contexts";
    repo.plan_with("t", &["--sticky", "--verifier", verifier]);
    repo.git(&["config", "--add", "pm.allowVerifier", verifier]);
    let pm = env!("CARGO_BIN_EXE_pm");
    let script = format!(
        "echo $PM_CONTEXT_ID >>$OUT/contexts; '{pm}' heartbeat --task $PM_TASK --progress half >/dev/null && \
         '{pm}' report --task $PM_TASK --title 'in its own words' >/dev/null"
    );
    let outcome = work(&repo, &["--context-id", "laptop"], &script).ok();
    assert_eq!(told(&outcome), ["started t", "done t", "summary"], "{outcome:?}");
    assert_eq!(written(&repo, "contexts"), "laptop\nlaptop");
    repo.assert_sound();
}

#[test]
fn a_child_whose_worker_is_dead_is_not_waited_for_for_ever() {
    let repo = Repo::new();
    repo.git(&["config", "pm.interval", "100ms"]);
    plan(&repo, &[&["root", ""], &["child", "root"], &["next", "root", "child"], &["after", "", "root"]]);
    // Nobody heartbeats, and nobody sweeps.
    let script =
        format!("PM_CLAIM= '{}' executing --task child --agent dead --ttl 1s >/dev/null", env!("CARGO_BIN_EXE_pm"));
    let outcome = start(&repo, &["--agents", "1", "--ttl", "2s"], &script).outcome().exits(1);
    let why = text(&event(&outcome, "failed")["why"]);
    assert!(why.contains("default/child is working, but its worker is silent"), "{why}");
    assert!(why.contains("default/next is new"), "{why}");
    assert_eq!(["root", "next", "after"].map(|slug| repo.phase(slug)), ["new"; 3], "it is given back");
    assert_eq!((repo.phase("child").as_str(), &repo.state("child")["holder"]), ("working", &json!("dead")));
    // The next safe command.
    repo.pm(&["sweep", "--ttl", "1s"]).ok();
    work(&repo, &[], "true").ok();
    assert_eq!(["root", "child", "next", "after"].map(|slug| repo.phase(slug)), ["done"; 4]);
    repo.assert_sound();
}

#[test]
fn an_attestation_counts_where_the_command_prints_it() {
    let repo = Repo::new();
    let attestation = "## Verifier Attestation\\n\\nverifier: skill:review\\nverdict: PASS\\nevidence: read it all\\n";
    let report = pm("report --task $PM_TASK --title reviewed --text-file -");
    for (slug, script, options, is_seen) in [
        ("printed", format!("echo working; printf '{attestation}'"), &[][..], true),
        ("not-recorded", format!("printf '{attestation}'"), &["--no-output"], false),
        // The newest report is judged, and that is the runner's.
        ("reported", format!("printf '{attestation}' | {report}"), &[], false),
    ] {
        repo.plan_with(slug, &["--verifier", "skill:review"]);
        let outcome = work(&repo, options, &script);
        assert_eq!(repo.phase(slug), if is_seen { "done" } else { "rejected" }, "{slug}: {outcome:?}");
    }
    repo.assert_sound();
}

#[test]
fn one_agent_ends_though_a_task_that_it_took_meanwhile_waits_in_vain() {
    let repo = Repo::new();
    let rows: &[&[&str]] = &[&["never", ""], &["p", ""], &["q", ""], &["of-p", "p"], &["of-q", "q", "never"]];
    plan(&repo, rows);
    repo.pm(&["cancel", "--task", "never"]).ok();
    let outcome = start(&repo, &["--agents", "1"], "true").outcome().exits(1);
    let order = told(&outcome);
    assert_eq!(order[..4], ["started p", "started q", "started of-p", "done of-p"], "{order:?}");
    assert!(text(&event(&outcome, "failed")["why"]).contains("of-q is new"), "{outcome:?}");
    assert_eq!(["p", "of-p", "q", "of-q"].map(|slug| repo.phase(slug)), ["done", "done", "new", "new"]);
    assert_eq!(repo.state("q")["attempt"], 1, "it is not tried again");
    repo.assert_sound();
}

#[test]
fn a_parents_verifier_is_asked_once_all_its_children_are_settled() {
    let repo = Repo::new();
    let verifier = "echo asked >>$OUT/asked; test -e $OUT/child && test -e $OUT/late";
    repo.plan_with("root", &["--verifier", verifier]);
    repo.plan_with("child", &["--parent", "root"]);
    repo.git(&["config", "--add", "pm.allowVerifier", verifier]);
    let late = pm("plan --title late --slug late --parent root");
    let script = format!("echo >$OUT/$PM_SLUG; if [ $PM_SLUG = child ]; then {late}; fi");
    start(&repo, &["--agents", "1"], &script).outcome().ok();
    assert_eq!(["root", "child", "late"].map(|slug| repo.phase(slug)), ["done"; 3]);
    assert_eq!(written(&repo, "asked"), "asked", "once");
    repo.assert_sound();
}

#[test]
fn told_to_stop_a_runner_keeps_the_claim_of_a_parent_until_the_child_in_hand_has_ended() {
    let repo = Repo::new();
    plan(&repo, &[&["root", ""], &["child", "root"], &["other", ""], &["now", "other"], &["later", "other", "now"]]);
    let script = "case $PM_SLUG in child|now) echo >$OUT/$PM_SLUG; until [ -e $OUT/go ]; do sleep 0.02; done;; esac";
    let runner = start(&repo, &["--ttl", "1s", "--agents", "2"], script);
    written(&repo, "child");
    written(&repo, "now");
    let beats = |slug| repo.pm(&["show", "--json", "--task", slug]).json()["heartbeat_count"].as_u64();
    let before = beats("root");
    runner.signal(Signal::TERM);
    until("two leases have gone by", || (beats("root") >= before.map(|count| count + 6)).then_some(()));
    assert_eq!(["root", "other"].map(|slug| repo.phase(slug)), ["working"; 2]);
    std::fs::write(file(&repo, "go"), "").expect("written");
    let outcome = runner.outcome().exits(1);
    assert_eq!(["child", "root", "now"].map(|slug| repo.phase(slug)), ["done"; 3], "{outcome:?}");
    assert_eq!(["other", "later"].map(|slug| repo.phase(slug)), ["new"; 2], "what is left is given back");
    assert_eq!(repo.state("root")["attempt"], 1);
    repo.assert_sound();
}

#[test]
fn a_runner_that_goes_on_for_ever_gives_back_parents_whose_children_are_none_of_its_business() {
    let repo = Repo::new();
    let roots = ["r1", "r2", "r3", "r4", "r5", "r6"];
    for root in roots {
        repo.plan_with(root, &["--label", "mine"]);
        repo.plan_with(&format!("of-{root}"), &["--parent", root]);
    }
    let runner = start(&repo, &["--forever", "--label", "mine", "--agents", "1"], "true");
    // Taken once, and free again.
    let is_back = |root: &&&str| repo.phase(root) == "new" && repo.state(root)["attempt"] != json!(0);
    let mut back = HashSet::<&str>::new();
    until("each was given back", || {
        back.extend(roots.iter().filter(|root| is_back(root)).copied());
        (back.len() == roots.len()).then_some(())
    });
    runner.signal(Signal::TERM);
    let outcome = runner.outcome().exits(1);
    assert!(
        text(&events(&outcome).iter().find(|event| event["event"] == "failed").expect("one")["why"])
            .contains("left open")
    );
    let starts = told(&outcome).iter().filter(|told| told.starts_with("started")).count();
    assert!(starts <= 3 * roots.len(), "they rest: {starts}");
    repo.assert_sound();
}

/// When each status of a task was written, by the clock of its record, in milliseconds.
fn statuses(repo: &Repo, slug: &str) -> Vec<u64> {
    let format =
        "--format=%(trailers:key=Record,valueonly,separator=%x20) %(trailers:key=Clock,valueonly,separator=%x20)";
    let log = repo.git(&["log", "--reverse", format, &task_ref(slug)]);
    let status = |line: &str| line.strip_prefix("TaskStatus ")?.split(' ').nth(1)?.parse().ok();
    log.lines().filter_map(status).collect()
}

#[test]
fn a_parent_that_was_given_back_for_its_children_is_taken_again_once_something_has_changed_below_it() {
    let repo = Repo::new();
    repo.plan("root");
    repo.plan_with("child", &["--parent", "root", "--sticky"]);
    let runner = start(&repo, &["--forever", "--agents", "1"], "true");
    until("it is given back", || (statuses(&repo, "root").len() == 3).then_some(()));
    repo.pm(&["cancel", "--task", "child"]).ok();
    until("it is done", || (repo.phase("root") == "done").then_some(()));
    runner.signal(Signal::TERM);
    runner.outcome().ok();
    // New, claimed, given back, claimed, done. Alone, the runner would have left it alone for 5 s.
    let written = statuses(&repo, "root");
    assert_eq!(written.len(), 5, "{written:?}");
    assert!(written[3] - written[2] < 5_000, "{written:?}");
    repo.assert_sound();
}

#[test]
fn an_agent_that_has_many_waiting_tasks_takes_what_has_no_children_first() {
    let repo = Repo::new();
    let names: Vec<[String; 2]> = (0..18).map(|n| [format!("r{n}"), format!("c{n}")]).collect();
    let mut rows: Vec<[&str; 2]> = names.iter().map(|[root, _]| [root.as_str(), ""]).collect();
    rows.extend(names.iter().map(|[root, child]| [child.as_str(), root.as_str()]));
    plan(&repo, &rows.iter().map(|row| &row[..]).collect::<Vec<_>>());
    start(&repo, &["--agents", "1"], "true").outcome().ok();
    for slug in names.iter().flatten() {
        assert_eq!((repo.phase(slug), &repo.state(slug)["attempt"]), ("done".to_owned(), &json!(1)), "{slug}");
    }
}

#[test]
fn a_tree_that_is_too_deep_for_an_agent_is_given_back() {
    let repo = Repo::new();
    let names: Vec<String> = (0..19).map(|n| format!("t{n}")).collect();
    let rows: Vec<[&str; 2]> =
        (0..19).map(|n| [names[n].as_str(), if n > 0 { names[n - 1].as_str() } else { "" }]).collect();
    plan(&repo, &rows.iter().map(|row| &row[..]).collect::<Vec<_>>());
    let outcome = start(&repo, &["--agents", "1"], "true").outcome().exits(1);
    let why = |slug: &str| {
        let all = events(&outcome);
        let of = |event: &&serde_json::Value| event["event"] == "failed" && event["place"] == format!("default/{slug}");
        text(&all.iter().find(of).unwrap_or_else(|| panic!("{slug}: {outcome:?}"))["why"])
    };
    assert!(why("t16").contains("16 other tasks"), "{}", why("t16"));
    assert!(why("t15").contains("t16 is new"), "{}", why("t15"));
    assert_eq!(repo.phase("t18"), "new");
    repo.assert_sound();
}

#[test]
fn a_report_that_comes_while_the_verifier_is_asked_is_verified_in_turn() {
    for (is_once, phase, asked) in [(true, "done", 2), (false, "new", 3)] {
        let repo = Repo::new();
        let report = pm("report --task t --title newer");
        let when = if is_once { "[ $(wc -l <$OUT/asked) -gt 1 ] ||" } else { "" };
        let verifier = format!("echo asked >>$OUT/asked; {when} {report}");
        repo.plan_with("t", &["--verifier", &verifier]);
        repo.git(&["config", "--add", "pm.allowVerifier", &verifier]);
        let runner = start(&repo, &["--max-tasks", "1", "--agents", "1"], "true");
        let outcome = runner.outcome();
        assert_eq!(repo.phase("t"), phase, "{outcome:?}");
        assert_eq!(written(&repo, "asked").lines().count(), asked, "{outcome:?}");
        assert_eq!(outcome.code, i32::from(!is_once));
        if !is_once {
            assert!(text(&event(&outcome, "failed")["why"]).contains("a newer report"), "{outcome:?}");
        }
        repo.assert_sound();
    }
}

#[test]
fn a_child_that_is_finished_on_another_machine_is_seen_though_nobody_else_here_looks() {
    let (_hub, here, there) = two();
    plan(&here, &[&["root", ""], &["child", "root"]]);
    // The command waits until the child is taken. After one task nobody here reads the ledger any more.
    let script = "echo >$OUT/began; until [ -e $OUT/go ]; do sleep 0.02; done";
    let runner = start(&here, &["--agents", "1", "--max-tasks", "1"], script);
    written(&here, "began");
    there.pm(&["sync"]).ok();
    there.pm_as("other", &["executing", "--task", "child"]).ok();
    here.pm(&["sync"]).ok();
    std::fs::write(file(&here, "go"), "").expect("written");
    let reports = || here.pm(&["show", "--json", "--task", "root"]).json()["reports"].as_array().map(Vec::len);
    until("it is about to wait", || (reports() == Some(1)).then_some(()));
    there.pm_as("other", &["report", "--task", "child", "--title", "done"]).ok();
    there.pm_as("other", &["finished", "--task", "child"]).ok();
    runner.outcome().ok();
    assert_eq!(["root", "child"].map(|slug| here.phase(slug)), ["done"; 2]);
}
