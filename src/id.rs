//! The names of things: object ids, task and record ids, agents, queues, slugs and ref names.
//!
//! Long, since each kind of name is a type of its own with its check beside it.
//!
//! Every id has its own type, so that a task id cannot be passed where a claim is meant, and every name is
//! checked once, where it enters. Nothing here does I/O.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

/// The id of any git object: 20 bytes in a SHA-1 repository, 32 in a SHA-256 one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Oid {
    len: u8,
    bytes: [u8; 32],
}

impl Oid {
    /// Wraps raw digest bytes, or returns `None` when their number is neither 20 nor 32.
    pub fn from_bytes(digest: &[u8]) -> Option<Self> {
        if digest.len() != 20 && digest.len() != 32 {
            return None;
        }
        let mut bytes = [0; 32];
        bytes[..digest.len()].copy_from_slice(digest);
        Some(Oid { len: digest.len() as u8, bytes })
    }

    /// The raw digest.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The first `digits` hex digits: for people, never for lookups.
    pub fn short(&self, digits: usize) -> String {
        let mut hex = self.to_string();
        hex.truncate(digits);
        hex
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0u8; 64];
        for (i, byte) in self.as_bytes().iter().enumerate() {
            hex[2 * i] = DIGITS[usize::from(byte >> 4)];
            hex[2 * i + 1] = DIGITS[usize::from(byte & 15)];
        }
        let hex = &hex[..2 * usize::from(self.len)];
        f.write_str(std::str::from_utf8(hex).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Oid {
    type Err = NameError;

    /// Reads 40 or 64 lower-case hex digits.
    fn from_str(hex: &str) -> Result<Self, NameError> {
        let nibble = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        let parse = || {
            let digits = hex.as_bytes();
            if digits.len() != 40 && digits.len() != 64 {
                return None;
            }
            let mut digest = [0; 32];
            for (byte, pair) in digest.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
            }
            Oid::from_bytes(&digest[..digits.len() / 2])
        };
        parse().ok_or_else(|| NameError::Oid { found: shown(hex) })
    }
}

macro_rules! id_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub Oid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(hex: &str) -> Result<Self, NameError> {
                hex.parse().map($name)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

id_newtype! {
    /// The commit id of any record.
    RecordId
}
id_newtype! {
    /// The commit id of a task's first record, its `Task` commit (design, section 2).
    TaskId
}

impl TaskId {
    /// The same commit, seen as a record.
    pub fn record(self) -> RecordId {
        RecordId(self.0)
    }
}

impl RecordId {
    /// The same commit, seen as a task: only right for the id of a `Task` record.
    pub fn as_task(self) -> TaskId {
        TaskId(self.0)
    }
}

/// What is wrong with a name that was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not an object id.
    #[error("'{found}' is not an object id of 40 or 64 lower-case hex digits")]
    Oid {
        /// The offending text, shortened and with control characters replaced.
        found: String,
    },
    /// Not a queue or slug.
    #[error(
        "'{found}' is not a valid {what}: 1 to {COMPONENT_MAX} characters of a-z 0-9 . _ + -, the first one a letter or digit, no '..'"
    )]
    Component {
        /// `queue` or `slug`.
        what: &'static str,
        /// The offending text, shortened and with control characters replaced.
        found: String,
    },
    /// Not an agent id.
    #[error("'{found}' is not a valid agent id: 1 to 128 characters of A-Z a-z 0-9 . _ @ : / + -")]
    Agent {
        /// The offending text, shortened and with control characters replaced.
        found: String,
    },
    /// Not the ref of a task.
    #[error("'{found}' is not the ref of a task: refs/pm/tasks/<queue>/<slug> in its one canonical spelling")]
    Ref {
        /// The offending text, shortened and with control characters replaced.
        found: String,
    },
}

/// Makes untrusted text safe to show: at most 60 characters, control characters as `?`.
pub fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(60).is_some() {
        out.push('…');
    }
    out
}

/// The most characters of a queue or slug (design, section 2).
pub const COMPONENT_MAX: usize = 128;

/// Checks the characters that queues and slugs are made of (design, section 2).
fn is_component(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=COMPONENT_MAX).contains(&bytes.len())
        && (bytes[0].is_ascii_lowercase() || bytes[0].is_ascii_digit())
        && bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'+' | b'-'))
        && bytes.windows(2).all(|pair| pair != b"..")
}

macro_rules! name_newtype {
    ($(#[$doc:meta])* $name:ident, $check:expr, $error:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                let check: fn(&str) -> bool = $check;
                let error: fn(String) -> NameError = $error;
                if check(text) { Ok($name(text.to_owned())) } else { Err(error(shown(text))) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

name_newtype! {
    /// A queue's name.
    Queue, is_component, |found| NameError::Component { what: "queue", found }
}
name_newtype! {
    /// A task's name within its queue.
    Slug, is_component, |found| NameError::Component { what: "slug", found }
}
name_newtype! {
    /// Who acts: a worker, a sweeper, a person.
    AgentId,
    |text| (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@:/+-".contains(&b)),
    |found| NameError::Agent { found }
}

impl Slug {
    /// Derives a slug from a title: transliterated to ASCII, lower case, every run of other characters a `-`,
    /// trimmed, at most 64 characters. A title without any usable character becomes `t-` and eight digits of
    /// its hash, so that no title is ever dropped (commands.md, "Shapes").
    pub fn from_title(title: &str) -> Slug {
        let mut slug = String::new();
        for c in deunicode::deunicode(title).to_ascii_lowercase().chars() {
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                slug.push(c);
            } else if !slug.is_empty() && !slug.ends_with('-') {
                slug.push('-');
            }
        }
        slug.truncate(64);
        let trimmed = slug.trim_end_matches('-');
        if trimmed.is_empty() {
            return Slug(format!("t-{:08x}", stable_hash(title.as_bytes()) as u32));
        }
        Slug(trimmed.to_owned())
    }
}

/// A 64-bit hash that is the same in every build of pm and on every machine (FNV-1a): for shard numbers,
/// clock ids and slugs, where a hash that differed between two builds would break an exclusion.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// Where the refs of live tasks are.
pub const TASKS: &str = "refs/pm/tasks/";

/// Where is what was last seen at a remote, by its name: never pushed.
pub const SEEN: &str = "refs/pm-remote/";

/// Where records are that are on their way to the authority: local.
pub const PENDING: &str = "refs/pm-pending/";

/// Where commits are that records on their way to the authority deliver to a branch: local.
pub const PENDING_BRANCHES: &str = "refs/pm-pending-branches/";

/// Where records are whose answer was lost and which the authority has, until their sender asks again: local.
pub const ANSWERS: &str = "refs/pm-answers/";

/// Where the tips of record suffixes are that lost at a sync: local, kept.
pub const LOST: &str = "refs/pm-lost/";

/// What belongs to one machine: never pushed, and no place for a fetch of git's own (design, section 2).
pub const LOCAL: [&str; 5] = [SEEN, PENDING, PENDING_BRANCHES, ANSWERS, LOST];

/// The full name of a task's ref: `refs/pm/tasks/<queue>/<slug>`, escaped where git or Windows forbid the name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RefName(String);

impl RefName {
    /// The ref of (queue, slug).
    pub fn of_task(queue: &Queue, slug: &Slug) -> RefName {
        RefName(format!("{TASKS}{}/{}", escape(queue.as_str()), escape(slug.as_str())))
    }

    /// The prefix of all refs of a queue, with its final slash.
    pub fn queue_prefix(queue: &Queue) -> String {
        format!("{TASKS}{}/", escape(queue.as_str()))
    }

    /// The branch for the work on this task: `pm/<queue>/<slug>`, escaped as here.
    pub fn branch(&self) -> String {
        format!("pm/{}", self.0.strip_prefix(TASKS).unwrap_or(&self.0))
    }

    /// Where the tip of this task is kept that was last seen at `remote`. Only for the ref of a task.
    pub fn seen_at(&self, remote: &str) -> RefName {
        RefName(format!("{}{}", RefName::seen_prefix(remote), self.below(TASKS)))
    }

    /// Where the tip of this task is kept that `remote` has and nobody believes. Only for the ref of a task.
    pub fn refused_at(&self, remote: &str) -> RefName {
        RefName(format!("{}{}", RefName::refused_prefix(remote), self.below(TASKS)))
    }

    /// The prefix of what `remote` has and nobody believes, with its final slash.
    pub fn refused_prefix(remote: &str) -> String {
        format!("{SEEN}{remote}/refused/")
    }

    /// The prefix of what was last seen at `remote`, with its final slash.
    pub fn seen_prefix(remote: &str) -> String {
        format!("{SEEN}{remote}/tasks/")
    }

    /// Where a record of this task is kept that is on its way to the authority. Only for the ref of a task.
    pub fn pending(&self) -> RefName {
        RefName(format!("{PENDING}{}", self.below(TASKS)))
    }

    /// Where the commit is kept that a pending record delivers to a branch (`refs/heads/...`). Only for the ref of a task.
    pub fn pending_branch(&self, branch: &str) -> RefName {
        RefName(format!("{}{branch}", self.pending_branches()))
    }

    /// The prefix of what a pending record of this task delivers, with its final slash.
    pub fn pending_branches(&self) -> String {
        format!("{PENDING_BRANCHES}{}/", self.below(TASKS))
    }

    /// Where a record of this task is kept that got in, and whose sender does not know so yet. Only for the ref of a task.
    pub fn answer(&self) -> RefName {
        RefName(format!("{ANSWERS}{}", self.below(TASKS)))
    }

    /// Where a tip of this task is kept that lost at a sync. Only for the ref of a task.
    pub fn lost(&self, tip: RecordId) -> RefName {
        RefName(format!("{}{tip}", self.lost_prefix()))
    }

    /// The prefix of all tips of this task that lost, with its final slash.
    pub fn lost_prefix(&self) -> String {
        format!("{LOST}{}/", self.below(TASKS))
    }

    /// The ref of the task whose name, below `prefix`, is `self`.
    pub fn of_task_below(&self, prefix: &str) -> RefName {
        RefName(format!("{TASKS}{}", self.below(prefix)))
    }

    fn below(&self, prefix: &str) -> &str {
        self.0.strip_prefix(prefix).unwrap_or_else(|| panic!("{self} is not below {prefix}"))
    }

    /// The (queue, slug) that this ref stands for. Names that `of_task` would not have written are errors.
    pub fn task(&self) -> Result<(Queue, Slug), NameError> {
        let bad = || NameError::Ref { found: shown(&self.0) };
        let (queue, slug) = self.0.strip_prefix(TASKS).and_then(|rest| rest.split_once('/')).ok_or_else(bad)?;
        let queue: Queue = unescape(queue).ok_or_else(bad)?.parse().map_err(|_| bad())?;
        let slug: Slug = unescape(slug).ok_or_else(bad)?.parse().map_err(|_| bad())?;
        // Canonical: no second spelling may name the same task.
        if RefName::of_task(&queue, &slug) != *self {
            return Err(bad());
        }
        Ok((queue, slug))
    }

    /// As [`RefName::from_full`], of a name as git keeps it. One that is not UTF-8 is no task's.
    pub fn from_bytes(full: &[u8]) -> RefName {
        // Nearly all are: found out at once, and not byte by byte.
        let text = String::from_utf8(full.to_vec());
        RefName(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Wraps a full ref name that was read from a repository.
    pub fn from_full(name: String) -> RefName {
        RefName(name)
    }

    /// The full name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Which of the 256 shard locks guards this ref (design, section 5).
    ///
    /// All bytes of the hash are folded into it: the highest one alone hardly depends on a name's last characters, so that
    /// `task-1` and `task-2` would always share a lock.
    pub fn shard(&self) -> u8 {
        stable_hash(self.0.as_bytes()).to_be_bytes().into_iter().fold(0, |shard, byte| shard ^ byte)
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RefName({})", self.0)
    }
}

impl serde::Serialize for RefName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// The file names that Windows reserves, whatever their extension.
fn is_reserved_stem(stem: &str) -> bool {
    let numbered = |prefix: &str| {
        stem.strip_prefix(prefix).is_some_and(|n| n.len() == 1 && matches!(n.as_bytes()[0], b'1'..=b'9'))
    };
    matches!(stem, "con" | "prn" | "aux" | "nul") || numbered("com") || numbered("lpt")
}

/// Escapes one ref component: the dot of a final `.lock`, a final dot, and the first byte of a stem that
/// Windows reserves; nothing else (design, section 2). `%` is no legal character of a name, so the mapping
/// is reversible.
fn escape(name: &str) -> String {
    let stem = name.split('.').next().unwrap_or(name);
    let mut out = String::with_capacity(name.len() + 6);
    let mut rest = name;
    if is_reserved_stem(stem) {
        out.push_str(&format!("%{:02x}", name.as_bytes()[0]));
        rest = &name[1..];
    }
    if let Some(head) = rest.strip_suffix(".lock") {
        out.push_str(head);
        out.push_str("%2elock");
    } else if let Some(head) = rest.strip_suffix('.') {
        out.push_str(head);
        out.push_str("%2e");
    } else {
        out.push_str(rest);
    }
    out
}

/// Reverses [`escape`]; `None` where a `%` is not followed by two lower-case hex digits.
fn unescape(component: &str) -> Option<String> {
    let mut out = Vec::with_capacity(component.len());
    let mut bytes = component.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |c: u8| (c.is_ascii_digit() || (b'a'..=b'f').contains(&c)).then(|| (c as char).to_digit(16));
        let high = digit(bytes.next()?)??;
        let low = digit(bytes.next()?)??;
        out.push((high << 4 | low) as u8);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_ref(slug: &str, component: &str) {
        let queue: Queue = "q".parse().expect("a queue");
        let slug: Slug = slug.parse().expect("a slug");
        let name = RefName::of_task(&queue, &slug);
        assert_eq!(name.as_str(), format!("{TASKS}q/{component}"));
        assert_eq!(name.task().expect("canonical"), (queue, slug));
    }

    #[test]
    fn escapes_are_exactly_what_git_and_windows_forbid() {
        check_ref("python3-flufl.lock", "python3-flufl%2elock");
        check_ref("a.", "a%2e");
        check_ref("con", "%63on");
        check_ref("nul.x", "%6eul.x");
        check_ref("com1.lock", "%63om1%2elock");
        check_ref("console", "console");
        check_ref("com10", "com10");
        check_ref("a.lock.b", "a.lock.b");
        check_ref("libstdc++6", "libstdc++6");
    }

    #[test]
    fn names_that_end_differently_are_spread_over_the_shards() {
        let shard = |number: u32| RefName::from_full(format!("{TASKS}default/task-{number}")).shard();
        let shards: std::collections::BTreeSet<u8> = (0..256).map(shard).collect();
        assert!(shards.len() > 128, "256 names in {} shards", shards.len());
    }

    #[test]
    fn a_second_spelling_of_a_ref_is_refused() {
        for name in ["refs/pm/tasks/q/%61bc", "refs/pm/tasks/q/a%2Elock", "refs/pm/tasks/q", "refs/heads/q/a"] {
            assert!(RefName::from_full(name.to_owned()).task().is_err(), "{name}");
        }
    }

    #[test]
    fn names_outside_the_alphabet_are_refused() {
        for slug in ["../x", "a/b", "A", ".lock", "", "a..b", "-a", "a b", "ä", &"a".repeat(129)] {
            assert!(slug.parse::<Slug>().is_err(), "{slug}");
        }
        for agent in ["", "a b", "a\nb", "ä", &"a".repeat(129)] {
            assert!(agent.parse::<AgentId>().is_err(), "{agent}");
        }
    }

    #[test]
    fn slugs_are_folded_from_titles_and_never_dropped() {
        let slug = |title: &str| Slug::from_title(title).to_string();
        assert_eq!(slug("Build the Login page!"), "build-the-login-page");
        assert_eq!(slug("Übergröße prüfen"), "ubergrosse-prufen");
        assert_eq!(slug("…"), slug("…"));
        assert!(slug("").starts_with("t-"));
        assert_ne!(slug(""), slug("!"));
        assert!(slug(&"x".repeat(300)).len() == 64);
        assert!(slug("日本語").parse::<Slug>().is_ok());
    }
}
