//! `pm sweep`: take stale claims away.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{damaged_json, warn_damaged};
use crate::config::duration;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::id::Queue;
use crate::ledger::resolve::{place, prefix};
use crate::ledger::sweep::{Judged, Missed, Outcome, Swept, Terms};
use crate::output::{counted, span};
use crate::protocol::lease::{TtlRule, Verdict};
use crate::protocol::record::Ttl;
use crate::session::Session;
use crate::store::git::ORPHAN_AGE;

/// What `--wait` allows beyond the largest TTL, for reading.
const WAIT_SLACK: Duration = Duration::from_secs(5);

/// Take stale claims away from workers that went silent
///
/// A claim is stale when its newest record is older than its TTL. Records that this machine wrote since it booted
/// are aged exactly, at once; any other is watched from when this machine first saw it, so a first sweep observes
/// and a later one reclaims. A heartbeat that gets in first always wins. A lost race is no failure (exit 0).
///
/// Where a remote decides (pm.remote), every claim is watched there, and a pause between two sweeps counts as no more
/// than a third of its TTL: sweep that often, run `pm poll`, or --wait.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The queue; else pm.queue, else all queues
    #[arg(long, value_name = "QUEUE", conflicts_with = "all")]
    queue: Option<Queue>,
    /// Sweep all queues
    #[arg(long)]
    all: bool,
    /// The TTL of claims that recorded none, such as 90, 90s, 5m; else pm.ttl, else 300 s
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Ttl>,
    /// Judge all claims by that TTL, also those that recorded their own
    #[arg(long)]
    force: bool,
    /// Show what would be done
    #[arg(long)]
    dry_run: bool,
    /// Stay until every claim that must be watched can be judged; at most the largest TTL and a little
    #[arg(long, conflicts_with = "dry_run")]
    wait: bool,
    /// Trust the author dates of records instead of watching them
    #[arg(long)]
    trust_clocks: bool,
}

impl Args {
    /// Sweeps.
    ///
    /// # Errors
    /// Failures of the system. A task that could not be written is part of the result, and its exit code the
    /// command's.
    pub fn run(&self, session: &Session) -> Result<ExitCode> {
        if session.is_offline() && session.authority().is_some() {
            let why = "a sweep cannot be offline: only the authority tells who is silent";
            return Err(Error::Usage(why.to_owned()));
        }
        let default = self.ttl.unwrap_or(session.config.ttl);
        let terms = Terms {
            ttl: TtlRule { default, force: self.force },
            trust_clocks: self.trust_clocks,
            max_attempts: session.config.max_attempts,
            dry_run: self.dry_run,
        };
        let queue = if self.all { None } else { self.queue.as_ref().or(session.config.queue.as_ref()) };
        let prefix = prefix(queue);
        let started = Instant::now();
        let mut outcome = self.once(session, &prefix, &terms)?;
        let reading = session.authority().map_or(Duration::ZERO, |_| session.config.network_timeout);
        let patience = Duration::from_millis(outcome.largest_ttl_ms) + WAIT_SLACK + reading;
        while self.wait && !outcome.observing.is_empty() && started.elapsed() < patience {
            std::thread::sleep(pause(&outcome, &terms).min(patience.saturating_sub(started.elapsed())));
            let later = self.once(session, &prefix, &terms)?;
            outcome = merged(outcome, later);
        }
        if !self.dry_run
            && let Err(error) = session.sweep_leftovers(ORPHAN_AGE)
        {
            session.out.warning(&format!("temporary files of killed writers could not be removed: {error}"));
        }
        warn_damaged(&session.out, &outcome.damaged);
        outcome.survey.iter().flat_map(|survey| &survey.troubles).for_each(|trouble| session.out.warning(trouble));
        if let Some(why) = &outcome.forgetful {
            session.out.warning(&format!("what this machine saw could not be kept, it can only observe: {why}"));
        }
        session.out.result(|| to_json(&outcome, &terms), || to_text(&outcome, &terms));
        for missed in &outcome.failed {
            session.out.warning(&format!("{} could not be reclaimed: {}", place(&missed.judged.state), missed.error));
        }
        Ok(outcome.failed.first().map_or(ExitCode::Done, |missed| missed.error.exit_code()))
    }

    fn once(&self, session: &Session, prefix: &str, terms: &Terms) -> Result<Outcome> {
        let ledger = if self.dry_run { session.finder()? } else { session.writer()? };
        ledger.sweep(prefix, &session.state_dir(), terms, &|| false)
    }
}

/// Until the first watched claim can be judged. An authority must be read every third of the TTL: a longer gap counts as
/// no more than that.
fn pause(outcome: &Outcome, terms: &Terms) -> Duration {
    let longest = |judged: &Judged| match outcome.survey {
        Some(_) => terms.ttl.ttl(judged.claim.ttl).ms() / 3,
        None => u64::MAX,
    };
    let decides_in = |judged: &Judged| match judged.verdict {
        Verdict::Observing { decides_in_ms } => decides_in_ms.min(longest(judged)),
        Verdict::Fresh { .. } | Verdict::Stale => 0,
    };
    let next = outcome.observing.iter().map(decides_in).min().unwrap_or(0);
    Duration::from_millis(next.saturating_add(1))
}

/// The later reading, with what the earlier ones did.
fn merged(earlier: Outcome, later: Outcome) -> Outcome {
    let join = |mut a: Vec<Swept>, b: Vec<Swept>| {
        a.extend(b);
        a
    };
    let join_missed = |mut a: Vec<Missed>, b: Vec<Missed>| {
        a.extend(b);
        a
    };
    Outcome {
        stale: earlier.stale + later.stale,
        reclaimed: join(earlier.reclaimed, later.reclaimed),
        rejected: join(earlier.rejected, later.rejected),
        raced: join_missed(earlier.raced, later.raced),
        failed: join_missed(earlier.failed, later.failed),
        ..later
    }
}

fn claim_json(judged: &Judged) -> Value {
    json!({
        "task": judged.state.id,
        "slug": judged.state.task.slug,
        "queue": judged.state.task.queue,
        "holder": judged.claim.holder,
        "claim": judged.claim.id,
        "age_ms": judged.age_ms,
    })
}

fn swept_json(swept: &Swept) -> Value {
    let mut value = claim_json(&swept.judged);
    if let Some(status) = swept.status {
        value["status"] = json!(status);
    }
    value
}

fn missed_json(missed: &Missed) -> Value {
    let mut value = claim_json(&missed.judged);
    value["found"] = json!(missed.error.to_string());
    value
}

fn observing_json(judged: &Judged) -> Value {
    let mut value = claim_json(judged);
    if let Verdict::Observing { decides_in_ms } = judged.verdict {
        value["decides_in_ms"] = json!(decides_in_ms);
    }
    value
}

fn to_json(outcome: &Outcome, terms: &Terms) -> Value {
    json!({
        "scanned": outcome.scanned,
        "stale": outcome.stale,
        "reclaimed": outcome.reclaimed.iter().map(swept_json).collect::<Vec<_>>(),
        "rejected": outcome.rejected.iter().map(swept_json).collect::<Vec<_>>(),
        "raced": outcome.raced.iter().map(missed_json).collect::<Vec<_>>(),
        "failed": outcome.failed.iter().map(missed_json).collect::<Vec<_>>(),
        "observing": outcome.observing.iter().map(observing_json).collect::<Vec<_>>(),
        "damaged": damaged_json(&outcome.damaged),
        "dry_run": terms.dry_run,
        "ttl_ms": terms.ttl.default.ms(),
    })
}

fn to_text(outcome: &Outcome, terms: &Terms) -> String {
    let line = |how: &str, judged: &Judged| {
        format!("{how} {} from {}, silent for {}", place(&judged.state), judged.claim.holder, span(judged.age_ms))
    };
    let reclaimed = if terms.dry_run { "would reclaim" } else { "reclaimed" };
    let mut lines: Vec<String> = outcome.reclaimed.iter().map(|swept| line(reclaimed, &swept.judged)).collect();
    let rejected = if terms.dry_run { "would reject" } else { "rejected" };
    let rejected = format!("{rejected}, after too many attempts,");
    lines.extend(outcome.rejected.iter().map(|swept| line(&rejected, &swept.judged)));
    lines.extend(outcome.raced.iter().map(|missed| format!("left {}: it moved on", place(&missed.judged.state))));
    lines.extend(outcome.observing.iter().map(|judged| {
        let left = match judged.verdict {
            Verdict::Observing { decides_in_ms } => decides_in_ms,
            Verdict::Fresh { .. } | Verdict::Stale => 0,
        };
        format!(
            "watching {}, held by {}: a sweep in {} can decide",
            place(&judged.state),
            judged.claim.holder,
            span(left)
        )
    }));
    lines.push(format!("{} read, {} stale", counted(outcome.scanned, "task"), outcome.stale));
    lines.join("\n")
}
