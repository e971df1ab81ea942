//! Datagrams, on every network of this host.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use bytes::Bytes;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{SockaddrIn, SockaddrStorage};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use trunkline_wire::Multicast;

use crate::transport::TransportError;

/// No datagram is larger.
const LARGEST: usize = 1 << 16;

/// A socket that shares its port with others on this host; all of them receive multicasts and broadcasts.
pub(crate) struct Udp {
    socket: UdpSocket,
    multicast: Option<Multicast>,
    buffer: Box<[u8]>,
}

/// A network this host is on.
struct Network {
    address: Ipv4Addr,
    broadcast: Option<Ipv4Addr>,
    multicast: bool,
}

impl Udp {
    /// Listens at an endpoint, as `udp://0.0.0.0:7123`.
    pub(crate) fn open(endpoint: &str, multicast: Option<Multicast>) -> Result<Self, TransportError> {
        let opened = || {
            let address: SocketAddrV4 = endpoint
                .strip_prefix("udp://")
                .and_then(|address| address.parse().ok())
                .ok_or_else(|| io::Error::from(ErrorKind::InvalidInput))?;
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
            // On Linux this option is enough for several sockets to listen on one port, and all of them receive what is
            // sent to all; peers that also set SO_REUSEPORT do no harm. BSD systems need that one.
            socket.set_reuse_address(true)?;
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            socket.set_reuse_port(true)?;
            socket.set_broadcast(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            let udp = Self { socket: socket.into(), multicast, buffer: vec![0; LARGEST].into() };
            if let Some(Multicast { ttl, .. }) = multicast {
                udp.options().set_multicast_ttl_v4(ttl.into())?;
                // A host that starts has no network yet: each announcement joins those that there are then.
                udp.join(&networks()).or_else(|error| if has_network() { Err(error) } else { Ok(()) })?;
            }
            Ok(udp)
        };
        opened().map_err(|error: io::Error| TransportError::Failed {
            errno: error.raw_os_error().unwrap_or_default(),
            reason: error.to_string(),
        })
    }

    fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.socket)
    }

    /// Joins the group on every network. Networks already joined report an error, and one that cannot be joined leaves
    /// the others; only a host where all fail is an error.
    fn join(&self, networks: &[Network]) -> io::Result<()> {
        let Some(Multicast { group, .. }) = self.multicast else { return Ok(()) };
        let joined = networks.iter().filter(|network| network.multicast).map(|network| {
            match self.options().join_multicast_v4(&group, &network.address) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(()),
                joined => joined,
            }
        });
        joined.reduce(Result::or).unwrap_or(Ok(()))
    }

    /// The next datagram, and where it came from.
    pub(crate) fn receive(&mut self) -> Option<(Bytes, Bytes)> {
        // An error belongs to an earlier send, not to what came in.
        let (length, from) = self.socket.recv_from(&mut self.buffer).ok()?;
        Some((Bytes::copy_from_slice(&self.buffer[..length]), from.to_string().into()))
    }

    /// Sends a datagram, as [`SocketKind::Udp`](trunkline_wire::SocketKind::Udp) says. False if no network took it.
    pub(crate) fn send(&self, to: &[u8], datagram: &[u8]) -> bool {
        let to = str::from_utf8(to).unwrap_or_default();
        let (to, only) = to.split_once('@').unwrap_or((to, ""));
        let (Ok(to), only) = (to.parse::<SocketAddrV4>(), only.parse::<Ipv4Addr>().ok()) else { return false };
        let send = |address| self.socket.send_to(datagram, SocketAddrV4::new(address, to.port())).is_ok();
        if !to.ip().is_multicast() && !to.ip().is_broadcast() {
            return send(*to.ip());
        }
        // Networks come and go; announcements on a new one must be received as well.
        let mut networks = networks();
        let _ = self.join(&networks);
        if networks.iter().any(|network| Some(network.address) == only) {
            networks.retain(|network| Some(network.address) == only);
        }
        let reached = networks.iter().filter(|network| {
            if to.ip().is_broadcast() {
                return network.broadcast.is_some_and(send);
            }
            // Processes of this host receive it on one network: the loopback network, unless that is left out.
            let is_heard_here = network.address.is_loopback() || only == Some(network.address);
            network.multicast
                && self.options().set_multicast_if_v4(&network.address).is_ok()
                && self.options().set_multicast_loop_v4(is_heard_here).is_ok()
                && send(*to.ip())
        });
        reached.count() > 0
    }
}

impl AsFd for Udp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Whether a network of this host is up, be it the loopback network alone.
pub fn has_network() -> bool {
    getifaddrs().into_iter().flatten().any(|interface| {
        interface.flags.contains(InterfaceFlags::IFF_UP)
            && interface.address.is_some_and(|address| address.as_sockaddr_in().is_some())
    })
}

/// The networks of this host that are up, the loopback network first: a receiver on several of them keeps to the first.
fn networks() -> Vec<Network> {
    let mut networks = vec![Network {
        address: Ipv4Addr::LOCALHOST,
        broadcast: Some(Ipv4Addr::new(127, 255, 255, 255)),
        multicast: true,
    }];
    for interface in getifaddrs().into_iter().flatten() {
        let flags = interface.flags;
        let in_v4 = |address: &Option<SockaddrStorage>| address.as_ref()?.as_sockaddr_in().map(SockaddrIn::ip);
        let Some(address) = in_v4(&interface.address) else { continue };
        if !flags.contains(InterfaceFlags::IFF_UP) || flags.contains(InterfaceFlags::IFF_LOOPBACK) {
            continue;
        }
        networks.push(Network {
            address,
            broadcast: in_v4(&interface.broadcast).filter(|_| flags.contains(InterfaceFlags::IFF_BROADCAST)),
            multicast: flags.contains(InterfaceFlags::IFF_MULTICAST),
        });
    }
    networks
}
