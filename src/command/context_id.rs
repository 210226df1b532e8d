//! `pm context-id`: a fresh context id.

use serde_json::json;

use crate::error::{Error, Result};
use crate::output::Output;

/// Print a fresh context id
///
/// For `export PM_CONTEXT_ID=$(pm context-id)`: everything that the session does is then done by one agent.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Prints it: 32 random hex digits.
    ///
    /// # Errors
    /// `Io` where the system has no random bits.
    pub fn run(&self, out: &Output) -> Result<()> {
        let random = || {
            getrandom::u64().map_err(|error| Error::Io {
                what: "drawing random bits".to_owned(),
                source: std::io::Error::other(error.to_string()),
            })
        };
        let id = format!("{:016x}{:016x}", random()?, random()?);
        out.result(|| json!({"context_id": id}), || id.clone());
        Ok(())
    }
}
