//! `pm repair`: an operator's ways out of what a sync leaves alone.

use serde_json::json;

use super::sync::place;
use crate::error::{Error, Result};
use crate::exit_code::ExitCode;
use crate::id::{Queue, RecordId, RefName, Slug};
use crate::ledger::Ledger;
use crate::ledger::resolve::prefixes;
use crate::output::counted;
use crate::session::Session;
use crate::store::Store;
use crate::sync::repair::{self, Rewind};

/// Mend what a sync leaves alone
///
/// --push-back: tasks that vanished at the remote, or fell back to an older record there (a deleted ref, a restored
/// backup), are put back from what this repository has. Nothing is forced.
///
/// --rewind: a task whose chain at the remote breaks a rule goes back to the last record that keeps all of them. That is
/// the one thing in pm that moves a ref backwards, so it wants the tip that you have seen: without --if-tip it shows what
/// would be done. What is above is kept in this repository. Without a remote it does the same to a chain here.
///
/// --set-aside: a task here gives way to another one of the same name that was planned elsewhere: it is planned anew under
/// --slug, what was recorded on it is kept (`pm lost`), and the other one is taken over.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Args {
    /// Put back at the remote what vanished or fell back there
    #[arg(long, group = "what")]
    push_back: bool,
    /// Take a task back to the last record that keeps every rule
    #[arg(long, group = "what", requires = "task")]
    rewind: bool,
    /// Let a task here give way to another one of its name
    #[arg(long, group = "what", requires_all = ["task", "slug"])]
    set_aside: bool,
    /// The new slug of the task that gives way
    #[arg(long, value_name = "SLUG", requires = "set_aside")]
    slug: Option<Slug>,
    /// The task to rewind or to set aside: <queue>/<slug>, or a slug in the queue
    #[arg(long, value_name = "TASK", conflicts_with = "push_back")]
    task: Option<String>,
    /// The tip that was seen: nothing is moved from any other
    #[arg(long, value_name = "SHA", requires = "rewind")]
    if_tip: Option<RecordId>,
    /// The queue of a bare slug; with --push-back, only this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<Queue>,
}

impl Args {
    /// Mends it.
    ///
    /// # Errors
    /// 8 where the tip is another one; 17, 18, 20.
    pub fn run(&self, session: &Session) -> Result<ExitCode> {
        match &self.slug {
            Some(slug) if self.set_aside => self.set_aside(session, slug),
            _ if self.push_back => self.push_back(session),
            _ => self.rewind(session),
        }
    }

    fn set_aside(&self, session: &Session, slug: &Slug) -> Result<ExitCode> {
        let name = self.name(session)?;
        let remote = session.config.remote.as_ref().ok_or_else(no_authority)?;
        if session.store.tip(&name)?.is_none() {
            return Err(unknown(&name));
        }
        let (planned, dependents) = session.link_to(remote)?.set_aside(&session.writer()?, &name, slug.clone())?;
        for dependent in &dependents {
            let (dependent, old) = (place(dependent), place(&name));
            session
                .out
                .warning(&format!("{dependent} depends on the {old} that was here, which is gone: plan it anew"));
        }
        session.out.result(
            || json!({"ref": name, "planned": planned.id, "slug": slug, "dependents": dependents}),
            || format!("planned anew as {slug}, task {}; {} is the task of {remote} now", planned.id, place(&name)),
        );
        Ok(ExitCode::Done)
    }

    fn push_back(&self, session: &Session) -> Result<ExitCode> {
        let remote = session.config.remote.as_ref().ok_or_else(no_authority)?;
        let queues: Vec<_> = self.queue.iter().cloned().collect();
        let done = session.link_to(remote)?.push_back(&session.local_writer(), &prefixes(&queues))?;
        session.out.result(
            || {
                let pushed: Vec<_> = done.pushed.iter().map(|(name, tip)| json!({"ref": name, "tip": tip})).collect();
                let left: Vec<_> = done.left.iter().map(|(name, why)| json!({"ref": name, "found": why})).collect();
                json!({"remote": remote, "pushed_back": pushed, "left_alone": left})
            },
            || {
                let mut lines: Vec<_> =
                    done.pushed.iter().map(|(name, _)| format!("{} is back at {remote}", place(name))).collect();
                lines.extend(done.left.iter().map(|(name, why)| format!("{} was left alone: {why}", place(name))));
                if lines.is_empty() {
                    lines.push(format!("nothing vanished at {remote}"));
                }
                lines.join("\n")
            },
        );
        Ok(if done.left.is_empty() { ExitCode::Done } else { ExitCode::Damaged })
    }

    fn rewind(&self, session: &Session) -> Result<ExitCode> {
        let name = self.name(session)?;
        let ledger = session.local_writer();
        let link = session.config.remote.as_ref().map(|remote| session.link_to(remote)).transpose()?;
        let at_remote = match &link {
            Some(link) => link.plan_rewind(&ledger, &name)?.map(|rewind| (link, rewind)),
            None => None,
        };
        let (place_there, rewind) = match (&at_remote, repair::plan_rewind_here(&ledger, &name)?) {
            (Some((link, rewind)), _) => (format!("at {}", link.remote.name), rewind),
            (None, Some(ref rewind)) => return self.rewind_here(session, &ledger, &name, rewind),
            (None, None) => {
                let is_there = match &link {
                    Some(link) => !link.remote.list_names(std::slice::from_ref(&name), &|| false)?.is_empty(),
                    None => false,
                };
                if !is_there && ledger.store.tip(&name)?.is_none() {
                    return Err(unknown(&name));
                }
                let why = format!("nothing is wrong with {}, so there is nothing to rewind", place(&name));
                return Err(Error::Usage(why));
            }
        };
        if !self.is_confirmed(session, &name, &place_there, rewind)? {
            return Ok(ExitCode::Done);
        }
        if let Some((link, rewind)) = &at_remote {
            link.rewind(&ledger, &name, rewind)?
                .map_err(|why| Error::Unreachable { remote: link.remote.name.clone(), why })?;
        }
        self.say_done(session, &name, &place_there, rewind);
        Ok(ExitCode::Done)
    }

    fn rewind_here(&self, session: &Session, ledger: &Ledger<'_>, name: &RefName, rewind: &Rewind) -> Result<ExitCode> {
        if !self.is_confirmed(session, name, "here", rewind)? {
            return Ok(ExitCode::Done);
        }
        if rewind.to.is_none() {
            let why = format!("no record of {} keeps the rules, so there is nothing to rewind it to", place(name));
            return Err(Error::Usage(why));
        }
        if !repair::rewind_here(ledger, &session.state_dir(), name, rewind)? {
            return Err(moved(name, rewind.tip));
        }
        self.say_done(session, name, "here", rewind);
        Ok(ExitCode::Done)
    }

    /// Whether the tip is the one that was named; with none named, shows what would be done.
    fn is_confirmed(&self, session: &Session, name: &RefName, whereabouts: &str, rewind: &Rewind) -> Result<bool> {
        match self.if_tip {
            Some(tip) if tip == rewind.tip => Ok(true),
            Some(_) => Err(moved(name, rewind.tip)),
            None => {
                session.out.result(
                    || json!({"ref": name, "tip": rewind.tip, "to": rewind.to, "above": rewind.above, "found": rewind.fault, "done": false}),
                    || {
                        let to = rewind.to.map_or("nothing: no record keeps the rules".to_owned(), |to| to.to_string());
                        format!(
                            "{} {whereabouts}: {}\nit would go back to {to}; {} above would be kept in this repository only\nto do it: name the tip, --if-tip {}",
                            place(name), rewind.fault, counted(rewind.above, "record"), rewind.tip
                        )
                    },
                );
                Ok(false)
            }
        }
    }

    fn say_done(&self, session: &Session, name: &RefName, whereabouts: &str, rewind: &Rewind) {
        session.out.result(
            || json!({"ref": name, "tip": rewind.tip, "to": rewind.to, "above": rewind.above, "found": rewind.fault, "done": true}),
            || format!("{} {whereabouts} went back by {}", place(name), counted(rewind.above, "record")),
        );
    }

    /// The ref of the task. It may be in no state to be found by its id.
    fn name(&self, session: &Session) -> Result<RefName> {
        let asked = self.task.as_deref().unwrap_or_default();
        if let Some((queue, slug)) = asked.split_once('/') {
            return Ok(RefName::of_task(&queue.parse()?, &slug.parse()?));
        }
        let slug: Slug = asked.parse()?;
        Ok(RefName::of_task(&session.queue(self.queue.as_ref())?, &slug))
    }
}

fn moved(name: &RefName, tip: RecordId) -> Error {
    Error::TipMoved { name: name.clone(), tip }
}

fn unknown(name: &RefName) -> Error {
    let because = "there is none of that name; `pm list` shows all".to_owned();
    Error::UnknownTask { asked: place(name), because, candidates: Vec::new() }
}

fn no_authority() -> Error {
    Error::Usage("no remote is the authority (pm.remote is not set), so there is nothing to mend there".to_owned())
}
