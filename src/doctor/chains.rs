//! The ledger itself, as far as one scan of it tells; `pm verify` reads every record.

use super::{Finding, some_of};
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::id::{AgentId, LOST, Oid, PENDING, RefName, TASKS};
use crate::ledger::{Identity, Ledger, Reach};
use crate::output::counted;
use crate::output::span;
use crate::store::Store;
use crate::store::git::GitStore;

/// Records may be dated so far ahead before it is worth a word, in seconds.
const AHEAD: i64 = 300;

/// What a scan of the ledger tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chains {
    /// How many tasks there are, readable or not.
    pub tasks: usize,
    /// Tasks that cannot be read, and why.
    damaged: Vec<String>,
    /// Refs that are no task's.
    strays: Vec<String>,
    /// The newest date of a record that lies ahead of this clock: by how many seconds, and who wrote it.
    ahead: Option<(i64, String)>,
    /// The authority, where there is one.
    remote: Option<String>,
    /// Tasks whose tip is not what the authority was last seen to have.
    unpushed: usize,
    /// Tasks that the authority was seen to have, and that are not here.
    vanished: Vec<String>,
    /// Tasks of which the authority has what was not believed.
    distrusted: Vec<String>,
    /// Records on their way to the authority.
    pending: usize,
    /// Tips that lost at a sync.
    lost: usize,
}

impl Chains {
    /// Scans the ledger.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn read(store: &GitStore, remote: Option<&str>) -> Result<Chains> {
        let (clock, identity) = (SystemClock::new(), Identity { committer: Default::default(), email: String::new() });
        let agent: AgentId = "doctor".parse()?;
        let ledger =
            Ledger { store, clock: &clock, identity: &identity, agent: &agent, context: None, reach: Reach::Alone };
        let scan = ledger.scan(TASKS)?;
        let mut chains = Chains {
            tasks: scan.tasks.len() + scan.damaged.len(),
            remote: remote.map(str::to_owned),
            pending: store.tips(PENDING)?.len(),
            lost: store.tips(LOST)?.len(),
            ..Chains::default()
        };
        for damage in &scan.damaged {
            match damage.name.task() {
                Ok(_) => chains.damaged.push(damage.error.to_string()),
                Err(_) => chains.strays.push(damage.name.to_string()),
            }
        }
        let now = clock.wall_seconds();
        if let Some((name, state)) =
            scan.tasks.iter().max_by_key(|(_, state)| state.at).filter(|(_, state)| state.at > now + AHEAD)
        {
            chains.ahead = Some((state.at - now, ledger.record(name, state.tip)?.agent.to_string()));
        }
        if let Some(remote) = remote {
            let seen = tips(store, &RefName::seen_prefix(remote))?;
            chains.distrusted =
                tips(store, &RefName::refused_prefix(remote))?.into_iter().map(|(name, _)| name).collect();
            let local = tips(store, TASKS)?;
            let find = |rows: &[(String, Option<Oid>)], name: &str| {
                rows.binary_search_by(|row| row.0.as_str().cmp(name)).ok().map(|at| rows[at].1)
            };
            chains.unpushed = local.iter().filter(|(name, tip)| find(&seen, name) != Some(*tip)).count();
            chains.vanished =
                seen.iter().filter(|(name, _)| find(&local, name).is_none()).map(|row| row.0.clone()).collect();
        }
        Ok(chains)
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if !self.damaged.is_empty() {
            let found = format!("{} cannot be read: {}", counted(self.damaged.len(), "task"), some_of(&self.damaged));
            findings.push(Finding::wrong(
                "damaged",
                found,
                "`pm verify` names every fault; a clone or a backup may have what is missing",
            ));
        }
        if !self.strays.is_empty() {
            let found = format!(
                "below {TASKS} there are refs that are no tasks, or not in their place: {}",
                some_of(&self.strays)
            );
            let remedy =
                "find out with `git log <ref>` who made them; pm leaves them alone, and every listing names them";
            findings.push(Finding::wrong("stray-ref", found, remedy));
        }
        if let Some((seconds, agent)) = &self.ahead {
            let off = span(seconds.unsigned_abs().saturating_mul(1000));
            let found = format!(
                "a record is dated {off} in the future: this clock or that of {agent} is wrong. Leases do not depend on it, dates in `pm log` do"
            );
            findings.push(Finding::note("clock", found).with("set the clocks, as with NTP"));
        }
        findings.extend(self.shared());
        findings
    }

    /// What there is to say of sharing it.
    fn shared(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let remote = self.remote.as_deref().unwrap_or("the authority");
        if self.unpushed > 0 {
            let found =
                format!("{} here that '{remote}' was not seen to have in this state", counted(self.unpushed, "task"));
            findings.push(Finding::note("unpushed", found).with("`pm sync`"));
        }
        if !self.vanished.is_empty() {
            let found = format!(
                "not here any more: {} that '{remote}' had when it was last read: {}. Something deleted the refs, as a fetch that prunes",
                counted(self.vanished.len(), "task"),
                some_of(&self.vanished)
            );
            findings.push(Finding::wrong(
                "vanished",
                found,
                "`pm sync` takes them from there again; what was not pushed is found with `git fsck --lost-found`",
            ));
        }
        if !self.distrusted.is_empty() {
            let tasks = counted(self.distrusted.len(), "task");
            let found = format!(
                "{tasks} at '{remote}' had something that breaks a rule when it was last read, and was left alone: {}",
                some_of(&self.distrusted)
            );
            findings.push(Finding::wrong("distrusted", found, "`pm sync` says which rule, and what to do"));
        }
        if self.pending > 0 {
            let found =
                format!("{} on the way to '{remote}', without an answer so far", counted(self.pending, "record"));
            findings.push(Finding::note("pending", found).with("`pm sync` finds out whether they arrived"));
        }
        if self.lost > 0 {
            let found = format!("{} lost against what was pushed first; they are kept", counted(self.lost, "tip"));
            findings.push(Finding::note("lost", found).with("`pm lost` tells of them"));
        }
        findings
    }
}

/// The refs below a prefix, without it, sorted; a broken one has no tip.
fn tips(store: &GitStore, prefix: &str) -> Result<Vec<(String, Option<Oid>)>> {
    let name = |name: RefName| name.as_str().strip_prefix(prefix).unwrap_or_default().to_owned();
    Ok(store.tips(prefix)?.into_iter().map(|(full, tip)| (name(full), tip.ok())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn what_is_lost_is_wrong_and_what_is_on_its_way_is_not() {
        let all = Chains {
            damaged: vec!["a".to_owned()],
            strays: vec!["b".to_owned()],
            ahead: Some((400, "w1".to_owned())),
            remote: Some("o".to_owned()),
            unpushed: 1,
            vanished: vec!["q/c".to_owned()],
            pending: 2,
            lost: 1,
            ..Chains::default()
        };
        let of = |level| -> Vec<&str> {
            let findings = all.findings();
            findings.iter().filter(|finding| finding.level == level).map(|finding| finding.check).collect()
        };
        assert_eq!(of(Level::Wrong), ["damaged", "stray-ref", "vanished"]);
        assert_eq!(of(Level::Note), ["clock", "unpushed", "pending", "lost"]);
        assert_eq!(Chains::default().findings(), []);
    }
}
