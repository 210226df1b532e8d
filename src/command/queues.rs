//! `pm queues`: the queues and their counts.

use serde_json::{Value, json};

use super::status::{count, counts_json, counts_table};
use super::{damaged_json, warn_damaged};
use crate::error::Result;
use crate::ledger::resolve::prefix;
use crate::session::Session;

/// List the queues
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Lists them.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn run(&self, session: &Session) -> Result<()> {
        let scan = session.ledger().scan(&prefix(None))?;
        warn_damaged(&session.out, &scan.damaged);
        let queues = count(&scan);
        session.out.result(
            || {
                let row = |(queue, counts)| json!({"queue": queue, "counts": counts_json(counts)});
                let rows: Vec<Value> = queues.iter().map(row).collect();
                json!({"queues": rows, "damaged": damaged_json(&scan.damaged)})
            },
            || if queues.is_empty() { String::new() } else { counts_table(&queues).join("\n") },
        );
        Ok(())
    }
}
