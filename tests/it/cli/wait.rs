//! `pm wait`: it ends when the task is where it is wanted, or can no longer come there, or the time is over.

use std::process::Command;

use pm::id::RecordId;
use pm::protocol::decide::{Draft, Stamp};
use pm::protocol::record::{Content, Nonce, Phase, Status};
use pm::store::git::GitStore;
use pm::store::{Mode, Store, Swap};
use pm::{clock, ledger};
use serde_json::json;

use crate::support::fleet::{far, two};
use crate::support::process::Process;
use crate::support::servers::Behaviour;
use crate::support::{AGENT, Repo, text, until};

/// Starts pm as [`AGENT`].
fn start(repo: &Repo, args: &[&str]) -> Process {
    let mut command: Command = repo.pm_command(args);
    Process::start(command.env("PM_AGENT_ID", AGENT))
}

/// Starts a wait, and returns once it has looked at least once: it has gone to sleep by then.
fn waiting(repo: &Repo, args: &[&str]) -> Process {
    let wait = start(repo, &[&["wait"], args].concat());
    until("it waits", || is_asleep(&wait).then_some(()));
    wait
}

/// Whether a process sleeps for a time of its own choice; at all, where the system does not tell in which call.
fn is_asleep(process: &Process) -> bool {
    let ask = |what: &str| std::fs::read_to_string(format!("/proc/{}/{what}", process.0.id())).unwrap_or_default();
    let call = ask("wchan");
    call.contains("nanosleep") || (["", "0"].contains(&call.trim()) && ask("stat").contains(") S "))
}

/// Rejects a task as [`AGENT`].
fn reject(repo: &Repo, task: &str) {
    repo.claim(task);
    repo.pm(&["report", "--task", task, "--title", "It cannot be done"]).ok();
    repo.pm(&["finished", "--task", task, "--rejected"]).ok();
}

/// Records that `old` was superseded by `new`, which no command of this build does.
fn supersede(repo: &Repo, old: &str, new: &str) {
    let store = GitStore::discover(repo.path()).expect("usable");
    let email = "ada@example.com".to_owned();
    let identity = ledger::Identity { committer: ("Ada".to_owned(), email.clone()), email: email.clone() };
    let (agent, clock) = (AGENT.parse().expect("an agent id"), clock::SystemClock::new());
    let ledger = ledger::Ledger {
        store: &store,
        clock: &clock,
        identity: &identity,
        agent: &agent,
        context: None,
        reach: ledger::Reach::Alone,
    };
    let queue = "default".parse().expect("a queue");
    let [old, new] = [old, new].map(|task| ledger.find(task, &queue).expect("there"));
    let before = old.state.status.as_ref().expect("a status").status.clone();
    let status =
        Status { superseded_by: Some(new.state.id), ..Status::new(Phase::Superseded, before.attempt, before.reclaims) };
    let draft = Draft { agent: agent.clone(), content: Content::Status(Box::new(status)), body: None };
    let stamp = Stamp { email: &email, at: 1_796_000_000, clock: None, nonce: Nonce(1) };
    let record = draft.into_record(Some(&old.state), &stamp);
    let by = pm::commit::Signature {
        name: b"Ada".to_vec(),
        email: email.clone().into_bytes(),
        seconds: 1_796_000_000,
        offset: 0,
    };
    let id = RecordId(store.write_commit(&pm::protocol::codec::encode(&record, by)).expect("written"));
    let held = store.lock(&[(old.name.shard(), Mode::Exclusive)]).expect("free");
    let swap = store.compare_and_swap(&held, &old.name, Some(old.state.tip.0), id.0).expect("decided");
    assert_eq!(swap, Swap::Done);
}

#[test]
fn a_task_that_is_there_already_ends_the_wait_at_once() {
    let repo = Repo::new();
    let task = repo.plan("a");
    assert_eq!(repo.pm(&["wait", "--task", "a", "--status", "new"]).ok().stdout, "new        default/a  p2  Do a\n");
    repo.work_off("a");
    let told = repo.pm(&["wait", "--task", "a", "--json"]).json();
    let list = repo.pm(&["list", "--json"]).json();
    assert_eq!((&told["task"], &told["state"]["status"]), (&json!(task), &json!("done")));
    let keys = |value: &serde_json::Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&told), keys(&list["tasks"][0]));
    assert_eq!(keys(&told["state"]), keys(&list["tasks"][0]["state"]));
}

#[test]
fn a_task_that_gets_done_meanwhile_ends_the_wait_whatever_git_does_to_its_ref() {
    let repo = Repo::new();
    repo.plan("a");
    let wait = waiting(&repo, &["--task", "a"]);
    repo.git(&["pack-refs", "--all"]);
    repo.work_off("a");
    repo.git(&["pack-refs", "--all"]);
    assert_eq!(wait.outcome().ok().stdout, "done       default/a  p2  Do a\n");
}

#[test]
fn any_of_several_statuses_will_do() {
    let repo = Repo::new();
    repo.plan("a");
    let wait = waiting(&repo, &["--task", "a", "--status", "working", "--status", "rejected", "--json"]);
    let claim = repo.claim("a");
    let told = wait.outcome().json();
    assert_eq!((&told["state"]["status"], &told["state"]["claim"]), (&json!("working"), &json!(claim)));
    repo.pm(&["wait", "--task", "a", "--status", "new", "--status", "working"]).ok();
}

#[test]
fn a_task_that_is_closed_otherwise_is_not_waited_for() {
    let repo = Repo::new();
    let task = repo.plan("a");
    let wait = waiting(&repo, &["--task", "a", "--json"]);
    reject(&repo, "a");
    let error = wait.outcome().fails(6).error();
    let facts = json!([task, "default", "a", "rejected", ["done"]]);
    assert_eq!(json!([error["task"], error["queue"], error["slug"], error["status"], error["wanted"]]), facts);
    repo.plan("b");
    repo.work_off("b");
    for status in ["working", "new", "rejected", "superseded"] {
        let outcome = repo.pm(&["wait", "--task", "b", "--status", status]).fails(6);
        outcome.says(&format!(
            "default/b: the task is done, and will not be {status} by itself; `pm show --task default/b` tells"
        ));
    }
    repo.pm(&["wait", "--task", "absent"]).fails(17);
    repo.pm(&["wait", "--task", "a", "--status", "open"]).fails(2);
}

#[test]
fn when_the_time_is_over_the_state_is_told() {
    let repo = Repo::new();
    let task = repo.plan("a");
    let claim = repo.claim("a");
    let outcome = repo.pm(&["wait", "--task", "a", "--timeout", "120ms"]).fails(1);
    outcome.says("error: default/a: the task is working after 1").says(" ms of waiting for it to be done; ");
    let error = repo.pm(&["wait", "--task", "a", "--timeout", "1ms", "--json"]).fails(1).error();
    assert_eq!((&error["timed_out"], &error["status"]), (&json!(true), &json!("working")));
    assert_eq!((&error["task"], &error["state"]["claim"]), (&json!(task), &json!(claim)));
    assert!(error["waited_ms"].as_u64().is_some_and(|waited| waited >= 1), "{error}");
    repo.plan_with("b", &["--depends-on", "a"]);
    let error = repo.pm(&["wait", "--task", "b", "--timeout", "1ms", "--json"]).fails(1).error();
    assert_eq!(error["state"]["blocked_by"], json!(["default/a"]));
}

#[test]
fn a_superseded_task_is_followed_to_what_stands_for_it() {
    let repo = Repo::new();
    for slug in ["a", "a-r1", "a-r2"] {
        repo.plan(slug);
    }
    supersede(&repo, "a", "a-r1");
    let wait = waiting(&repo, &["--task", "a", "--json"]);
    supersede(&repo, "a-r1", "a-r2");
    let plain = waiting(&repo, &["--task", "a"]);
    repo.work_off("a-r2");
    assert_eq!(text(&wait.outcome().json()["slug"]), "a-r2");
    let plain = plain.outcome().ok().says("default/a was superseded: task ").says("default/a-r1 was superseded: task ");
    assert_eq!(plain.stdout, "done       default/a-r2  p2  Do a-r2\n");
    let told = repo.pm(&["wait", "--task", "a", "--status", "superseded", "--json"]).json();
    assert_eq!((text(&told["slug"]), text(&told["state"]["status"])), ("a".to_owned(), "superseded".to_owned()));
    assert_eq!(repo.pm(&["wait", "--task", "a", "--status", "working", "--json"]).fails(6).error()["slug"], "a-r2");
}

#[test]
fn a_wait_uses_hardly_any_cpu_and_ctrl_c_ends_it() {
    let repo = Repo::new();
    repo.plan("a");
    let wait = start(&repo, &["wait", "--task", "a"]);
    let started = std::time::Instant::now();
    until("two seconds", || (started.elapsed().as_millis() > 2_000).then_some(()));
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", wait.0.id())).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    // utime and stime, in ticks of 10 ms.
    let used_ms: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("ticks") * 10).sum();
    assert!(used_ms < 200, "{used_ms} ms");
    wait.signal(rustix::process::Signal::INT);
    assert_eq!(wait.outcome().code, -2);
}

#[test]
fn what_another_machine_records_ends_the_wait() {
    let (_hub, a, b) = two();
    a.plan("a");
    let wait = waiting(&b, &["--task", "a"]);
    a.work_off("a");
    assert_eq!(wait.outcome().ok().stdout, "done       default/a  p2  Do a\n");
    a.plan("b");
    reject(&a, "b");
    b.pm(&["wait", "--task", "b"]).fails(6);
}

#[test]
fn what_is_recorded_here_alone_does_not_count_where_a_remote_decides() {
    let (_hub, a, _) = two();
    a.pm(&["plan", "--offline", "--title", "Do a", "--slug", "a"]).ok();
    let wait = ["wait", "--task", "a", "--status", "new", "--timeout", "1ms"];
    a.pm(&wait).fails(1).says("default/a: the task is new, and has not reached the authority, after ");
    a.pm(&[&wait[..], &["--offline"]].concat()).ok();
    let waiting = waiting(&a, &["--task", "a", "--status", "new"]);
    a.pm(&["sync"]).ok();
    waiting.outcome().ok();
    a.pm(&["executing", "--offline", "--task", "a"]).ok();
    let working = ["wait", "--task", "a", "--status", "working", "--timeout", "1ms", "--json"];
    assert_eq!(a.pm(&working).fails(1).error()["status"], "new");
    a.pm(&["sync"]).ok();
    a.pm(&working).ok();
}

#[test]
fn a_hub_that_does_not_answer_and_a_turn_that_is_taken_do_not_make_the_time_longer() {
    let far = far();
    let (machine, near) = (far.machine(), far.near());
    near.plan("known");
    machine.pm(&["sync"]).ok();
    // Before the ten seconds that an errand may take, and its turn a multiple of that.
    let is_in_time = |task: &str| {
        let error = machine.pm(&["wait", "--task", task, "--timeout", "1s", "--json"]).fails(1).error();
        let waited_ms = error["waited_ms"].as_u64().expect("a number");
        assert!((1_000..6_000).contains(&waited_ms), "{error}");
    };
    far.network(Behaviour::DropToServer);
    is_in_time("known");
    is_in_time("unknown");
    far.network(Behaviour::Pass);
    let gate = far.hub.close_gate();
    let sending = start(&machine, &["executing", "--task", "known"]);
    gate.wait_for_push();
    is_in_time("known");
    drop(gate);
    sending.outcome().ok();
}

#[test]
fn an_outage_is_waited_out_and_said_once() {
    let far = far();
    let (machine, near) = (far.machine(), far.near());
    near.plan("a");
    near.work_off("a");
    far.network(Behaviour::Refuse);
    let outcome = machine.pm(&["wait", "--task", "a", "--timeout", "100ms", "--json"]).fails(1);
    assert_eq!((&outcome.error()["timed_out"], &outcome.error()["asked"]), (&json!(true), &json!("a")));
    let mut wait = start(&machine, &["wait", "--task", "a"]);
    let mut stderr = wait.0.stderr.take().expect("a pipe");
    let mut said = String::new();
    until("it says so", || {
        let mut byte = [0];
        std::io::Read::read_exact(&mut stderr, &mut byte).expect("another byte");
        said.push(char::from(byte[0]));
        said.ends_with('\n').then_some(())
    });
    assert!(said.starts_with("warning: the authority cannot be asked, waiting for it: "), "{said}");
    far.network(Behaviour::Pass);
    let output = until("it ends", || wait.0.try_wait().expect("asked"));
    assert!(output.success());
    said.clear();
    std::io::Read::read_to_string(&mut stderr, &mut said).expect("read");
    assert_eq!(said, "");
}
