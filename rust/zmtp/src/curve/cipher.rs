//! Messages after the handshake: RFC 26, "The MESSAGE Command".

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::keys::{Crypto, Pieces, Secret, Tag};
use super::{Prefix, TAG, put_box_of_kind};
use crate::codec::frame::{self, Head};
use crate::codec::outbox::{AHEAD, Outbox, Plain};
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

/// Longer frames are encrypted and decrypted in pieces, so that one stops no other peer for long, and what is pending
/// for a slow peer takes no memory twice.
const WHOLE: usize = AHEAD;
const PIECE: usize = 64 << 10;

/// The most that is encrypted or decrypted at a time.
const STEP: usize = 1 << 20;

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
    /// The long frame that is being encrypted, and the one that is being decrypted.
    sealed: Option<Box<Sealing>>,
    opened: Option<Box<Opening>>,
}

/// A long frame that is encrypted in two passes: its tag, which goes out first, covers all of it.
#[derive(Debug)]
struct Sealing {
    plain: Plain,
    count: u64,
    /// The first pass, until the tag is known.
    covering: Option<Box<dyn Pieces>>,
    pieces: Box<dyn Pieces>,
    /// How far the pass has come, in the text.
    at: usize,
}

impl Sealing {
    /// The length of the text: the flags and the frame.
    fn len(&self) -> usize {
        1 + self.plain.body.len()
    }

    /// The next piece of the text.
    fn piece(&mut self) -> BytesMut {
        let end = (self.at + PIECE).min(self.len());
        let mut piece = BytesMut::with_capacity(end - self.at);
        if self.at == 0 {
            piece.put_u8(flags(self.plain.is_command, self.plain.more));
        }
        piece.put_slice(&self.plain.body[self.at.saturating_sub(1)..end - 1]);
        self.at = end;
        piece
    }

    /// Continues, as far as can be written soon, and for a step at most; true at its end.
    fn go_on(&mut self, outbox: &mut Outbox) -> bool {
        for _ in 0..STEP / PIECE {
            if let Some(mut covering) = self.covering.take() {
                let mut piece = self.piece();
                covering.apply(&mut piece);
                covering.cover(&piece);
                if self.at < self.len() {
                    self.covering = Some(covering);
                    continue;
                }
                self.at = 0;
                let head = Head { is_command: false, more: false, len: (OVERHEAD + self.plain.body.len()) as u64 };
                let mut first = BytesMut::with_capacity(frame::HEAD + HEAD + TAG);
                head.write(&mut first);
                first.put_slice(NAME);
                first.put_u64(self.count);
                first.put_slice(&covering.tag());
                outbox.put_piece(first);
            } else if self.at == self.len() {
                return true;
            } else if outbox.has_room_ahead() {
                let mut piece = self.piece();
                self.pieces.apply(&mut piece);
                outbox.put_piece(piece);
            } else {
                return false;
            }
        }
        self.covering.is_none() && self.at == self.len()
    }
}

/// A long frame that is decrypted; nothing of it is known to be good before its end.
#[derive(Debug)]
struct Opening {
    text: BytesMut,
    tag: Tag,
    pieces: Box<dyn Pieces>,
    at: usize,
}

impl Opening {
    /// Continues for a step at most; gives at its end whether the tag is right, which takes the same time for every
    /// tag.
    fn go_on(&mut self) -> Option<bool> {
        for _ in 0..STEP / PIECE {
            let end = (self.at + PIECE).min(self.text.len());
            let piece = &mut self.text[self.at..end];
            self.pieces.cover(piece);
            self.pieces.apply(piece);
            self.at = end;
            if end == self.text.len() {
                let tag = self.pieces.tag();
                return Some(tag.iter().zip(&self.tag).fold(0, |all, (one, other)| all | (one ^ other)) == 0);
            }
        }
        None
    }
}

fn flags(is_command: bool, more: bool) -> u8 {
    if is_command { COMMAND } else { u8::from(more) }
}

impl Cipher {
    /// `sent` and `received` are the last nonces of the handshake.
    pub(crate) fn new(crypto: Arc<dyn Crypto>, shared: &Secret, is_server: bool, sent: u64, received: u64) -> Self {
        let (ours, theirs) = if is_server { (FROM_SERVER, FROM_CLIENT) } else { (FROM_CLIENT, FROM_SERVER) };
        let (sealing, opening) = (crypto.derive(shared, ours), crypto.derive(shared, theirs));
        Self { crypto, sealing, opening, sent, received, sealed: None, opened: None }
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
        loop {
            if let Some(sealed) = &mut self.sealed {
                if !sealed.go_on(outbox) {
                    return;
                }
                self.sealed = None;
            }
            let Some(plain) = outbox.pop_plain() else { return };
            if plain.body.len() > WHOLE {
                self.sent += 1;
                let pieces = || self.crypto.pieces(&self.sealing, self.sent.to_be_bytes());
                let (covering, pieces) = (Some(pieces()), pieces());
                self.sealed = Some(Box::new(Sealing { plain, count: self.sent, covering, pieces, at: 0 }));
            } else {
                outbox.handle_sealed(&plain);
                self.seal(outbox, plain.is_command, plain.more, &plain.body);
            }
        }
    }

    /// Whether a long frame can be encrypted further.
    pub(crate) fn is_sealing(&self) -> bool {
        self.sealed.is_some()
    }

    /// Encrypts a frame in place.
    fn seal(&mut self, outbox: &mut Outbox, is_command: bool, more: bool, body: &[u8]) {
        self.sent += 1;
        let flags = flags(is_command, more);
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

    /// Decrypts a frame: in place, if its buffer is not shared. `None` for a long one, for which [`go_on`](Self::go_on)
    /// is called until it is whole.
    pub(crate) fn open(&mut self, message: Bytes) -> Result<Option<Opened>, Fault> {
        if message.len() < OVERHEAD || &message[..NAME.len()] != NAME {
            return Err(Reason::BadMessage.into());
        }
        let (head, sealed) = message.split_at(HEAD);
        let count = u64::from_be_bytes(head[NAME.len()..].try_into().expect("eight bytes"));
        if count <= self.received {
            return Err(Reason::BadNonce.into());
        }
        self.received = count;
        let tag = sealed[..TAG].try_into().expect("as many bytes");
        let mut text = match message.try_into_mut() {
            Ok(mut text) => {
                text.advance(HEAD + TAG);
                text
            }
            // A copy: what is kept of it keeps no other memory.
            Err(message) => BytesMut::from(&message[HEAD + TAG..]),
        };
        if text.len() > WHOLE {
            let pieces = self.crypto.pieces(&self.opening, count.to_be_bytes());
            self.opened = Some(Box::new(Opening { text, tag, pieces, at: 0 }));
            return Ok(None);
        }
        if !self.crypto.open(&self.opening, count.to_be_bytes(), &mut text, &tag) {
            return Err(Reason::BadMessage.into());
        }
        opened(text).map(Some)
    }

    /// Decrypts more of a long frame; gives it when it is whole.
    pub(crate) fn go_on(&mut self) -> Result<Option<Opened>, Fault> {
        let Some(opening) = &mut self.opened else { return Ok(None) };
        let Some(is_good) = opening.go_on() else { return Ok(None) };
        let text = self.opened.take().filter(|_| is_good).ok_or(Reason::BadMessage)?.text;
        opened(text).map(Some)
    }

    /// The bytes of a long frame that is being decrypted.
    pub(crate) fn opening(&self) -> Option<usize> {
        self.opened.as_ref().map(|opening| opening.text.len())
    }
}

/// The frame in a decrypted text.
fn opened(mut text: BytesMut) -> Result<Opened, Fault> {
    let flags = text.get_u8();
    if flags > COMMAND {
        return Err(Reason::BadFlags.into());
    }
    let body = if text.is_empty() { Bytes::new() } else { text.freeze() };
    Ok(Opened { is_command: flags == COMMAND, more: flags == MORE, body })
}
