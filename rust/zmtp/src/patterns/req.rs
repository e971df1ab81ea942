//! One request after the other: REQ, of RFC 28.

use bytes::Bytes;
use trunkline_wire::{Backlog, Frames};

use super::{ConnectionId, Distributor, PipeId, Placed};
use crate::HighWater;

/// What a message received by a REQ is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The reply to the request, without its delimiter.
    Reply(Frames),
    /// No reply to the request: it is discarded, and counted.
    Stray,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// The request is pending until there is a connection.
    Pending,
    Waiting(ConnectionId),
}

/// Sends one request at a time, and takes the reply only from the peer that got it.
#[derive(Debug)]
pub struct Req {
    peers: Distributor,
    state: State,
    strays: u64,
}

impl Req {
    /// Without peers. With `immediate` requests are pending only for connected peers.
    pub fn new(high_water: HighWater, immediate: bool) -> Self {
        Self { peers: Distributor::new(high_water, immediate), state: State::Idle, strays: 0 }
    }

    /// An endpoint is dialled from now on.
    pub fn dial(&mut self) -> PipeId {
        self.peers.dial()
    }

    /// A connection is ready: an accepted one, or that of an endpoint.
    pub fn connected(&mut self, connection: ConnectionId, dial: Option<PipeId>) {
        self.peers.connected(connection, dial);
    }

    /// A connection is gone. True if its reply was pending: the next request may be sent.
    pub fn disconnected(&mut self, connection: ConnectionId) -> bool {
        let is_lost = !self.peers.disconnected(connection).is_empty() || self.state == State::Waiting(connection);
        if is_lost {
            self.state = State::Idle;
        }
        is_lost
    }

    /// Stops dialling an endpoint. True if a request was pending for it, and is lost.
    pub fn hang_up(&mut self, pipe: PipeId) -> bool {
        let is_lost = !self.peers.hang_up(pipe).is_empty();
        if is_lost {
            self.state = State::Idle;
        }
        is_lost
    }

    /// Reports the backlog of a connection.
    pub fn handle_backlog(&mut self, connection: ConnectionId, backlog: Backlog) {
        self.peers.handle_backlog(connection, backlog);
    }

    /// Whether a request may be sent now.
    pub fn is_writable(&self) -> bool {
        self.state == State::Idle && self.peers.is_writable()
    }

    /// Takes a request for the next peer with room; gives it as it is to be sent, with its delimiter. Only after the
    /// reply to the last.
    pub fn place(&mut self, frames: &[Bytes]) -> (Placed, Frames) {
        let request: Frames = std::iter::once(Bytes::new()).chain(frames.iter().cloned()).collect();
        let placed = if self.state == State::Idle { self.peers.place(&request, |_| true) } else { Placed::Full };
        match placed {
            Placed::Now(connection) => self.state = State::Waiting(connection),
            Placed::Pending => self.state = State::Pending,
            Placed::Full | Placed::Barred => {}
        }
        (placed, request)
    }

    /// The pending request, once it can be sent.
    pub fn poll_send(&mut self) -> Option<(ConnectionId, Frames)> {
        let sent = self.peers.poll_send()?;
        self.state = State::Waiting(sent.0);
        Some(sent)
    }

    /// The request that is pending until a peer connects.
    pub fn pending(&self) -> Backlog {
        self.peers.pending()
    }

    /// Takes a message.
    pub fn receive(&mut self, connection: ConnectionId, mut frames: Frames) -> Answer {
        let is_reply = frames.len() > 1 && frames[0].is_empty();
        if self.state != State::Waiting(connection) || !is_reply {
            self.strays += 1;
            return Answer::Stray;
        }
        self.state = State::Idle;
        frames.remove(0);
        Answer::Reply(frames)
    }

    /// Messages that were no reply to a request.
    pub fn strays(&self) -> u64 {
        self.strays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: ConnectionId = ConnectionId(1);
    const TWO: ConnectionId = ConnectionId(2);

    fn frames(frames: &[&'static [u8]]) -> Frames {
        frames.iter().map(|frame| Bytes::from_static(frame)).collect()
    }

    #[test]
    fn one_is_asked_after_the_other_and_answers_alone() {
        let mut req = Req::new(HighWater::default(), false);
        req.connected(ONE, None);
        req.connected(TWO, None);
        assert_eq!(req.place(&frames(&[b"a"])), (Placed::Now(ONE), frames(&[b"", b"a"])));
        assert!(!req.is_writable());
        assert_eq!(req.place(&frames(&[b"b"])).0, Placed::Full);
        assert_eq!(req.receive(TWO, frames(&[b"", b"forged"])), Answer::Stray);
        assert_eq!(req.receive(ONE, frames(&[b"no delimiter"])), Answer::Stray);
        assert_eq!(req.receive(ONE, frames(&[b"", b"A"])), Answer::Reply(frames(&[b"A"])));
        assert_eq!(req.receive(ONE, frames(&[b"", b"again"])), Answer::Stray);
        assert_eq!((req.place(&frames(&[b"b"])).0, req.strays()), (Placed::Now(TWO), 3));
    }

    #[test]
    fn who_is_gone_is_not_waited_for() {
        let mut req = Req::new(HighWater::default(), false);
        let dial = req.dial();
        assert_eq!(req.place(&frames(&[b"a"])).0, Placed::Pending);
        req.connected(ONE, Some(dial));
        assert_eq!(req.poll_send(), Some((ONE, frames(&[b"", b"a"]))));
        req.handle_backlog(ONE, Backlog::default());
        assert!(req.disconnected(ONE));
        assert_eq!(req.place(&frames(&[b"b"])).0, Placed::Pending);
        assert!(req.hang_up(dial));
        assert!(!req.disconnected(ONE) && !req.is_writable());
    }
}
