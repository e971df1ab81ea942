//! The link to a server, in clear text or encrypted.

use std::io::{self, IoSlice, Write};

use bytes::Bytes;
use trunkline_wire::Nanos;
use trunkline_wire::nats::{Connection, Reason};

use crate::reactor::{self, DialId, LinkId, Reactor};
use crate::tls::{Broken, Encrypted};

/// Pieces written with one call.
const PIECES: usize = 64;

/// How far a connection has come.
#[derive(Debug)]
pub(super) enum Link {
    /// The next attempt is due later.
    None,
    /// A server is dialled until this time.
    Dialling(DialId, Nanos),
    /// A server was reached.
    Open(Box<Open>),
}

/// A server that was reached.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) dial: DialId,
    pub(super) link: LinkId,
    pub(super) connection: Connection,
    /// What encrypts it, if it is encrypted.
    pub(super) tls: Option<Box<Encrypted>>,
    /// The barrier after the first subscriptions: the connection counts once the server has them.
    pub(super) subscribed: Option<u64>,
    /// Whether it has counted.
    pub(super) is_connected: bool,
}

impl Open {
    /// Takes what came on the link.
    pub(super) fn receive(&mut self, bytes: Bytes) {
        let Some(tls) = &mut self.tls else { return self.connection.receive(bytes) };
        match tls.receive(&bytes) {
            Ok(plain) => {
                if !tls.is_shaking() {
                    self.connection.handle_encrypted();
                }
                if !plain.is_empty() {
                    self.connection.receive(plain);
                }
            }
            Err(broken) => self.handle_broken(&broken),
        }
    }

    pub(super) fn handle_broken(&mut self, broken: &Broken) {
        match broken {
            Broken::Untrusted(why) => self.connection.handle_tls_failure(Reason::Untrusted, why),
            Broken::Failed(why) => self.connection.handle_tls_failure(Reason::BadTls, why),
        }
    }

    /// Writes what is pending, as far as the link takes it.
    pub(super) fn write(&mut self, reactor: &mut Reactor) {
        loop {
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = self.connection.slices(&mut pieces);
            let pieces = &pieces[..count];
            let mut out = Out { reactor, link: self.link };
            let (written, goes_on) = if let Some(tls) = &mut self.tls {
                let taken = if count > 0 { tls.put(pieces) } else { 0 };
                (taken, tls.wants_write() && tls.write(&mut out))
            } else {
                let written = if count > 0 { out.write_vectored(pieces).unwrap_or_default() } else { 0 };
                (written, written > 0)
            };
            self.connection.handle_written(written);
            if !goes_on {
                return;
            }
        }
    }
}

/// A link to write to.
struct Out<'a> {
    reactor: &'a mut Reactor,
    link: LinkId,
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let is_writable = self.reactor.link(self.link).is_some_and(reactor::Link::is_writable);
        let slices = &slices[..slices.len().min(PIECES)];
        match is_writable.then(|| self.reactor.write(self.link, slices)) {
            // If the server has closed the link, its end is read as well.
            None | Some(None | Some(0)) => Err(io::ErrorKind::WouldBlock.into()),
            Some(Some(written)) => Ok(written),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Link {
    pub(super) fn open(&mut self) -> Option<&mut Open> {
        if let Self::Open(open) = self { Some(open) } else { None }
    }

    /// The connection on which messages can be sent, if there is one.
    #[inline]
    pub(super) fn ready(&mut self) -> Option<&mut Connection> {
        self.open().map(|open| &mut open.connection).filter(|connection| connection.is_ready())
    }
}
