//! That a verifier ends, and everything with it that it started.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use pm::verifier::{Judgement, Outcome};
use rustix::process::{Pid, Signal, kill_process};

use super::Scene;
use crate::support::process::is_alive;

/// What no test waits for.
const LONG: Duration = Duration::from_secs(15);

/// Runs a verifier that does not end by itself until it has written `ready`, and then stops it.
fn stopped(scene: &Scene, verifier: &str) -> Duration {
    let started = Instant::now();
    let outcome = scene.verify_until(verifier, &|| scene.read("ready") == "yes");
    assert_eq!(outcome.expect("it runs"), Outcome::Stopped);
    started.elapsed()
}

#[test]
fn a_timeout_ends_the_command_and_what_it_started() {
    let mut scene = Scene::new();
    scene.timeout = Duration::from_millis(1500);
    let judgement = scene.judgement("echo begun; sleep 1000 & echo $! >pid; sh -c 'sleep 1000; true'");
    assert_eq!(
        judgement,
        Judgement { exit: 124, summary: Some("timed out after 1.5 s\nbegun".to_owned()), timed_out: true }
    );
    assert!(!is_alive(scene.pid("pid")));
}

#[test]
fn a_command_that_ignores_sigterm_is_killed_after_a_grace() {
    let scene = Scene::new();
    let deaf = "trap '' TERM; sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo $! >pid; echo yes >ready; \
                while :; do sleep 0.1; done";
    let took = stopped(&scene, deaf);
    assert!(took >= Duration::from_secs(2) && took < LONG, "{took:?}");
    assert!(!is_alive(scene.pid("pid")));
}

#[test]
fn a_command_may_clean_up_when_it_is_told_to_end() {
    let scene = Scene::new();
    let took = stopped(&scene, "trap 'echo clean >log; exit' TERM; echo yes >ready; while :; do sleep 0.01; done");
    assert!(took < LONG, "{took:?}");
    assert_eq!(scene.read("log"), "clean");
}

#[test]
fn a_command_that_was_stopped_hears_that_it_has_to_end() {
    let scene = Scene::new();
    stopped(&scene, "trap 'echo heard >log; exit' TERM; echo yes >ready; kill -STOP $$; while :; do sleep 0.01; done");
    assert_eq!(scene.read("log"), "heard");
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_left_the_group_ends_with_it() {
    let scene = Scene::new();
    // timeout makes a group of its own, and the shell in it stands for what it runs.
    let verifier = "timeout 1000 sh -c 'echo $$ >pid; echo yes >ready; sleep 1000; true' & wait; true";
    let took = stopped(&scene, verifier);
    assert!(took < LONG, "{took:?}");
    assert!(!is_alive(scene.pid("pid")));
}

#[test]
fn what_a_command_leaves_behind_ends_with_it_and_holds_nothing_up() {
    let scene = Scene::new();
    let started = Instant::now();
    assert_eq!(scene.judged("sleep 1000 & echo $! >pid; echo done; exit 3"), (3, "done".to_owned()));
    assert!(started.elapsed() < LONG);
    assert!(!is_alive(scene.pid("pid")));
}

#[test]
fn what_a_command_leaves_behind_may_write_its_last_line() {
    let scene = Scene::new();
    assert_eq!(scene.judged("(sleep 0.01; echo last) & echo first"), (0, "first\nlast".to_owned()));
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_of_another_session_that_keeps_the_output_open_holds_nothing_up() {
    let scene = Scene::new();
    let started = Instant::now();
    let verifier = "setsid sh -c 'echo $$ >pid; exec sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done; echo done";
    assert_eq!(scene.judged(verifier), (0, "done".to_owned()));
    assert!(started.elapsed() < LONG);
    let pid = scene.pid("pid");
    assert!(is_alive(pid), "it is nobody's to end");
    kill_process(Pid::from_raw(pid as i32).expect("an id"), Signal::KILL).expect("killed");
}

#[test]
fn a_command_that_never_stops_printing_is_timed_out() {
    let mut scene = Scene::new();
    scene.timeout = Duration::from_millis(500);
    let judgement = scene.judgement("yes");
    assert!(judgement.timed_out && judgement.exit == 124, "{judgement:?}");
    assert!(judgement.summary.expect("something").starts_with("timed out after 0.5 s\n"));
}

#[test]
fn a_command_that_closed_its_output_is_waited_for() {
    let scene = Scene::new();
    assert_eq!(scene.judged("exec >&- 2>&-; sleep 0.2; exit 4"), (4, String::new()));
}

#[test]
fn a_stop_is_asked_for_again_and_again_but_not_all_the_time() {
    let scene = Scene::new();
    let asked = AtomicU32::new(0);
    let started = Instant::now();
    let count = || {
        asked.fetch_add(1, Ordering::SeqCst);
        false
    };
    let outcome = scene.verify_until("for x in 1 2 3 4 5 6 7 8 9 10; do echo $x; sleep 0.05; done", &count);
    assert!(matches!(outcome, Ok(Outcome::Judged(judgement)) if judgement.passed()));
    let most = started.elapsed().as_millis() / 50 + 2;
    let asked = asked.into_inner();
    assert!((3..=most).contains(&asked.into()), "{asked}, at most {most}");
}

#[test]
fn what_is_stopped_before_it_began_is_not_started() {
    let scene = Scene::new();
    assert_eq!(scene.verify_until("touch ran", &|| true).expect("asked"), Outcome::Stopped);
    assert!(!scene.path().join("ran").exists());
}

#[test]
fn a_panic_of_the_one_who_stops_it_leaves_nothing_running() {
    let scene = Scene::new();
    let panics = || {
        assert!(scene.read("ready") != "yes", "on purpose");
        false
    };
    let verifier = "sleep 1000 & echo $! >pid; echo yes >ready; sleep 1000; true";
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scene.verify_until(verifier, &panics)));
    assert!(caught.is_err());
    crate::support::until("all is gone", || (!is_alive(scene.pid("pid"))).then_some(()));
}
