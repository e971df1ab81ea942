//! Outgoing bytes.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use trunkline_wire::Backlog;

use super::frame::{HEAD, Head};

/// Frames up to this are copied together; longer ones are sent from where they lie.
const COPIED: usize = 4096;

/// Messages up to this, with the heads of their frames, are copied in one go: each step costs more than so few bytes.
const SMALL: usize = 256;

/// What is copied together is set aside beyond this, so that it is not moved as it grows.
const TAIL: usize = 64 << 10;

/// The most pending PONGs: a peer that reads none of them needs no more.
const PONGS: usize = 16;

/// How many bytes are encrypted before they can be written: they are still in the cache when the system copies them,
/// and what is pending for a slow peer takes no memory twice.
const AHEAD: usize = 128 << 10;

/// A frame that is encrypted once it can be written.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) is_command: bool,
    pub(crate) more: bool,
    pub(crate) body: Bytes,
    /// The length of its bytes with its head, once encrypted.
    len: usize,
}

/// Pending bytes.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    /// What follows it.
    plain: VecDeque<Plain>,
    plain_bytes: u64,
    /// Where each pending message and each PONG ends, in all bytes.
    ends: VecDeque<u64>,
    pongs: VecDeque<u64>,
    /// All bytes that were ready to be written, and those that were written.
    ready: u64,
    written: u64,
}

impl Outbox {
    pub(crate) fn backlog(&self) -> Backlog {
        let bytes = usize::try_from(self.queued() - self.written).expect("it is in memory");
        Backlog { messages: self.ends.len(), bytes }
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

    /// Adds a frame.
    fn put_frame(&mut self, more: bool, frame: &Bytes) {
        if frame.len() <= COPIED {
            self.put_with(false, more, frame.len(), |out| out.put_slice(frame));
        } else {
            Head { is_command: false, more, len: frame.len() as u64 }.write(&mut self.tail);
            self.ready += (HEAD + frame.len()) as u64;
            self.set_aside();
            self.chunks.push_back(frame.clone());
        }
    }

    /// Whether to encrypt a frame of so many bytes at once: a few small ones are.
    #[inline]
    pub(crate) fn is_encrypted_at_once(&self, len: usize) -> bool {
        len <= COPIED && self.plain.is_empty() && self.has_room_ahead()
    }

    fn has_room_ahead(&self) -> bool {
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

    /// The next frame to encrypt now, as it can be written soon.
    pub(crate) fn pop_plain(&mut self) -> Option<Plain> {
        if !self.has_room_ahead() {
            return None;
        }
        let plain = self.plain.pop_front()?;
        self.plain_bytes -= plain.len as u64;
        Some(plain)
    }

    /// Adds a command.
    pub(crate) fn put_command(&mut self, body: &[u8]) {
        self.put_with(true, false, body.len(), |out| out.put_slice(body));
    }

    /// Whether to send a peer another PONG: not if it has read none of so many.
    pub(crate) fn has_room_for_pong(&mut self) -> bool {
        while self.pongs.front().is_some_and(|end| *end <= self.written) {
            self.pongs.pop_front();
        }
        self.pongs.len() < PONGS
    }

    /// The last addition is a PONG.
    pub(crate) fn end_pong(&mut self) {
        self.pongs.push_back(self.queued());
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
            return self.chunks.push_back(own.freeze());
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
            self.chunks.push_back(self.tail.split().freeze());
        }
    }

    /// What can be written, in order.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let chunks = self.chunks.iter().map(|chunk| &chunk[..]);
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
            let gone = count.min(first.len());
            first.advance(gone);
            count -= gone;
            if first.is_empty() {
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

    /// Discards everything.
    pub(crate) fn clear(&mut self) {
        (self.chunks, self.plain, self.plain_bytes, self.ends, self.pongs) = Default::default();
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
    fn pongs_that_nobody_reads_are_few() {
        let mut outbox = Outbox::default();
        let pong = |outbox: &mut Outbox| {
            if outbox.has_room_for_pong() {
                outbox.put_command(b"\x04PONG");
                outbox.end_pong();
            }
        };
        (0..1000).for_each(|_| pong(&mut outbox));
        assert_eq!(outbox.backlog().bytes, PONGS * 7);
        outbox.advance(7);
        (0..1000).for_each(|_| pong(&mut outbox));
        assert_eq!(outbox.backlog().bytes, PONGS * 7);
    }
}
