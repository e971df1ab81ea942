//! Security mechanisms, up to the end of their handshakes: RFC 37, "Authentication and Confidentiality".

use crate::codec::command;
use crate::codec::metadata::Metadata;
use crate::codec::outbox::Outbox;
use crate::reason::{Fault, Reason};
use crate::{Security, Side};

/// One side of a handshake.
#[derive(Debug)]
pub(crate) enum Mechanism {
    /// RFC 37, "The NULL Security Mechanism": who dials shows itself first.
    Null { is_first: bool },
}

impl Mechanism {
    pub(crate) fn new(security: &Security, side: Side) -> Self {
        match security {
            Security::Null => Self::Null { is_first: side == Side::Dialled },
        }
    }

    /// Says what is to be said first: `ours` is what we tell of ourselves.
    pub(crate) fn begin(&mut self, ours: &[u8], outbox: &mut Outbox) {
        match self {
            Self::Null { is_first } => {
                if *is_first {
                    outbox.put_command(&command::write("READY", ours));
                }
            }
        }
    }

    /// Takes a command; gives what the peer tells of itself, once it has.
    pub(crate) fn handle(&mut self, body: &[u8]) -> Result<Option<Metadata>, Fault> {
        match self {
            Self::Null { .. } => match command::split(body)? {
                (b"READY", data) => Metadata::read(data).map(Some),
                (b"ERROR", data) => Err(command::error(data)),
                (name, _) => Err(Fault::with(Reason::UnexpectedCommand, name)),
            },
        }
    }

    /// Says that the peer is taken.
    pub(crate) fn accept(&mut self, ours: &[u8], outbox: &mut Outbox) {
        match self {
            Self::Null { is_first } => {
                if !*is_first {
                    outbox.put_command(&command::write("READY", ours));
                }
            }
        }
    }

    /// Says why it is not, where there is somebody to tell.
    pub(crate) fn refuse(&mut self, reason: Reason, outbox: &mut Outbox) {
        match self {
            Self::Null { is_first } => {
                if !*is_first {
                    outbox.put_command(&command::write_error(reason.slug()));
                }
            }
        }
    }
}
