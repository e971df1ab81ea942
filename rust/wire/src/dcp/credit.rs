//! When a concurrent worker asks for more requests.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Nanos;

/// The assumed round trip until one has been measured.
const ROUND_TRIP: Duration = Duration::from_millis(50);

/// The requests that a worker has asked for and may still receive (DCP-33).
#[derive(Debug)]
pub(super) struct Credit {
    concurrency: usize,
    /// Grants sent, less requests received.
    open: usize,
    /// When the last grants were sent; only as many as can matter.
    recent: VecDeque<Nanos>,
    round_trip: Duration,
    pings: u64,
    pongs: u64,
    /// The ping whose pong is timed, and when it was sent.
    timed: Option<(u64, Nanos)>,
}

impl Credit {
    pub(super) fn new(concurrency: usize) -> Self {
        Self { concurrency, open: 0, recent: VecDeque::new(), round_trip: ROUND_TRIP, pings: 0, pongs: 0, timed: None }
    }

    /// A registration was sent: it grants one request, and cancels all earlier grants.
    pub(super) fn register(&mut self) {
        self.open = 1;
        self.recent.clear();
        (self.pings, self.pongs, self.timed) = (0, 0, None);
    }

    /// A reply, a forward or a ping was sent.
    pub(super) fn grant(&mut self, now: Nanos) {
        self.open += 1;
        if self.recent.len() > self.concurrency {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
    }

    /// Whether no granted request can still come.
    pub(super) const fn is_spent(&self) -> bool {
        self.open == 0
    }

    /// A ping was sent.
    pub(super) fn ping(&mut self, now: Nanos) {
        self.grant(now);
        self.pings += 1;
        self.timed = self.timed.or(Some((self.pings, now)));
    }

    /// A pong was received.
    pub(super) fn pong(&mut self, now: Nanos) {
        self.pongs += 1;
        if let Some((ping, at)) = self.timed
            && ping == self.pongs
        {
            self.round_trip = now - at;
            self.timed = None;
        }
    }

    /// A request was received, now one of `held`. Returns whether to ask for one more.
    pub(super) fn take(&mut self, now: Nanos, held: usize) -> bool {
        self.open = self.open.saturating_sub(1);
        held < self.concurrency && held + self.due(now) <= self.concurrency
    }

    /// How many requests to expect: all grants that the broker could not use together bring at most one.
    fn due(&mut self, now: Nanos) -> usize {
        while self.recent.front().is_some_and(|at| *at + self.round_trip * 2 < now) {
            self.recent.pop_front();
        }
        self.open.min(1 + self.recent.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: u64 = 1_000_000;

    #[test]
    fn one_asks_until_enough_is_due() {
        let mut credit = Credit::new(3);
        credit.register();
        assert!(credit.take(Nanos(0), 1));
        credit.ping(Nanos(0));
        assert!(credit.take(Nanos(0), 2));
        credit.ping(Nanos(0));
        assert!(!credit.take(Nanos(0), 3));
    }

    #[test]
    fn old_grants_are_worth_one_request() {
        let mut credit = Credit::new(4);
        credit.register();
        for _ in 0..3 {
            credit.grant(Nanos(0));
        }
        assert!(!credit.take(Nanos(99 * MILLISECOND), 2));
        assert!(credit.take(Nanos(101 * MILLISECOND), 2));
    }

    #[test]
    fn a_round_trip_is_from_a_ping_to_its_own_pong() {
        let mut credit = Credit::new(1);
        credit.register();
        for at in [0, 1, 2] {
            credit.ping(Nanos(at));
        }
        credit.pong(Nanos(7));
        credit.pong(Nanos(8));
        assert_eq!(credit.round_trip, Duration::from_nanos(7));
        credit.ping(Nanos(10));
        credit.pong(Nanos(11));
        credit.pong(Nanos(13));
        assert_eq!(credit.round_trip, Duration::from_nanos(3));
    }
}
