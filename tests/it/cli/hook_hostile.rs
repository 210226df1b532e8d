//! What a hub refuses: a table of what a hostile pusher tries with plain git, each with the rule that it breaks.
//!
//! Long, since the table reads best in one piece.

use crate::support::hub::Hub;
use crate::support::{Repo, task_ref};

/// git's empty tree, in a repository with SHA-1.
pub const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// The raw bytes of a commit.
pub fn raw(repo: &Repo, commit: &str) -> Vec<u8> {
    // git's output is trimmed at its end.
    format!("{}\n", repo.git(&["cat-file", "commit", commit])).into_bytes()
}

/// Writes an object, well formed or not.
pub fn write(repo: &Repo, kind: &str, bytes: &[u8]) -> String {
    repo.git_fed(bytes, &["hash-object", "--literally", "-t", kind, "-w", "--stdin"])
}

/// A commit with one piece of another's text replaced.
pub fn bent(repo: &Repo, commit: &str, piece: &str, instead: &str) -> String {
    let text = String::from_utf8(raw(repo, commit)).expect("UTF-8");
    assert_eq!(text.matches(piece).count(), 1, "{piece:?} is to be replaced in\n{text}");
    write(repo, "commit", text.replace(piece, instead).as_bytes())
}

/// A ledger of a pusher whose hub has all of it but the last record of each task.
struct World {
    hub: Hub,
}

impl World {
    fn new() -> World {
        let hub = Hub::without_hook(Repo::bare_of_config(&["--bare"]), &[]);
        // What git finds malformed never comes to the hook; here the hook is alone.
        hub.hub.git(&["config", "receive.fsckObjects", "false"]);
        hub.hub.pm(&["hook", "install"]).ok();
        let world = World { hub };
        let repo = &world.hub.repo;
        for slug in ["new", "held", "idle", "reported"] {
            repo.plan(slug);
        }
        repo.claim("held");
        repo.claim("idle");
        repo.claim("reported");
        repo.pm(&["report", "--task", "reported", "--title", "T"]).ok();
        world.hub.push_all().ok();
        world.hub.assert_same();
        repo.claim("new");
        repo.pm(&["heartbeat", "--task", "held"]).ok();
        repo.pm(&["finished", "--task", "reported"]).ok();
        world
    }

    fn repo(&self) -> &Repo {
        &self.hub.repo
    }

    fn tip(&self, slug: &str) -> String {
        self.repo().tip(slug)
    }

    /// The record below the tip.
    fn below(&self, slug: &str) -> String {
        self.repo().git(&["rev-parse", &format!("{}~", task_ref(slug))])
    }

    /// A refspec that moves a task to its last record with a piece of it replaced.
    fn bent(&self, slug: &str, piece: &str, instead: &str) -> Vec<String> {
        to(slug, &bent(self.repo(), &self.tip(slug), piece, instead))
    }

    /// A claim of w2 over that of w1, everything else being right.
    fn second_claim(&self) -> Vec<String> {
        let (claim, first) = (self.tip("idle"), self.below("idle"));
        let text = String::from_utf8(raw(self.repo(), &claim)).expect("UTF-8").replace(&first, &claim);
        let text =
            text.replace("author w1", "author w2").replace("Seq: 2", "Seq: 3").replace("Attempt: 1", "Attempt: 2");
        to("idle", &write(self.repo(), "commit", text.as_bytes()))
    }

    /// The first record of a task, and one more on top of it, of a format to come.
    fn future(&self) -> Vec<String> {
        let (repo, first) = (self.repo(), self.repo().git(&["rev-parse", &format!("{}~2", task_ref("new"))]));
        let root = bent(repo, &first, "Format: 1", "Format: 2");
        let status = String::from_utf8(raw(repo, &self.below("new"))).expect("UTF-8").replace(&first, &root);
        to("future", &write(repo, "commit", status.as_bytes()))
    }
}

/// A refspec that forces a task to an object.
fn to(slug: &str, object: &str) -> Vec<String> {
    vec![format!("+{object}:{}", task_ref(slug))]
}

/// A refspec that puts a valid tip under some other name.
fn named(world: &World, name: &str) -> Vec<String> {
    vec![format!("+{}:{name}", world.tip("idle"))]
}

/// What a hostile pusher tries, how, the rule that refuses it, and a piece of what is said.
type Hostile = (&'static str, fn(&World) -> Vec<String>, &'static str, &'static str);

const HOSTILE: &[Hostile] = &[
    // Whoever does not hold the task.
    (
        "a heartbeat by another",
        |w| w.bent("held", "author w1", "author w2"),
        "holder",
        "a TaskHeartbeat by w2 while w1 holds",
    ),
    ("a finish by another", |w| w.bent("reported", "author w1", "author w2"), "holder", "a TaskStatus by w2"),
    ("a claim over a claim", World::second_claim, "transition", "from working to working"),
    (
        "a preempt that is no sweep",
        |w| w.bent("held", "Seq: 3", "Preempt: true\nSeq: 3"),
        "prepared",
        "ends in a preempt",
    ),
    // States that are skipped.
    ("done from new", |w| w.bent("new", "Status: working", "Status: done"), "transition", "from new to done"),
    (
        "done without proof",
        |w| w.bent("reported", &format!("Proof: {}\n", w.below("reported")), ""),
        "proof",
        "without a proof",
    ),
    (
        "another proof",
        |w| w.bent("reported", &format!("Proof: {}", w.below("reported")), &format!("Proof: {}", w.tip("idle"))),
        "proof",
        "is not the newest report",
    ),
    ("an attempt too many", |w| w.bent("new", "Attempt: 1", "Attempt: 2"), "counters", "it must be 1"),
    (
        "nothing but a Task",
        |w| to("half", &w.repo().git(&["rev-parse", "refs/pm/tasks/default/new~2"])),
        "beginning",
        "before its first TaskStatus",
    ),
    // Lies about the place in the chain.
    ("a wrong seq", |w| w.bent("held", "Seq: 3", "Seq: 4"), "links", "its seq is 4"),
    (
        "a link to another claim",
        |w| w.bent("held", &format!("Claim-Status: {}", w.below("held")), &format!("Claim-Status: {}", w.tip("idle"))),
        "links",
        "it names the status",
    ),
    (
        "another task's record",
        |w| w.bent("held", &format!("parent {}", w.below("held")), &format!("parent {}", w.tip("idle"))),
        "fast-forward",
        "does not descend",
    ),
    (
        "a merge",
        |w| w.bent("held", "author w1", &format!("parent {}\nauthor w1", w.tip("idle"))),
        "unreadable",
        "it has 2 parents",
    ),
    (
        "a heartbeat with files",
        |w| {
            let tree = w
                .repo()
                .git_fed(b"100644 blob e69de29bb2d1d6434b8b29ae775ad8c2e48c5391\tf\n", &["mktree", "--missing"]);
            write(w.repo(), "blob", b"");
            w.bent("held", &format!("tree {EMPTY_TREE}"), &format!("tree {tree}"))
        },
        "unreadable",
        "a tree of files",
    ),
    // History that is not kept.
    (
        "a rewind",
        |w| to("held", &w.repo().git(&["rev-parse", "refs/pm/tasks/default/held~2"])),
        "fast-forward",
        "does not descend",
    ),
    (
        "a rewritten record",
        |w| to("idle", &bent(w.repo(), &w.tip("idle"), "Nonce: ", "X: y\nNonce: ")),
        "fast-forward",
        "does not descend",
    ),
    ("a deletion", |_| vec![":refs/pm/tasks/default/held".to_owned()], "deletion", "never deleted"),
    (
        "two tasks that change places",
        |w| [to("held", &w.tip("idle")), to("idle", &w.tip("held"))].concat(),
        "fast-forward",
        "does not descend",
    ),
    ("a second ref", |w| to("second", &w.tip("idle")), "place", "its chain belongs to refs/pm/tasks/default/idle"),
    // What cannot be read.
    (
        "a format to come, at the tip",
        |w| to("future", &bent(w.repo(), "refs/pm/tasks/default/new~2", "Format: 1", "Format: 2")),
        "format",
        "use a newer pm",
    ),
    ("a format to come, below", World::future, "format", "it is of record format 2"),
    ("a record of a kind to come", |w| w.bent("held", "TaskHeartbeat", "TaskPulse"), "unreadable", "TaskPulse"),
    (
        "a line of a megabyte",
        |w| w.bent("held", "Seq: 3", &format!("Progress: {}\nSeq: 3", "x".repeat(1 << 20))),
        "unreadable",
        "its message has 10",
    ),
    (
        "a subject of a megabyte",
        |w| to("big", &bent(w.repo(), "refs/pm/tasks/default/new~2", "Do new", &"x".repeat(1_000_000))),
        "unreadable",
        "200",
    ),
    ("a NUL", |w| w.bent("held", "heartbeat by w1", "heartbeat\0 by w1"), "unreadable", "bytes that no record holds"),
    (
        "an escape sequence",
        |w| w.bent("held", "heartbeat by w1", "\u{1b}[2Jheartbeat"),
        "unreadable",
        "bytes that no record holds",
    ),
    ("an escape sequence in a trailer", |w| w.bent("held", "Seq: 3", "\u{9b}2J\u{202e}\nSeq: 3"), "unreadable", ""),
    (
        "an agent that is none",
        |w| w.bent("held", "author w1", "author \u{1b}[31mw1"),
        "unreadable",
        "its author is no agent",
    ),
    (
        "code",
        |w| to("held", &w.repo().git(&["commit-tree", "-p", &w.below("held"), EMPTY_TREE, "-m", "code"])),
        "unreadable",
        "no record of pm",
    ),
    ("a blob", |w| to("held", &write(w.repo(), "blob", b"x")), "unreadable", "it is a blob"),
    ("a tree", |w| to("held", &write(w.repo(), "tree", b"")), "unreadable", "it is a tree"),
    (
        "a tag",
        |w| {
            let tag = format!("object {}\ntype commit\ntag t\ntagger A <a@b> 1 +0000\n\nt\n", w.tip("held"));
            to("held", &write(w.repo(), "tag", tag.as_bytes()))
        },
        "unreadable",
        "it is a tag",
    ),
    // Names.
    ("a second spelling", |w| named(w, "refs/pm/tasks/default/%61bc"), "namespace", "canonical"),
    ("an escape in capitals", |w| named(w, "refs/pm/tasks/default/a%2Elock"), "namespace", "canonical"),
    ("a name in capitals", |w| named(w, "refs/pm/tasks/default/Held"), "namespace", "canonical"),
    ("a name that turns the text around", |w| named(w, "refs/pm/tasks/default/\u{202e}dleh"), "namespace", "canonical"),
    ("a ref too high", |w| named(w, "refs/pm/tasks/stray"), "namespace", "canonical"),
    ("a ref too deep", |w| named(w, "refs/pm/tasks/default/held/deep"), "namespace", "canonical"),
    ("a ref in the place of all", |w| named(w, "refs/pm"), "namespace", "takes nothing else"),
    ("another case", |w| named(w, "refs/PM/tasks/default/a"), "namespace", "fold case"),
    ("an archive", |w| named(w, "refs/pm/archive/default"), "namespace", "takes nothing else"),
    (
        "the deletion of an archive",
        |w| [named(w, "refs/pm/archive/x"), vec![":refs/pm/archive/default".to_owned()]].concat(),
        "namespace",
        "takes nothing else",
    ),
    ("what is pending", |w| named(w, "refs/pm-pending/default/a"), "namespace", "belongs to one machine"),
    ("what was lost", |w| named(w, "refs/pm-lost/default/a/b"), "namespace", "belongs to one machine"),
    ("what was seen", |w| named(w, "refs/pm-remote/origin/tasks/default/a"), "namespace", "belongs to one machine"),
    (
        "a scratch ref that is no commit",
        |w| vec![format!("{}:refs/pm/doctor/x", write(w.repo(), "blob", b"x"))],
        "unreadable",
        "it is a blob",
    ),
];

#[test]
fn what_a_hostile_pusher_tries_is_refused_with_its_rule_and_leaves_no_trace() {
    let world = World::new();
    let before = world.hub.everything();
    for (what, attempt, rule, found) in HOSTILE {
        let refspecs = attempt(&world);
        let outcome = world.hub.push(&refspecs.iter().map(String::as_str).collect::<Vec<_>>());
        let outcome = outcome.fails(1).says(&format!("refused by rule '{rule}'")).says(found);
        let refusals: Vec<&str> = outcome.stderr.lines().filter(|line| line.contains("refused by rule")).collect();
        assert_eq!(refusals.len(), refspecs.len(), "{what}: one line a ref: {outcome:?}");
        assert!(refusals.iter().all(|line| line.starts_with("remote: pm: refs/")), "{what}: {outcome:?}");
        assert!(outcome.stderr.contains("remote: pm: nothing of this push was taken"), "{what}: {outcome:?}");
        // git ends what it passes on with a sequence of its own, to wipe the line.
        let said = outcome.stderr.replace("\u{1b}[K", "");
        let remote: String = said.lines().filter(|line| line.starts_with("remote: ")).collect();
        assert!(!remote.contains(|c: char| c.is_control() || c == '\u{202e}'), "{what}: {outcome:?}");
        assert!(refusals.iter().all(|line| line.len() < 400), "{what}: {outcome:?}");
        assert_eq!(world.hub.everything(), before, "{what}");
    }
    // Nothing of all that keeps the truth from coming in.
    world.hub.push_all().ok();
    world.hub.assert_same();
    world.hub.hub.pm(&["verify"]).ok();
}
