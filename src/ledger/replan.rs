//! Doing closed work again: a task as it is, or another one in its place, and what was built on it (commands.md,
//! `replan`).
//!
//! A replacement is two moves of two refs. First the clone is created, which names the task that it is to replace and
//! cannot be claimed; then the old one is superseded by it. Whoever is killed in between leaves a clone that the next
//! replan finds and completes.

use std::collections::HashSet;

use super::append::pause;
use super::cascade::Step;
use super::create::NewTask;
use super::find::Found;
use super::order::waits_of;
use super::{Ledger, Reach};
use crate::error::{Error, Result};
use crate::id::{RefName, Slug, TASKS};
use crate::protocol::decide::Intent;
use crate::protocol::graph::{Graph, Index, SUCCESSORS_MAX, claim_order};
use crate::protocol::record::{Phase, Task};
use crate::protocol::state::TaskState;

/// How often it is tried to put a clone in place while others do the same.
const REPLACE_MAX: u32 = 40;

/// The most characters of a slug.
const SLUG_MAX: usize = 128;

/// What is to be done again besides the task itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spread {
    /// The closed tasks that it depends on, and theirs.
    pub up: bool,
    /// The closed tasks that depend on it, and theirs.
    pub down: bool,
    /// The closed parents of everything that is done again, and theirs.
    pub parents: bool,
}

/// How a task is to change; what is `None` stays.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Its text; none, if it is empty.
    pub text: Option<Option<String>>,
    /// Its verifier; none, if it is empty.
    pub verifier: Option<Option<String>>,
}

impl Change {
    /// Whether nothing is to change.
    pub fn is_none(&self) -> bool {
        self.text.is_none() && self.verifier.is_none()
    }
}

/// What a replan did.
#[derive(Debug)]
pub struct Replanned {
    /// The tasks that were met, in the order in which they were seen to.
    pub steps: Vec<Step>,
    /// The task that took the place of the one that was named.
    pub clone: Option<TaskState>,
}

impl Ledger<'_> {
    /// Does a task again, and what `spread` says. Tasks in flight are left alone. What others wait for comes first, so
    /// that nobody begins on what is about to be done again.
    ///
    /// # Errors
    /// `WrongPhase` for a superseded task; what the store says of the task itself. What befell the others is in the steps.
    pub fn replan(&self, found: &Found, change: &Change, spread: Spread, note: Option<&str>) -> Result<Replanned> {
        let intent = || Intent::Replan { note: note.map(str::to_owned) };
        let found = &self.caught_up(found, TASKS)?;
        let mut done = Replanned { steps: Vec::new(), clone: None };
        if self.is_answered(found, change, note, &mut done)? {
            return Ok(done);
        }
        if !matches!(found.state.phase(), Some(Phase::New | Phase::Working)) {
            self.allows(found, &intent())?;
        }
        for Member { found, is_target } in self.spread(found, spread)? {
            let state = found.state.clone();
            // Also where nothing is to change, a replacement that was begun is completed.
            if is_target && (!change.is_none() || self.begun_clone(&found)?.is_some()) {
                match self.replace(found, change, note, &mut done) {
                    Err(error) if done.steps.iter().any(Step::is_changed) => {
                        done.steps.push(Step::of(&state, Err(error)))
                    }
                    replaced => replaced?,
                }
                continue;
            }
            let step = match state.phase() {
                Some(phase @ (Phase::New | Phase::Working)) => Step::skipped(&state, &in_flight(phase)),
                _ => match self.append(found, intent()) {
                    // Nothing was changed, and the task that was named cannot be.
                    Err(error) if is_target && !done.steps.iter().any(Step::is_changed) => return Err(error),
                    result => Step::of(&state, result),
                },
            };
            done.steps.push(step);
        }
        Ok(done)
    }

    /// Whether this is asked again since the answer of the authority was lost, and the clone has taken the task's place: then
    /// the same record is the answer, and no other is made.
    fn is_answered(&self, found: &Found, change: &Change, note: Option<&str>, done: &mut Replanned) -> Result<bool> {
        let (Reach::Through(_), Some(by)) = (self.reach, found.state.superseded_by()) else { return Ok(false) };
        let Some(clone) = self.find_by_task_id(by)? else { return Ok(false) };
        let (wanted, body) = self.changed(found, change)?;
        if !change.is_none() && !self.is_wanted(&clone, &wanted, body.as_deref())? {
            return Ok(false);
        }
        let intent = Intent::Supersede { by, note: note.map(str::to_owned) };
        match self.append(found.clone(), intent) {
            Ok(appended) => {
                done.steps.push(Step::of(&found.state, Ok(appended)));
                done.clone = Some(clone.state);
                Ok(true)
            }
            Err(Error::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether a clone is what is wanted, whatever its number.
    fn is_wanted(&self, clone: &Found, wanted: &Task, body: Option<&str>) -> Result<bool> {
        let wanted = Task { slug: clone.state.task.slug.clone(), ..wanted.clone() };
        let is_same = clone.state.task.is_same_definition(&wanted);
        Ok(is_same && self.record(&clone.name, clone.state.id.record())?.body.as_deref() == body)
    }

    /// The tasks that a replan is about, in the order in which they could be claimed.
    fn spread(&self, target: &Found, spread: Spread) -> Result<Vec<Member>> {
        if !(spread.up || spread.down || spread.parents) {
            return Ok(vec![Member { found: target.clone(), is_target: true }]);
        }
        let scan = self.scan(TASKS)?;
        let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
        let unreadable = || super::append::vanished(&target.name, target.state.tip);
        let at = graph.find(target.state.id).ok_or_else(unreadable)?;
        let mut members = vec![at];
        if spread.up {
            members.extend(graph.reach(&[at], |at| graph.dependencies(at).to_vec()));
        }
        if spread.down {
            members.extend(graph.reach(&[at], |at| graph.dependents(at).to_vec()));
        }
        if spread.parents {
            members.extend(graph.reach(&members.clone(), |at| graph.parent(at).into_iter().collect()));
        }
        let members: HashSet<Index> = members.into_iter().collect();
        // Chains made by hand may wait for each other in a circle: then any order is as good.
        let order = claim_order(&waits_of(&graph)).unwrap_or_else(|_| (0..scan.tasks.len()).collect());
        let member = |of: Index| {
            let (name, state) = scan.tasks[of].clone();
            Member { found: Found { name, state }, is_target: of == at }
        };
        Ok(order.into_iter().filter(|at| members.contains(at)).map(member).collect())
    }

    /// Puts a clone with the change in the place of a task.
    fn replace(&self, found: Found, change: &Change, note: Option<&str>, done: &mut Replanned) -> Result<()> {
        let mut found = found;
        for attempt in 0..REPLACE_MAX {
            if let Some(phase @ Phase::Working) = found.state.phase() {
                done.steps.push(Step::skipped(&found.state, &in_flight(phase)));
                return Ok(());
            }
            let (clone, made) = self.clone_of(&found, change)?;
            let intent = Intent::Supersede { by: clone.state.id, note: note.map(str::to_owned) };
            match self.append(found.clone(), intent) {
                Ok(appended) => done.steps.push(Step::of(&found.state, Ok(appended))),
                Err(error @ Error::Refused { .. }) => {
                    let now = self.state(&found.name)?.unwrap_or_else(|| found.state.clone());
                    if now.superseded_by() == Some(clone.state.id) {
                        // Another replan has completed this very one.
                        done.steps.push(Step::skipped(&now, "it was replaced meanwhile, by the same clone"));
                    } else if now.superseded_by().is_none() && now.phase() != Some(Phase::Working) {
                        // The clone was called off; or the task came and went.
                        pause(attempt);
                        found.state = now;
                        continue;
                    } else {
                        // Replaced by another one, or claimed: a clone that was made for nothing is called off.
                        let reason = Some("what it was to replace has moved on".to_owned());
                        let is_needless = made == Made::Now || now.superseded_by().is_some();
                        if is_needless {
                            self.append(clone, Intent::Cancel { reason })?;
                        }
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
            if made != Made::Otherwise {
                done.clone = Some(clone.state);
                return Ok(());
            }
            // What an earlier replan had begun is complete now, and is what is to be changed.
            found = clone;
        }
        Err(self.outraced(&found.state))
    }

    /// The definition and text of a task with a change.
    fn changed(&self, found: &Found, change: &Change) -> Result<(Task, Option<String>)> {
        let body = match &change.text {
            Some(text) => text.clone(),
            None => self.record(&found.name, found.state.id.record())?.body,
        };
        let mut task = (*found.state.task).clone();
        task.created = self.clock.wall_micros();
        if let Some(verifier) = &change.verifier {
            task.verifier.clone_from(verifier);
        }
        Ok((task, body))
    }

    /// The clone that is to take a task's place: one that an earlier replan began, or a new one.
    fn clone_of(&self, found: &Found, change: &Change) -> Result<(Found, Made)> {
        let (wanted, body) = self.changed(found, change)?;
        if let Some(begun) = self.begun_clone(found)? {
            let is_wanted = change.is_none() || self.is_wanted(&begun, &wanted, body.as_deref())?;
            return Ok((begun, if is_wanted { Made::Before } else { Made::Otherwise }));
        }
        let base = self.base_slug(found)?;
        for slug in (1..=SUCCESSORS_MAX).map(|number| numbered(&base, number)) {
            let name = RefName::of_task(&wanted.queue, &slug);
            if self.store.tip(&name)?.is_some() {
                continue;
            }
            let task = Task { slug, ..wanted.clone() };
            match self.create(NewTask { task, body: body.clone(), replan_of: Some(found.state.id) }) {
                Ok(appended) => return Ok((Found { name, state: appended.state }, Made::Now)),
                // Somebody else has just taken this number.
                Err(Error::SlugTaken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Usage(format!("{base} was replaced {SUCCESSORS_MAX} times; plan a new task instead")))
    }

    /// The clone of an earlier replan that has not taken the task's place yet.
    fn begun_clone(&self, found: &Found) -> Result<Option<Found>> {
        let base = self.base_slug(found)?;
        for slug in (1..=SUCCESSORS_MAX).map(|number| numbered(&base, number)) {
            let name = RefName::of_task(&found.state.task.queue, &slug);
            match self.state(&name)? {
                Some(state) if state.replan_of() == Some(found.state.id) => return Ok(Some(Found { name, state })),
                Some(_) => {}
                None => break,
            }
        }
        Ok(None)
    }

    /// The slug that the clones of a task count on from: of a clone, that of the task that it began with.
    fn base_slug(&self, found: &Found) -> Result<String> {
        let slug = found.state.task.slug.as_str();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if let Some((base, number)) = slug.rsplit_once("-r")
            && is_number(number)
            && let Ok(first) = base.parse::<Slug>()
            && let Some(first) = self.state(&RefName::of_task(&found.state.task.queue, &first))?
            && let Some(now) = self.successor(first.id, &mut Default::default())?
            && now.state.id == found.state.id
        {
            return Ok(base.to_owned());
        }
        Ok(slug.to_owned())
    }
}

/// A task that a replan is about.
struct Member {
    found: Found,
    is_target: bool,
}

/// Where a clone came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    /// Just now, as it is wanted.
    Now,
    /// By an earlier replan, as it is wanted.
    Before,
    /// By an earlier replan that wanted something else.
    Otherwise,
}

fn in_flight(phase: Phase) -> String {
    format!("it is {phase} already")
}

/// The slug of a clone.
fn numbered(base: &str, number: usize) -> Slug {
    let suffix = format!("-r{number}");
    let kept = &base[..base.len().min(SLUG_MAX - suffix.len())];
    // A cut may end in what may not stand before the dash.
    let kept = kept.trim_end_matches('.');
    format!("{kept}{suffix}").parse().expect("a slug and a number are a slug")
}
