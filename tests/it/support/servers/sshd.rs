//! sshd on a high port, with keys of its own: what `git push` over ssh meets on most hosts.
//!
//! It serves the user who runs the test, who need not be root, but must have a login shell; and it knows no key but the
//! one made for it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::process::{Running, environment, find, first_missing, isolated, run};
use super::{Hub, Server};

/// The directory that sshd wants to find when root runs it; the system's service makes it before it starts.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

/// A running sshd.
pub struct Sshd {
    addr: SocketAddr,
    /// The path of the hub in its URL, with the slash.
    path: String,
    user: String,
    keys: Keys,
    _running: Running,
}

/// The keys of one server and its one client.
pub(super) struct Keys {
    dir: TempDir,
}

impl Keys {
    /// Makes them.
    pub(super) fn new() -> Keys {
        let keys = Keys { dir: tempfile::tempdir().expect("a temporary directory") };
        for name in ["host", "client"] {
            let mut keygen = isolated("ssh-keygen", keys.dir.path());
            run(keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]).arg(keys.file(name)));
        }
        keys
    }

    /// One of their files.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Sshd {
    /// What it needs and is not here.
    pub fn lacks() -> Option<&'static str> {
        let user = login_user().is_none().then_some("a user with a login shell");
        first_missing(&["sshd", "ssh", "ssh-keygen"]).or(user)
    }

    /// Serves a hub, by the path that it has.
    pub fn start(hub: &Hub) -> Sshd {
        let keys = Keys::new();
        let authorized = keys.file("client.pub");
        Sshd::serve(keys, &authorized, hub.parent(), hub.path().display().to_string())
    }

    /// Serves who has the client's key, as the file of authorized keys says, with this home directory.
    pub(super) fn serve(keys: Keys, authorized: &Path, home: &Path, path: String) -> Sshd {
        let sshd = find("sshd").expect("sshd");
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir_all(PRIVILEGE_SEPARATION).expect("sshd's directory");
        }
        let file = keys.file("sshd_config");
        let mut text = configuration(&keys, authorized, home);
        std::fs::write(&file, &text).expect("sshd's configuration");
        // From 9.8 on it shuts out, for a while, clients whose connections were cut. Older versions don't know the word.
        let mut check = isolated(&sshd, keys.dir.path());
        check.args(["-t", "-o", "PerSourcePenalties=no", "-f"]).arg(&file);
        if check.output().expect("sshd starts").status.success() {
            text += "PerSourcePenalties no\n";
            std::fs::write(&file, text).expect("sshd's configuration");
        }
        let (running, addr) = Running::listen(&keys.file("log"), |addr| {
            let mut command = isolated(&sshd, keys.dir.path());
            command.args(["-D", "-e", "-f"]).arg(&file);
            command.args(["-o", &format!("ListenAddress={addr}")]);
            command
        });
        let user = login_user().expect("a user with a login shell");
        Sshd { addr, path, user, keys, _running: running }
    }

    /// The value of `GIT_SSH_COMMAND` for a client.
    pub fn ssh_command(&self) -> String {
        let (key, known) = (self.keys.file("client"), self.keys.file("known_hosts"));
        format!(
            "ssh -F /dev/null -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes \
            -o StrictHostKeyChecking=no -o UserKnownHostsFile={} -o GlobalKnownHostsFile=/dev/null -o LogLevel=ERROR",
            key.display(),
            known.display()
        )
    }
}

impl Server for Sshd {
    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn url_at(&self, addr: SocketAddr) -> String {
        format!("ssh://{}@{addr}{}", self.user, self.path)
    }

    fn env(&self) -> Vec<(&'static str, String)> {
        vec![("GIT_SSH_COMMAND", self.ssh_command())]
    }
}

/// The name of the user who runs the test, who may log in: sshd runs what clients ask for by the user's shell.
fn login_user() -> Option<String> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    // Name, password, uid, gid, full name, home, shell.
    let fields =
        users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|fields| fields.get(2) == Some(&&*uid))?;
    let may = fields.get(6).is_some_and(|shell| !shell.ends_with("nologin") && !shell.ends_with("false"));
    may.then(|| fields[0].to_owned())
}

/// A command that a client asks for has the environment of the tests, not of the user.
fn configuration(keys: &Keys, authorized: &Path, home: &Path) -> String {
    let environment = environment(home).map(|(name, value)| format!(" \"{name}={value}\"")).concat();
    format!(
        "HostKey {}\nAuthorizedKeysFile {}\nSetEnv{environment}\nAcceptEnv GIT_PROTOCOL\nPidFile none\nStrictModes no\n\
        UsePAM no\nUseDNS no\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
        MaxStartups 1000\nPrintMotd no\n",
        keys.file("host").display(),
        authorized.display()
    )
}
