//! `bulk-plan`: the whole input is checked first, every fault is listed with its line, and it is all or nothing.

use std::path::PathBuf;

use crate::support::{Outcome, Repo, text};

fn fixture(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "fixtures/plans", name].iter().collect();
    path.display().to_string()
}

fn bulk(repo: &Repo, input: &str, options: &[&str]) -> Outcome {
    repo.pm_fed(input, &[&["bulk-plan", "--input", "-"], options].concat())
}

/// Asserts that an input is refused with this code and with all these words, and that nothing was written.
fn refused(repo: &Repo, input: &str, code: i32, words: &[&str]) {
    let before = repo.refs();
    let outcome = bulk(repo, input, &[]).fails(code);
    for word in words {
        assert!(outcome.stderr.contains(word), "'{word}' is not in {outcome:?}");
    }
    assert_eq!(repo.refs(), before);
}

#[test]
fn unknown_and_misspelt_fields_are_refused_with_their_line() {
    let repo = Repo::new();
    for field in ["titel", "dependsOn", "ttl", "max_attempts", "parentSlug", "queue"] {
        let lines = format!("{{\"title\":\"A\"}}\n\n{{\"title\":\"B\",\"{field}\":true}}\n");
        refused(&repo, &lines, 2, &["line 3", field]);
        let array = format!("[\n{{\"title\":\"A\"}},\n{{\"title\":\"B\",\n \"{field}\":\"x\"}}]");
        refused(&repo, &array, 2, &["line ", field]);
    }
}

#[test]
fn every_fault_is_listed_with_its_line() {
    let repo = Repo::new();
    let input = "{\"title\":\"\"}\n\
                 {\"slug\":\"A\",\"title\":\"two\\nlines\"}\n\
                 {\"title\":\"ok\",\"priority\":7,\"labels\":[\"two words\"]}\n\
                 {\"slug\":\"same\",\"title\":\"One\"}\n\
                 {\"slug\":\"same\",\"title\":\"Two\"}\n\
                 not json\n\
                 {\"slug\":\"no-title\"}\n\
                 {\"title\":\"T\",\"text\":\"\\u001b[31m\"}\n\
                 [1]\n";
    let words = ["line 1: ", "line 2: ", "line 3: ", "line 5: ", "line 6: ", "line 7: ", "line 8: ", "line 9: "];
    refused(&repo, input, 2, &words);
    refused(
        &repo,
        input,
        2,
        &["'A' is not a valid slug", "must be one line", "priority", "'two words'", "that of line 4 already"],
    );
    refused(&repo, input, 2, &["has no title", "U+001B", "nothing was written"]);
}

#[test]
fn an_input_that_is_no_plan_is_refused() {
    let repo = Repo::new();
    for input in [
        "",
        "\n\n",
        "[]",
        "[",
        "{",
        "null",
        "42",
        "[{\"title\":\"A\"}",
        "\u{feff}{}",
        "{\"title\":1}",
        "[[{\"title\":\"A\"}]]",
    ] {
        refused(&repo, input, 2, &["nothing was written"]);
    }
    repo.pm(&["bulk-plan", "--input", "absent"]).fails(2).says("absent");
    std::fs::write(repo.path().join("binary"), [0xff, 0xfe]).expect("written");
    repo.pm(&["bulk-plan", "--input", "binary"]).fails(2).says("line 1: it is not UTF-8").says("nothing was written");
    repo.pm(&["bulk-plan"]).fails(2);
}

#[test]
fn dependencies_that_cannot_be_are_refused_with_their_line() {
    let repo = Repo::new();
    refused(&repo, "{\"slug\":\"a\",\"title\":\"A\",\"depends_on_slugs\":[\"absent\"]}", 11, &["line 1", "absent"]);
    refused(&repo, "{\"slug\":\"a\",\"title\":\"A\",\"depends_on_slugs\":[\"a\"]}", 11, &["line 1", "itself"]);
    refused(&repo, "{\"slug\":\"a\",\"title\":\"A\",\"depends_on_slugs\":[\"B\"]}", 11, &["line 1", "'B'"]);
    refused(&repo, "{\"slug\":\"a\",\"title\":\"A\",\"depends_on\":[\"0123456789\"]}", 11, &["line 1", "0123456789"]);
    repo.plan("bad");
    repo.claim("bad");
    repo.pm(&["report", "--task", "bad", "--title", "No"]).ok();
    repo.pm(&["finished", "--task", "bad", "--rejected"]).ok();
    bulk(&repo, "{\"title\":\"A\",\"depends_on_slugs\":[\"bad\"]}", &[]).fails(11).says("it is rejected");
}

#[test]
fn a_cycle_is_printed_and_nothing_is_written() {
    let repo = Repo::new();
    let plan = fixture("debian-cycle.plan.json");
    repo.pm(&["bulk-plan", "--input", &plan]).fails(11).says("the plan has a cycle: libc6 -> libgcc-s1 (");
    assert_eq!(repo.refs(), "");
    assert_eq!(repo.git(&["count-objects", "-v"]).lines().find(|line| line.starts_with("packs:")), Some("packs: 0"));
}

#[test]
fn faults_of_every_kind_are_listed_together_and_the_first_kind_gives_the_exit_code() {
    let repo = Repo::new();
    repo.plan("taken");
    let graph = "{\"slug\":\"a\",\"title\":\"A\",\"depends_on_slugs\":[\"b\",\"absent\"]}\n\
                 {\"slug\":\"b\",\"title\":\"B\",\"depends_on_slugs\":[\"a\"]}\n\
                 {\"slug\":\"c\",\"title\":\"C\",\"depends_on_slugs\":[\"d\"]}\n\
                 {\"slug\":\"d\",\"title\":\"D\",\"depends_on_slugs\":[\"c\"]}\n";
    let of_graph = [
        "line 1: depends on absent",
        "line 1: the plan has a cycle: a -> b (line 2) -> a",
        "line 3: the plan has a cycle: c -> d (line 4) -> c",
    ];
    refused(&repo, graph, 11, &of_graph);
    let slugs = format!("{graph}{{\"slug\":\"taken\",\"title\":\"Other\"}}\n");
    let of_slugs = [&of_graph[..], &["line 5: default/taken exists already", "--accept-existing"]].concat();
    refused(&repo, &slugs, 4, &of_slugs);
    let input = format!("{slugs}{{\"slug\":\"e\",\"title\":\"E\",\"priority\":9,\"depends_on_slugs\":[\"e\"]}}\n");
    let of_input = [&of_slugs[..], &["line 6: its priority", "line 6: e depends on itself"]].concat();
    refused(&repo, &input, 2, &of_input);
    let error = bulk(&repo, &input, &["--json"]).fails(2).error();
    assert_eq!(error["faults"].as_array().map(Vec::len), Some(6), "{error}");
    assert_eq!(error["differences"].as_array().map(Vec::len), Some(1), "{error}");
}

#[test]
fn the_faults_of_an_array_on_one_line_name_the_tasks() {
    let repo = Repo::new();
    let input = r#"[{"slug":"ok","title":"A"},{"slug":"ok","title":"B"},{"title":"C","priority":7},{"slug":"d","title":"D",
        "depends_on_slugs":["e"]},{"slug":"e","title":"E","depends_on_slugs":["d"]},{"title":"F","sticky":1,"parent":"absent"}]"#;
    let words = [
        "task 2 of the array, slug ok (line 1): slug ok is that of task 1 already",
        "task 3 of the array, slug c (line 1): its priority is",
        "task 4 of the array, slug d (line 1): the plan has a cycle: d -> e (task 5) -> d",
        "task 6 of the array, slug f (line 2): sticky must be true or false, not 1",
        "task 6 of the array, slug f (line 2): no task 'absent'",
    ];
    refused(&repo, input, 2, &words);
}

#[test]
fn what_cannot_be_told_of_a_task_that_is_wrong_in_itself_is_not_told() {
    let repo = Repo::new();
    repo.plan("taken");
    // Whether it is the one that exists is not known, nor is anything wrong with what waits for it.
    let input = "{\"slug\":\"taken\",\"title\":\"\"}\n{\"title\":\"B\",\"depends_on_slugs\":[\"taken\"]}\n";
    let error = bulk(&repo, input, &["--json"]).fails(2).error();
    assert_eq!(error["faults"], serde_json::json!(["line 1: the title is empty"]));
}

#[test]
fn a_finalizer_whose_slug_the_batch_has_is_refused_beside_all_other_faults() {
    let repo = Repo::new();
    let input = "{\"title\":\"A\"}\n{\"slug\":\"end\",\"title\":\"B\"}\n";
    let outcome = bulk(&repo, input, &["--finalize-slug", "end"]).fails(4);
    let outcome = outcome.says("line 2: it has the slug end, which --finalize-slug gives to another task");
    assert!(!outcome.stderr.contains("--accept-existing") && !outcome.stderr.contains("exists"), "{outcome:?}");
    bulk(&repo, input, &["--finalize-slug", "a"]).fails(4).says("line 1: it has the slug a");
    let more = format!("{input}{{\"title\":\"\"}}");
    bulk(&repo, &more, &["--finalize-slug", "end"]).fails(2).says("line 2: it has the slug end").says("line 3: ");
    assert_eq!(repo.refs(), "");
    bulk(&repo, input, &["--finalize-slug", "end2"]).ok();
    // What is wrong with the finalizer is told of it, and of no line.
    let text = ["--finalize-slug", "end2", "--finalize-text", "Otherwise."];
    bulk(&repo, input, &text).fails(4).says("--finalize-slug: default/end2 exists already").says("differs in text");
}

#[test]
fn an_array_and_lines_plan_the_same_and_slugs_resolve_in_any_order() {
    let array = "[{\"slug\":\"b\",\"title\":\"B\",\"depends_on_slugs\":[\"a\"]},\n{\"slug\":\"a\",\"title\":\"A\"}]";
    let lines = "{\"slug\":\"b\",\"title\":\"B\",\"depends_on_slugs\":[\"a\"]}\n{\"slug\":\"a\",\"title\":\"A\"}\n";
    for input in [array, lines] {
        let repo = Repo::new();
        let outcome = bulk(&repo, input, &[]).ok();
        let rows: Vec<Vec<&str>> = outcome.stdout.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0][1], rows[0][2], rows[1][1]), ("b", "created", "a"));
        assert_eq!(repo.pm(&["next", "--json"]).json()["attributes"]["slug"], "a");
        let b = repo.pm(&["show", "--json", "--task", "b"]).json();
        assert_eq!(b["task"]["sha"], rows[0][0]);
        assert_eq!(b["task"]["links"]["dependsOn"], serde_json::json!([rows[1][0]]));
        repo.assert_sound();
    }
}

#[test]
fn tasks_keep_the_order_of_the_input() {
    let repo = Repo::new();
    let lines: String = (0..50).rev().map(|n| format!("{{\"slug\":\"t{n}\",\"title\":\"T\"}}\n")).collect();
    bulk(&repo, &lines, &[]).ok();
    let next = repo.pm(&["next", "--all", "--json"]).json();
    let slugs: Vec<String> =
        next["tasks"].as_array().expect("an array").iter().map(|task| text(&task["slug"])).collect();
    assert_eq!(slugs, (0..50).rev().map(|n| format!("t{n}")).collect::<Vec<_>>());
}

#[test]
fn a_real_plan_can_be_planned_twice_and_worked_off_in_order() {
    let repo = Repo::new();
    let plan = fixture("gitoxide-workspace.plan.json");
    let first = repo.pm(&["bulk-plan", "--json", "--input", &plan]).json();
    assert_eq!((&first["created"], &first["skipped"]), (&71.into(), &0.into()));
    let before = repo.refs();
    let again = repo.pm(&["bulk-plan", "--json", "--input", &plan]).json();
    assert_eq!((&again["created"], &again["skipped"]), (&0.into(), &71.into()));
    assert_eq!(repo.refs(), before);
    let id = |row: &serde_json::Value| row["task"].clone();
    let ids = |told: &serde_json::Value| told["tasks"].as_array().expect("an array").iter().map(id).collect::<Vec<_>>();
    assert_eq!(ids(&first), ids(&again));
    let counts = repo.pm(&["status", "--json"]).json();
    assert_eq!(counts["runnable"].as_u64().expect("a number") + counts["blocked"].as_u64().expect("a number"), 71);
    // A task that waits can be neither claimed nor handed out.
    let blocked = repo.pm(&["list", "--json", "--blocked", "--limit", "1", "--quiet"]).json();
    repo.pm(&["executing", "--task", &text(&blocked["tasks"][0]["task"])]).fails(11);
    let first = text(&repo.pm(&["pull", "--json"]).json()["task"]["attributes"]["slug"]);
    assert!(!text(&blocked["tasks"][0]["slug"]).eq(&first));
    repo.git(&["gc", "--quiet"]);
    repo.assert_sound();
}

#[test]
fn an_existing_slug_with_another_definition_is_refused_with_all_differences() {
    let repo = Repo::new();
    let plan = "{\"slug\":\"a\",\"title\":\"A\",\"text\":\"x\",\"priority\":1,\"labels\":[\"l\"]}\n{\"slug\":\"b\",\"title\":\"B\"}\n";
    bulk(&repo, plan, &[]).ok();
    let before = repo.refs();
    let other = "{\"slug\":\"a\",\"title\":\"A\",\"text\":\"y\",\"priority\":2}\n\
                 {\"slug\":\"b\",\"title\":\"Bee\",\"depends_on_slugs\":[\"a\"]}\n{\"slug\":\"c\",\"title\":\"C\"}\n";
    let outcome = bulk(&repo, other, &[]).fails(4);
    for line in ["differs in priority, labels, text", "differs in title, depends_on"] {
        assert!(outcome.stderr.contains(line), "{outcome:?}");
    }
    let error = bulk(&repo, other, &["--json"]).fails(4).error();
    assert_eq!(error["differences"].as_array().map(Vec::len), Some(2));
    assert_eq!(repo.refs(), before, "nothing was written, not even c");
    let taken = bulk(&repo, other, &["--accept-existing", "--json"]).json();
    assert_eq!((&taken["created"], &taken["skipped"]), (&1.into(), &2.into()));
    assert_eq!(repo.pm(&["show", "--json", "--task", "b"]).json()["task"]["title"], "B", "taken as it is");
}

#[test]
fn the_definition_does_not_change_with_the_state() {
    let repo = Repo::new();
    let plan = "{\"slug\":\"a\",\"title\":\"A\",\"labels\":[\"y\",\"x\",\"x\"]}\n";
    bulk(&repo, plan, &[]).ok();
    repo.work_off("a");
    assert_eq!(bulk(&repo, plan, &["--json"]).json()["skipped"], 1);
    let reordered = "{\"labels\":[\"x\",\"y\"],\"title\":\"A\",\"slug\":\"a\",\"priority\":2,\"text\":\"\"}";
    assert_eq!(bulk(&repo, reordered, &["--json"]).json()["skipped"], 1, "the same definition, spelled otherwise");
}

#[test]
fn a_part_of_a_sticky_task_is_sticky_also_where_it_says_false_and_stays_the_same_task() {
    let repo = Repo::new();
    let plan = "{\"slug\":\"p\",\"title\":\"P\",\"sticky\":true}\n\
                {\"slug\":\"c\",\"title\":\"C\",\"sticky\":false,\"parent_slug\":\"p\"}\n\
                {\"slug\":\"g\",\"title\":\"G\",\"parent_slug\":\"c\"}\n";
    bulk(&repo, plan, &[]).ok();
    for slug in ["c", "g"] {
        assert_eq!(repo.pm(&["show", "--json", "--task", slug]).json()["task"]["attributes"]["sticky"], true);
    }
    assert_eq!(bulk(&repo, plan, &["--json"]).json()["skipped"], 3);
}

#[test]
fn a_workdir_is_recorded_in_full_and_an_empty_one_is_refused() {
    let repo = Repo::new();
    refused(&repo, "{\"title\":\"A\",\"workdir\":\"\"}", 2, &["line 1: its workdir is empty"]);
    let plan = "{\"slug\":\"a\",\"title\":\"A\",\"workdir\":\"web\"}";
    std::fs::create_dir_all(repo.path().join("web/web")).expect("made");
    bulk(&repo, plan, &[]).ok();
    assert_eq!(bulk(&repo, plan, &["--json"]).json()["skipped"], 1);
    repo.pm_fed(plan, &["-C", "web", "bulk-plan", "--input", "-"]).fails(4).says("differs in workdir");
}

#[test]
fn a_plan_is_read_from_a_file_or_from_standard_input_into_any_queue() {
    let repo = Repo::new();
    std::fs::write(repo.path().join("plan.json"), "[{\"title\":\"A\"}]").expect("written");
    repo.pm(&["bulk-plan", "--input", "plan.json", "--queue", "q"]).ok();
    bulk(&repo, "[{\"title\":\"A\"}]", &["--queue", "r"]).ok();
    assert_eq!(repo.pm(&["queues", "--json"]).json()["queues"].as_array().map(Vec::len), Some(2));
}

#[test]
fn no_progress_is_shown_where_there_is_no_terminal() {
    let repo = Repo::new();
    assert_eq!(repo.pm(&["bulk-plan", "--input", &fixture("gitoxide-workspace.plan.json")]).ok().stderr, "");
}
