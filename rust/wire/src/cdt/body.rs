//! Bodies to write. Most of a large body is content, which is copied only once, into its final place.

use base64_simd::{Out, STANDARD};

/// A body that borrows its content.
#[derive(Debug)]
pub struct Body<'a> {
    around: Vec<u8>,
    /// Where the content is inserted.
    at: usize,
    content: &'a [u8],
    form: Form,
}

/// How content is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Base64,
}

impl<'a> Body<'a> {
    pub(super) fn new(form: Form) -> Self {
        Self { around: Vec::with_capacity(512), at: 0, content: &[], form }
    }

    /// The body without its content.
    pub(super) fn around(&mut self) -> &mut Vec<u8> {
        &mut self.around
    }

    /// Adds the content at the current end.
    pub(super) fn add_content(&mut self, content: &'a [u8]) {
        self.at = self.around.len();
        self.content = content;
    }

    fn content_length(&self) -> usize {
        match self.form {
            Form::Plain => self.content.len(),
            Form::Base64 => STANDARD.encoded_length(self.content.len()),
        }
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.around.len() + self.content_length()
    }

    /// Writes it to a buffer of its [`length`](Self::length).
    pub fn write(&self, place: &mut [u8]) {
        let (before, after) = self.around.split_at(self.at);
        let (to_before, rest) = place.split_at_mut(before.len());
        let (to_content, to_after) = rest.split_at_mut(self.content_length());
        to_before.copy_from_slice(before);
        match self.form {
            Form::Plain => to_content.copy_from_slice(self.content),
            Form::Base64 => {
                let _ = STANDARD.encode(self.content, Out::from_slice(to_content));
            }
        }
        to_after.copy_from_slice(after);
    }

    /// Its bytes, copied only if there is content.
    pub fn into_bytes(self) -> Vec<u8> {
        if self.content.is_empty() {
            return self.around;
        }
        let mut bytes = vec![0; self.length()];
        self.write(&mut bytes);
        bytes
    }
}
