//! What a process of pm told its caller: the exit code, and the record that it named.

use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use serde_json::Value;

use super::scene::{Machine, PATIENCE};
use crate::support::run_within;

/// One command, and what it told.
#[derive(Debug, Clone)]
pub struct Told {
    /// The number of the machine.
    pub machine: usize,
    pub agent: String,
    /// The command line, from the verb on.
    pub args: Vec<String>,
    /// The task, where one was named by the caller or in the answer.
    pub slug: String,
    pub started: Instant,
    pub ended: Instant,
    pub code: i32,
    /// The record that was acknowledged, or, with exit 22, whose answer was lost.
    pub record: Option<String>,
    pub provisional: bool,
    /// Another heartbeat did the same.
    pub coalesced: bool,
    /// A refused claim is the caller's own.
    pub yours: bool,
    pub stderr: String,
}

impl Told {
    /// Runs a command on a machine. `slug` is the task that it names, if it does.
    pub fn run(number: usize, machine: &Machine, agent: &str, slug: &str, args: Vec<String>) -> Result<Told> {
        let command = machine.repo.pm_command(args.iter().map(String::as_str).chain(["--json", "--agent", agent]));
        Told::by(command, number, agent, slug, args)
    }

    /// As [`Told::run`], by a command that was made up already: `args` are told of it.
    pub fn by(mut command: Command, number: usize, agent: &str, slug: &str, args: Vec<String>) -> Result<Told> {
        let started = Instant::now();
        let done = run_within(&mut command, PATIENCE)?;
        let printed: Value = serde_json::from_str(&done.stdout).unwrap_or_default();
        let mut errors = done.stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let error = errors.rfind(|value| value["error"].is_object()).unwrap_or_default();
        let string = |value: &Value| value.as_str().map(str::to_owned);
        let claim = &printed["claim"];
        let named = if claim.is_object() { &claim["sha"] } else { &printed["sha"] };
        let answered = string(&printed["task"]["attributes"]["slug"]).or_else(|| string(&error["error"]["slug"]));
        Ok(Told {
            machine: number,
            agent: agent.to_owned(),
            args,
            slug: if slug.is_empty() { answered.unwrap_or_default() } else { slug.to_owned() },
            started,
            ended: Instant::now(),
            code: done.code(),
            record: string(named).or_else(|| string(&error["error"]["record"])),
            provisional: printed["provisional"] == true,
            coalesced: printed["coalesced"] == true,
            yours: error["error"]["yours"] == true,
            stderr: done.stderr,
        })
    }

    pub fn verb(&self) -> &str {
        self.args.first().map_or("", String::as_str)
    }

    pub fn is_claim(&self) -> bool {
        matches!(self.verb(), "pull" | "executing")
    }

    /// For messages.
    pub fn shown(&self) -> String {
        let (record, errors) = (self.record.as_deref().unwrap_or("no record"), self.stderr.trim());
        format!("m{} {}: pm {} -> {} {record} {errors}", self.machine, self.agent, self.args.join(" "), self.code)
    }
}
