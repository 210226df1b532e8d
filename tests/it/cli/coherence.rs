//! The checker of `support::coherence`, which proofs rely on: it finds nothing wrong with what pm records, and names what
//! is wrong with the same ledger when single records of it are written anew by hand.

use std::collections::BTreeMap;

use crate::support::coherence::{self, Rule};
use crate::support::{Outcome, Repo, task_ref};

/// How much later a record says that it was written, in milliseconds.
const LATER_MS: u64 = 3_600_000;

/// A ledger of which every task was worked off by pm.
struct Ground {
    repo: Repo,
    /// Where its refs are.
    refs: String,
    chains: BTreeMap<String, Vec<Raw>>,
}

/// A commit, as git stores it.
#[derive(Debug, Clone)]
struct Raw {
    id: String,
    text: String,
}

impl Raw {
    fn replace(&mut self, from: &str, to: &str) {
        assert!(self.text.contains(from), "'{from}' is not in {}", self.text);
        self.text = self.text.replace(from, to);
    }

    /// Takes out the line that begins so.
    fn drop_line(&mut self, start: &str) {
        let kept = self.text.split_inclusive('\n').filter(|line| !line.starts_with(start));
        self.text = kept.collect();
    }

    fn value(&self, key: &str) -> String {
        let found = self.text.lines().find_map(|line| line.strip_prefix(&format!("{key}: ")));
        found.unwrap_or_else(|| panic!("no {key} in {}", self.text)).to_owned()
    }

    fn make_later(&mut self) {
        let clock = self.value("Clock");
        let (id, ms) = clock.split_once(' ').expect("an id and milliseconds");
        let ms: u64 = ms.parse().expect("milliseconds");
        self.replace(&format!("Clock: {clock}"), &format!("Clock: {id} {}", ms + LATER_MS));
    }

    fn is(&self, status: &str) -> bool {
        self.text.contains(&format!("\nStatus: {status}\n"))
    }
}

/// The place of the last record with this status.
fn last(chain: &[Raw], status: &str) -> usize {
    chain.iter().rposition(|record| record.is(status)).unwrap_or_else(|| panic!("none is {status}"))
}

impl Ground {
    /// A parent whose sticky children depend on one another, tasks that took two attempts, one that was replaced, and one
    /// that was freed of its context.
    fn new() -> Ground {
        let repo = Repo::new();
        let run = |args: &[&str]| {
            Outcome::of(args, repo.pm_command(args).env("PM_AGENT_ID", "w1").env("PM_CONTEXT_ID", "c1")).ok()
        };
        let plan = |slug, options: &[&str]| repo.plan_with(slug, options);
        let claim = |slug| run(&["executing", "--task", slug]);
        let finish = |slug| {
            run(&["heartbeat", "--task", slug]);
            run(&["report", "--task", slug, "--title", "Did it"]);
            run(&["finished", "--task", slug])
        };
        plan("base", &[]);
        plan("parent", &[]);
        plan("child-a", &["--parent", "parent", "--sticky", "--depends-on", "base"]);
        plan("child-b", &["--parent", "parent", "--sticky", "--depends-on", "child-a"]);
        plan("twice", &[]);
        plan("old", &[]);
        plan("user", &["--depends-on", "old"]);
        plan("freed", &["--sticky"]);
        run(&["replan", "--task", "old", "--text", "Otherwise"]);
        for slug in ["base", "old-r1"] {
            claim(slug);
            finish(slug);
        }
        for slug in ["parent", "child-a", "twice"] {
            claim(slug);
        }
        finish("child-a");
        // Its first attempt gets as far as a report.
        run(&["report", "--task", "twice", "--title", "Half of it"]);
        run(&["sweep", "--ttl", "1ms", "--force", "--queue", "default"]);
        for slug in ["parent", "twice", "child-b", "user"] {
            claim(slug);
        }
        run(&["release", "--task", "child-b"]);
        claim("child-b");
        run(&["executing", "--task", "freed", "--context-id", "c2"]);
        run(&["release", "--task", "freed"]);
        run(&["reclaim", "--task", "freed"]);
        claim("freed");
        for slug in ["twice", "child-b", "user", "parent", "freed"] {
            finish(slug);
        }
        repo.assert_sound();
        let refs = repo.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/pm/tasks"]);
        let chain = |line: &str| {
            let (name, _) = line.split_once(' ').expect("a ref and a commit");
            let ids = repo.git(&["rev-list", "--first-parent", "--reverse", name]);
            let raw = |id: &str| Raw { id: id.to_owned(), text: repo.git(&["cat-file", "commit", id]) + "\n" };
            (name.rsplit('/').next().expect("a slug").to_owned(), ids.lines().map(raw).collect())
        };
        let chains = refs.lines().map(chain).collect();
        Ground { repo, refs, chains }
    }

    /// Writes a chain anew. Records keep naming one another.
    fn tamper(&self, slug: &str, change: impl FnOnce(&mut Vec<Raw>)) {
        let mut chain = self.chains[slug].clone();
        change(&mut chain);
        let mut renamed: Vec<(String, String)> = Vec::new();
        let mut parent: Option<String> = None;
        for mut record in chain {
            for (old, new) in &renamed {
                record.text = record.text.replace(old, new);
            }
            if let Some(parent) = &parent {
                let named = record.text.lines().find(|line| line.starts_with("parent ")).expect("a parent").to_owned();
                record.text = record.text.replacen(&named, &format!("parent {parent}"), 1);
            }
            let new = self.repo.git_fed(record.text.as_bytes(), &["hash-object", "-t", "commit", "-w", "--stdin"]);
            if new != record.id {
                renamed.push((record.id, new.clone()));
            }
            parent = Some(new);
        }
        self.repo.git(&["update-ref", &task_ref(slug), &parent.expect("a record")]);
    }

    /// Takes the newest records of a task away.
    fn cut(&self, slug: &str, records: usize) {
        let name = task_ref(slug);
        self.repo.git(&["update-ref", &name, &format!("{name}~{records}")]);
    }

    fn restore(&self) {
        let updates: String = self.refs.lines().map(|line| format!("update {line}\n")).collect();
        self.repo.git_fed(updates.as_bytes(), &["update-ref", "--stdin"]);
    }
}

/// What is done to a ledger, and the rule that is then broken, by which task.
type Case<'a> = (&'a str, &'a dyn Fn(), Rule, &'a str);

#[test]
fn the_checker_names_what_was_tampered_with() {
    let ground = Ground::new();
    let (figures, faults) = coherence::judge(ground.repo.path()).expect("a ledger");
    assert!(faults.is_empty(), "{faults:?}");
    assert_eq!((figures.tasks, figures.records, figures.claims, figures.swept), (9, 63, 12, 2), "{figures:?}");
    assert_eq!((figures.sticky, figures.contexts, &*figures.groups), (3, 2, &[2, 1][..]), "{figures:?}");

    let later = |slug: &str, status: &'static str| {
        ground.tamper(slug, |chain| {
            let from = last(chain, status);
            chain[from..].iter_mut().for_each(Raw::make_later);
        });
    };
    let edit = |slug: &str, status: &'static str, change: &dyn Fn(&mut Raw)| {
        ground.tamper(slug, |chain| {
            let at = last(chain, status);
            change(&mut chain[at]);
        });
    };
    let first_report =
        |chain: &[Raw]| chain.iter().find(|raw| raw.text.contains("TaskReport")).expect("one").id.clone();
    let cases: &[Case] = &[
        ("claimed before its dependency was done", &|| later("base", "done"), Rule::Dependency, "child-a"),
        ("claimed while its dependency is worked on", &|| ground.cut("base", 1), Rule::Dependency, "child-a"),
        ("claimed before what replaced its dependency was done", &|| later("old-r1", "done"), Rule::Dependency, "user"),
        ("never done", &|| ground.cut("twice", 1), Rule::Done, "twice"),
        (
            "claimed before its parent",
            &|| {
                ground.tamper("parent", |chain| {
                    let from = chain.iter().position(|record| record.is("working")).expect("a claim");
                    chain[from..].iter_mut().for_each(Raw::make_later);
                });
            },
            Rule::Parent,
            "child-a",
        ),
        ("closed before its child", &|| later("child-b", "done"), Rule::Children, "parent"),
        ("closed with an open child", &|| ground.cut("child-b", 1), Rule::Children, "parent"),
        (
            "two contexts in a group",
            &|| {
                ground.tamper("child-b", |chain| {
                    let bound = chain.iter_mut().filter(|record| record.text.contains("\nContext: c1\n"));
                    bound.for_each(|record| record.replace("Context: c1", "Context: c2"));
                });
            },
            Rule::Tied,
            "child-b",
        ),
        (
            "another context without a reclaim",
            &|| {
                ground.tamper("child-b", |chain| {
                    let at = last(chain, "working");
                    let bound = chain[at..].iter_mut().filter(|record| record.text.contains("\nContext: c1\n"));
                    bound.for_each(|record| record.replace("Context: c1", "Context: c2"));
                });
            },
            Rule::Context,
            "child-b",
        ),
        (
            "sticky, and claimed in no context",
            &|| {
                ground.tamper("child-a", |chain| chain.iter_mut().for_each(|record| record.drop_line("Context: ")));
            },
            Rule::Context,
            "child-a",
        ),
        (
            "not sticky, and claimed in a context",
            &|| {
                edit("base", "working", &|record| record.replace("\nSeq: ", "\nContext: c1\nSeq: "));
            },
            Rule::Context,
            "base",
        ),
        (
            "proven by a report of an earlier attempt",
            &|| {
                ground.tamper("twice", |chain| {
                    let (at, first) = (last(chain, "done"), first_report(chain));
                    let proof = chain[at].value("Proof");
                    chain[at].replace(&format!("Proof: {proof}"), &format!("Proof: {first}"));
                });
            },
            Rule::Proof,
            "twice",
        ),
        (
            "proven by a report of another task",
            &|| {
                let of_another = first_report(&ground.chains["base"]);
                edit("user", "done", &|record| {
                    let proof = record.value("Proof");
                    record.replace(&format!("Proof: {proof}"), &format!("Proof: {of_another}"));
                });
            },
            Rule::Proof,
            "user",
        ),
        ("not proven", &|| edit("user", "done", &|record| record.drop_line("Proof: ")), Rule::Proof, "user"),
        (
            "claimed while another holds it",
            &|| {
                ground.tamper("base", |chain| {
                    let at = last(chain, "working");
                    let mut second = chain[at].clone();
                    second.id = "0".repeat(40);
                    second.replace("author w1 ", "author w2 ");
                    second.replace(&chain[at].value("Nonce"), "0123456789abcdef");
                    chain.insert(at + 1, second);
                });
            },
            Rule::OneHolder,
            "base",
        ),
        (
            "reported by another than its holder",
            &|| {
                ground.tamper("base", |chain| {
                    let at = last(chain, "done");
                    chain[at - 1].replace("author w1 ", "author w2 ");
                });
            },
            Rule::OnlyTheHolder,
            "base",
        ),
        (
            "finished by another than its holder",
            &|| {
                edit("base", "done", &|record| record.replace("author w1 ", "author w2 "));
            },
            Rule::OnlyTheHolder,
            "base",
        ),
        (
            "reported under an earlier claim",
            &|| {
                ground.tamper("twice", |chain| {
                    let (at, first) =
                        (last(chain, "done"), chain.iter().find(|raw| raw.is("working")).expect("a claim"));
                    let first = format!("Claim-Status: {}", first.id);
                    let under = chain[at - 1].value("Claim-Status");
                    chain[at - 1].replace(&format!("Claim-Status: {under}"), &first);
                });
            },
            Rule::OnlyTheHolder,
            "twice",
        ),
        (
            "taken away after another's preempt heartbeat",
            &|| {
                ground.tamper("twice", |chain| {
                    let at = chain.iter().position(|raw| raw.text.contains("\nPreempt: true\n")).expect("a preempt");
                    chain[at].replace("author w1 ", "author w2 ");
                });
            },
            Rule::OnlyTheHolder,
            "twice",
        ),
        (
            "freed of a context, and bound to none",
            &|| {
                ground.tamper("freed", |chain| {
                    let at = chain.iter().position(|raw| raw.text.contains("\nReclaimed: true\n")).expect("a reclaim");
                    chain[at - 1].drop_line("Context: ");
                });
            },
            Rule::OnlyTheHolder,
            "freed",
        ),
        (
            "a claim with no larger number",
            &|| {
                ground.tamper("twice", |chain| {
                    let first = chain.iter().find(|raw| raw.is("working")).expect("a claim").value("Seq");
                    let at = last(chain, "working");
                    let seq = chain[at].value("Seq");
                    chain[at].replace(&format!("Seq: {seq}"), &format!("Seq: {first}"));
                });
            },
            Rule::Seq,
            "twice",
        ),
        (
            "a record left out",
            &|| {
                ground.tamper("twice", |chain| {
                    let at = chain.iter().position(|raw| raw.text.contains("\nReclaimed: true\n")).expect("a reclaim");
                    chain.remove(at);
                });
            },
            Rule::Chain,
            "twice",
        ),
        (
            "a merge",
            &|| {
                let other = ground.chains["user"][0].id.clone();
                edit("base", "done", &|record| record.replace("\nauthor ", &format!("\nparent {other}\nauthor ")));
            },
            Rule::Chain,
            "base",
        ),
        ("a clock that goes back", &|| edit("base", "working", &Raw::make_later), Rule::Clock, "base"),
        (
            "the clock of another machine",
            &|| {
                edit("base", "done", &|record| record.replace("\nClock: ", "\nClock: 0"));
            },
            Rule::Clock,
            "base",
        ),
    ];
    for (what, tamper, rule, slug) in cases {
        tamper();
        let (_, faults) = coherence::judge(ground.repo.path()).expect("a ledger");
        let is_named = faults.iter().any(|fault| fault.rule == *rule && fault.slug == *slug);
        assert!(is_named, "{what}: {faults:?}");
        ground.restore();
    }
    let (_, faults) = coherence::judge(ground.repo.path()).expect("a ledger");
    assert!(faults.is_empty(), "restored: {faults:?}");
}
