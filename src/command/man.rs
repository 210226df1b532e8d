//! `pm man`: manual pages.

use std::path::PathBuf;

use clap::CommandFactory;

use crate::error::{Error, Result};
use crate::output::Output;

/// Write the manual pages
///
/// Without a directory, prints the page of pm itself.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to write pm.1 and one page for each subcommand
    #[arg(value_name = "DIR")]
    into: Option<PathBuf>,
}

impl Args {
    /// Writes them.
    ///
    /// # Errors
    /// `Io` where the directory cannot be written.
    pub fn run(&self, out: &Output) -> Result<()> {
        let command = crate::cli::Cli::command();
        match &self.into {
            Some(dir) => {
                let failed = || Error::io(format!("writing manual pages to {}", dir.display()));
                std::fs::create_dir_all(dir).map_err(failed())?;
                clap_mangen::generate_to(command, dir).map_err(failed())
            }
            None => {
                let mut page = Vec::new();
                clap_mangen::Man::new(command).render(&mut page).map_err(Error::io("rendering the manual page"))?;
                out.bytes(&page);
                Ok(())
            }
        }
    }
}
