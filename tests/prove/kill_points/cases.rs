//! The commands that are killed, and what must be true of each: data only.

/// One command, and what must be true of it.
#[derive(Debug)]
pub struct Case {
    pub name: &'static str,
    pub args: &'static [&'static str],
    /// The refs that it moves.
    pub refs: &'static [&'static str],
    /// How many records it appends to each.
    pub grows: usize,
    /// All refs or none.
    pub all_or_none: bool,
    /// How the same command ends once it is recorded.
    pub again: i32,
    /// A command that must work afterwards, and appends one record to the first of the refs.
    pub next: &'static [&'static str],
}

pub const CASES: [Case; 10] = [
    Case {
        name: "executing",
        args: &["executing", "--task", "free"],
        refs: &["default/free"],
        grows: 1,
        all_or_none: true,
        again: 6,
        next: &["heartbeat", "--task", "free"],
    },
    Case {
        name: "heartbeat",
        args: &["heartbeat", "--task", "held", "--progress", "half"],
        refs: &["default/held"],
        grows: 1,
        all_or_none: true,
        again: 0,
        next: &["heartbeat", "--task", "held"],
    },
    Case {
        name: "report",
        args: &["report", "--task", "held", "--title", "more", "--text", "of it", "--attach", "attached.txt"],
        refs: &["default/held"],
        grows: 1,
        all_or_none: true,
        again: 0,
        next: &["heartbeat", "--task", "held"],
    },
    Case {
        name: "finished",
        args: &["finished", "--task", "held"],
        refs: &["default/held"],
        grows: 1,
        all_or_none: true,
        again: 6,
        next: &[],
    },
    Case {
        name: "release",
        args: &["release", "--task", "held"],
        refs: &["default/held"],
        grows: 1,
        all_or_none: true,
        again: 6,
        next: &["executing", "--task", "held"],
    },
    Case {
        name: "reclaim",
        args: &["reclaim", "--task", "held"],
        refs: &["default/held"],
        grows: 1,
        all_or_none: true,
        again: 6,
        next: &["executing", "--task", "held"],
    },
    Case {
        name: "sweep",
        args: &["sweep", "--queue", "stale"],
        refs: &["stale/one", "stale/two"],
        grows: 2,
        all_or_none: false,
        again: 0,
        next: &["executing", "--queue", "stale", "--task", "one"],
    },
    Case {
        name: "plan",
        args: &["plan", "--queue", "fresh", "--slug", "one", "--title", "One"],
        refs: &["fresh/one"],
        grows: 2,
        all_or_none: true,
        again: 4,
        next: &["executing", "--queue", "fresh", "--task", "one"],
    },
    Case {
        name: "bulk-plan",
        args: &["bulk-plan", "--queue", "fresh", "--input", "batch.jsonl"],
        refs: &["fresh/one", "fresh/two", "fresh/three"],
        grows: 2,
        all_or_none: true,
        again: 0,
        next: &["executing", "--queue", "fresh", "--task", "one"],
    },
    // The first write of a repository also runs git, to set core.fsync.
    Case {
        name: "first-write",
        args: &["plan", "--queue", "fresh", "--slug", "one", "--title", "One"],
        refs: &["fresh/one"],
        grows: 2,
        all_or_none: true,
        again: 4,
        next: &["executing", "--queue", "fresh", "--task", "one"],
    },
];
