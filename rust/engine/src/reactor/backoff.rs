//! How long to wait before a retry.

use std::time::Duration;

/// The longest wait after a peer has refused us for good: that may be mended while this runs.
const REFUSED: Duration = Duration::from_secs(10);

/// The shortest pause between two attempts.
const LEAST: Duration = Duration::from_millis(1);

/// The waits between attempts to reach one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    first: Duration,
    /// The wait doubles each time, up to this; without, it stays the same.
    last: Option<Duration>,
    next: Duration,
    refused: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, last: Option<Duration>) -> Self {
        let first = first.max(LEAST);
        Self { first, last: last.filter(|last| *last > first), next: first, refused: first }
    }

    /// An attempt has succeeded.
    pub(crate) fn reset(&mut self) {
        (self.next, self.refused) = (self.first, self.first);
    }

    /// What is added to a wait, so that peers that lost the same connection do not all retry at once: `chance` is any
    /// number.
    pub(crate) fn spread(&self, chance: u32) -> Duration {
        self.first.mul_f64(f64::from(chance) / f64::from(u32::MAX))
    }

    /// How long to wait now; longer where the peer has refused us for good.
    pub(crate) fn next(&mut self, is_final: bool) -> Duration {
        if is_final {
            let wait = self.refused;
            self.refused = REFUSED.min(wait * 2).max(self.first);
            return wait;
        }
        let wait = self.next;
        if let Some(last) = self.last {
            self.next = last.min(wait * 2);
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn grows_up_to_its_limit_and_begins_anew() {
        let mut backoff = Backoff::new(ms(100), Some(ms(350)));
        assert_eq!([(); 4].map(|()| backoff.next(false)), [100, 200, 350, 350].map(ms));
        backoff.reset();
        assert_eq!(backoff.next(false), ms(100));
        let mut steady = Backoff::new(ms(100), None);
        assert_eq!([(); 3].map(|()| steady.next(false)), [100; 3].map(ms));
    }

    #[test]
    fn who_refuses_is_asked_less_and_less_often() {
        let mut backoff = Backoff::new(ms(100), None);
        let waits: Vec<_> = (0..9).map(|_| backoff.next(true)).collect();
        assert_eq!(waits[..3], [100, 200, 400].map(ms));
        assert_eq!(waits[8], REFUSED);
        assert_eq!(backoff.next(false), ms(100));
    }
}
