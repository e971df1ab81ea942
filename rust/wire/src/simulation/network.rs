//! Connections between the sockets of a simulation, and their messages.

use bytes::Bytes;

use super::{End, Happens, Life, Link, Network, Node, Outgoing, Simulation, Socket, host_of, is_alone};
use crate::cdt::subject::matches;
use crate::{Frames, Nanos, SocketEvent, SocketKind};

impl Simulation {
    /// Connects dialling sockets to listening ones. Returns whether there were any.
    pub(super) fn connect(&mut self) -> bool {
        let mut wanted = vec![];
        for (number, member) in self.members.iter().enumerate().filter(|(_, member)| member.life == Life::Up) {
            for (at, socket) in &member.sockets {
                let has = |endpoint: &String| socket.links.iter().any(|link| self.links[link].endpoint == *endpoint);
                let missing = socket.dialled.iter().filter(|endpoint| !has(endpoint));
                wanted.extend(missing.filter_map(|endpoint| {
                    let (listener, listening) = self.listener(endpoint)?;
                    Some(((Node(number), *at), (listener, listening), endpoint.clone()))
                }));
            }
        }
        let is_any = !wanted.is_empty();
        for (dialler, listener, endpoint) in wanted {
            self.link(dialler, listener, &endpoint);
        }
        is_any
    }

    pub(super) fn link(&mut self, dialler: (Node, usize), listener: (Node, usize), endpoint: &str) {
        self.births += 1;
        let link = self.births;
        let name = |(node, socket): (Node, usize)| {
            let member = &self.members[node.0];
            let own = member.sockets.get(&socket).and_then(|socket| socket.routing_id.clone());
            own.unwrap_or_else(|| Bytes::from(format!("{}-{link}", member.name)))
        };
        let (called, calling) = (name(listener), name(dialler));
        let ends = [
            End { node: dialler.0, socket: dialler.1, peer: called },
            End { node: listener.0, socket: listener.1, peer: calling },
        ];
        for End { node, socket, peer } in &ends {
            self.routes.insert((*node, *socket, peer.clone()), link);
            if let Some(socket) = self.members[node.0].sockets.get_mut(socket) {
                socket.links.push_back(link);
            }
        }
        self.links.insert(link, Link { ends, endpoint: endpoint.to_owned(), last: [self.now; 2] });
        for (node, socket) in [listener, dialler] {
            let event = SocketEvent::Connected(endpoint.into());
            self.members[node.0].machine.handle_socket(self.now, socket, event);
            self.empty(node, socket);
        }
    }

    pub(super) fn listener(&self, endpoint: &str) -> Option<(Node, usize)> {
        let up = self.members.iter().enumerate().filter(|(_, member)| member.life == Life::Up);
        let mut sockets = up.flat_map(|(node, member)| member.sockets.iter().map(move |socket| (Node(node), socket)));
        sockets
            .find(|(_, (_, socket))| is_alone(socket.kind) && socket.bound.iter().any(|bound| bound == endpoint))
            .map(|(node, (at, _))| (node, *at))
    }

    pub(super) fn links_of(&self, node: Node, socket: Option<usize>, endpoint: Option<&str>) -> Vec<u64> {
        let is_its = |end: &End| end.node == node && socket.is_none_or(|socket| end.socket == socket);
        self.links
            .iter()
            .filter(|(_, link)| link.ends.iter().any(is_its))
            .filter(|(_, link)| endpoint.is_none_or(|endpoint| link.endpoint == endpoint))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Sends messages that waited for a connection, to each in turn.
    pub(super) fn empty(&mut self, node: Node, socket: usize) {
        while let Some(open) = self.members[node.0].sockets.get_mut(&socket) {
            let Some(&link) = open.links.front() else { return };
            let Some(Outgoing { id, mut frames, .. }) = open.outgoing.pop_front() else { return };
            open.links.rotate_left(1);
            if open.kind == SocketKind::Req {
                frames.insert(0, Bytes::new());
            }
            self.post(link, node, &frames);
            if let Some(id) = id {
                self.members[node.0].machine.handle_socket(self.now, socket, SocketEvent::Sent(id));
            }
        }
    }

    /// Ends a connection, and reports it to its ends that are up, except for the one that ended it.
    pub(super) fn unlink(&mut self, link: u64, willing: Option<Node>) {
        let Some(Link { ends, endpoint, .. }) = self.links.remove(&link) else { return };
        for End { node, socket, peer } in ends.into_iter().rev() {
            self.routes.remove(&(node, socket, peer));
            let member = &mut self.members[node.0];
            if let Some(socket) = member.sockets.get_mut(&socket) {
                socket.links.retain(|one| *one != link);
            }
            if member.life == Life::Up && willing != Some(node) {
                member.machine.handle_socket(self.now, socket, SocketEvent::Disconnected(endpoint.clone().into()));
            }
        }
    }

    /// Ends all connections of a member.
    pub(super) fn leave(&mut self, node: Node) {
        for link in self.links_of(node, None, None) {
            self.unlink(link, None);
        }
        self.members[node.0].sockets.clear();
    }

    pub(super) fn post(&mut self, link: u64, from: Node, frames: &Frames) {
        let Some(end) = self.links.get(&link).map(|link| usize::from(link.ends[0].node == from)) else { return };
        let copies = self.copies();
        for _ in 0..copies {
            let mut at = self.arrival();
            let Some(Link { last, .. }) = self.links.get_mut(&link) else { return };
            if !self.network.reorder {
                at = at.max(last[end]);
            }
            last[end] = at.max(last[end]);
            self.plan(at, Happens::Arrives { link, end, frames: frames.clone() });
        }
    }

    /// Sends a datagram: to one host, or to all others by multicast or broadcast.
    pub(super) fn cast(&mut self, node: Node, socket: usize, to: &[u8], frames: &Frames) {
        let (to, port) =
            std::str::from_utf8(to).ok().and_then(|to| to.split('@').next()?.rsplit_once(':')).unwrap_or_default();
        let is_for_all = to == "255.255.255.255" || to.starts_with("239.");
        let hears = |other: Node, socket: &Socket| {
            let is_meant = if is_for_all { other != node } else { host_of(other) == to };
            is_meant
                && socket.kind == SocketKind::Udp
                && socket.bound.iter().any(|bound| bound.ends_with(&format!(":{port}")))
        };
        let ears: Vec<_> = (0..self.members.len())
            .map(Node)
            .flat_map(|other| self.members[other.0].sockets.iter().map(move |(at, socket)| (other, *at, socket)))
            .filter(|(other, _, socket)| hears(*other, socket))
            .map(|(other, at, _)| (other, at))
            .collect();
        let own_port = self.members[node.0].sockets.get(&socket).and_then(|socket| {
            socket.bound.first().and_then(|bound| bound.rsplit_once(':')).map(|(_, port)| port.to_owned())
        });
        let from = Bytes::from(format!("{}:{}", host_of(node), own_port.unwrap_or_default()));
        for (to, socket) in ears {
            for _ in 0..self.copies() {
                let (at, from, frames) = (self.arrival(), from.clone(), frames.clone());
                self.plan(at, Happens::Datagram { to, socket, from, frames });
            }
        }
    }

    /// Publishes on a subject: to all its subscribers, and to one of each queue group. With a reply subject, the sender
    /// is notified if there are none, as in NATS.
    pub(super) fn publish(&mut self, subject: &Bytes, frames: &Frames) {
        let name = String::from_utf8_lossy(subject).into_owned();
        let mut ears = vec![];
        let mut groups: Vec<(String, Vec<(Node, usize)>)> = vec![];
        for (number, member) in self.members.iter().enumerate().filter(|(_, member)| member.life == Life::Up) {
            let open = member.sockets.iter().filter(|(_, socket)| socket.kind == SocketKind::Nats);
            for (at, bound) in open.flat_map(|(at, socket)| socket.bound.iter().map(move |bound| (*at, bound))) {
                let (pattern, group) = bound.split_once(' ').unwrap_or((bound, ""));
                if !matches(pattern, &name) {
                    continue;
                }
                match groups.iter_mut().find(|(known, _)| known == group) {
                    _ if group.is_empty() => ears.push((Node(number), at)),
                    Some((_, ears)) => ears.push((Node(number), at)),
                    None => groups.push((group.to_owned(), vec![(Node(number), at)])),
                }
            }
        }
        for (_, members) in groups {
            let chosen = self.random() % members.len() as u64;
            ears.extend(members.get(usize::try_from(chosen).unwrap_or_default()));
        }
        if ears.is_empty() && frames.first().is_some_and(|reply_to| !reply_to.is_empty()) {
            let no_responders = [Bytes::new(), Bytes::from_static(b"NATS/1.0 503\r\n\r\n"), Bytes::new()];
            return self.publish(&frames[0], &no_responders.into_iter().collect());
        }
        for (to, socket) in ears {
            for _ in 0..self.copies() {
                let (at, from, frames) = (self.arrival(), subject.clone(), frames.clone());
                self.plan(at, Happens::Datagram { to, socket, from, frames });
            }
        }
    }

    /// How many copies of a message arrive.
    pub(super) fn copies(&mut self) -> usize {
        let Network { loss, duplication, .. } = self.network;
        match (self.fraction() < loss, self.fraction() < duplication) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        }
    }

    pub(super) fn arrival(&mut self) -> Nanos {
        let Network { latency, jitter, .. } = self.network;
        self.now + latency + jitter.mul_f64(self.fraction())
    }
}
