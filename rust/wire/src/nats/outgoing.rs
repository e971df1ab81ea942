//! Bytes to be written.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bodies up to this are copied together; longer ones are written from where they lie.
const COPIED: usize = 4096;

/// What is copied together is set aside beyond this, so that it is not moved as it grows.
const TAIL: usize = 64 << 10;

/// The pending bytes of a connection.
#[derive(Default)]
pub(super) struct Outgoing {
    chunks: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl fmt::Debug for Outgoing {
    /// Omits the bytes, among which is the login.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Outgoing {
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    /// Adds bytes that `write` appends.
    pub(super) fn put_with(&mut self, write: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        write(&mut self.tail);
        self.bytes += self.tail.len() - before;
        if self.tail.len() >= TAIL {
            self.set_aside();
        }
    }

    /// Adds a part of a message.
    pub(super) fn put(&mut self, part: &Bytes) {
        if part.len() <= COPIED {
            return self.put_with(|tail| tail.put_slice(part));
        }
        self.set_aside();
        self.bytes += part.len();
        self.chunks.push_back(part.clone());
    }

    fn set_aside(&mut self) {
        if !self.tail.is_empty() {
            self.chunks.push_back(self.tail.split().freeze());
        }
    }

    /// The first pending bytes, as far as there are slices for them. Gives how many slices are used.
    pub(super) fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let tail = std::iter::once(&self.tail[..]).filter(|tail| !tail.is_empty());
        let mut count = 0;
        for (slice, bytes) in into.iter_mut().zip(self.chunks.iter().map(|chunk| &chunk[..]).chain(tail)) {
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        count
    }

    /// So many of them were written.
    pub(super) fn handle_written(&mut self, mut count: usize) {
        self.bytes -= count;
        while let Some(first) = self.chunks.front_mut() {
            if count < first.len() {
                return first.advance(count);
            }
            count -= first.len();
            self.chunks.pop_front();
        }
        self.tail.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However much is written at a time, all is, in order.
        #[test]
        fn all_is_written_in_order(parts in proptest::collection::vec(0_usize..9000, 0..20), steps in proptest::collection::vec(1_usize..20_000, 1..50)) {
            let (mut outgoing, mut expected, mut written) = (Outgoing::default(), vec![], vec![]);
            let mut steps = steps.into_iter().cycle();
            for (at, len) in parts.into_iter().enumerate() {
                let part = vec![u8::try_from(at).unwrap(); len];
                expected.extend_from_slice(&part);
                outgoing.put(&part.into());
                prop_assert_eq!(outgoing.len(), expected.len() - written.len());
                let mut slices = [IoSlice::new(&[]); 3];
                let count = outgoing.slices(&mut slices);
                let there: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                let step = steps.next().unwrap().min(there.len());
                written.extend_from_slice(&there[..step]);
                outgoing.handle_written(step);
            }
            let mut slices = [IoSlice::new(&[]); 64];
            let count = outgoing.slices(&mut slices);
            written.extend(slices[..count].iter().flat_map(|slice| slice.to_vec()));
            prop_assert_eq!(written, expected);
        }
    }
}
