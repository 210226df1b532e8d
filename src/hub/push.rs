//! Judging a push: which updates of which refs a hub takes (decision 18).
//!
//! git hands a pre-receive hook all updates of a push before it moves any ref. What each of them was is believed, since
//! it was judged when it came, and git itself moves a ref only if it still is there; so the cost is what was pushed.
//!
//! What must never happen here: an update below `refs/pm/` is taken that nobody judged.

use std::str::FromStr;

use crate::error::{Error, Result};
use crate::id::{LOCAL, Oid, RecordId, RefName, TASKS, shown};
use crate::ledger::Ledger;
use crate::ledger::verify::ChainFault;
use crate::protocol::codec::{self, DecodeError};
use crate::store::StoreError;

/// The refs of the ledger.
const LEDGER: &str = "refs/pm";

/// Refs that `pm doctor` tries out what a host does with.
const SCRATCH: &str = "refs/pm/doctor";

/// What a push wants of one ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Update {
    /// The ref.
    pub name: RefName,
    /// Where it is; `None` where it does not exist.
    pub old: Option<Oid>,
    /// Where it is to be; `None` where it is to be deleted.
    pub new: Option<Oid>,
}

impl FromStr for Update {
    type Err = Error;

    /// Reads a line of githooks(5), pre-receive: `<old-oid> SP <new-oid> SP <ref-name>`.
    fn from_str(line: &str) -> Result<Update> {
        let read = || {
            let (old, rest) = line.split_once(' ')?;
            let (new, name) = rest.split_once(' ')?;
            Some(Update { name: RefName::from_full(name.to_owned()), old: oid(old)?, new: oid(new)? })
        };
        read().ok_or_else(|| Error::Usage(format!("'{}' is not <old> <new> <ref>, as git tells a hook", shown(line))))
    }
}

/// An object id; zeros stand for none.
fn oid(hex: &str) -> Option<Option<Oid>> {
    let id: Oid = hex.parse().ok()?;
    Some(id.as_bytes().iter().any(|byte| *byte != 0).then_some(id))
}

/// What kind of ref a name is.
enum Kind {
    /// No business of pm's.
    Foreign,
    /// A task.
    Task,
    /// A scratch ref.
    Scratch,
    /// None that may be pushed, and why.
    Refused(String),
}

fn kind(name: &RefName) -> Kind {
    let is_in = |space: &str, name: &str| {
        name.strip_prefix(space).is_some_and(|below| below.is_empty() || below.starts_with('/'))
    };
    let (exact, folded) = (name.as_str(), name.as_str().to_lowercase());
    let spaces = LOCAL.map(|space| space.trim_end_matches('/'));
    let Some(space) = [LEDGER].iter().chain(&spaces).find(|space| is_in(space, &folded)) else { return Kind::Foreign };
    if !is_in(space, exact) {
        return Kind::Refused(format!("where names of files fold case it would stand in the place of {folded}"));
    }
    if *space != LEDGER {
        return Kind::Refused(format!("{space}/ belongs to one machine and is never pushed"));
    }
    if exact.strip_prefix(SCRATCH).is_some_and(|below| below.starts_with('/')) {
        return Kind::Scratch;
    }
    match name.task() {
        Ok(_) => Kind::Task,
        Err(error) if exact.starts_with(TASKS) => Kind::Refused(error.to_string()),
        Err(_) => Kind::Refused(format!("this pm judges {TASKS}<queue>/<slug> and takes nothing else here")),
    }
}

/// Judges one update; returns why it is refused, or nothing.
///
/// # Errors
/// Failures of the system. The update is then to be refused, too.
pub fn judge(ledger: &Ledger<'_>, update: &Update) -> Result<Option<ChainFault>> {
    let name = &update.name;
    let fault = |commit: Option<Oid>, rule: &str, found: String| {
        Ok(Some(ChainFault { name: name.clone(), commit: commit.map(RecordId), rule: rule.to_owned(), found }))
    };
    match (kind(name), update.new) {
        (Kind::Foreign, _) | (Kind::Scratch, None) => Ok(None),
        (Kind::Refused(found), new) => fault(new, "namespace", found),
        (Kind::Scratch, Some(new)) => match ledger.store.read_commit(new) {
            Ok(_) => Ok(None),
            Err(StoreError::Missing { id }) => fault(Some(id), "unreadable", "the object is missing".to_owned()),
            Err(StoreError::Damaged { id, found }) => fault(Some(id), "unreadable", found),
            Err(error) => Err(error.into()),
        },
        (Kind::Task, None) => fault(update.old, "deletion", "the chain of a task is never deleted".to_owned()),
        (Kind::Task, Some(new)) => {
            // What is no record at all may have a long history, which need not be walked to say so.
            match ledger.record(name, RecordId(new)) {
                Ok(_) => {}
                Err(Error::Damaged { commit, found, .. }) => {
                    return fault(Some(commit.0), "unreadable", found).map(|fault| named_by_format(ledger, fault));
                }
                Err(error) => return Err(error),
            }
            let judged = ledger.judge_move(name, update.old.map(RecordId), RecordId(new))?;
            Ok(named_by_format(ledger, judged.err()))
        }
    }
}

/// A record that cannot be read since its format is newer is one that a newer hub would take: that is another rule.
fn named_by_format(ledger: &Ledger<'_>, fault: Option<ChainFault>) -> Option<ChainFault> {
    let mut fault = fault?;
    if let Some(id) = fault.commit
        && let Ok(commit) = ledger.store.read_commit(id.0)
        && matches!(codec::decode(&commit), Err(DecodeError::Format { .. }))
    {
        "format".clone_into(&mut fault.rule);
    }
    Some(fault)
}

/// Judges all updates of a push, and returns every one that is refused: also those that pm itself failed to judge.
pub fn judge_all(ledger: &Ledger<'_>, updates: &[Update]) -> Vec<ChainFault> {
    let judged = |update: &Update| match judge(ledger, update) {
        Ok(fault) => fault,
        Err(error) => {
            let found = format!("the hub could not judge it: {error}");
            let (name, commit) = (update.name.clone(), update.new.map(RecordId));
            Some(ChainFault { name, commit, rule: "failure".to_owned(), found })
        }
    };
    updates.iter().filter_map(judged).collect()
}

/// What the pusher is told of a refusal: one line.
pub fn line(fault: &ChainFault) -> String {
    /// So many digits name a commit to people.
    const DIGITS: usize = 12;
    let commit = fault.commit.map_or(String::new(), |id| format!(" (commit {})", id.0.short(DIGITS)));
    printable(&format!("pm: {}: refused by rule '{}': {}{commit}", fault.name, fault.rule, fault.found))
}

/// Text that does nothing to a terminal: neither controls it nor turns the direction of what stands around it.
pub fn printable(text: &str) -> String {
    let is_safe = |c: char| {
        !c.is_control()
            && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().map(|c| if is_safe(c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_hook_is_read_with_either_hash_and_zeros_are_none() {
        for len in [40, 64] {
            let (zeros, ones) = ("0".repeat(len), "1".repeat(len));
            let update: Update = format!("{zeros} {ones} refs/heads/a b").parse().expect("a line");
            assert_eq!((update.old, update.new), (None, Some(ones.parse().expect("an id"))));
            assert_eq!(update.name.as_str(), "refs/heads/a b");
        }
        for wrong in ["", "a b c", &format!("{} refs/heads/a", "1".repeat(40))] {
            assert!(wrong.parse::<Update>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_name_that_could_be_the_ledgers_is_judged() {
        let told = |name: &str| match kind(&RefName::from_full(name.to_owned())) {
            Kind::Foreign => "foreign",
            Kind::Task => "task",
            Kind::Scratch => "scratch",
            Kind::Refused(_) => "refused",
        };
        for (name, expected) in [
            ("refs/heads/main", "foreign"),
            ("refs/heads/pm/default/a", "foreign"),
            ("refs/pmx/tasks/q/a", "foreign"),
            ("refs/pm-other/a", "foreign"),
            ("refs/pm/tasks/q/a", "task"),
            ("refs/pm/tasks/q/a%2elock", "task"),
            ("refs/pm/doctor/1/a", "scratch"),
            ("refs/pm", "refused"),
            ("refs/pm/tasks", "refused"),
            ("refs/pm/tasks/q", "refused"),
            ("refs/pm/tasks/q/a/b", "refused"),
            ("refs/pm/tasks/q/%61bc", "refused"),
            ("refs/pm/tasks/Q/a", "refused"),
            ("refs/PM/tasks/q/a", "refused"),
            ("REFS/pm/tasks/q/a", "refused"),
            ("refs/pm/doctor", "refused"),
            ("refs/pm/archive/q", "refused"),
            ("refs/pm/later", "refused"),
            ("refs/pm-pending/q/a", "refused"),
            ("refs/pm-lost", "refused"),
            ("refs/pm-pending-branches/q/a/refs/heads/b", "refused"),
            ("refs/pm-pending-other/q", "foreign"),
            ("refs/PM-remote/a", "refused"),
        ] {
            assert_eq!(told(name), expected, "{name}");
        }
    }

    #[test]
    fn what_the_pusher_is_told_does_nothing_to_a_terminal() {
        assert_eq!(printable("a\u{1b}[2J\u{7}\u{202e}ü\u{9b}1m\n"), "a?[2J??ü?1m?");
    }
}
