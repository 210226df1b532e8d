//! The processes of a server: started with nothing of this machine's configuration, and ended with all that they
//! started themselves.
//!
//! What must never happen here: a signal to a process that was not just seen to descend from one that we started.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::until;

/// How many ports are tried: another process may take one between our look and the server's.
const PORTS: u32 = 5;
/// The ports that are chosen from. The kernel gives none of them to outgoing connections, so that a port that a server
/// or a proxy leaves for a moment is still free when it comes back.
const RANGE: std::ops::Range<u16> = 20_000..32_000;
/// How often the descendants of a server are listed anew, until all of them are stopped.
const LISTINGS: u32 = 10;
/// How long a process may take to end that was killed.
const DIES_WITHIN: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Where servers are that are no commands for everyone.
const MORE_PATHS: [&str; 2] = ["/usr/sbin", "/sbin"];

/// A program's file, if it is there.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(MORE_PATHS.map(PathBuf::from));
    dirs.map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// The first of these programs that is not there.
pub fn first_missing(programs: &[&'static str]) -> Option<&'static str> {
    programs.iter().copied().find(|program| find(program).is_none())
}

/// A file of git's own programs, such as `git-daemon`; it need not be there.
pub fn git_program(name: &str) -> PathBuf {
    Path::new(&run(isolated("git", Path::new("/nonexistent")).arg("--exec-path"))).join(name)
}

/// A command with this home directory, and nothing of this machine's configuration.
pub fn isolated(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().envs(environment(home)).stdin(Stdio::null());
    command
}

/// The environment of such a command.
pub fn environment(home: &Path) -> [(&'static str, String); 5] {
    [
        ("PATH", std::env::var("PATH").unwrap_or_default()),
        ("HOME", home.to_string_lossy().into_owned()),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ("LC_ALL", "C".to_owned()),
    ]
}

/// Runs a command to its end, which must succeed, and returns what it printed, trimmed.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} starts: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// An address of loopback on which nobody listens.
pub fn free_addr() -> SocketAddr {
    let random = || getrandom::u32().expect("randomness") % u32::from(RANGE.end - RANGE.start);
    let addr = |offset: u32| {
        let offset = u16::try_from(offset).expect("below the length of the range");
        SocketAddr::from((Ipv4Addr::LOCALHOST, RANGE.start + offset))
    };
    let mut candidates = std::iter::repeat_with(|| addr(random())).take(1_000);
    candidates.find(|addr| TcpListener::bind(addr).is_ok()).expect("a free port")
}

/// A process that serves in the foreground, in a process group of its own.
pub struct Running {
    child: Child,
    /// Ends the group if this process ends without a word, as by a signal.
    watchdog: Child,
    log: PathBuf,
}

impl Running {
    /// Starts it; what it says goes to the log.
    pub fn start(command: &mut Command, log: &Path) -> Running {
        let file = File::create(log).expect("a log");
        command.stdout(file.try_clone().expect("a second handle")).stderr(file);
        let child = command.process_group(0).spawn().unwrap_or_else(|error| panic!("{command:?} starts: {error}"));
        let script = "read -r nothing; kill -s KILL -- \"-$1\"";
        let watchdog = Command::new("sh")
            .args(["-c", script, "sh", &child.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell");
        Running { child, watchdog, log: log.to_owned() }
    }

    /// Starts what listens on an address that it is told, and waits until it accepts connections.
    pub fn listen(log: &Path, command: impl Fn(SocketAddr) -> Command) -> (Running, SocketAddr) {
        for _attempt in 0..PORTS {
            let addr = free_addr();
            let mut running = Running::start(&mut command(addr), log);
            if running.accepts(|| TcpStream::connect_timeout(&addr, Duration::from_millis(100)).is_ok()) {
                return (running, addr);
            }
            let said = running.said();
            assert!(said.contains("in use"), "{:?} ended: {said}", command(addr));
        }
        panic!("none of {PORTS} ports stayed free");
    }

    /// Waits until the probe succeeds; says whether it did before the process ended.
    pub fn accepts(&mut self, mut probe: impl FnMut() -> bool) -> bool {
        until("the server accepts connections", || match self.child.try_wait().expect("asked") {
            Some(_ended) => Some(false),
            None => probe().then_some(true),
        })
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.watchdog.kill();
        let _reaped = self.watchdog.wait();
        // Stopped before they are killed: who is stopped starts nobody, and whose parent is there is still found. By
        // descriptor, since the number of one that ends meanwhile may be given to a stranger.
        let mut stopped = HashMap::new();
        for _listing in 0..LISTINGS {
            let family = family(Pid::from_child(&self.child)).into_iter();
            let fresh: Vec<Pid> = family.filter(|pid| !stopped.contains_key(pid)).collect();
            if fresh.is_empty() {
                break;
            }
            for pid in fresh {
                if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
                    let _ended_meanwhile = pidfd_send_signal(&process, Signal::STOP);
                    stopped.insert(pid, process);
                }
            }
        }
        for process in stopped.values() {
            let _ended_meanwhile = pidfd_send_signal(process, Signal::KILL);
        }
        for process in stopped.values() {
            // Readable when it has ended. Without a word if it does not: a test that panics already must go on.
            let _ended = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&DIES_WITHIN));
        }
        let _reaped = self.child.wait();
    }
}

/// A process and all that descend from it.
fn family(ancestor: Pid) -> HashSet<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
    let parents: Vec<(Pid, Pid)> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut family = HashSet::from([ancestor]);
    loop {
        let is_new = |(pid, parent): &&(Pid, Pid)| family.contains(parent) && !family.contains(pid);
        let children: Vec<Pid> = parents.iter().filter(is_new).map(|(pid, _)| *pid).collect();
        if children.is_empty() {
            return family;
        }
        family.extend(children);
    }
}

/// The second field after the name in a process's `stat`: the name itself may hold anything.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    Pid::from_raw(stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?)
}
