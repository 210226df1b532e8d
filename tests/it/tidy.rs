//! The house rules that can be checked by reading the tree: layers, forgotten files, and documents that must not drift.
//!
//! These tests read text, not syntax: they know comments and strings well enough for this code base, and say the file
//! and line of whatever they find.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pm::exit_code::ExitCode;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a directory, relative to the root of the repository, sorted.
fn files(dir: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(dir)];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
            let path = entry.expect("readable").path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    let mut found: Vec<PathBuf> =
        found.iter().map(|path| path.strip_prefix(root()).expect("below the root").to_owned()).collect();
    found.sort();
    found
}

/// The Rust files below a directory.
fn rust_files(dir: &str) -> Vec<PathBuf> {
    files(dir).into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// The lines of code of a file with their numbers: without comments, and without the module of its own tests.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = read(path);
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let line = |(number, line): (usize, &str)| {
        let code = line.split("//").next().unwrap_or_default().to_owned();
        (!code.trim().is_empty()).then_some((number + 1, code))
    };
    text.lines().enumerate().filter_map(line).collect()
}

/// Whether a file holds tests only.
fn is_test_file(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
}

/// Asserts that no line of code in these files holds one of these words.
fn never(files: &[PathBuf], words: &[&str], why: &str) {
    let mut found = Vec::new();
    for path in files.iter().filter(|path| !is_test_file(path)) {
        for (number, line) in code(path) {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{}:{number}: {word}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "{why}:\n{}", found.join("\n"));
}

/// The rows of a Markdown table: each a list of trimmed cells, without the heading.
fn table(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    text.lines().filter(|line| line.trim_start().starts_with('|')).map(cells).collect()
}

#[test]
fn the_documented_exit_codes_are_those_of_the_code() {
    let documented: Vec<(String, String)> = table(&read("docs/exit-codes.md"))
        .into_iter()
        .filter(|row| row[0].trim_matches('`').parse::<u8>().is_ok())
        .map(|row| (row[0].trim_matches('`').to_owned(), row[1].trim_matches('`').to_owned()))
        .collect();
    let coded: Vec<(String, String)> =
        ExitCode::ALL.into_iter().map(|code| (code.number().to_string(), code.name().to_owned())).collect();
    assert_eq!(documented, coded, "docs/exit-codes.md: | number | name | …");
}

#[test]
fn exit_codes_are_listed_once_and_in_order() {
    let numbers: Vec<u8> = ExitCode::ALL.into_iter().map(ExitCode::number).collect();
    assert_eq!(numbers, (0..=23).collect::<Vec<u8>>());
    let names: BTreeSet<&str> = ExitCode::ALL.into_iter().map(ExitCode::name).collect();
    assert_eq!(names.len(), ExitCode::ALL.len());
}

#[test]
fn the_protocol_reaches_no_file_no_clock_no_process_and_no_store() {
    let words = [
        "crate::store",
        "crate::ledger",
        "crate::command",
        "crate::session",
        "crate::clock",
        "crate::config",
        "crate::output",
        "crate::git_program",
        "crate::cli",
        "crate::error",
        "std::fs",
        "std::io",
        "std::env",
        "std::net",
        "std::process",
        "std::thread",
        "SystemTime",
        "Instant::now",
        "Timestamp::now",
        "getrandom",
        "rustix",
        "gix",
        "fs4",
    ];
    never(&rust_files("src/protocol"), &words, "protocol/ is pure: what it needs to know it is told");
}

#[test]
fn the_store_knows_nothing_of_tasks_and_rules() {
    let words =
        ["crate::protocol", "crate::ledger", "crate::command", "crate::session", "crate::output", "crate::error"];
    let mut store = rust_files("src/store");
    store.push("src/store/mod.rs".into());
    never(&store, &words, "store/ is below the protocol's knowledge");
}

#[test]
fn the_ledger_does_not_know_who_calls_it() {
    let words =
        ["crate::command", "crate::session", "crate::output", "crate::cli", "crate::config", "clap", "GitStore"];
    never(&rust_files("src/ledger"), &words, "data flows one way: command -> ledger");
}

#[test]
fn plain_types_import_nothing_that_does_io() {
    let words = ["crate::store", "crate::ledger", "crate::protocol", "std::fs", "std::process", "std::io"];
    never(&["src/id.rs".into(), "src/commit.rs".into()], &words, "plain types are what all others share");
}

#[test]
fn gix_is_named_only_below_the_git_store() {
    let outside: Vec<PathBuf> = rust_files("src")
        .into_iter()
        .filter(|path| !path.starts_with("src/store/git") && path != Path::new("src/store/git.rs"))
        .collect();
    never(&outside, &["gix::", "use gix", "extern crate gix"], "gix is an implementation detail of one store");
    never(
        &rust_files("src/store"),
        &["edit_reference", "edit_references", "transaction()", "RefEdit"],
        "gix's ref transaction loses updates (docs/decisions)",
    );
}

#[test]
fn only_one_module_prints() {
    // The build script speaks to cargo.
    let talkers = ["src/output.rs", "src/build.rs"];
    let others: Vec<PathBuf> =
        rust_files("src").into_iter().filter(|path| !talkers.contains(&&*path.to_string_lossy())).collect();
    let words =
        ["println!", "eprintln!", "print!(", "eprint!(", "dbg!", "io::stdout", "io::stderr", "stdout()", "stderr()"];
    never(&others, &words, "src/output.rs is the only writer of stdout and stderr");
}

#[test]
fn only_one_module_runs_git() {
    let others: Vec<PathBuf> =
        rust_files("src").into_iter().filter(|path| path != Path::new("src/git_program.rs")).collect();
    never(
        &others,
        &["Command::new(\"git\")", "Command::new(\"git"],
        "src/git_program.rs is the only file that runs git",
    );
}

#[test]
fn no_code_of_the_library_unwraps_exits_or_sleeps_without_a_bound() {
    never(&rust_files("src"), &[".unwrap()", "process::exit", "todo!", "unimplemented!", "unsafe "], "house rules");
}

#[test]
fn every_source_file_is_part_of_the_build() {
    let mut reached = BTreeSet::new();
    let mut open: Vec<PathBuf> =
        ["build.rs", "lib.rs", "main.rs", "bin/git-pm.rs"].map(|root| Path::new("src").join(root)).into();
    while let Some(path) = open.pop() {
        let stem = path.file_stem().expect("a stem").to_string_lossy().into_owned();
        let parent = path.parent().expect("a directory");
        let below =
            if ["lib", "main", "mod", "git-pm"].contains(&&*stem) { parent.to_owned() } else { parent.join(&stem) };
        for line in read(&path).lines() {
            let Some(name) = line
                .trim()
                .trim_start_matches("pub(super) ")
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ")
                .strip_prefix("mod ")
            else {
                continue;
            };
            let Some(name) = name.strip_suffix(';') else { continue };
            let candidates = [below.join(format!("{name}.rs")), below.join(name).join("mod.rs")];
            let found = candidates.iter().find(|path| root().join(path).is_file());
            open.push(found.unwrap_or_else(|| panic!("{}: mod {name} has no file", path.display())).clone());
        }
        reached.insert(path);
    }
    let forgotten: Vec<PathBuf> = rust_files("src").into_iter().filter(|path| !reached.contains(path)).collect();
    assert!(forgotten.is_empty(), "no mod leads to {forgotten:?}");
}

#[test]
fn every_subcommand_has_a_file_of_its_own() {
    use clap::CommandFactory;
    let commands: BTreeSet<String> =
        pm::cli::Cli::command().get_subcommands().map(|command| command.get_name().replace('-', "_")).collect();
    let found: BTreeSet<String> = rust_files("src/command")
        .iter()
        .map(|path| path.file_stem().expect("a stem").to_string_lossy().into_owned())
        .filter(|stem| stem != "mod")
        .collect();
    assert_eq!(found, commands);
}

#[test]
fn every_module_says_its_job_and_long_ones_say_why_they_are_long() {
    for path in rust_files("src").into_iter().chain(rust_files("tests")) {
        let text = read(&path);
        assert!(text.starts_with("//!"), "{} has no header", path.display());
        let header: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
        let lines = text.lines().count();
        assert!(
            lines <= 400 || header.contains("Long, since"),
            "{}: {lines} lines, and the header does not say why",
            path.display()
        );
    }
}

#[test]
fn every_dependency_has_earned_its_line() {
    let documented = read("docs/dependencies.md");
    let mut section = "";
    let manifest = read("Cargo.toml");
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]")
            && let Some((name, _)) = line.split_once('=')
        {
            let name = name.trim();
            let has_line = documented
                .lines()
                .any(|line| line.contains(&format!("`{name}`")) || line.contains(&format!("| {name} ")));
            assert!(has_line, "docs/dependencies.md has no line for {name}");
        }
    }
}

#[test]
fn no_test_is_ignored() {
    // Spelled apart, so that this file does not find itself.
    let attribute = ["#[", "ignore"].concat();
    for path in rust_files("src").into_iter().chain(rust_files("tests")) {
        let found = read(&path).lines().position(|line| line.trim_start().starts_with(&attribute));
        assert_eq!(found, None, "{} has an ignored test", path.display());
    }
}

#[test]
fn no_test_waits_by_sleeping() {
    // A pause inside of a loop that polls with a deadline is fine: those are in the helpers.
    let word = ["thread::", "sleep("].concat();
    let allowed = |path: &Path| {
        path.ends_with("support/wait.rs") || path.starts_with("tests/prove") || path.starts_with("tests/bench")
    };
    for path in rust_files("tests").into_iter().filter(|path| !allowed(path)) {
        let found = read(&path).lines().position(|line| line.contains(&word)).map(|at| at + 1);
        assert_eq!(found, None, "{} sleeps", path.display());
    }
}

#[test]
fn the_changelog_tells_of_this_version() {
    let changelog = read("docs/changelog.md");
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        changelog.contains(version) || changelog.contains("Unreleased"),
        "docs/changelog.md does not tell of {version}"
    );
}

#[test]
fn the_fixtures_stay_small() {
    let size = |path: &PathBuf| std::fs::metadata(root().join(path)).expect("there").len();
    let sizes: Vec<(u64, PathBuf)> = files("fixtures").into_iter().map(|path| (size(&path), path)).collect();
    let total: u64 = sizes.iter().map(|(size, _)| size).sum();
    assert!(total < 2 << 20, "{total} bytes: {sizes:?}");
}

#[test]
fn the_top_level_holds_what_it_should() {
    let allowed =
        ["Cargo.toml", "Cargo.lock", "src", "tests", "fixtures", "docs", "README.md", "rustfmt.toml", "target"];
    for entry in std::fs::read_dir(root()).expect("listed") {
        let name = entry.expect("read").file_name().to_string_lossy().into_owned();
        let ok = allowed.contains(&&*name) || name.starts_with('.') || name.starts_with("LICENSE");
        assert!(ok, "{name} has no place at the top level");
    }
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    // Spelled apart, so that this file does not find itself.
    let places = [["/ho", "me/"].concat(), ["/wo", "rk/"].concat(), ["/ro", "ot/"].concat(), ["/Us", "ers/"].concat()];
    let texts = ["src", "tests", "docs"].into_iter().flat_map(files).filter(|path| {
        path.extension()
            .is_some_and(|extension| ["rs", "md", "txt", "sh", "toml", "json"].contains(&&*extension.to_string_lossy()))
    });
    for path in texts.chain(["README.md".into(), "Cargo.toml".into()]) {
        let text = read(&path);
        for place in &places {
            let found = text.lines().position(|line| line.contains(place.as_str())).map(|at| at + 1);
            assert_eq!(found, None, "{} names {place}", path.display());
        }
    }
}
