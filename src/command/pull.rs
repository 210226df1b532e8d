//! `pm pull`: next and executing in one.

use serde_json::{Value, json};

use super::executing::{claimed_text, lease_ms};
use super::next::{Filter, say_nothing_is_runnable, task_json, warn_left_out};
use super::print_record;
use crate::config::duration;
use crate::error::{Error, Result};
use crate::ledger::Reach;
use crate::ledger::append::Appended;
use crate::ledger::find::Found;
use crate::ledger::runnable::was_taken;
use crate::protocol::decide::Intent;
use crate::protocol::record::Ttl;
use crate::protocol::refusal::Refusal;
use crate::protocol::view;
use crate::session::Session;
use crate::store::StoreError;

/// Take the next runnable task
///
/// Claims the task that `pm next` would show. When the race for it is lost, another candidate is tried. On an empty
/// queue nothing is claimed and the exit code is 0: the JSON is null, the text is empty.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    filter: Filter,
    /// Print assignments for eval: export TASK=… SLUG=… PM_CLAIM=… PM_AGENT_ID=…; empty ones on an empty queue
    #[arg(long, conflicts_with = "json")]
    shell: bool,
    /// How many lost races to make up for with another candidate
    #[arg(long, value_name = "N", default_value_t = 5)]
    max_retries: u32,
    /// The lease to ask for, such as 90, 90s, 5m
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ttl: Option<Ttl>,
}

impl Args {
    /// Whether a shell evaluates what is printed.
    pub fn is_for_shell(&self) -> bool {
        self.shell
    }

    /// Takes a task.
    ///
    /// # Errors
    /// 8 when every race was lost.
    pub fn run(&self, session: &Session) -> Result<()> {
        let taken = self.take(session);
        if self.shell && !matches!(taken, Ok(Some(_))) {
            session.out.raw(&shell("", "", "", session.agent.as_str()));
        }
        match taken? {
            Some(appended) => self.print(session, &appended),
            None => {
                if !self.shell {
                    session.out.result(|| Value::Null, String::new);
                }
                Ok(())
            }
        }
    }

    /// Claims the first candidate that nobody else takes first.
    fn take(&self, session: &Session) -> Result<Option<Appended>> {
        let ledger = session.finder()?;
        let mut losses = 0;
        let mut locked = None;
        let mut is_current = !matches!(ledger.reach, Reach::Through(_));
        if let Reach::Through(authority) = ledger.reach {
            // A claim that got in without an answer, as somebody found out, is what this command asks for again.
            let unanswered = authority.unanswered(&ledger, &self.filter.prefix(session)?)?;
            for found in unanswered.into_iter().filter(|found| found.state.task.has_labels(&self.filter.labels)) {
                match session.writer()?.append(found, Intent::Claim { ttl: self.ttl }) {
                    Ok(appended) => return Ok(Some(appended)),
                    Err(error) if was_taken(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        loop {
            let runnable = self.filter.runnable(session, &ledger)?;
            if runnable.tasks.is_empty() || losses > 0 {
                // Others were here: what is known here may be old.
                if let (false, Reach::Through(authority)) = (is_current, ledger.reach) {
                    is_current = true;
                    authority.catch_up(&ledger, &self.filter.prefix(session)?)?;
                    continue;
                }
            }
            if losses == 0 {
                warn_left_out(&session.out, &runnable);
            }
            if runnable.tasks.is_empty() {
                say_nothing_is_runnable(&session.out, &runnable);
                return Ok(None);
            }
            if let Some(error) = locked {
                return Err(error);
            }
            for (name, state) in runnable.tasks {
                match session.writer()?.append(Found { name, state }, Intent::Claim { ttl: self.ttl }) {
                    Ok(appended) => return Ok(Some(appended)),
                    Err(error) if was_taken(&error) && losses < self.max_retries => {
                        losses += 1;
                        // A context that was bound meanwhile closes a whole group of tasks to this one: a new listing tells
                        // which, and trying them all would use up the retries.
                        if !is_current || matches!(error, Error::Refused { refusal: Refusal::Context(_), .. }) {
                            break;
                        }
                    }
                    Err(error) if was_taken(&error) => return Err(lost(error)),
                    // One task whose lock somebody holds does not keep the others from being worked on.
                    Err(error @ Error::Store(StoreError::Locked { .. })) if locked.is_none() => {
                        session.out.warning(&error.to_string());
                        locked = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    fn print(&self, session: &Session, appended: &Appended) -> Result<()> {
        let state = &appended.state;
        let (claim, record) = appended.last();
        if self.shell {
            let agent = session.agent.as_str();
            session.out.raw(&shell(&state.id.to_string(), state.task.slug.as_str(), &claim.to_string(), agent));
            return Ok(());
        }
        let name = crate::id::RefName::of_task(&state.task.queue, &state.task.slug);
        let task = task_json(session, &name, state)?;
        print_record(
            &session.out,
            appended,
            || {
                let mut value = json!({"task": task, "claim": view::record(*claim, record, &[])});
                if !appended.provisional {
                    value["fence"] = json!(state.seq);
                }
                value["lease_ms"] = json!(lease_ms(session, state));
                value
            },
            || claimed_text(session, appended),
        );
        Ok(())
    }
}

/// The last of the lost races, as what it is: whatever has come to forbid the claim, the task was free when it was listed.
fn lost(error: Error) -> Error {
    match error {
        Error::Refused { task, place, refusal: Refusal::WrongPhase { held, .. } | Refusal::RaceLost { held } } => {
            Error::Refused { task, place, refusal: Refusal::RaceLost { held } }
        }
        Error::Refused { task, place, .. } => Error::Refused { task, place, refusal: Refusal::RaceLost { held: None } },
        error => error,
    }
}

/// What `--shell` prints when nothing was claimed for want of a repository, a right call or anything else: a loop that
/// evaluates it must never run the old task again.
pub const NOTHING: &str = "export TASK= SLUG= PM_CLAIM=\n";

/// Assignments for a shell's eval. Every value is made of characters that need no quotes.
fn shell(task: &str, slug: &str, claim: &str, agent: &str) -> String {
    format!("export TASK={task} SLUG={slug} PM_CLAIM={claim} PM_AGENT_ID={agent}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;
    use crate::exit_code::ExitCode;
    use crate::id::{Oid, TaskId};
    use crate::protocol::sticky::Misfit;

    #[test]
    fn whatever_came_between_is_a_lost_race() {
        let task = TaskId("1234567890123456789012345678901234567890".parse::<Oid>().expect("an id"));
        let place = Place { queue: "default".parse().expect("a queue"), slug: "login".parse().expect("a slug") };
        for refusal in [
            Refusal::Context(Misfit::Missing { wanted: None }),
            Refusal::DependenciesOpen { open: Vec::new() },
            Refusal::RaceLost { held: None },
        ] {
            let error = Error::Refused { task, place: place.clone(), refusal };
            assert!(was_taken(&error));
            assert_eq!(lost(error).exit_code(), ExitCode::RaceLost);
        }
    }
}
