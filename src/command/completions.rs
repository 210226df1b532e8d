//! `pm completions`: shell completions.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::error::Result;
use crate::output::Output;

/// Print the completions of a shell
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    /// Prints them.
    ///
    /// # Errors
    /// None.
    pub fn run(&self, out: &Output) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::cli::Cli::command(), "pm", &mut script);
        out.bytes(&script);
        Ok(())
    }
}
