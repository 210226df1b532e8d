//! What is an attestation, and what is none.

use super::*;

const VERIFIER: &str = "skill:review";

/// A report with this section in it.
fn report(section: &str) -> String {
    format!("All done.\n\n{HEADING}\n{section}")
}

#[track_caller]
fn check(section: &str, expected: Result<&str, &[&str]>) {
    check_report(&report(section), expected);
}

#[track_caller]
fn check_report(body: &str, expected: Result<&str, &[&str]>) {
    let found = read(VERIFIER, Some(body));
    let found: Result<String, Vec<String>> =
        found.map_err(|faults| faults.iter().map(|fault| format!("{fault:?}")).collect());
    let expected = expected.map(str::to_owned);
    match (&found, &expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{body}"),
        (Err(found), Err(expected)) => {
            // Each fault by its name and what it holds.
            assert_eq!(found.len(), expected.len(), "{body}\n{found:?}");
            for (found, expected) in found.iter().zip(*expected) {
                assert_eq!(found.replace(" { ", " ").replace(" }", ""), *expected, "{body}");
            }
        }
        _ => panic!("{body}\nis {found:?}, and should be {expected:?}"),
    }
}

#[test]
fn accepted_in_any_order_with_evidence_on_many_lines() {
    for (section, evidence) in [
        ("verifier: skill:review\nverdict: PASS\nevidence: I read it.", "I read it."),
        ("\nverifier: skill:review\n\nverdict: PASS\n\nevidence: I read it.\n", "I read it."),
        ("verdict: PASS\nverifier: skill:review\nevidence: x1", "x1"),
        ("evidence: first\nsecond\nverdict: PASS\nverifier: skill:review\n", "first\nsecond"),
        ("verifier:skill:review\nverdict:PASS\nevidence:x", "x"),
        ("verifier:  skill:review  \nverdict:\tPASS \nevidence:  x  ", "x"),
        ("verifier: skill:review\r\nverdict: PASS\r\nevidence: x\r\ny\r\n", "x\ny"),
        ("verifier: skill:review\nverdict: PASS\nevidence:\n\n- one\n- two: 2\n\nthree\n", "- one\n- two: 2\n\nthree"),
        ("verifier: skill:review\nverdict: PASS\nevidence: x\n\n# Next\nverdict: FAIL\n", "x"),
        ("verifier: skill:review\nverdict: PASS\nevidence: x\n### Details\nnote: y", "x"),
        (
            "verifier: skill:review\nverdict: PASS\nevidence: x\n  verdict: indented\n#hash",
            "x\n  verdict: indented\n#hash",
        ),
        ("verifier: skill:review\nverdict: PASS\nevidence: test result: ok. 5 passed", "test result: ok. 5 passed"),
        (
            "verifier: skill:review\nverdict: PASS\nevidence:\n```sh\n# verdict\nverdict: FAIL\n\
             ## Verifier Attestation\n```\nend",
            "```sh\n# verdict\nverdict: FAIL\n## Verifier Attestation\n```\nend",
        ),
        ("verifier: skill:review\nverdict: PASS\nevidence:\n    42 tests", "42 tests"),
        ("verifier: skill:review\nverdict: PASS\nevidence: 読んだ", "読んだ"),
    ] {
        check(section, Ok(evidence));
    }
}

#[test]
fn refused_for_a_field_that_is_absent_twice_or_wrong() {
    let cases: [(&str, &[&str]); 20] = [
        ("", &["Absent field: Verifier", "Absent field: Verdict", "Absent field: Evidence"]),
        ("verdict: PASS\nevidence: x", &["Absent field: Verifier"]),
        ("verifier: skill:review\nevidence: x", &["Absent field: Verdict"]),
        ("verifier: skill:review\nverdict: PASS", &["Absent field: Evidence"]),
        ("verifier: skill:review\nverdict: PASSED\nevidence: x", &["OtherVerdict found: \"PASSED\""]),
        ("verifier: skill:review\nverdict: pass\nevidence: x", &["OtherVerdict found: \"pass\""]),
        ("verifier: skill:review\nverdict: FAIL\nevidence: x", &["OtherVerdict found: \"FAIL\""]),
        ("verifier: skill:review\nverdict: PASS, mostly\nevidence: x", &["OtherVerdict found: \"PASS, mostly\""]),
        ("verifier: skill:review\nverdict:\nevidence: x", &["OtherVerdict found: \"\""]),
        ("verifier: skill:other\nverdict: PASS\nevidence: x", &["OtherVerifier found: \"skill:other\""]),
        ("verifier: review\nverdict: PASS\nevidence: x", &["OtherVerifier found: \"review\""]),
        ("verifier: `skill:review`\nverdict: PASS\nevidence: x", &["OtherVerifier found: \"`skill:review`\""]),
        ("verifier: Skill:Review\nverdict: PASS\nevidence: x", &["OtherVerifier found: \"Skill:Review\""]),
        ("verifier: skill:review\nverdict: PASS\nevidence:", &["NoEvidence"]),
        ("verifier: skill:review\nverdict: PASS\nevidence: \n\n  \n# Next\nx", &["NoEvidence"]),
        ("verifier: skill:review\nverdict: PASS\nevidence: ...\n-", &["NoEvidence"]),
        ("verifier: skill:review\nverdict: PASS\nevidence:\n```text\n```", &["NoEvidence"]),
        ("verifier: skill:review\nverdict: PASS\nevidence: <what was looked at, and what it showed>", &["NoEvidence"]),
        ("verifier: skill:review\nverdict: FAIL\nverdict: PASS\nevidence: x", &["Twice field: Verdict, line: 6"]),
        (
            "verifier: skill:review\nverdict: PASS\nevidence: x\nverdict: PASS\nevidence: y",
            &["Twice field: Verdict, line: 7", "Twice field: Evidence, line: 8"],
        ),
    ];
    for (section, faults) in cases {
        check(section, Err(faults));
    }
}

#[test]
fn refused_for_lines_that_are_no_field_and_no_evidence() {
    let fields = "verifier: skill:review\nverdict: PASS\nevidence: x";
    for (section, line, found) in [
        (format!("note: y\n{fields}"), 4, "note: y"),
        (format!("I did it.\n{fields}"), 4, "I did it."),
        (format!("- verdict: PASS\n{fields}"), 4, "- verdict: PASS"),
        (format!("**verdict:** PASS\n{fields}"), 4, "**verdict:** PASS"),
        (format!(" verdict: PASS\n{fields}"), 4, " verdict: PASS"),
        (format!("Verdict: PASS\n{fields}"), 4, "Verdict: PASS"),
        ("verifier: skill:review\nevidence: x\nverdict: PASS\nand more".to_owned(), 7, "and more"),
    ] {
        let fault = format!("Unknown line: {line}, found: {found:?}");
        check(&section, Err(&[&fault]));
    }
    let fenced = "```\nverifier: skill:review\nverdict: PASS\nevidence: x\n```";
    let found = read(VERIFIER, Some(&report(fenced))).expect_err("no field counts in a code block");
    assert_eq!(found.iter().filter(|fault| matches!(fault, Fault::Unknown { .. })).count(), 5);
    assert_eq!(found.iter().filter(|fault| matches!(fault, Fault::Absent { .. })).count(), 3);
}

#[test]
fn refused_without_exactly_one_section() {
    let fields = "verifier: skill:review\nverdict: PASS\nevidence: x\n";
    for (body, fault) in [
        (String::new(), "NoSection"),
        (fields.to_owned(), "NoSection"),
        (format!("Verifier Attestation\n{fields}"), "NoSection"),
        (format!("# Verifier Attestation\n{fields}"), "AlmostHeading line: 1"),
        (format!("### Verifier Attestation\n{fields}"), "AlmostHeading line: 1"),
        (format!("## verifier attestation\n{fields}"), "AlmostHeading line: 1"),
        (format!("x\n## Verifier Attestation:\n{fields}"), "AlmostHeading line: 2"),
        (format!("##  Verifier Attestation\n{fields}"), "AlmostHeading line: 1"),
        (format!("## Verifier Attestation ##\n{fields}"), "AlmostHeading line: 1"),
        (format!(" ## Verifier Attestation\n{fields}"), "AlmostHeading line: 1"),
        (format!("> ## Verifier Attestation\n{fields}"), "NoSection"),
        (format!("```\n{HEADING}\n{fields}```\n"), "Fenced line: 2"),
        (format!("~~~ md\n```\n{HEADING}\n{fields}```\n~~~\n"), "Fenced line: 3"),
        (format!("````\n```\n{HEADING}\n{fields}"), "Fenced line: 3"),
        (format!("   ```\n{HEADING}\n{fields}"), "Fenced line: 2"),
        (format!("{HEADING}\n{fields}\n{HEADING}\n{fields}"), "ManySections line: 6"),
    ] {
        check_report(&body, Err(&[fault]));
    }
    assert_eq!(read(VERIFIER, None), Err(vec![Fault::NoSection]));
}

#[test]
fn refused_where_a_comment_hides_it() {
    let fields = "verifier: skill:review\nverdict: PASS\nevidence: x\n";
    for body in [
        format!("<!--\n{HEADING}\n{fields}-->\n"),
        format!("<!-- x\n{HEADING}\n{fields}"),
        format!("All <!-- is\n{HEADING}\n{fields}"),
        format!("<!-->\n{HEADING}\n{fields}"),
        format!("x --> y <!-- z\n{HEADING}\n{fields}"),
    ] {
        check_report(&body, Err(&["Commented line: 2"]));
    }
    // A fence in a comment is none, nor is a comment's end in a code block.
    check_report(&format!("<!--\n```\n-->\n<!--\n```\n{HEADING}\n{fields}-->\n"), Err(&["Commented line: 6"]));
    check_report(&format!("<!--\n~~~\n{HEADING}\n~~~\n{fields}"), Err(&["Commented line: 3"]));
    for (section, faults) in [
        (
            "verifier: skill:review\n<!--\nverdict: PASS\n-->\nevidence: x",
            &[
                "Unknown line: 5, found: \"<!--\"",
                "Unknown line: 6, found: \"verdict: PASS\"",
                "Unknown line: 7, found: \"-->\"",
                "Absent field: Verdict",
            ][..],
        ),
        (
            "verifier: skill:review\nverdict: PASS<!-- not -->\nevidence: x",
            &["OtherVerdict found: \"PASS<!-- not -->\""],
        ),
        ("verifier: skill:review\nverdict: PASS\nevidence: <!-- x -->\n<!--\nx\n--> -", &["NoEvidence"]),
        ("verifier: skill:review\nevidence: x <!--\nverdict: PASS\n-->", &["Absent field: Verdict"]),
    ] {
        check(section, Err(faults));
    }
}

#[test]
fn what_is_no_comment_hides_nothing() {
    let section = format!("{HEADING}\nverifier: skill:review\nverdict: PASS\nevidence: x");
    for above in ["<!-- a -->", "<!--\n\na\n-->", "```\n<!--\n```", "-->", "< !--", "<!- -", "<!-- a --> b <!-- c -->"]
    {
        check_report(&format!("{above}\n{section}"), Ok("x"));
    }
    let seen = "```\n<!-- x\n```\nand <!-- not --> more";
    check(&format!("verifier: skill:review\nverdict: PASS\nevidence:\n{seen}"), Ok(seen));
    check("verdict: PASS\nverifier: skill:review\nevidence: -\n<!--\n--> yes", Ok("-\n<!--\n--> yes"));
}

#[test]
fn what_is_no_fence_hides_nothing() {
    let section = format!("{HEADING}\nverifier: skill:review\nverdict: PASS\nevidence: x");
    for above in
        ["``", "    ```", "```a`b", "text ```", "```\ncode\n```", "~~~\n```\n~~~", "```\n````", "~~~ x\n~~~~  "]
    {
        check_report(&format!("{above}\n{section}"), Ok("x"));
    }
}

#[test]
fn a_verifier_of_many_lines_is_named_in_one() {
    let verifier = "prompt:is it green?\nand small? ";
    let body = report("verifier: prompt:is it green?\\nand small?\nverdict: PASS\nevidence: x");
    assert_eq!(read(verifier, Some(&body)).as_deref(), Ok("x"));
    assert!(complaint(verifier, &[Fault::NoSection]).contains("\nverifier: prompt:is it green?\\nand small?\n"));
}

#[test]
fn the_complaint_names_each_fault_and_shows_a_form_that_needs_evidence() {
    let faults = read(VERIFIER, Some(&report("verifier: skill:review\nverdict: OK"))).expect_err("it is none");
    let said = complaint(VERIFIER, &faults);
    assert!(said.contains("there is no line 'evidence:'; the verdict is 'OK', not PASS"), "{said}");
    let form = said.split_once("code blocks:\n\n").expect("the form").1;
    assert_eq!(read(VERIFIER, Some(form)), Err(vec![Fault::NoEvidence]));
    let filled = form.replace(PLACEHOLDER, "I read it");
    assert_eq!(read(VERIFIER, Some(&filled)).as_deref(), Ok("I read it"));
}
