//! Hostile commits: each is refused with the one error that says what is wrong with it.
//!
//! A row takes the message of a valid record, replaces one piece of it, and says how the error is told: see [`told`].

use pm::commit::Commit;
use pm::id::RecordId;
use pm::protocol::codec::{DecodeError, decode, encode};
use pm::protocol::record::{Content, Heartbeat, Phase, Report, Status, Verification};

use super::arbitrary::{SCISSORS, committer};
use super::chain::task;
use super::golden::{oid, record};

/// Which record is tampered with.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Task,
    Status,
    Report,
    Beat,
}
use Kind::*;

fn genuine(kind: Kind) -> Commit {
    let mut whole = task("ttl+max3+sticky+verifier+workdir+dependency");
    whole.depends_on = vec![RecordId(oid(6)).as_task()];
    whole.labels = vec!["area:web".parse().expect("a label")];
    let passed = Verification { verifier: "make test".to_owned(), exit: 0, summary: Some("ok".to_owned()) };
    let status = Status {
        context: Some("session-7".parse().expect("a context")),
        proof: Some(RecordId(oid(7))),
        reason: Some("so it is".to_owned()),
        verification: Some(passed),
        ..Status::new(Phase::Done, 2, 1)
    };
    let report = Report { title: "It is built".to_owned(), commit: Some(oid(8)), synthetic: false, attachments: None };
    let mut record = record(match kind {
        Task => Content::Task(Box::new(whole)),
        Status => Content::Status(Box::new(status)),
        Report => Content::Report(report),
        Beat => Content::Heartbeat(Heartbeat { preempt: false, progress: Some("7 of 12".to_owned()) }),
    });
    record.body = Some("some text\n".to_owned());
    encode(&record, committer())
}

/// An error in one line: its variant, then its key or offset, then what was found.
fn told(error: &DecodeError) -> String {
    match error {
        DecodeError::Foreign => "foreign".to_owned(),
        DecodeError::Format { found } => format!("format {found}"),
        DecodeError::Bytes { at } => format!("bytes {at}"),
        DecodeError::TooLong { .. } => "too long".to_owned(),
        DecodeError::Layout { what } => format!("layout: {what}"),
        DecodeError::Line { found } => format!("line: {found}"),
        DecodeError::Repeated { key } => format!("repeated {key}"),
        DecodeError::Absent { key } => format!("absent {key}"),
        DecodeError::Value { key, found, .. } => format!("value {key}: {found}"),
        DecodeError::Author { .. } => "author".to_owned(),
        DecodeError::Parents { found, wanted, .. } => format!("{found} parents, not {wanted}"),
        DecodeError::Tree => "tree".to_owned(),
    }
}

/// A commit is refused, and so is it told.
fn check(what: &str, commit: &Commit, expected: &str) {
    match decode(commit) {
        Ok(record) => panic!("{what}: decoded to {record:?}"),
        Err(error) => assert_eq!(told(&error), expected, "{what}"),
    }
}

const SIXES: &str = "6666666666666666666666666666666666666666";

/// A record, a piece of its message, what takes its place, and how the error is told.
const TAMPERED: &[(Kind, &str, &str, &str)] = &[
    // What kind of record it is.
    (Beat, "Record: TaskHeartbeat\n", "", "foreign"),
    (Beat, "Record: TaskHeartbeat\n", "record: TaskHeartbeat\n", "repeated record"),
    (Beat, "Record: TaskHeartbeat\n", "Record: TaskHeartbeat\nrecord: Task\n", "repeated record"),
    (Beat, "Record: TaskHeartbeat\n", "Record: TaskHeartbeat\nRecord: TaskHeartbeat\n", "repeated Record"),
    (Beat, "Record: TaskHeartbeat\n", "Record: TaskHeartbeat\nprose\n", "line: prose"),
    (Beat, "TaskHeartbeat", "TaskNote", "value Record: TaskNote"),
    (Beat, "TaskHeartbeat", "taskheartbeat", "value Record: taskheartbeat"),
    (Beat, "TaskHeartbeat", "Task", "absent Format"),
    (Beat, "TaskHeartbeat", "TaskStatus", "absent Status"),
    (Task, "Record: Task\n", "Record: TaskStatus\n", "absent Task"),
    (Task, "Record: Task\n", "Record: TaskReport\n", "absent Task"),
    (Task, "Format: 1\n", "", "absent Format"),
    (Task, "Format: 1\n", "Format: 2\n", "format 2"),
    (Task, "Format: 1\n", "Format: 0\n", "format 0"),
    (Task, "Format: 1\n", "Format: 01\n", "format 01"),
    (Task, "Format: 1\n", "Format: 1\nFormat: 2\n", "repeated Format"),
    (Task, "Format: 1\nQueue: default\n", "Format: 2\nQueue: ///\nQueue: ///\n", "format 2"),
    // Layout.
    (Task, "Build it\n", "\n", "layout: no subject"),
    (Task, "Build it\n", " \n", "layout: no subject"),
    (Task, "Build it\n\n", "Build it\n", "layout: no blank line after the subject"),
    (Beat, "w1\n\nsome text\n\n", "w1\n", "foreign"),
    (Task, "some text\n\n", "some text\n", "foreign"),
    (Beat, "Seq: 12\n", "\nSeq: 12\n", "foreign"),
    (Beat, "4c5d\n", "4c5d", "layout: no final newline"),
    (Beat, "4c5d\n", "4c5d\n\n", "line: "),
    (Beat, "4c5d\n", "4c5d\n\n\n", "foreign"),
    (Beat, "4c5d\n", "4c5d\nbye\n", "line: bye"),
    (Beat, "4c5d\n", "4c5d\n\nbye\n", "foreign"),
    (Beat, "4c5d\n", "4c5d\n---\n", "line: ---"),
    (Beat, "4c5d\n", "4c5d\n# comment: 1\n", "line: # comment: 1"),
    (Beat, "4c5d\n", "4c5d\nX: \n", "line: X: "),
    (Beat, "4c5d\n", "4c5d\nX Y: 1\n", "line: X Y: 1"),
    (Beat, "4c5d\n", "4c5d\nÜ: 1\n", "line: Ü: 1"),
    (Beat, "4c5d\n", "4c5d\n: 1\n", "line: : 1"),
    // Bytes.
    (Beat, "some text", "some text\r", "bytes 26"),
    (Beat, "some", "\u{0}ome", "bytes 17"),
    (Beat, "some", "\u{1b}[2J", "bytes 17"),
    (Beat, "some", "\u{9b}31m", "bytes 17"),
    (Beat, "some", "\u{85}", "bytes 17"),
    (Beat, "some", "\u{7f}", "bytes 17"),
    (Beat, "some", "\u{7}", "bytes 17"),
    (Beat, "some", "\u{b}", "bytes 17"),
    (Beat, "heartbeat", "\u{1b}]0;x\u{7}", "bytes 0"),
    // How a trailer is spelled.
    (Beat, "Seq: 12\n", "Seq:12\n", "line: Seq:12"),
    (Beat, "Seq: 12\n", "Seq : 12\n", "line: Seq : 12"),
    (Beat, "Seq: 12\n", " Seq: 12\n", "line:  Seq: 12"),
    (Beat, "Seq: 12\n", "Seq:  12\n", "line: Seq:  12"),
    (Beat, "Seq: 12\n", "Seq: 12 \n", "line: Seq: 12 "),
    (Beat, "Seq: 12\n", "Seq: \t12\n", "line: Seq: ?12"),
    (Beat, "Seq: 12\n", "Seq=12\n", "line: Seq=12"),
    (Beat, "Seq: 12\n", "Seq\n", "line: Seq"),
    (Beat, "Seq: 12\n", "seq: 12\n", "repeated seq"),
    (Beat, "Seq: 12\n", "Seq: 12\nSEQ: 12\n", "repeated SEQ"),
    // Numbers, one spelling each.
    (Beat, "Seq: 12\n", "", "absent Seq"),
    (Beat, "Seq: 12\n", "Seq: 12\nSeq: 12\n", "repeated Seq"),
    (Beat, "Seq: 12\n", "Seq: +12\n", "value Seq: +12"),
    (Beat, "Seq: 12\n", "Seq: -1\n", "value Seq: -1"),
    (Beat, "Seq: 12\n", "Seq: 01\n", "value Seq: 01"),
    (Beat, "Seq: 12\n", "Seq: 1e3\n", "value Seq: 1e3"),
    (Beat, "Seq: 12\n", "Seq: 0x0c\n", "value Seq: 0x0c"),
    (Beat, "Seq: 12\n", "Seq: 1 2\n", "value Seq: 1 2"),
    (Beat, "Seq: 12\n", "Seq: 12\u{a0}\n", "value Seq: 12\u{a0}"),
    (Beat, "Seq: 12\n", "Seq: １２\n", "value Seq: １２"),
    (Beat, "Seq: 12\n", "Seq: 9007199254740992\n", "value Seq: 9007199254740992"),
    (Beat, "Seq: 12\n", "Seq: 18446744073709551615\n", "value Seq: 18446744073709551615"),
    (Beat, "Seq: 12\n", "Seq: 18446744073709551616\n", "value Seq: 18446744073709551616"),
    (Status, "Attempt: 2\n", "", "absent Attempt"),
    (Status, "Attempt: 2\n", "Attempt: 18446744073709551615\n", "value Attempt: 18446744073709551615"),
    (Status, "Reclaims: 1\n", "", "absent Reclaims"),
    (Status, "Reclaims: 1\n", "Reclaims: 00\n", "value Reclaims: 00"),
    // Nonce and clock.
    (Beat, "Nonce: 5f0c9d2e1b3a4c5d\n", "X: 1\n", "absent Nonce"),
    (Beat, "5f0c9d2e1b3a4c5d", "5F0C9D2E1B3A4C5D", "value Nonce: 5F0C9D2E1B3A4C5D"),
    (Beat, "5f0c9d2e1b3a4c5d", "f0c9d2e1b3a4c5d", "value Nonce: f0c9d2e1b3a4c5d"),
    (Beat, "5f0c9d2e1b3a4c5d", "05f0c9d2e1b3a4c5d", "value Nonce: 05f0c9d2e1b3a4c5d"),
    (Beat, "5f0c9d2e1b3a4c5d", "+f0c9d2e1b3a4c5d", "value Nonce: +f0c9d2e1b3a4c5d"),
    (Beat, " 8123456", "", "value Clock: 1f2e3d4c5b6a7988"),
    (Beat, " 8123456", "  8123456", "value Clock: 1f2e3d4c5b6a7988  8123456"),
    (Beat, " 8123456", " 08", "value Clock: 1f2e3d4c5b6a7988 08"),
    (Beat, " 8123456", " -8", "value Clock: 1f2e3d4c5b6a7988 -8"),
    (Beat, " 8123456", " 8 9", "value Clock: 1f2e3d4c5b6a7988 8 9"),
    (Beat, " 8123456", " 8ms", "value Clock: 1f2e3d4c5b6a7988 8ms"),
    (Beat, "1f2e3d4c5b6a7988", "1F2E3D4C5B6A7988", "value Clock: 1F2E3D4C5B6A7988 8123456"),
    (Beat, "Clock: 1f", "clock: 1f", "repeated clock"),
    // Links.
    (Beat, "Task: 1111111111111111111111111111111111111111\n", "", "absent Task"),
    (Beat, "Task: 1111111111111111111111111111111111111111\n", "Task: HEAD\n", "value Task: HEAD"),
    (Beat, "Task: 1111111111111111111111111111111111111111\n", "Task: 1111\n", "value Task: 1111"),
    (Beat, "Claim-Status: 22", "Claim-Status: x2", "value Claim-Status: x222222222222222222222222222222222222222"),
    (Beat, "Claim-Status: 22", "Claim-Status: 2", "value Claim-Status: 222222222222222222222222222222222222222"),
    (Beat, "Prev-Report: 33", "Prev-Report: A3", "value Prev-Report: A333333333333333333333333333333333333333"),
    (
        Beat,
        "Prev-Heartbeat: 4444444444444444444444444444444444444444",
        "Prev-Heartbeat: none",
        "value Prev-Heartbeat: none",
    ),
    (Status, "Prev-Status: 2222222222222222222222222222222222222222", "Prev-Status: ../..", "value Prev-Status: ../.."),
    (Status, "Prev-Status: ", "prev-status: ", "repeated prev-status"),
    (Status, "Proof: 7777777777777777777777777777777777777777", "Proof: none", "value Proof: none"),
    (Report, "Commit: 8888888888888888888888888888888888888888", "Commit: HEAD~1", "value Commit: HEAD~1"),
    // Flags, marks and escapes.
    (Beat, "Seq: 12\n", "Preempt: false\nSeq: 12\n", "value Preempt: false"),
    (Beat, "Seq: 12\n", "Preempt: True\nSeq: 12\n", "value Preempt: True"),
    (Beat, "Seq: 12\n", "Preempt: true\npreempt: true\nSeq: 12\n", "repeated preempt"),
    (Report, "Seq: 12\n", "Synthetic: 1\nSeq: 12\n", "value Synthetic: 1"),
    (Status, "Seq: 12\n", "Reclaimed: true\nReleased: true\nSeq: 12\n", "value Released: true"),
    (Status, "Seq: 12\n", "Cancelled: true\nReplanned: true\nSeq: 12\n", "value Replanned: true"),
    (Status, "Seq: 12\n", "Cancelled: yes\nSeq: 12\n", "value Cancelled: yes"),
    (Status, "Seq: 12\n", "Reclaimed: true\nReclaimed: true\nSeq: 12\n", "repeated Reclaimed"),
    (Beat, "7 of 12", "7\\x12", "value Progress: 7\\x12"),
    (Beat, "7 of 12", "7\\", "value Progress: 7\\"),
    (Beat, "7 of 12", "\\N", "value Progress: \\N"),
    (Beat, "7 of 12", " 7", "line: Progress:  7"),
    (Beat, "7 of 12", "7\t", "line: Progress: 7?"),
    (Beat, "7 of 12", "", "line: Progress: "),
    (Status, "so it is", "\\t", "value Reason: \\t"),
    // The fields of a status.
    (Status, "Status: done\n", "", "absent Status"),
    (Status, "Status: done\n", "Status: Done\n", "value Status: Done"),
    (Status, "Status: done\n", "Status: closed\n", "value Status: closed"),
    (Status, "Status: done\n", "Status: done\nStatus: new\n", "repeated Status"),
    (Status, "session-7", "session 7", "value Context: session 7"),
    (Status, "session-7", "sitzung-ä", "value Context: sitzung-ä"),
    (Status, "Verifier: make test\n", "", "absent Verifier"),
    (Status, "Verifier-Exit: 0\n", "", "absent Verifier-Exit"),
    (Status, "Verifier: make test\nVerifier-Exit: 0\n", "", "absent Verifier"),
    (Status, "Verifier-Exit: 0\n", "Verifier-Exit: +0\n", "value Verifier-Exit: +0"),
    (Status, "Verifier-Exit: 0\n", "Verifier-Exit: -0\n", "value Verifier-Exit: -0"),
    (Status, "Verifier-Exit: 0\n", "Verifier-Exit: 00\n", "value Verifier-Exit: 00"),
    (Status, "Verifier-Exit: 0\n", "Verifier-Exit: 4294967296\n", "value Verifier-Exit: 4294967296"),
    (Status, "Verifier-Exit: 0\n", "Verifier-Exit: 1\nverifier-exit: 0\n", "repeated verifier-exit"),
    (Status, "Seq: 12\n", "Replan-Of: x\nSeq: 12\n", "value Replan-Of: x"),
    (Status, "Seq: 12\n", "Superseded-By: x\nSeq: 12\n", "value Superseded-By: x"),
    // The definition of a task.
    (Task, "Queue: default\n", "", "absent Queue"),
    (Task, "Queue: default\n", "Queue: Default\n", "value Queue: Default"),
    (Task, "Queue: default\n", "Queue: a/b\n", "value Queue: a/b"),
    (Task, "Slug: build\n", "", "absent Slug"),
    (Task, "Slug: build\n", "Slug: ../x\n", "value Slug: ../x"),
    (Task, "Slug: build\n", "Slug: a..b\n", "value Slug: a..b"),
    (Task, "Slug: build\n", "Slug: -rf\n", "value Slug: -rf"),
    (Task, "Slug: build\n", "Slug: .lock\n", "value Slug: .lock"),
    (Task, "Slug: build\n", "Slug: %62uild\n", "value Slug: %62uild"),
    (Task, "Slug: build\n", "Slug: build\nslug: other\n", "repeated slug"),
    (Task, "2026-11-29T20:15:03.000001Z", "2026-11-29T20:15:03Z", "value Created: 2026-11-29T20:15:03Z"),
    (Task, "2026-11-29T20:15:03.000001Z", "2026-11-29 20:15:03.000001Z", "value Created: 2026-11-29 20:15:03.000001Z"),
    (Task, "03.000001Z", "03.000001+00:00", "value Created: 2026-11-29T20:15:03.000001+00:00"),
    (Task, "29T20", "29t20", "value Created: 2026-11-29t20:15:03.000001Z"),
    (Task, "03.000001Z", "03.000001z", "value Created: 2026-11-29T20:15:03.000001z"),
    (Task, "29T20:15", "29T24:00", "value Created: 2026-11-29T24:00:03.000001Z"),
    (Task, "2026-11", "2026-13", "value Created: 2026-13-29T20:15:03.000001Z"),
    (Task, "2026-11-29", "9999-12-31", "value Created: 9999-12-31T20:15:03.000001Z"),
    (Task, "03.000001Z", "03.0000010Z", "value Created: 2026-11-29T20:15:03.0000010Z"),
    (Task, "03.000001Z", "60.000001Z", "value Created: 2026-11-29T20:15:60.000001Z"),
    (Task, "2026-11-29T20:15:03.000001Z", "2026-02-30T20:15:03.000001Z", "value Created: 2026-02-30T20:15:03.000001Z"),
    (Task, "2026-11-29T20:15:03.000001Z", "1796000000", "value Created: 1796000000"),
    (Task, "Priority: 2\n", "", "absent Priority"),
    (Task, "Priority: 2\n", "Priority: 5\n", "value Priority: 5"),
    (Task, "Priority: 2\n", "Priority: high\n", "value Priority: high"),
    (Task, SIXES, "build", "value Depends-On: build"),
    (
        Task,
        SIXES,
        "6666666666666666666666666666666666666666,7777777777777777777777777777777777777777",
        "value Depends-On: 6666666666666666666666666666666666666666,7777777777777777777…",
    ),
    (Task, "Depends-On", "depends-on", "repeated depends-on"),
    (Task, "Seq: 0\n", "Parent: web\nSeq: 0\n", "value Parent: web"),
    (Task, "Seq: 0\n", "Spawned-At: 1\nSeq: 0\n", "value Spawned-At: 1"),
    (Task, "Sticky: true\n", "Sticky: yes\n", "value Sticky: yes"),
    (Task, "Ttl: 90s\n", "Ttl: 90\n", "value Ttl: 90"),
    (Task, "Ttl: 90s\n", "Ttl: 0s\n", "value Ttl: 0s"),
    (Task, "Ttl: 90s\n", "Ttl: 5m\n", "value Ttl: 5m"),
    (Task, "Ttl: 90s\n", "Ttl: 1.5s\n", "value Ttl: 1.5s"),
    (Task, "Ttl: 90s\n", "Ttl: 09s\n", "value Ttl: 09s"),
    (Task, "Ttl: 90s\n", "Ttl: ms\n", "value Ttl: ms"),
    (Task, "Ttl: 90s\n", "Ttl: 9007199254740991s\n", "value Ttl: 9007199254740991s"),
    (Task, "Max-Attempts: 3\n", "Max-Attempts: 4294967296\n", "value Max-Attempts: 4294967296"),
    (Task, "Max-Attempts: 3\n", "Max-Attempts: -1\n", "value Max-Attempts: -1"),
    (Task, "area:web", "area web", "value Label: area web"),
    (Task, "area:web", "größe", "value Label: größe"),
    (Task, "Label: area:web\n", "Label: area:web\nLABEL: x\n", "repeated LABEL"),
    (Task, "Build it", "Build\tit", "value subject: "),
    (Task, "Build it", SCISSORS, "value subject: "),
    (Report, "It is built", SCISSORS, "value subject: "),
];

#[test]
fn a_tampered_message_is_refused_with_its_reason() {
    for (kind, piece, instead, expected) in TAMPERED {
        let mut commit = genuine(*kind);
        let message = String::from_utf8(commit.message).expect("UTF-8");
        assert_eq!(message.matches(piece).count(), 1, "{piece:?} is to be replaced in\n{message}");
        commit.message = message.replace(piece, instead).into_bytes();
        check(&format!("{kind:?} with {instead:?} for {piece:?}"), &commit, expected);
    }
}

/// A record, how its commit is bent, and how the error is told.
type Bent = (Kind, fn(&mut Commit), &'static str);

/// What cannot be said by replacing text.
const BENT: &[Bent] = &[
    (Beat, |c| c.parents.push(oid(9)), "2 parents, not 1"),
    (Beat, |c| c.parents = vec![oid(9); 16], "16 parents, not 1"),
    (Status, |c| c.parents.clear(), "0 parents, not 1"),
    (Report, |c| c.parents.push(oid(9)), "2 parents, not 1"),
    (Task, |c| c.parents.push(oid(9)), "1 parents, not 0"),
    (Task, |c| c.tree = Some(oid(9)), "tree"),
    (Status, |c| c.tree = Some(oid(9)), "tree"),
    (Beat, |c| c.tree = Some(oid(9)), "tree"),
    (Beat, |c| c.author.name.clear(), "author"),
    (Beat, |c| c.author.name = b"A U Thor".to_vec(), "author"),
    (Beat, |c| c.author.name = b"w\xff".to_vec(), "author"),
    (Beat, |c| c.author.name = b"w\x1b[0m".to_vec(), "author"),
    (Beat, |c| c.author.name = vec![b'w'; 129], "author"),
    (Beat, |c| c.author.email = b"\xff".to_vec(), "author"),
    (Beat, |c| c.author.email = b"\x1b[2J@host".to_vec(), "author"),
    (Beat, |c| c.message[0] = 0xff, "bytes 0"),
    (Beat, |c| c.message.extend(b"\xed\xa0\x80\n"), "bytes 345"),
    (Beat, |c| c.message.splice(0..2, *b"\xff\xfe").for_each(drop), "bytes 0"),
    (Beat, |c| c.message.splice(..0, *b"\xc0\x80").for_each(drop), "bytes 0"),
    (Beat, |c| c.message.truncate(300), "layout: no final newline"),
    // Too much of something.
    (Task, |c| c.message.splice(..0, [b'x'; 193]).for_each(drop), "value subject: "),
    (Report, |c| c.message.splice(..0, vec![b'x'; 1_000_000]).for_each(drop), "value subject: "),
    (
        Beat,
        |c| c.message.splice(c.message.len() - 1.., [vec![b'0'; 1_000_000], b"\n".to_vec()].concat()).for_each(drop),
        "value Nonce: 5f0c9d2e1b3a4c5d00000000000000000000000000000000000000000000…",
    ),
    (
        Beat,
        |c| c.message.extend([vec![b'x'; 1_000_000], b"\n".to_vec()].concat()),
        "line: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…",
    ),
    (Report, |c| c.message.splice(..0, vec![b'x'; 1 << 20]).for_each(drop), "too long"),
    (Task, |c| c.message.extend(b"Label: x\n".repeat(120_000)), "too long"),
    (Beat, |c| c.message.extend(b"Seq: 12\n".repeat(100_000)), "repeated Seq"),
    (Beat, |c| c.message.extend(b"x\n".repeat(100_000)), "line: x"),
    (Task, |c| c.message.extend([b"Label: x\n".repeat(100_000), b"label: x\n".to_vec()].concat()), "repeated label"),
    (
        Task,
        |c| c.message.extend([b"Label: x\n".repeat(100_000), b"Label: \xc3\xa4\n".to_vec()].concat()),
        "value Label: ä",
    ),
];

#[test]
fn a_bent_commit_is_refused_with_its_reason() {
    for (row, (kind, bend, expected)) in BENT.iter().enumerate() {
        let mut commit = genuine(*kind);
        bend(&mut commit);
        check(&format!("row {row}, a bent {kind:?}"), &commit, expected);
    }
}

/// Messages of commits that have nothing to do with pm.
const FOREIGN: &[&str] = &[
    "fix\n",
    "Fix the login page\n\nIt was broken.\n",
    "Fix it\n\nSigned-off-by: A U Thor <author@example.com>\nReviewed-by: B <b@example.com>\n",
    "Fix it\n\nSigned-off-by: A U Thor <author@example.com>\nand a line of prose\n",
    "Merge branch 'next'\n\n* next:\n  one\n  two\n",
    "Revert \"fix\"\n\nThis reverts commit 6666666666666666666666666666666666666666.\n",
    "Record: Task\n",
    "Records: Task\n\nRecords: Task\n",
    "A chat about pm\n\nRecord: Task\nFormat: 1\n\nwas the question.\n",
    "\n",
    "\n\n",
    "a\n\n\n\n",
];

#[test]
fn commits_of_other_programs_are_foreign() {
    for message in FOREIGN {
        check(message, &Commit { message: message.as_bytes().to_vec(), ..genuine(Beat) }, "foreign");
    }
    check("empty", &Commit { message: Vec::new(), ..genuine(Beat) }, "layout: no final newline");
    check("no newline", &Commit { message: b"fix".to_vec(), ..genuine(Beat) }, "layout: no final newline");
}

#[test]
fn tens_of_thousands_of_trailers_are_read_in_one_pass() {
    let mut commit = genuine(Task);
    commit.message.extend(b"Label: x\nX-Later: y\n".repeat(40_000));
    let record = decode(&commit).expect("a record, if a strange one");
    assert_eq!(record.unknown.len(), 40_000);
    assert!(matches!(record.content, Content::Task(task) if task.labels.len() == 40_001));
}

#[test]
fn the_tables_hold_at_least_two_hundred_hostile_commits() {
    assert!(TAMPERED.len() + BENT.len() + FOREIGN.len() >= 200);
    for kind in [Task, Status, Report, Beat] {
        assert!(decode(&genuine(kind)).is_ok(), "the {kind:?} is genuine before it is tampered with");
    }
}
