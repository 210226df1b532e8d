//! Whether a ledger is coherent: what happened to all of its tasks, judged together, from what plain git tells.
//!
//! [`read`] asks git for the chains, [`life`] tells what each says of its own task, [`ties`] which sticky tasks belong
//! together, and [`others`] holds the tasks against each other. It is for ledgers of one machine, since boot, in which
//! everything was worked off.
//!
//! What must never happen here: anything of pm is used. It would judge itself.

mod life;
mod others;
mod read;
mod ties;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use life::Life;
pub use read::{Ledger, Task};

/// The rules, each by the words for what is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Records follow one another, from a Task on, and say what they follow.
    Chain,
    /// One machine wrote them all, and its clock only goes forwards.
    Clock,
    /// The numbers of records, and so of claims, grow.
    Seq,
    /// At most one holder at a time.
    OneHolder,
    /// Under a claim only its holder records, but for who takes it away.
    OnlyTheHolder,
    /// A closed task is proven by a report that its holder made under that very claim.
    Proof,
    /// In the end every task is done, or another that took its place.
    Done,
    /// A task is claimed after all that it depends on is done.
    Dependency,
    /// A child is claimed after its parent.
    Parent,
    /// A parent is closed after its children.
    Children,
    /// A sticky task is claimed in a context, and stays with it until a reclaim; no other task is.
    Context,
    /// Sticky tasks that are tied together are in one context.
    Tied,
}

/// What is wrong.
#[derive(Debug, Clone)]
pub struct Fault {
    /// Which rule is broken.
    pub rule: Rule,
    /// By which task.
    pub slug: String,
    /// How.
    pub found: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}: {}", self.rule, self.slug, self.found)
    }
}

/// What was judged.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub tasks: usize,
    pub records: usize,
    pub claims: usize,
    /// Claims that were taken away after a preempt heartbeat.
    pub swept: usize,
    /// Sticky tasks.
    pub sticky: usize,
    /// Contexts in which sticky tasks were claimed.
    pub contexts: usize,
    /// How many sticky tasks each group of tied ones has, largest first.
    pub groups: Vec<usize>,
}

/// Judges the ledger of a repository.
///
/// # Errors
/// When git cannot tell, or tells what is no ledger at all.
pub fn judge(dir: &Path) -> Result<(Figures, Vec<Fault>)> {
    let ledger = Ledger::read(dir)?;
    let mut faults = Vec::new();
    let lives: Vec<Life> = ledger.tasks.iter().map(|task| Life::of(task, &mut faults)).collect();
    clocks(&ledger, &mut faults);
    let groups = ties::groups(&lives);
    others::judge(&lives, &groups, &mut faults);
    let claims = || lives.iter().flat_map(|life| &life.claims);
    let contexts: BTreeSet<_> = claims().filter_map(|claim| claim.record.one("Context")).collect();
    let mut sizes: Vec<usize> = groups.iter().map(Vec::len).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let figures = Figures {
        tasks: ledger.tasks.len(),
        records: ledger.tasks.iter().map(|task| task.records.len()).sum(),
        claims: claims().count(),
        swept: claims().filter(|claim| claim.is_swept).count(),
        sticky: sizes.iter().sum(),
        contexts: contexts.len(),
        groups: sizes,
    };
    Ok((figures, faults))
}

/// Moments of two tasks can be compared only if one clock told them.
fn clocks(ledger: &Ledger, faults: &mut Vec<Fault>) {
    let Some(first) = ledger.tasks.first() else { return };
    for task in &ledger.tasks {
        if let Some(record) = task.records.iter().find(|record| record.clock != first.records[0].clock) {
            let found = format!("{} was written by another clock than {}", record.sha, first.slug);
            faults.push(Fault { rule: Rule::Clock, slug: task.slug.clone(), found });
        }
    }
}
