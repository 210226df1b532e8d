//! Every file that pm makes is on `docs/state.md`, and what that page lists is made. Seen by the system calls, so that
//! files which are gone again a moment later count, too.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::confined::{UNDER_ANOTHER_CLOCK, has, is_root, missing};
use crate::support::poller::{Background, status};
use crate::support::servers::Hub;
use crate::support::{AGENT, Outcome, Repo, until};

/// The patterns in the first column of the tables below a heading of the page. `<…>` stands for any text.
fn patterns(heading: &str) -> Vec<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/state.md")).expect("read");
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).expect("the section");
    let first_cells =
        section.lines().filter(|line| line.starts_with("| `")).map(|line| line.split(" | ").next().expect("a cell"));
    let patterns: Vec<String> = first_cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(|name| {
            name.split('<')
                .map(|part| part.split_once('>').map_or(part.to_owned(), |(_, rest)| format!("*{rest}")))
                .collect()
        })
        .collect();
    assert!(patterns.len() > 3, "{patterns:?}");
    patterns
}

/// Whether a pattern with `*` and `?` is that of a whole text.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skipped| matches(rest, &text[skipped..])),
        ([b'?', rest @ ..], [_, text @ ..]) => matches(rest, text),
        ([a, rest @ ..], [b, text @ ..]) => a == b && matches(rest, text),
        _ => false,
    }
}

/// A pm under strace: which files it makes is written to the log.
fn traced(repo: &Repo, log: &Path, prefix: &[&str], args: &[&str]) -> Command {
    let log = log.display().to_string();
    let calls = "trace=open,openat,creat,rename,renameat,renameat2,link,linkat,symlink,symlinkat";
    let trace = ["strace", "-qq", "-o", &log, "-e", calls];
    // The agents of a runner are threads. Elsewhere only git would be followed, whose files are its own.
    let follow: &[&str] = if args[0] == "work" { &["-f"] } else { &[] };
    let line = [prefix, &trace, follow, &[env!("CARGO_BIN_EXE_pm")], args].concat();
    let mut command = repo.program(line[0], &line[1..]);
    command.env("PM_AGENT_ID", AGENT);
    command
}

/// The files in such a log that are below the git directory, relative to it.
fn made_in(repo: &Repo, log: &Path) -> BTreeSet<String> {
    let git_dir = format!("{}/", repo.path().join(".git").display());
    let target = |line: &str| {
        // Where several threads are followed, each line begins with one's number.
        let call = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let makes = call.contains("O_CREAT") || !call.starts_with("open");
        let done = !call.contains(" = -1 ");
        let path = call.split('"').skip(1).step_by(2).last()?.to_owned();
        (makes && done).then_some(path)
    };
    let calls = fs::read_to_string(log).expect("the calls");
    calls.lines().filter_map(target).filter_map(|path| Some(path.strip_prefix(&git_dir)?.to_owned())).collect()
}

/// The files that pm makes while it runs so.
fn made(repo: &Repo, prefix: &[&str], args: &[&str]) -> BTreeSet<String> {
    let log = repo.outside().join("calls");
    let outcome = Outcome::of(args, &mut traced(repo, &log, prefix, args));
    assert!([0, 3].contains(&outcome.code), "{outcome:?}");
    made_in(repo, &log)
}

/// The files that a poller in the background makes.
fn made_by_a_poller(repo: &Repo) -> BTreeSet<String> {
    let log = repo.outside().join("calls-of-the-poller");
    let _stopped_in_any_case = Background(repo);
    let root = repo.path().join(".git/pm").display().to_string();
    let args = ["poll", "run", "--interval", "1h", "--detached", &root];
    let mut poller = traced(repo, &log, &[], &args).stderr(Stdio::null()).spawn().expect("strace starts");
    until("a cycle is over", || {
        let status = status(repo);
        (status["running"] == true && status["lastCycle"]["tasks"] == 5).then_some(())
    });
    repo.pm(&["poll", "stop"]).ok();
    poller.wait().expect("ended");
    made_in(repo, &log)
}

#[test]
fn every_file_that_pm_makes_is_on_the_page_of_its_state() {
    if !has("strace") && missing("strace") {
        return;
    }
    if !is_root() && missing("root") {
        return;
    }
    let repo = Repo::init(&[]);
    fs::write(repo.path().join("plan"), "{\"title\":\"B\"}").expect("written");
    let mut found = BTreeSet::new();
    let mut run = |prefix: &[&str], args: &[&str]| found.extend(made(&repo, prefix, args));
    run(&[], &["plan", "--title", "A"]);
    run(&[], &["bulk-plan", "--input", "plan"]);
    run(&[], &["executing", "--task", "a"]);
    run(&[], &["heartbeat", "--task", "a"]);
    // While a gc runs: by its word, this process is one.
    let host = repo.program("uname", &["-n"]).output().expect("a name").stdout;
    let gc = format!("{} {}", std::process::id(), String::from_utf8(host).expect("UTF-8").trim());
    fs::write(repo.path().join(".git/gc.pid"), gc).expect("written");
    run(&[], &["report", "--task", "a", "--title", "T", "--attach", "plan"]);
    fs::remove_file(repo.path().join(".git/gc.pid")).expect("removed");
    run(&UNDER_ANOTHER_CLOCK, &["sweep"]);
    run(&[], &["finished", "--task", "a"]);
    run(&[], &["plan", "--title", "W", "--text", "Words"]);
    run(&[], &["work", "--max-tasks", "1", "--", "true"]);
    run(&[], &["poll", "run", "--once"]);
    run(&[], &["hook", "install"]);
    // With an authority, which has another record of the task than this repository.
    let hub = Hub::new();
    repo.git(&["remote", "add", "origin", &hub.file_url()]);
    run(&[], &["sync", "origin"]);
    repo.git(&["config", "pm.remote", "origin"]);
    run(&[], &["plan", "--title", "C"]);
    run(&[], &["plan", "--title", "D", "--parent", "c", "--depends-on", "a"]);
    run(&[], &["executing", "--task", "c"]);
    let claim = repo.tip("c");
    run(&[], &["heartbeat", "--task", "c"]);
    hub.git(&["update-ref", "refs/pm/tasks/default/c", &claim]);
    repo.git(&["update-ref", "refs/pm/tasks/default/c", &claim]);
    repo.git(&["update-ref", "refs/pm-remote/origin/tasks/default/c", &claim]);
    run(&[], &["heartbeat", "--task", "c", "--local"]);
    let local = repo.tip("c");
    repo.git(&["update-ref", "refs/pm/tasks/default/c", &claim]);
    run(&[], &["heartbeat", "--task", "c"]);
    repo.git(&["update-ref", "refs/pm/tasks/default/c", &local]);
    run(&[], &["sync"]);
    repo.git(&["config", "--unset", "pm.remote"]);
    for args in [
        &["next"][..],
        &["status"],
        &["list"],
        &["show", "--task", "a"],
        &["log"],
        &["verify"],
        &["poll", "status"],
        &["hook", "pre-receive"],
    ] {
        assert_eq!(made(&repo, &[], args), BTreeSet::new(), "{args:?} only reads");
    }
    found.extend(made_by_a_poller(&repo));

    let local: Vec<String> = patterns("Below").iter().map(|name| format!("pm/{}", name.replace("*/", "*/*"))).collect();
    let elsewhere = patterns("Elsewhere");
    let ledger = ["refs/pm/*", "refs/pm-*", "objects/??/*", "objects/pack/pack-*"].map(str::to_owned);
    let is_of = |pattern: &String, path: &str| matches(pattern.as_bytes(), path.as_bytes());
    for path in &found {
        let is_listed = local.iter().chain(&elsewhere).chain(&ledger).any(|pattern| is_of(pattern, path));
        assert!(is_listed, "docs/state.md does not list {path}");
    }
    for pattern in local.iter().filter(|pattern| !pattern.contains("demo") && !pattern.ends_with(".log.1")) {
        assert!(found.iter().any(|path| is_of(pattern, path)), "no {pattern} was made: {found:?}");
    }
}
