//! Machines that share a ledger by way of a hub.

use std::path::PathBuf;

use super::process::Process;
use super::servers::{Behaviour, GitDaemon, HttpBackend, Hub, Proxy, Server};
use super::{Repo, task_ref, text, until};

/// A machine's remote, which decides.
pub const REMOTE: &str = "origin";

/// A hub, with no hook.
pub fn hub() -> Hub {
    let hub = Hub::new();
    // No test cuts the power.
    hub.git(&["config", "core.fsync", "none"]);
    hub
}

/// A hub and two machines of it.
pub fn two() -> (Hub, Repo, Repo) {
    let hub = hub();
    let (a, b) = (machine(&hub), machine(&hub));
    (hub, a, b)
}

/// A machine that reaches the hub by its path.
pub fn machine(hub: &Hub) -> Repo {
    machine_at(&hub.path().display().to_string())
}

/// A machine that reaches its hub at this URL.
pub fn machine_at(url: &str) -> Repo {
    let repo = Repo::new();
    join(&repo, url);
    repo
}

/// Makes a repository a machine of the hub at this URL.
pub fn join(repo: &Repo, url: &str) {
    repo.git(&["remote", "add", REMOTE, url]);
    repo.git(&["config", "pm.remote", REMOTE]);
    repo.git(&["config", "pm.networkTimeout", "10s"]);
}

/// A hub behind a server and a network that breaks when it is told to.
pub struct Far<S> {
    /// The network.
    pub proxy: Proxy,
    /// The URL of the hub by way of it.
    pub url: String,
    _server: S,
    /// The hub.
    pub hub: Hub,
}

/// By git's own protocol.
pub fn far() -> Far<GitDaemon> {
    let hub = hub();
    let server = GitDaemon::start(&hub);
    Far::new(hub, server)
}

/// By HTTP.
pub fn far_by_http() -> Far<HttpBackend> {
    let hub = hub();
    let server = HttpBackend::start(&hub);
    Far::new(hub, server)
}

impl<S: Server> Far<S> {
    fn new(hub: Hub, server: S) -> Far<S> {
        let proxy = Proxy::start(server.addr());
        let url = server.url_at(proxy.addr());
        Far { proxy, url, _server: server, hub }
    }

    /// A machine there.
    pub fn machine(&self) -> Repo {
        machine_at(&self.url)
    }

    /// A machine that the network does not separate from the hub.
    pub fn near(&self) -> Repo {
        machine(&self.hub)
    }

    /// Behaves in this way from now on.
    pub fn network(&self, behaviour: Behaviour) {
        self.proxy.set(behaviour);
    }
}

/// What the hub has below the ledger's refs, as [`Repo::refs`] tells it of a repository.
pub fn refs_at(hub: &Hub) -> String {
    hub.git(&["for-each-ref", "refs/pm"])
}

/// A hook that refuses what is pushed, once it is told to go on.
const REFUSAL: &str = "#!/bin/sh
: >refusal-waits
while [ ! -e refusal-goes-on ]; do sleep 0.01; done
mv refusal-goes-on refusal-done
exit 1
";

/// Runs a command as [`AGENT`](super::AGENT) and kills it when its push has come to the hub, which then refuses that: so
/// what is on its way from here is nowhere else. Returns that record.
pub fn killed_on_its_way(hub: &Hub, repo: &Repo, args: &[&str]) -> String {
    let hook = hub.path().join("hooks/pre-receive");
    std::fs::create_dir_all(hub.path().join("hooks")).expect("a directory for hooks");
    std::fs::write(&hook, REFUSAL).expect("the hook is written");
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("the hook can be run");
    let sending = Process::start(repo.pm_command(args).env("PM_AGENT_ID", super::AGENT));
    until("a push comes to the hook", || hub.path().join("refusal-waits").exists().then_some(()));
    sending.signal(rustix::process::Signal::KILL);
    assert_eq!(sending.outcome().code, -9);
    std::fs::write(hub.path().join("refusal-goes-on"), "").expect("written");
    until("the push is refused", || hub.path().join("refusal-done").exists().then_some(()));
    for name in ["refusal-waits", "refusal-done", "hooks/pre-receive"] {
        std::fs::remove_file(hub.path().join(name)).expect("removed");
    }
    repo.git(&["for-each-ref", "--format=%(objectname)", "refs/pm-pending"])
}

/// Where a task is at the hub.
#[track_caller]
pub fn tip_at(hub: &Hub, slug: &str) -> String {
    hub.tip(&task_ref(slug)).unwrap_or_else(|| panic!("{slug} is at the hub"))
}

/// Every ref that this repository keeps for itself below this prefix, with its value.
pub fn own(repo: &Repo, prefix: &str) -> String {
    repo.git(&["for-each-ref", "--format=%(refname) %(objectname)", prefix])
}

/// Asserts that a task is the same here and at the hub, that the machine knows so, and that nothing is on its way.
#[track_caller]
pub fn assert_level(hub: &Hub, repo: &Repo, slug: &str) {
    let tip = repo.tip(slug);
    assert_eq!(tip_at(hub, slug), tip, "{slug} is the same at the hub");
    assert_eq!(own(repo, "refs/pm-pending"), "", "nothing is on its way");
    let seen = repo.git(&["rev-parse", &format!("refs/pm-remote/{REMOTE}/tasks/default/{slug}")]);
    assert_eq!(seen, tip, "what was seen of {slug} at the hub");
}

/// How many records a task has here.
pub fn records(repo: &Repo, slug: &str) -> usize {
    repo.git(&["rev-list", "--count", &task_ref(slug)]).parse().expect("a number")
}

/// The accounts of what lost of a task: each tip, and what `pm/lost` says of it.
pub fn lost(repo: &Repo, slug: &str) -> Vec<(String, serde_json::Value)> {
    let tips = repo.git(&["for-each-ref", "--format=%(objectname)", &format!("refs/pm-lost/default/{slug}/")]);
    let account = |tip: &str| {
        let file: PathBuf = repo.git_dir().join("pm/lost").join(tip);
        let json = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (tip.to_owned(), serde_json::from_slice(&json).expect("JSON"))
    };
    tips.lines().map(account).collect()
}

/// The trouble that a sync tells of this task, which must be the only one.
#[track_caller]
pub fn only_trouble(outcome: &super::Outcome, slug: &str) -> String {
    let json = outcome.stdout_json();
    let left = json["left_alone"].as_array().cloned().unwrap_or_default();
    assert_eq!(left.len(), 1, "{outcome:?}");
    assert_eq!(left[0]["ref"], task_ref(slug), "{outcome:?}");
    text(&left[0]["found"])
}
