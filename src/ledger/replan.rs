//! Doing closed work again: a task as it is, or another one in its place, and what was built on it (commands.md,
//! `replan`).
//!
//! A replacement is two moves of two refs. First the clone is created, which names the task that it is to replace and
//! cannot be claimed; then the old one is superseded by it. Whoever is killed in between leaves a clone that the next
//! replan finds and completes, whichever of the two it names.
//!
//! What must never happen here: a clone is replanned that has taken nobody's place. Then there would be two tasks for one.

use std::collections::HashSet;

use super::append::{pause, refused};
use super::cascade::Step;
use super::find::Found;
use super::graph::unmet;
use super::order::waits_of;
use super::replacement::Made;
use super::resolve::{Damage, place};
use super::{Ledger, Reach};
use crate::error::{Error, Result};
use crate::id::{TASKS, TaskId};
use crate::protocol::decide::Intent;
use crate::protocol::graph::{Graph, Index, claim_order};
use crate::protocol::record::Phase;
use crate::protocol::refusal::Refusal;
use crate::protocol::state::TaskState;

/// How often it is tried to put a clone in place while others do the same.
const REPLACE_MAX: u32 = 40;

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
    /// that nobody begins on what is about to be done again. A replacement that was made by the same call before, and that
    /// nobody has finished since, is taken as made, so that the same command completes what was cut.
    ///
    /// # Errors
    /// `Replaced` for a superseded task, if there is nothing to complete; `NotReplacedYet` for a clone that cannot take the
    /// place that it was made for; what the store says of the task itself. What befell the others is in the steps.
    pub fn replan(&self, found: &Found, change: &Change, spread: Spread, note: Option<&str>) -> Result<Replanned> {
        let intent = || Intent::Replan { note: note.map(str::to_owned) };
        let found = &self.caught_up(found, TASKS)?;
        let mut done = Replanned { steps: Vec::new(), clone: None };
        self.put_in_place(found, note, &mut done)?;
        let made = match self.is_answered(found, change, note, &mut done)? {
            Some(clone) => Some(clone),
            None => self.made_before(found, change, &mut done)?,
        };
        if made.is_none() && !matches!(found.state.phase(), Some(Phase::New | Phase::Working)) {
            self.allows(found, &intent()).or_else(|error| Err(self.told_of_successor(found, error)?))?;
        }
        let (members, damaged) = self.spread(made.as_ref().unwrap_or(found), spread)?;
        for Member { found, is_target } in members {
            let state = found.state.clone();
            if is_target && made.is_some() {
                continue;
            }
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
        done.steps.extend(damaged.into_iter().filter_map(Step::unreadable));
        if made.is_some() && done.steps.iter().all(Step::is_skipped) {
            let error = self.allows(found, &intent()).err().unwrap_or_else(|| self.outraced(&found.state));
            return Err(self.told_of_successor(found, error)?);
        }
        Ok(done)
    }

    /// Completes what was begun with a clone that has not taken its original's place yet, before anything else is made of
    /// it.
    fn put_in_place(&self, clone: &Found, note: Option<&str>, done: &mut Replanned) -> Result<()> {
        let Some(original) = clone.state.replan_of() else { return Ok(()) };
        let old = self.find_by_task_id(original)?;
        if old.as_ref().is_some_and(|old| old.state.superseded_by() == Some(clone.state.id)) {
            return Ok(());
        }
        let cannot = |old: Option<&Found>| {
            Err(refused(&clone.state, Refusal::NotReplacedYet { original: unmet(original, old) }))
        };
        let Some(old) = old else { return cannot(None) };
        let intent = Intent::Supersede { by: clone.state.id, note: note.map(str::to_owned) };
        match self.append(old.clone(), intent) {
            Ok(appended) => {
                done.steps.push(Step::of(&old.state, Ok(appended)));
                done.clone = Some(clone.state.clone());
                Ok(())
            }
            Err(Error::Refused { refusal: Refusal::WrongPhase { .. }, .. }) => {
                match self.find_by_task_id(original)? {
                    // Another replan has just completed it.
                    Some(now) if now.state.superseded_by() == Some(clone.state.id) => Ok(()),
                    now => cannot(now.as_ref()),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The clone that has taken the task's place, if this is asked again since the answer of the authority to that was lost:
    /// then the same record is the answer, and no other is made.
    fn is_answered(
        &self,
        found: &Found,
        change: &Change,
        note: Option<&str>,
        done: &mut Replanned,
    ) -> Result<Option<Found>> {
        let (Reach::Through(_), Some(by)) = (self.reach, found.state.superseded_by()) else { return Ok(None) };
        let Some(clone) = self.find_by_task_id(by)? else { return Ok(None) };
        if !change.is_none() && !self.is_wanted(&clone, found, change)? {
            return Ok(None);
        }
        let intent = Intent::Supersede { by, note: note.map(str::to_owned) };
        match self.append(found.clone(), intent) {
            Ok(appended) => {
                done.steps.push(Step::of(&found.state, Ok(appended)));
                done.clone = Some(clone.state.clone());
                Ok(Some(clone))
            }
            Err(Error::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The clone that an earlier call with the same change has put in the task's place, while it is open. (What was built on
    /// a clone that is closed would be done again for nothing.)
    fn made_before(&self, found: &Found, change: &Change, done: &mut Replanned) -> Result<Option<Found>> {
        let Some(by) = found.state.superseded_by().filter(|_| !change.is_none()) else { return Ok(None) };
        let Some(clone) = self.find_by_task_id(by)? else { return Ok(None) };
        let is_open = matches!(clone.state.phase(), Some(Phase::New | Phase::Working));
        if !is_open || !self.is_wanted(&clone, found, change)? {
            return Ok(None);
        }
        let why = format!("it was replaced before, by {}", place(&clone.state));
        done.steps.push(Step::skipped(&found.state, &why));
        done.clone = Some(clone.state.clone());
        Ok(Some(clone))
    }

    /// The refusal of a superseded task, with what stands for it.
    fn told_of_successor(&self, found: &Found, error: Error) -> Result<Error> {
        if found.state.superseded_by().is_none() {
            return Ok(error);
        }
        Ok(match self.successor(found.state.id, &mut Default::default())? {
            Some(now) => refused(&found.state, Refusal::Replaced { by: unmet(now.state.id, Some(&now)) }),
            None => error,
        })
    }

    /// The tasks that a replan is about, in the order in which they could be claimed; and the chains that cannot be read and
    /// may be among them.
    fn spread(&self, target: &Found, spread: Spread) -> Result<(Vec<Member>, Vec<Damage>)> {
        if !(spread.up || spread.down || spread.parents) {
            return Ok((vec![Member { found: target.clone(), is_target: true }], Vec::new()));
        }
        let mut scan = self.scan(TASKS)?;
        let graph = Graph::new(scan.tasks.iter().map(|(_, state)| state));
        let unreadable = || super::append::vanished(&target.name, target.state.tip);
        let at = graph.find(target.state.id).ok_or_else(unreadable)?;
        let (mut above, mut below) = (vec![at], vec![at]);
        if spread.up {
            above.extend(graph.reach(&[at], |at| graph.dependencies(at).to_vec()));
        }
        if spread.down {
            below.extend(graph.reach(&[at], |at| graph.dependents(at).to_vec()));
        }
        let mut members = [&above[..], &below].concat();
        if spread.parents {
            members.extend(graph.reach(&members.clone(), |at| graph.parent(at).into_iter().collect()));
        }
        let members: HashSet<Index> = members.into_iter().collect();
        // What is named, and not among what could be read.
        let task = |at: &Index| &graph.tasks()[*at].task;
        let dependencies = above.iter().filter(|_| spread.up).flat_map(|at| task(at).depends_on.iter().copied());
        let parents = members.iter().filter(|_| spread.parents).filter_map(|at| task(at).parent);
        let unknown: HashSet<TaskId> = dependencies.chain(parents).filter(|id| graph.here(*id).is_none()).collect();
        let is_built_on = |id: &TaskId| graph.here(*id).is_some_and(|at| below.contains(&at));
        let mut damaged = Vec::new();
        for damage in std::mem::take(&mut scan.damaged) {
            let may_belong = match self.definition_of(&damage)? {
                Some((id, task)) => unknown.contains(&id) || spread.down && task.depends_on.iter().any(is_built_on),
                None => spread.down || !unknown.is_empty(),
            };
            damaged.extend(may_belong.then_some(damage));
        }
        // Chains made by hand may wait for each other in a circle: then any order is as good.
        let order = claim_order(&waits_of(&graph)).unwrap_or_else(|_| (0..scan.tasks.len()).collect());
        let member = |of: Index| {
            let (name, state) = scan.tasks[of].clone();
            Member { found: Found { name, state }, is_target: of == at }
        };
        Ok((order.into_iter().filter(|at| members.contains(at)).map(member).collect(), damaged))
    }

    /// Puts a clone with the change in the place of a task.
    fn replace(&self, found: Found, change: &Change, note: Option<&str>, done: &mut Replanned) -> Result<()> {
        let mut found = found;
        for attempt in 0..REPLACE_MAX {
            if let Some(phase @ Phase::Working) = found.state.phase() {
                let mut why = in_flight(phase);
                if !change.is_none() {
                    let task = place(&found.state);
                    why.push_str(&format!(": nothing was replanned and the change was not recorded; replan it once it is closed, or `pm reclaim --task {task}` first"));
                }
                done.steps.push(Step::skipped(&found.state, &why));
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
}

/// A task that a replan is about.
struct Member {
    found: Found,
    is_target: bool,
}

fn in_flight(phase: Phase) -> String {
    format!("it is {phase} already")
}
