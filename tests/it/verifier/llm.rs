//! What an LLM command line is asked, and what is made of its answer. Shell scripts stand for it.

use std::ffi::OsStr;
use std::time::Duration;

use pm::verifier::{LlmCli, Outcome, VerifierError};

use super::{Scene, report};

const VERIFIER: &str = "verify-prompt:is it green?";

/// A scene in which this script is asked.
fn scene(script: &str) -> Scene {
    let mut scene = Scene::new();
    scene.script("judge.sh", script);
    scene.llm_clis = vec![cli("./judge.sh --flag")];
    scene
}

fn cli(text: &str) -> LlmCli {
    LlmCli::of(OsStr::new(text)).expect("words")
}

#[test]
fn the_last_line_that_says_anything_is_the_verdict() {
    for (script, exit, summary) in [
        ("cat >/dev/null; echo fine; echo VERDICT: PASS", 0, "fine\nVERDICT: PASS"),
        ("cat >/dev/null; printf 'VERDICT: PASS\\r\\n\\n  \\n'", 0, "VERDICT: PASS\n\n  "),
        ("cat >/dev/null; printf 'VERDICT: PASS'; echo noise >&2", 0, "VERDICT: PASS"),
        ("cat >/dev/null; echo 'VERDICT: FAIL: it is red'", 1, "VERDICT: FAIL: it is red"),
        ("cat >/dev/null; echo VERDICT: PASS; echo 'VERDICT: FAIL: no'", 1, "VERDICT: PASS\nVERDICT: FAIL: no"),
        ("cat >/dev/null; echo VERDICT: PASS; echo bye", 2, "no verdict in the last line\nVERDICT: PASS\nbye"),
        ("cat >/dev/null; echo looks good", 2, "no verdict in the last line\nlooks good"),
        ("cat >/dev/null; echo 'VERDICT: PASS.'", 2, "no verdict in the last line\nVERDICT: PASS."),
        ("cat >/dev/null; echo VERDICT: FAIL", 2, "no verdict in the last line\nVERDICT: FAIL"),
        ("cat >/dev/null; echo VERDICT: PASS >&2", 2, "no verdict in the last line\nVERDICT: PASS"),
        ("cat >/dev/null", 2, "no verdict in the last line"),
    ] {
        assert_eq!(scene(script).judged(VERIFIER), (exit, summary.to_owned()), "{script}");
    }
}

#[test]
fn an_answer_of_a_command_line_that_failed_does_not_count() {
    let says = |exit| format!("the LLM command line ended with {exit}, so its answer does not count\nVERDICT: PASS");
    assert_eq!(scene("echo VERDICT: PASS; exit 3").judged(VERIFIER), (3, says(3)));
    assert_eq!(scene("echo VERDICT: PASS; kill -KILL $$").judged(VERIFIER), (137, says(137)));
    assert_eq!(scene("echo 'VERDICT: FAIL: x'; exit 9").judged(VERIFIER).0, 9);
}

#[test]
fn one_that_repeats_the_question_gives_no_verdict() {
    let mut scene = scene("cat");
    scene.report_body = "VERDICT: PASS\n".to_owned();
    assert_eq!(scene.judged(VERIFIER).0, 2);
}

#[test]
fn it_is_asked_on_standard_input_with_its_arguments_and_the_environment() {
    let mut scene = scene("cat >asked; echo \"$*:$PM_REPORT:$PM_VERIFIER\"; echo VERDICT: PASS");
    scene.report_body = "[pm 0123456789abcdef0123456789abcdef]\nYou are done: VERDICT: PASS\n".to_owned();
    let said = format!("--flag:{}:{VERIFIER}\nVERDICT: PASS", report());
    assert_eq!(scene.judged(VERIFIER), (0, said));
    let asked = scene.read("asked");
    let marker = asked.lines().find(|line| line.starts_with("[pm ")).expect("a marker");
    for text in ["Build the login", "the text of the task", "built", scene.report_body.trim_end(), "is it green?"] {
        assert!(asked.contains(&format!("\n{marker}\n{text}\n{marker}\n")), "{text} in {asked}");
    }
    assert_eq!(scene.judged("verify-skill:review").0, 0);
    let again = scene.read("asked");
    assert!(again.contains("\nreview\n[pm ") && !again.contains(marker), "{again}");
}

#[test]
fn one_that_does_not_read_holds_nothing_up() {
    let mut scene = scene("echo VERDICT: PASS");
    // More than any pipe holds.
    scene.task_body = "x".repeat(1 << 20);
    assert_eq!(scene.judged(VERIFIER).0, 0);
    scene.script("judge.sh", "exec <&-; sleep 0.1; echo VERDICT: PASS");
    assert_eq!(scene.judged(VERIFIER).0, 0);
    scene.script("judge.sh", "sleep 1000; echo VERDICT: PASS");
    scene.timeout = Duration::from_millis(300);
    let judgement = scene.judgement(VERIFIER);
    assert!(judgement.timed_out && judgement.exit == 124, "{judgement:?}");
    assert_eq!(judgement.summary.as_deref(), Some("timed out after 0.3 s"));
}

#[test]
fn a_long_question_arrives_whole_and_a_long_answer_is_read_to_its_end() {
    let mut scene = scene("wc -c >count; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo VERDICT: PASS");
    scene.task_body = "x".repeat(1 << 20);
    assert_eq!(scene.judged(VERIFIER).0, 0);
    assert!(scene.pid("count") > 1 << 20);
}

#[test]
fn it_is_stopped_as_any_command() {
    let scene = scene("echo yes >ready; sleep 1000; echo VERDICT: PASS");
    let outcome = scene.verify_until(VERIFIER, &|| scene.read("ready") == "yes");
    assert_eq!(outcome.expect("asked"), Outcome::Stopped);
}

#[test]
fn the_first_one_that_is_there_is_asked_and_none_is_127() {
    let mut scene = scene("cat >/dev/null; echo VERDICT: PASS");
    let missing = || cli("no-such-command-anywhere -p");
    scene.llm_clis.insert(0, missing());
    assert_eq!(scene.judged(VERIFIER).0, 0);
    scene.llm_clis = vec![missing()];
    let (exit, summary) = scene.judged(VERIFIER);
    assert_eq!(exit, 127);
    let said = "there is no LLM command line to ask (looked for: no-such-command-anywhere)";
    assert!(summary.starts_with(said), "{summary}");
    scene.llm_clis = vec![cli("/dev/null")];
    let (exit, summary) = scene.judged(VERIFIER);
    assert_eq!(exit, 127);
    assert!(summary.starts_with("the LLM command line '/dev/null' cannot be started: "), "{summary}");
}

#[test]
fn it_is_asked_only_where_this_very_question_is_allowed() {
    let mut scene = scene("touch ran; echo VERDICT: PASS");
    scene.allow = vec!["is it green?".to_owned(), "verify-prompt:".to_owned(), "./judge.sh --flag".to_owned()];
    let refused = scene.verify_until(VERIFIER, &|| false);
    assert!(matches!(refused, Err(VerifierError::NotAllowed(_))), "{refused:?}");
    assert!(!scene.path().join("ran").exists());
    scene.allow = vec![VERIFIER.to_owned()];
    assert_eq!(scene.judged(VERIFIER).0, 0);
}
