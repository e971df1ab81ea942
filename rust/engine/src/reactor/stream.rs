//! One stream of the system, TCP or Unix, and its options.

use std::io::{self, ErrorKind, IoSlice};
use std::time::Duration;

use bytes::BufMut;
use socket2::{Domain, SockAddr, SockRef, Socket, TcpKeepalive, Type};

use crate::limits::Keepalive;

/// The outcome of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read<T> {
    /// Something came.
    Some(T),
    /// Nothing now.
    Nothing,
    /// The end: nothing more will come.
    End,
}

/// The options of each stream; those not given keep the system's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamOptions {
    /// Whether TCP probes an idle peer.
    pub(crate) keepalive: Option<Keepalive>,
    pub(crate) send_buffer: Option<usize>,
    pub(crate) receive_buffer: Option<usize>,
    /// The type of service, of IP.
    pub(crate) tos: Option<u32>,
    /// The most connections pending to be accepted.
    pub(crate) backlog: Option<i32>,
    /// How long a peer's system may leave unanswered what was written, where the system can say.
    pub(crate) silence: Option<Duration>,
    /// Whether a name means an IPv6 address if it has one, and `*` those as well.
    pub(crate) ipv6: bool,
}

/// A stream that does not block, not yet bound or connected.
pub(super) fn open(address: &SockAddr, options: StreamOptions) -> io::Result<Socket> {
    let socket = Socket::new(address.domain(), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    set(&socket, address.domain(), options)?;
    Ok(socket)
}

/// Sets the options of a stream, accepted or dialled.
pub(super) fn set(socket: &Socket, domain: Domain, options: StreamOptions) -> io::Result<()> {
    let StreamOptions { keepalive, send_buffer, receive_buffer, tos, .. } = options;
    if let Some(bytes) = send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if domain == Domain::UNIX {
        return Ok(());
    }
    socket.set_tcp_nodelay(true)?;
    if let Some(Keepalive { idle, probes, interval }) = keepalive {
        let keepalive = TcpKeepalive::new().with_time(idle).with_retries(probes).with_interval(interval);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if options.silence.is_some() {
        socket.set_tcp_user_timeout(options.silence)?;
    }
    match tos {
        Some(tos) if domain == Domain::IPV4 => socket.set_tos_v4(tos)?,
        Some(tos) => socket.set_tclass_v6(tos)?,
        None => {}
    }
    Ok(())
}

/// Reads once; gives whether there may be more.
#[inline]
pub(super) fn read(socket: &Socket, into: &mut impl BufMut) -> (Read<()>, bool) {
    loop {
        // SAFETY: the memory may be uninitialised; `recv` writes bytes and gives their number.
        let room = unsafe { into.chunk_mut().as_uninit_slice_mut() };
        let wanted = room.len();
        return match SockRef::from(socket).recv(room) {
            Ok(0) => (Read::End, false),
            Ok(count) => {
                // SAFETY: so many have been written.
                unsafe { into.advance_mut(count) };
                (Read::Some(()), count == wanted)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => (Read::Nothing, false),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => (Read::End, false),
        };
    }
}

/// Writes once and gives the bytes written. `None` if the peer has closed the stream.
#[inline]
pub(super) fn write(socket: &Socket, slices: &[IoSlice<'_>]) -> Option<usize> {
    loop {
        return match socket.send_vectored_with_flags(slices, NO_SIGNAL) {
            Ok(count) => Some(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => None,
        };
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;
/// On other systems a socket option does that.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const NO_SIGNAL: i32 = 0;
