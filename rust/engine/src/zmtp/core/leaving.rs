//! How sockets close, and peers are disconnected.

use std::time::{Duration, Instant};

use smallvec::SmallVec;
use trunkline_wire::SocketEvent;

use super::{ZmtpTransport, find, remote};
use crate::reactor::{Link, LinkId};
use crate::zmtp::peer::Stage;
use crate::zmtp::socket::Dialled;

impl ZmtpTransport {
    /// Ends the closed sockets that have nothing left to send, or no time.
    pub(super) fn settle_closing(&mut self) {
        let closing: SmallVec<[_; 4]> =
            self.sockets.iter().filter_map(|(at, socket)| Some((at, socket.closing?))).collect();
        for (at, until) in closing {
            let Some(socket) = self.sockets.get_mut(at) else { continue };
            let now = Instant::now();
            let is_unsent = socket.pending().messages > 0;
            if is_unsent && now < until {
                continue;
            }
            let dialled = std::mem::take(&mut socket.dialled);
            if is_unsent {
                self.give_up();
            }
            for Dialled { id, .. } in dialled {
                self.dials.remove(&id);
                self.reactor.hang_up(id);
            }
            self.sockets.remove(at);
            let links: Vec<_> =
                self.peers.iter().flatten().filter(|peer| peer.socket == at).map(|peer| peer.link).collect();
            for link in links {
                self.part(link, until.saturating_duration_since(now));
            }
        }
    }

    /// Disconnects a peer: its pending data is written for at most `linger`.
    pub(super) fn part(&mut self, link: LinkId, linger: Duration) {
        let Some(peer) = find(&mut self.peers, link) else { return self.reactor.close(link, false) };
        if matches!(peer.stage, Stage::Leaving(_)) {
            return;
        }
        let (id, stage, at) = (peer.id(), peer.stage, peer.socket);
        if let Some(socket) = self.sockets.get_mut(at) {
            let pending = socket.disconnected(id);
            if stage == Stage::Ready {
                socket.events.push_back(SocketEvent::Disconnected(remote(&self.reactor, peer)));
            }
            for frames in pending {
                // A peer that is not ready has nothing pending.
                let _ = peer.connection.send(&frames);
            }
        }
        if stage != Stage::Ready || linger.is_zero() {
            return self.forget(link);
        }
        // The number of the socket may be reused now.
        let until = self.reactor.now() + linger;
        (peer.stage, peer.socket) = (Stage::Leaving(until), usize::MAX);
        self.leaving += 1;
        self.reactor.set_timer(link, Some(until));
        self.flush_peer(link);
        if self.reactor.link(link).is_some_and(Link::is_readable) {
            self.pump(link);
        }
    }

    /// Notes that pending data of a peer is discarded. What a role loses before its last socket is closed does not
    /// count: only the end of a role reports it.
    pub(super) fn give_up(&mut self) {
        self.is_unsent |= self.sockets.iter().all(|(_, socket)| socket.closing.is_some());
    }

    /// Closes the link of a peer that has left.
    pub(super) fn forget(&mut self, link: LinkId) {
        self.remove(link);
        self.reactor.close(link, false);
    }

    /// Whether there is anything left to do once all sockets are closed.
    pub(super) fn lingers(&self) -> bool {
        self.leaving > 0 || !self.sockets.is_empty()
    }
}
