//! Repositories, remotes and environments as people have them: none leads pm astray, and pm leaves all of them alone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::fleet::{
    REMOTE, assert_level, hub, join, killed_on_its_way, machine, machine_at, own, records, refs_at, tip_at, two,
};
use crate::support::{AGENT, Outcome, Repo, task_ref, text};

/// Plans, claims, reports and finishes a task, each through the hub.
#[track_caller]
fn lives(repo: &Repo, slug: &str) {
    repo.plan(slug);
    repo.work_off(slug);
    assert_eq!(own(repo, "refs/pm-pending"), "");
    assert_eq!(repo.phase(slug), "done");
}

/// Writes a program.
fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("executable");
}

#[test]
fn what_is_configured_for_fetches_and_pushes_of_code_clobbers_nothing_of_the_ledger() {
    let (hub, a, b) = two();
    a.git(&["commit", "--quiet", "--allow-empty", "--message", "code"]);
    a.git(&["push", "--quiet", REMOTE, "HEAD:refs/heads/main", "HEAD:refs/heads/other"]);
    a.git(&["tag", "mine"]);
    b.plan("theirs");
    for (key, value) in [
        ("remote.origin.fetch", "+refs/pm/*:refs/pm/*"),
        ("remote.origin.prune", "true"),
        ("remote.origin.pruneTags", "true"),
        ("remote.origin.tagOpt", "--tags"),
        ("remote.origin.push", "+refs/*:refs/*"),
        ("remote.origin.mirror", "true"),
        ("fetch.prune", "true"),
        ("push.followTags", "true"),
        ("push.default", "matching"),
        ("push.pushOption", "ci.skip"),
        ("push.useForceIfIncludes", "true"),
        ("push.negotiate", "true"),
    ] {
        a.git(&["config", key, value]);
    }
    a.pm(&["--offline", "plan", "--title", "Mine", "--slug", "mine"]).ok();
    lives(&a, "t");
    a.pm(&["sync"]).ok();
    for slug in ["t", "mine", "theirs"] {
        assert_level(&hub, &a, slug);
    }
    let all = hub.git(&["for-each-ref", "--format=%(refname)"]);
    let code: Vec<_> = all.lines().filter(|name| !name.starts_with("refs/pm/tasks/")).collect();
    assert_eq!(code, ["refs/heads/main", "refs/heads/other"]);
    assert_eq!(own(&a, "refs/remotes"), a.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/remotes"]));
    a.assert_sound();
}

#[test]
fn a_remote_that_is_written_elsewhere_than_it_is_read_or_is_not_there_is_refused() {
    let (hub, a, _) = two();
    a.plan("t");
    let url = hub.path().display().to_string();
    a.git(&["config", "remote.origin.pushurl", &url]);
    a.claim("t");
    a.git(&["config", "remote.origin.pushurl", "elsewhere"]);
    let before = own(&a, "refs");
    for args in [&["heartbeat", "--task", "t"][..], &["sync"], &["sweep"], &["pull"], &["plan", "--title", "N"]] {
        a.pm(args).fails(18).says("different URLs");
    }
    a.git(&["config", "--unset", "remote.origin.pushurl"]);
    a.git(&["config", "pm.remote", "gone"]);
    for args in [&["heartbeat", "--task", "t"][..], &["sync"], &["sweep"], &["pull"], &["plan", "--title", "N"]] {
        a.pm(args).fails(2).says("no remote 'gone'").says(REMOTE);
    }
    assert_eq!(own(&a, "refs"), before);
    // What needs no remote does not ask for one.
    a.pm(&["show", "--task", "t"]).ok();
    a.pm(&["--offline", "heartbeat", "--task", "t"]).ok();
}

#[test]
fn a_hub_that_takes_branches_only_has_the_ledger_below_another_prefix() {
    let (hub, a, b) = two();
    program(&hub.path().join("hooks/update"), "#!/bin/sh\ncase $1 in refs/heads/*) ;; *) exit 1 ;; esac\n");
    a.pm(&["plan", "--title", "T", "--slug", "t"]).fails(20).says("refused");
    assert_eq!((a.refs(), own(&a, "refs/pm-pending")), (String::new(), String::new()));
    for repo in [&a, &b] {
        repo.git(&["config", "pm.refPrefix", "refs/heads/pm"]);
    }
    lives(&a, "t");
    a.pm_fed("{\"title\":\"U\"}\n{\"title\":\"V\"}\n", &["bulk-plan", "--input", "-"]).ok();
    a.pm(&["--offline", "executing", "--task", "u"]).ok();
    a.pm(&["sync"]).ok();
    b.pm(&["sync"]).ok();
    assert_eq!(b.refs(), a.refs());
    let at_hub = hub.git(&["for-each-ref", "--format=%(objectname) %(refname)"]).replace("refs/heads/pm/", "refs/pm/");
    assert_eq!(at_hub, a.git(&["for-each-ref", "--format=%(objectname) %(refname)", "refs/pm"]));
    b.assert_sound();
}

#[test]
fn a_relative_url_counts_from_the_top_of_the_worktree() {
    let hub = hub();
    let mut a = Repo::new();
    std::os::unix::fs::symlink(hub.path(), a.outside().join("hub.git")).expect("linked");
    join(&a, "../hub.git");
    a.git(&["commit", "--quiet", "--allow-empty", "--message", "code"]);
    a.plan("t");
    let (top, other) = (a.path().to_owned(), a.outside().join("other"));
    std::fs::create_dir_all(top.join("deep/down")).expect("made");
    a.git(&["worktree", "add", "--quiet", &other.display().to_string()]);
    for place in [top.join("deep/down"), other, top.join(".git")] {
        a.set_path(&place);
        let is_git_dir = place.ends_with(".git");
        let outcome = a.pm(&["executing", "--task", "t"]);
        if is_git_dir {
            // There git has no worktree, and counts from where it is.
            assert!([0, 20].contains(&outcome.code), "{outcome:?}");
            continue;
        }
        outcome.ok();
        assert_level(&hub, &a, "t");
        a.pm(&["release", "--task", "t"]).ok();
    }
}

#[test]
fn a_shallow_clone_of_code_has_the_whole_ledger_and_a_partial_one_too() {
    let (hub, a, _) = two();
    for n in 0..3 {
        a.git(&["commit", "--quiet", "--allow-empty", "--message", &n.to_string()]);
    }
    a.git(&["push", "--quiet", REMOTE, "HEAD:main"]);
    hub.git(&["config", "uploadpack.allowFilter", "true"]);
    std::fs::write(a.outside().join("log"), "output").expect("written");
    lives(&a, "t");
    a.plan("u");
    a.claim("u");
    let log = a.outside().join("log").display().to_string();
    a.pm(&["report", "--task", "u", "--title", "T", "--attach", &log]).ok();
    for option in ["--depth=1", "--filter=tree:0"] {
        let clone = Repo::nowhere();
        let path = clone.path().display().to_string();
        clone.git(&["clone", "--quiet", option, &hub.file_url(), &path]);
        clone.git(&["config", "pm.remote", REMOTE]);
        clone.pm(&["sync"]).ok();
        assert_eq!(clone.refs(), a.refs(), "{option}");
        clone.pm(&["verify"]).ok();
        clone.plan(&option.replace(['-', '=', ':'], "x"));
        a.pm(&["sync"]).ok();
        // All of it is here, wherever the hub is.
        clone.git(&["remote", "set-url", REMOTE, "gone"]);
        assert_eq!(clone.git(&["show", &format!("{}:log", a.tip("u"))]), "output", "{option}");
    }
}

#[test]
fn ledgers_with_sha_256_meet_at_a_hub_of_their_kind_and_at_no_other() {
    let place = Repo::bare_of_config(&["--bare", "--object-format=sha256"]);
    let url = place.path().display().to_string();
    let [a, b] = [(); 2].map(|()| {
        let repo = Repo::init(&["--object-format=sha256"]);
        repo.git(&["config", "pm.durability", "process"]);
        join(&repo, &url);
        repo
    });
    lives(&a, "t");
    a.plan("u");
    b.pm(&["sync"]).ok();
    b.claim("u");
    a.pm(&["--offline", "executing", "--task", "u"]).ok();
    a.pm(&["sync"]).ok();
    assert_eq!((a.refs(), place.refs().len()), (b.refs(), b.refs().len()));
    assert_eq!(a.tip("u").len(), 64);
    a.assert_sound();
    machine_at(&url).pm(&["sync"]).fails(20);
}

#[test]
fn paths_with_spaces_quotes_and_more_in_them_are_paths() {
    for name in [r"with space and \ and ünïcode", "it's \"quoted\"; #1"] {
        let hub = Repo::bare_of_config(&["--bare"]);
        let mut repo = Repo::new();
        let (there, here) = (hub.outside().join(format!("{name}.git")), repo.outside().join(name));
        std::fs::rename(hub.path(), &there).expect("moved");
        std::fs::rename(repo.path(), &here).expect("moved");
        repo.set_path(here);
        join(&repo, &there.display().to_string());
        repo.plan("t");
        repo.claim("t");
        repo.pm(&["sync"]).ok();
        let there = repo.git(&["ls-remote", REMOTE, &task_ref("t")]);
        assert!(there.starts_with(&repo.tip("t")), "{name}: {there}");
    }
}

#[test]
fn what_the_environment_says_of_another_repository_reaches_no_git_that_pm_runs() {
    let (hub, a, _) = two();
    let other = Repo::new();
    a.plan("t");
    let before = own(&other, "refs");
    let (git_dir, mine) = (other.git_dir().display().to_string(), a.git_dir().display().to_string());
    let (index, objects) = (format!("{git_dir}/index"), format!("{git_dir}/objects"));
    let elsewhere = other.path().display().to_string();
    for (env, args) in [
        (&[("GIT_INDEX_FILE", index.as_str()), ("GIT_PREFIX", "deep/")][..], ["executing", "--task", "t"]),
        (&[("GIT_DIR", &mine), ("GIT_WORK_TREE", &elsewhere)], ["heartbeat", "--task", "t"]),
        (&[("GIT_NAMESPACE", "other"), ("GIT_SHALLOW_FILE", "/dev/null")], ["heartbeat", "--task", "t"]),
        (&[("GIT_CONFIG", "/dev/null"), ("GIT_TRACE2_EVENT", "1"), ("GIT_TRACE", "1")], ["heartbeat", "--task", "t"]),
    ] {
        a.pm_with(env, &args).ok();
        assert_level(&hub, &a, "t");
    }
    // Objects may be kept elsewhere for a while, as in a hook, but a record is not lost with them.
    let outcome = a.pm_with(&[("GIT_OBJECT_DIRECTORY", &objects)], &["heartbeat", "--task", "t"]);
    assert!([0, 1, 18, 19].contains(&outcome.code), "{outcome:?}");
    assert_eq!(own(&other, "refs"), before);
    a.pm(&["heartbeat", "--task", "t"]).ok();
    assert_level(&hub, &a, "t");
    a.assert_sound();
}

#[test]
fn hooks_of_the_code_have_no_say_in_what_pm_fetches_and_pushes() {
    let (hub, a, b) = two();
    for name in ["pre-push", "reference-transaction", "post-update", "pre-auto-gc"] {
        program(&a.outside().join("hooks").join(name), "#!/bin/sh\necho \"$0\" >>\"$HOME/ran\"\nexit 1\n");
    }
    a.git(&["config", "core.hooksPath", &a.outside().join("hooks").display().to_string()]);
    lives(&a, "t");
    b.plan("u");
    a.pm(&["sync"]).ok();
    a.claim("u");
    for slug in ["t", "u"] {
        assert_level(&hub, &a, slug);
    }
    let ran = std::fs::read_to_string(a.outside().join("ran")).unwrap_or_default();
    assert_eq!(ran, "", "no hook ran");
}

#[test]
fn what_is_on_its_way_to_the_authority_is_no_business_of_another_remote() {
    let (hub, a, _) = two();
    let backup = crate::support::fleet::hub();
    a.git(&["remote", "add", "backup", &backup.path().display().to_string()]);
    a.plan("t");
    let record = killed_on_its_way(&hub, &a, &["executing", "--task", "t"]);
    let before = a.tip("t");
    a.pm(&["sync", "backup"]).ok();
    assert_eq!((a.tip("t"), tip_at(&backup, "t")), (before.clone(), before));
    assert_eq!(own(&a, "refs/pm-pending"), format!("refs/pm-pending/default/t {record}"));
    a.pm(&["sync"]).ok();
    assert_eq!(a.tip("t"), record);
    assert_level(&hub, &a, "t");
    // A copy is caught up with in either direction, and decides nothing.
    a.pm(&["sync", "backup"]).ok();
    assert_eq!(refs_at(&backup), a.refs());
}

#[test]
fn packed_refs_of_all_kinds_are_read_and_moved_like_loose_ones() {
    let (hub, a, b) = two();
    a.plan("t");
    for repo in [&a, &b] {
        repo.pm(&["sync"]).ok();
        repo.git(&["pack-refs", "--all"]);
    }
    hub.git(&["pack-refs", "--all"]);
    b.claim("t");
    a.pm(&["--offline", "executing", "--task", "t"]).ok();
    a.git(&["pack-refs", "--all"]);
    a.pm(&["sync"]).ok();
    a.git(&["pack-refs", "--all"]);
    assert_level(&hub, &a, "t");
    assert_eq!((text(&a.state("t")["holder"]), records(&a, "t")), (AGENT.to_owned(), 3));
    assert_eq!(own(&a, "refs/pm-lost").lines().count(), 1);
    hub.git(&["pack-refs", "--all"]);
    b.work_off_claimed("t");
    let outcome: Outcome = machine(&hub).pm(&["sync"]);
    outcome.ok();
    assert_level(&hub, &b, "t");
}

impl Repo {
    /// Reports and finishes a task that is held.
    fn work_off_claimed(&self, task: &str) {
        self.pm(&["report", "--task", task, "--title", "It is done"]).ok();
        self.pm(&["finished", "--task", task]).ok();
    }
}
