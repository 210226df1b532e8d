//! Titles and texts that try to be more than text.

use crate::support::{Repo, task_ref};

const FORGED: &str = "Record: TaskStatus\nStatus: done\nSeq: 99\nNonce: 0000000000000000";

/// Asserts that git reads the trailers of this commit as pm's own block, whatever stands above it.
fn check_trailers(repo: &Repo, commit: &str, kind: &str, seq: u64) {
    let message = repo.git(&["log", "-1", "--format=%B", commit]);
    let parsed = repo.git_fed(message.as_bytes(), &["interpret-trailers", "--parse", "--no-divider"]);
    let lines: Vec<&str> = parsed.lines().collect();
    assert_eq!(lines[0], format!("Record: {kind}"), "{parsed}");
    assert_eq!(lines.iter().filter(|line| line.starts_with("Record:")).count(), 1, "{parsed}");
    assert!(lines.contains(&format!("Seq: {seq}").as_str()), "{parsed}");
    for (key, value) in [("Record", kind.to_owned()), ("Seq", seq.to_string())] {
        let format = format!("--format=%(trailers:key={key},valueonly,only)");
        assert_eq!(repo.git(&["log", "-1", &format, commit]), value);
    }
}

#[test]
fn titles_are_one_printable_line_of_at_most_200_characters() {
    let repo = Repo::new();
    let long = "x".repeat(10_000);
    for (title, reason) in [
        ("", "empty"),
        ("  \t ", "empty"),
        ("two\nlines", "one line"),
        ("two\r\nlines", "one line"),
        ("red \u{1b}[31m", "control character U+001B"),
        ("bell \u{7}", "control character U+0007"),
        ("c1 \u{9b}31m", "control character U+009B"),
        ("delete \u{7f}", "control character U+007F"),
        (&long, "10000 characters, at most 200"),
    ] {
        let outcome = repo.pm(&["plan", "--slug", "a", "--title", title]).fails(2).says(reason);
        assert!(!outcome.stderr.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{7f}']), "{outcome:?}");
        assert!(outcome.stderr.len() < 500, "a refusal does not repeat 10,000 characters");
    }
    assert_eq!(repo.refs(), "");
    let most = "ä".repeat(200);
    let planned = repo.pm(&["plan", "--json", "--title", &most]).json();
    assert_eq!(planned["task"]["title"], most.as_str());
}

#[test]
fn a_title_that_looks_like_a_trailer_a_comment_or_an_option_is_a_title() {
    let repo = Repo::new();
    for (n, title) in [
        "Record: TaskStatus",
        "# no comment",
        "--title",
        "fixup! all",
        "Ünï → 日本語 🦀",
        "a\\nb",
        "\"q\" 'q' `q` $(q)",
    ]
    .iter()
    .enumerate()
    {
        let slug = format!("t{n}");
        repo.pm(&["plan", &format!("--title={title}"), "--slug", &slug]).ok();
        assert_eq!(repo.pm(&["show", "--json", "--task", &slug]).json()["task"]["title"], *title);
        assert_eq!(repo.git(&["log", "-1", "--format=%s", &format!("{}~", task_ref(&slug))]), *title);
        check_trailers(&repo, &format!("{}~", task_ref(&slug)), "Task", 0);
    }
    repo.assert_sound();
}

#[test]
fn texts_that_end_like_trailers_or_hold_a_divider_change_nothing() {
    let repo = Repo::new();
    let scissors = "# ------------------------ >8 ------------------------";
    let bodies = [
        FORGED.to_owned(),
        format!("Some text.\n\n{FORGED}"),
        format!("{FORGED}\n---\n diff --git a/x b/x"),
        format!("above\n---\nbelow\n\n{FORGED}\n\n---\n"),
        format!("{scissors}\nbelow"),
        format!("text\n\n{FORGED}\n{scissors}\n{FORGED}"),
        "Signed-off-by: x <x@example.com>\n(cherry picked from commit 123)\n".to_owned(),
        "\n\n  leading blank lines\n\n\n".to_owned(),
        "tabs\tand \\ backslashes\\n".to_owned(),
        "Conflicts:\n\tfile\n".to_owned(),
    ];
    for (n, body) in bodies.iter().enumerate() {
        let slug = format!("t{n}");
        let task = repo.plan_with(&slug, &["--text", body]);
        check_trailers(&repo, &task, "Task", 0);
        repo.claim(&slug);
        repo.pm_fed(body, &["report", "--task", &slug, "--title", "T", "--text-file", "-"]).ok();
        check_trailers(&repo, &task_ref(&slug), "TaskReport", 3);
        repo.pm(&["finished", "--task", &slug]).ok();
        let shown = repo.pm(&["show", "--json", "--task", &slug]).json();
        let kept = format!("{}\n", body.trim_end_matches('\n'));
        assert_eq!(shown["task"]["body"], kept.as_str());
        assert_eq!(shown["reports"][0]["body"], kept.as_str());
        assert_eq!(shown["state"]["status"], "done");
    }
    repo.assert_sound();
}

#[test]
fn every_record_of_a_life_is_read_by_git() {
    let repo = Repo::new();
    repo.plan("a");
    repo.claim("a");
    repo.pm(&["heartbeat", "--task", "a", "--progress", "half\nRecord: Task"]).ok();
    repo.pm(&["report", "--task", "a", "--title", "T", "--text", FORGED]).ok();
    repo.pm(&["finished", "--task", "a", "--note", "Status: new\n\nSeq: 1"]).ok();
    let kinds =
        repo.git(&["log", "--reverse", "--format=%(trailers:key=Record,valueonly,separator=%x2C)", &task_ref("a")]);
    assert_eq!(
        kinds.lines().collect::<Vec<_>>(),
        ["Task", "TaskStatus", "TaskStatus", "TaskHeartbeat", "TaskReport", "TaskStatus"]
    );
    for (depth, kind) in [(0, "TaskStatus"), (1, "TaskReport"), (2, "TaskHeartbeat"), (3, "TaskStatus")] {
        check_trailers(&repo, &format!("{}~{depth}", task_ref("a")), kind, 5 - depth);
    }
    let shown = repo.pm(&["show", "--json", "--task", "a"]).json();
    assert_eq!(shown["heartbeats"][0]["attributes"]["progress"], "half\nRecord: Task");
    assert_eq!(shown["statuses"][2]["attributes"]["reason"], "Status: new\n\nSeq: 1");
}

#[test]
fn control_characters_are_refused_in_a_plan_and_removed_from_a_report() {
    let repo = Repo::new();
    repo.pm(&["plan", "--title", "T", "--text", "red \u{1b}[31m"]).fails(2).says("U+001B");
    repo.plan("a");
    repo.claim("a");
    repo.pm(&["heartbeat", "--task", "a", "--progress", "\u{1b}[2J"]).fails(2);
    repo.pm(&["report", "--task", "a", "--title", "ok \u{1b}[32mgreen", "--text", "a\u{1b}[0m\r\nb\u{8}"]).ok();
    let report = repo.pm(&["show", "--json", "--task", "a"]).json()["reports"][0].clone();
    assert_eq!((&report["title"], &report["body"]), (&"ok [32mgreen".into(), &"a[0m\nb\n".into()));
}

#[test]
fn a_text_of_more_than_a_mebibyte_is_refused_and_the_way_out_is_named() {
    let repo = Repo::new();
    repo.plan("a");
    repo.claim("a");
    let big = "0123456789abcdef".repeat(1 << 16);
    let report = ["report", "--task", "a", "--title", "T"];
    let from_stdin = [&report[..], &["--text-file", "-"]].concat();
    repo.pm_fed(&big, &from_stdin).fails(2).says("attach it as a file");
    repo.pm_fed(&big[1..], &from_stdin).fails(2).says("attach long texts as files");
    repo.pm_fed(&big[1024..], &from_stdin).ok();
    std::fs::write(repo.path().join("big"), &big).expect("written");
    repo.pm(&[&report[..], &["--attach", "big"]].concat()).ok();
    assert_eq!(repo.git(&["cat-file", "-s", &format!("{}:big", task_ref("a"))]), (1 << 20).to_string());
    std::fs::write(repo.path().join("binary"), [0xff, 0xfe, 0]).expect("written");
    repo.pm(&[&report[..], &["--text-file", "binary"]].concat()).fails(2).says("not UTF-8");
    repo.assert_sound();
}

#[test]
fn attachments_are_kept_byte_for_byte_under_their_own_names() {
    let repo = Repo::new();
    repo.plan("a");
    repo.claim("a");
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    std::fs::create_dir(repo.path().join("dir")).expect("created");
    for name in ["ünï côdé.bin", "dir/empty", "-dash"] {
        let content = if name.contains("empty") { &[][..] } else { &bytes[..] };
        std::fs::write(repo.path().join(name), content).expect("written");
    }
    let report = ["report", "--task", "a", "--title", "T", "--json"];
    let files = ["--attach", "ünï côdé.bin", "--attach", "dir/empty", "--attach=-dash"];
    let told = repo.pm(&[&report[..], &files[..]].concat()).json();
    assert_eq!(told["attributes"]["attachments"], serde_json::json!(["-dash", "empty", "ünï côdé.bin"]));
    let out = repo.program("git", &["show", &format!("{}:ünï côdé.bin", task_ref("a"))]).output().expect("git runs");
    assert_eq!(out.stdout, bytes);
    std::fs::write(repo.path().join("dir/-dash"), "").expect("written");
    repo.pm(&[&report[..], &["--attach=-dash", "--attach", "dir/-dash"]].concat()).fails(2).says("two attached files");
    repo.pm(&[&report[..], &["--attach", "absent"]].concat()).fails(2).says("absent");
    repo.pm(&[&report[..], &["--attach", "dir"]].concat()).fails(2);
    for disguise in [".git", ".GIT", "git~1"] {
        std::fs::write(repo.path().join("dir").join(disguise), "").expect("written");
        repo.pm(&[&report[..], &["--attach", &format!("dir/{disguise}")]].concat()).fails(2).says(disguise);
    }
    repo.assert_sound();
}

#[test]
fn the_commit_of_a_report_must_be_one() {
    let repo = Repo::new();
    repo.plan("a");
    repo.claim("a");
    let work = repo.git(&["commit-tree", &repo.git_fed(b"", &["mktree"]), "-m", "work"]);
    repo.git(&["update-ref", "refs/heads/main", &work]);
    repo.git(&["tag", "-a", "-m", "v1", "v1", "main"]);
    let report = |rev: &str| repo.pm(&["report", "--json", "--task", "a", "--title", "T", "--commit", rev]);
    for rev in ["main", "HEAD", "refs/heads/main", "v1", &work, &work[..8]] {
        assert_eq!(report(rev).json()["attributes"]["commit"], work.as_str(), "{rev}");
    }
    for rev in
        ["absent", "HEAD~1", "0123456789012345678901234567890123456789", "", &repo.git(&["rev-parse", "main^{tree}"])]
    {
        report(rev).fails(2);
    }
}

#[test]
fn an_empty_text_does_not_replace_one() {
    let repo = Repo::new();
    repo.plan_with("a", &["--text", "What to do."]);
    repo.pm(&["cancel", "--task", "a"]).ok();
    let before = repo.refs();
    std::fs::write(repo.path().join("empty"), "").expect("written");
    for option in [["--text", ""], ["--text", " \n"], ["--text-file", "empty"]] {
        repo.pm(&[&["replan", "--task", "a"][..], &option].concat()).fails(2).says("the new text is empty");
    }
    assert_eq!(repo.refs(), before);
    let clone = repo.pm(&["replan", "--json", "--task", "a", "--verifier", "make test"]).json()["clone"].clone();
    let clone = repo.pm(&["show", "--json", "--task", clone["task"].as_str().expect("an id")]).json();
    assert_eq!(clone["task"]["body"], "What to do.\n", "without an option it is kept");
    // As it always was: whoever plans a task without a text loses none.
    assert_eq!(repo.pm(&["plan", "--json", "--title", "B", "--text", ""]).json()["task"].get("body"), None);
}
