//! `pm show`: everything about one task.

use serde_json::{Value, json};

use super::{TaskArgs, Watch, blocked_by, waits};
use crate::error::{Error, Result};
use crate::id::{RecordId, TaskId};
use crate::ledger::Ledger;
use crate::ledger::find::Found;
use crate::ledger::graph::Reliance;
use crate::ledger::resolve::{place, prefix};
use crate::output::{counted, span};
use crate::protocol::codec::subject;
use crate::protocol::graph::Graph;
use crate::protocol::record::{Content, Phase, Record, Report};
use crate::protocol::state::TaskState;
use crate::protocol::view::{self, Moment};
use crate::session::Session;
use crate::store::StoreError;

/// Show everything about one task
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    task: TaskArgs,
}

/// The records of a chain by kind, oldest first.
#[derive(Default)]
struct Life {
    task: Option<(RecordId, Record)>,
    statuses: Vec<(RecordId, Record)>,
    reports: Vec<(RecordId, Record, Vec<String>)>,
    heartbeats: usize,
    newest_heartbeat: Option<(RecordId, Record)>,
}

impl Args {
    /// Shows it.
    ///
    /// # Errors
    /// 17, 19.
    pub fn run(&self, session: &Session) -> Result<()> {
        let ledger = session.ledger();
        let found = self.task.find(session, &ledger)?;
        let life = read(session, &ledger, &found)?;
        let state = &found.state;
        let blocked_by = blocked_by(&ledger, state)?;
        let moment = Watch::new(session).moment(&found.name, state, blocked_by);
        let kin = if session.out.is_json() { Kin::default() } else { Kin::of(&ledger, state, &life)? };
        session.out.result(|| to_json(&found, &life, &moment), || to_text(session, &found, &life, &moment, &kin));
        Ok(())
    }
}

/// The tasks that belong to one, for people: each with how it stands.
#[derive(Default)]
struct Kin {
    parent: Option<String>,
    children: Option<String>,
    successor: Option<String>,
    replaces: Option<String>,
}

impl Kin {
    fn of(ledger: &Ledger<'_>, state: &TaskState, life: &Life) -> Result<Kin> {
        let first = life.statuses.first().and_then(|(_, record)| match &record.content {
            Content::Status(status) => status.replan_of,
            _ => None,
        });
        Ok(Kin {
            parent: state.task.parent.map(|id| told(ledger, id, true)).transpose()?,
            children: children(ledger, state)?,
            successor: state.superseded_by().map(|id| told(ledger, id, true)).transpose()?,
            replaces: first.map(|id| told(ledger, id, false)).transpose()?,
        })
    }
}

/// A task that another one names, and with `follow` what stands for it now.
fn told(ledger: &Ledger<'_>, id: TaskId, follow: bool) -> Result<String> {
    let of =
        |found: &Found| format!("{} ({})", place(&found.state), found.state.phase().map_or("no status", Phase::as_str));
    let named = ledger.find_by_task_id(id).and_then(|found| {
        let stands = ledger.successor(id, &mut Reliance::default())?;
        Ok((found, stands.filter(|stands| follow && stands.state.id != id)))
    });
    match named {
        Ok((Some(found), None)) => Ok(of(&found)),
        Ok((Some(found), Some(stands))) => Ok(format!("{}, now {}", of(&found), of(&stands))),
        Ok((None, _)) => Ok(format!("{id} (missing)")),
        Err(Error::Damaged { .. } | Error::Store(StoreError::BrokenRef { .. })) => Ok(format!("{id} (damaged)")),
        Err(error) => Err(error),
    }
}

/// How many children a task has in each phase; `None` where it has none.
fn children(ledger: &Ledger<'_>, state: &TaskState) -> Result<Option<String>> {
    let scan = ledger.scan(&prefix(Some(&state.task.queue)))?;
    let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
    let children = graph.find(state.id).map_or(&[][..], |at| graph.children(at));
    let count = |phase: Phase| {
        let count = children.iter().filter(|at| graph.tasks()[**at].phase() == Some(phase)).count();
        (count > 0).then(|| format!("{count} {phase}"))
    };
    let counts: Vec<String> = Phase::ALL.into_iter().filter_map(count).collect();
    Ok((!counts.is_empty()).then(|| counts.join(", ")))
}

fn read(session: &Session, ledger: &Ledger<'_>, found: &Found) -> Result<Life> {
    use crate::store::Store;
    let mut life = Life::default();
    for row in ledger.chain(&found.name, found.state.tip) {
        let (id, record) = row?;
        match &record.content {
            Content::Task(_) => life.task = Some((id, record)),
            Content::Status(_) => life.statuses.push((id, record)),
            Content::Report(report) => {
                let names = report.attachments.map_or(Ok(Vec::new()), |tree| session.store.file_names(tree))?;
                life.reports.push((id, record, names));
            }
            Content::Heartbeat(_) => {
                life.heartbeats += 1;
                life.newest_heartbeat.get_or_insert((id, record));
            }
        }
    }
    life.statuses.reverse();
    life.reports.reverse();
    Ok(life)
}

fn to_json(found: &Found, life: &Life, moment: &Moment) -> Value {
    let record = |(id, record): &(RecordId, Record)| view::record(*id, record, &[]);
    json!({
        "task": life.task.as_ref().map(record),
        "state": view::state(&found.state, moment),
        "tip": found.state.tip,
        "ref": found.name,
        "statuses": life.statuses.iter().map(record).collect::<Vec<_>>(),
        "reports": life.reports.iter().map(|(id, r, names)| view::record(*id, r, names)).collect::<Vec<_>>(),
        "heartbeats": life.newest_heartbeat.iter().map(record).collect::<Vec<_>>(),
        "heartbeat_count": life.heartbeats,
    })
}

fn to_text(session: &Session, found: &Found, life: &Life, moment: &Moment, kin: &Kin) -> String {
    let state = &found.state;
    let mut lines = vec![
        format!("{}  {}", place(state), state.task.title),
        format!("task      {}", state.id),
        format!("status    {}", session.out.phase(state.phase()).trim_end()),
    ];
    let mut field = |name: &str, value: String| lines.push(format!("{name:<9} {value}"));
    if let Some(claim) = state.claim() {
        field("holder", format!("{} (claim {}, fence {})", claim.holder, claim.id, claim.seq));
        let age = moment.age_ms.map_or("unknown".to_owned(), span);
        let left = moment.lease_left_ms.map_or("unknown".to_owned(), span);
        field("lease", format!("{left} left, newest record {age} ago"));
    }
    if !moment.blocked_by.is_empty() {
        field("waits for", waits(&moment.blocked_by, None).join(", "));
    }
    let task = &state.task;
    let mut known = |name: &str, value: Option<String>| value.into_iter().for_each(|value| field(name, value));
    known("successor", kin.successor.clone());
    known("replaces", kin.replaces.clone());
    known("parent", kin.parent.clone());
    known("children", kin.children.clone());
    let bound = state.context().map_or("not bound yet".to_owned(), |context| format!("bound to {context}"));
    known("sticky", task.sticky.then_some(bound));
    known("verifier", task.verifier.as_ref().map(|verifier| verifier.lines().collect::<Vec<_>>().join("\n          ")));
    known("workdir", task.workdir.clone());
    known("ttl", task.ttl.map(|ttl| ttl.to_string()));
    let attempts = |most: u32| match most {
        0 => "any number of sweeps".to_owned(),
        most => format!("rejected after {} in a row without a report", counted(most, "sweep")),
    };
    known("attempts", task.max_attempts.map(attempts));
    field("priority", task.priority.get().to_string());
    if !state.task.labels.is_empty() {
        let labels: Vec<_> = state.task.labels.iter().map(|label| label.as_str()).collect();
        field("labels", labels.join(", "));
    }
    if !state.task.depends_on.is_empty() {
        field("after", state.task.depends_on.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n          "));
    }
    field("ref", found.name.to_string());
    if let Some(body) = life.task.as_ref().and_then(|(_, record)| record.body.as_ref()) {
        lines.push(String::new());
        lines.extend(body.lines().map(|line| format!("    {line}")));
    }
    lines.push(String::new());
    for (id, record) in &life.statuses {
        let reason = match &record.content {
            Content::Status(status) => status.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}")),
            _ => String::new(),
        };
        lines.push(format!("{}  {}  {}{reason}", id.0.short(12), view::time(record.at), subject(record)));
        lines.extend(view::verdict(record).iter().map(|line| format!("    {line}")));
    }
    for (id, record, names) in &life.reports {
        lines.push(String::new());
        lines.push(format!("report {id} by {}, {}", record.agent, view::time(record.at)));
        lines.push(format!("    {}", subject(record)));
        lines.extend(record.body.iter().flat_map(|body| body.lines()).map(|line| format!("    {line}")));
        if let Content::Report(Report { commit: Some(commit), .. }) = &record.content {
            lines.push(format!("    commit: {commit}"));
        }
        lines.extend(names.iter().map(|name| format!("    attached: git show {id}:{name}")));
    }
    if let Some((_, newest)) = &life.newest_heartbeat {
        lines.push(String::new());
        lines.push(format!(
            "{} heartbeats, the newest by {} at {}",
            life.heartbeats,
            newest.agent,
            view::time(newest.at)
        ));
    }
    lines.join("\n")
}
