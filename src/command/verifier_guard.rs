//! `pm verifier-guard`: the process that ends a verifier when pm is gone. Nobody types it.

use crate::error::{Error, Result};
use crate::verifier::guard;

/// Part of finished and work: ends the commands of its process group when standard input ends
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The group, which another process leads
    #[arg(long, value_name = "PID")]
    group: i32,
}

impl Args {
    /// Guards the group.
    ///
    /// # Errors
    /// What the system says.
    pub fn run(&self) -> Result<()> {
        guard::keep(self.group).map_err(Error::io("guarding a verifier"))
    }
}
