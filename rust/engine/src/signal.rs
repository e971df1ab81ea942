//! Wakes waiting threads, any number of them, and one event loop.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use smallvec::SmallVec;

use self::descriptor::Descriptor;
use crate::reactor::poll_timeout;

/// Wakes an engine.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// Wakes waiting threads, and costs no system call while there is none.
///
/// Threads call [`wait`](Self::wait), each independently. One event loop, or one thread that polls, listens on the
/// descriptor: it calls [`arm`](Self::arm), looks once more whether there is still reason to wait, waits until the
/// descriptor is readable, then calls [`disarm`](Self::disarm). Neither takes a wake-up from the other.
#[derive(Debug)]
pub struct Signal {
    /// Threads that wait or are about to.
    threads: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
    /// Whether the loop waits or is about to.
    armed: AtomicBool,
    latched: AtomicBool,
    descriptor: Descriptor,
}

impl Signal {
    /// A signal without waiting threads.
    ///
    /// # Errors
    /// When the operating system gives no descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            threads: AtomicUsize::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
            armed: AtomicBool::new(false),
            latched: AtomicBool::new(false),
            descriptor: Descriptor::new()?,
        })
    }

    /// Announces that the loop is about to wait.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Wakes waiting threads. Their condition must already hold.
    pub fn notify(&self) {
        // A thread that is not seen here has yet to look, and will see the condition.
        fence(Ordering::SeqCst);
        self.wake_threads();
        if self.armed.swap(false, Ordering::SeqCst) {
            self.descriptor.set();
        }
    }

    /// Wakes every waiter, now and from now on.
    pub fn latch(&self) {
        self.latched.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.wake_threads();
        self.descriptor.set();
    }

    fn wake_threads(&self) {
        if self.threads.load(Ordering::SeqCst) > 0 {
            // A thread that has looked but not yet slept holds the lock.
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_all();
        }
    }

    /// Ends the loop's wait; makes the descriptor unreadable again if it `is_readable` or may be.
    pub fn disarm(&self, is_readable: bool) {
        let is_untouched = self.armed.swap(false, Ordering::SeqCst);
        if self.latched.load(Ordering::SeqCst) || (is_untouched && !is_readable) {
            return;
        }
        self.descriptor.clear();
    }

    /// Lets this thread wait until `ready` or for so long at most; may return early.
    pub fn wait(&self, ready: impl Fn() -> bool, timeout: Option<Duration>) {
        self.threads.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if !ready() && !self.latched.load(Ordering::SeqCst) {
            match timeout {
                Some(timeout) => drop(self.changed.wait_timeout(guard, timeout)),
                None => drop(self.changed.wait(guard)),
            }
        }
        self.threads.fetch_sub(1, Ordering::SeqCst);
    }

    /// The wait of a thread that polls, after [`arm`](Self::arm) and its look: gives whether one of `others` is readable.
    pub(crate) fn poll(&self, others: &[BorrowedFd<'_>], timeout: Option<Duration>) -> bool {
        let polled = others.iter().copied().chain([self.as_fd()]);
        let mut polled: SmallVec<[_; 4]> = polled.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // An error ends the wait early.
        let _ = poll(&mut polled, poll_timeout(timeout));
        let is_readable = |polled: &PollFd<'_>| polled.any() == Some(true);
        self.disarm(polled.last().is_some_and(is_readable));
        polled[..others.len()].iter().any(is_readable)
    }

    /// The descriptor's number, for event loops.
    pub fn raw_fd(&self) -> RawFd {
        self.descriptor.as_fd().as_raw_fd()
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(target_os = "linux")]
mod descriptor {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};

    use nix::sys::eventfd::{EfdFlags, EventFd};

    /// Readable from `set` to `clear`.
    #[derive(Debug)]
    pub(super) struct Descriptor(EventFd);

    impl Descriptor {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self(EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
        }

        pub(super) fn set(&self) {
            // A full counter is readable already.
            let _ = self.0.write(1);
        }

        pub(super) fn clear(&self) {
            // Reading one that was not set is harmless.
            let _ = self.0.read();
        }

        pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod descriptor {
    use std::io::{self, Read, Write};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::net::UnixStream;

    /// Readable from `set` to `clear`.
    #[derive(Debug)]
    pub(super) struct Descriptor {
        waiting: UnixStream,
        waking: UnixStream,
    }

    impl Descriptor {
        pub(super) fn new() -> io::Result<Self> {
            let (waiting, waking) = UnixStream::pair()?;
            waiting.set_nonblocking(true)?;
            waking.set_nonblocking(true)?;
            Ok(Self { waiting, waking })
        }

        pub(super) fn set(&self) {
            // A full stream is readable already.
            let _ = (&self.waking).write(&[1]);
        }

        pub(super) fn clear(&self) {
            let mut bytes = [0; 64];
            while matches!((&self.waiting).read(&mut bytes), Ok(64)) {}
        }

        pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
            self.waiting.as_fd()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::Signal;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn is_readable(signal: &Signal, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(signal.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(timeout).expect("a short time");
        poll(&mut fds, timeout).expect("a poll") > 0
    }

    #[test]
    fn threads_and_a_loop_take_nothing_from_one_another() {
        let signal = Signal::new().expect("a descriptor");
        signal.arm();
        // A thread that comes, waits in vain and goes.
        signal.wait(|| false, Some(Duration::from_millis(1)));
        signal.wait(|| true, None);
        signal.notify();
        assert!(is_readable(&signal, PATIENCE), "the loop is still to be woken");
        signal.disarm(true);
        assert!(!is_readable(&signal, Duration::ZERO));
    }

    #[test]
    fn every_thread_is_woken_by_what_it_waits_for() {
        // Without time-outs a single lost wake-up hangs.
        let (signal, number, done) = (Signal::new().expect("a descriptor"), AtomicU64::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for wanted in 1..=2000 {
                        while number.load(Ordering::SeqCst) < wanted {
                            signal.wait(|| number.load(Ordering::SeqCst) >= wanted, None);
                        }
                        done.fetch_add(1, Ordering::SeqCst);
                        signal.notify();
                    }
                });
            }
            let deadline = Instant::now() + PATIENCE;
            for round in 1..=2000 {
                number.store(round, Ordering::SeqCst);
                signal.notify();
                let all = usize::try_from(round).expect("small") * 4;
                while done.load(Ordering::SeqCst) < all {
                    signal.wait(|| done.load(Ordering::SeqCst) >= all, Some(PATIENCE));
                    assert!(Instant::now() < deadline, "stuck in round {round}");
                }
            }
        });
    }

    #[test]
    fn a_latched_signal_lets_nobody_wait() {
        let signal = Signal::new().expect("a descriptor");
        signal.latch();
        signal.wait(|| false, None);
        assert!(is_readable(&signal, Duration::ZERO));
        signal.disarm(true);
        assert!(is_readable(&signal, Duration::ZERO));
    }
}
