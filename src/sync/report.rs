//! What `git push --porcelain` says about each ref.
//!
//! What must never happen here: a ref counts as accepted that the other side did not say so of.

use std::collections::BTreeMap;

/// What became of one ref of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is at the new value now.
    Accepted,
    /// It is not where it was expected, or somebody else was writing it.
    Moved,
    /// It was fine, but another ref of an atomic push was not.
    HeldBack,
    /// The other side does not want it, whatever its value.
    Declined(String),
    /// It was sent, and nothing is known of it.
    Unknown,
}

/// Reads the report: what became of each ref, by its name at the other side. Lines that are no report are skipped; what
/// is told twice counts as the worse of both.
pub fn parse(stdout: &str) -> BTreeMap<String, Verdict> {
    let mut verdicts = BTreeMap::new();
    for line in stdout.lines() {
        let mut fields = line.splitn(3, '\t');
        let (Some(flag), Some(refs), Some(summary)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let Some((_, name)) = refs.split_once(':') else { continue };
        let verdict = match flag {
            " " | "*" | "+" | "-" | "=" => Verdict::Accepted,
            "!" => refused(summary),
            _ => continue,
        };
        let before = verdicts.insert(name.to_owned(), verdict.clone());
        if before.is_some_and(|before| before != Verdict::Accepted && verdict == Verdict::Accepted) {
            verdicts.insert(name.to_owned(), Verdict::Unknown);
        }
    }
    verdicts
}

/// Why a ref was refused: `[rejected] (stale info)`, `[remote rejected] (failed to update ref)` and so on.
fn refused(summary: &str) -> Verdict {
    let (kind, reason) = match summary.split_once(" (") {
        Some((kind, reason)) => (kind, reason.strip_suffix(')').unwrap_or(reason)),
        None => (summary, ""),
    };
    match (kind, reason) {
        (_, "atomic push failed" | "atomic push failure" | "atomic transaction failed" | "transaction failed") => {
            Verdict::HeldBack
        }
        ("[remote failure]", _) => Verdict::Unknown,
        (
            "[rejected]",
            "stale info"
            | "fetch first"
            | "non-fast-forward"
            | "already exists"
            | "needs force"
            | "remote ref updated since checkout",
        ) => Verdict::Moved,
        ("[remote rejected]", reason) if is_race(reason) => Verdict::Moved,
        (_, "") => Verdict::Declined(harmless(kind)),
        (_, reason) => Verdict::Declined(harmless(reason)),
    }
}

/// What the other side said, without what could harm a terminal, and not too long.
fn harmless(said: &str) -> String {
    said.chars().take(300).map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What servers say when two pushes meet at one ref.
fn is_race(reason: &str) -> bool {
    [
        "failed to update ref",
        "incorrect old value provided",
        "reference already exists",
        "failed to lock",
        "fetch first",
    ]
    .iter()
    .any(|known| reason.starts_with(known))
        || reason.contains("cannot lock ref")
        || reason.contains("non-fast-forward")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<Verdict>) {
        let report = format!("To /hub.git\n{line}\nDone\n");
        assert_eq!(parse(&report).remove("refs/pm/tasks/q/a"), expected, "{line}");
    }

    #[test]
    fn a_ref_is_accepted_only_where_the_report_says_so() {
        let declined = |why: &str| Some(Verdict::Declined(why.to_owned()));
        check(" \tabc:refs/pm/tasks/q/a\t1..2", Some(Verdict::Accepted));
        check("*\tabc:refs/pm/tasks/q/a\t[new reference]", Some(Verdict::Accepted));
        check("=\tabc:refs/pm/tasks/q/a\t[up to date]", Some(Verdict::Accepted));
        check("!\tabc:refs/pm/tasks/q/a\t[rejected] (stale info)", Some(Verdict::Moved));
        check("!\tabc:refs/pm/tasks/q/a\t[rejected] (fetch first)", Some(Verdict::Moved));
        check("!\tabc:refs/pm/tasks/q/a\t[remote rejected] (failed to update ref)", Some(Verdict::Moved));
        check("!\tabc:refs/pm/tasks/q/a\t[remote rejected] (cannot lock ref 'x': y)", Some(Verdict::Moved));
        check("!\tabc:refs/pm/tasks/q/a\t[rejected] (atomic push failed)", Some(Verdict::HeldBack));
        check(
            "!\tabc:refs/pm/tasks/q/a\t[remote rejected] (pre-receive hook declined)",
            declined("pre-receive hook declined"),
        );
        check("!\tabc:refs/pm/tasks/q/a\t[remote failure] (remote failed to report status)", Some(Verdict::Unknown));
        check("!\tabc:refs/pm/tasks/q/a\t[no match]", declined("[no match]"));
        check("?\tabc:refs/pm/tasks/q/a\tx", None);
        check("abc", None);
        check("*\trefs/pm/tasks/q/a\tx", None);
    }

    #[test]
    fn what_is_told_twice_is_not_accepted_the_second_time() {
        let line = "!\tx:refs/pm/tasks/q/a\t[rejected] (stale info)\n*\tx:refs/pm/tasks/q/a\t[new reference]";
        check(line, Some(Verdict::Unknown));
    }
}
