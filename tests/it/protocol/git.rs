//! The real git reads every trailer that the codec wrote, whatever the text above it looks like.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use pm::commit::{Commit, Signature};
use pm::protocol::codec::{decode, encode};
use pm::protocol::record::{Content, Record};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::arbitrary::{self, SCISSORS, committer};
use super::chain::Chain;

/// How many arbitrary records git is asked about.
const SAMPLE: usize = 500;

/// Bodies that look like something to git.
const BODIES: [&str; 16] = [
    "plain\n",
    "---\n",
    "above\n---\nbelow\n",
    "--- \ndiff --git a/x b/x\n",
    "Record: TaskStatus\nStatus: done\nSeq: 1\n",
    "text\n\nRecord: TaskStatus\nTask: 0000000000000000000000000000000000000000\nNonce: 0000000000000000\n",
    "Signed-off-by: A <a@b.c>\n(cherry picked from commit 6666666666666666666666666666666666666666)\n",
    "# only a comment\n",
    "text\n# comment\n\n# comment\n",
    "Conflicts:\n\tfile\n",
    "\n\n  leading and trailing blanks  \n\n   \n",
    " indented: like a folded trailer\n\tand: so\n",
    "日本語のテキスト 🦀 \u{202e}right to left\u{202c}, e\u{301}\n",
    "; ------------------------ >8 ------------------------\n\nbelow\n",
    " ------------------------ >8 ------------------------\nbelow\n",
    "%(trailers) %B %x00 %H\n",
];

/// Runs git in a repository of its own, with no configuration but its own; returns what it printed.
fn git(dir: &Path, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(dir)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1"), ("HOME", "/nonexistent")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git is installed");
    let mut stdin = child.stdin.take().expect("a pipe");
    let output = std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).expect("git reads all of its input"));
        child.wait_with_output().expect("git ends")
    });
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The bytes of a commit object. Without its parents, which no repository here has.
fn object(commit: &Commit) -> Vec<u8> {
    const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
    let mut bytes = format!("tree {EMPTY_TREE}\n").into_bytes();
    for (role, Signature { name, email, seconds, .. }) in [("author", &commit.author), ("committer", &commit.committer)]
    {
        let name = [name.as_slice(), b" <", email.as_slice(), b">"].concat();
        bytes.extend([role.as_bytes(), b" ", &name, format!(" {seconds} +0000\n").as_bytes()].concat());
    }
    bytes.extend([b"\n".as_slice(), &commit.message].concat());
    bytes
}

/// The paragraph of trailers that was written.
fn trailers(message: &[u8]) -> String {
    let message = std::str::from_utf8(message).expect("UTF-8");
    message.trim_end_matches('\n').rsplit("\n\n").next().expect("a last paragraph").to_owned()
}

/// The same record without its text, as far as trailers can tell it: what git read must decode to this.
fn bare(record: &Record) -> Record {
    let mut bare = Record { body: None, ..record.clone() };
    match &mut bare.content {
        Content::Task(task) => task.title = "subject".to_owned(),
        Content::Report(report) => report.title = "subject".to_owned(),
        _ => {}
    }
    bare
}

/// Writes the records into one repository and compares what git reads from each with what it holds.
fn check(records: &[Record]) {
    let home = tempfile::tempdir().expect("a directory");
    let dir = home.path();
    git(dir, &["init", "--quiet", "--bare", "."], b"");
    git(dir, &["hash-object", "-t", "tree", "-w", "--stdin"], b"");
    let commits: Vec<Commit> = records.iter().map(|record| encode(record, committer())).collect();
    let write = |n: usize, bytes: &[u8]| {
        let name = format!("{n}");
        std::fs::write(dir.join(&name), bytes).expect("a file");
        name
    };

    // `git log`, with the placeholders that the documentation tells people to use.
    let names: Vec<String> = commits.iter().enumerate().map(|(n, commit)| write(n, &object(commit))).collect();
    let paths = names.iter().map(|name| format!("{name}\n")).collect::<String>();
    let ids = git(dir, &["hash-object", "-t", "commit", "-w", "--stdin-paths"], paths.as_bytes());
    let format = "--format=tformat:%(trailers:key=Record,valueonly)%x00%(trailers:only,unfold)%x00%B%x00%an%x00";
    let log = git(dir, &["log", "--no-walk=unsorted", "--stdin", format], &ids);
    let log = String::from_utf8(log).expect("UTF-8");
    let told: Vec<&str> = log.split('\0').collect();
    assert_eq!(told.len(), 4 * records.len() + 1);
    for ((record, commit), told) in records.iter().zip(&commits).zip(told.chunks(4)) {
        let [kind, read, whole, author] = told[..] else { panic!("git log lost something") };
        assert_eq!(kind.trim_matches('\n'), record.content.kind());
        assert_eq!(read.trim_matches('\n'), trailers(&commit.message), "in {:?}", commit.message);
        assert_eq!(whole.as_bytes(), commit.message);
        assert_eq!(author, record.agent.as_str());
        let again =
            Commit { message: format!("subject\n\n{}\n", read.trim_matches('\n')).into_bytes(), ..commit.clone() };
        assert_eq!(decode(&again), Ok(bare(record)), "what git read decodes to what the record holds");
    }

    // `git interpret-trailers`, on the messages.
    let names: Vec<String> = commits.iter().enumerate().map(|(n, commit)| write(n, &commit.message)).collect();
    let arguments = ["interpret-trailers", "--parse", "--no-divider"].into_iter();
    let parsed = git(dir, &arguments.chain(names.iter().map(String::as_str)).collect::<Vec<_>>(), b"");
    let expected: String = commits.iter().map(|commit| trailers(&commit.message) + "\n").collect();
    assert_eq!(String::from_utf8(parsed).expect("UTF-8"), expected);

    // Nothing that git finds fault with.
    git(dir, &["fsck", "--strict", "--no-dangling", "--no-progress"], b"");
}

#[test]
fn git_reads_the_trailers_below_any_body() {
    let chain = Chain::of("plan+verifier claim beat report synthetic cancelled");
    let scissors = [format!("{SCISSORS}\n"), format!("a\n{SCISSORS}\n\nb\n"), format!("a\n {SCISSORS}\n{SCISSORS}\n")];
    let bodies = BODIES.map(str::to_owned).into_iter().chain(scissors).chain(["x".repeat(1 << 18) + "\n"]);
    let mut records = Vec::new();
    for body in bodies {
        records.extend(chain.records.iter().map(|(_, record)| Record { body: Some(body.clone()), ..record.clone() }));
    }
    check(&records);
}

#[test]
fn git_reads_the_trailers_of_any_record() {
    let mut runner = TestRunner::default();
    let mut draw = || arbitrary::record().new_tree(&mut runner).expect("a record").current();
    // What git makes of strange dates and addresses is not the question here.
    let dated = |record| Record { at: 1_795_983_303, email: "pm@host".to_owned(), ..record };
    let records: Vec<Record> = (0..SAMPLE).map(|_| dated(draw())).collect();
    check(&records);
}
