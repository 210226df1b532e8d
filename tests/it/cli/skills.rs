//! The skills: a page for each subcommand, in the form that `docs/skills/README.md` lays down, and true.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::CommandFactory;
use pm::exit_code::ExitCode;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::process::{Process, with_variable};
use crate::support::{AGENT, Repo, until};

/// How many lines a page may have.
const LINES_MAX: usize = 80;

/// How many characters a description may have.
const DESCRIPTION_MAX: usize = 300;

/// How long the commands of one page may take, in seconds, also where much else runs.
const SECONDS_MAX: u64 = 60;

/// A page, taken apart.
struct Page {
    /// The folder, which is the name of the subcommand.
    verb: String,
    text: String,
    name: String,
    description: String,
    /// The headings of the sections.
    sections: Vec<String>,
    /// The rows of the table of exit codes: number and name.
    codes: Vec<(String, String)>,
    /// What is run first.
    before: String,
    /// The blocks to run, each with the number of its first line.
    blocks: Vec<(usize, Vec<String>)>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/skills")
}

/// All pages, by name.
fn pages() -> Vec<Page> {
    let entries = fs::read_dir(folder()).expect("docs/skills").map(|entry| entry.expect("read").path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders.iter().map(|folder| Page::read(folder)).collect()
}

impl Page {
    fn read(folder: &Path) -> Page {
        let verb = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(folder.join("SKILL.md")).unwrap_or_else(|error| panic!("{verb}: {error}"));
        let (front, body) = text
            .strip_prefix("---\n")
            .and_then(|text| text.split_once("\n---\n"))
            .unwrap_or_else(|| panic!("{verb}: no front matter"));
        let mut fields = front.lines().map(|line| line.split_once(": ").unwrap_or_else(|| panic!("{verb}: {line}")));
        let mut field = |key: &str| match fields.next() {
            Some((found, value)) if found == key => value.to_owned(),
            other => panic!("{verb}: {key} is wanted, and {other:?} found"),
        };
        let (name, description) = (field("name"), field("description"));
        assert_eq!(fields.next(), None, "{verb}: more than name and description");
        let sections = body.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
        let comment = body.split_once("<!-- before:").map(|(_, rest)| rest.split_once("-->").expect("an end").0);
        Page {
            codes: codes(body),
            before: comment.unwrap_or_default().to_owned(),
            blocks: blocks(&text),
            verb,
            name,
            description,
            sections,
            text,
        }
    }
}

/// The first two cells of each row of the tables that begin with a number.
fn codes(text: &str) -> Vec<(String, String)> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ").map(|cell| cell.trim().to_owned());
        let (number, name) = (cells.next()?, cells.next()?);
        number.parse::<u8>().ok().map(|_| (number, name))
    };
    text.lines().filter_map(row).collect()
}

/// The blocks marked `sh`, without the indentation of the list that they are in.
fn blocks(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let fence = line.trim_start();
        let indent = line.len() - fence.len();
        if fence.starts_with("```") {
            let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
            let inside: Vec<String> = inside.map(|line| line.get(indent..).unwrap_or_default().to_owned()).collect();
            if fence == "```sh" {
                blocks.push((number + 2, inside));
            }
        }
    }
    blocks
}

/// The functions that the script of a page begins with: `check` runs a command in the very shell, and looks at its exit
/// code and at what it prints.
const PRELUDE: &str = r#"set -eu
printed="$SCRATCH/printed"
verdict() {
    [ "$code" -eq "$1" ] || { cat "$printed"; echo "line $3: exit $code, not $1"; exit 99; }
    grep -qF -e "$2" "$printed" || { cat "$printed"; echo "line $3: does not print: $2"; exit 99; }
}
"#;

/// Turns a page into a script.
fn script(page: &Page) -> String {
    let mut script = format!("{PRELUDE}{}\n", page.before);
    for (first, lines) in &page.blocks {
        script.push_str(&format!("echo '== {}: line {first}'\n", page.verb));
        let mut at = 0;
        while at < lines.len() {
            let begin = at;
            while lines[at].ends_with('\\') {
                at += 1;
            }
            let command = lines[begin..=at].join("\n");
            at += 1;
            let Some(expected) = lines.get(at).and_then(|line| expectation(line)) else {
                script.push_str(&format!("{command}\n"));
                continue;
            };
            let (code, printed) = expected;
            script.push_str(&format!(
                "code=0; {{ {command}\n}} >\"$printed\" 2>&1 || code=$?\nverdict {code} {} {}\n",
                quoted(printed),
                first + begin
            ));
            at += 1;
        }
    }
    script
}

/// What a line expects of the command above it: its exit code, and a text that it prints.
fn expectation(line: &str) -> Option<(u8, &str)> {
    if let Some(code) = line.strip_prefix("# exit ") {
        return Some((code.parse().unwrap_or_else(|error| panic!("{line}: {error}")), ""));
    }
    line.strip_prefix("# prints: ").map(|printed| (0, printed))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Asks again and again for about a second; `None` without an answer by then.
fn within_a_second<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    until("an answer, or a second", || match ask() {
        Some(answer) => Some(Some(answer)),
        None => (started.elapsed().as_secs() >= 1).then_some(None),
    })
}

/// The processes of a page that outlive it by more than a moment; they are ended.
fn end_what_is_left(variable: &str) -> Vec<u64> {
    within_a_second(|| with_variable(variable).is_empty().then_some(()));
    let left = with_variable(variable);
    for pid in left.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        let _may_have_ended = kill_process(pid, Signal::KILL);
    }
    left
}

/// Runs a page in a repository of its own; what it said, if it failed.
fn run(page: &Page) -> Result<(), String> {
    let repo = Repo::new();
    let scratch = repo.outside().join("scratch");
    fs::create_dir(&scratch).expect("a scratch directory");
    let (file, said) = (scratch.join("page.sh"), scratch.join("said"));
    fs::write(&file, script(page)).expect("written");
    let bin = Path::new(env!("CARGO_BIN_EXE_pm")).parent().expect("a directory").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path))).expect("a path");
    let out = File::create(&said).expect("created");
    let mut command: Command = repo.program("sh", &[&file.display().to_string()]);
    command.env("PATH", path).env("SCRATCH", &scratch).env("TMPDIR", &scratch).env("PM_AGENT_ID", AGENT);
    command.stdout(out.try_clone().expect("a second handle")).stderr(Stdio::from(out));
    let mut process = Process(command.spawn().expect("sh starts"));
    let started = Instant::now();
    let mut status = None;
    while status.is_none() && started.elapsed().as_secs() < SECONDS_MAX {
        status = within_a_second(|| process.0.try_wait().expect("asked"));
    }
    let status = status.map_or_else(|| format!("not over after {SECONDS_MAX} s"), |status| status.to_string());
    let said = fs::read_to_string(&said).unwrap_or_default();
    let left = end_what_is_left(&format!("SCRATCH={}", scratch.display()));
    match (status == "exit status: 0", &left[..]) {
        (true, []) => Ok(()),
        (true, left) => Err(format!("{}: leaves processes behind: {left:?}\n{said}", page.verb)),
        (false, _) => Err(format!("{}: {status}\n{said}", page.verb)),
    }
}

#[test]
fn every_subcommand_has_a_page_and_every_page_a_subcommand() {
    let command = pm::cli::Cli::command();
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    let commands: BTreeSet<String> = shown.map(|command| command.get_name().to_owned()).collect();
    let found: BTreeSet<String> = pages().into_iter().map(|page| page.verb).collect();
    assert_eq!(found, commands, "docs/skills/<subcommand>/SKILL.md");
}

#[test]
fn every_page_has_the_form_that_the_readme_lays_down() {
    for page in pages() {
        let verb = &page.verb;
        assert_eq!(page.name, format!("pm-{verb}"));
        let description = &page.description;
        assert!((40..=DESCRIPTION_MAX).contains(&description.chars().count()), "{verb}: {description}");
        // So that any reader of YAML takes it for one plain text.
        assert!(description.starts_with(|c: char| c.is_ascii_alphabetic()), "{verb}: {description}");
        assert!(![": ", " #"].iter().any(|odd| description.contains(odd)), "{verb}: {description}");
        let sections: Vec<&str> = page.sections.iter().map(String::as_str).collect();
        assert!(matches!(sections[..], ["Procedure", "Exit codes"] | ["Procedure", "Exit codes", "Notes"]), "{verb}");
        assert!(page.text.contains("\n1. ") && !page.blocks.is_empty(), "{verb}: no steps");
        assert!(page.text.lines().count() <= LINES_MAX, "{verb} is too long");
        let breakable = |line: &&str| !line.starts_with('|') && !line.starts_with("description: ");
        for line in page.text.lines().filter(breakable) {
            assert!(line.chars().count() <= 120, "{verb}: {line}");
        }
        assert!(page.text.contains(&format!("pm {verb}")), "{verb}: it does not show itself");
    }
}

#[test]
fn every_exit_code_on_a_page_is_one_of_pm_and_every_one_that_is_shown_is_explained() {
    let known = ExitCode::ALL.map(|code| (code.number().to_string(), code.name().to_owned()));
    for page in pages() {
        let places: Vec<Option<usize>> =
            page.codes.iter().map(|row| known.iter().position(|code| code == row)).collect();
        assert!(!places.is_empty() && places.iter().all(Option::is_some), "{}: {:?}", page.verb, page.codes);
        assert!(places.is_sorted_by(|a, b| a < b), "{}: {:?}", page.verb, page.codes);
        for (code, _) in page.blocks.iter().flat_map(|(_, lines)| lines).filter_map(|line| expectation(line)) {
            let is_explained = page.codes.iter().any(|(number, _)| *number == code.to_string());
            assert!(code == 0 || is_explained, "{}: exit {code} is not in its table", page.verb);
        }
    }
}

#[test]
fn every_command_on_every_page_does_what_the_page_says() {
    let mut pages = pages();
    // The longest first, so that it runs beside all others.
    pages.sort_by_key(|page| page.verb != "demo");
    let next = AtomicUsize::new(0);
    let failures = std::thread::scope(|scope| {
        let work = || {
            let taken = std::iter::from_fn(|| pages.get(next.fetch_add(1, Ordering::Relaxed)));
            taken.filter_map(|page| run(page).err()).collect::<Vec<String>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect::<Vec<String>>()
    });
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn a_page_that_is_not_true_is_found_out() {
    let check = |lines: &[&str], expected: &str| {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        let page = Page {
            verb: "false".to_owned(),
            text: String::new(),
            name: String::new(),
            description: String::new(),
            sections: Vec::new(),
            codes: Vec::new(),
            before: "A=b".to_owned(),
            blocks: vec![(7, lines)],
        };
        match run(&page) {
            Ok(()) => assert_eq!(expected, ""),
            Err(said) => assert!(!expected.is_empty() && said.contains(expected), "{said}"),
        }
    };
    check(&["pm next", "# exit 0", "A=c", "test $A = c"], "");
    check(&["echo $A \\", "  'it''s'", "# prints: b its"], "");
    check(&["true", "pm heartbeat --task absent"], "exit status: 17");
    check(&["pm next", "# exit 12"], "line 7: exit 0, not 12");
    check(&["true", "echo one", "# prints: two"], "line 8: does not print: two");
    check(&["echo one; false", "# prints: one"], "line 7: exit 1, not 0");
    check(&["echo $UNKNOWN"], "UNKNOWN");
    check(&["sleep 60 >/dev/null 2>&1 &"], "leaves processes behind");
}
