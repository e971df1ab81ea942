//! The rows of a block.

use arrow_buffer::Buffer;

/// The bytes of a block, row after row: a slice of the payloads as long as each row follows the one before there, which
/// mostly all do, else a copy.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The payloads, of which the rows are so many bytes from `start` on.
    payloads: Option<Buffer>,
    start: usize,
    len: usize,
    /// As it grows, the system moves its pages: Arrow's own buffers, which are aligned further, would be copied.
    copied: Vec<u8>,
}

impl Rows {
    pub(super) fn of(payloads: Option<&Buffer>) -> Self {
        Self { payloads: payloads.cloned(), ..Self::default() }
    }

    pub(super) const fn len(&self) -> usize {
        self.len + self.copied.len()
    }

    #[inline]
    pub(super) fn push(&mut self, row: &[u8]) {
        if let Some(payloads) = &self.payloads {
            let start = row.as_ptr().addr().wrapping_sub(payloads.as_ptr().addr());
            let is_within = start.checked_add(row.len()).is_some_and(|end| end <= payloads.len());
            if is_within && (self.len == 0 || start == self.start + self.len) {
                self.start = if self.len == 0 { start } else { self.start };
                self.len += row.len();
                return;
            }
            if !row.is_empty() {
                self.copy();
            }
        }
        self.copied.extend_from_slice(row);
    }

    /// Appends so many zeros.
    pub(super) fn push_zeros(&mut self, count: usize) {
        if count > 0 {
            self.copy();
            self.copied.resize(self.copied.len() + count, 0);
        }
    }

    #[cold]
    fn copy(&mut self) {
        if let Some(payloads) = self.payloads.take() {
            self.copied.extend_from_slice(&payloads[self.start..][..self.len]);
            self.len = 0;
        }
    }

    /// All of them. A few would keep all the payloads.
    pub(super) fn finish(mut self) -> Buffer {
        if let Some(payloads) = self.payloads.take_if(|payloads| self.len >= payloads.len() / 2) {
            return payloads.slice_with_length(self.start, self.len);
        }
        self.copy();
        Buffer::from_vec(self.copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(payloads: &Buffer, all: &[&[u8]]) -> Buffer {
        let mut rows = Rows::of(Some(payloads));
        for row in all {
            rows.push(row);
        }
        assert_eq!(rows.len(), all.concat().len());
        let found = rows.finish();
        assert_eq!(found.as_slice(), all.concat());
        found
    }

    #[test]
    fn rows_that_follow_each_other_are_a_slice() {
        let payloads = Buffer::from_vec((0..100_u8).collect());
        let at = |range: std::ops::Range<usize>| &payloads.as_slice()[range];
        let is_slice = |all: &[&[u8]]| payloads.as_slice().as_ptr_range().contains(&rows(&payloads, all).as_ptr());
        assert!(is_slice(&[at(0..40), at(40..41), at(41..100)]));
        assert!(is_slice(&[b"", at(20..90), b"", at(90..90)]));
        // They repeat, leave something out, are of other memory, or few.
        assert!(!is_slice(&[at(0..60), at(0..60)]));
        assert!(!is_slice(&[at(0..60), at(61..100)]));
        assert!(!is_slice(&[at(0..60), b"other"]));
        assert!(!is_slice(&[b"other", at(0..60)]));
        assert!(!is_slice(&[at(0..20)]));
    }

    #[test]
    fn zeros_are_after_what_came_before() {
        let payloads = Buffer::from_vec(vec![7_u8; 8]);
        let mut rows = Rows::of(Some(&payloads));
        rows.push_zeros(0);
        rows.push(&payloads[..6]);
        rows.push_zeros(2);
        rows.push(&payloads[6..]);
        assert_eq!(rows.finish().as_slice(), [7, 7, 7, 7, 7, 7, 0, 0, 7, 7]);
        assert!(Rows::of(None).finish().is_empty());
    }
}
