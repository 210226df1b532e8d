//! Configuration is git configuration: what is known is checked, what is not is warned about, and nothing is silent.

use crate::support::Repo;

fn with(pairs: &[(&str, &str)]) -> Repo {
    let repo = Repo::new();
    for (key, value) in pairs {
        repo.git(&["config", key, value]);
    }
    repo
}

#[test]
fn an_unknown_key_is_warned_about_once_with_the_nearest_known_one() {
    let repo = with(&[("pm.tll", "90"), ("pm.maxattempt", "2"), ("pm.colour", "red"), ("pm.sub.key", "1")]);
    let outcome = repo.pm(&["list"]).ok();
    let mut warnings: Vec<&str> = outcome.stderr.lines().collect();
    warnings.sort_unstable();
    assert_eq!(
        warnings,
        [
            "warning: this pm does not know the configuration key pm.colour, and ignores it",
            "warning: this pm does not know the configuration key pm.maxattempt; did you mean pm.maxAttempts?",
            "warning: this pm does not know the configuration key pm.sub.key, and ignores it",
            "warning: this pm does not know the configuration key pm.tll; did you mean pm.ttl?",
        ]
    );
    let quiet = repo.pm(&["list", "--quiet"]).ok();
    assert_eq!(quiet.stderr, outcome.stderr, "a warning is no chatter");
}

#[test]
fn a_known_key_in_any_case_is_not_warned_about() {
    let repo = with(&[("pm.MAXATTEMPTS", "2"), ("PM.ttl", "90"), ("pmx.key", "1")]);
    assert_eq!(repo.pm(&["list"]).ok().stderr, "");
}

#[test]
fn a_value_that_cannot_be_used_is_a_usage_error_that_names_the_key() {
    for (key, value) in [
        ("pm.ttl", "0"),
        ("pm.ttl", "soon"),
        ("pm.ttl", ""),
        ("pm.queue", "Not A Queue"),
        ("pm.maxAttempts", "-1"),
        ("pm.maxAttempts", "many"),
        ("pm.durability", "maybe"),
        ("pm.agent", "two words"),
    ] {
        let repo = with(&[(key, value)]);
        let outcome = repo.pm(&["list"]).fails(2).says(key);
        assert!(outcome.stderr.contains(&format!("'{value}'")), "{outcome:?}");
    }
}

#[test]
fn the_queue_of_the_configuration_is_used_where_none_is_named() {
    let repo = with(&[("pm.queue", "q")]);
    repo.plan("a");
    repo.plan_with("b", &["--queue", "other"]);
    assert_eq!(repo.pm(&["next", "--json"]).json()["attributes"]["queue"], "q");
    assert_eq!(repo.pm(&["show", "--json", "--task", "a"]).json()["task"]["attributes"]["slug"], "a");
    repo.pm(&["show", "--task", "b"]).fails(17);
    assert_eq!(repo.pm(&["list", "--json"]).json()["total"], 2, "list shows all queues");
}

#[test]
fn the_ttl_of_the_configuration_is_the_lease_of_claims_that_ask_for_none() {
    let repo = with(&[("pm.ttl", "2h")]);
    repo.plan("a");
    assert_eq!(repo.pm(&["executing", "--json", "--task", "a"]).json()["lease_ms"], 7_200_000);
    assert_eq!(repo.pm(&["sweep", "--json"]).json()["ttl_ms"], 7_200_000);
}

#[test]
fn the_first_write_makes_gits_maintenance_safe_and_says_so_once() {
    let repo = Repo::bare_of_config(&[]);
    repo.pm(&["list"]).ok();
    assert_eq!(repo.git_outcome(&["config", "core.fsync"]).code, 1, "reading sets nothing");
    repo.pm(&["plan", "--title", "A"]).ok().says("set core.fsync=committed,reference");
    assert_eq!(repo.git(&["config", "--local", "core.fsync"]), "committed,reference");
    assert_eq!(repo.pm(&["plan", "--title", "B"]).ok().stderr, "");
}

#[test]
fn what_is_set_already_is_left_alone_and_so_is_a_throwaway_ledger() {
    let repo = Repo::bare_of_config(&[]);
    repo.git(&["config", "core.fsync", "all"]);
    assert_eq!(repo.pm(&["plan", "--title", "A"]).ok().stderr, "");
    assert_eq!(repo.git(&["config", "core.fsync"]), "all");
    let repo = Repo::bare_of_config(&[]);
    repo.git(&["config", "pm.durability", "process"]);
    assert_eq!(repo.pm(&["plan", "--title", "A"]).ok().stderr, "");
    assert_eq!(repo.git_outcome(&["config", "core.fsync"]).code, 1);
}
