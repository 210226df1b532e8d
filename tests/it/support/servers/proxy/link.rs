//! One connection through a proxy: two sockets, and a lane of bytes from each to the other.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::net::sockopt::set_socket_linger;

use super::{Behaviour, Counts};

/// How many bytes a lane holds before it stops reading.
const ROOM: usize = 1 << 20;
/// How much is read at once.
const BITE: usize = 1 << 16;
/// What a pack begins with.
const PACK: &[u8] = b"PACK";
/// What an answer over HTTP ends with, on a connection that stays open for the next request: the empty last chunk.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

/// How connections are treated in one step.
pub struct Treatment<'a> {
    pub now: Instant,
    pub behaviour: Behaviour,
    /// The answer to a push is dropped; the next push takes this, if it is only for one.
    pub armed: &'a mut bool,
    pub counts: &'a Counts,
}

/// Both sides of a connection.
pub struct Link {
    client: TcpStream,
    server: TcpStream,
    to_server: Lane,
    to_client: Lane,
    /// Its push was sent on, and the answer is lost.
    answer_dropped: bool,
}

/// Bytes on their way in one direction. An empty piece is the end.
#[derive(Default)]
struct Lane {
    pieces: VecDeque<(Instant, Vec<u8>)>,
    queued: usize,
    forwarded: u64,
    /// Nothing more comes from its source.
    ended: bool,
    /// Its sink was told so.
    closed: bool,
    /// Bytes were taken out of it.
    has_a_hole: bool,
    /// The last bytes that were read, to recognise what is cut in two.
    tail: Vec<u8>,
}

impl Link {
    /// Connects two sockets.
    pub fn new(client: TcpStream, server: TcpStream) -> io::Result<Link> {
        for socket in [&client, &server] {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
        }
        Ok(Link { client, server, to_server: Lane::default(), to_client: Lane::default(), answer_dropped: false })
    }

    /// Whether bytes were taken out of it that the other side still waits for.
    pub fn has_a_hole(&self) -> bool {
        !self.answer_dropped && (self.to_server.has_a_hole || self.to_client.has_a_hole)
    }

    /// Ends it with a reset on both sides, once it is dropped; says that it does not live on.
    pub fn reset(&mut self) -> bool {
        for socket in [&self.client, &self.server] {
            // Ended in any case, if less abruptly.
            let _tried = set_socket_linger(socket, Some(Duration::ZERO));
        }
        false
    }

    /// Moves what can be moved without waiting; says whether the link lives on.
    pub fn step(&mut self, treatment: &mut Treatment<'_>) -> bool {
        match self.try_step(treatment) {
            Ok(true) => true,
            Ok(false) if self.to_server.closed && self.to_client.closed => false,
            Ok(false) | Err(_) => self.reset(),
        }
    }

    fn try_step(&mut self, treatment: &mut Treatment<'_>) -> io::Result<bool> {
        let now = treatment.now;
        let arrives = now + if let Behaviour::Delay(delay) = treatment.behaviour { delay } else { Duration::ZERO };

        let lose = treatment.behaviour == Behaviour::DropToServer;
        while let Some(bytes) = self.to_server.read(&self.client)? {
            if *treatment.armed && !self.answer_dropped && self.to_server.saw(&bytes, PACK) {
                self.answer_dropped = true;
                *treatment.armed = treatment.behaviour == Behaviour::DropAnswersOfPushes;
            }
            self.to_server.take(bytes, arrives, lose, treatment.counts);
        }
        // A server that takes no more may still have said why.
        let taken = self.to_server.write(&self.server, now, u64::MAX);

        let lose = treatment.behaviour == Behaviour::DropToClient || self.answer_dropped;
        let mut answered = false;
        while let Some(bytes) = self.to_client.read(&self.server)? {
            answered |= self.answer_dropped && (bytes.is_empty() || self.to_client.ends_with(&bytes, LAST_CHUNK));
            self.to_client.take(bytes, arrives, lose, treatment.counts);
        }
        let most = if let Behaviour::CutAfterServerBytes(most) = treatment.behaviour { most } else { u64::MAX };
        self.to_client.write(&self.client, now, most)?;

        if answered {
            treatment.counts.dropped_answers.fetch_add(1, Ordering::Relaxed);
        }
        taken?;
        let over_the_limit = self.to_client.forwarded >= most && self.to_client.queued > 0;
        let both_ended = self.to_server.is_done() && self.to_client.is_done();
        let over = answered || over_the_limit || both_ended;
        Ok(!over)
    }

    /// When the next bytes are to go on.
    pub fn due(&self) -> Option<Instant> {
        // What is due already waits for its socket, not for the clock.
        let later = |lane: &Lane| lane.pieces.front().map(|(due, _)| *due).filter(|due| *due > Instant::now());
        [later(&self.to_server), later(&self.to_client)].into_iter().flatten().min()
    }

    /// What its sockets are waited for.
    pub fn interests(&self, now: Instant) -> [(&TcpStream, PollFlags); 2] {
        let interest = |from_it: &Lane, to_it: &Lane| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, !from_it.ended && from_it.queued < ROOM);
            flags.set(PollFlags::OUT, to_it.is_due(now));
            flags
        };
        [
            (&self.client, interest(&self.to_server, &self.to_client)),
            (&self.server, interest(&self.to_client, &self.to_server)),
        ]
    }
}

impl Lane {
    /// The next bytes of its source, if there are any and there is room for them; none at all at the end.
    fn read(&mut self, mut from: &TcpStream) -> io::Result<Option<Vec<u8>>> {
        if self.ended || self.queued >= ROOM {
            return Ok(None);
        }
        let mut bytes = vec![0; BITE];
        match from.read(&mut bytes) {
            Ok(length) => {
                bytes.truncate(length);
                self.ended = length == 0;
                Ok(Some(bytes))
            }
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes bytes on board, to arrive at a time, or loses them.
    fn take(&mut self, bytes: Vec<u8>, arrives: Instant, lose: bool, counts: &Counts) {
        if lose || self.has_a_hole {
            self.has_a_hole = true;
            counts.lost_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        } else {
            counts.carried_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            self.queued += bytes.len();
            self.pieces.push_back((arrives, bytes));
        }
    }

    /// Hands on what is due, until so many bytes were handed on in all.
    fn write(&mut self, mut to: &TcpStream, now: Instant, most: u64) -> io::Result<()> {
        while self.is_due(now)
            && let Some((_, piece)) = self.pieces.front_mut()
        {
            if piece.is_empty() {
                self.pieces.pop_front();
                self.closed = true;
                to.shutdown(Shutdown::Write)?;
                continue;
            }
            let room = usize::try_from(most.saturating_sub(self.forwarded)).unwrap_or(usize::MAX);
            if room == 0 {
                break;
            }
            match to.write(&piece[..piece.len().min(room)]) {
                Ok(length) => {
                    piece.drain(..length);
                    self.queued -= length;
                    self.forwarded += length as u64;
                    if piece.is_empty() {
                        self.pieces.pop_front();
                    }
                }
                Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn is_due(&self, now: Instant) -> bool {
        self.pieces.front().is_some_and(|(due, _)| *due <= now)
    }

    /// Whether nothing will ever move on it again.
    fn is_done(&self) -> bool {
        self.ended && self.pieces.is_empty()
    }

    /// Whether this mark is in what was read, these bytes being the last of it.
    fn saw(&mut self, bytes: &[u8], mark: &[u8]) -> bool {
        let seen = self.joined(bytes, mark);
        seen.windows(mark.len()).any(|window| window == mark)
    }

    /// Whether what was read ends with this mark, these bytes being the last of it.
    fn ends_with(&mut self, bytes: &[u8], mark: &[u8]) -> bool {
        self.joined(bytes, mark).ends_with(mark)
    }

    /// These bytes, after as many earlier ones as a mark may have begun in.
    fn joined(&mut self, bytes: &[u8], mark: &[u8]) -> Vec<u8> {
        let seen = [&self.tail, bytes].concat();
        self.tail = seen[seen.len().saturating_sub(mark.len() - 1)..].to_vec();
        seen
    }
}
