//! Asking a remote with the git program: listing its refs, and pushing to it.
//!
//! What must never happen here: a password that stands in a URL is shown.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::git_program::network::{Bounds, Couriers, without_password};

/// How long one question may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How a push went, ref by ref.
#[derive(Debug, Default)]
pub(super) struct Pushed {
    /// Whether each ref was accepted, as `git push --porcelain` tells it. What got no answer is not in here.
    refs: BTreeMap<String, bool>,
    /// What was said about it.
    pub(super) said: String,
    /// How long it took.
    pub(super) took: Duration,
}

impl Pushed {
    fn read(stdout: &str, stderr: &str, took: Duration) -> Pushed {
        let row = |line: &str| {
            let mut fields = line.split('\t');
            let flag = fields.next().filter(|flag| flag.len() == 1)?;
            let (_, to) = fields.next()?.split_once(':')?;
            // The connection ended before the host had said what became of it.
            if fields.next().is_some_and(|summary| summary.starts_with("[remote failure]")) {
                return None;
            }
            Some((to.to_owned(), flag != "!"))
        };
        let refs = stdout.lines().filter_map(row).collect();
        let refused = stdout.lines().filter(|line| line.starts_with("!\t")).filter_map(|line| line.split('\t').nth(2));
        let told = stderr.lines().filter(|line| {
            ["remote:", "fatal:", "error:"].iter().any(|word| line.starts_with(word))
                && !line.contains("failed to push some refs")
        });
        let said: Vec<&str> = told.chain(refused).map(str::trim).take(3).collect();
        let said = without_password(&said.join("; ")).chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        Pushed { refs, said, took }
    }

    /// Whether a ref was accepted.
    pub(super) fn took_in(&self, name: &str) -> bool {
        self.refs.get(name) == Some(&true)
    }

    /// Whether there was an answer: yes or no.
    pub(super) fn is_answered(&self) -> bool {
        !self.refs.is_empty()
    }
}

/// A remote, and git to ask it with.
pub(super) struct Host<'a> {
    pub(super) couriers: &'a Couriers,
    pub(super) remote: &'a str,
}

impl Host<'_> {
    /// The refs of the authority that fit, each with its commit.
    pub(super) fn list(&self, patterns: &[&str]) -> std::result::Result<Vec<(String, String)>, String> {
        let args = [&["ls-remote", "--quiet", "--refs", self.remote], patterns].concat();
        let (code, listed, said) = ask(self.couriers, &args).map_err(|error| error.to_string())?;
        if code != 0 {
            return Err(Pushed::read("", &said, Duration::ZERO).said);
        }
        Ok(listed
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .map(|(id, name)| (name.to_owned(), id.to_owned()))
            .collect())
    }

    /// Pushes; no failure is an error here.
    pub(super) fn push(&self, options: &[String], refspecs: &[String]) -> Pushed {
        let mirror = format!("remote.{}.mirror=false", self.remote);
        let mut args = vec!["-c", &mirror, "push", "--porcelain", "--no-verify", "--no-tags"];
        args.extend(options.iter().map(String::as_str));
        args.push(self.remote);
        args.extend(refspecs.iter().map(String::as_str));
        let started = Instant::now();
        match ask(self.couriers, &args) {
            Ok((_, stdout, stderr)) => Pushed::read(&stdout, &stderr, started.elapsed()),
            Err(error) => Pushed { said: error.to_string(), ..Pushed::default() },
        }
    }
}

/// Runs git on an errand. Returns its exit code, and what it said on stdout and stderr.
///
/// # Errors
/// `Io` where git cannot be run, or did not end in time.
pub(super) fn ask(couriers: &Couriers, args: &[&str]) -> Result<(i32, String, String)> {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let ended = couriers.send(&[])?.run(&args, "", Bounds { time: PATIENCE, stop: &|| false })?;
    if ended.was_cut_off {
        let late = std::io::Error::other(format!("there was no answer within {} s", PATIENCE.as_secs()));
        return Err(Error::io(format!("running git {}", args.join(" ")))(late));
    }
    Ok((ended.code.unwrap_or(-1), ended.stdout, ended.stderr))
}
