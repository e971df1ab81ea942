//! One socket: its pattern, and its endpoints.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use trunkline_wire::{Backlog, Frames, Nanos, SocketEvent, SocketKind};
use trunkline_zmtp::patterns::{
    Admitted, Answer, ConnectionId, Distributor, Holder, PipeId, Placed, Req, Routed, Router, Turns, Unsent,
};
use trunkline_zmtp::{Ready, Reason};

use super::core::Share;
use super::options::Chosen;
use crate::limits::Repeats;
use crate::reactor::{DialId, LinkId, ListenerId};
use crate::transport::{Received, Taken};

/// The sending half of a socket.
#[derive(Debug)]
enum Sending {
    None,
    InTurn(Distributor),
    InStep(Req),
    Routed(Router),
}

/// An endpoint that is dialled.
#[derive(Debug)]
pub(super) struct Dialled {
    pub(super) endpoint: Arc<str>,
    pub(super) id: DialId,
    pub(super) pipe: Option<PipeId>,
}

#[derive(Debug)]
pub(super) struct Socket {
    pub(super) kind: SocketKind,
    pub(super) chosen: Chosen,
    /// Whether messages in an envelope carry their host.
    pub(super) hosts: bool,
    sending: Sending,
    pub(super) turns: Turns,
    pub(super) events: VecDeque<SocketEvent>,
    pub(super) bound: Vec<(Arc<str>, ListenerId)>,
    pub(super) dialled: Vec<Dialled>,
    /// The sender of the last message.
    pub(super) last: Option<LinkId>,
    pub(super) is_reading: bool,
    /// When its user last had no room for messages.
    pub(super) paused: Option<Nanos>,
    /// Whether all peers together had no room for its last message.
    is_barred: bool,
    /// Until when it may go on sending, once it is closed.
    pub(super) closing: Option<Instant>,
    turned_away: Repeats,
}

/// The route of a message.
#[derive(Debug)]
pub(super) enum Way {
    /// It goes to this connection now, as these frames if they differ from those given.
    Now(ConnectionId, Option<Frames>),
    /// Nothing more is to be done.
    Done(Taken),
    /// There may be room after a flush: for this peer, or for any.
    Full(Option<ConnectionId>),
    /// All peers together have no room.
    Barred,
}

impl Socket {
    pub(super) fn new(kind: SocketKind, chosen: Chosen, hosts: bool) -> Self {
        let Chosen { high_water, mandatory, handover, immediate, .. } = chosen;
        let sending = match kind {
            SocketKind::Dealer | SocketKind::Push => Sending::InTurn(Distributor::new(high_water, immediate)),
            SocketKind::Req => Sending::InStep(Req::new(high_water, immediate)),
            SocketKind::Router => Sending::Routed(Router::new(high_water, mandatory, handover, first_id())),
            SocketKind::Pull | SocketKind::Nats | SocketKind::Udp => Sending::None,
        };
        Self {
            kind,
            chosen,
            hosts,
            sending,
            turns: Turns::new(),
            events: VecDeque::new(),
            bound: vec![],
            dialled: vec![],
            last: None,
            is_reading: true,
            paused: None,
            is_barred: false,
            closing: None,
            turned_away: Repeats::default(),
        }
    }

    /// Whether its user receives.
    pub(super) fn receives(&self) -> bool {
        self.kind != SocketKind::Push
    }

    /// The pipe of an endpoint that is dialled from now on.
    pub(super) fn dial(&mut self) -> Option<PipeId> {
        match &mut self.sending {
            Sending::InTurn(peers) => Some(peers.dial()),
            Sending::InStep(req) => Some(req.dial()),
            Sending::None | Sending::Routed(_) => None,
        }
    }

    /// An endpoint is disconnected: messages pending for it alone are lost.
    pub(super) fn hang_up(&mut self, pipe: PipeId) {
        match &mut self.sending {
            Sending::InTurn(peers) => drop(peers.hang_up(pipe)),
            Sending::InStep(req) => drop(req.hang_up(pipe)),
            Sending::None | Sending::Routed(_) => {}
        }
    }

    /// A peer is ready: admits it, or gives the reason why not.
    pub(super) fn admit(
        &mut self,
        peer: ConnectionId,
        pipe: Option<PipeId>,
        ready: &Ready,
        host: Option<IpAddr>,
    ) -> Result<Option<Admitted>, Reason> {
        match &mut self.sending {
            Sending::InTurn(peers) => peers.connected(peer, pipe),
            Sending::InStep(req) => req.connected(peer, pipe),
            Sending::Routed(router) => {
                // Where every key is admitted, the key identifies the client.
                let key = || ready.key.map(|key| Bytes::copy_from_slice(&key));
                let holder = Holder { user: ready.user.clone().or_else(key), host };
                return router.connected(peer, ready.identity.clone(), holder).map(Some);
            }
            Sending::None => {}
        }
        Ok(None)
    }

    /// A peer is gone: gives what was pending for it alone.
    pub(super) fn disconnected(&mut self, peer: ConnectionId) -> Vec<Frames> {
        self.turns.leave(peer);
        match &mut self.sending {
            Sending::InTurn(peers) => return peers.disconnected(peer),
            Sending::InStep(req) => drop(req.disconnected(peer)),
            Sending::Routed(router) => drop(router.disconnected(peer)),
            Sending::None => {}
        }
        vec![]
    }

    /// Reports what is pending for a peer.
    pub(super) fn handle_backlog(&mut self, peer: ConnectionId, backlog: Backlog) {
        match &mut self.sending {
            Sending::InTurn(peers) => peers.handle_backlog(peer, backlog),
            Sending::InStep(req) => req.handle_backlog(peer, backlog),
            Sending::Routed(router) => router.handle_backlog(peer, backlog),
            Sending::None => {}
        }
    }

    /// The next pending message that can be sent now.
    pub(super) fn poll_send(&mut self) -> Option<(ConnectionId, Frames)> {
        match &mut self.sending {
            Sending::InTurn(peers) => peers.poll_send(),
            Sending::InStep(req) => req.poll_send(),
            Sending::None | Sending::Routed(_) => None,
        }
    }

    /// What is pending for no connection yet.
    pub(super) fn pending(&self) -> Backlog {
        match &self.sending {
            Sending::InTurn(peers) => peers.pending(),
            Sending::InStep(req) => req.pending(),
            Sending::None | Sending::Routed(_) => Backlog::default(),
        }
    }

    /// Whether a message to any peer would be taken.
    pub(super) fn is_writable(&self) -> bool {
        match &self.sending {
            Sending::InTurn(peers) => peers.is_writable() && !self.is_barred,
            Sending::InStep(req) => req.is_writable(),
            Sending::None | Sending::Routed(_) => false,
        }
    }

    /// All peers together had no room for a message: [`handle_room`](Self::handle_room) follows.
    pub(super) fn handle_barred(&mut self) {
        self.is_barred = true;
    }

    /// Whether a peer with nothing pending waits for room: this one, or any.
    pub(super) fn starves(&self, to: Option<&Bytes>) -> bool {
        match &self.sending {
            Sending::Routed(router) => to.is_some_and(|to| router.backlog(to).bytes == 0),
            Sending::InTurn(peers) => peers.has_idle(),
            Sending::None | Sending::InStep(_) => false,
        }
    }

    /// There may be room for a message that was refused, to this peer or to any.
    pub(super) fn handle_room(&mut self, to: Option<Bytes>) {
        self.is_barred = false;
        if let (Sending::Routed(router), Some(to)) = (&mut self.sending, to) {
            router.handle_room(to);
        }
    }

    /// A message to this peer was refused for want of room.
    pub(super) fn handle_refused(&mut self, to: Option<&Bytes>) {
        if let (Sending::Routed(router), Some(to)) = (&mut self.sending, to) {
            router.handle_refused(to);
        }
    }

    /// The next peer that refused a message, and has room again or is gone.
    pub(super) fn poll_drained(&mut self) -> Option<Bytes> {
        if let Sending::Routed(router) = &mut self.sending { router.poll_drained() } else { None }
    }

    /// Whether there is such a peer.
    pub(super) fn has_drained(&self) -> bool {
        matches!(&self.sending, Sending::Routed(router) if router.has_drained())
    }

    /// Finds the route of a message; with a `share`, to a peer that has less.
    #[inline]
    pub(super) fn way(&mut self, to: Option<&Bytes>, frames: &[Bytes], share: Option<Share>) -> Way {
        match &mut self.sending {
            Sending::Routed(router) => {
                let to = to.map(|to| &to[..]).unwrap_or_default();
                if share.is_some_and(|share| !share.admits(router.backlog(to))) && router.connection(to).is_some() {
                    return Way::Barred;
                }
                match router.route(to, frames) {
                    Ok(Routed::To(peer)) => Way::Now(peer, None),
                    // The socket does not ask for a report.
                    Ok(Routed::Dropped(_)) => Way::Done(Taken::Yes),
                    Err(Unsent::Full) => Way::Full(router.connection(to)),
                    Err(Unsent::Unreachable) => Way::Done(Taken::Unreachable),
                }
            }
            Sending::InTurn(peers) => {
                match peers.place(frames, |backlog| share.is_none_or(|share| share.admits(backlog))) {
                    Placed::Now(peer) => Way::Now(peer, None),
                    Placed::Pending => Way::Done(Taken::Yes),
                    Placed::Full => Way::Full(None),
                    Placed::Barred => Way::Barred,
                }
            }
            Sending::InStep(req) => match req.place(frames) {
                (Placed::Now(peer), request) => Way::Now(peer, Some(request)),
                (Placed::Pending, _) => Way::Done(Taken::Yes),
                (Placed::Full | Placed::Barred, _) => Way::Full(None),
            },
            Sending::None => Way::Done(Taken::Unreachable),
        }
    }

    /// A message as received from a peer; `None` if it is no reply to a request.
    #[inline]
    pub(super) fn received(
        &mut self,
        peer: &super::peer::Peer,
        host: Option<IpAddr>,
        frames: Frames,
    ) -> Option<Received> {
        let frames = match &mut self.sending {
            Sending::InStep(req) => match req.receive(peer.id(), frames) {
                Answer::Reply(frames) => frames,
                Answer::Stray => return None,
            },
            Sending::None | Sending::InTurn(_) | Sending::Routed(_) => frames,
        };
        self.last = Some(peer.link);
        let last = frames.len().saturating_sub(1);
        let in_envelope = |(at, frame): (usize, &Bytes)| frame.is_empty() && (at == 0 || at < last);
        let host = host.filter(|_| self.hosts && frames.iter().enumerate().any(in_envelope));
        Some(Received {
            peer: peer.routing_id.clone(),
            user_id: peer.user.clone(),
            host: host.map(|host| host.to_string().into()),
            frames,
        })
    }

    /// Reports that a peer was refused, unless that was reported just now.
    pub(super) fn turn_away(&mut self, endpoint: &str, reason: String) {
        if self.turned_away.is_news() {
            self.events.push_back(SocketEvent::HandshakeFailed { endpoint: endpoint.to_owned(), reason });
        }
    }

    /// The endpoint bound under this number.
    pub(super) fn bound_at(&self, id: ListenerId) -> Arc<str> {
        self.bound
            .iter()
            .find(|(_, bound)| *bound == id)
            .map_or_else(|| Arc::from(""), |(endpoint, _)| Arc::clone(endpoint))
    }
}

/// The first of the routing ids that are given out: a random number in each process, so that an answer to a role that
/// is gone does not reach another peer.
fn first_id() -> u32 {
    // Zero will do if the system gives no random number.
    getrandom::u32().unwrap_or_default()
}
