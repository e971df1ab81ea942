//! Which connection's handshake has succeeded.

use std::collections::HashSet;
use std::ffi::c_int;

/// The connections of a socket whose handshakes may be in progress, by descriptor.
///
/// libzmq reports that a handshake has succeeded, but not which: it is known only if there is just one.
#[derive(Debug, Default)]
pub(super) struct Shaking {
    waiting: HashSet<c_int>,
    /// How many of those have succeeded, when it is unknown which.
    unknown: usize,
}

impl Shaking {
    pub(super) fn began(&mut self, connection: c_int) {
        self.waiting.insert(connection);
    }

    /// The connection that has succeeded, if only one can have.
    pub(super) fn succeeded(&mut self) -> Option<c_int> {
        let only = (self.waiting.len() == 1).then(|| self.waiting.iter().next().copied()).flatten();
        self.unknown += 1;
        self.settle();
        only
    }

    /// A connection without a successful handshake is gone.
    pub(super) fn failed(&mut self, connection: c_int) {
        self.waiting.remove(&connection);
        self.settle();
    }

    /// A connection with a successful handshake is gone.
    pub(super) fn ended(&mut self, connection: c_int) {
        if self.waiting.remove(&connection) {
            self.unknown = self.unknown.saturating_sub(1);
        }
        self.settle();
    }

    fn settle(&mut self) {
        if self.unknown >= self.waiting.len() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Shaking;

    #[test]
    fn one_that_shakes_hands_alone_is_known() {
        let mut shaking = Shaking::default();
        shaking.began(5);
        assert_eq!(shaking.succeeded(), Some(5));
        shaking.began(6);
        assert_eq!(shaking.succeeded(), Some(6));
    }

    #[test]
    fn of_two_at_once_neither_is_known_and_the_next_is() {
        let mut shaking = Shaking::default();
        shaking.began(5);
        shaking.began(6);
        assert_eq!((shaking.succeeded(), shaking.succeeded()), (None, None));
        shaking.began(7);
        assert_eq!(shaking.succeeded(), Some(7));
    }

    #[test]
    fn who_is_gone_is_not_waited_for() {
        let mut shaking = Shaking::default();
        shaking.began(5);
        shaking.began(6);
        shaking.failed(5);
        assert_eq!(shaking.succeeded(), Some(6));
        shaking.began(7);
        shaking.began(8);
        assert_eq!(shaking.succeeded(), None);
        shaking.ended(8);
        assert_eq!(shaking.succeeded(), Some(7));
    }
}
