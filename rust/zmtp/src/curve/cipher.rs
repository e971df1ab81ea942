//! Messages after the handshake: RFC 26, "The MESSAGE Command".

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::keys::{Crypto, Secret};
use super::{Prefix, TAG, put_box_of_kind};
use crate::codec::outbox::{Outbox, Plain};
use crate::reason::{Fault, Reason};

const NAME: &[u8; 8] = b"\x07MESSAGE";
const FROM_SERVER: &Prefix = b"CurveZMQMESSAGES";
const FROM_CLIENT: &Prefix = b"CurveZMQMESSAGEC";

/// What stands before a box, and the overhead of a MESSAGE over its frame: name, nonce, tag and flags.
const HEAD: usize = NAME.len() + 8;
pub(crate) const OVERHEAD: usize = HEAD + TAG + 1;

const MORE: u8 = 1;

/// libzmq's: a command in place of a frame.
const COMMAND: u8 = 2;

/// A decrypted frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) is_command: bool,
    pub(crate) more: bool,
    pub(crate) body: Bytes,
}

/// The keys of a connection, dropped with it, and the counters of both sides.
#[derive(Debug)]
pub(crate) struct Cipher {
    crypto: Arc<dyn Crypto>,
    sealing: Secret,
    opening: Secret,
    sent: u64,
    received: u64,
}

impl Cipher {
    /// `sent` and `received` are the last nonces of the handshake.
    pub(crate) fn new(crypto: Arc<dyn Crypto>, shared: &Secret, is_server: bool, sent: u64, received: u64) -> Self {
        let (ours, theirs) = if is_server { (FROM_SERVER, FROM_CLIENT) } else { (FROM_CLIENT, FROM_SERVER) };
        let (sealing, opening) = (crypto.derive(shared, ours), crypto.derive(shared, theirs));
        Self { crypto, sealing, opening, sent, received }
    }

    /// Sends a frame, which is encrypted now or once it can be written.
    #[inline]
    pub(crate) fn send(&mut self, outbox: &mut Outbox, is_command: bool, more: bool, body: &Bytes) {
        if outbox.is_encrypted_at_once(body.len()) {
            self.seal(outbox, is_command, more, body);
        } else {
            outbox.put_plain(is_command, more, body, OVERHEAD + body.len());
        }
    }

    /// Encrypts what can be written soon.
    pub(crate) fn seal_due(&mut self, outbox: &mut Outbox) {
        while let Some(Plain { is_command, more, body, .. }) = outbox.pop_plain() {
            self.seal(outbox, is_command, more, &body);
        }
    }

    /// Encrypts a frame in place.
    fn seal(&mut self, outbox: &mut Outbox, is_command: bool, more: bool, body: &[u8]) {
        self.sent += 1;
        let flags = if is_command { COMMAND } else { u8::from(more) };
        // RFC 37 calls it a command; libzmq sends it as a message, and takes both.
        outbox.put_with(false, false, OVERHEAD + body.len(), |out| {
            out.put_slice(NAME);
            out.put_u64(self.sent);
            put_box_of_kind(out, &*self.crypto, &self.sealing, self.sent.to_be_bytes(), |out| {
                out.put_u8(flags);
                out.put_slice(body);
            });
        });
    }

    /// Decrypts a frame: in place, if its buffer is not shared.
    pub(crate) fn open(&mut self, message: Bytes) -> Result<Opened, Fault> {
        if message.len() < OVERHEAD || &message[..NAME.len()] != NAME {
            return Err(Reason::BadMessage.into());
        }
        let (head, sealed) = message.split_at(HEAD);
        let count = u64::from_be_bytes(head[NAME.len()..].try_into().expect("eight bytes"));
        if count <= self.received {
            return Err(Reason::BadNonce.into());
        }
        let tag = sealed[..TAG].try_into().expect("as many bytes");
        let mut text = match message.try_into_mut() {
            Ok(mut text) => {
                text.advance(HEAD + TAG);
                text
            }
            // A copy: what is kept of it keeps no other memory.
            Err(message) => BytesMut::from(&message[HEAD + TAG..]),
        };
        if !self.crypto.open(&self.opening, count.to_be_bytes(), &mut text, &tag) {
            return Err(Reason::BadMessage.into());
        }
        self.received = count;
        let flags = text.get_u8();
        if flags > COMMAND {
            return Err(Reason::BadFlags.into());
        }
        let body = if text.is_empty() { Bytes::new() } else { text.freeze() };
        Ok(Opened { is_command: flags == COMMAND, more: flags == MORE, body })
    }
}
