//! The chains of a ledger, as `git for-each-ref` and `git log` tell them, with trailers as git itself finds them.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A ledger.
#[derive(Debug)]
pub struct Ledger {
    /// Its tasks, by their refs.
    pub tasks: Vec<Task>,
}

/// A task.
#[derive(Debug)]
pub struct Task {
    pub slug: String,
    /// Oldest first; there is one.
    pub records: Vec<Record>,
}

/// A record.
#[derive(Debug, Clone)]
pub struct Record {
    pub sha: String,
    pub parents: Vec<String>,
    pub author: String,
    /// Which clock it was written by, and when, in milliseconds.
    pub clock: String,
    pub ms: u64,
    trailers: Vec<(String, String)>,
}

impl Record {
    /// The value of a trailer.
    pub fn one(&self, key: &str) -> Option<&str> {
        self.all(key).next()
    }

    /// The values of a trailer that may be repeated.
    pub fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.trailers.iter().filter(move |(found, _)| found == key).map(|(_, value)| value.as_str())
    }

    /// Its kind; of a status, what that says.
    pub fn what(&self) -> &str {
        self.one("Status").or(self.one("Record")).unwrap_or_default()
    }

    fn parse(row: &str) -> Result<Record> {
        let mut fields = row.splitn(4, '\u{1}');
        let mut field = || fields.next().with_context(|| format!("not four fields: {row:?}"));
        let (sha, parents, author, trailers) = (field()?, field()?, field()?, field()?);
        let trailer = |line: &str| {
            let (key, value) = line.split_once(": ").with_context(|| format!("{sha}: no trailer: {line:?}"))?;
            Ok((key.to_owned(), value.to_owned()))
        };
        let trailers = trailers.lines().filter(|line| !line.is_empty()).map(trailer).collect::<Result<Vec<_>>>()?;
        let clock = trailers.iter().find(|(key, _)| key == "Clock").with_context(|| format!("{sha} has no clock"))?;
        let (clock, ms) = clock.1.split_once(' ').with_context(|| format!("{sha} has a strange clock"))?;
        Ok(Record {
            sha: sha.to_owned(),
            parents: parents.split_whitespace().map(str::to_owned).collect(),
            author: author.to_owned(),
            clock: clock.to_owned(),
            ms: ms.parse().with_context(|| format!("{sha} has a strange clock"))?,
            trailers,
        })
    }
}

impl Task {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.records[0].sha
    }

    /// What its definition says.
    pub fn one(&self, key: &str) -> Option<&str> {
        self.records[0].one(key)
    }

    /// The same, of what may be repeated.
    pub fn all(&self, key: &str) -> impl Iterator<Item = &str> {
        self.records[0].all(key)
    }

    pub fn is_sticky(&self) -> bool {
        self.one("Sticky") == Some("true")
    }
}

impl Ledger {
    /// Reads it.
    ///
    /// # Errors
    /// When git fails, or a commit is no record.
    pub fn read(dir: &Path) -> Result<Ledger> {
        // First the tips: what is recorded meanwhile comes on top, and is left out.
        let tips = git(dir, &["for-each-ref", "--format=%(refname) %(objectname)", "refs/pm/tasks/"])?;
        let format = "--format=%x02%H%x01%P%x01%an%x01%(trailers:only,unfold)";
        let log = if tips.is_empty() { String::new() } else { git(dir, &["log", "--glob=refs/pm/tasks/*", format])? };
        let rows = log.split('\u{2}').skip(1).map(|row| Record::parse(row).map(|record| (record.sha.clone(), record)));
        let records: HashMap<String, Record> = rows.collect::<Result<_>>()?;
        let mut tasks = Vec::new();
        for line in tips.lines() {
            let (name, tip) = line.split_once(' ').with_context(|| line.to_owned())?;
            let mut chain = Vec::new();
            let mut at = Some(tip.to_owned());
            while let Some(sha) = at {
                let record = records.get(&sha).with_context(|| format!("{name}: {sha} is not there"))?.clone();
                at = record.parents.first().cloned();
                chain.push(record);
            }
            chain.reverse();
            let slug = name.rsplit('/').next().unwrap_or_default().to_owned();
            tasks.push(Task { slug, records: chain });
        }
        Ok(Ledger { tasks })
    }
}

/// What git prints.
fn git(dir: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args(args).stdin(Stdio::null());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LC_ALL", "C");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output()?;
    ensure!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?)
}
