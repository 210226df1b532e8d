//! What a runner and the keeper of one of its commands say to each other, over a socket.
//!
//! The socket is also the lifeline: its end tells either that the other has died, whatever killed it.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest message, in bytes: a peer that sends more without a line end is none of ours.
const MESSAGE_MAX: usize = 1 << 16;

/// How long a message may take to be sent: the peer reads all the while, unless it is stopped.
const SEND_MAX: Duration = Duration::from_secs(1);

/// What the runner tells the keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// The claim was renewed: the command may run until this time, in milliseconds since boot.
    Until(u64),
    /// End the command, with its grace.
    End,
    /// End the command at once.
    Kill,
}

/// What the keeper tells the runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// The command was started, as the leader of this process group.
    Started(i32),
    /// The command has ended, and the id of its group may soon be another's. What it left behind may still run.
    LeaderGone,
    /// The command has ended, and so has everything that it left behind.
    Ended(Ended),
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How the command ended.
    pub how: How,
    /// Whether it was ended since nobody renewed the claim in time.
    pub lapsed: bool,
    /// How many processes are still there although they were killed, or cannot be found to be killed.
    pub left: usize,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It never began; why.
    NotStarted(String),
}

/// One end of the socket.
#[derive(Debug)]
pub struct Line {
    socket: UnixStream,
    /// What was received and is no whole message yet.
    inbox: Vec<u8>,
    is_closed: bool,
}

impl Line {
    /// Over this socket.
    ///
    /// # Errors
    /// What the system says.
    pub fn new(socket: UnixStream) -> io::Result<Line> {
        socket.set_write_timeout(Some(SEND_MAX))?;
        Ok(Line { socket, inbox: Vec::new(), is_closed: false })
    }

    /// Says something. That the other is gone is no error here: its end is received.
    pub fn send(&mut self, message: &impl Serialize) {
        let mut text = serde_json::to_vec(message).unwrap_or_default();
        text.push(b'\n');
        let _the_other_may_be_gone = self.socket.write_all(&text);
    }

    /// Takes in what has come, which must be readable, and returns the whole messages.
    ///
    /// # Errors
    /// `InvalidData` for what no peer of ours says; what the system says.
    pub fn receive<M: DeserializeOwned>(&mut self) -> io::Result<Vec<M>> {
        let mut part = [0; 4096];
        match self.socket.read(&mut part) {
            Ok(0) => self.is_closed = true,
            Ok(length) => self.inbox.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => self.is_closed = true,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
        let mut messages = Vec::new();
        while let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
            let text: Vec<u8> = self.inbox.drain(..=end).collect();
            messages.push(serde_json::from_slice(&text)?);
        }
        if self.inbox.len() > MESSAGE_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "a message without an end"));
        }
        Ok(messages)
    }

    /// Listens no more.
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Whether the other is gone.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
