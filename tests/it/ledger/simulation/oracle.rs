//! The rules about many tasks, written down once more: from the design, with plain vectors, and without a look at how pm
//! answers. Slow, and meant to be checked by eye.

use std::cell::RefCell;
use std::collections::BTreeSet;

use pm::protocol::record::Phase;

/// A task's place in the order of planning.
pub type At = usize;

/// A task, as far as the rules look at it.
#[derive(Debug, Clone)]
pub struct Task {
    pub queue: usize,
    pub parent: Option<At>,
    pub depends_on: Vec<At>,
    pub sticky: bool,
    pub verifier: bool,
    /// The task that it is to replace, as long as that is open.
    pub replaces: Option<At>,
    pub phase: Phase,
    pub holder: Option<&'static str>,
    pub context: Option<&'static str>,
    /// Reports under the claim.
    pub reports: usize,
    pub successor: Option<At>,
}

/// What is said of the verifier when a task is to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    Nothing,
    Passed,
    Failed,
    /// Skipped, with a reason of ten characters.
    Skipped,
    /// Skipped, with a reason of nine.
    Unsaid,
    /// Passed, on a report that is not the newest.
    Stale,
}

/// Somebody who asks.
pub type Agent = (&'static str, Option<&'static str>);

/// All tasks.
#[derive(Debug, Default)]
pub struct Oracle {
    tasks: Vec<Task>,
    /// Which tasks are tied to which, as long as nothing is planned or replaced.
    ties: RefCell<Option<Vec<BTreeSet<At>>>>,
}

impl std::ops::Index<At> for Oracle {
    type Output = Task;

    fn index(&self, at: At) -> &Task {
        &self.tasks[at]
    }
}

/// Allowed, or the exit code of the refusal.
pub type Answer = Result<(), u8>;

fn unless(refused: bool, code: u8) -> Answer {
    if refused { Err(code) } else { Ok(()) }
}

impl Oracle {
    pub fn all(&self) -> &[Task] {
        &self.tasks
    }

    pub fn phase(&self, at: At) -> Phase {
        self.tasks[at].phase
    }

    /// The task that stands for this one: its successor, and that one's.
    pub fn stand(&self, at: At) -> At {
        self.tasks[at].successor.map_or(at, |next| self.stand(next))
    }

    pub fn parent(&self, at: At) -> Option<At> {
        self.tasks[at].parent.map(|parent| self.stand(parent))
    }

    pub fn dependencies(&self, at: At) -> Vec<At> {
        self.tasks[at].depends_on.iter().map(|dependency| self.stand(*dependency)).collect()
    }

    pub fn is_standing(&self, at: At) -> bool {
        self.phase(at) != Phase::Superseded
    }

    /// The tasks that have this parent.
    pub fn children(&self, at: At) -> Vec<At> {
        (0..self.tasks.len()).filter(|child| self.is_standing(*child) && self.parent(*child) == Some(at)).collect()
    }

    pub fn open_children(&self, at: At) -> Vec<At> {
        let is_open = |child: &At| matches!(self.phase(*child), Phase::New | Phase::Working);
        self.children(at).into_iter().filter(is_open).collect()
    }

    /// Everything that this task waits for, in any way and over any number of steps.
    fn ancestors(&self, at: At) -> BTreeSet<At> {
        let mut found = BTreeSet::new();
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            let next = self.parent(at).into_iter().chain(self.dependencies(at));
            open.extend(next.filter(|next| found.insert(*next)));
        }
        found
    }

    /// For every task, the sticky tasks that are tied to it, and it; none for one that is not sticky. Each one begins as a
    /// group of its own, and whoever is an ancestor of another brings both groups together.
    fn ties(&self) -> Vec<BTreeSet<At>> {
        let is_member = |at: &At| self.tasks[*at].sticky && self.is_standing(*at);
        let mut groups: Vec<BTreeSet<At>> = (0..self.tasks.len()).map(|at| BTreeSet::from([at])).collect();
        for at in (0..self.tasks.len()).filter(is_member) {
            for above in self.ancestors(at).into_iter().filter(is_member) {
                let both: BTreeSet<At> = groups[at].union(&groups[above]).copied().collect();
                both.iter().for_each(|member| groups[*member] = both.clone());
            }
        }
        groups
    }

    /// The contexts that decide about a claim.
    pub fn contexts(&self, at: At) -> BTreeSet<&'static str> {
        if !self.tasks[at].sticky {
            return BTreeSet::new();
        }
        let mut ties = self.ties.borrow_mut();
        let tied = &ties.get_or_insert_with(|| self.ties())[at];
        tied.iter().filter_map(|tied| self.tasks[*tied].context).collect()
    }

    /// Rule 8.
    pub fn claim(&self, at: At, (_, context): Agent) -> Answer {
        let task = &self.tasks[at];
        unless(task.phase != Phase::New, 6)?;
        if task.sticky {
            let given = context.ok_or(10)?;
            unless(self.contexts(at).into_iter().any(|bound| bound != given), 10)?;
        }
        unless(task.replaces.is_some_and(|original| self.tasks[original].successor != Some(at)), 11)?;
        unless(self.dependencies(at).into_iter().any(|dependency| self.phase(dependency) != Phase::Done), 11)?;
        unless(self.parent(at).is_some_and(|parent| self.phase(parent) == Phase::New), 15)
    }

    /// Rule 2, and that the holder is in the context of its claim.
    pub fn hold(&self, at: At, (agent, context): Agent) -> Answer {
        let task = &self.tasks[at];
        unless(task.phase != Phase::Working, 6)?;
        unless(task.holder != Some(agent), 12)?;
        unless(task.sticky && task.context != context, 10)
    }

    /// Rules 5, 6 and 9.
    pub fn finish(&self, at: At, agent: Agent, done: bool, said: Said) -> Answer {
        self.hold(at, agent)?;
        let task = &self.tasks[at];
        unless(task.reports == 0, 7)?;
        unless(said == Said::Stale, 8)?;
        unless(!self.open_children(at).is_empty(), 14)?;
        if !done || !task.verifier {
            return Ok(());
        }
        match said {
            Said::Passed | Said::Skipped => Ok(()),
            Said::Unsaid => Err(13),
            Said::Nothing | Said::Failed | Said::Stale => Err(9),
        }
    }

    /// Nobody holds the task, and yet it belongs to a context.
    pub fn is_bound(&self, at: At) -> bool {
        self.phase(at) == Phase::New && self.tasks[at].context.is_some()
    }

    /// Rule 4: there must be a holder to take it from, or a context.
    pub fn take(&self, at: At) -> Answer {
        unless(self.phase(at) != Phase::Working && !self.is_bound(at), 6)
    }

    /// Whether a task may be planned. A clone takes the place of its original, whatever became of what it names.
    pub fn plan(&self, task: &Task) -> Answer {
        if task.replaces.is_none() {
            unless(
                task.depends_on.iter().any(|at| matches!(self.phase(*at), Phase::Rejected | Phase::Superseded)),
                11,
            )?;
            if let Some(parent) = task.parent {
                unless(self.tasks[parent].queue != task.queue, 11)?;
                unless(!matches!(self.phase(parent), Phase::New | Phase::Working), 11)?;
            }
        }
        let mut with = Oracle { tasks: self.tasks.clone(), ties: RefCell::default() };
        with.tasks.push(task.clone());
        unless(!with.can_all_be_done(), 11)
    }

    /// The task in whose place this one stands, or will stand: a clone is as good as its original.
    fn place(&self, at: At) -> At {
        let at = self.stand(at);
        let original =
            self.tasks[at].replaces.filter(|_| self.phase(at) == Phase::New).map(|original| self.stand(original));
        original.filter(|original| *original != at).map_or(at, |original| self.place(original))
    }

    /// Whether all tasks could be done, one after the other, if none was begun, and all clones had their places.
    fn can_all_be_done(&self) -> bool {
        let places: Vec<At> = (0..self.tasks.len()).map(|at| self.place(at)).collect();
        let mut parents = vec![Vec::new(); self.tasks.len()];
        let mut dependencies = parents.clone();
        let mut children = parents.clone();
        for at in (0..self.tasks.len()).filter(|at| self.is_standing(*at)) {
            if let Some(parent) = self.tasks[at].parent.map(|parent| places[parent]) {
                parents[places[at]].push(parent);
                children[parent].push(places[at]);
            }
            dependencies[places[at]].extend(self.tasks[at].depends_on.iter().map(|other| places[*other]));
        }
        let standing: BTreeSet<At> = places.into_iter().collect();
        let (mut claimed, mut done) = (vec![false; self.tasks.len()], vec![false; self.tasks.len()]);
        loop {
            let mut has_moved = false;
            for at in &standing {
                let is_free = parents[*at].iter().all(|parent| claimed[*parent]);
                let can_claim = is_free && dependencies[*at].iter().all(|other| done[*other]);
                if can_claim {
                    has_moved |= !std::mem::replace(&mut claimed[*at], true);
                }
                if claimed[*at] && children[*at].iter().all(|child| done[*child]) {
                    has_moved |= !std::mem::replace(&mut done[*at], true);
                }
            }
            if !has_moved {
                return standing.iter().all(|at| done[*at]);
            }
        }
    }

    pub fn planned(&mut self, task: Task) {
        self.tasks.push(task);
        self.ties.take();
    }

    pub fn reported(&mut self, at: At) {
        self.tasks[at].reports += 1;
    }

    pub fn claimed(&mut self, at: At, (agent, context): Agent) {
        let task = &mut self.tasks[at];
        task.phase = Phase::Working;
        task.holder = Some(agent);
        task.context = if task.sticky { context } else { None };
        task.replaces = None;
    }

    /// The task leaves its holder, if it has one.
    pub fn left(&mut self, at: At, phase: Phase) {
        let task = &mut self.tasks[at];
        (task.phase, task.holder, task.reports) = (phase, None, 0);
    }

    /// The task is taken away, and with it its context.
    pub fn taken(&mut self, at: At) {
        self.left(at, Phase::New);
        self.tasks[at].context = None;
    }

    /// Opened again. A clone that was called off and opened again stands for itself.
    pub fn reopened(&mut self, at: At) {
        self.left(at, Phase::New);
        self.tasks[at].replaces = None;
    }

    pub fn superseded(&mut self, at: At, by: At) {
        self.left(at, Phase::Superseded);
        self.tasks[at].successor = Some(by);
        self.ties.take();
    }

    /// The open tasks that are never closed, although each context has a worker and none of them stops, as the rules alone
    /// explain: something that they wait for was rejected, belongs to two contexts, or is a clone that nobody completed.
    pub fn stuck(&self) -> BTreeSet<At> {
        let mut stuck = BTreeSet::new();
        loop {
            let before = stuck.len();
            for at in (0..self.tasks.len()).filter(|at| matches!(self.phase(*at), Phase::New | Phase::Working)) {
                let is_stuck = match self.phase(at) {
                    Phase::New => {
                        let bad =
                            |dependency: At| self.phase(dependency) == Phase::Rejected || stuck.contains(&dependency);
                        self.contexts(at).len() > 1
                            || self.tasks[at]
                                .replaces
                                .is_some_and(|original| self.tasks[original].successor != Some(at))
                            || self.dependencies(at).into_iter().any(bad)
                            || self
                                .parent(at)
                                .is_some_and(|parent| self.phase(parent) == Phase::New && stuck.contains(&parent))
                    }
                    _ => self.open_children(at).iter().any(|child| stuck.contains(child)),
                };
                if is_stuck {
                    stuck.insert(at);
                }
            }
            if stuck.len() == before {
                return stuck;
            }
        }
    }
}
