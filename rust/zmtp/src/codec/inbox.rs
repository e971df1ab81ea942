//! Incoming bytes, until they are frames.

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::frame::{HEAD, Head};
use crate::reason::{Fault, Reason};

/// The rest of a frame is read in place if it is at least this long.
const LANDING: usize = 16 << 10;

/// An incomplete frame.
#[derive(Debug)]
struct Partial {
    head: Head,
    len: usize,
    body: BytesMut,
}

impl Partial {
    fn missing(&self) -> usize {
        self.len - self.body.len()
    }

    /// Makes room for more, no more than has come already: a length alone allocates nothing.
    fn grow(&mut self, eager: usize) {
        if self.body.len() == self.body.capacity() {
            self.body.reserve(self.missing().min(self.body.len().max(eager)));
        }
    }
}

/// Bytes that were read and not yet handled.
#[derive(Debug)]
pub(crate) struct Inbox {
    chunk: Bytes,
    /// The beginning of a head that is incomplete.
    cut: [u8; HEAD],
    cut_len: usize,
    partial: Option<Partial>,
    /// Bytes reserved at most for a frame before it comes.
    eager: usize,
    /// All bytes before the chunk, or before those read in place.
    taken: u64,
    /// Where the last frame handled began.
    begin: u64,
}

impl Inbox {
    pub(crate) fn new(eager: usize) -> Self {
        let (chunk, cut, partial) = (Bytes::new(), [0; HEAD], None);
        Self { chunk, cut, cut_len: 0, partial, eager, taken: 0, begin: 0 }
    }

    /// Sets the bytes reserved at most for a frame before it comes.
    pub(crate) fn set_eager(&mut self, eager: usize) {
        self.eager = eager;
    }

    /// Takes what was read.
    pub(crate) fn push(&mut self, bytes: Bytes) {
        if self.chunk.is_empty() {
            self.chunk = bytes;
        } else if !bytes.is_empty() {
            self.chunk = [&self.chunk[..], &bytes[..]].concat().into();
        }
    }

    /// The bytes not yet handled.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.chunk
    }

    /// Skips handled bytes.
    pub(crate) fn skip(&mut self, count: usize) {
        self.chunk.advance(count);
        self.taken += count as u64;
        self.begin = self.taken;
    }

    /// Where the last frame handled began, in all bytes.
    pub(crate) fn begin(&self) -> u64 {
        self.begin
    }

    /// Whether the bytes so far end in the middle of a frame.
    pub(crate) fn is_cut(&self) -> bool {
        !self.chunk.is_empty() || self.cut_len > 0 || self.partial.is_some()
    }

    /// The bytes held of an incomplete frame.
    pub(crate) fn unfinished(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.body.len())
    }

    pub(crate) fn clear(&mut self) {
        (self.chunk, self.cut_len, self.partial) = (Bytes::new(), 0, None);
    }

    /// Where to read more of a long frame, if one is incomplete.
    pub(crate) fn landing(&mut self) -> Option<Limit<&mut BytesMut>> {
        let eager = self.eager;
        let partial = self.partial.as_mut().filter(|partial| partial.missing() >= LANDING)?;
        partial.grow(eager);
        let room = partial.missing().min(partial.body.capacity() - partial.body.len());
        Some((&mut partial.body).limit(room))
    }

    /// The next complete frame. `admits` sees its head, and where its bytes begin, before any are kept.
    #[inline]
    pub(crate) fn frame(
        &mut self,
        admits: impl FnOnce(Head, u64) -> Result<(), Fault>,
    ) -> Result<Option<(Head, Bytes)>, Fault> {
        if self.partial.is_some() {
            return Ok(self.rest_of_partial());
        }
        if self.cut_len == 0 {
            self.begin = self.taken;
        }
        let Some(head) = self.head()? else { return Ok(None) };
        admits(head, self.taken)?;
        let len = usize::try_from(head.len).map_err(|_| Reason::MessageTooLarge)?;
        if self.chunk.len() < len {
            let body = BytesMut::with_capacity(len.min(self.eager.max(self.chunk.len())));
            self.partial = Some(Partial { head, len, body });
            return Ok(self.rest_of_partial());
        }
        // An empty slice would keep all that was read.
        let body = if len == 0 { Bytes::new() } else { self.chunk.split_to(len) };
        self.taken += len as u64;
        Ok(Some((head, body)))
    }

    #[inline]
    fn head(&mut self) -> Result<Option<Head>, Fault> {
        if self.cut_len == 0 {
            if let Some((head, size)) = Head::read(&self.chunk)? {
                self.chunk.advance(size);
                self.taken += size as u64;
                return Ok(Some(head));
            }
            if self.chunk.is_empty() {
                // Even an empty slice keeps the memory it was cut from.
                self.chunk = Bytes::new();
                return Ok(None);
            }
        }
        self.cut_head()
    }

    #[cold]
    fn cut_head(&mut self) -> Result<Option<Head>, Fault> {
        let flags = if self.cut_len > 0 { self.cut[0] } else { self.chunk[0] };
        let count = (Head::size(flags) - self.cut_len).min(self.chunk.len());
        self.chunk.copy_to_slice(&mut self.cut[self.cut_len..self.cut_len + count]);
        self.cut_len += count;
        self.taken += count as u64;
        if self.chunk.is_empty() {
            self.chunk = Bytes::new();
        }
        let Some((head, _)) = Head::read(&self.cut[..self.cut_len])? else { return Ok(None) };
        self.cut_len = 0;
        Ok(Some(head))
    }

    fn rest_of_partial(&mut self) -> Option<(Head, Bytes)> {
        let partial = self.partial.as_mut()?;
        while partial.missing() > 0 && !self.chunk.is_empty() {
            partial.grow(self.eager);
            let room = partial.missing().min(partial.body.capacity() - partial.body.len()).min(self.chunk.len());
            partial.body.extend_from_slice(&self.chunk[..room]);
            self.chunk.advance(room);
        }
        if self.chunk.is_empty() {
            self.chunk = Bytes::new();
        }
        if partial.missing() > 0 {
            return None;
        }
        let Partial { head, len, body } = self.partial.take()?;
        self.taken += len as u64;
        Some((head, body.freeze()))
    }
}
