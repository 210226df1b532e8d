//! A ledger with a fixed identity and a clock that stands still, over any store, and a store that lets somebody else in
//! at the worst moment.

use std::cell::{Cell, RefCell};

use pm::clock::Clock;
use pm::error::{Error, Result};
use pm::id::{AgentId, Oid, Queue, RecordId, RefName, TaskId};
use pm::ledger::append::Appended;
use pm::ledger::create::NewTask;
use pm::ledger::find::Found;
use pm::ledger::{Identity, Ledger};
use pm::protocol::decide::Intent;
use pm::protocol::record::{ClockReading, ContextId, Priority, Report, Task};
use pm::protocol::refusal::Refusal;
use pm::protocol::state::TaskState;
use pm::store::git::GitStore;
use pm::store::lock::Held;
use pm::store::memory::MemoryStore;
use pm::store::{Commit, Mode, Pack, Publish, RefRow, Store, StoreError, Swap};

use crate::support::Repo;

/// What runs between a decision and its swap.
type Hook<'a> = Box<dyn FnOnce() + 'a>;

/// A store that counts reads, and runs a hook when its caller asks for locks: after the decision, before the swap.
pub struct Watched<'a> {
    inner: &'a dyn Store,
    reads: Cell<usize>,
    hook: RefCell<Option<Hook<'a>>>,
    /// A hook that runs again and again.
    always: RefCell<Option<Box<dyn FnMut() + 'a>>>,
}

impl<'a> Watched<'a> {
    pub fn new(inner: &'a dyn Store) -> Watched<'a> {
        Watched { inner, reads: Cell::new(0), hook: RefCell::new(None), always: RefCell::new(None) }
    }

    /// How many objects and refs were read since the last call.
    pub fn take_reads(&self) -> usize {
        self.reads.replace(0)
    }

    /// Lets somebody in before the next swap.
    pub fn before_next_swap(&self, hook: impl FnOnce() + 'a) {
        self.hook.replace(Some(Box::new(hook)));
    }

    /// Lets somebody in before every swap.
    pub fn before_every_swap(&self, hook: impl FnMut() + 'a) {
        self.always.replace(Some(Box::new(hook)));
    }

    fn count(&self) {
        self.reads.set(self.reads.get() + 1);
    }
}

impl Store for Watched<'_> {
    fn read_commit(&self, id: Oid) -> std::result::Result<Commit, StoreError> {
        self.count();
        self.inner.read_commit(id)
    }

    fn write_commit(&self, commit: &Commit) -> std::result::Result<Oid, StoreError> {
        self.inner.write_commit(commit)
    }

    fn write_files(&self, files: &[(String, Vec<u8>)]) -> std::result::Result<Oid, StoreError> {
        self.inner.write_files(files)
    }

    fn file_names(&self, tree: Oid) -> std::result::Result<Vec<String>, StoreError> {
        self.inner.file_names(tree)
    }

    fn check(&self, id: Oid) -> std::result::Result<(), StoreError> {
        self.inner.check(id)
    }

    fn discard_commits(&self) {
        self.inner.discard_commits();
    }

    fn begin_pack(&self) -> std::result::Result<Box<dyn Pack + '_>, StoreError> {
        self.inner.begin_pack()
    }

    fn commits_with_prefix(&self, prefix: &str) -> std::result::Result<Vec<Oid>, StoreError> {
        self.inner.commits_with_prefix(prefix)
    }

    fn tip(&self, name: &RefName) -> std::result::Result<Option<Oid>, StoreError> {
        self.count();
        self.inner.tip(name)
    }

    fn tips(&self, prefix: &str) -> std::result::Result<Vec<RefRow>, StoreError> {
        self.count();
        self.inner.tips(prefix)
    }

    fn lock_while(
        &self,
        shards: &[(u8, Mode)],
        worthwhile: &dyn Fn() -> std::result::Result<bool, StoreError>,
    ) -> std::result::Result<Option<Held>, StoreError> {
        // Before the locks are taken: whoever comes in needs them, too.
        if let Some(hook) = self.hook.take() {
            hook();
        }
        if let Some(always) = self.always.borrow_mut().as_mut() {
            always();
        }
        self.inner.lock_while(shards, worthwhile)
    }

    fn compare_and_swap_with(
        &self,
        held: &Held,
        name: &RefName,
        expected: Option<Oid>,
        new: Oid,
        along: &mut dyn FnMut() -> std::result::Result<(), StoreError>,
    ) -> std::result::Result<Swap, StoreError> {
        self.inner.compare_and_swap_with(held, name, expected, new, along)
    }

    fn delete(&self, held: &Held, name: &RefName, expected: Oid) -> std::result::Result<Swap, StoreError> {
        self.inner.delete(held, name, expected)
    }

    fn move_many(&self, held: &Held, moves: &[pm::store::Move]) -> std::result::Result<Vec<bool>, StoreError> {
        self.inner.move_many(held, moves)
    }

    fn make_durable(&self, ids: &[Oid]) -> std::result::Result<(), StoreError> {
        self.inner.make_durable(ids)
    }

    fn publish(&self, held: &Held, refs: &[(RefName, Oid)]) -> std::result::Result<Publish, StoreError> {
        self.inner.publish(held, refs)
    }
}

/// A clock that stands still until it is moved.
pub struct Still {
    ms: Cell<u64>,
}

impl Still {
    pub fn new() -> Still {
        Still { ms: Cell::new(1_000_000) }
    }

    pub fn advance(&self, ms: u64) {
        self.ms.set(self.ms.get() + ms);
    }
}

impl Clock for Still {
    fn wall_micros(&self) -> i64 {
        1_796_000_000_000_000
    }

    fn monotonic(&self) -> Option<ClockReading> {
        Some(ClockReading { id: 7, ms: self.ms.get() })
    }
}

/// Everything that a ledger borrows but its store.
pub struct World {
    pub clock: Still,
    identity: Identity,
    agents: Vec<AgentId>,
    contexts: Vec<ContextId>,
}

impl World {
    pub fn new() -> World {
        let email = "ada@example.com".to_owned();
        World {
            clock: Still::new(),
            identity: Identity { committer: ("Ada".to_owned(), email.clone()), email },
            agents: ["w1", "w2", "w3", "w4", "sweeper"].map(|agent| agent.parse().expect("an agent id")).to_vec(),
            contexts: ["c1", "c2", "c3"].map(|context| context.parse().expect("a context")).to_vec(),
        }
    }

    /// The ledger as this agent sees it, who works in a context.
    pub fn ledger_in<'a>(&'a self, store: &'a dyn Store, agent: &str, context: &str) -> Ledger<'a> {
        let context = self.contexts.iter().find(|known| known.as_str() == context);
        Ledger { context: Some(context.expect("a context of this world")), ..self.ledger(store, agent) }
    }

    /// The ledger as this agent sees it.
    pub fn ledger<'a>(&'a self, store: &'a dyn Store, agent: &str) -> Ledger<'a> {
        let agent = self.agents.iter().find(|known| known.as_str() == agent).expect("an agent of this world");
        Ledger {
            store,
            clock: &self.clock,
            identity: &self.identity,
            agent,
            context: None,
            reach: pm::ledger::Reach::Alone,
        }
    }
}

/// Runs a test over both stores.
pub fn on_both_stores(check: impl Fn(&dyn Store)) {
    on_both_stores_twice(|store, _| check(store));
}

/// Runs a test over both stores, opened twice: as two processes would.
pub fn on_both_stores_twice(check: impl Fn(&dyn Store, &dyn Store)) {
    let store = MemoryStore::new();
    check(&store, &store);
    let repo = Repo::new();
    check(&open(&repo), &open(&repo));
    repo.assert_sound();
}

/// Opens a repository, in which nothing need be synced.
pub fn open(repo: &Repo) -> GitStore {
    let mut store = GitStore::discover(repo.path()).expect("usable");
    store.set_durability(pm::store::Durability::Process);
    store
}

pub fn queue() -> Queue {
    "default".parse().expect("a queue")
}

pub fn name(slug: &str) -> RefName {
    RefName::of_task(&queue(), &slug.parse().expect("a slug"))
}

/// A task by this slug, with these dependencies.
fn definition(slug: &str, depends_on: &[TaskId]) -> Task {
    Task {
        queue: queue(),
        slug: slug.parse().expect("a slug"),
        title: format!("Do {slug}"),
        created: 1_796_000_000_000_000,
        priority: Priority::default(),
        depends_on: depends_on.to_vec(),
        parent: None,
        spawned_at: None,
        verifier: None,
        sticky: false,
        workdir: None,
        ttl: None,
        max_attempts: None,
        labels: Vec::new(),
    }
}

/// A task without a text that is to be created.
pub fn new_task(slug: &str, depends_on: &[TaskId]) -> NewTask {
    NewTask { task: definition(slug, depends_on), body: None, replan_of: None }
}

/// A part of the task `parent`.
pub fn child(slug: &str, parent: TaskId) -> NewTask {
    let mut new = new_task(slug, &[]);
    new.task.parent = Some(parent);
    new
}

/// A sticky task with these dependencies.
pub fn sticky(slug: &str, depends_on: &[TaskId]) -> NewTask {
    let mut new = new_task(slug, depends_on);
    new.task.sticky = true;
    new
}

pub fn plan(ledger: &Ledger<'_>, slug: &str) -> TaskState {
    ledger.create(new_task(slug, &[])).expect("created").state
}

/// The task of the default queue with this slug, freshly read.
pub fn found(ledger: &Ledger<'_>, slug: &str) -> Found {
    let name = name(slug);
    let state = ledger.state(&name).expect("readable").expect("there");
    Found { name, state }
}

/// Carries out an intent on a freshly read task.
pub fn act(ledger: &Ledger<'_>, slug: &str, intent: Intent) -> Result<Appended> {
    ledger.append(found(ledger, slug), intent)
}

pub fn claim() -> Intent {
    Intent::Claim { ttl: None }
}

pub fn heartbeat(claim: Option<RecordId>) -> Intent {
    Intent::Heartbeat { claim, progress: None }
}

pub fn report() -> Intent {
    let report = Report { title: "Done".to_owned(), commit: None, synthetic: false, attachments: None };
    Intent::Report { claim: None, report, body: None }
}

pub fn release() -> Intent {
    Intent::Release { claim: None, reason: None }
}

pub fn finish() -> Intent {
    Intent::Finish { claim: None, done: true, note: None, verified: None }
}

pub fn reclaim() -> Intent {
    Intent::Reclaim { status: None, reason: None }
}

pub fn cancel() -> Intent {
    Intent::Cancel { reason: None }
}

pub fn replan() -> Intent {
    Intent::Replan { note: None }
}

pub fn supersede(by: TaskId) -> Intent {
    Intent::Supersede { by, note: None }
}

pub fn sweep(observed: RecordId) -> Intent {
    Intent::Sweep { observed, reason: None, max_attempts: 0 }
}

/// Moves a ref without any ledger.
pub fn publish(store: &dyn Store, slug: &str, from: &TaskState, to: &TaskState) {
    let name = name(slug);
    let held = store.lock(&[(name.shard(), Mode::Exclusive)]).expect("free");
    let swap = store.compare_and_swap(&held, &name, Some(from.tip.0), to.tip.0).expect("decided");
    assert_eq!(swap, Swap::Done);
}

/// The exit code of a refusal.
#[track_caller]
pub fn code<T: std::fmt::Debug>(result: Result<T>) -> u8 {
    let error: Error = result.expect_err("refused");
    error.exit_code().number()
}

/// The refusal of an append.
#[track_caller]
pub fn refusal(result: Result<Appended>) -> Refusal {
    match result.expect_err("refused") {
        Error::Refused { refusal, .. } => refusal,
        other => panic!("not refused by a rule: {other:?}"),
    }
}
