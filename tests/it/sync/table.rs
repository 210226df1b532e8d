//! Every way in which a task can stand here and there, and what is to be done about it.

use pm::id::RefName;
use pm::sync::reconcile::{Action, Gone, Standing};

use super::{decided, script, standing, tip};
use crate::protocol::chain::{Chain, agent, id};

/// A word for an action.
fn word(action: &Action) -> String {
    match action {
        Action::Nothing => "nothing".to_owned(),
        Action::Push => "push".to_owned(),
        Action::Take(state) => format!("take {}", state.seq),
        Action::Rebase(rebased) => {
            let kept = rebased.fates.iter().filter(|fate| fate.outcome.is_ok()).count();
            format!("rebase {kept} of {}", rebased.fates.len())
        }
        Action::Alarm(gone) => match gone {
            Gone::Vanished => "vanished",
            Gone::FellBack => "fell back",
            Gone::Rewritten => "rewritten",
        }
        .to_owned(),
        Action::Refuse { theirs, fault } => {
            let whose = if *theirs { "theirs" } else { "ours" };
            format!("{whose} break '{}' at {}", fault.rule, fault.commit.map_or(0, number))
        }
        Action::Collision => "collision".to_owned(),
    }
}

/// The number of a made-up id.
fn number(record: pm::id::RecordId) -> usize {
    (0..1000).find(|number| id(*number) == record).expect("a made-up id")
}

#[track_caller]
fn check(standing: &Standing, expected: &str) {
    assert_eq!(word(&decided(standing).0), expected);
}

fn empty() -> Chain {
    Chain::default()
}

/// As `standing`, for a task that was never seen at the authority.
fn unseen(base: &Chain, ours: &Chain, theirs: &Chain) -> Standing {
    Standing { had: None, ..standing(base, ours, theirs) }
}

#[test]
fn a_task_that_is_on_one_side_only_is_brought_to_the_other() {
    let plan = Chain::of("plan");
    check(&unseen(&empty(), &empty(), &empty()), "nothing");
    check(&unseen(&empty(), &script(&empty(), "plan claim", true), &empty()), "push");
    check(&unseen(&empty(), &empty(), &plan), "take 1");
    // This repository lost its ref, and the authority did not.
    check(&Standing { had: tip(&plan), ..unseen(&empty(), &empty(), &plan) }, "take 1");
}

#[test]
fn what_one_side_lacks_is_taken_or_pushed_and_nothing_is_done_where_both_are_equal() {
    let base = Chain::of("plan claim");
    let (ours, theirs) = (script(&base, "beat beat", true), script(&base, "beat", false));
    for standing in [standing, unseen] {
        check(&standing(&base, &base, &base), "nothing");
        check(&standing(&base, &ours, &base), "push");
        check(&standing(&base, &base, &theirs), "take 3");
        check(&standing(&base, &ours, &theirs), "rebase 2 of 2");
    }
}

#[test]
fn what_the_authority_had_and_lacks_is_an_alarm_whatever_is_here() {
    let base = Chain::of("plan claim");
    let more = script(&base, "beat", false);
    let gone = |standing: Standing| Standing { had: tip(&more), still_has: false, ..standing };
    for local in [&empty(), &base, &more] {
        let gone = Standing { had: tip(&base), ..unseen(&empty(), local, &empty()) };
        check(&gone, "vanished");
    }
    check(&gone(standing(&base, &base, &base)), "fell back");
    check(&gone(standing(&base, &more, &base)), "fell back");
    check(&gone(standing(&base, &script(&more, "report", true), &base)), "fell back");
    let other = script(&base, "release", false);
    check(&gone(standing(&base, &base, &other)), "rewritten");
    check(&gone(standing(&empty(), &more, &other)), "rewritten");
}

#[test]
fn two_tasks_of_one_name_that_were_planned_apart_are_nobodys_to_resolve() {
    let ours = script(&empty(), "plan claim", true);
    check(&unseen(&empty(), &ours, &Chain::of("plan")), "collision");
    check(&unseen(&empty(), &ours, &Chain::of("plan claim report done")), "collision");
}

#[test]
fn a_broken_rule_of_theirs_is_named_with_its_record_and_nothing_is_taken() {
    let base = Chain::of("plan claim");
    let ours = script(&base, "beat", true);
    let mut forged = standing(&base, &base, &script(&base, "report done", false));
    forged.theirs[1].1.agent = agent("w2");
    check(&forged, "theirs break 'holder' at 5");
    let mut diverged = standing(&base, &ours, &script(&base, "report done", false));
    diverged.theirs[0].1.seq += 1;
    check(&diverged, "theirs break 'links' at 4");
    let mut new = unseen(&empty(), &empty(), &Chain::of("plan claim"));
    new.theirs.remove(1);
    check(&new, "theirs break 'links' at 3");
    // A preempt with no reclaim on top, and a Task with no status.
    let mut half = standing(&base, &base, &script(&base, "sweep", false));
    half.theirs.pop();
    check(&half, "theirs break 'prepared' at 4");
    let mut bare = unseen(&empty(), &empty(), &Chain::of("plan"));
    bare.theirs.pop();
    check(&bare, "theirs break 'beginning' at 1");
}

#[test]
fn a_chain_under_the_ref_of_another_task_is_not_taken() {
    let name = RefName::from_full("refs/pm/tasks/default/other".to_owned());
    let standing = Standing { name, ..unseen(&empty(), &empty(), &Chain::of("plan")) };
    check(&standing, "theirs break 'place' at 2");
}

#[test]
fn a_broken_rule_of_ours_is_never_pushed_nor_put_on_top_of_theirs() {
    let base = Chain::of("plan claim");
    let mut ahead = standing(&base, &script(&base, "beat", true), &base);
    ahead.ours[0].1.agent = agent("w2");
    check(&ahead, "ours break 'holder' at 303");
    let mut new = unseen(&empty(), &script(&empty(), "plan", true), &empty());
    new.ours[1].1.seq = 7;
    check(&new, "ours break 'links' at 301");
    let mut diverged = standing(&base, &script(&base, "beat beat", true), &script(&base, "report", false));
    diverged.ours[0].1.agent = agent("w2");
    check(&diverged, "rebase 1 of 2");
}
