//! Properties of the codec: nothing is lost, and nothing makes it panic.

use std::cell::Cell;

use pm::commit::{Commit, Signature};
use pm::id::Oid;
use pm::protocol::codec::{decode, encode, glance};
use pm::protocol::record::Content;
use pm::protocol::text::{self, TextError};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::arbitrary::{Dice, SCISSORS, committer, numbers, record};
use super::for_all;

/// Whatever decodes encodes to something that decodes to the same, and a glance tells of it what decoding does; whatever
/// does not has a printable reason.
/// Tells whether it decoded.
fn check(commit: &Commit) -> Result<bool, TestCaseError> {
    match decode(commit) {
        Ok(record) => {
            let (key, wanted) = match &record.content {
                Content::Task(task) => ("Parent", task.parent.map(|parent| parent.to_string())),
                _ => ("Task", record.links.task.map(|task| task.to_string())),
            };
            prop_assert_eq!(glance(commit, key), wanted.as_deref());
            prop_assert_eq!(glance(commit, "Record"), Some(record.content.kind()));
            let again = encode(&record, committer());
            prop_assert_eq!(decode(&again), Ok(record));
            Ok(true)
        }
        Err(error) => {
            let why = error.to_string();
            prop_assert!(!why.is_empty() && !why.contains(char::is_control), "{:?}", why);
            prop_assert!(why.len() < 1000, "an error as long as the message that it is about");
            Ok(false)
        }
    }
}

/// Checks every commit that `make` makes, and that both outcomes were seen often: else nothing was proven.
fn check_all(make: impl Fn(&mut Dice) -> Commit) {
    let (good, bad) = (Cell::new(0), Cell::new(0));
    for_all(numbers(), |numbers| -> TestCaseResult {
        let count = if check(&make(&mut Dice::new(numbers)))? { &good } else { &bad };
        count.set(count.get() + 1);
        Ok(())
    });
    let (good, bad) = (good.get(), bad.get());
    assert!(good >= 500 && bad >= 500, "of the inputs {good} were records and {bad} were not");
}

#[test]
fn every_record_survives_encoding_and_decoding() {
    for_all(record(), |record| {
        let commit = encode(&record, committer());
        prop_assert_eq!(commit.parents.len(), usize::from(record.parent.is_some()));
        prop_assert_eq!(&commit.committer, &committer());
        prop_assert!(commit.message.ends_with(b"\n") && !commit.message.ends_with(b"\n\n"));
        prop_assert_eq!(decode(&commit), Ok(record));
        Ok(())
    });
}

/// A text of so many of a character is taken as it is, and one more is refused.
fn check_limit<T>(character: &str, most: usize, take: impl Fn(&str) -> Result<T, TextError>) {
    assert!(take(&character.repeat(most)).is_ok());
    assert!(matches!(take(&character.repeat(most + 1)), Err(TextError::TooLong { .. })));
}

#[test]
fn texts_are_taken_up_to_their_limits_and_not_beyond() {
    check_limit("ä", text::TITLE_MAX, text::checked_title);
    check_limit("x", text::MESSAGE_MAX, |value| text::checked_value("the value", value));
    // The final newline counts, and is added where it lacks.
    check_limit("x", text::MESSAGE_MAX - 1, text::checked_body);
}

#[test]
fn what_no_record_may_hold_is_refused_where_it_enters() {
    for title in ["", " ", "a\nb", "a\r\nb", "a\rb", "a\tb", "a\u{1b}b", "a\u{9b}b", "a\0b", SCISSORS] {
        assert!(text::checked_title(title).is_err(), "{title:?}");
    }
    for value in ["", " ", "\t", "\n", " \r\n ", "a\rb", "a\u{1b}b", "a\u{7f}b"] {
        assert!(text::checked_value("the value", value).is_err(), "{value:?}");
    }
    for body in ["a\rb", "a\u{1b}[0m", "\0", "a\u{85}b"] {
        assert!(text::checked_body(body).is_err(), "{body:?}");
        assert!(text::checked_body(&text::stripped(body)).is_ok(), "{body:?}");
    }
}

#[test]
fn random_bytes_never_make_the_decoder_panic() {
    let bytes = || prop::collection::vec(any::<u8>(), 0..160);
    for_all((bytes(), bytes(), 0..3_usize), |(message, name, parents)| {
        let author = Signature { name, ..committer() };
        let parents = vec![oid(); parents];
        check(&Commit { tree: None, parents, author, committer: committer(), message }).map(|_| ())
    });
}

fn oid() -> Oid {
    Oid::from_bytes(&[7; 20]).expect("20 bytes are an id")
}

/// Bytes that mean something to git, to terminals, or to the codec.
const NASTY: [&[u8]; 20] = [
    b"\n",
    b"\n\n",
    b"\0",
    b"\r",
    b"\x1b[2J",
    b"\xff",
    b"\xc2\x9b",
    b"\xed\xa0\x80",
    b" ",
    b"\t",
    b":",
    b": ",
    b"\\",
    b"\\x",
    b"Record: Task\n",
    b"record: Task\n",
    b"\nSeq: 1\n",
    b"\nPreempt: true",
    b"\xe2\x80\xa8",
    b"---\n",
];

/// One act of vandalism against a message: against its lines, or its bytes.
fn vandalise(message: &mut Vec<u8>, dice: &mut Dice) {
    if dice.flip() {
        let mut lines: Vec<Vec<u8>> = message.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let (one, other) = (dice.roll(lines.len()), dice.roll(lines.len()));
        let key = lines[one].iter().position(|byte| *byte == b':').unwrap_or(0);
        match dice.roll(6) {
            0 => lines.swap(one, other),
            1 => lines.insert(one, lines[other].clone()),
            2 => drop(lines.remove(one)),
            3 => lines[one][..key].make_ascii_lowercase(),
            4 => lines[one].make_ascii_uppercase(),
            _ => lines[one].splice(key.., format!(": {}", dice.text()).into_bytes()).for_each(drop),
        }
        *message = lines.join(&b'\n');
    } else if !message.is_empty() {
        let at = dice.roll(message.len());
        match dice.roll(4) {
            0 => message[at] ^= 1 << dice.roll(8),
            1 => drop(message.remove(at)),
            2 => message.splice(at..at, dice.pick(&NASTY).to_vec()).for_each(drop),
            _ => message.truncate(at),
        }
    }
}

#[test]
fn vandalised_records_decode_to_a_record_or_a_typed_error() {
    check_all(|dice| {
        let mut commit = encode(&dice.record(), committer());
        for _ in 0..=dice.roll(3) {
            vandalise(&mut commit.message, dice);
        }
        match dice.roll(12) {
            1 => commit.parents.push(oid()),
            2 => commit.parents.clear(),
            3 => commit.tree = Some(oid()),
            4 => commit.author.name = dice.text().into_bytes(),
            5 => commit.author.email = b"\xff".to_vec(),
            _ => {}
        }
        commit
    });
}

/// Lines that are almost trailers of some record.
fn soup(dice: &mut Dice) -> Vec<u8> {
    const KEYS: [&str; 12] = [
        "Status",
        "Attempt",
        "Reclaims",
        "Seq",
        "Nonce",
        "Clock",
        "Task",
        "Claim-Status",
        "Preempt",
        "Ttl",
        "Label",
        "Depends-On",
    ];
    const VALUES: [&str; 12] = [
        "new",
        "working",
        "0",
        "1",
        "01",
        "+1",
        "-1",
        "18446744073709551615",
        "true",
        "300s",
        "00000000000000ff",
        "00000000000000ff 7",
    ];
    let mut lines = vec![format!("Record: {}", dice.pick(&["TaskStatus", "TaskHeartbeat", "TaskReport", "Task"]))];
    lines.push(format!("Task: {}", oid()));
    for (key, value) in
        [("Seq", "3"), ("Nonce", "00000000000000ff"), ("Status", "new"), ("Attempt", "0"), ("Reclaims", "0")]
    {
        if dice.roll(8) != 1 {
            lines.push(format!("{key}: {value}"));
        }
    }
    for _ in 0..dice.roll(3) {
        let value = if dice.flip() { dice.pick(&VALUES).to_owned() } else { dice.text() };
        lines.push(format!("{}: {value}", dice.pick(&KEYS)));
    }
    let (gap, end) =
        (dice.pick(&["\n\n", "\n\n", "\n\n\n", "\n", "\n\nbody\n\n"]), dice.pick(&["\n", "\n", "", "\n\n"]));
    format!("subject{gap}{}{end}", lines.join("\n")).into_bytes()
}

#[test]
fn messages_that_are_almost_records_decode_to_a_record_or_a_typed_error() {
    check_all(|dice| {
        let author = Signature { name: b"w1".to_vec(), ..committer() };
        let message = soup(dice);
        Commit { tree: None, parents: vec![oid()], author, committer: committer(), message }
    });
}
