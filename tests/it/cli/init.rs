//! `pm init`: sets what is unset, overwrites nothing, and says what there is.

use crate::support::Repo;

fn config(repo: &Repo, key: &str) -> Option<String> {
    let outcome = repo.git_outcome(&["config", "--local", key]);
    (outcome.code == 0).then(|| outcome.stdout.trim_end().to_owned())
}

#[test]
fn a_fresh_repository_is_made_safe_and_told_what_its_ledger_would_be() {
    let repo = Repo::bare_of_config(&[]);
    let told = repo.pm(&["init", "--json"]).json();
    assert_eq!(told["set"]["core.fsync"], "committed,reference");
    assert_eq!((&told["queue"], &told["ttl_ms"], &told["agent"]), (&"default".into(), &300_000.into(), &"w1".into()));
    assert_eq!((&told["durability"], &told["remote"]), (&"power".into(), &serde_json::Value::Null));
    assert_eq!(told["next"].as_array().map(Vec::len), Some(3));
    assert_eq!(config(&repo, "core.fsync").as_deref(), Some("committed,reference"));
    let text = repo.pm(&["init"]).ok().stdout;
    assert!(text.contains("core.fsync = committed,reference was set already"), "{text}");
    assert!(text.contains("default (pm.queue)") && text.contains("next: `pm plan"), "{text}");
    assert_eq!(repo.refs(), "", "no ledger is begun");
}

#[test]
fn what_is_set_is_never_overwritten() {
    let repo = Repo::init(&[]);
    for (key, value) in [("core.fsync", "all"), ("pm.queue", "q"), ("pm.ttl", "10m"), ("pm.remote", "hub")] {
        repo.git(&["config", key, value]);
    }
    repo.git(&["remote", "add", "hub", "../hub.git"]);
    repo.git(&["remote", "add", "other", "../other.git"]);
    let before = std::fs::read(repo.git_dir().join("config")).expect("read");
    let told = repo.pm(&["init", "--json", "--remote", "hub"]).json();
    assert_eq!(told["set"], serde_json::json!({}));
    assert_eq!(told["already"], serde_json::json!({"core.fsync": "all", "pm.remote": "hub"}));
    assert_eq!((&told["queue"], &told["ttl_ms"]), (&"q".into(), &600_000.into()));
    repo.pm(&["init", "--remote", "other"]).fails(2).says("`git config pm.remote 'other'`");
    assert_eq!(std::fs::read(repo.git_dir().join("config")).expect("read"), before);
}

#[test]
fn a_throwaway_ledger_needs_no_sync() {
    let repo = Repo::bare_of_config(&[]);
    repo.git(&["config", "pm.durability", "process"]);
    assert_eq!(repo.pm(&["init", "--json"]).json()["set"], serde_json::json!({}));
    assert_eq!(config(&repo, "core.fsync"), None);
}

#[test]
fn the_authority_is_a_remote_that_there_is() {
    let repo = Repo::bare_of_config(&[]);
    repo.pm(&["init", "--remote", "hub"]).fails(2).says("there are none");
    repo.git(&["remote", "add", "origin", "../hub.git"]);
    repo.git(&["remote", "add", "backup", "../backup.git"]);
    repo.pm(&["init", "--remote", "hub"]).fails(2).says("backup, origin");
    repo.pm(&["init", "--remote", "--all"]).fails(2);
    repo.pm(&["init", "--remote=--all"]).fails(2).says("not the name of a remote");
    assert_eq!((config(&repo, "pm.remote"), config(&repo, "core.fsync")), (None, None), "nothing was set");
    assert_eq!(repo.pm(&["init", "--json", "--remote", "origin"]).json()["set"]["pm.remote"], "origin");
    assert_eq!(config(&repo, "pm.remote").as_deref(), Some("origin"));
    assert_eq!(repo.pm(&["init", "--json", "--remote", "origin"]).json()["already"]["pm.remote"], "origin");
}

#[test]
fn a_remote_that_is_written_elsewhere_than_read_is_refused() {
    let repo = Repo::init(&[]);
    repo.git(&["remote", "add", "origin", "https://me:secret@example.com/a.git"]);
    repo.git(&["config", "remote.origin.pushurl", "../b.git"]);
    let refused =
        repo.pm(&["init", "--remote", "origin"]).fails(18).says("git config --unset-all remote.origin.pushurl");
    assert!(!refused.stderr.contains("secret"), "{refused:?}");
    repo.git(&["config", "--unset", "remote.origin.pushurl"]);
    repo.git(&["config", "url.ssh://git@example.com/.pushInsteadOf", "https://me:secret@example.com/"]);
    repo.pm(&["init", "--remote", "origin"]).fails(18).says("ssh://git@example.com/a.git");
    assert_eq!(config(&repo, "pm.remote"), None);
    repo.git(&["remote", "set-url", "origin", "../a.git"]);
    repo.git(&["config", "remote.origin.pushurl", "../a.git"]);
    repo.pm(&["init", "--remote", "origin"]).ok();
}

#[test]
fn where_there_is_no_repository_there_is_nothing_to_set_up() {
    Repo::nowhere().pm(&["init"]).fails(18);
    Repo::init(&["--bare"]).pm(&["init"]).ok();
}

#[test]
fn an_authority_that_cannot_be_a_name_is_refused_by_every_command() {
    let repo = Repo::new();
    for name in ["", "-x", "a\tb"] {
        repo.git(&["config", "pm.remote", name]);
        repo.pm(&["list"]).fails(2).says("pm.remote");
    }
}
