//! Security mechanisms, up to the end of their handshakes: RFC 37, "Authentication and Confidentiality".

use std::sync::Arc;

use trunkline_wire::zap::Key;

use crate::codec::command;
use crate::codec::metadata::Metadata;
use crate::codec::outbox::Outbox;
use crate::curve::{Cipher, Client, Server};
use crate::reason::{Fault, Reason};
use crate::{Security, Side};

/// libzmq's status for a key that is not allowed: RFC 27, "Status codes".
const DENIED: &str = "400";

/// One side of a handshake.
#[derive(Debug)]
pub(crate) enum Mechanism {
    /// RFC 37, "The NULL Security Mechanism": the dialling side sends first.
    Null {
        is_first: bool,
    },
    Client(Client),
    Server(Server),
}

/// The properties of a peer, and the key that it has proven to have.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) metadata: Metadata,
    pub(crate) key: Option<Key>,
}

impl Mechanism {
    pub(crate) fn new(security: &Security, side: Side) -> Self {
        match security {
            Security::Null => Self::Null { is_first: side == Side::Dialled },
            Security::CurveClient(keys) => Self::Client(Client::new(Arc::clone(keys))),
            Security::CurveServer(keys) => Self::Server(Server::new(Arc::clone(keys))),
        }
    }

    /// Sends the first command: `ours` are our properties.
    pub(crate) fn begin(&mut self, ours: &[u8], outbox: &mut Outbox) -> Result<(), Fault> {
        match self {
            Self::Null { is_first } => {
                if *is_first {
                    outbox.put_command(&command::write("READY", ours));
                }
            }
            Self::Client(client) => client.begin(outbox)?,
            Self::Server(_) => {}
        }
        Ok(())
    }

    /// Takes a command; gives the properties of the peer, once it has sent them.
    pub(crate) fn handle(&mut self, body: &[u8], ours: &[u8], outbox: &mut Outbox) -> Result<Option<Shown>, Fault> {
        let shown = |metadata| Shown { metadata, key: None };
        match self {
            Self::Null { .. } => match command::split(body)? {
                (b"READY", data) => Metadata::read(data).map(|metadata| Some(shown(metadata))),
                (b"ERROR", data) => Err(command::error(data)),
                (name, _) => Err(Fault::with(Reason::UnexpectedCommand, name)),
            },
            Self::Client(client) => Ok(client.handle(body, ours, outbox)?.map(shown)),
            Self::Server(server) => {
                let shown = server.handle(body, outbox)?;
                Ok(shown.map(|(key, metadata)| Shown { metadata, key: Some(key) }))
            }
        }
    }

    /// Sends the peer that it is accepted.
    pub(crate) fn accept(&mut self, ours: &[u8], outbox: &mut Outbox) {
        match self {
            Self::Null { is_first } => {
                if !*is_first {
                    outbox.put_command(&command::write("READY", ours));
                }
            }
            Self::Client(_) => {}
            Self::Server(server) => server.accept(ours, outbox),
        }
    }

    /// Sends the reason of a refusal, if the peer can read it.
    pub(crate) fn refuse(&mut self, reason: Reason, outbox: &mut Outbox) {
        let may_tell = match self {
            Self::Null { is_first } => !*is_first,
            Self::Client(_) => false,
            Self::Server(_) => true,
        };
        if may_tell {
            let words = if reason == Reason::Denied { DENIED } else { reason.slug() };
            outbox.put_command(&command::write_error(words));
        }
    }

    /// The cipher of the traffic, if it is encrypted.
    pub(crate) fn cipher(self) -> Option<Cipher> {
        match self {
            Self::Null { .. } => None,
            Self::Client(client) => client.cipher(),
            Self::Server(server) => server.cipher(),
        }
    }
}
