//! The plan: the crates of a real workspace, each a child of the parent of its family, half of them sticky.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::random::Random;

const CRATES: &str = include_str!("../../../fixtures/plans/gitoxide-workspace.plan.json");
/// Of all tasks.
pub const LABEL: &str = "release";
/// The family of crates that have nothing to do with any other. All of them are sticky.
const ALONE: &str = "family-alone";
/// The family of what is built upon the crate of this name. Its parent depends on that crate.
const PROGRAMS: (&str, &str) = ("family-programs", "gix");

/// A plan as `pm bulk-plan` reads it, and what must come of it.
pub struct Plan {
    pub json: String,
    pub tasks: usize,
    pub families: usize,
    /// Sticky crates and parents.
    pub sticky: BTreeSet<String>,
}

/// Plans the first `crates` crates: they are in the order of what depends on what.
///
/// One family has a sticky parent, so all of it is sticky: the one of crates that are alone, which are then tied by nothing
/// but that, or the one of programs, which are tied to most others anyway. What else is sticky is drawn by lot. So many of
/// these crates wait for each other that nearly all of them are one group.
pub fn plan(crates: usize, random: &mut Random) -> Result<Plan> {
    let all: Vec<Value> = serde_json::from_str(CRATES)?;
    let mut crates: Vec<Value> = all.into_iter().take(crates).collect();
    let slug = |entry: &Value| entry["slug"].as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = crates.iter().map(slug).collect();
    let waits: BTreeMap<String, BTreeSet<String>> = crates
        .iter()
        .map(|entry| {
            let named = entry["depends_on_slugs"].as_array().context("what it depends on")?;
            Ok((slug(entry), named.iter().filter_map(Value::as_str).map(str::to_owned).collect()))
        })
        .collect::<Result<_>>()?;

    let families: BTreeMap<&String, String> = names.iter().map(|name| (name, family(name, &waits))).collect();
    let whole_family = if random.percent(50) { ALONE } else { PROGRAMS.0 };
    let is_given = |name: &&String| [ALONE, whole_family].contains(&&*families[*name]);
    let mut sticky: BTreeSet<String> = names.iter().filter(is_given).cloned().collect();
    let mut others: Vec<&String> = names.iter().filter(|name| !is_given(name)).collect();
    while sticky.len() < names.len().div_ceil(2) {
        ensure!(!others.is_empty(), "half of the crates are not there");
        sticky.insert(others.swap_remove(random.below(others.len() as u64) as usize).clone());
    }

    for entry in &mut crates {
        let name = slug(entry);
        entry["parent_slug"] = json!(families[&name]);
        entry["labels"] = json!([LABEL]);
        // What belongs to a sticky parent is sticky anyway.
        entry["sticky"] = json!(sticky.contains(&name) && families[&name] != whole_family);
    }
    let parents: BTreeSet<&String> = families.values().collect();
    for parent in &parents {
        let first: &[&str] = if ***parent == *PROGRAMS.0 { &[PROGRAMS.1] } else { &[] };
        crates.push(json!({
            "slug": parent,
            "title": format!("Release all of {parent}"),
            "labels": [LABEL],
            "sticky": *parent == whole_family,
            "depends_on_slugs": first,
        }));
    }
    sticky.extend(parents.iter().filter(|parent| **parent == whole_family).map(|parent| (*parent).clone()));
    let families = parents.len();
    Ok(Plan { json: serde_json::to_string(&crates)?, tasks: crates.len(), families, sticky })
}

/// The parent of a crate. Families go by the letters that names begin with, so that each has crates from all over the
/// workspace, which wait for those of the others.
fn family(name: &str, waits: &BTreeMap<String, BTreeSet<String>>) -> String {
    let needs = |name: &str| waits.get(name).cloned().unwrap_or_default();
    if needs(name).is_empty() && !waits.values().any(|named| named.contains(name)) {
        return ALONE.to_owned();
    }
    let mut below = needs(name);
    loop {
        let further: BTreeSet<String> = below.iter().flat_map(|name| needs(name)).collect();
        if further.is_subset(&below) {
            break;
        }
        below.extend(further);
    }
    if below.contains(PROGRAMS.1) {
        return PROGRAMS.0.to_owned();
    }
    let word = name.split_once('-').map_or(name, |(_, rest)| rest);
    let letters = match word.chars().next() {
        Some('a'..='c') => "a-to-c",
        Some('d'..='g') => "d-to-g",
        Some('h'..='p') => "h-to-p",
        Some('q'..='s') => "q-to-s",
        _ => "t-to-z",
    };
    format!("family-{letters}")
}
