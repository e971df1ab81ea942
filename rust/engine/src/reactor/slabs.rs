//! The memory for reading: one slab for all links, and another when that is full.

use std::collections::VecDeque;

use bytes::buf::Limit;
use bytes::{BufMut, Bytes, BytesMut};

use super::stream::Read;

/// The most that one read takes: enough that a frame of 64 KiB is mostly whole in it, and need not be moved.
pub(crate) const SLAB: usize = 256 << 10;

/// The least room of a read.
pub(crate) const ROOM: usize = 16 << 10;

/// Slabs in use beyond which pieces are copied: one byte that is kept keeps its slab.
const KEPT: usize = 128;

/// Full slabs that are checked when another is needed.
const LOOKS: usize = 4;

/// The slabs of one reactor.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    current: BytesMut,
    /// A piece of the current slab, which shows later whether there are others.
    handle: Option<Bytes>,
    full: VecDeque<Bytes>,
}

impl Slabs {
    /// Whether so many slabs are kept that what is read must be copied before it is kept.
    pub(super) fn are_scarce(&self) -> bool {
        self.full.len() >= KEPT
    }

    /// Reads with `read`, up to `most` bytes; gives what was read.
    #[inline]
    pub(super) fn read(
        &mut self,
        most: usize,
        read: impl FnOnce(&mut Limit<&mut BytesMut>) -> Read<()>,
    ) -> Read<Bytes> {
        if self.current.capacity() < ROOM {
            self.next();
        }
        match read(&mut (&mut self.current).limit(most)) {
            Read::Some(()) => {
                let chunk = self.current.split().freeze();
                self.handle.get_or_insert_with(|| chunk.slice(..1));
                Read::Some(chunk)
            }
            Read::Nothing => Read::Nothing,
            Read::End => Read::End,
        }
    }

    /// Takes another slab: one without pieces in use, else a new one.
    fn next(&mut self) {
        self.current = BytesMut::new();
        self.full.extend(self.handle.take());
        for _ in 0..LOOKS.min(self.full.len()) {
            let Some(handle) = self.full.pop_front() else { break };
            match handle.try_into_mut() {
                Ok(mut slab) => {
                    slab.clear();
                    self.current = slab;
                }
                Err(handle) => self.full.push_back(handle),
            }
        }
        self.current.reserve(SLAB);
    }
}

/// Copies the frames of a message, so that they keep no slab.
pub(crate) fn copied(frames: &mut [Bytes]) {
    // A larger frame has its own memory.
    let is_small = |frame: &&mut Bytes| frame.len() < SLAB;
    let size = frames.iter().map(Bytes::len).filter(|len| *len < SLAB).sum();
    let mut all = BytesMut::with_capacity(size);
    for frame in frames.iter_mut().filter(is_small) {
        all.put_slice(frame);
        *frame = all.split().freeze();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(slabs: &mut Slabs, bytes: usize) -> Bytes {
        match slabs.read(SLAB, |into| {
            into.put_bytes(7, bytes);
            Read::Some(())
        }) {
            Read::Some(chunk) => chunk,
            Read::Nothing | Read::End => panic!("nothing was read"),
        }
    }

    #[test]
    fn slabs_are_used_again() {
        let mut slabs = Slabs::default();
        for _ in 0..1000 {
            assert_eq!(read(&mut slabs, SLAB / 2).len(), SLAB / 2);
        }
        assert!(slabs.full.len() <= 2, "{}", slabs.full.len());
    }

    #[test]
    fn they_are_scarce_as_long_as_pieces_are_kept() {
        let mut slabs = Slabs::default();
        let kept: Vec<_> = (0..=KEPT).map(|_| read(&mut slabs, SLAB - ROOM + 1).slice(..1)).collect();
        assert!(slabs.are_scarce());
        drop(kept);
        for _ in 0..KEPT {
            read(&mut slabs, SLAB - ROOM + 1);
        }
        assert!(!slabs.are_scarce());
    }

    #[test]
    fn copies_are_the_same_and_hold_nothing_else() {
        let slab = Bytes::from(vec![3; 2 * SLAB]);
        let mut frames = [slab.slice(..5), slab.slice(5..5), slab.slice(10..300), slab.slice(..SLAB)];
        let before = frames.clone();
        copied(&mut frames);
        assert_eq!(frames, before);
        assert_eq!(frames[3].as_ptr(), before[3].as_ptr());
        drop(before);
        drop(frames);
        assert!(slab.is_unique());
    }
}
