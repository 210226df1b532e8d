//! The clone that is to take a task's place: how it is named and defined, and whether it is there already.

use super::Ledger;
use super::create::NewTask;
use super::find::Found;
use super::replan::Change;
use crate::error::{Error, Result};
use crate::id::{COMPONENT_MAX, RefName, Slug};
use crate::protocol::graph::SUCCESSORS_MAX;
use crate::protocol::record::Task;

/// Where a clone came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// Just now, as it is wanted.
    Now,
    /// By an earlier replan, as it is wanted.
    Before,
    /// By an earlier replan that wanted something else.
    Otherwise,
}

impl Ledger<'_> {
    /// Whether a clone is what a change would make of a task, whatever its number.
    pub(super) fn is_wanted(&self, clone: &Found, of: &Found, change: &Change) -> Result<bool> {
        let (wanted, body) = self.changed(of, change)?;
        let wanted = Task { slug: clone.state.task.slug.clone(), ..wanted };
        let is_same = clone.state.task.is_same_definition(&wanted);
        Ok(is_same && self.record(&clone.name, clone.state.id.record())?.body == body)
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
    pub(super) fn clone_of(&self, found: &Found, change: &Change) -> Result<(Found, Made)> {
        if let Some(begun) = self.begun_clone(found)? {
            let is_wanted = change.is_none() || self.is_wanted(&begun, found, change)?;
            return Ok((begun, if is_wanted { Made::Before } else { Made::Otherwise }));
        }
        let (wanted, body) = self.changed(found, change)?;
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
    pub(super) fn begun_clone(&self, found: &Found) -> Result<Option<Found>> {
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

/// The slug of a clone.
fn numbered(base: &str, number: usize) -> Slug {
    let suffix = format!("-r{number}");
    let kept = &base[..base.len().min(COMPONENT_MAX - suffix.len())];
    // A cut may end in what may not stand before the dash.
    let kept = kept.trim_end_matches('.');
    format!("{kept}{suffix}").parse().expect("a slug and a number are a slug")
}
