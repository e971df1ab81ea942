//! The content of messages, copied only when necessary.

use std::ops::Deref;

use bytes::Bytes;

/// The content of a message: shared, or part of the body that it was read from.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// Shared bytes.
    Kept(Bytes),
    /// Part of the body.
    Part(&'a [u8]),
}

impl Content<'_> {
    /// The content as shared bytes.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Kept(content) => content,
            Self::Part(content) => Bytes::copy_from_slice(content),
        }
    }
}

impl Deref for Content<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Kept(content) => content,
            Self::Part(content) => content,
        }
    }
}

impl PartialEq for Content<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Content<'_> {}

impl From<Bytes> for Content<'_> {
    fn from(content: Bytes) -> Self {
        Self::Kept(content)
    }
}
