//! Names from the network, kept in bounded space.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hasher};

/// Bytes to keep of a name.
pub const NAME_BYTES: usize = 200;

/// The hash that distinguishes longer names, and the sign before it.
const TAIL: usize = 17;

/// A name in the form kept: of one longer than [`NAME_BYTES`], the beginning, `#` and a hash of the whole, so that
/// names with the same beginning stay distinct.
#[inline]
pub fn shortened(name: &[u8]) -> Cow<'_, [u8]> {
    if name.len() <= NAME_BYTES { Cow::Borrowed(name) } else { Cow::Owned(shorten(name)) }
}

#[inline(never)]
fn shorten(name: &[u8]) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    let mut end = NAME_BYTES - TAIL;
    // Not in the middle of a character.
    while end > 0 && name[end] & 0b1100_0000 == 0b1000_0000 {
        end -= 1;
    }
    let mut kept = name[..end].to_vec();
    kept.extend(format!("#{:016x}", hasher.finish()).into_bytes());
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let short = [b'x'; NAME_BYTES];
        assert_eq!(*shortened(&short), short);
        let long = |end: u8| [vec![b'x'; 100_000], vec![end]].concat();
        let (one, other) = (long(1), long(2));
        assert_eq!(shortened(&one).len(), NAME_BYTES);
        assert_ne!(shortened(&one), shortened(&other));
        assert_eq!(shortened(&one), shortened(&one));
        let wide = "ä".repeat(1000);
        assert!(std::str::from_utf8(&shortened(wide.as_bytes())).is_ok_and(|kept| kept.len() <= NAME_BYTES));
    }
}
