//! A file descriptor that one thread makes readable to wake another.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Wakes whoever waits on its descriptor, and costs no system call while nobody does.
///
/// The waiter calls [`arm`](Self::arm), looks once more whether there is still reason to wait, waits until the descriptor
/// is readable, then calls [`disarm`](Self::disarm).
#[derive(Debug)]
pub struct Signal {
    armed: AtomicBool,
    latched: AtomicBool,
    waiting: UnixStream,
    waking: UnixStream,
}

impl Signal {
    /// A signal nobody waits for.
    pub fn new() -> io::Result<Self> {
        let (waiting, waking) = UnixStream::pair()?;
        waiting.set_nonblocking(true)?;
        waking.set_nonblocking(true)?;
        Ok(Self { armed: AtomicBool::new(false), latched: AtomicBool::new(false), waiting, waking })
    }

    /// Announces that someone is about to wait.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Whether someone waits or is about to.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::SeqCst)
    }

    /// Wakes the waiter, if there is one.
    pub fn notify(&self) {
        if self.armed.swap(false, Ordering::SeqCst) {
            // A full pipe is readable already.
            let _ = (&self.waking).write(&[1]);
        }
    }

    /// Wakes every waiter, now and from now on.
    pub fn latch(&self) {
        self.latched.store(true, Ordering::SeqCst);
        let _ = (&self.waking).write(&[1]);
    }

    /// Ends a wait; makes the descriptor unreadable again if it `is_readable` or may be.
    pub fn disarm(&self, is_readable: bool) {
        let is_untouched = self.armed.swap(false, Ordering::SeqCst);
        if self.latched.load(Ordering::SeqCst) || (is_untouched && !is_readable) {
            return;
        }
        let mut bytes = [0; 64];
        while matches!((&self.waiting).read(&mut bytes), Ok(64)) {}
    }

    /// Waits until `ready` or for so long at most; may return early.
    pub fn wait(&self, ready: impl Fn() -> bool, timeout: Option<Duration>) {
        self.arm();
        let mut is_readable = false;
        if !ready() {
            let timeout = timeout.map_or(-1, |timeout| {
                libc::c_int::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(libc::c_int::MAX)
            });
            let mut fd = libc::pollfd { fd: self.raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one pollfd. Any error ends the wait early, which is allowed.
            is_readable = unsafe { libc::poll(&raw mut fd, 1, timeout) } > 0;
        }
        self.disarm(is_readable);
    }

    /// The descriptor's number, for event loops.
    pub fn raw_fd(&self) -> RawFd {
        self.waiting.as_raw_fd()
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }
}
