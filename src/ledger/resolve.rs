//! From a ref to the state of its task, in at most four object reads.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Ledger;
use crate::commit::Commit;
use crate::error::{Error, Place, Result};
use crate::id::{Oid, RecordId, RefName, TASKS};
use crate::protocol::codec::{self, DecodeError};
use crate::protocol::record::Record;
use crate::protocol::state::{self, BrokenLink, TaskState};
use crate::store::{RefRow, StoreError};

/// So many tasks are worth a thread of their own. Fewer only where all of them are packed: a thousand tasks with loose
/// records take a fifth longer on two threads, probably since each file that is mapped or unmapped holds the other one up.
const ROWS_A_THREAD: usize = 2_000;

/// A task whose chain cannot be read: named, never skipped in silence.
#[derive(Debug)]
pub struct Damage {
    /// The ref.
    pub name: RefName,
    /// What is wrong.
    pub error: Error,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} was left out: {}", self.name, self.error)
    }
}

/// All tasks below a prefix, and the ones that cannot be read.
#[derive(Debug, Default)]
pub struct Scan {
    /// The readable tasks, by ref name.
    pub tasks: Vec<(RefName, TaskState)>,
    /// The others.
    pub damaged: Vec<Damage>,
}

/// Why a record cannot be read.
enum Fault {
    Store(StoreError),
    Decode(RecordId, DecodeError),
    Link(BrokenLink),
}

impl From<BrokenLink> for Fault {
    fn from(link: BrokenLink) -> Self {
        Fault::Link(link)
    }
}

impl Fault {
    /// Turns it into the error of the task at `name`.
    fn at(self, name: &RefName, tip: RecordId) -> Error {
        let damaged = |commit, found: String| Error::Damaged { name: name.clone(), commit, found };
        match self {
            Fault::Store(StoreError::Missing { id }) => damaged(RecordId(id), "the object is missing".to_owned()),
            Fault::Store(StoreError::Damaged { id, found }) => damaged(RecordId(id), found),
            Fault::Store(other) => Error::Store(other),
            Fault::Decode(commit, error) => damaged(commit, error.to_string()),
            Fault::Link(link) if link.record == tip => damaged(tip, link.found),
            Fault::Link(link) => damaged(link.record, link.found),
        }
    }
}

/// Fetches one commit.
type ReadCommit<'a> = &'a dyn Fn(Oid) -> std::result::Result<Commit, StoreError>;

fn try_record(read: ReadCommit<'_>, id: RecordId) -> std::result::Result<Record, Fault> {
    let commit = read(id.0).map_err(Fault::Store)?;
    codec::decode(&commit).map_err(|error| Fault::Decode(id, error))
}

/// The state of the task at `name`, whose tip was read already.
fn state_at(read: ReadCommit<'_>, name: &RefName, tip: RecordId) -> Result<TaskState> {
    let state = try_record(read, tip)
        .and_then(|record| state::from_tip(tip, &record, |id| try_record(read, id)))
        .map_err(|fault| fault.at(name, tip))?;
    check_place(name, &state)?;
    Ok(state)
}

/// A chain is valid only under the ref that its own Task record names (design, section 2).
pub(super) fn check_place(name: &RefName, state: &TaskState) -> Result<()> {
    let named = RefName::of_task(&state.task.queue, &state.task.slug);
    if named == *name {
        return Ok(());
    }
    let found = format!("its chain belongs to {named}, this ref is a second one for it");
    Err(Error::Damaged { name: name.clone(), commit: state.tip, found })
}

/// One row of a listing, read.
type Row = (RefName, Result<TaskState>);

fn read_row(read: ReadCommit<'_>, (name, tip): RefRow) -> Row {
    let state = tip.map_err(Error::Store).and_then(|tip| state_at(read, &name, RecordId(tip)));
    (name, state)
}

impl Scan {
    /// Adds a row. A failure of the system is not the task's fault: it ends the listing.
    fn add(&mut self, (name, state): Row) -> Result<()> {
        match state {
            Ok(state) => self.tasks.push((name, state)),
            Err(error @ (Error::Damaged { .. } | Error::Store(StoreError::BrokenRef { .. }))) => {
                self.damaged.push(Damage { name, error });
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Ledger<'_> {
    /// One record of the task at `name`.
    ///
    /// # Errors
    /// `Damaged` where it is missing or no record.
    pub fn record(&self, name: &RefName, id: RecordId) -> Result<Record> {
        try_record(&|id| self.store.read_commit(id), id).map_err(|fault| fault.at(name, id))
    }

    /// The record of a commit that has been read already.
    pub(super) fn decode(&self, name: &RefName, id: RecordId, commit: &Commit) -> Result<Record> {
        codec::decode(commit).map_err(|error| Fault::Decode(id, error).at(name, id))
    }

    /// The state of the task at `name`; `None` where there is no such ref.
    pub fn state(&self, name: &RefName) -> Result<Option<TaskState>> {
        match self.store.tip(name)? {
            Some(tip) => self.state_at(name, RecordId(tip)).map(Some),
            None => Ok(None),
        }
    }

    /// The state of the task at `name`, whose tip was read already.
    pub fn state_at(&self, name: &RefName, tip: RecordId) -> Result<TaskState> {
        state_at(&|id| self.store.read_commit(id), name, tip)
    }

    /// Reads every task below `prefix` (which ends in `/`).
    pub fn scan(&self, prefix: &str) -> Result<Scan> {
        let scan = self.scan_until(prefix, &|| false)?;
        Ok(scan.expect("nothing stops it"))
    }

    /// As [`Ledger::scan`], but for `stop`, which is asked between the tasks: `None` after a yes. Large listings are read
    /// on several threads.
    pub fn scan_until(&self, prefix: &str, stop: &dyn Fn() -> bool) -> Result<Option<Scan>> {
        let mut own = self.store.tips(prefix)?;
        let open = self.store.reader();
        let mut scan = Scan::default();
        let is_stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut others = Vec::new();
            if let Some(open) = &open {
                for part in split_off_parts(&mut own) {
                    let is_stopped = &is_stopped;
                    others.push(scope.spawn(move || {
                        let reader = open();
                        let goes_on = |_: &RefRow| !is_stopped.load(Ordering::Relaxed);
                        part.into_iter()
                            .take_while(goes_on)
                            .map(|row| read_row(&|id| reader.read_commit(id), row))
                            .collect::<Vec<Row>>()
                    }));
                }
            }
            for row in own {
                if stop() {
                    is_stopped.store(true, Ordering::Relaxed);
                    return Ok(None);
                }
                scan.add(read_row(&|id| self.store.read_commit(id), row))?;
            }
            for part in others {
                for (name, state) in part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                    // What another thread could not read, the store itself may: it puts back what a gc deleted.
                    let state = match state {
                        Err(error @ Error::Damaged { .. }) => self.state(&name).and_then(|again| again.ok_or(error)),
                        state => state,
                    };
                    scan.add((name, state))?;
                }
            }
            Ok(Some(scan))
        })
    }
}

/// Takes the later parts of a long listing away, in order, one for each further thread that is worth it.
fn split_off_parts(rows: &mut Vec<RefRow>) -> Vec<Vec<RefRow>> {
    let most = rows.len() / ROWS_A_THREAD;
    if most < 2 {
        return Vec::new();
    }
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(most);
    let share = rows.len().div_ceil(threads);
    let mut parts = Vec::with_capacity(threads);
    while rows.len() > share {
        // The first part, which stays, may be the short one: it is read by the thread that collects the others.
        parts.push(rows.split_off(rows.len() - share));
    }
    parts.reverse();
    parts
}

/// The prefix of the refs of a queue, or of all tasks.
pub fn prefix(queue: Option<&crate::id::Queue>) -> String {
    match queue {
        Some(queue) => RefName::queue_prefix(queue),
        None => TASKS.to_owned(),
    }
}

/// The prefixes of the refs of some queues; of all, where none is named.
pub fn prefixes(queues: &[crate::id::Queue]) -> Vec<String> {
    match queues {
        [] => vec![prefix(None)],
        queues => queues.iter().map(|queue| prefix(Some(queue))).collect(),
    }
}

/// The place of a task.
pub fn place(state: &TaskState) -> Place {
    Place { queue: state.task.queue.clone(), slug: state.task.slug.clone() }
}
