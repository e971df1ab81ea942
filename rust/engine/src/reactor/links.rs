//! The links there are.

use std::io::IoSlice;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use bytes::BufMut;
use slab::Slab;
use socket2::Socket;
use trunkline_wire::Nanos;

use super::stream::{self, Read};
use super::{DialId, ListenerId};

/// Which link has which number among those there are now.
const INDEX: u32 = 24;

/// One link among all there ever are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LinkId(u64);

impl LinkId {
    /// A number that is no other link's, ever.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// The link of such a number.
    pub(crate) const fn of(number: u64) -> Self {
        Self(number)
    }

    /// A number that is small, and another link's after this one.
    #[allow(clippy::cast_possible_truncation)] // it has 24 bits
    pub(crate) const fn index(self) -> usize {
        (self.0 & ((1 << INDEX) - 1)) as usize
    }
}

/// Who began a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A peer.
    Accepted(ListenerId),
    /// We.
    Dialled(DialId),
}

/// One connected stream, or one that is being connected.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // each may be so without the others
pub(crate) struct Link {
    id: LinkId,
    socket: Socket,
    pub(crate) origin: Origin,
    /// Where the peer is: none on this machine's file system.
    pub(crate) host: Option<IpAddr>,
    /// The same, as an endpoint.
    pub(crate) address: Option<Arc<str>>,
    pub(super) is_connecting: bool,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// The end was announced: it is read, whatever a read says of more.
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

    /// Whether the link that was dialled is there, or why not.
    pub(super) fn connected(&self) -> std::io::Result<()> {
        self.socket.take_error()?.map_or_else(|| self.socket.peer_addr().map(drop), Err)
    }

    /// Whether we began it.
    pub(crate) fn is_dialled(&self) -> bool {
        matches!(self.origin, Origin::Dialled(_))
    }

    /// Whether a read may give something.
    pub(crate) fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// Whether a write may do something.
    pub(crate) fn is_writable(&self) -> bool {
        self.is_writable
    }

    #[inline]
    pub(super) fn read(&mut self, into: &mut impl BufMut) -> Read<()> {
        let (read, may_have_more) = stream::read(&self.socket, into);
        // After less than there was room for, what comes next is announced; but not an end that was announced already.
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

    /// Says that nothing more will be written.
    pub(super) fn end_writing(&self) {
        // A peer that is gone needs no notice.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// The bytes that the peer's system has not taken yet.
    pub(crate) fn unacknowledged(&self) -> usize {
        let mut count: libc::c_int = 0;
        // SAFETY: it writes a number to where it is to.
        let done = unsafe { libc::ioctl(self.descriptor(), libc::TIOCOUTQ, &raw mut count) };
        // A Unix socket counts what was not read, and loses nothing of it.
        if done == 0 && self.host.is_some() { usize::try_from(count).unwrap_or_default() } else { 0 }
    }

    /// Shuts the stream down, so that it ends although a forked child may have its descriptor as well.
    pub(super) fn end(&self) {
        // As above.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// The links there are.
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

    /// The one with this number now.
    pub(super) fn at_mut(&mut self, index: usize) -> Option<&mut Link> {
        self.slab.get_mut(index)
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<Link> {
        self.get(id)?;
        self.slab.try_remove(id.index())
    }
}
