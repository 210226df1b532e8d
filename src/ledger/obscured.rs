//! What chains that cannot be read may hide from a decision about another task (rules 8 and 9).
//!
//! What must never happen here: a chain that cannot be read counts as if it were not there. What can be read of it may show
//! that it does not matter; else nobody knows.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use super::Ledger;
use super::resolve::Damage;
use crate::commit::Commit;
use crate::error::{Error, Result};
use crate::id::{Oid, RecordId, RefName, TaskId};
use crate::protocol::codec;
use crate::protocol::record::{Content, Task};
use crate::protocol::refusal::Unread;
use crate::protocol::state::TaskState;
use crate::store::StoreError;

/// What is wrong with the chain that an error tells of.
///
/// # Errors
/// The error itself, where it is a failure of the system.
pub(super) fn unread(error: Error) -> Result<Unread> {
    match error {
        Error::Damaged { name, commit, found } => Ok(Unread { name, found: format!("commit {commit}: {found}") }),
        Error::Store(StoreError::BrokenRef { name, found }) => {
            Ok(Unread { name, found: format!("the ref does not hold an object id (found '{found}')") })
        }
        error => Err(error),
    }
}

impl Ledger<'_> {
    /// The definition of the task at `name`, where the ref has this tip, if it is a child. Read from the tip and the first
    /// record alone.
    ///
    /// # Errors
    /// `Damaged` and `BrokenRef` where the chain does not tell; failures of the system.
    pub(crate) fn child_at(
        &self,
        name: &RefName,
        tip: std::result::Result<Oid, StoreError>,
    ) -> Result<Option<Box<Task>>> {
        // No pm has ever planned a task at a ref that is no task's.
        let Ok((queue, slug)) = name.task() else { return Ok(None) };
        let (id, first) = self.first_of(name, tip)?;
        let is = |key, value| codec::glance(&first, key) == Some(value);
        // Most tasks have no parent, and decoding all of them takes longer than reading them.
        if is("Record", "Task")
            && is("Format", "1")
            && is("Queue", queue.as_str())
            && is("Slug", slug.as_str())
            && codec::glance(&first, "Parent").is_none()
        {
            return Ok(None);
        }
        self.definition(name, id, &first).map(|task| task.parent.is_some().then_some(task))
    }

    /// The first record of a chain, by what its tip says.
    fn first_of(&self, name: &RefName, tip: std::result::Result<Oid, StoreError>) -> Result<(RecordId, Commit)> {
        let tip = RecordId(tip?);
        let newest = self.commit_of(name, tip)?;
        if codec::glance(&newest, "Record") == Some("Task") {
            return Ok((tip, newest));
        }
        let named = codec::glance(&newest, "Task").and_then(|first| first.parse().ok()).map(RecordId);
        let no_record = || Error::Damaged {
            name: name.clone(),
            commit: tip,
            found: "it is no record of pm, and names no task".to_owned(),
        };
        let first = named.ok_or_else(no_record)?;
        Ok((first, self.commit_of(name, first)?))
    }

    fn commit_of(&self, name: &RefName, id: RecordId) -> Result<Commit> {
        let damaged = |id, found| Error::Damaged { name: name.clone(), commit: RecordId(id), found };
        self.store.read_commit(id.0).map_err(|error| match error {
            StoreError::Missing { id } => damaged(id, "the object is missing".to_owned()),
            StoreError::Damaged { id, found } => damaged(id, found),
            error => error.into(),
        })
    }

    /// What the first record of the chain at `name` says of its task.
    fn definition(&self, name: &RefName, id: RecordId, first: &Commit) -> Result<Box<Task>> {
        let damaged = |found| Error::Damaged { name: name.clone(), commit: id, found };
        match self.decode(name, id, first)?.content {
            Content::Task(task) if RefName::of_task(&task.queue, &task.slug) == *name => Ok(task),
            Content::Task(task) => {
                Err(damaged(format!("its chain belongs to {}", RefName::of_task(&task.queue, &task.slug))))
            }
            other => Err(damaged(format!("a {} where a Task should be", other.kind()))),
        }
    }

    /// Whether a task was made to take the place of another, as only its first status tells. Walks back over the statuses:
    /// for whoever has met damage, and for nobody else.
    ///
    /// # Errors
    /// `Damaged`; failures of the system.
    pub(super) fn is_replacement(&self, state: &TaskState) -> Result<bool> {
        let name = RefName::of_task(&state.task.queue, &state.task.slug);
        let mut next = state.status.as_ref().map(|at| at.id);
        while let Some(id) = next {
            let record = self.record(&name, id)?;
            if matches!(&record.content, Content::Status(status) if status.replan_of.is_some()) {
                return Ok(true);
            }
            next = record.links.status;
        }
        Ok(false)
    }

    /// The id and the definition of the task whose chain is damaged, where its tip leads to them.
    ///
    /// # Errors
    /// Failures of the system.
    pub(super) fn definition_of(&self, damage: &Damage) -> Result<Option<(TaskId, Box<Task>)>> {
        let Some(tip) = self.store.tip(&damage.name).transpose() else { return Ok(None) };
        let first = self.first_of(&damage.name, tip);
        let task = first.and_then(|(id, first)| Ok((id.as_task(), self.definition(&damage.name, id, &first)?)));
        match task {
            Ok(task) => Ok(Some(task)),
            Err(error) => unread(error).map(|_| None),
        }
    }
}

/// The damaged chains of a ledger, by what they may tie together.
#[derive(Debug, Default)]
pub(super) struct Obscuring {
    /// Which group a task is of. Whatever is tied is of one group, as far as chains can be read.
    group: HashMap<TaskId, usize>,
    /// Damaged chains whose group is known.
    grouped: HashMap<usize, Vec<Unread>>,
    /// The others.
    adrift: Vec<Unread>,
}

impl Obscuring {
    /// Of all tasks, and what is damaged among them.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn new(ledger: &Ledger<'_>, tasks: &[(RefName, TaskState)], damaged: &[Damage]) -> Result<Obscuring> {
        let mut found = Obscuring::default();
        let mut lost: HashMap<&RefName, Unread> = HashMap::new();
        for damage in damaged.iter().filter(|damage| damage.name.task().is_ok()) {
            lost.insert(&damage.name, told(damage));
        }
        if lost.is_empty() {
            return Ok(found);
        }
        let mut links: HashMap<TaskId, Vec<TaskId>> = HashMap::new();
        for (_, state) in tasks {
            let more = state.superseded_by().into_iter().chain(state.replan_of());
            link(&mut links, state.id, named_by(&state.task).chain(more));
        }
        let mut known: Vec<(TaskId, Unread)> = Vec::new();
        for damage in damaged {
            if let Some((id, task)) = ledger.definition_of(damage)?
                && let Some(unread) = lost.remove(&damage.name)
            {
                link(&mut links, id, named_by(&task));
                known.push((id, unread));
            }
        }
        // A tip that is gone names nothing; but others may name the first record, which may be there. (It may also have lost
        // the race for that ref, so the chain stays adrift.)
        let here: HashSet<TaskId> = tasks.iter().map(|(_, state)| state.id).collect();
        let elsewhere: Vec<TaskId> = links.keys().filter(|id| !here.contains(id)).copied().collect();
        for id in elsewhere {
            if !lost.is_empty()
                && let Some(name) = ledger.ref_of(id)?
                && let Some(unread) = lost.get(&name)
            {
                let first = ledger.commit_of(&name, id.record())?;
                link(&mut links, id, named_by(&*ledger.definition(&name, id.record(), &first)?));
                known.push((id, unread.clone()));
            }
        }
        found.group = groups(&links);
        for (id, unread) in known {
            found.grouped.entry(found.group[&id]).or_default().push(unread);
        }
        found.adrift = lost.into_values().collect();
        Ok(found)
    }

    /// What may tie a sticky task to others, and cannot be read: what belongs to it as far as chains tell, and what does not
    /// tell where it belongs, in its own queue. (One of another queue whose every trace is gone is taken to be a stranger:
    /// else one damaged chain would hold up all queues.)
    pub fn ties(&self, state: &TaskState) -> Vec<Unread> {
        let own = self.group.get(&state.id).and_then(|group| self.grouped.get(group));
        let mut ties = own.cloned().unwrap_or_default();
        let queue = RefName::queue_prefix(&state.task.queue);
        let adrift = self.adrift.iter().filter(|unread| unread.name.as_str().starts_with(&queue));
        ties.extend(adrift.cloned());
        ties.sort_by(|a, b| a.name.cmp(&b.name));
        ties.dedup();
        ties
    }
}

fn told(damage: &Damage) -> Unread {
    match &damage.error {
        Error::Damaged { commit, found, .. } => {
            Unread { name: damage.name.clone(), found: format!("commit {commit}: {found}") }
        }
        error => Unread { name: damage.name.clone(), found: error.to_string() },
    }
}

/// The tasks that a task names.
fn named_by(task: &Task) -> impl Iterator<Item = TaskId> {
    task.depends_on.iter().copied().chain(task.parent)
}

/// Notes links, both ways.
fn link(links: &mut HashMap<TaskId, Vec<TaskId>>, id: TaskId, others: impl Iterator<Item = TaskId>) {
    links.entry(id).or_default();
    for other in others {
        links.entry(id).or_default().push(other);
        links.entry(other).or_default().push(id);
    }
}

/// Which tasks are linked, step by step: a number for each group.
fn groups(links: &HashMap<TaskId, Vec<TaskId>>) -> HashMap<TaskId, usize> {
    let mut group: HashMap<TaskId, usize> = HashMap::new();
    for (number, id) in links.keys().enumerate() {
        let mut next = vec![*id];
        while let Some(id) = next.pop() {
            if let Entry::Vacant(unknown) = group.entry(id) {
                unknown.insert(number);
                next.extend(&links[&id]);
            }
        }
    }
    group
}
