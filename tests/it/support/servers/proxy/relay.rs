//! The thread of a proxy: listens or does not, accepts, moves bytes, and waits until there is something to do.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, bind, listen, shutdown, socket_with};

use super::link::{Link, Treatment};
use super::{Behaviour, Counts};

/// The longest wait: what is due is looked for that often, whatever was missed.
const TICK: Duration = Duration::from_millis(100);
/// How long the server may take to accept a connection.
const CONNECTS: Duration = Duration::from_secs(1);

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 128;

/// A behaviour to change to, and whom to tell when that is done.
pub struct Order {
    pub behaviour: Behaviour,
    pub done: Sender<()>,
}

/// All that the thread knows.
pub struct Relay {
    target: SocketAddr,
    counts: Arc<Counts>,
    /// Bound for as long as the proxy lives, so that nobody else gets its port while connections are refused.
    listener: TcpListener,
    listens: bool,
    links: Vec<Link>,
    behaviour: Behaviour,
    since: Instant,
    /// The answer to the next push is dropped.
    armed: bool,
}

impl Relay {
    /// Listens at an address, for a target.
    pub fn new(addr: SocketAddr, target: SocketAddr, counts: Arc<Counts>) -> io::Result<Relay> {
        let (behaviour, since) = (Behaviour::Pass, Instant::now());
        // Not by the standard library: it would let others have the address, too, while nobody listens on it.
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &addr)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let (listens, links, armed) = (false, Vec::new(), false);
        let mut relay = Relay { target, counts, listener, listens, links, behaviour, since, armed };
        relay.listen(true)?;
        Ok(relay)
    }

    /// Runs until nobody can give orders any more.
    pub fn run(mut self, orders: &Receiver<Order>, alarm: &UnixStream) {
        loop {
            let _drained = { alarm }.read(&mut [0; 64]);
            match orders.try_recv() {
                Ok(order) => self.obey(order),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return,
            }
            self.step();
            self.wait(alarm);
        }
    }

    fn obey(&mut self, order: Order) {
        // What was on the way is moved by the old rules.
        self.step();
        self.links.retain_mut(|link| !link.has_a_hole() || link.reset());
        (self.behaviour, self.since) = (order.behaviour, Instant::now());
        self.armed = matches!(order.behaviour, Behaviour::DropAnswerOfNextPush | Behaviour::DropAnswersOfPushes);
        self.step();
        let _nobody_waits = order.done.send(());
    }

    /// Does all that can be done without waiting.
    fn step(&mut self) {
        let now = Instant::now();
        let behaviour = self.behaviour_at(now);
        let cut = behaviour == Behaviour::Cut;
        self.listen(!cut && behaviour != Behaviour::Refuse).expect("a bound socket listens when it is told to");
        while let Some(link) = self.accept() {
            self.links.push(link);
        }
        let (armed, counts) = (&mut self.armed, &*self.counts);
        let mut treatment = Treatment { now, behaviour, armed, counts };
        self.links.retain_mut(|link| if cut { link.reset() } else { link.step(&mut treatment) });
    }

    /// What to do at a time: flapping is only ever one of two others.
    fn behaviour_at(&self, now: Instant) -> Behaviour {
        let Behaviour::Flap { up, down } = self.behaviour else { return self.behaviour };
        if self.time_in_flap(now, up, down) < up { Behaviour::Pass } else { Behaviour::Cut }
    }

    fn time_in_flap(&self, now: Instant, up: Duration, down: Duration) -> Duration {
        let period = (up + down).as_nanos().max(1);
        let nanos = now.duration_since(self.since).as_nanos() % period;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Listens, or stops listening: who is not yet accepted is reset by the kernel then.
    ///
    /// The socket is told so. To close it would not do: a process that another thread starts has a copy of it until it
    /// runs its own program, and connections would be taken for that long.
    fn listen(&mut self, wanted: bool) -> io::Result<()> {
        if wanted && !self.listens {
            // Connections that go on have the same address, which is no obstacle then.
            set_socket_reuseaddr(&self.listener, true)?;
            listen(&self.listener, BACKLOG)?;
        } else if !wanted && self.listens {
            shutdown(&self.listener, Shutdown::Read)?;
            set_socket_reuseaddr(&self.listener, false)?;
        }
        self.listens = wanted;
        Ok(())
    }

    /// The next connection that waits, if any. A client whose server cannot be reached is turned away.
    fn accept(&self) -> Option<Link> {
        loop {
            let (client, _) = self.listener.accept().ok()?;
            let link = TcpStream::connect_timeout(&self.target, CONNECTS).and_then(|server| Link::new(client, server));
            if link.is_ok() {
                return link.ok();
            }
        }
    }

    /// Waits until a socket is ready, something is due, or somebody rings.
    fn wait(&self, alarm: &UnixStream) {
        let now = Instant::now();
        let mut due = now + TICK;
        if let Behaviour::Flap { up, down } = self.behaviour {
            let time = self.time_in_flap(now, up, down);
            due = due.min(now + if time < up { up } else { up + down }.saturating_sub(time));
        }
        let mut waited_for = vec![PollFd::new(alarm, PollFlags::IN)];
        if self.listens {
            waited_for.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        for link in &self.links {
            due = due.min(link.due().unwrap_or(due));
            for (socket, flags) in link.interests(now).into_iter().filter(|(_, flags)| !flags.is_empty()) {
                waited_for.push(PollFd::new(socket, flags));
            }
        }
        let timeout = Timespec::try_from(due.saturating_duration_since(now)).expect("at most a tick");
        // Whatever ended the wait, the next step looks at everything.
        let _ready = poll(&mut waited_for, Some(&timeout));
    }
}
