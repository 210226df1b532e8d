//! The loop of the poller: sweep, maintain, tell, wait.
//!
//! What must never happen here: the failure of a step ends the loop; a cycle runs without the lock; cycles that were
//! missed, since the machine or the process was suspended, are made up for.

use std::collections::HashSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

use super::control::wait_for;
use super::heartbeat::{Cycle, Heartbeat};
use super::maintenance::{Maintenance, Packed};
use super::run_lock::RunLock;
use super::{PollError, StateRoot};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::id::Queue;
use crate::ledger::resolve::{place, prefixes};
use crate::ledger::sweep::{Outcome, Terms};
use crate::output::{Output, span};
use crate::protocol::lease::TtlRule;
use crate::protocol::view;
use crate::session::Session;
use crate::signals::heeded;
use crate::store::git::ORPHAN_AGE;

/// What the command line asks of a poller; the configuration says the rest.
#[derive(Debug, Clone, Default)]
pub struct Orders {
    /// The queues to sweep; else those of `pm.pollQueue`, else all.
    pub queues: Vec<Queue>,
    /// From one cycle to the next; else `pm.interval`.
    pub interval: Option<Duration>,
    /// One cycle only.
    pub once: bool,
}

/// The wish that the poller ends, from SIGTERM or SIGINT.
#[derive(Debug)]
pub struct StopSignal {
    wanted: Arc<AtomicBool>,
    /// Becomes readable with the signal, so that it ends a wait.
    wake: UnixStream,
}

impl StopSignal {
    /// Begins to catch the signals.
    ///
    /// # Errors
    /// What the system says.
    pub fn catch() -> io::Result<StopSignal> {
        let wanted = Arc::new(AtomicBool::new(false));
        let (wake, waker) = UnixStream::pair()?;
        // `poll stop` sends SIGTERM, whatever whoever started this had it ignore.
        for signal in heeded([SIGINT]).chain([SIGTERM]) {
            signal_hook::flag::register(signal, Arc::clone(&wanted))?;
            signal_hook::low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        Ok(StopSignal { wanted, wake })
    }

    /// Whether one came.
    pub fn came(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Waits for one, at most so long.
    fn wait(&self, time: Duration) -> io::Result<()> {
        wait_for(&self.wake, time).map(drop)
    }
}

/// A running poller.
pub struct Poller<'a> {
    lock: RunLock,
    root: StateRoot,
    /// What the configuration said at the start.
    configured_root: StateRoot,
    orders: Orders,
    signal: StopSignal,
    /// Opens the repository again, with the configuration of now.
    reopen: &'a dyn Fn() -> Result<Session>,
    session: Session,
    heartbeat: Heartbeat,
    maintenance: Maintenance,
    journal: Journal,
    /// That the heartbeat cannot be written was said.
    has_warned: bool,
}

impl<'a> Poller<'a> {
    /// A poller that holds its lock.
    pub fn new(
        lock: RunLock,
        root: StateRoot,
        orders: Orders,
        signal: StopSignal,
        session: Session,
        reopen: &'a dyn Fn() -> Result<Session>,
    ) -> Poller<'a> {
        let heartbeat = Heartbeat { started_at: now(), ..Heartbeat::default() };
        let journal = Journal::new(session.out.clone());
        let maintenance = Maintenance::default();
        let configured_root = session.state_root();
        Poller {
            lock,
            root,
            configured_root,
            orders,
            signal,
            reopen,
            session,
            heartbeat,
            maintenance,
            journal,
            has_warned: false,
        }
    }

    /// Runs cycles until a signal comes, or one if that was ordered; `each` is handed every cycle. Returns the last one.
    ///
    /// # Errors
    /// `Replaced` where the lock file was taken away, `Moved` where the configuration wants it elsewhere; failures of
    /// waiting.
    pub fn run(mut self, each: impl Fn(&Cycle)) -> Result<Cycle> {
        self.heartbeat.interval_seconds = self.interval().as_secs_f64();
        self.beat();
        if !self.orders.once {
            let (pid, interval) = (std::process::id(), self.heartbeat.interval_seconds);
            self.journal.event(format!("the poller runs, process {pid}, every {interval} s"));
        }
        loop {
            let started = Instant::now();
            self.check_place()?;
            let cycle = self.cycle(started);
            self.check_place()?;
            self.heartbeat.interval_seconds = self.interval().as_secs_f64();
            self.heartbeat.last_cycle_at = Some(now());
            self.heartbeat.last_cycle = Some(cycle.clone());
            self.beat();
            each(&cycle);
            if !self.orders.once && !self.signal.came() {
                // Counted from the start of this cycle; what was missed meanwhile is not made up for.
                let rest = self.interval().saturating_sub(started.elapsed());
                self.signal.wait(rest).map_err(Error::io("waiting for the next cycle"))?;
            }
            if self.signal.came() {
                self.journal.event("the poller was told to stop".to_owned());
            }
            if self.orders.once || self.signal.came() {
                return Ok(cycle);
            }
        }
    }

    /// Whether this is still the poller that is found here: another one could start where it cannot be seen.
    fn check_place(&self) -> Result<()> {
        if !self.lock.is_ours() {
            return Err(PollError::Replaced { path: self.lock.path().to_owned() }.into());
        }
        let configured = self.session.state_root();
        if configured != self.configured_root {
            let (from, to) = (self.configured_root.dir().to_owned(), configured.dir().to_owned());
            return Err(PollError::Moved { from, to }.into());
        }
        Ok(())
    }

    fn interval(&self) -> Duration {
        let wanted = self.orders.interval.unwrap_or(self.session.config.interval);
        // The age of a claim at an authority grows by at most a third of its TTL from one reading to the next.
        let longest = self.session.authority().map(|_| Duration::from_millis(self.session.config.ttl.ms() / 3));
        longest.map_or(wanted, |longest| wanted.min(longest))
    }

    /// Writes the heartbeat. That it cannot be written is said once, and is no reason to stop.
    fn beat(&mut self) {
        if let Err(error) = self.heartbeat.write(&self.root.heartbeat())
            && !std::mem::replace(&mut self.has_warned, true)
        {
            let path = self.root.heartbeat();
            self.journal.warning(&format!("{} cannot be written, the work goes on: {error}", path.display()));
        }
    }

    fn cycle(&mut self, started: Instant) -> Cycle {
        let mut cycle = Cycle::default();
        self.journal.turn();
        match (self.reopen)() {
            Ok(session) => self.session = session,
            Err(error) => self.fail(&mut cycle, format!("the last good configuration is kept: {error}")),
        }
        self.sweep(&mut cycle);
        if !self.signal.came()
            && let Err(error) = self.session.sweep_leftovers(ORPHAN_AGE)
        {
            self.fail(&mut cycle, format!("temporary files of killed writers could not be removed: {error}"));
        }
        if !self.signal.came() {
            self.maintain(&mut cycle);
        }
        self.journal.end_of_cycle();
        cycle.interrupted = self.signal.came();
        cycle.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        cycle
    }

    fn sweep(&mut self, cycle: &mut Cycle) {
        let config = &self.session.config;
        let terms = Terms {
            ttl: TtlRule { default: config.ttl, force: false },
            trust_clocks: false,
            max_attempts: config.max_attempts,
            dry_run: false,
        };
        let queues = if self.orders.queues.is_empty() { &config.poll_queues } else { &self.orders.queues };
        for prefix in prefixes(queues) {
            if self.signal.came() {
                return;
            }
            let stop = || self.signal.came();
            match self
                .session
                .writer()
                .and_then(|ledger| ledger.sweep(&prefix, &self.session.state_dir(), &terms, &stop))
            {
                Ok(outcome) => self.note_sweep(&outcome, cycle),
                Err(error) => self.fail(cycle, format!("the sweep failed: {error}")),
            }
        }
    }

    fn note_sweep(&mut self, outcome: &Outcome, cycle: &mut Cycle) {
        let count = |list: usize| list as u64;
        cycle.tasks += count(outcome.scanned);
        cycle.reclaimed += count(outcome.reclaimed.len());
        cycle.rejected += count(outcome.rejected.len());
        cycle.raced += count(outcome.raced.len());
        cycle.observing += count(outcome.observing.len());
        for (how, list) in
            [("reclaimed", &outcome.reclaimed), ("rejected, after too many attempts,", &outcome.rejected)]
        {
            for swept in list {
                let judged = &swept.judged;
                let (place, holder) = (place(&judged.state), &judged.claim.holder);
                self.journal.event(format!("{how} {place} from {holder}, silent for {}", span(judged.age_ms)));
            }
        }
        if let Some(survey) = &outcome.survey {
            cycle.taken += count(survey.taken);
            cycle.pushed += count(survey.pushed);
            cycle.lost += count(survey.lost);
            for trouble in &survey.troubles {
                self.fail(cycle, trouble.clone());
            }
        }
        for missed in &outcome.failed {
            self.fail(cycle, format!("{} could not be reclaimed: {}", place(&missed.judged.state), missed.error));
        }
        for damage in &outcome.damaged {
            self.fail(cycle, damage.to_string());
        }
        if let Some(why) = &outcome.forgetful {
            self.fail(cycle, format!("what this machine saw could not be kept, it can only observe: {why}"));
        }
    }

    fn maintain(&mut self, cycle: &mut Cycle) {
        let (packed, faults) = self.maintenance.run(&self.session.store, &|| self.signal.came());
        if packed != Packed::default() {
            cycle.refs_packed = packed.refs as u64;
            cycle.objects_packed = packed.objects as u64;
            let Packed { refs, objects } = packed;
            self.journal.event(format!("packed {refs} loose refs and about {objects} loose objects"));
        }
        for error in faults {
            self.fail(cycle, format!("the maintenance failed: {error}"));
        }
    }

    fn fail(&mut self, cycle: &mut Cycle, what: String) {
        cycle.errors += 1;
        self.journal.fault(what);
    }
}

/// Now, as RFC 3339 in UTC, in whole seconds.
fn now() -> String {
    view::time(SystemClock::default().wall_seconds())
}

/// What the poller says, with the time. What is wrong is said when it begins, not in every cycle.
struct Journal {
    out: Output,
    /// What was wrong in the last cycle, and in this one so far.
    faults: [HashSet<String>; 2],
}

impl Journal {
    fn new(out: Output) -> Journal {
        Journal { out, faults: Default::default() }
    }

    /// A cycle begins.
    fn turn(&mut self) {
        self.faults.swap(0, 1);
        self.faults[1].clear();
    }

    fn event(&self, what: String) {
        self.out.note(&format!("{} {what}", now()));
    }

    /// Says which faults of the cycle before are over.
    fn end_of_cycle(&self) {
        for what in self.faults[0].difference(&self.faults[1]) {
            self.event(format!("no longer: {what}"));
        }
    }

    fn warning(&self, what: &str) {
        self.out.warning(&format!("{} {what}", now()));
    }

    fn fault(&mut self, what: String) {
        if self.faults[1].insert(what.clone()) && !self.faults[0].contains(&what) {
            self.warning(&what);
        }
    }
}
