//! The open links.

use std::io::IoSlice;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;
use nix::errno::Errno;
use slab::Slab;
use socket2::Socket;
use trunkline_wire::Nanos;

use super::stream::{self, Read};
use super::{DialId, ListenerId};

/// The bits of a link's number that give its index among the open links.
const INDEX: u32 = 24;

/// One link among all that were ever opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId(u64);

impl LinkId {
    /// A number that no other link ever has.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// The link with such a number.
    pub(crate) const fn of(number: u64) -> Self {
        Self(number)
    }

    /// A small number that is reused after this link.
    #[allow(clippy::cast_possible_truncation)] // it has 24 bits
    pub(crate) const fn index(self) -> usize {
        (self.0 & ((1 << INDEX) - 1)) as usize
    }
}

/// Which side began a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A peer.
    Accepted(ListenerId),
    /// This side.
    Dialled(DialId),
}

/// One connected stream, or one that is being connected.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // they are independent
pub(crate) struct Link {
    id: LinkId,
    socket: Socket,
    pub(crate) origin: Origin,
    /// The peer's host: none over the file system.
    pub(crate) host: Option<IpAddr>,
    /// The same, as an endpoint.
    pub(crate) address: Option<Arc<str>>,
    pub(super) is_connecting: bool,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// The end was announced: the link stays readable until a read meets it.
    pub(super) is_ended: bool,
    pub(super) timer: Option<Nanos>,
}

impl Link {
    pub(super) fn id(&self) -> LinkId {
        self.id
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Whether the link that was dialled is connected, or why not.
    pub(super) fn connected(&self) -> std::io::Result<()> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        let peer = self.socket.peer_addr()?.as_socket();
        // The system may dial from the port that is dialled: TCP then connects the socket to itself.
        if peer.is_some() && peer == self.socket.local_addr()?.as_socket() {
            // Else the port is in use for a minute after, and the server cannot listen there.
            self.socket.set_reuse_address(true)?;
            return Err(Errno::ECONNREFUSED.into());
        }
        Ok(())
    }

    /// Whether this side began it.
    pub(crate) fn is_dialled(&self) -> bool {
        matches!(self.origin, Origin::Dialled(_))
    }

    /// Whether a read may give something.
    pub(crate) fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// Whether its end was announced: the peer sends no more than what is still to be read.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether a write may do something.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    #[inline]
    pub(super) fn read(&mut self, into: &mut impl BufMut) -> Read<()> {
        let (read, may_have_more) = stream::read(&self.socket, into);
        // After a read that did not fill its room, more data is announced; but an end that was announced is not
        // announced again.
        self.is_readable = may_have_more || (self.is_ended && read != Read::End);
        read
    }

    #[inline]
    pub(super) fn write(&mut self, slices: &[IoSlice<'_>]) -> Option<usize> {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = stream::write(&self.socket, slices);
        self.is_writable = written == Some(wanted);
        written
    }

    /// Ends writing on this side.
    pub(super) fn end_writing(&self) {
        // A peer that is gone needs no notice.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// The bytes that the peer's system has not taken yet.
    pub(crate) fn unacknowledged(&self) -> usize {
        let mut count: libc::c_int = 0;
        // SAFETY: it writes a number to where the pointer points.
        let done = unsafe { libc::ioctl(self.descriptor(), libc::TIOCOUTQ, &raw mut count) };
        // A Unix socket counts unread bytes, but never loses them.
        if done == 0 && self.host.is_some() { usize::try_from(count).unwrap_or_default() } else { 0 }
    }

    /// Whether the peer's system has not answered for so long, although something is on its way to it. One whose role
    /// does not read answers nevertheless.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) fn is_silent(&self, timeout: Duration) -> bool {
        // SAFETY: all zeros are such a structure; the system writes no more than its size.
        let (done, info) = unsafe {
            let mut info: libc::tcp_info = std::mem::zeroed();
            let mut size = libc::socklen_t::try_from(size_of_val(&info)).expect("it is small");
            let (level, name, at) = (libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast());
            (libc::getsockopt(self.descriptor(), level, name, at, &raw mut size), info)
        };
        // The answer to a single probe may just be under way.
        let is_asked = (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0) || info.tcpi_probes > 1;
        done == 0 && is_asked && Duration::from_millis(info.tcpi_last_ack_recv.into()) >= timeout
    }

    /// Elsewhere the system does not say.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(crate) fn is_silent(&self, _timeout: Duration) -> bool {
        false
    }

    /// Shuts the stream down, so that it ends even if a forked child has its descriptor.
    pub(super) fn end(&self) {
        // A peer that is gone needs no notice.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// The open links.
#[derive(Debug, Default)]
pub(super) struct Links {
    slab: Slab<Link>,
    count: u64,
}

impl Links {
    pub(super) fn insert(
        &mut self,
        socket: Socket,
        origin: Origin,
        host: Option<IpAddr>,
        address: Option<Arc<str>>,
    ) -> LinkId {
        let entry = self.slab.vacant_entry();
        self.count += 1;
        let id = LinkId(self.count << INDEX | entry.key() as u64);
        entry.insert(Link {
            id,
            socket,
            origin,
            host,
            address,
            is_connecting: matches!(origin, Origin::Dialled(_)),
            is_readable: false,
            is_writable: true,
            is_ended: false,
            timer: None,
        });
        id
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    #[inline]
    pub(super) fn get(&self, id: LinkId) -> Option<&Link> {
        self.slab.get(id.index()).filter(|link| link.id == id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.slab.get_mut(id.index()).filter(|link| link.id == id)
    }

    /// The link that has this number now.
    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut Link> {
        self.slab.get_mut(index)
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Link> {
        self.get(id)?;
        self.slab.try_remove(id.index())
    }
}
