//! Asks for decisions about CURVE clients, which another thread makes: clients do not wait for a busy role.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use mio::Waker;
use smallvec::smallvec;
use trunkline_wire::zap::{Allowed, Key};
use trunkline_wire::{Frames, SocketEvent, SocketKind, SocketOptions};

use crate::signal::Signal;
use crate::transport::{Ending, Interest, Received, Taken, Transport, TransportError};

/// Questions pending for a busy thread; clients beyond them retry.
const QUESTIONS: usize = 4096;

/// Questions and answers, between the two threads.
#[derive(Default)]
struct Waiting {
    questions: VecDeque<Frames>,
    answers: VecDeque<(u64, Decision)>,
    /// The allow-list, if there is one.
    listed: Option<Arc<Allowed>>,
    /// Whether those that are connected are to be decided about again.
    is_changed: bool,
}

/// A decision about a client.
#[derive(Debug)]
pub(super) enum Decision {
    /// It is admitted, as this user.
    Allowed(Bytes),
    Denied,
    /// No decision in time.
    Open,
}

/// Asks an authenticator in ZAP 1.0, without a socket in between.
pub struct Admission {
    waiting: Mutex<Waiting>,
    /// Wakes the authenticator.
    asked: Signal,
    /// Wakes the role.
    answered: OnceLock<Arc<Waker>>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admission")
    }
}

impl Admission {
    /// Without questions.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub fn new() -> Result<Self, TransportError> {
        let asked = Signal::new().map_err(|error| crate::reactor::failed(&error))?;
        Ok(Self { waiting: Mutex::default(), asked, answered: OnceLock::new() })
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what wakes the role that asks.
    pub(super) fn wake_by(&self, waker: Arc<Waker>) {
        // There is one role for each.
        let _ = self.answered.set(waker);
    }

    /// Asks about a client: RFC 27, "The ZAP Request".
    pub(super) fn ask(&self, number: u64, host: Option<IpAddr>, key: &Key) {
        let host = host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let question = smallvec![
            Bytes::new(),
            Bytes::from_static(b"1.0"),
            Bytes::copy_from_slice(&number.to_be_bytes()),
            Bytes::new(),
            Bytes::from(host.to_string()),
            Bytes::new(),
            Bytes::from_static(b"CURVE"),
            Bytes::copy_from_slice(key),
        ];
        let mut waiting = self.waiting();
        if waiting.questions.len() < QUESTIONS {
            waiting.questions.push_back(question);
        } else {
            waiting.answers.push_back((number, Decision::Open));
        }
        drop(waiting);
        self.asked.notify();
    }

    /// Another allow-list, or with `None` another state of what decides: clients that are connected and not allowed any
    /// more are cut off.
    pub(crate) fn change(&self, listed: Option<Arc<Allowed>>) {
        let mut waiting = self.waiting();
        (waiting.listed, waiting.is_changed) = (listed, true);
        drop(waiting);
        self.wake();
    }

    /// Whether there was a change since the last call.
    pub(super) fn take_change(&self) -> bool {
        std::mem::take(&mut self.waiting().is_changed)
    }

    /// The allow-list as it is now: an answer may be older.
    pub(super) fn listed(&self) -> Option<Arc<Allowed>> {
        self.waiting().listed.clone()
    }

    fn wake(&self) {
        if let Some(waker) = self.answered.get() {
            // A role that is over asks no more.
            let _ = waker.wake();
        }
    }

    /// The next answer: RFC 27, "The ZAP Reply".
    pub(super) fn poll(&self) -> Option<(u64, Decision)> {
        self.waiting().answers.pop_front()
    }

    fn answer(&self, reply: &[Bytes]) {
        let [_, _, number, status, _, user, ..] = reply else { return };
        let Ok(number) = <[u8; 8]>::try_from(&number[..]) else { return };
        let decision = match &status[..] {
            b"200" => Decision::Allowed(user.clone()),
            b"400" => Decision::Denied,
            _ => Decision::Open,
        };
        self.waiting().answers.push_back((u64::from_be_bytes(number), decision));
        self.wake();
    }
}

/// The transport of an authenticator that is asked this way.
pub struct Asking(Arc<Admission>);

impl Asking {
    /// Answers the questions of `admission`.
    pub fn new(admission: Arc<Admission>) -> Self {
        Self(admission)
    }
}

impl Transport for Asking {
    type Socket = ();

    fn open(&mut self, _kind: SocketKind, _options: &SocketOptions) -> Result<(), TransportError> {
        Ok(())
    }

    fn bind(&mut self, (): &mut (), endpoint: &str) -> Result<String, TransportError> {
        Ok(endpoint.to_owned())
    }

    fn connect(&mut self, (): &mut (), _endpoint: &str) -> Result<(), TransportError> {
        Err(TransportError::Unsupported("connecting"))
    }

    fn disconnect(&mut self, (): &mut (), _endpoint: &str) -> Result<(), TransportError> {
        Ok(())
    }

    fn receive(&mut self, (): &mut ()) -> Result<Option<Received>, TransportError> {
        let question = self.0.waiting().questions.pop_front();
        Ok(question.map(|frames| Received { peer: Some(Bytes::new()), frames, ..Received::default() }))
    }

    fn send(&mut self, (): &mut (), _to: Option<&Bytes>, frames: &[Bytes]) -> Result<Taken, TransportError> {
        self.0.answer(frames);
        Ok(Taken::Yes)
    }

    fn poll_monitor(&mut self, (): &mut ()) -> Option<SocketEvent> {
        None
    }

    fn wait(
        &mut self,
        sockets: &mut [Interest<'_, ()>],
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        self.0.asked.arm();
        let is_asked = sockets.iter().any(|socket| socket.read) && !self.0.waiting().questions.is_empty();
        let is_other = self.0.asked.poll(others, if is_asked { Some(Duration::ZERO) } else { timeout });
        for interest in sockets {
            interest.readable = interest.read && !self.0.waiting().questions.is_empty();
        }
        Ok(is_other)
    }

    fn close(&mut self, (): (), _linger: Duration) {}

    fn ending(self) -> Ending {
        Box::new(|| None)
    }
}
