//! The children of this process, as `/proc` tells them. Where it does not (elsewhere than on Linux, or where what is
//! mounted there belongs to another process id namespace) there are none to be found.

use std::fs;

use rustix::process::{Pid, WaitOptions, getpgrp, getpid, waitpid};

/// A child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Child {
    pid: Pid,
    /// Its process group.
    group: i32,
    /// It has ended, and waits to be asked how.
    is_zombie: bool,
}

/// The children that have not ended.
pub fn living() -> Vec<Pid> {
    children().into_iter().filter(|child| !child.is_zombie).map(|child| child.pid).collect()
}

/// Takes in the children that have ended, but for one: whoever asks how that one ended needs its id to stay its own.
pub fn reap_all_but(kept: Pid) {
    reap(|child| child.pid != kept);
}

/// Takes in the orphans that have ended. Whatever this process started itself is in its own group or leads one: somebody
/// here waits for it.
pub fn reap_orphans() {
    let own_group = getpgrp().as_raw_pid();
    reap(|child| child.group != own_group && child.group != child.pid.as_raw_pid());
}

fn reap(is_meant: impl Fn(&Child) -> bool) {
    for child in children().into_iter().filter(|child| child.is_zombie && is_meant(child)) {
        let _somebody_else_may_have = waitpid(Some(child.pid), WaitOptions::NOHANG);
    }
}

fn children() -> Vec<Child> {
    let own = getpid().as_raw_pid();
    // The numbers of another namespace name other processes here.
    let is_ours = fs::read_link("/proc/self").is_ok_and(|name| name.as_os_str() == own.to_string().as_str());
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let child = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let stat = fs::read(entry.path().join("stat")).ok()?;
        // The name in parentheses may hold anything, also parentheses.
        let stat = String::from_utf8_lossy(&stat);
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?;
        let parent: i32 = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        (parent == own).then_some(Child { pid, group, is_zombie: matches!(state, "Z" | "X") })
    };
    if is_ours { processes.flatten().filter_map(child).collect() } else { Vec::new() }
}
