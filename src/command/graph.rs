//! `pm graph`: what waits for what, as a tree, as data, or to be drawn by others.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::{Watch, damaged_json, held, hint_elsewhere, list_entry, warn_damaged};
use crate::drawing::choice::{Choice, Wish, choose};
use crate::drawing::{Edge, Kind, Node, Picture, dot, mermaid, tree};
use crate::error::{Error, Result};
use crate::id::{Queue, RefName};
use crate::ledger::neighbours::Neighbours;
use crate::ledger::resolve::{Scan, place, prefix};
use crate::protocol::decide::Others;
use crate::protocol::graph::{Graph, Index, Stand};
use crate::protocol::record::Phase;
use crate::protocol::refusal::Wait;
use crate::protocol::state::TaskState;
use crate::protocol::view::Moment;
use crate::session::Session;

/// How many tasks are shown to people who did not say how many.
const LIMIT: usize = 500;

/// Show what waits for what, and the critical path
///
/// Children stand below their parents; under each task, what it waits for, what it came after, and what comes after it. The
/// critical path is the longest chain of open tasks that can only be finished one after the other. With --queue, what other
/// queues have to do with its tasks is there, too. A superseded task is left out, and its successor stands in its place.
/// Reads only.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The queue; else all queues
    #[arg(long, value_name = "QUEUE")]
    queue: Option<Queue>,
    /// Print it for Graphviz: `pm graph --dot | dot -Tsvg`. Arrows lead from a dependency to what waits for it
    #[arg(long, conflicts_with = "mermaid")]
    dot: bool,
    /// Print it for Mermaid, as Markdown has it in many places. Arrows lead from a dependency to what waits for it
    #[arg(long)]
    mermaid: bool,
    /// Superseded tasks, too
    #[arg(long)]
    all: bool,
    /// At most so many tasks, open ones first; says so when it cuts. The tree has at most 500 unless this is given
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl Args {
    /// Shows it.
    ///
    /// # Errors
    /// 2 for JSON together with another language; failures of the system. Tasks that cannot be read are named beside it.
    pub fn run(&self, session: &Session) -> Result<()> {
        let is_text = !(self.dot || self.mermaid || session.out.is_json());
        if session.out.is_json() && (self.dot || self.mermaid) {
            return Err(Error::Usage("--json is a form of its own: leave --dot and --mermaid out".to_owned()));
        }
        let ledger = session.ledger();
        // Also for one queue: what its tasks have to do with may be anywhere.
        let mut scan = ledger.scan(&prefix(None))?;
        scan.damaged.retain(|damage| damage.name.as_str().starts_with(&prefix(self.queue.as_ref())));
        let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
        let mut neighbours = Neighbours::new(&ledger, &scan.tasks);
        let limit = self.limit.unwrap_or(if is_text { LIMIT } else { usize::MAX });
        let wish = Wish { queue: self.queue.as_ref(), superseded: self.all, limit };
        let choice = choose(&graph, wish);
        let watch = Watch::new(session);
        let mut told = Vec::new();
        for at in &choice.shown {
            let (name, state) = &scan.tasks[*at];
            let is_new = state.phase() == Some(Phase::New);
            let others = if is_new { neighbours.before_a_claim(state) } else { Others::default() };
            told.push(watch.moment(name, state, others.waits()));
        }
        neighbours.finish()?;
        let seen = Seen::new(&graph, &scan.tasks, &choice, told);
        let picture = seen.picture();
        warn_damaged(&session.out, &scan.damaged);
        hint_elsewhere(session, self.queue.as_ref(), &scan)?;
        if !choice.circle.is_empty() {
            let names: Vec<String> = choice.circle.iter().map(|at| place(&scan.tasks[*at].1).to_string()).collect();
            session.out.warning(&format!("these wait for each other in a circle: {}", names.join(" -> ")));
        }
        if self.mermaid && picture.edges.len() > mermaid::EDGES_MAX {
            let (edges, most) = (picture.edges.len(), mermaid::EDGES_MAX);
            session.out.note(&format!("{edges} edges: Mermaid draws {most} at most, unless its maxEdges is raised"));
        }
        session.out.result(
            || seen.to_json(&scan),
            || match (self.dot, self.mermaid) {
                (true, _) => dot::draw(&picture),
                (_, true) => mermaid::draw(&picture),
                _ => tree::draw(&picture, &|phase| session.out.phase(phase)),
            },
        );
        Ok(())
    }
}

/// What was read and chosen, and what only now is known about it.
struct Seen<'a> {
    graph: &'a Graph<'a>,
    tasks: &'a [(RefName, TaskState)],
    choice: &'a Choice,
    /// Of each task that is shown.
    moments: Vec<Moment>,
    /// Where each task that is shown stands among them.
    places: HashMap<Index, usize>,
}

impl<'a> Seen<'a> {
    fn new(
        graph: &'a Graph<'a>,
        tasks: &'a [(RefName, TaskState)],
        choice: &'a Choice,
        moments: Vec<Moment>,
    ) -> Seen<'a> {
        let places = choice.shown.iter().enumerate().map(|(place, at)| (*at, place)).collect();
        Seen { graph, tasks, choice, moments, places }
    }

    fn state(&self, at: Index) -> &'a TaskState {
        &self.tasks[at].1
    }

    /// Each task that is shown, with what only now is known about it.
    fn shown(&self) -> impl Iterator<Item = (Index, &'a TaskState, &Moment)> {
        self.choice.shown.iter().zip(&self.moments).map(|(at, moment)| (*at, self.state(*at), moment))
    }

    fn edges(&self) -> Vec<Edge> {
        let steps: HashSet<(Index, Index)> =
            self.choice.critical_path.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let mut edges = Vec::new();
        for (to, at) in self.choice.shown.iter().enumerate() {
            let mut edge = |from: Index, kind: Kind| {
                if let Some(from_place) = self.places.get(&from) {
                    // From a child to its parent the path goes against the edge.
                    let is_critical = steps.contains(&(from, *at)) || steps.contains(&(*at, from));
                    edges.push(Edge { from: *from_place, to, kind, is_critical });
                }
            };
            self.graph.dependencies(*at).iter().for_each(|from| edge(*from, Kind::Dependency));
            self.graph.parent(*at).into_iter().for_each(|from| edge(from, Kind::Parent));
        }
        for (from, at) in self.choice.shown.iter().enumerate() {
            let successor = self.state(*at).superseded_by().and_then(|id| self.graph.find(id));
            if let Some(to) = successor.and_then(|successor| self.places.get(&successor)) {
                edges.push(Edge { from, to: *to, kind: Kind::Successor, is_critical: false });
            }
        }
        edges
    }

    fn picture(&self) -> Picture {
        let of = |at: &Index| place(self.state(*at));
        let critical_path: HashSet<Index> = self.choice.critical_path.iter().copied().collect();
        let node = |(at, state, moment): (Index, &TaskState, &Moment)| {
            let waited_for: HashSet<_> = moment.blocked_by.iter().filter_map(|wait| wait.on.place.clone()).collect();
            let is_past = |at: &&Index| {
                let task = &self.state(**at).task;
                !waited_for.contains(&(task.queue.clone(), task.slug.clone()))
            };
            let after = self.graph.dependencies(at).iter().filter(is_past);
            Node {
                place: place(state),
                title: state.task.title.clone(),
                phase: state.phase(),
                notes: self.notes(state, moment),
                parent: self.graph.parent(at).and_then(|parent| self.places.get(&parent).copied()),
                waits_for: moment.blocked_by.clone(),
                after: after.map(|at| (of(at), self.state(*at).phase())).collect(),
                before: self.graph.dependents(at).iter().map(of).collect(),
                is_critical: critical_path.contains(&at),
            }
        };
        Picture {
            nodes: self.shown().map(node).collect(),
            edges: self.edges(),
            critical_path: self.choice.critical_path.iter().map(of).collect(),
            total: self.choice.members.len(),
        }
    }

    /// What is said of a task besides.
    fn notes(&self, state: &TaskState, moment: &Moment) -> Vec<String> {
        let mut notes: Vec<String> = held(state, moment).into_iter().collect();
        if state.task.sticky {
            let bound = state.context().map_or("sticky".to_owned(), |context| format!("sticky, bound to {context}"));
            notes.push(bound);
        }
        if let Some(id) = state.superseded_by() {
            let by = self.graph.find(id).map_or(id.to_string(), |at| place(self.state(at)).to_string());
            notes.push(format!("superseded by {by}"));
        }
        notes
    }

    fn to_json(&self, scan: &Scan) -> Value {
        let standing = |id| match self.graph.stand(id) {
            Stand::Here(at) => self.state(at).id,
            Stand::Elsewhere(id) => id,
        };
        let wait = |wait: &Wait| {
            let (queue, slug) = wait.on.place.clone().unzip();
            json!({"task": wait.on.task, "queue": queue, "slug": slug, "status": wait.on.phase.map(Phase::as_str),
                   "as": wait.role.as_str()})
        };
        let entry = |(at, state, moment): (Index, &TaskState, &Moment)| {
            let children: Vec<_> = self.graph.children(at).iter().map(|at| self.state(*at).id).collect();
            let mut value = list_entry(state, moment);
            value["sticky"] = json!(state.task.sticky);
            value["parent"] = json!(state.task.parent.map(standing));
            value["depends_on"] = json!(state.task.depends_on.iter().copied().map(standing).collect::<Vec<_>>());
            value["children"] = json!(children);
            value["waits_for"] = json!(moment.blocked_by.iter().map(wait).collect::<Vec<_>>());
            value["superseded_by"] = json!(state.superseded_by());
            value
        };
        let id = |place: usize| self.state(self.choice.shown[place]).id;
        let edge = |edge: &Edge| json!({"from": id(edge.from), "to": id(edge.to), "kind": edge.kind.as_str()});
        let critical_path: Vec<_> = self.choice.critical_path.iter().map(|at| self.state(*at).id).collect();
        json!({"tasks": self.shown().map(entry).collect::<Vec<_>>(),
               "edges": self.edges().iter().map(edge).collect::<Vec<_>>(),
               "critical_path": critical_path,
               "total": self.choice.members.len(),
               "truncated": self.choice.shown.len() < self.choice.members.len(),
               "damaged": damaged_json(&scan.damaged)})
    }
}
