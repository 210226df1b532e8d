//! A TCP proxy that misbehaves as it is told, to stand between a client and a server.
//!
//! One thread does everything, so that [`Proxy::set`] has a clear meaning: when it returns, every byte that is read from
//! then on is treated in the new way. The sockets never block.
//!
//! What must never happen here: a wait without a bound, a thread that outlives its proxy, and a stream with a hole in
//! it. A connection that has lost bytes never carries another in that direction: it is reset when the behaviour changes.

mod link;
mod relay;

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::process::free_addr;
use super::until;
use relay::{Order, Relay};

/// How long the proxy may take to do as it is told.
const OBEYS: Duration = Duration::from_secs(10);

/// What a proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behaviour {
    /// Forwards everything.
    Pass,
    /// Forwards everything, so much later in each direction.
    Delay(Duration),
    /// New connections are refused, as where nothing listens. Open ones go on.
    Refuse,
    /// Open connections are reset now, new ones are refused.
    Cut,
    /// Connections are made and stay open, but what a client sends never arrives.
    DropToServer,
    /// Connections are made and stay open, but what the server answers never arrives.
    DropToClient,
    /// Each connection is reset when its server has more to say than so many bytes.
    CutAfterServerBytes(u64),
    /// The next push arrives at the server, which carries it out, but the client never hears so: its connection is reset
    /// when the server is done. All else, and everything after that push, is forwarded.
    ///
    /// A push is recognised by the first bytes of its pack, hence not over ssh, and not when it only deletes refs. Over
    /// ssh, hold it at the hub's gate and lose the rest with [`Behaviour::DropToClient`].
    ///
    /// Over HTTP, libcurl may then send the push once more by itself, on a fresh connection, and git reports the answer to
    /// that: see [`Behaviour::DropAnswersOfPushes`].
    DropAnswerOfNextPush,
    /// The same for every push.
    DropAnswersOfPushes,
    /// Forwards everything for a while, then cuts for a while, in turns.
    Flap {
        /// How long it forwards, which it begins with.
        up: Duration,
        /// How long it cuts.
        down: Duration,
    },
}

/// What a proxy has taken away and handed on so far.
#[derive(Debug, Default)]
struct Counts {
    lost_bytes: AtomicU64,
    carried_bytes: AtomicU64,
    dropped_answers: AtomicU64,
}

/// A proxy before one server. It begins with [`Behaviour::Pass`].
pub struct Proxy {
    addr: SocketAddr,
    counts: Arc<Counts>,
    /// Gone when the proxy is to end.
    orders: Option<Sender<Order>>,
    alarm: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy before the server at this address.
    pub fn start(target: SocketAddr) -> Proxy {
        let counts = Arc::new(Counts::default());
        let (sender, receiver) = channel();
        let (alarm, alarmed) = UnixStream::pair().expect("a pair of sockets");
        let (addr, relay) = until("a port for the proxy", || {
            let addr = free_addr();
            Some(addr).zip(Relay::new(addr, target, counts.clone()).ok())
        });
        alarmed.set_nonblocking(true).expect("a socket that does not block");
        let thread = std::thread::spawn(move || relay.run(&receiver, &alarmed));
        Proxy { addr, counts, orders: Some(sender), alarm, thread: Some(thread) }
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Behaves in this way from now on.
    pub fn set(&self, behaviour: Behaviour) {
        let (done, is_done) = channel();
        let orders = self.orders.as_ref().expect("there until the proxy is dropped");
        orders.send(Order { behaviour, done }).expect("the proxy runs");
        self.wake();
        is_done.recv_timeout(OBEYS).expect("the proxy does as it is told");
    }

    /// How many bytes never arrived, in both directions.
    pub fn lost_bytes(&self) -> u64 {
        self.counts.lost_bytes.load(Ordering::Relaxed)
    }

    /// How many bytes were handed on, in both directions.
    pub fn carried_bytes(&self) -> u64 {
        self.counts.carried_bytes.load(Ordering::Relaxed)
    }

    /// How many pushes were carried out without an answer, by [`Behaviour::DropAnswerOfNextPush`] and
    /// [`Behaviour::DropAnswersOfPushes`].
    pub fn dropped_answers(&self) -> u64 {
        self.counts.dropped_answers.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        let _ended = (&self.alarm).write_all(b"!");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.orders.take());
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
