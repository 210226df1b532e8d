//! Arbitrary records of every kind, as hostile as the checked constructors let them be.
//!
//! proptest draws a list of numbers, and a [`Dice`] turns them into a record: far cheaper than a strategy a field,
//! and a list that shrinks gives a simpler record, since a dice that ran out always shows its first face.

use std::fmt::Debug;
use std::str::FromStr;

use pm::commit::Signature;
use pm::id::{Oid, RecordId, TaskId};
use pm::protocol::record::{
    ClockReading, Content, Heartbeat, Links, Mark, Nonce, Phase, Priority, Record, Report, Status, Task, Ttl,
    Verification,
};
use pm::protocol::text;
use proptest::prelude::*;

/// The greatest number that a record can hold.
const MOST: u64 = (1 << 53) - 1;

/// The mark at which git stops to read a message.
pub const SCISSORS: &str = "# ------------------------ >8 ------------------------";

/// What texts are made of.
const ATOMS: [&str; 44] = [
    "a",
    " ",
    "\n",
    "\\",
    "\t",
    "\\n",
    "\\s",
    "\\\\",
    "  ",
    "\n\n",
    "\r\n",
    "\n \n",
    "---",
    "\n---\n",
    ":",
    ": ",
    "#",
    "\n#",
    "%",
    "<>",
    "é",
    "日本語",
    "🦀",
    "\u{301}",
    "\u{a0}",
    "\u{202e}",
    "\u{feff}",
    "\u{2028}",
    "Record: TaskStatus",
    "\n\nRecord: TaskStatus\nStatus: done\n",
    "\nSeq: 1\n",
    "\nNonce: 0000000000000000\n",
    "Signed-off-by: x <y@z>",
    "(cherry picked from commit 1234)",
    "\nConflicts:\n\tfile\n",
    SCISSORS,
    "\n# ------------------------ >8 ------------------------\n",
    "\n ------------------------ >8 ------------------------\n",
    "\n  # ------------------------ >8 ------------------------\n",
    "\n; ------------------------ >8 ------------------------\n",
    "\u{fffd}",
    "\u{10ffff}",
    "build the login page",
    "\n    indented\n",
];

/// A source of choices: numbers that proptest drew.
pub struct Dice {
    numbers: std::vec::IntoIter<u32>,
}

impl Dice {
    pub fn new(numbers: Vec<u32>) -> Dice {
        Dice { numbers: numbers.into_iter() }
    }

    fn number(&mut self) -> u32 {
        self.numbers.next().unwrap_or(0)
    }

    /// A number below `faces`.
    pub fn roll(&mut self, faces: usize) -> usize {
        self.number() as usize % faces
    }

    pub fn flip(&mut self) -> bool {
        self.roll(2) == 1
    }

    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.roll(choices.len())].clone()
    }

    pub fn maybe<T>(&mut self, draw: impl FnOnce(&mut Dice) -> T) -> Option<T> {
        if self.flip() { Some(draw(self)) } else { None }
    }

    fn several<T>(&mut self, draw: impl Fn(&mut Dice) -> T) -> Vec<T> {
        (0..self.roll(4)).map(|_| draw(self)).collect()
    }

    fn wide(&mut self) -> u64 {
        u64::from(self.number()) << 32 | u64::from(self.number())
    }

    fn count(&mut self) -> u64 {
        match self.roll(4) {
            0 => self.roll(20) as u64,
            1 => MOST,
            _ => self.wide() & MOST,
        }
    }

    /// Some text, not yet checked by any rule.
    pub fn text(&mut self) -> String {
        (0..self.roll(8))
            .map(|_| match self.roll(8) {
                0 => char::from_u32(self.number() % 0x11_0000).unwrap_or('?').to_string(),
                _ => self.pick(&ATOMS).to_owned(),
            })
            .collect()
    }

    fn title(&mut self) -> String {
        let raw: String = text::stripped(&self.text()).replace(['\n', '\t'], " ").chars().take(200).collect();
        text::checked_title(&raw).unwrap_or_else(|_| "a title".to_owned())
    }

    fn value(&mut self) -> String {
        let raw = text::stripped(&self.text());
        text::checked_value("the value", &raw).unwrap_or_else(|_| "a value".to_owned())
    }

    fn body(&mut self) -> Option<String> {
        let raw = text::stripped(&self.text());
        text::checked_body(&raw).expect("stripped text is a legal body")
    }

    /// A name in an alphabet: the first character is one of the first `starts`.
    fn name<T: FromStr<Err: Debug>>(&mut self, alphabet: &str, starts: usize, most: usize) -> T {
        let letters: Vec<char> = alphabet.chars().collect();
        let long = if self.roll(16) == 1 { most } else { 1 + self.roll(12) };
        let mut name: String = letters[self.roll(starts)].to_string();
        while name.len() < long {
            name.push(self.pick(&letters));
        }
        let name = name.replace("..", ".-");
        name.parse().expect("a name in its alphabet")
    }

    fn component<T: FromStr<Err: Debug>>(&mut self) -> T {
        self.name("abcxyz019._+-", 9, 128)
    }

    fn tag<T: FromStr<Err: Debug>>(&mut self, most: usize) -> T {
        self.name("wabz019AZ._@:/+-", 16, most)
    }

    fn oid(&mut self) -> Oid {
        let long = if self.roll(4) == 1 { 32 } else { 20 };
        let seed = self.wide().to_be_bytes();
        let digest: Vec<u8> = seed.iter().copied().cycle().take(long).collect();
        Oid::from_bytes(&digest).expect("20 or 32 bytes are an id")
    }

    fn record_id(&mut self) -> RecordId {
        RecordId(self.oid())
    }

    fn task_id(&mut self) -> TaskId {
        TaskId(self.oid())
    }

    fn ttl(&mut self) -> Ttl {
        Ttl::from_ms(1 + self.wide() % Ttl::MAX_MS).expect("a duration within the limit")
    }

    fn task(&mut self) -> Task {
        const CREATED: [i64; 6] =
            [0, -1, 1_795_983_303_000_001, 1_000_000, -377_705_023_200_000_000, 253_402_207_200_999_999];
        Task {
            queue: self.component(),
            slug: self.component(),
            title: self.title(),
            created: self.pick(&CREATED),
            priority: Priority::try_from(self.roll(5) as u64).expect("0 to 4 is a priority"),
            depends_on: self.several(Dice::task_id),
            parent: self.maybe(Dice::task_id),
            spawned_at: self.maybe(Dice::record_id),
            verifier: self.maybe(Dice::value),
            sticky: self.flip(),
            workdir: self.maybe(Dice::value),
            ttl: self.maybe(Dice::ttl),
            max_attempts: self.maybe(Dice::number),
            labels: self.several(|dice| dice.tag(64)),
        }
    }

    fn status(&mut self) -> Status {
        Status {
            phase: self.pick(&Phase::ALL),
            attempt: self.count(),
            reclaims: self.count(),
            context: self.maybe(|dice| dice.tag(128)),
            ttl: self.maybe(Dice::ttl),
            proof: self.maybe(Dice::record_id),
            reason: self.maybe(Dice::value),
            mark: self.maybe(|dice| dice.pick(&Mark::ALL)),
            replan_of: self.maybe(Dice::task_id),
            superseded_by: self.maybe(Dice::task_id),
            verification: self.maybe(|dice| Verification {
                verifier: dice.value(),
                exit: dice.pick(&[0, 1, -1, 127, i32::MAX, i32::MIN]),
                summary: dice.maybe(Dice::value),
            }),
        }
    }

    /// The content of a heartbeat (0), a report (1), a status (2) or a Task (3).
    fn content(&mut self, kind: usize) -> Content {
        match kind {
            0 => Content::Heartbeat(Heartbeat { preempt: self.flip(), progress: self.maybe(Dice::value) }),
            1 => Content::Report(Report {
                title: self.title(),
                commit: self.maybe(Dice::oid),
                synthetic: self.flip(),
                attachments: self.maybe(Dice::oid),
            }),
            2 => Content::Status(Box::new(self.status())),
            _ => Content::Task(Box::new(self.task())),
        }
    }

    /// Trailers that no kind of record knows, or that only another kind knows.
    fn unknown(&mut self, content: &Content) -> Vec<(String, String)> {
        let foreign = match content {
            Content::Task(_) => "Progress",
            Content::Status(_) => "Claim-Status",
            Content::Report(_) => "Status",
            Content::Heartbeat(_) => "Depends-On",
        };
        let keys = ["X-Later", "Signed-off-by", "signed-OFF-by", "x", "0", "-", "Seq-2", foreign];
        self.several(|dice| {
            let raw = text::stripped(&dice.text()).replace('\n', " ");
            let value = raw.trim_matches([' ', '\t']);
            let value = if value.is_empty() { "true" } else { value };
            (dice.pick(&keys).to_owned(), value.to_owned())
        })
    }

    pub fn record(&mut self) -> Record {
        let kind = self.roll(4);
        self.record_of(kind)
    }

    /// A record of the kind that [`content`](Self::content) numbers.
    pub fn record_of(&mut self, kind: usize) -> Record {
        let body = self.body();
        let content = self.content(kind);
        let is_task = matches!(content, Content::Task(_));
        let links = Links {
            task: Some(self.task_id()),
            status: self.maybe(Dice::record_id),
            report: self.maybe(Dice::record_id),
            heartbeat: self.maybe(Dice::record_id),
        };
        Record {
            parent: if is_task { None } else { Some(self.record_id()) },
            agent: self.tag(128),
            email: self.pick(&["pm@host", "", "ä b@c", "\"quoted\"@x"]).to_owned(),
            at: self.pick(&[0, 1_795_983_303, -1, i64::MAX]),
            links: if is_task { Links::default() } else { links },
            seq: self.count(),
            clock: self.maybe(|dice| ClockReading { id: dice.wide(), ms: dice.count() }),
            nonce: Nonce(self.wide()),
            body,
            unknown: self.unknown(&content),
            content,
        }
    }
}

/// Enough numbers for any record.
pub fn numbers() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), 8..160)
}

/// Any record that the checked constructors can build.
pub fn record() -> impl Strategy<Value = Record> {
    numbers().prop_map(|numbers| Dice::new(numbers).record())
}

/// Who lets a record enter its chain, in every test.
pub fn committer() -> Signature {
    Signature { name: b"pm".to_vec(), email: b"pm@host".to_vec(), seconds: 1_795_983_303, offset: 0 }
}
