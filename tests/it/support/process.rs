//! Processes that run beside a test, and end with it whatever becomes of it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Outcome, until};

/// A process with its output in pipes, killed at the end of the test.
pub struct Process(pub Child);

impl Process {
    /// Starts it.
    pub fn start(command: &mut Command) -> Process {
        Process(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("signalled");
    }

    /// The lines of its stdout, to its end. What is read so is not in the outcome.
    pub fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stdout.take().expect("a pipe")).lines().map(|line| line.expect("UTF-8"))
    }

    /// Waits for its end.
    pub fn outcome(mut self) -> Outcome {
        until("it ends", || self.0.try_wait().expect("asked"));
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        if let Some(mut pipe) = self.0.stdout.take() {
            pipe.read_to_end(&mut stdout).expect("read");
        }
        self.0.stderr.take().expect("a pipe").read_to_end(&mut stderr).expect("read");
        let status = self.0.wait().expect("ended");
        Outcome::from_output(&[], std::process::Output { status, stdout, stderr })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Whether a process is there, and no zombie: one of those waits only to be asked how it ended.
pub fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// The living processes whose environment holds this assignment.
pub fn with_variable(assignment: &str) -> Vec<u64> {
    let processes = fs::read_dir("/proc").expect("listed").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let holds = |pid: &u64| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == assignment.as_bytes())
    };
    pids.filter(holds).filter(|pid| is_alive(*pid)).collect()
}
