//! What can be wrong at the hub, and with one task among others: it is named, nothing is taken, and the rest goes on.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::hook_hostile::{bent, raw, write};
use crate::support::fleet::{REMOTE, assert_level, killed_on_its_way, only_trouble, own, refs_at, tip_at, two};
use crate::support::servers::Hub;
use crate::support::{AGENT, Outcome, Repo, task_ref, until};

/// A hub and two machines that have the tasks `bad` and `good`, the first claimed by the second machine.
fn world() -> (Hub, Repo, Repo) {
    let (hub, a, b) = two();
    a.plan("bad");
    a.plan("good");
    b.pm(&["sync"]).ok();
    b.claim("bad");
    a.pm(&["sync"]).ok();
    (hub, a, b)
}

/// Something is wrong with `bad` at the hub: asserts that each sync of `repo` says so in these words and changes nothing
/// of it here or there, that the other task goes on, and that nothing more is recorded of the bad one.
#[track_caller]
fn stays_alone(hub: &Hub, repo: &Repo, other: &Repo, words: &[&str]) {
    let (here, there) = (repo.tip("bad"), hub.tip(&task_ref("bad")));
    other.claim_as("w8", "good");
    for _ in 0..2 {
        let outcome = repo.pm(&["sync", "--json"]).exits(19);
        let found = only_trouble(&outcome, "bad");
        for word in words {
            assert!(found.contains(word), "{word:?} in {found:?}");
        }
        assert_level(hub, repo, "good");
    }
    let dry = repo.pm(&["sync", "--dry-run", "--json"]).exits(19);
    assert!(only_trouble(&dry, "bad").contains(words[0]), "{dry:?}");
    let error = repo.pm(&["heartbeat", "--task", "bad", "--json"]).fails(19).error();
    assert_eq!((&error["code"], &error["ref"]), (&"damaged".into(), &task_ref("bad").into()));
    assert!(error["found"].as_str().is_some_and(|found| found.contains(words[0])), "{error}");
    repo.pm(&["sweep", "--json"]).ok().says(words[0]);
    assert_eq!((repo.tip("bad"), hub.tip(&task_ref("bad"))), (here, there));
    assert_eq!(own(repo, "refs/pm-pending"), "");
}

/// Asserts that all is well again, once the hub is put right.
#[track_caller]
fn is_well(hub: &Hub, repo: &Repo) {
    repo.pm(&["sync"]).ok();
    assert_level(hub, repo, "bad");
    repo.pm(&["heartbeat", "--task", "bad"]).ok();
    assert_level(hub, repo, "bad");
    repo.assert_sound();
}

#[test]
fn a_task_that_vanished_at_the_hub_is_kept_here_and_said_to_be_gone_each_time() {
    let (hub, a, b) = world();
    let tip = tip_at(&hub, "bad");
    hub.git(&["update-ref", "-d", &task_ref("bad")]);
    stays_alone(&hub, &a, &b, &["gone", "pm repair --push-back"]);
    hub.git(&["update-ref", &task_ref("bad"), &tip]);
    is_well(&hub, &a);
}

#[test]
fn a_task_that_fell_back_at_the_hub_is_no_news() {
    let (hub, a, b) = world();
    let tip = tip_at(&hub, "bad");
    hub.git(&["update-ref", &task_ref("bad"), &format!("{tip}~")]);
    stays_alone(&hub, &a, &b, &["fell back to an older record"]);
    hub.git(&["update-ref", &task_ref("bad"), &tip]);
    is_well(&hub, &a);
}

#[test]
fn a_task_whose_chain_was_replaced_at_the_hub_is_not_followed() {
    let (hub, a, b) = world();
    let tip = tip_at(&hub, "bad");
    hub.git(&["update-ref", &task_ref("bad"), &format!("{tip}~")]);
    let other = crate::support::fleet::machine(&hub);
    other.claim_as("w7", "default/bad");
    stays_alone(&hub, &a, &b, &["replaced by another one"]);
    hub.git(&["update-ref", &task_ref("bad"), &tip]);
    is_well(&hub, &a);
}

/// Pushes a forged record by plain git on top of what the hub has.
#[track_caller]
fn forge(hub: &Hub, forger: &Repo, commit: &str) {
    forger.git(&["push", "--quiet", REMOTE, &format!("+{commit}:{}", task_ref("bad"))]);
    assert_eq!(tip_at(hub, "bad"), commit);
}

/// The next heartbeat of the task, which stands on this machine only.
fn heartbeat(repo: &Repo) -> String {
    repo.pm(&["--offline", "heartbeat", "--task", "bad"]).ok();
    repo.tip("bad")
}

/// What this machine saw at the hub.
fn tip_at_remote(repo: &Repo) -> String {
    repo.git(&["rev-parse", &format!("refs/pm-remote/{REMOTE}/tasks/default/bad")])
}

/// A forged record on top of the claim of `bad`, of the machine that holds it, and the rule that it breaks.
type Forgery = (fn(&Repo) -> String, &'static str);

const FORGERIES: [Forgery; 4] = [
    // Its author is not the holder.
    (|b| bent(b, &heartbeat(b), "author w1", "author w2"), "holder"),
    // It skips the report that it names.
    (
        |b| {
            b.pm(&["--offline", "report", "--task", "bad", "--title", "T"]).ok();
            b.pm(&["--offline", "finished", "--task", "bad"]).ok();
            let done = String::from_utf8(raw(b, &b.tip("bad"))).expect("UTF-8");
            let (report, claim) = (b.git(&["rev-parse", &format!("{}~", task_ref("bad"))]), tip_at_remote(b));
            let text =
                done.replace(&format!("parent {report}"), &format!("parent {claim}")).replace("Seq: 4", "Seq: 3");
            write(b, "commit", text.as_bytes())
        },
        "links",
    ),
    // It has two parents.
    (
        |b| {
            let beat = String::from_utf8(raw(b, &heartbeat(b))).expect("UTF-8");
            let second = format!("parent {}\nauthor", b.tip("good"));
            write(b, "commit", beat.replacen("author", &second, 1).as_bytes())
        },
        "unreadable",
    ),
    // It is a commit of code.
    (
        |b| b.git(&["commit-tree", &format!("{}^{{tree}}", tip_at_remote(b)), "-p", &tip_at_remote(b), "-m", "code"]),
        "unreadable",
    ),
];

#[test]
fn a_record_at_the_hub_that_breaks_a_rule_is_named_by_both_and_kept_to_be_looked_at() {
    let (hub, a, b) = world();
    let tip = tip_at(&hub, "bad");
    for (number, (make, rule)) in FORGERIES.into_iter().enumerate() {
        let commit = make(&b);
        b.git(&["update-ref", &task_ref("bad"), &tip]);
        forge(&hub, &b, &commit);
        if number == 0 {
            stays_alone(&hub, &a, &b, &[&format!("'{rule}'"), &commit, "pm repair --rewind"]);
        }
        let found = only_trouble(&a.pm(&["sync", "--json"]).exits(19), "bad");
        assert!(found.contains(&format!("'{rule}'")) && found.contains(&commit), "{found}");
        a.pm(&["heartbeat", "--task", "bad"]).fails(19).says(&commit);
        assert_eq!((a.tip("bad"), tip_at(&hub, "bad")), (tip.clone(), commit.clone()));
        let refused = format!("refs/pm-remote/{REMOTE}/refused/default/bad");
        assert_eq!(a.git(&["rev-parse", &refused]), commit);
        hub.git(&["update-ref", &task_ref("bad"), &tip]);
    }
    is_well(&hub, &a);
}

/// A chain of its own at the hub, under a ref where nothing was before.
#[track_caller]
fn strange(hub: &Hub, a: &Repo, commit: &str, slug: &str, word: &str) {
    a.git(&["push", "--quiet", REMOTE, &format!("{commit}:{}", task_ref(slug))]);
    for _ in 0..2 {
        let found = only_trouble(&a.pm(&["sync", "--json"]).exits(19), slug);
        assert!(found.contains(word), "{found}");
        assert!(!a.refs().contains(&task_ref(slug)), "nothing was taken");
    }
    a.pm(&["plan", "--title", "T", "--slug", slug]).fails(19).says(word);
    hub.git(&["update-ref", "-d", &task_ref(slug)]);
    a.pm(&["plan", "--title", "T", "--slug", slug]).ok();
    assert_level(hub, a, slug);
}

#[test]
fn a_newer_format_and_a_second_ref_for_a_chain_are_not_taken() {
    let (hub, a, _) = world();
    strange(&hub, &a, &tip_at(&hub, "good"), "second", "'place'");
    let (status, first) = (tip_at(&hub, "good"), a.git(&["rev-parse", &format!("{}~", task_ref("good"))]));
    let root = bent(&a, &first, "Format: 1", "Format: 2");
    let status = String::from_utf8(raw(&a, &status)).expect("UTF-8").replace(&first, &root);
    let status = write(&a, "commit", status.as_bytes());
    strange(&hub, &a, &status, "future", "format");
}

#[test]
fn refs_at_the_hub_that_are_no_tasks_are_named_and_left_there() {
    let (hub, a, _) = world();
    hub.git(&["update-ref", "refs/pm/tasks/Upper/x", &tip_at(&hub, "good")]);
    let told = a.pm(&["sync", "--json"]).json();
    assert_eq!(told["strangers"], serde_json::json!(["refs/pm/tasks/Upper/x"]));
    assert!(!a.refs().contains("Upper"), "nothing was taken");
}

#[test]
fn many_new_tasks_come_in_but_for_one_that_breaks_a_rule() {
    let (hub, a, b) = two();
    let lines: String = (0..40).map(|n| format!("{{\"title\":\"T{n}\"}}\n")).collect();
    a.pm_fed(&lines, &["bulk-plan", "--input", "-"]).ok();
    a.git(&["push", "--quiet", REMOTE, &format!("{}:{}", a.tip("t7"), task_ref("second"))]);
    for taken in [40, 0] {
        let outcome = b.pm(&["sync", "--json"]).exits(19);
        assert!(only_trouble(&outcome, "second").contains("'place'"), "{outcome:?}");
        assert_eq!(outcome.stdout_json()["taken"].as_array().map(Vec::len), Some(taken));
        let doctor = b.pm(&["doctor"]).exits(1);
        assert!(
            doctor.stdout.contains("distrusted: 1 task at 'origin' had something that breaks a rule"),
            "{doctor:?}"
        );
    }
    assert_eq!(b.refs(), a.refs());
    for slug in ["t0", "t39"] {
        assert_level(&hub, &b, slug);
    }
    b.assert_sound();
}

/// Gives a hub a hook.
fn give_hook(hub: &Hub, hook: &str, script: &str) -> PathBuf {
    std::fs::create_dir_all(hub.path().join("hooks")).expect("made");
    let file = hub.path().join("hooks").join(hook);
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("executable");
    file
}

#[test]
fn a_hub_that_wants_nothing_at_all_is_not_asked_of_every_task_alone() {
    let (hub, a, _) = two();
    give_hook(&hub, "pre-receive", "echo >>pushes; exit 1");
    let lines: String = (0..250).map(|n| format!("{{\"title\":\"T{n}\"}}\n")).collect();
    a.pm_fed(&lines, &["--offline", "bulk-plan", "--input", "-"]).ok();
    let told = a.pm(&["sync", "--json"]).exits(20).stdout_json();
    assert_eq!(told["refused"].as_array().map(Vec::len), Some(250), "{told}");
    // Twice for each batch of a hundred, and on the way down to the eight that are tried alone, and up again: not 500 times.
    let pushes = std::fs::read(hub.path().join("pushes")).expect("counted").len();
    assert!((3..=50).contains(&pushes), "{pushes} pushes");
    assert_eq!(hub.git(&["for-each-ref", "refs/pm"]), "");
}

#[test]
fn many_tasks_that_the_hub_does_not_want_keep_no_other_from_being_pushed_for_ever() {
    let (hub, a, _) = two();
    // Refused as a whole, and the first fourteen are why.
    give_hook(&hub, "pre-receive", "if grep -q '/t0[0-9]$\\|/t1[0-3]$'; then exit 1; fi");
    let lines: String = (0..25).map(|n| format!("{{\"title\":\"T{n:02}\"}}\n")).collect();
    a.pm_fed(&lines, &["--offline", "bulk-plan", "--input", "-"]).ok();
    // Which one of a batch is tried alone is left to chance.
    until("the others are there", || {
        a.pm(&["sync"]).exits(20);
        (refs_at(&hub).lines().count() == 11).then_some(())
    });
    assert_eq!(hub.tip(&task_ref("t13")), None);
    assert_level(&hub, &a, "t14");
}

#[test]
fn one_task_that_the_hub_does_not_want_keeps_no_other_from_being_pushed() {
    // Told apart by the hub, and refused as a whole.
    for (hook, script) in
        [("update", "case $1 in */t3) exit 1 ;; esac"), ("pre-receive", "if grep -q /t3$; then exit 1; fi")]
    {
        let (hub, a, _) = two();
        let file = give_hook(&hub, hook, script);
        let lines: String = (0..6).map(|n| format!("{{\"title\":\"T{n}\"}}\n")).collect();
        a.pm_fed(&lines, &["--offline", "bulk-plan", "--input", "-"]).ok();
        let told = a.pm(&["sync", "--json"]).exits(20).stdout_json();
        assert_eq!(told["pushed"].as_array().map(Vec::len), Some(5), "{hook}: {told}");
        assert_eq!(told["refused"].as_array().map(Vec::len), Some(1), "{hook}: {told}");
        assert_eq!(told["refused"][0]["ref"], task_ref("t3"));
        assert_level(&hub, &a, "t5");
        let (mine, none) = (a.tip("t3"), hub.tip(&task_ref("t3")));
        a.pm(&["executing", "--task", "t3"]).fails(20);
        assert_eq!((a.tip("t3"), none), (mine, None));
        std::fs::remove_file(file).expect("removed");
        a.pm(&["sync"]).ok();
        assert_level(&hub, &a, "t3");
    }
}

#[test]
fn a_record_on_its_way_of_a_task_that_is_damaged_here_keeps_no_other_task_from_being_synchronised() {
    let (hub, a, b) = world();
    killed_on_its_way(&hub, &a, &["heartbeat", "--task", "bad"]);
    let code = a.git(&["commit-tree", &format!("{}^{{tree}}", a.tip("bad")), "-m", "code"]);
    a.git(&["update-ref", "refs/pm-pending/default/bad", &code]);
    b.claim_as("w8", "good");
    let found = only_trouble(&a.pm(&["sync", "--json"]).exits(19), "bad");
    assert!(found.contains(&code), "{found}");
    assert_level_but_pending(&hub, &a, "good");
}

#[track_caller]
fn assert_level_but_pending(hub: &Hub, repo: &Repo, slug: &str) {
    assert_eq!(tip_at(hub, slug), repo.tip(slug));
}

#[test]
fn what_this_machine_records_while_a_sync_lists_the_hub_is_no_loss_at_the_hub() {
    let (hub, a, b) = world();
    b.pm(&["sync"]).ok();
    // Once the hub has told where its tasks are, and before the sync knows, another process records something.
    let (upload, once) = (b.outside().join("upload"), b.outside().join("once"));
    let script = format!(
        "#!/bin/sh\ngit upload-pack \"$@\"\ncode=$?\n[ -e {once} ] || {{ : >{once}; cd {repo}; env -i PATH=\"$PATH\" HOME={home} \
         GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 PM_AGENT_ID={AGENT} {pm} heartbeat --task bad </dev/null >{once} 2>&1; }}\nexit $code\n",
        once = once.display(),
        repo = b.path().display(),
        home = b.outside().display(),
        pm = env!("CARGO_BIN_EXE_pm"),
    );
    std::fs::write(&upload, script).expect("written");
    std::fs::set_permissions(&upload, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let upload = upload.display().to_string();
    let env = [
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "remote.origin.uploadpack"),
        ("GIT_CONFIG_VALUE_0", upload.as_str()),
    ];
    let before = refs_at(&hub);
    let outcome: Outcome = b.pm_with(&env, &["sync", "--json"]);
    let said = std::fs::read_to_string(&once).expect("it ran");
    assert_ne!(refs_at(&hub), before, "a heartbeat was recorded meanwhile: {said}");
    assert_eq!(outcome.stdout_json()["left_alone"], serde_json::json!([]), "{outcome:?}");
    outcome.ok();
    assert_level(&hub, &b, "bad");
    assert_eq!(own(&b, &format!("refs/pm-remote/{REMOTE}/refused")), "");
    a.pm(&["sync"]).ok();
    assert_level(&hub, &a, "bad");
}
