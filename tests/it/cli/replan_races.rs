//! Replans of one task at the same moment: one clone takes its place, and that one can be worked on.

use std::process::Stdio;

use crate::support::{AGENT, Outcome, Repo, text};

/// Runs these at the same time.
fn at_once(repo: &Repo, calls: &[&[&str]]) -> Vec<Outcome> {
    let start = |args: &&[&str]| {
        let mut command = repo.pm_command(args);
        command.env("PM_AGENT_ID", AGENT).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pm starts")
    };
    let running: Vec<_> = calls.iter().map(start).collect();
    running.into_iter().map(|child| Outcome::from_output(&[], child.wait_with_output().expect("pm ends"))).collect()
}

/// The task that stands for one.
fn standing(repo: &Repo, slug: &str) -> (String, String) {
    let mut slug = slug.to_owned();
    loop {
        let shown = repo.pm(&["show", "--json", "--task", &slug]).json();
        let last = shown["statuses"].as_array().and_then(|all| all.last()).expect("a status").clone();
        match last["attributes"]["superseded_by"].as_str() {
            Some(next) => {
                slug = text(&repo.pm(&["show", "--json", "--task", next]).json()["task"]["attributes"]["slug"])
            }
            None => return (slug, text(&last["attributes"]["status"])),
        }
    }
}

#[test]
fn of_replans_at_the_same_moment_the_clone_that_took_the_place_stays_open() {
    let repo = Repo::new();
    for round in 0..12 {
        let slug = format!("t{round}");
        repo.plan(&slug);
        let same = ["replan", "--json", "--task", &slug, "--text", "otherwise"];
        let other = ["replan", "--json", "--task", &slug, "--text", "yet otherwise"];
        let outcomes = at_once(&repo, &[&same, &same, &other]);
        for outcome in &outcomes {
            assert!(matches!(outcome.code, 0 | 6 | 8), "{outcome:?}");
        }
        assert!(outcomes.iter().any(|outcome| outcome.code == 0), "{outcomes:?}");
        let (last, phase) = standing(&repo, &slug);
        assert_eq!(phase, "new", "{last} stands for {slug} and can be worked on: {outcomes:?}");
        repo.claim(&last);
    }
    repo.assert_sound();
}

/// Makes the clone of a replan, and nothing else.
pub(super) fn begin_a_replacement(repo: &Repo, slug: &str) {
    let store = pm::store::git::GitStore::discover(repo.path()).expect("a repository");
    let email = "ada@example.com".to_owned();
    let identity = pm::ledger::Identity { committer: ("Ada".to_owned(), email.clone()), email };
    let (agent, clock) = (AGENT.parse().expect("an agent id"), pm::clock::SystemClock::new());
    let ledger = pm::ledger::Ledger {
        store: &store,
        clock: &clock,
        identity: &identity,
        agent: &agent,
        context: None,
        reach: pm::ledger::Reach::Alone,
    };
    let old = ledger.find(slug, &"default".parse().expect("a queue")).expect("there").state;
    let clone = format!("{slug}-r1").parse().expect("a slug");
    let task = pm::protocol::record::Task { slug: clone, ..(*old.task).clone() };
    let new = pm::ledger::create::NewTask { task, body: Some("otherwise\n".to_owned()), replan_of: Some(old.id) };
    ledger.create(new).expect("created");
}

#[test]
fn a_replan_that_was_begun_is_completed_by_one_without_a_change() {
    let repo = Repo::new();
    repo.plan("t");
    // As if the first had been killed between its two moves.
    begin_a_replacement(&repo, "t");
    assert_eq!((repo.phase("t"), repo.phase("t-r1")), ("new".to_owned(), "new".to_owned()));
    repo.pm(&["executing", "--task", "t-r1"]).fails(11).says("is to replace default/t,").says("pm replan");
    let told = repo.pm(&["replan", "--json", "--task", "t"]).json();
    assert_eq!(told["clone"]["slug"], "t-r1");
    repo.claim("t-r1");
    assert_eq!(repo.refs().lines().count(), 2, "no third one");
}
