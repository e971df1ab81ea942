//! Outgoing bytes.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use trunkline_wire::Backlog;

use super::frame::{HEAD, Head};

/// Frames up to this are copied together; longer ones are sent from where they lie.
pub const COPIED: usize = 4096;

/// Messages up to this, with the heads of their frames, are copied in one go: each step costs more than so few bytes.
const SMALL: usize = 256;

/// What is copied together is set aside beyond this, so that it is not moved as it grows.
const TAIL: usize = 64 << 10;

/// How many bytes are encrypted before they can be written: they are still in the cache when the system copies them,
/// and what is pending for a slow peer takes no memory twice.
pub(crate) const AHEAD: usize = 128 << 10;

/// A frame that is encrypted once it can be written.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) is_command: bool,
    pub(crate) more: bool,
    pub(crate) body: Bytes,
    /// The length of its bytes with its head, once encrypted.
    len: usize,
}

/// Bytes that are written together.
#[derive(Debug)]
struct Chunk {
    bytes: Bytes,
    /// Whether they are a frame where it lies, which others may send as well.
    is_shared: bool,
}

/// Pending bytes.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Chunk>,
    /// The bytes of the shared ones.
    shared: usize,
    tail: BytesMut,
    /// What follows it.
    plain: VecDeque<Plain>,
    plain_bytes: u64,
    /// Where each pending message ends, in all bytes, and where the last PONG does.
    ends: VecDeque<u64>,
    pong: u64,
    /// All bytes that were ready to be written, and those that were written.
    ready: u64,
    written: u64,
}

impl Outbox {
    pub(crate) fn backlog(&self) -> Backlog {
        let bytes = usize::try_from(self.queued() - self.written).expect("it is in memory");
        Backlog { messages: self.ends.len(), bytes }
    }

    /// The memory of the pending bytes that no other connection shares. What is not encrypted yet is shared, but for
    /// what will be encrypted ahead.
    pub(crate) fn held(&self) -> usize {
        let ready = usize::try_from(self.ready - self.written).expect("it is in memory") - self.shared;
        ready + usize::try_from(self.plain_bytes).map_or(AHEAD, |plain| plain.min(AHEAD))
    }

    /// All bytes so far.
    fn queued(&self) -> u64 {
        self.ready + self.plain_bytes
    }

    /// Adds bytes as they are.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.tail.put_slice(bytes);
        self.ready += bytes.len() as u64;
    }

    /// Adds a message, which has a frame at least.
    #[inline]
    pub(crate) fn put_message(&mut self, frames: &[Bytes]) {
        let last = frames.len() - 1;
        let len: usize = frames.iter().map(|frame| HEAD + frame.len()).sum();
        if len > SMALL {
            for (at, frame) in frames.iter().enumerate() {
                self.put_frame(at < last, frame);
            }
            return;
        }
        if self.tail.len() + len >= TAIL {
            self.set_aside();
        }
        let mut message = [0; SMALL];
        let mut rest = &mut message[..];
        for (at, frame) in frames.iter().enumerate() {
            Head { is_command: false, more: at < last, len: frame.len() as u64 }.write(&mut rest);
            rest.put_slice(frame);
        }
        let len = SMALL - rest.len();
        self.put(&message[..len]);
    }

    fn put_frame(&mut self, more: bool, frame: &Bytes) {
        if frame.len() <= COPIED {
            self.put_with(false, more, frame.len(), |out| out.put_slice(frame));
        } else {
            Head { is_command: false, more, len: frame.len() as u64 }.write(&mut self.tail);
            self.ready += (HEAD + frame.len()) as u64;
            self.set_aside();
            self.shared += frame.len();
            self.chunks.push_back(Chunk { bytes: frame.clone(), is_shared: true });
        }
    }

    /// Whether to encrypt a frame of so many bytes at once: a few small ones are.
    #[inline]
    pub(crate) fn is_encrypted_at_once(&self, len: usize) -> bool {
        len <= COPIED && self.plain_bytes == 0 && self.has_room_ahead()
    }

    /// Whether more may be encrypted now, as it can be written soon.
    pub(crate) fn has_room_ahead(&self) -> bool {
        self.ready - self.written < AHEAD as u64
    }

    /// Adds a frame whose length is `encrypted` once it is encrypted.
    pub(crate) fn put_plain(&mut self, is_command: bool, more: bool, body: &Bytes, encrypted: usize) {
        // A slice would keep all that was read with it.
        let body = if body.len() <= COPIED { Bytes::copy_from_slice(body) } else { body.clone() };
        let len = Head { is_command, more, len: encrypted as u64 }.len() + encrypted;
        self.plain_bytes += len as u64;
        self.plain.push_back(Plain { is_command, more, body, len });
    }

    /// The next frame to encrypt now, as it can be written soon: its bytes are put or [put in
    /// pieces](Self::put_piece) next.
    pub(crate) fn pop_plain(&mut self) -> Option<Plain> {
        if !self.has_room_ahead() {
            return None;
        }
        self.plain.pop_front()
    }

    /// A frame that was popped is put whole.
    pub(crate) fn handle_sealed(&mut self, plain: &Plain) {
        self.plain_bytes -= plain.len as u64;
    }

    /// Adds a piece of a frame that was popped.
    pub(crate) fn put_piece(&mut self, piece: BytesMut) {
        self.plain_bytes -= piece.len() as u64;
        self.ready += piece.len() as u64;
        self.set_aside();
        self.chunks.push_back(Chunk { bytes: piece.freeze(), is_shared: false });
    }

    pub(crate) fn put_command(&mut self, body: &[u8]) {
        self.put_with(true, false, body.len(), |out| out.put_slice(body));
    }

    /// Whether to send a peer another PONG: not if it has not read the last.
    pub(crate) fn has_room_for_pong(&self) -> bool {
        self.pong <= self.written
    }

    /// The last addition is a PONG.
    pub(crate) fn end_pong(&mut self) {
        self.pong = self.queued();
    }

    /// Adds a frame of `len` bytes, which `put` writes in place.
    #[inline]
    pub(crate) fn put_with(&mut self, is_command: bool, more: bool, len: usize, put: impl FnOnce(&mut BytesMut)) {
        let head = Head { is_command, more, len: len as u64 };
        if self.tail.len() + len >= TAIL {
            self.set_aside();
        }
        if len >= TAIL {
            // The rest of its room would keep all of it until the next send.
            let mut own = BytesMut::with_capacity(HEAD + len);
            head.write(&mut own);
            put(&mut own);
            self.ready += own.len() as u64;
            return self.chunks.push_back(Chunk { bytes: own.freeze(), is_shared: false });
        }
        self.tail.reserve(HEAD + len);
        let before = self.tail.len();
        head.write(&mut self.tail);
        put(&mut self.tail);
        self.ready += (self.tail.len() - before) as u64;
    }

    /// The last addition ends a message.
    #[inline]
    pub(crate) fn end_message(&mut self) {
        self.ends.push_back(self.queued());
    }

    fn set_aside(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(Chunk { bytes: self.tail.split().freeze(), is_shared: false });
        }
    }

    /// What can be written, in order.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let chunks = self.chunks.iter().map(|chunk| &chunk.bytes[..]);
        chunks.chain(Some(&self.tail[..]).filter(|tail| !tail.is_empty()))
    }

    /// Fills slices with what can be written; gives how many.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = slices.iter_mut().zip(self.chunks());
        filled.map(|(slice, chunk)| *slice = IoSlice::new(chunk)).count()
    }

    /// So many bytes were written.
    ///
    /// # Panics
    /// When there were fewer.
    pub(crate) fn advance(&mut self, mut count: usize) {
        self.written += count as u64;
        assert!(self.written <= self.ready, "more was written than there was");
        while count > 0 {
            let Some(first) = self.chunks.front_mut() else {
                self.tail.advance(count);
                break;
            };
            let gone = count.min(first.bytes.len());
            first.bytes.advance(gone);
            count -= gone;
            if first.is_shared {
                self.shared -= gone;
            }
            if first.bytes.is_empty() {
                self.chunks.pop_front();
            }
        }
        while self.ends.front().is_some_and(|end| *end <= self.written) {
            self.ends.pop_front();
        }
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        if self.tail.is_empty() {
            self.tail = BytesMut::new();
        }
    }

    pub(crate) fn clear(&mut self) {
        (self.chunks, self.shared, self.plain, self.plain_bytes, self.ends, self.pong) = Default::default();
        self.tail = BytesMut::new();
        self.written = self.ready;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(outbox: &mut Outbox, step: usize) -> Vec<u8> {
        let mut all = vec![];
        while outbox.backlog().bytes > 0 {
            let mut slices = [IoSlice::new(b""); 3];
            let count = outbox.slices(&mut slices);
            let next: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).take(step).collect();
            outbox.advance(next.len());
            all.extend(next);
        }
        all
    }

    #[test]
    fn what_is_put_goes_out_in_any_steps() {
        let frames = [0, 1, 255, 256, COPIED, COPIED + 1, TAIL, 3].map(|len| Bytes::from(vec![7; len]));
        let fill = |outbox: &mut Outbox| {
            for frame in &frames {
                outbox.put_frame(true, frame);
                outbox.end_message();
            }
            outbox.put_command(b"\x04PING\0\0");
        };
        let mut outbox = Outbox::default();
        fill(&mut outbox);
        let whole = drain(&mut outbox, usize::MAX);
        for step in [1, 2, 4095, 70_000] {
            fill(&mut outbox);
            assert_eq!(outbox.backlog(), Backlog { messages: frames.len(), bytes: whole.len() });
            assert!(drain(&mut outbox, step) == whole);
            assert_eq!(outbox.backlog(), Backlog::default());
        }
    }

    #[test]
    fn a_message_is_its_frames_however_it_is_copied() {
        // A message with its heads is put in one go, or not; the last lengths fill what is copied together.
        for len in (0..=SMALL).chain([COPIED, COPIED + 1, TAIL - 20, TAIL - 10]) {
            let frames = [Bytes::from(vec![1; len]), Bytes::from_static(b""), Bytes::from(vec![3; 16])];
            for count in 1..=frames.len() {
                let (mut whole, mut single) = (Outbox::default(), Outbox::default());
                whole.put_message(&frames[..count]);
                for (at, frame) in frames[..count].iter().enumerate() {
                    single.put_frame(at + 1 < count, frame);
                }
                let bytes = drain(&mut whole, usize::MAX);
                assert!(bytes == drain(&mut single, usize::MAX), "{count} frames, the first of {len} bytes");
                assert_eq!(bytes[0] & 1, u8::from(count > 1));
            }
        }
    }

    #[test]
    fn a_message_waits_until_its_last_byte_is_gone() {
        let mut outbox = Outbox::default();
        outbox.put_frame(false, &Bytes::from_static(b"abc"));
        outbox.end_message();
        outbox.advance(4);
        assert_eq!(outbox.backlog(), Backlog { messages: 1, bytes: 1 });
        outbox.advance(1);
        assert_eq!(outbox.backlog(), Backlog::default());
    }

    #[test]
    fn a_frame_that_is_sent_where_it_lies_is_not_its_own() {
        let mut outbox = Outbox::default();
        outbox.put_message(&[Bytes::from(vec![1; COPIED]), Bytes::from(vec![2; COPIED + 1])]);
        outbox.end_message();
        assert_eq!(outbox.held(), COPIED + 2 * HEAD);
        let all = outbox.backlog().bytes;
        outbox.advance(all - 5);
        assert_eq!((outbox.held(), outbox.backlog().bytes), (0, 5));
        outbox.put_plain(false, false, &Bytes::from(vec![3; 1 << 20]), 1 << 20);
        assert_eq!(outbox.held(), AHEAD);
    }

    #[test]
    fn a_pong_waits_until_the_last_is_written() {
        let mut outbox = Outbox::default();
        assert!(outbox.has_room_for_pong());
        outbox.put_command(b"\x04PONG");
        outbox.end_pong();
        assert!(!outbox.has_room_for_pong());
        outbox.advance(7);
        assert!(outbox.has_room_for_pong());
    }
}
