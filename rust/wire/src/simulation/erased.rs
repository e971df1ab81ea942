//! Machines with their types erased: sockets are numbers, and events are kept until they are taken.

use std::any::Any;
use std::collections::VecDeque;
use std::time::Duration;

use crate::{Incoming, Machine, Nanos, Output, SocketEvent, Verdict};

/// The interface of a machine of any type. Its methods act like those of [`Machine`]; sockets are numbered in the order
/// they are opened.
pub(super) trait AnyMachine: Any + Send {
    /// See [`Machine::handle_message`]; a message for a socket that was never opened is ignored.
    fn handle_message(&mut self, now: Nanos, incoming: Incoming<usize>) -> Verdict;

    fn handle_socket(&mut self, now: Nanos, socket: usize, event: SocketEvent);

    fn handle_timeout(&mut self, now: Nanos);

    fn handle_close(&mut self, now: Nanos, grace: Duration);

    fn poll_output(&mut self) -> Option<Output<usize>>;

    /// Collects the machine's events. Returns how many.
    fn gather(&mut self) -> usize;

    fn poll_timeout(&self) -> Option<Nanos>;

    fn reads(&self, socket: usize) -> bool;

    fn is_closed(&self) -> bool;
}

/// A machine whose sockets are numbers.
pub(super) struct Numbered<M: Machine> {
    pub(super) machine: M,
    sockets: Vec<M::Socket>,
    events: VecDeque<M::Event>,
}

impl<M: Machine> Numbered<M> {
    /// Numbers the sockets of a machine that has opened none yet.
    pub(super) fn new(machine: M) -> Self {
        Self { machine, sockets: vec![], events: VecDeque::new() }
    }

    /// The next collected event.
    pub(super) fn take(&mut self) -> Option<M::Event> {
        self.events.pop_front()
    }

    fn number(&mut self, socket: M::Socket) -> usize {
        let known = self.sockets.iter().position(|known| *known == socket);
        known.unwrap_or_else(|| {
            self.sockets.push(socket);
            self.sockets.len() - 1
        })
    }
}

impl<M: Machine + Send + 'static> AnyMachine for Numbered<M> {
    fn handle_message(&mut self, now: Nanos, incoming: Incoming<usize>) -> Verdict {
        let Incoming { socket, peer, user_id, host, frames } = incoming;
        let Some(&socket) = self.sockets.get(socket) else { return Verdict::default() };
        self.machine.handle_message(now, Incoming { socket, peer, user_id, host, frames })
    }

    fn handle_socket(&mut self, now: Nanos, socket: usize, event: SocketEvent) {
        if let Some(&socket) = self.sockets.get(socket) {
            self.machine.handle_socket(now, socket, event);
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        self.machine.handle_timeout(now);
    }

    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        self.machine.handle_close(now, grace);
    }

    fn poll_output(&mut self) -> Option<Output<usize>> {
        let output = self.machine.poll_output()?;
        Some(output.on(|socket| self.number(socket)))
    }

    fn gather(&mut self) -> usize {
        let before = self.events.len();
        while let Some(event) = self.machine.poll_event() {
            self.events.push_back(event);
        }
        self.events.len() - before
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.machine.poll_timeout()
    }

    fn reads(&self, socket: usize) -> bool {
        self.sockets.get(socket).is_some_and(|socket| self.machine.reads(*socket))
    }

    fn is_closed(&self) -> bool {
        self.machine.is_closed()
    }
}
