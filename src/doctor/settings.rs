//! git's configuration: what of it endangers the ledger. Pure, but for [`has_hook`].

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Finding;
use crate::git_program::FSYNC;
use crate::git_program::network::without_password;
use crate::store::Durability;
use crate::store::git::GitStore;

/// One line of git's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// `local`, `global`, `system`, `worktree` or `command`.
    pub scope: String,
    /// Its key as git prints it: lower case, but for a subsection.
    pub key: String,
    /// Its value.
    pub value: String,
}

impl Setting {
    /// The command that takes exactly this line out again, or what to do where none can.
    pub fn unset(&self) -> String {
        self.unless_of_a_command(format!("`git config --{} --unset-all {}`", self.scope, self.key))
    }

    /// As [`Setting::unset`], for a key that may have several values.
    pub fn unset_value(&self) -> String {
        let Setting { scope, key, value } = self;
        self.unless_of_a_command(format!("`git config --{scope} --fixed-value --unset {key} '{value}'`"))
    }

    /// The command that puts another value in the place of this one.
    pub fn replace(&self, with: &str) -> String {
        let Setting { scope, key, value } = self;
        self.unless_of_a_command(format!("`git config --{scope} --fixed-value --replace-all {key} '{with}' '{value}'`"))
    }

    fn unless_of_a_command(&self, remedy: String) -> String {
        let is_a_file = ["local", "global", "system", "worktree"].contains(&&*self.scope);
        if is_a_file { remedy } else { format!("take {} out of the environment (GIT_CONFIG_…)", self.key) }
    }
}

/// The whole configuration of a repository, in git's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(Vec<Setting>);

impl Settings {
    /// Reads what `git config --list -z --show-scope` printed.
    pub fn parse(listed: &str) -> Settings {
        let mut parts = listed.split('\0');
        let mut settings = Vec::new();
        while let (Some(scope), Some(line)) = (parts.next(), parts.next()) {
            // A key without a value is true.
            let (key, value) = line.split_once('\n').unwrap_or((line, "true"));
            settings.push(Setting { scope: scope.to_owned(), key: key.to_owned(), value: value.to_owned() });
        }
        Settings(settings)
    }

    /// The value that counts: the last one.
    pub fn last(&self, key: &str) -> Option<&Setting> {
        self.0.iter().rfind(|setting| setting.key == key)
    }

    /// The text of the value that counts.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.last(key).map(|setting| setting.value.as_str())
    }

    /// All values of a key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a Setting> {
        self.0.iter().filter(move |setting| setting.key == key)
    }

    /// Whether a key is set, and to true.
    pub fn is_on(&self, key: &str) -> bool {
        self.last(key).is_some_and(Setting::is_on)
    }

    /// The names in `remote.<name>.<key>`, each once.
    pub fn remotes(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for setting in &self.0 {
            let name = setting.key.strip_prefix("remote.").and_then(|rest| rest.rsplit_once('.'));
            if let Some((name, _)) = name.filter(|(name, _)| !names.contains(name)) {
                names.push(name);
            }
        }
        names
    }
}

impl Setting {
    /// Whether git reads the value as true.
    pub fn is_on(&self) -> bool {
        let is_yes = ["true", "yes", "on"].iter().any(|yes| self.value.eq_ignore_ascii_case(yes));
        is_yes || self.value.parse::<i64>().is_ok_and(|number| number != 0)
    }
}

/// What else must be known of a repository to judge its configuration.
#[derive(Debug, Clone, Copy)]
pub struct Repository {
    /// There is a ledger.
    pub has_tasks: bool,
    /// A hook judges what is pushed.
    pub has_hook: bool,
    /// `pm.durability`.
    pub durability: Durability,
}

/// Whether git would run a hook of this name.
pub fn has_hook(settings: &Settings, store: &GitStore, name: &str) -> bool {
    let dir = settings.value("core.hookspath").map_or("hooks".into(), std::path::PathBuf::from);
    let path: &Path = &store.common_dir().join(dir).join(name);
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// What git is to sync to the disk, as a set (git-config(1), `core.fsync`).
mod synced {
    pub const LOOSE_OBJECT: u8 = 1;
    pub const PACK: u8 = 2;
    pub const PACK_METADATA: u8 = 4;
    pub const COMMIT_GRAPH: u8 = 8;
    pub const INDEX: u8 = 16;
    pub const REFERENCE: u8 = 32;
    pub const OBJECTS: u8 = LOOSE_OBJECT | PACK;
    pub const DERIVED: u8 = PACK_METADATA | COMMIT_GRAPH;

    /// The set that a value stands for. What is named is added to git's default, or with `-` taken away.
    pub fn parse(value: &str) -> u8 {
        let (mut base, mut added, mut taken) = (PACK | DERIVED, 0, 0);
        for word in value.split([',', ' ', '\t']).filter(|word| !word.is_empty()) {
            let (set, name) = word.strip_prefix('-').map_or((&mut added, word), |name| (&mut taken, name));
            *set |= match name {
                "loose-object" => LOOSE_OBJECT,
                "pack" => PACK,
                "pack-metadata" => PACK_METADATA,
                "commit-graph" => COMMIT_GRAPH,
                "index" => INDEX,
                "reference" => REFERENCE,
                "objects" | "committed" => OBJECTS,
                "derived-metadata" => DERIVED,
                "added" => OBJECTS | INDEX,
                "all" => OBJECTS | DERIVED | INDEX | REFERENCE,
                "none" => {
                    base = 0;
                    0
                }
                _ => 0,
            };
        }
        (base & !taken) | added
    }
}

/// Whether git's own maintenance keeps the ledger through a power cut (design, section 5).
pub fn fsync(settings: &Settings, repository: &Repository) -> Option<Finding> {
    const CHECK: &str = "core-fsync";
    if repository.durability == Durability::Process {
        return None;
    }
    let danger = "a power cut after `git gc` or `git pack-refs` can lose every packed ref";
    let Some(set) = settings.last("core.fsync") else {
        let found = format!("core.fsync is not set: {danger}");
        let remedy = "`pm doctor --fix` sets it, and so does the first command that records";
        return Some(match repository.has_tasks {
            true => Finding::wrong(CHECK, found, remedy),
            false => Finding::note(CHECK, found).with(remedy),
        });
    };
    let needed = [("loose-object", synced::LOOSE_OBJECT), ("pack", synced::PACK), ("reference", synced::REFERENCE)];
    let synced = synced::parse(&set.value);
    let missing: Vec<&str> = needed.iter().filter(|(_, bit)| synced & bit == 0).map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        let found = format!("core.fsync is '{}', without {}: {danger}", set.value, missing.join(" and "));
        return Some(Finding::wrong(CHECK, found, format!("`git config core.fsync {FSYNC}`")));
    }
    let method = settings.last("core.fsyncmethod").filter(|method| method.value == "writeout-only")?;
    let found = format!("core.fsyncMethod is writeout-only, so that git does not wait for the disk: {danger}");
    Some(Finding::wrong(CHECK, found, method.unset()))
}

/// Everything else that git's configuration says of the ledger.
pub fn findings(settings: &Settings, repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(set) = settings.last("gc.pruneexpire").filter(|set| is_soon(&set.value)) {
        let found = format!(
            "gc.pruneExpire is '{}': a `git gc` deletes objects that are being recorded at that moment, and the records with them",
            set.value
        );
        findings.push(Finding::wrong("gc-prune", found, format!("{}: git's own two weeks are safe", set.unset())));
    }
    if settings.value("user.email").is_none_or(str::is_empty) {
        let found = "user.email is not set: records are signed with pm@<hostname>";
        findings.push(Finding::note("identity", found).with("`git config user.email you@example.com`"));
    }
    if let Some(set) = settings.last("core.sharedrepository").filter(|set| !is_umask(&set.value)) {
        let found = format!(
            "core.sharedRepository is '{}', which pm does not follow: the files that it makes have the rights of your umask",
            set.value
        );
        let remedy =
            "let everybody who records here have the same group and `umask 002`, and the directories the setgid bit";
        findings.push(Finding::note("shared-repository", found).with(remedy));
    }
    findings.extend(hidden(settings));
    if settings.is_on("core.bare") && repository.has_tasks {
        findings.extend(hub(settings, repository.has_hook));
    }
    findings
}

/// Whether a time is so near that a prune at it can meet a writer.
fn is_soon(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    matches!(&*value, "now" | "all" | "0") || ["second", "minute", "hour"].iter().any(|unit| value.contains(unit))
}

fn is_umask(value: &str) -> bool {
    ["umask", "false", "no", "off", "0", ""].iter().any(|off| value.eq_ignore_ascii_case(off))
}

/// What a bare repository lets those do that push to it. git's own receive.denyNonFastForwards and receive.denyDeletes
/// look at branches alone.
fn hub(settings: &Settings, has_hook: bool) -> Option<Finding> {
    let mut found = "no hook judges what is pushed to this bare repository: whoever can push can rewind or delete tasks with --force (pm never forces)".to_owned();
    if settings.is_on("receive.denynonfastforwards") || settings.is_on("receive.denydeletes") {
        found.push_str(". receive.denyNonFastForwards and receive.denyDeletes protect branches alone");
    }
    (!has_hook).then(|| Finding::note("hub", found).with("`pm hook install`, if others push here"))
}

/// Whether the ledger is hidden from those who fetch from here or push to here.
fn hidden(settings: &Settings) -> Option<Finding> {
    let keys = ["transfer.hiderefs", "uploadpack.hiderefs", "receive.hiderefs"];
    let hiding = keys.iter().find_map(|key| {
        let hides = |setting: &&Setting| covers(setting.value.trim_start_matches(['!', '^']));
        // The last one that fits decides.
        settings.all(key).filter(hides).last().filter(|setting| !setting.value.starts_with('!'))
    })?;
    let found =
        format!("{} = {} hides the ledger from whoever reaches this repository through git", hiding.key, hiding.value);
    let remedy = hiding.unset_value();
    // Where nobody is to reach it, that may be meant.
    let is_bare = settings.is_on("core.bare");
    Some(if is_bare { Finding::wrong("hidden", found, remedy) } else { Finding::note("hidden", found).with(remedy) })
}

fn covers(prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    "refs/pm/tasks".strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the authority can be one: a remote with one URL for reading and writing (design, section 7). `urls` are
/// where it is read from and written to, `None` where there is no such remote.
pub fn authority(remote: &str, urls: Option<&(String, Vec<String>)>) -> Option<Finding> {
    const CHECK: &str = "authority";
    match urls {
        None => Some(Finding::wrong(
            CHECK,
            format!("pm.remote is '{remote}', and there is no such remote"),
            format!("`git remote add {remote} <url>`, or `git config --unset pm.remote`"),
        )),
        Some((read, written)) if written.iter().all(|url| url == read) => None,
        Some((read, written)) => {
            let (read, written) = (without_password(read), without_password(&written.join(", ")));
            let found = format!(
                "the remote '{remote}' is read from {read} and written to {written}: what was pushed would not be what is read"
            );
            Some(Finding::wrong(CHECK, found, one_url(remote)))
        }
    }
}

/// What to do about a remote with several URLs.
pub fn one_url(remote: &str) -> String {
    format!(
        "give the ledger a remote with one URL: `git config --unset-all remote.{remote}.pushurl` if that is not needed, else another remote. url.<base>.pushInsteadOf has the same effect"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUB: Repository = Repository { has_tasks: true, has_hook: false, durability: Durability::Power };

    /// Settings of this repository, and judged as those of one with a ledger.
    fn of(pairs: &[(&str, &str)]) -> Settings {
        Settings::parse(&pairs.iter().map(|(key, value)| format!("local\0{key}\n{value}\0")).collect::<String>())
    }

    fn checks(pairs: &[(&str, &str)]) -> Vec<&'static str> {
        let settings = of(&[&[("user.email", "a@b")], pairs].concat());
        findings(&settings, &HUB).iter().map(|finding| finding.check).collect()
    }

    #[test]
    fn only_what_syncs_objects_packs_and_refs_is_strong_enough() {
        let weak = |value| fsync(&of(&[("core.fsync", value)]), &HUB).map(|finding| finding.found);
        for value in [FSYNC, "all", "reference,loose-object", "none,committed,reference", "all,-index"] {
            assert_eq!(weak(value), None, "{value}");
        }
        for value in ["none", "committed", "loose-object", "default", ""] {
            assert!(weak(value).is_some(), "{value}");
        }
        assert!(weak("none,reference").is_some_and(|found| found.contains("without loose-object and pack")));
        assert!(fsync(&of(&[("core.fsync", "all"), ("core.fsyncmethod", "writeout-only")]), &HUB).is_some());
        assert!(fsync(&of(&[]), &Repository { durability: Durability::Process, ..HUB }).is_none());
    }

    #[test]
    fn a_prune_that_can_meet_a_writer_is_wrong() {
        for value in ["now", "all", "5.minutes.ago", "1 hour ago"] {
            assert_eq!(checks(&[("gc.pruneexpire", value)]), ["gc-prune"], "{value}");
        }
        for value in ["never", "2.weeks.ago", "1.day.ago"] {
            assert_eq!(checks(&[("gc.pruneexpire", value)]), [""; 0], "{value}");
        }
    }

    #[test]
    fn the_last_rule_that_fits_hides_or_shows() {
        for (values, hides) in [
            (&["refs/pm"][..], true),
            (&["refs/pm/tasks/"], true),
            (&["^refs"], true),
            (&["refs/p"], false),
            (&["refs/pm", "!refs/pm"], false),
            (&["!refs/pm", "refs"], true),
        ] {
            let pairs: Vec<(&str, &str)> = values.iter().map(|value| ("transfer.hiderefs", *value)).collect();
            assert_eq!(!checks(&pairs).is_empty(), hides, "{values:?}");
        }
    }

    #[test]
    fn only_a_hook_protects_the_tasks_of_a_hub() {
        let bare = ("core.bare", "true");
        assert_eq!(checks(&[bare]), ["hub"]);
        assert_eq!(checks(&[bare, ("receive.denynonfastforwards", "1")]), ["hub"], "it is for branches");
        assert_eq!(checks(&[("core.bare", "false")]), [""; 0]);
        let hooked = Repository { has_hook: true, ..HUB };
        assert_eq!(findings(&of(&[("user.email", "a@b"), bare]), &hooked), []);
    }

    #[test]
    fn a_remedy_names_the_scope_and_no_password_is_shown() {
        let setting = Setting { scope: "global".to_owned(), key: "k.v".to_owned(), value: "x".to_owned() };
        assert_eq!(setting.unset(), "`git config --global --unset-all k.v`");
        assert!(Setting { scope: "command".to_owned(), ..setting }.unset().contains("environment"));
        assert_eq!(without_password("to https://u:p@w@h/x, git://h/u:p@x"), "to https://u:***@h/x, git://h/u:p@x");
        let two = |written: &str| authority("o", Some(&("a".to_owned(), vec![written.to_owned()])));
        assert!(two("a").is_none() && two("b").is_some() && authority("o", None).is_some());
    }

    #[test]
    fn remotes_are_told_apart_from_their_keys() {
        assert_eq!(
            of(&[("remote.a.b.url", "u"), ("remote.a.b.fetch", "f"), ("remote.c.url", "u")]).remotes(),
            ["a.b", "c"]
        );
        assert_eq!(of(&[("remote.pushdefault", "a")]).remotes(), [""; 0]);
    }
}
