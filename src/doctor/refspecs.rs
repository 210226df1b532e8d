//! Refspecs of remotes that let ordinary git overwrite, delete or mirror away the ledger. Pure.

use super::Finding;
use super::settings::{Setting, Settings};
use crate::id::LOCAL;
use crate::sync::remote::PREFIX;

/// What pm keeps in a repository: a fetch must not write there.
const OURS: [&str; 6] = [PREFIX, LOCAL[0], LOCAL[1], LOCAL[2], LOCAL[3], LOCAL[4]];

/// A refspec, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Refspec<'a> {
    is_forced: bool,
    from: &'a str,
    to: &'a str,
}

impl<'a> Refspec<'a> {
    /// `None` where nothing is written: a negative one, or one without a right side.
    fn parse(text: &'a str) -> Option<Refspec<'a>> {
        let (is_forced, text) = text.strip_prefix('+').map_or((false, text), |text| (true, text));
        let (from, to) = text.split_once(':')?;
        (!to.is_empty()).then_some(Refspec { is_forced, from, to })
    }
}

/// Whether a pattern with at most one `*` can stand for a name below `prefix`.
fn reaches(pattern: &str, prefix: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, _)) => start.starts_with(prefix) || prefix.starts_with(start),
        None => pattern.starts_with(prefix),
    }
}

/// Whether a pattern stands for every name below `prefix`.
fn takes_all(pattern: &str, prefix: &str) -> bool {
    pattern.split_once('*').is_some_and(|(start, end)| prefix.starts_with(start) && end.is_empty())
}

/// What the refspecs of all remotes do to the ledger.
pub fn findings(settings: &Settings) -> Vec<Finding> {
    settings.remotes().into_iter().flat_map(|remote| of_remote(settings, remote)).collect()
}

fn of_remote(settings: &Settings, remote: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (fetch_key, push_key) = (format!("remote.{remote}.fetch"), format!("remote.{remote}.push"));
    let excluded = |prefix: &str| {
        let mut negative = settings.all(&fetch_key).filter_map(|setting| setting.value.strip_prefix('^'));
        negative.any(|pattern| takes_all(pattern, prefix))
    };
    let prune = [format!("remote.{remote}.prune"), "fetch.prune".to_owned()];
    let prunes = prune.iter().find_map(|key| settings.last(key)).filter(|prune| prune.is_on());
    for setting in settings.all(&fetch_key) {
        let Some(refspec) = Refspec::parse(&setting.value) else { continue };
        let hit: Vec<&str> =
            OURS.into_iter().filter(|prefix| reaches(refspec.to, prefix) && !excluded(prefix)).collect();
        if hit.is_empty() {
            continue;
        }
        let (place, shown) = (hit.join(", "), format!("{fetch_key} = {}", setting.value));
        let does = match (prunes, refspec.is_forced) {
            (Some(prune), _) => format!(
                "with {} = true every fetch deletes in {place} what '{remote}' does not have: unpushed tasks are lost",
                prune.key
            ),
            (None, true) => format!(
                "every fetch overwrites {place} with what '{remote}' has, and `git fetch --prune` deletes the rest: unpushed records are lost"
            ),
            (None, false) => format!(
                "a fetch moves refs in {place} to records that nothing has judged, and `git fetch --prune` deletes unpushed tasks"
            ),
        };
        let remedy = fetch_remedy(remote, refspec, setting);
        let found = format!("{shown}: {does}");
        findings.push(match prunes.is_some() || refspec.is_forced {
            true => Finding::wrong("fetch-refspec", found, remedy),
            false => Finding::note("fetch-refspec", found).with(remedy),
        });
    }
    for setting in settings.all(&push_key) {
        let Some(refspec) = Refspec::parse(&setting.value) else { continue };
        if !reaches(refspec.to, OURS[0]) {
            continue;
        }
        let shown = format!("{push_key} = {}", setting.value);
        let remedy = match refspec.from.is_empty() || takes_all(refspec.to, "refs/heads/") {
            true => setting.replace("refs/heads/*:refs/heads/*"),
            false => setting.unset_value(),
        };
        findings.push(match refspec.is_forced {
            true => {
                let found = format!("{shown}: every `git push {remote}` rewinds tasks at '{remote}' that went on elsewhere: acknowledged records are lost there");
                Finding::wrong("push-refspec", found, remedy)
            }
            false => {
                let found = format!("{shown}: a plain `git push {remote}` pushes tasks, too, beside pm");
                Finding::note("push-refspec", found).with(remedy)
            }
        });
    }
    if let Some(mirror) = settings.last(&format!("remote.{remote}.mirror")).filter(|mirror| mirror.is_on()) {
        let found = format!(
            "{} = true: every `git push {remote}` deletes at '{remote}' what is not here, its ledger, too",
            mirror.key
        );
        findings.push(Finding::wrong("mirror", found, mirror.unset()));
    }
    findings
}

/// The remedy keeps what else the refspec was there for: the branches.
fn fetch_remedy(remote: &str, refspec: Refspec<'_>, setting: &Setting) -> String {
    if takes_all(refspec.from, "refs/heads/") {
        setting.replace(&format!("+refs/heads/*:refs/remotes/{remote}/*"))
    } else {
        setting.unset_value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    fn check(pairs: &[(&str, &str)], expected: &[(&str, Level)]) {
        let listed: String = pairs.iter().map(|(key, value)| format!("local\0{key}\n{value}\0")).collect();
        let found = findings(&Settings::parse(&listed));
        let found: Vec<(&str, Level)> = found.iter().map(|finding| (finding.check, finding.level)).collect();
        assert_eq!(found, expected, "{pairs:?}");
    }

    #[test]
    fn a_fetch_must_not_write_where_the_ledger_is() {
        const FETCH: &str = "remote.o.fetch";
        let (wrong, note) = (("fetch-refspec", Level::Wrong), ("fetch-refspec", Level::Note));
        for harmless in ["+refs/heads/*:refs/remotes/o/*", "refs/pm/*", "+refs/pm/*:refs/mirror/*", "^refs/x", "HEAD"] {
            check(&[(FETCH, harmless)], &[]);
        }
        for bad in
            ["+refs/*:refs/*", "+refs/pm/*:refs/pm/*", "+refs/pm/tasks/q/a:refs/pm/tasks/q/a", "+refs/p*:refs/p*"]
        {
            check(&[(FETCH, bad)], &[wrong]);
        }
        check(&[(FETCH, "+refs/pm/*:refs/pm-remote/o/*")], &[wrong]);
        check(&[(FETCH, "refs/pm/*:refs/pm/*")], &[note]);
        check(&[(FETCH, "refs/pm/*:refs/pm/*"), ("fetch.prune", "true")], &[wrong]);
        check(&[(FETCH, "refs/pm/*:refs/pm/*"), ("fetch.prune", "true"), ("remote.o.prune", "false")], &[note]);
        check(&[(FETCH, "+refs/*:refs/*"), (FETCH, "^refs/pm/*")], &[wrong]);
        check(&[(FETCH, "+refs/*:refs/*"), (FETCH, "^refs/pm*")], &[]);
    }

    #[test]
    fn a_push_must_not_take_the_ledger_along() {
        check(&[("remote.o.push", "+refs/*:refs/*")], &[("push-refspec", Level::Wrong)]);
        check(&[("remote.o.push", "refs/pm/*:refs/pm/*")], &[("push-refspec", Level::Note)]);
        check(&[("remote.o.push", "refs/heads/main")], &[]);
        check(&[("remote.o.mirror", "true")], &[("mirror", Level::Wrong)]);
        check(&[("remote.o.mirror", "false")], &[]);
    }
}
