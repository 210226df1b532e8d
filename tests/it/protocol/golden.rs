//! One message of every kind of record, byte for byte. They are frozen: whoever changes one changes the format.

use pm::commit::Commit;
use pm::id::{Oid, RecordId};
use pm::protocol::codec::{decode, encode};
use pm::protocol::record::{
    ClockReading, Content, Heartbeat, Links, Mark, Nonce, Phase, Record, Report, Status, Verification,
};

use super::arbitrary::committer;
use super::chain::{agent, task};

/// An id of one repeated hex digit.
pub fn oid(digit: u8) -> Oid {
    Oid::from_bytes(&[digit << 4 | digit; 20]).expect("20 bytes are an id")
}

/// A record at depth 12 (a Task at 0) with every link.
pub fn record(content: Content) -> Record {
    let id = |digit| Some(RecordId(oid(digit)));
    let is_task = matches!(content, Content::Task(_));
    let links = Links { task: Some(RecordId(oid(1)).as_task()), status: id(2), report: id(3), heartbeat: id(4) };
    Record {
        parent: if is_task { None } else { id(5) },
        agent: agent("w1"),
        email: "w1@host".to_owned(),
        at: 1_795_983_303,
        links: if is_task { Links::default() } else { links },
        seq: if is_task { 0 } else { 12 },
        clock: Some(ClockReading { id: 0x1f2e_3d4c_5b6a_7988, ms: 8_123_456 }),
        nonce: Nonce(0x5f0c_9d2e_1b3a_4c5d),
        body: None,
        content,
        unknown: Vec::new(),
    }
}

/// The record has exactly this message, its author is the agent, and the message reads back as the record.
fn check(record: &Record, tree: Option<Oid>, message: &str) {
    let commit = encode(record, committer());
    assert_eq!(String::from_utf8_lossy(&commit.message), message);
    let expected = Commit {
        tree,
        parents: record.parent.iter().map(|parent| parent.0).collect(),
        author: pm::commit::Signature {
            name: b"w1".to_vec(),
            email: b"w1@host".to_vec(),
            seconds: 1_795_983_303,
            offset: 0,
        },
        committer: committer(),
        message: message.as_bytes().to_vec(),
    };
    assert_eq!(commit, expected);
    assert_eq!(decode(&commit).as_ref(), Ok(record));
}

#[test]
fn a_plain_task_is_spelled_so() {
    check(
        &Record { clock: None, ..record(Content::Task(Box::new(task("")))) },
        None,
        "Build it

Record: Task
Format: 1
Queue: default
Slug: build
Created: 2026-11-29T20:15:03.000001Z
Priority: 2
Seq: 0
Nonce: 5f0c9d2e1b3a4c5d
",
    );
}

#[test]
fn a_task_with_everything_is_spelled_so() {
    let mut everything = task("ttl+max3+sticky");
    everything.depends_on = vec![RecordId(oid(6)).as_task(), RecordId(oid(7)).as_task()];
    everything.parent = Some(RecordId(oid(8)).as_task());
    everything.spawned_at = Some(RecordId(oid(9)));
    everything.verifier = Some("make test\n# in C:\\src ".to_owned());
    everything.workdir = Some(" web".to_owned());
    everything.labels = ["area:web", "v1.2"].map(|label| label.parse().expect("a label")).to_vec();
    let mut record = record(Content::Task(Box::new(everything)));
    record.body = Some(
        "\nAs agreed.\n\n---\nRecord: TaskStatus\n# ------------------------ >8 ------------------------\n\nSeq: 9\n"
            .to_owned(),
    );
    record.unknown = vec![("Reviewed-by".to_owned(), "A <a@b.c>".to_owned()), ("X".to_owned(), "\\raw".to_owned())];
    check(
        &record,
        None,
        "Build it


As agreed.

---
Record: TaskStatus
 # ------------------------ >8 ------------------------

Seq: 9

Record: Task
Format: 1
Queue: default
Slug: build
Created: 2026-11-29T20:15:03.000001Z
Priority: 2
Depends-On: 6666666666666666666666666666666666666666
Depends-On: 7777777777777777777777777777777777777777
Parent: 8888888888888888888888888888888888888888
Spawned-At: 9999999999999999999999999999999999999999
Verifier: make test\\n# in C:\\\\src\\s
Sticky: true
Workdir: \\sweb
Ttl: 90s
Max-Attempts: 3
Label: area:web
Label: v1.2
Seq: 0
Clock: 1f2e3d4c5b6a7988 8123456
Nonce: 5f0c9d2e1b3a4c5d
Reviewed-by: A <a@b.c>
X: \\raw
",
    );
}

#[test]
fn a_claim_is_spelled_so() {
    let status = Status {
        context: Some("session-7".parse().expect("a context")),
        ttl: Some("1500ms".parse().expect("a ttl")),
        ..Status::new(Phase::Working, 2, 1)
    };
    check(
        &record(Content::Status(Box::new(status))),
        None,
        "claimed by w1, attempt 2

Record: TaskStatus
Task: 1111111111111111111111111111111111111111
Prev-Status: 2222222222222222222222222222222222222222
Prev-Report: 3333333333333333333333333333333333333333
Prev-Heartbeat: 4444444444444444444444444444444444444444
Status: working
Attempt: 2
Reclaims: 1
Context: session-7
Ttl: 1500ms
Seq: 12
Clock: 1f2e3d4c5b6a7988 8123456
Nonce: 5f0c9d2e1b3a4c5d
",
    );
}

#[test]
fn a_closing_status_is_spelled_so() {
    let verification =
        Verification { verifier: "make test".to_owned(), exit: -1, summary: Some("no\nmake".to_owned()) };
    let status = Status {
        proof: Some(RecordId(oid(3))),
        reason: Some("nobody has make here".to_owned()),
        verification: Some(verification),
        ..Status::new(Phase::Done, 1, 0)
    };
    check(
        &record(Content::Status(Box::new(status))),
        None,
        "done by w1

Record: TaskStatus
Task: 1111111111111111111111111111111111111111
Prev-Status: 2222222222222222222222222222222222222222
Prev-Report: 3333333333333333333333333333333333333333
Prev-Heartbeat: 4444444444444444444444444444444444444444
Status: done
Attempt: 1
Reclaims: 0
Proof: 3333333333333333333333333333333333333333
Reason: nobody has make here
Verifier: make test
Verifier-Exit: -1
Verifier-Summary: no\\nmake
Seq: 12
Clock: 1f2e3d4c5b6a7988 8123456
Nonce: 5f0c9d2e1b3a4c5d
",
    );
}

#[test]
fn a_report_is_spelled_so() {
    let report =
        Report { title: "Es läuft".to_owned(), commit: Some(oid(6)), synthetic: true, attachments: Some(oid(7)) };
    let record = Record { body: Some("12 tests passed\n".to_owned()), ..record(Content::Report(report)) };
    check(
        &record,
        Some(oid(7)),
        "Es läuft

12 tests passed

Record: TaskReport
Task: 1111111111111111111111111111111111111111
Claim-Status: 2222222222222222222222222222222222222222
Prev-Report: 3333333333333333333333333333333333333333
Prev-Heartbeat: 4444444444444444444444444444444444444444
Commit: 6666666666666666666666666666666666666666
Synthetic: true
Seq: 12
Clock: 1f2e3d4c5b6a7988 8123456
Nonce: 5f0c9d2e1b3a4c5d
",
    );
}

#[test]
fn a_heartbeat_is_spelled_so() {
    let mut record = record(Content::Heartbeat(Heartbeat { preempt: false, progress: Some("7 of 12".to_owned()) }));
    record.links.report = None;
    record.links.heartbeat = None;
    check(
        &record,
        None,
        "heartbeat by w1

Record: TaskHeartbeat
Task: 1111111111111111111111111111111111111111
Claim-Status: 2222222222222222222222222222222222222222
Progress: 7 of 12
Seq: 12
Clock: 1f2e3d4c5b6a7988 8123456
Nonce: 5f0c9d2e1b3a4c5d
",
    );
}

/// Every other status and heartbeat, by what differs: its subject, and the trailers that say which it is.
#[test]
fn every_change_has_its_subject_and_its_mark() {
    let id = RecordId(oid(6));
    let marked = |phase, mark| Status { mark: Some(mark), ..Status::new(phase, 1, 3) };
    let clone = Status { replan_of: Some(id.as_task()), ..Status::new(Phase::New, 0, 0) };
    let superseded = Status { superseded_by: Some(id.as_task()), ..Status::new(Phase::Superseded, 1, 0) };
    let sixes = "6".repeat(40);
    for (status, subject, lines) in [
        (Status::new(Phase::New, 0, 0), "planned by w1", "Status: new\nAttempt: 0\nReclaims: 0\n".to_owned()),
        (clone, "planned by w1", format!("Reclaims: 0\nReplan-Of: {sixes}\n")),
        (marked(Phase::New, Mark::Released), "released by w1", "Reclaims: 3\nReleased: true\n".to_owned()),
        (marked(Phase::New, Mark::Reclaimed), "reclaimed by w1", "Reclaimed: true\n".to_owned()),
        (marked(Phase::New, Mark::Replanned), "planned again by w1", "Replanned: true\n".to_owned()),
        (marked(Phase::Rejected, Mark::Cancelled), "cancelled by w1", "Cancelled: true\n".to_owned()),
        (
            marked(Phase::Rejected, Mark::Reclaimed),
            "rejected by w1 after 3 sweeps without a report",
            "Status: rejected\nAttempt: 1\nReclaims: 3\nReclaimed: true\n".to_owned(),
        ),
        (Status::new(Phase::Rejected, 1, 0), "rejected by w1", "Status: rejected\n".to_owned()),
        (
            superseded,
            "superseded by w1",
            format!("Status: superseded\nAttempt: 1\nReclaims: 0\nSuperseded-By: {sixes}\n"),
        ),
    ] {
        let commit = encode(&record(Content::Status(Box::new(status))), committer());
        let message = String::from_utf8(commit.message).expect("UTF-8");
        assert_eq!(message.lines().next(), Some(subject));
        assert!(message.contains(&lines), "{message}");
    }
    let preempt = record(Content::Heartbeat(Heartbeat { preempt: true, progress: None }));
    let message = String::from_utf8(encode(&preempt, committer()).message).expect("UTF-8");
    assert!(message.starts_with("preempted by w1\n\n") && message.contains("\nPreempt: true\n"), "{message}");
}
