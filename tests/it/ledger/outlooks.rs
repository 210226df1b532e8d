//! How it stands with what is below a task, as far as that tells whether its children can be worked on.

use std::path::Path;

use pm::error::Place;
use pm::id::TaskId;
use pm::ledger::Ledger;
use pm::ledger::create::NewTask;
use pm::ledger::runnable::Outlook;
use pm::store::memory::MemoryStore;

use super::world::*;

fn outlook(ledger: &Ledger<'_>, slug: &str) -> Outlook {
    let runnable = ledger.runnable("refs/pm/tasks/", &[], Path::new("/")).expect("read");
    let place = Place { queue: queue(), slug: slug.parse().expect("a slug") };
    runnable.outlooks([&place].into_iter()).remove(&place).expect("that one")
}

/// `root` with a child that waits for a task elsewhere, one that waits for that child, a sticky one, and one with a child of
/// its own that waits for a task elsewhere.
fn tree(ledger: &Ledger<'_>) {
    let elsewhere: Vec<TaskId> = ["before", "long-before"].map(|slug| plan(ledger, slug).id).into();
    let root = plan(ledger, "root").id;
    let new = |new: NewTask| ledger.create(new).expect("planned").state.id;
    let below = |parent, mut task: NewTask| {
        task.task.parent = Some(parent);
        new(task)
    };
    let first = below(root, new_task("first", &elsewhere[..1]));
    below(root, new_task("second", &[first]));
    below(root, sticky("sticky", &[]));
    let inner = below(root, new_task("inner", &[]));
    below(inner, new_task("deep", &elsewhere[1..]));
}

/// That something which is done makes a difference (`is_different`) to how it stands below `root`.
fn check(is_different: bool, what: impl Fn(&Ledger<'_>)) {
    let (store, world) = (MemoryStore::new(), World::new());
    let ledger = world.ledger(&store, "w1");
    tree(&ledger);
    let before = outlook(&ledger, "root");
    assert_eq!(before.len(), 5, "all that are open below it");
    what(&ledger);
    assert_eq!(outlook(&ledger, "root") != before, is_different);
}

fn take(ledger: &Ledger<'_>, slug: &str) {
    act(ledger, slug, claim()).expect("claimed");
}

#[test]
fn whether_the_task_itself_is_claimed_makes_no_difference_to_its_outlook() {
    check(false, |ledger| take(ledger, "root"));
    check(false, |ledger| {
        take(ledger, "root");
        act(ledger, "root", release()).expect("released");
    });
}

#[test]
fn what_becomes_of_a_child_or_of_what_it_waits_for_makes_a_difference_to_the_outlook() {
    check(true, |ledger| take(ledger, "before"));
    check(true, |ledger| drop(act(ledger, "before", cancel()).expect("cancelled")));
    check(true, |ledger| take(ledger, "long-before"));
    check(true, |ledger| drop(act(ledger, "sticky", cancel()).expect("cancelled")));
    check(true, |ledger| ["root", "inner"].into_iter().for_each(|slug| take(ledger, slug)));
    check(true, |ledger| {
        let root = found(ledger, "root").state.id;
        ledger.create(child("another", root)).expect("planned");
    });
}

#[test]
fn what_happens_to_other_tasks_and_that_somebody_still_works_make_no_difference_to_the_outlook() {
    check(false, |ledger| drop(plan(ledger, "other")));
    let (store, world) = (MemoryStore::new(), World::new());
    let ledger = world.ledger(&store, "w1");
    tree(&ledger);
    ["root", "inner"].into_iter().for_each(|slug| take(&ledger, slug));
    let before = outlook(&ledger, "root");
    act(&ledger, "inner", heartbeat(None)).expect("recorded");
    assert_eq!(outlook(&ledger, "root"), before);
}
