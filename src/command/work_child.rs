//! `pm work-child`: the processes between `pm work` and one command. Nobody types it.

use std::ffi::OsString;

use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::work::keeper;

/// Part of work: a process between the runner and one command
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Become the command of this keeper
    #[arg(long, value_name = "PID", conflicts_with_all = ["until_ms", "grace_ms"])]
    keeper: Option<i32>,
    /// Until when the command may run, in milliseconds since boot
    #[arg(long, value_name = "MS", default_value_t = 0)]
    until_ms: u64,
    /// How long it may take to end
    #[arg(long, value_name = "MS", default_value_t = 0)]
    grace_ms: u64,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl Args {
    /// Keeps the command, or becomes it.
    ///
    /// # Errors
    /// What the system says.
    pub fn run(&self) -> Result<ExitCode> {
        match self.keeper {
            // Returns only if the command could not be started, which the keeper has been told.
            Some(keeper) => keeper::become_command(&self.command, keeper).map(|()| ExitCode::Failure),
            None => keeper::keep(&self.command, self.until_ms, self.grace_ms).map(|()| ExitCode::Done),
        }
        .map_err(Error::io("keeping a command"))
    }
}
