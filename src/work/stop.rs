//! The wish that the runner ends: the first signal asks it to take nothing new, the second to stop at once.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::{SIGINT, SIGTERM};

/// How urgent the wish is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    /// There is none.
    None,
    /// Nothing new.
    Drain,
    /// At once.
    Now,
}

/// Tells of SIGINT and SIGTERM.
#[derive(Debug)]
pub struct Stop {
    signals: Arc<AtomicU8>,
    /// Readable for ever after the first signal.
    first: UnixStream,
    /// Readable for ever after the second.
    second: UnixStream,
}

impl Stop {
    /// Begins to catch the signals; `heard` is called after each.
    ///
    /// # Errors
    /// What the system says.
    pub fn catch(heard: impl Fn() + Send + 'static) -> io::Result<Stop> {
        let signals = Arc::new(AtomicU8::new(0));
        let (first, mut tell_first) = UnixStream::pair()?;
        let (second, mut tell_second) = UnixStream::pair()?;
        let (mut caught, wake) = UnixStream::pair()?;
        for signal in [SIGTERM, SIGINT] {
            signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        let counted = Arc::clone(&signals);
        std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut byte = [0];
            while caught.read_exact(&mut byte).is_ok() {
                let before = counted.load(Ordering::SeqCst);
                counted.store(before.saturating_add(1), Ordering::SeqCst);
                let tell = if before == 0 { &mut tell_first } else { &mut tell_second };
                let _full_only_after_thousands = tell.write(&[1]);
                heard();
            }
        })?;
        Ok(Stop { signals, first, second })
    }

    /// What is wished now.
    pub fn wish(&self) -> Wish {
        match self.signals.load(Ordering::SeqCst) {
            0 => Wish::None,
            1 => Wish::Drain,
            _ => Wish::Now,
        }
    }

    /// What becomes readable, or is, with a wish more urgent than the one that was `seen`; nothing where there is none.
    pub fn awaited(&self, seen: Wish) -> Option<BorrowedFd<'_>> {
        match seen {
            Wish::None => Some(self.first.as_fd()),
            Wish::Drain => Some(self.second.as_fd()),
            Wish::Now => None,
        }
    }

    /// Waits so long, or until a wish comes that is more urgent than the one that was `seen`.
    pub fn wait(&self, time: Duration, seen: Wish) {
        let Ok(time) = rustix::time::Timespec::try_from(time) else { return };
        let mut polled: Vec<_> =
            self.awaited(seen).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).into_iter().collect();
        let _ended_early = rustix::event::poll(&mut polled, Some(&time));
    }
}
