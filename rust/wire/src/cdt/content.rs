//! The content of messages, which is not copied before it has to be.

use std::ops::Deref;

use bytes::Bytes;

/// The content of a message: kept by whoever has it, or a part of the body that it was read from.
#[derive(Clone, Debug)]
pub enum Content<'a> {
    /// Kept for as long as anybody has it.
    Kept(Bytes),
    /// Where it stands.
    Part(&'a [u8]),
}

impl Content<'_> {
    /// The same, for as long as one likes.
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
