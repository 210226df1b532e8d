//! A hub and a repository that pushes to it with plain git.

use std::path::PathBuf;

use super::{Outcome, Repo};

/// A hub with its hook in place, and a repository beside it.
pub struct Hub {
    /// The hub.
    pub hub: Repo,
    /// Whoever pushes.
    pub repo: Repo,
}

impl Hub {
    /// A bare hub and a repository, both with these options of `git init`.
    pub fn new(options: &[&str]) -> Hub {
        let hub = Hub::without_hook(Repo::bare_of_config(&[&["--bare"], options].concat()), options);
        hub.hub.pm(&["hook", "install"]).ok();
        hub
    }

    /// This hub, without a hook, and a repository with these options.
    pub fn without_hook(hub: Repo, options: &[&str]) -> Hub {
        // No test cuts the power.
        hub.git(&["config", "core.fsync", "none"]);
        let repo = Repo::init(options);
        repo.git(&["config", "pm.durability", "process"]);
        Hub { hub, repo }
    }

    /// Pushes these refspecs, whatever comes of it.
    pub fn push(&self, refspecs: &[&str]) -> Outcome {
        self.push_with(&[], refspecs)
    }

    /// Pushes these refspecs with these environment variables.
    pub fn push_with(&self, env: &[(&str, &str)], refspecs: &[&str]) -> Outcome {
        let place = self.hub.path().display().to_string();
        let args = [&["push", "--quiet", &place], refspecs].concat();
        Outcome::of(&args, self.repo.program("git", &args).envs(env.iter().copied()))
    }

    /// Pushes all tasks, as they are.
    pub fn push_all(&self) -> Outcome {
        self.push(&["refs/pm/*:refs/pm/*"])
    }

    /// Every file of the hub with its size and what git says of its refs: what a refused push must leave alone.
    pub fn everything(&self) -> (Vec<(PathBuf, u64)>, String) {
        let mut found = Vec::new();
        let mut open = vec![self.hub.git_dir()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(&dir).expect("listed") {
                let path = entry.expect("read").path();
                let metadata = std::fs::symlink_metadata(&path).expect("there");
                if metadata.is_dir() { open.push(path) } else { found.push((path, metadata.len())) }
            }
        }
        found.sort();
        (found, self.hub.git(&["for-each-ref"]))
    }

    /// Asserts that the hub has the tasks that the repository has.
    #[track_caller]
    pub fn assert_same(&self) {
        assert_eq!(self.hub.refs(), self.repo.refs());
    }
}
