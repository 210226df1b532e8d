//! `pm prime`: what an agent must know to use pm here, short enough for any context.
//!
//! What must never happen here: that it writes, or that the text grows with the ledger.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Watch, hint_elsewhere, list_entry, warn_damaged};
use crate::error::Result;
use crate::exit_code::ExitCode;
use crate::id::Queue;
use crate::ledger::neighbours::Neighbours;
use crate::ledger::resolve::{Scan, place, prefix};
use crate::output::span;
use crate::protocol::decide::Others;
use crate::protocol::record::Phase;
use crate::protocol::select;
use crate::protocol::state::TaskState;
use crate::protocol::view::Moment;
use crate::session::{Naming, Session};

/// How many lines the text has at most.
const LINES_MAX: usize = 60;

/// How many characters a line has at most.
const COLUMNS_MAX: usize = 160;

/// How many lines a claim takes.
const LINES_A_CLAIM: usize = 2;

/// Print what an agent must know to use pm here
///
/// At most 60 lines, made for the context of a language model: who it is and what it holds, what there is to do, the
/// loop of a worker, and what each exit code asks of it. Reads only.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Prints it.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn run(&self, session: &Session) -> Result<()> {
        let ledger = session.ledger();
        let scan = ledger.scan(&prefix(None))?;
        warn_damaged(&session.out, &scan.damaged);
        hint_elsewhere(session, None, &scan)?;
        let queue = session.queue(None)?;
        let mut neighbours = Neighbours::new(&ledger, &scan.tasks);
        let is_offered =
            |state: &TaskState, others: &Others| select::runnable(state, &ledger.facts(others), &session.dir).is_ok();
        let counts = Counts::of(&scan, &queue, &mut neighbours, is_offered);
        neighbours.finish()?;
        let watch = Watch::new(session);
        let is_own = |state: &TaskState| state.claim().is_some_and(|claim| claim.holder == session.agent);
        let claims: Vec<(&TaskState, Moment)> = scan
            .tasks
            .iter()
            .filter(|(_, state)| is_own(state))
            .map(|(name, state)| (state, watch.moment(name, state, Vec::new())))
            .collect();
        let text = text(session, &queue, &counts, &claims);
        session.out.result(
            || {
                json!({
                    "agent": session.agent,
                    "agent_from": naming(session.naming),
                    "context_id": session.context,
                    "queue": queue,
                    "remote": session.config.remote,
                    "claims": claims.iter().map(|(state, moment)| list_entry(state, moment)).collect::<Vec<_>>(),
                    "counts": counts.to_json(),
                    "text": format!("{text}\n"),
                })
            },
            || text.clone(),
        );
        Ok(())
    }
}

/// How many tasks of a queue are where.
struct Counts {
    /// What somebody could claim now.
    runnable: usize,
    /// The part of it that is not offered to this caller, for its context or work directory.
    elsewhere: usize,
    blocked: usize,
    phases: BTreeMap<Phase, usize>,
}

impl Counts {
    fn of(
        scan: &Scan,
        queue: &Queue,
        neighbours: &mut Neighbours<'_>,
        is_offered: impl Fn(&TaskState, &Others) -> bool,
    ) -> Counts {
        let phases = Phase::ALL.map(|phase| (phase, 0)).into();
        let mut counts = Counts { runnable: 0, elsewhere: 0, blocked: 0, phases };
        for (_, state) in scan.tasks.iter().filter(|(_, state)| state.task.queue == *queue) {
            if state.phase() == Some(Phase::New) {
                let others = neighbours.before_a_claim(state);
                let is_blocked = others.hindrances().next().is_some();
                counts.blocked += usize::from(is_blocked);
                counts.runnable += usize::from(!is_blocked);
                counts.elsewhere += usize::from(!is_blocked && !is_offered(state, &others));
            }
            if let Some(phase) = state.phase() {
                *counts.phases.entry(phase).or_default() += 1;
            }
        }
        counts
    }

    fn to_json(&self) -> Value {
        let mut value = json!({"runnable": self.runnable, "elsewhere": self.elsewhere, "blocked": self.blocked});
        for (phase, count) in &self.phases {
            value[phase.as_str()] = json!(count);
        }
        value
    }
}

/// How it is known who asks, in words.
fn naming(naming: Naming) -> &'static str {
    match naming {
        Naming::Option => "--agent",
        Naming::Variable => "$PM_AGENT_ID",
        Naming::Context => "the context id",
        Naming::Configuration => "pm.agent",
        Naming::Process => "host and calling process",
    }
}

/// The whole text: what is here, the claims as far as there is room, and what holds everywhere.
fn text(session: &Session, queue: &Queue, counts: &Counts, claims: &[(&TaskState, Moment)]) -> String {
    let mut lines = here(session, queue, counts);
    let manual = manual(session);
    // The heading of the claims, and an empty line before and after.
    let room = LINES_MAX.saturating_sub(lines.len() + manual.len() + 3);
    lines.push(String::new());
    lines.extend(owned(claims, room));
    lines.push(String::new());
    lines.extend(manual);
    lines.iter().map(|line| cut(line)).collect::<Vec<_>>().join("\n")
}

/// Who asks, and what there is.
fn here(session: &Session, queue: &Queue, counts: &Counts) -> Vec<String> {
    let mut lines = vec!["# pm: the task ledger in this git repository".to_owned(), String::new()];
    let mut field = |name: &str, value: String| lines.push(format!("{name:<10} {value}"));
    let unstable = match session.naming {
        Naming::Process => "; changes with the shell, so first: export PM_AGENT_ID=<a name of your own>",
        _ => "",
    };
    field("you", format!("{} (from {}){unstable}", session.agent, naming(session.naming)));
    let none = "none is set; export PM_CONTEXT_ID=\"$(pm context-id)\" gives a session one";
    field("context id", session.context.as_ref().map_or_else(|| none.to_owned(), ToString::to_string));
    let from = if session.config.queue.is_some() { "pm.queue" } else { "pm.queue is not set" };
    field("queue", format!("{queue} ({from}), unless a command says --queue"));
    field(
        "authority",
        match &session.config.remote {
            Some(_) if session.is_offline() => "not asked (--offline): what is recorded is provisional".to_owned(),
            Some(remote) => format!("{remote} (pm.remote): exit 0 means that it has the record"),
            None => "none: this repository decides alone".to_owned(),
        },
    );
    let phases: Vec<String> = counts.phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    let elsewhere = match counts.elsewhere {
        0 => String::new(),
        count => format!(" ({count} of them not here: `pm next --explain` tells why)"),
    };
    let (runnable, blocked) = (counts.runnable, counts.blocked);
    field("tasks", format!("{runnable} runnable{elsewhere}, {blocked} blocked; {}", phases.join(", ")));
    lines
}

/// The open claims: as many as fit into so many lines.
fn owned(claims: &[(&TaskState, Moment)], room: usize) -> Vec<String> {
    if claims.is_empty() {
        return vec!["## You hold nothing".to_owned()];
    }
    let mut lines = vec![format!("## You hold {}: go on with them, or release them", claims.len())];
    let fits = claims.len() * LINES_A_CLAIM <= room;
    let shown = if fits { claims.len() } else { room.saturating_sub(1) / LINES_A_CLAIM };
    for (state, moment) in &claims[..shown] {
        let lease = match moment.lease_left_ms {
            Some(0) => "its lease is over, a sweep may take it".to_owned(),
            Some(left) => format!("{} of its lease left", span(left)),
            None => "what is left of its lease is unknown here".to_owned(),
        };
        lines.push(format!("- {}, {lease}: {}", place(state), state.task.title));
        let claim = state.claim().map(|claim| claim.id.to_string()).unwrap_or_default();
        lines.push(format!("  export TASK={} PM_CLAIM={claim}", state.id));
    }
    if shown < claims.len() {
        lines.push(format!("- and {} more: `pm owned --json`", claims.len() - shown));
    }
    lines
}

/// What holds everywhere: the loop, what to do about exit codes, and where more is.
fn manual(session: &Session) -> Vec<String> {
    let ttl_ms = session.config.ttl.ms();
    let lines = [
        "## The loop",
        "1. `eval \"$(pm pull --shell)\"` claims a task and exports TASK, SLUG, PM_CLAIM. TASK is empty: nothing to do, end.",
        "2. `pm show --task \"$TASK\"` tells what is to be done. Each new shell needs TASK and PM_CLAIM exported again.",
        &format!(
            "3. Every third of the lease (each {} of {}): `pm heartbeat --task \"$TASK\" --progress \"3 of 5 files\"`",
            span(ttl_ms / 3),
            span(ttl_ms)
        ),
        "4. `pm report --task \"$TASK\" --title \"What was done\" --text-file notes.md --commit HEAD`",
        "5. `pm finished --task \"$TASK\"` closes it over that report; with --rejected if it cannot be done.",
        "   `pm release --task \"$TASK\" --reason \"why\"` gives it back instead.",
        "6. Again from 1. Before you end: `pm owned --strict` exits with 0 when you hold nothing.",
        "Before a push or another effect outside: `pm fence --task \"$TASK\" --deadline 30s` must exit with 0.",
        "",
        "## Exit codes",
        "12, or 6 once you hold a task: it is lost. Stop at once; report, finish and push nothing of it.",
        "8 of a claim: take another task. 8, 20, 21, 22 of anything else: the same command again, with a pause (1 s, doubled",
        "up to 30 s), for as long as the lease lasts. 22 means: perhaps recorded, so change nothing in the command.",
        "10: the task belongs to another context, leave it alone. 9: fix the work, report again, then finish again.",
    ];
    let mut lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
    for pair in ExitCode::ALL.chunks(2) {
        let cells = pair.iter().map(|code| format!("{:>2} {:<21} {:<34}", code.number(), code.name(), code.advice()));
        lines.push(cells.collect::<String>().trim_end().to_owned());
    }
    lines.push(String::new());
    lines.push(
        "More: `pm COMMAND --help`; docs/skills/COMMAND/SKILL.md of pm is a page for agents on each command."
            .to_owned(),
    );
    lines
}

/// A line that fits.
fn cut(line: &str) -> String {
    if line.chars().count() <= COLUMNS_MAX {
        return line.to_owned();
    }
    line.chars().take(COLUMNS_MAX - 1).chain(['…']).collect()
}
