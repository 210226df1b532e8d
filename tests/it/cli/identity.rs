//! Who is asking: the order in which pm looks for the agent, and claims that prove the holder whatever its name.

use crate::support::{Outcome, Repo, text};

/// Who `pm owned` says is asking.
fn asks(repo: &Repo, env: &[(&str, &str)], args: &[&str]) -> String {
    let args = [&["owned", "--json"], args].concat();
    let outcome = Outcome::of(&args, repo.pm_command(&args).envs(env.iter().copied()));
    text(&outcome.json()["agent"])
}

#[test]
fn the_agent_is_the_option_else_the_variable_else_the_context_else_the_configuration() {
    let repo = Repo::new();
    repo.git(&["config", "pm.agent", "of-config"]);
    let context = "0123456789abcdef";
    let all = [("PM_AGENT_ID", "of-env"), ("PM_CONTEXT_ID", context)];
    assert_eq!(asks(&repo, &all, &["--agent", "of-option"]), "of-option");
    assert_eq!(asks(&repo, &all, &["--context-id", "ffff"]), "of-env");
    assert_eq!(asks(&repo, &all[1..], &["--context-id", "fedcba9876543210"]), "worker-fedcba987654");
    assert_eq!(asks(&repo, &all[1..], &[]), "worker-0123456789ab");
    assert_eq!(asks(&repo, &[], &[]), "of-config");
    assert_eq!(asks(&repo, &[("PM_AGENT_ID", ""), ("PM_CONTEXT_ID", "")], &[]), "of-config", "empty is unset");
}

#[test]
fn without_any_of_them_it_is_the_host_and_the_calling_process_so_that_one_shell_is_one_worker() {
    let repo = Repo::new();
    repo.plan("a");
    let script = "\"$0\" executing --task a >/dev/null && \"$0\" heartbeat --task a --json && echo $$";
    let mut shell = repo.program("sh", &["-c", script, env!("CARGO_BIN_EXE_pm")]);
    let outcome = Outcome::of(&["sh"], &mut shell).ok();
    let (beat, pid) = outcome.stdout.trim_end().split_once('\n').expect("two lines");
    let beat: serde_json::Value = serde_json::from_str(beat).expect("JSON");
    let agent = text(&beat["attributes"]["agent"]);
    assert!(agent.ends_with(&format!("-{pid}")), "{agent} {pid}");
    assert_eq!(text(&repo.state("a")["holder"]), agent);
    let mut shell = repo.program("sh", &["-c", script, env!("CARGO_BIN_EXE_pm")]);
    assert_ne!(Outcome::of(&["sh"], &mut shell).code, 0, "another shell is another worker");
}

#[test]
fn a_name_that_is_no_agent_id_is_refused() {
    let repo = Repo::new();
    let long = "x".repeat(129);
    for name in ["two words", "a\nb", "ä", &long] {
        repo.pm(&["owned", "--agent", name]).fails(2);
        repo.pm_with(&[("PM_AGENT_ID", name)], &["owned"]).fails(2).says("PM_AGENT_ID");
    }
    let outcome = Outcome::of(&[], repo.pm_command(&["owned"]).env("PM_CONTEXT_ID", "zwölf zeichen"));
    outcome.fails(2).says("context");
    repo.pm(&["owned", "--agent", "A-z0.9_@:/+-"]).ok();
}

#[test]
fn an_empty_context_does_not_make_all_who_have_none_one_worker() {
    let repo = Repo::new();
    let args = ["owned", "--context-id", ""];
    let outcome = Outcome::of(&args, &mut repo.pm_command(&args));
    assert!(outcome.code == 2 || !outcome.stdout.contains("worker-"), "{outcome:?}");
    let args = ["owned", "--json", "--context-id", ""];
    let outcome = Outcome::of(&args, &mut repo.pm_command(&args));
    assert!(outcome.code == 2 || text(&outcome.stdout_json()["agent"]) != "worker-", "{outcome:?}");
}

#[test]
fn a_named_claim_proves_the_holder_whatever_the_agent() {
    let repo = Repo::new();
    let task = repo.plan("a");
    let claim = repo.claim(&task);
    let beat = repo.pm_as("somebody", &["heartbeat", "--json", "--task", "a", "--claim", &claim]).json();
    assert_eq!(beat["attributes"]["agent"], "w1", "the author is the claim's agent");
    let env = [("PM_CLAIM", claim.as_str()), ("PM_AGENT_ID", "somebody")];
    repo.pm_with(&env, &["heartbeat", "--task", "a"]).ok();
    repo.pm_with(&env, &["report", "--task", "a", "--title", "T"]).ok();
    repo.pm_with(&env, &["finished", "--task", "a"]).ok();
    assert_eq!(repo.git(&["log", "-1", "--format=%an", "refs/pm/tasks/default/a"]), "w1");
    repo.assert_sound();
}

#[test]
fn a_claim_of_another_task_is_refused_and_the_name_is_never_used_instead() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    let other = repo.claim("b");
    repo.claim("a");
    let before = repo.refs();
    for args in [
        &["heartbeat", "--task", "a"][..],
        &["report", "--task", "a", "--title", "T"],
        &["release", "--task", "a"],
        &["finished", "--task", "a"],
    ] {
        // It is w1 who asks, and w1 holds the task: but by another claim than the one that it names.
        repo.pm(&[args, &["--claim", &other]].concat()).fails(12).says("stop working on it");
        let error = repo.pm_with(&[("PM_CLAIM", &other)], &[args, &["--json"]].concat()).fails(12).error();
        assert_eq!((&error["holder"], &error["yours"]), (&"w1".into(), &true.into()));
    }
    assert_eq!(repo.refs(), before);
    let wrong = &other[..39];
    repo.pm(&["heartbeat", "--task", "a", "--claim", wrong]).fails(2);
    repo.pm_with(&[("PM_CLAIM", wrong)], &["heartbeat", "--task", "a"]).fails(2).says("PM_CLAIM");
    repo.pm_with(&[("PM_CLAIM", "")], &["heartbeat", "--task", "a"]).ok();
}

#[test]
fn the_option_wins_over_the_variable_for_the_claim() {
    let repo = Repo::new();
    for slug in ["a", "b"] {
        repo.plan(slug);
    }
    let (mine, other) = (repo.claim("a"), repo.claim("b"));
    repo.pm_with(&[("PM_CLAIM", &other)], &["heartbeat", "--task", "a", "--claim", &mine]).ok();
    repo.pm_with(&[("PM_CLAIM", &mine)], &["heartbeat", "--task", "a", "--claim", &other]).fails(12);
}
