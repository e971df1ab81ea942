//! Bodies that are about to be written. Content is most of what a large one is: it is written once, to where it stays.

use base64_simd::{Out, STANDARD};

/// A body, of which the content stands elsewhere still.
#[derive(Debug)]
pub struct Body<'a> {
    around: Vec<u8>,
    /// Where in that the content belongs.
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
    /// A body that content comes into where the message has any.
    pub(super) fn new(form: Form) -> Self {
        Self { around: Vec::with_capacity(512), at: 0, content: &[], form }
    }

    /// Where all but the content goes.
    pub(super) fn around(&mut self) -> &mut Vec<u8> {
        &mut self.around
    }

    /// Adds the content behind what there is so far.
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

    /// How many bytes it has.
    pub fn length(&self) -> usize {
        self.around.len() + self.content_length()
    }

    /// Writes it to a place of its [`length`](Self::length).
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

    /// Its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        if self.content.is_empty() {
            return self.around;
        }
        let mut bytes = vec![0; self.length()];
        self.write(&mut bytes);
        bytes
    }
}
