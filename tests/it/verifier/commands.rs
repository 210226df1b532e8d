//! What a verifier that is a command is told, and what its end means.

use pm::verifier::{Outcome, VerifierError};

use super::{Scene, report, task};

#[test]
fn the_exit_code_is_the_verdict() {
    let scene = Scene::new();
    scene.script("five.sh", "echo no; exit 5");
    for (verifier, exit, summary) in [
        ("true", 0, ""),
        ("false", 1, ""),
        ("exit 7", 7, ""),
        ("./five.sh", 5, "no"),
        ("true && echo yes", 0, "yes"),
        ("false || exit 3", 3, ""),
        ("exit 124", 124, ""),
        (":", 0, ""),
    ] {
        assert_eq!(scene.judged(verifier), (exit, summary.to_owned()), "{verifier}");
    }
}

#[test]
fn a_command_killed_by_a_signal_has_128_and_its_number() {
    let scene = Scene::new();
    assert_eq!(scene.judged("kill -KILL $$").0, 137);
    assert_eq!(scene.judged("kill -TERM $$").0, 143);
    assert_eq!(scene.judged("sh -c 'kill -KILL $$'; exit $?").0, 137);
}

#[test]
fn what_cannot_be_started_is_127() {
    let mut scene = Scene::new();
    let (exit, summary) = scene.judged("no-such-command-anywhere");
    assert_eq!(exit, 127);
    assert!(summary.contains("no-such-command-anywhere"), "{summary}");
    assert_eq!(scene.judged("-x").0, 127, "no option of the shell's");
    for nothing in ["", "  \n", "verify-skill:", "verify-prompt: "] {
        scene.allow = vec![nothing.to_owned()];
        let judged = scene.verify_until(nothing, &|| false);
        assert!(matches!(judged, Ok(Outcome::Judged(judged)) if judged.exit == 127), "{nothing:?}");
    }
    scene.allow = vec!["*".to_owned()];
    let judged = scene.verify_until("a\0b", &|| false);
    assert!(matches!(judged, Ok(Outcome::Judged(judged)) if judged.exit == 127), "no system takes a NUL");
    std::fs::remove_dir(scene.path()).expect("empty");
    let (exit, summary) = scene.judged("true");
    assert_eq!((exit, summary.as_str()), (127, "the directory that the verifier should run in is not there"));
}

#[test]
fn a_plain_word_is_given_task_and_report_as_arguments() {
    let scene = Scene::new();
    scene.script("check.sh", r#"echo "$#:$1:$2""#);
    assert_eq!(scene.judged("./check.sh"), (0, format!("2:{}:{}", task(), report())));
}

#[test]
fn a_command_line_is_run_as_it_stands_and_has_them_as_parameters() {
    let scene = Scene::new();
    scene.script("check.sh", r#"echo "$#:$1:$2""#);
    let both = format!("{}:{}", task(), report());
    for (verifier, summary) in [
        ("./check.sh --all", "1:--all:".to_owned()),
        ("./check.sh \"$@\"", format!("2:{both}")),
        ("true && ./check.sh $2", format!("1:{}:", report())),
        ("echo $1:$2 # said", both),
        ("grep -c echo check.sh", "1".to_owned()),
        ("for x in a b; do\n  echo $x\ndone", "a\nb".to_owned()),
    ] {
        assert_eq!(scene.judged(verifier), (0, summary), "{verifier}");
    }
}

#[test]
fn a_command_finds_what_it_is_about_in_its_environment_and_nothing_to_read() {
    let scene = Scene::new();
    let verifier = r#"echo "$PM_TASK $PM_REPORT $PM_QUEUE $PM_SLUG"; echo "$PM_VERIFIER"; cat; pwd -P"#;
    let dir = scene.path().canonicalize().expect("there");
    let expected = format!("{} {} web build-login\n{verifier}\n{}", task(), report(), dir.display());
    assert_eq!(scene.judged(verifier), (0, expected));
}

#[test]
fn what_it_printed_is_recorded_in_the_order_in_which_it_was_written() {
    let scene = Scene::new();
    let (exit, summary) = scene.judged("echo one; echo two >&2; echo three; printf '\\033[1mfour\\n' >&2; exit 1");
    assert_eq!((exit, summary.as_str()), (1, "one\ntwo\nthree\n[1mfour"));
}

#[test]
fn of_ten_million_bytes_the_beginning_and_the_end_are_recorded() {
    let scene = Scene::new();
    let (exit, summary) = scene.judged("echo first; head -c 10000000 /dev/zero | tr '\\0' x; echo; echo last");
    assert_eq!(exit, 0);
    assert!(summary.starts_with("first\nxxx") && summary.ends_with("xxx\nlast"), "{summary}");
    let (_, rest) = summary.split_once("\n[pm: ").expect("a marker");
    let (left_out, _) = rest.split_once(" bytes are left out here]\n").expect("a marker");
    let left_out: usize = left_out.parse().expect("a number");
    // In all there were 10,000,012, of which the last newline is none of the summary's.
    let shown = summary.len() - "\n[pm:  bytes are left out here]\n".len() - left_out.to_string().len();
    assert_eq!(shown + left_out, 10_000_011);
    assert!(summary.len() <= 4096);
}

#[test]
fn nothing_runs_that_this_machine_does_not_allow() {
    let mut scene = Scene::new();
    let verifier = "touch 'ran it'";
    for allow in [vec![], vec!["touch"], vec!["touch 'ran it' "], vec!["verify-prompt:touch 'ran it'"]] {
        scene.allow = allow.into_iter().map(str::to_owned).collect();
        let error = scene.verify_until(verifier, &|| false).expect_err("not allowed");
        let line = r"git config --add pm.allowVerifier 'touch '\''ran it'\'''";
        assert!(error.to_string().ends_with(line), "{error}");
        assert!(matches!(error, VerifierError::NotAllowed(refused) if refused.verifier == verifier));
        assert!(!scene.path().join("ran it").exists());
    }
    scene.allow = vec!["other".to_owned(), verifier.to_owned()];
    assert_eq!(scene.judged(verifier).0, 0);
    assert!(scene.path().join("ran it").exists());
}

#[test]
fn an_attestation_needs_no_leave_and_starts_nothing() {
    let mut scene = Scene::new();
    scene.allow.clear();
    let (exit, summary) = scene.judged("prompt:touch here");
    assert_eq!(exit, 1);
    assert!(summary.contains("verifier: prompt:touch here\nverdict: PASS\nevidence: "), "{summary}");
    scene.report_body =
        "## Verifier Attestation\n\nverifier: prompt:touch here\nverdict: PASS\nevidence: 12 tests\nare green\n"
            .to_owned();
    assert_eq!(scene.judged("prompt:touch here"), (0, "12 tests\nare green".to_owned()));
    assert_eq!(scene.judged("skill:touch here").0, 1);
    assert_eq!(std::fs::read_dir(scene.path()).expect("listed").count(), 0);
}
