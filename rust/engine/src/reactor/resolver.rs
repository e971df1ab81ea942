//! Looks up names on its own threads: the system may take long.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use mio::Waker;

use super::address::look_up;

type Answer = (u64, Option<SocketAddr>);

/// Looks up the addresses of names.
#[derive(Debug)]
pub(super) struct Resolver {
    waker: Arc<Waker>,
    answers: Receiver<Answer>,
    answering: Sender<Answer>,
    /// The pending questions.
    open: HashSet<u64>,
}

impl Resolver {
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        let (answering, answers) = mpsc::channel();
        Self { waker, answers, answering, open: HashSet::new() }
    }

    /// Asks for a host's address; the answer has this number.
    pub(super) fn ask(&mut self, number: u64, host: &str, port: u16, ipv6: bool) {
        let (answering, waker, host) = (self.answering.clone(), Arc::clone(&self.waker), host.to_owned());
        let asking = thread::Builder::new().name("trunkline-resolver".to_owned()).spawn(move || {
            let address = look_up(&host, port, ipv6).ok();
            // The receiver is gone once the role has ended.
            let _ = answering.send((number, address));
            let _ = waker.wake();
        });
        self.open.insert(number);
        if asking.is_err() {
            // Counts as unknown: it is asked again later.
            let _ = self.answering.send((number, None));
            let _ = self.waker.wake();
        }
    }

    /// Forgets a question: its answer is not needed any more.
    pub(super) fn forget(&mut self, number: u64) {
        self.open.remove(&number);
    }

    pub(super) fn poll(&mut self) -> Option<Answer> {
        loop {
            let answer = self.answers.try_recv().ok()?;
            if self.open.remove(&answer.0) {
                return Some(answer);
            }
        }
    }
}
