//! The timers of a connection: the end of the handshake, and RFC 37, "Connection Heartbeating".

use std::time::Duration;

use trunkline_wire::Nanos;

use crate::Reason;

/// Unanswered PINGs after which no more are sent.
const UNANSWERED: u8 = 3;

/// When to send a peer PINGs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The time between two PINGs.
    pub interval: Duration,
    /// The longest silence after a PING, if there is a limit.
    pub timeout: Option<Duration>,
    /// The silence after which the peer should hang up; rounded down to tenths of seconds.
    pub ttl: Option<Duration>,
}

impl Heartbeat {
    /// The TTL as a PING carries it.
    pub(crate) fn tenths(&self) -> u16 {
        self.ttl.map_or(0, |ttl| u16::try_from(ttl.as_millis() / 100).unwrap_or(u16::MAX))
    }
}

/// A timer that is due.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    Ping,
    Over(Reason),
}

/// The timers of one connection.
#[derive(Debug)]
pub(crate) struct Timers {
    heartbeat: Option<Heartbeat>,
    /// The deadline of the handshake.
    handshake: Option<Nanos>,
    heard: Nanos,
    next_ping: Option<Nanos>,
    /// Since when PINGs are unanswered, and how many.
    waiting: Option<Nanos>,
    unanswered: u8,
    /// The TTL of the last PING and the time it came, until anything else comes.
    ttl: Option<(Nanos, Duration)>,
    is_reading: bool,
}

impl Timers {
    pub(crate) fn new(now: Nanos, handshake: Duration, heartbeat: Option<Heartbeat>) -> Self {
        Self {
            heartbeat,
            handshake: Some(now + handshake),
            heard: now,
            next_ping: None,
            waiting: None,
            unanswered: 0,
            ttl: None,
            is_reading: true,
        }
    }

    /// The handshake is over; a peer that knows PING gets PINGs from now on.
    pub(crate) fn begin(&mut self, now: Nanos, knows_ping: bool) {
        self.handshake = None;
        self.next_ping = self.heartbeat.filter(|_| knows_ping).map(|heartbeat| now + heartbeat.interval);
    }

    /// A PING of the peer shows that it knows PING, whatever version it claims.
    pub(crate) fn hear_ping(&mut self) {
        if self.next_ping.is_none() {
            self.next_ping = self.heartbeat.map(|heartbeat| self.heard + heartbeat.interval);
        }
    }

    /// When data last came.
    pub(crate) fn heard(&self) -> Nanos {
        self.heard
    }

    #[inline]
    pub(crate) fn hear(&mut self, now: Nanos) {
        self.heard = now;
        (self.waiting, self.unanswered, self.ttl) = (None, 0, None);
    }

    /// A PING came; zero means no TTL.
    pub(crate) fn set_ttl(&mut self, tenths: u16) {
        let ttl = Duration::from_millis(100) * u32::from(tenths);
        self.ttl = (tenths > 0).then_some((self.heard, ttl));
    }

    /// Silence does not count while reading is paused.
    pub(crate) fn set_reading(&mut self, now: Nanos, is_reading: bool) {
        if is_reading && !self.is_reading {
            self.waiting = self.waiting.map(|_| now);
            self.ttl = self.ttl.map(|(_, ttl)| (now, ttl));
        }
        self.is_reading = is_reading;
    }

    /// When a silent peer is given up, and why.
    fn end(&self) -> Option<(Nanos, Reason)> {
        let handshake = self.handshake.map(|until| (until, Reason::HandshakeTimeout));
        if !self.is_reading {
            return handshake;
        }
        let timeout = self.heartbeat.and_then(|heartbeat| heartbeat.timeout).zip(self.waiting);
        let timeout = timeout.map(|(timeout, since)| (since + timeout, Reason::HeartbeatTimeout));
        let ttl = self.ttl.map(|(since, ttl)| (since + ttl, Reason::TtlExpired));
        handshake.into_iter().chain(timeout).chain(ttl).min_by_key(|(until, _)| *until)
    }

    pub(crate) fn poll_timeout(&self) -> Option<Nanos> {
        self.end().map(|(until, _)| until).into_iter().chain(self.next_ping).min()
    }

    pub(crate) fn handle_timeout(&mut self, now: Nanos) -> Due {
        if let Some((_, reason)) = self.end().filter(|(until, _)| *until <= now) {
            return Due::Over(reason);
        }
        let is_due = self.next_ping.is_some_and(|next| next <= now);
        let Some(heartbeat) = self.heartbeat.filter(|_| is_due) else { return Due::Nothing };
        // A peer that sends needs no PING, and one about to hang up would leave it unread and lose what it wrote last;
        // but a peer with a TTL must hear from us.
        if heartbeat.ttl.is_none() && self.heard + heartbeat.interval > now {
            self.next_ping = Some(self.heard + heartbeat.interval);
            return Due::Nothing;
        }
        self.next_ping = Some(now + heartbeat.interval);
        self.waiting.get_or_insert(now);
        if self.unanswered == UNANSWERED {
            return Due::Nothing;
        }
        self.unanswered += 1;
        Due::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Nanos {
        Nanos(0) + SECOND * u32::try_from(seconds).unwrap()
    }

    fn timers(timeout: u32, ttl: Option<Duration>) -> Timers {
        let heartbeat = Heartbeat { interval: SECOND, timeout: Some(SECOND * timeout), ttl };
        let mut timers = Timers::new(at(0), SECOND * 10, Some(heartbeat));
        assert_eq!(timers.poll_timeout(), Some(at(10)));
        timers.begin(at(0), true);
        timers
    }

    #[test]
    fn handshakes_end() {
        let mut timers = Timers::new(at(0), SECOND * 10, None);
        timers.hear(at(9));
        assert_eq!(timers.handle_timeout(at(9)), Due::Nothing);
        assert_eq!(timers.handle_timeout(at(10)), Due::Over(Reason::HandshakeTimeout));
        timers.begin(at(10), true);
        assert_eq!(timers.poll_timeout(), None);
    }

    #[test]
    fn who_sends_a_ping_is_asked_as_well() {
        let heartbeat = Heartbeat { interval: SECOND, timeout: Some(SECOND * 2), ttl: None };
        let mut timers = Timers::new(at(0), SECOND, Some(heartbeat));
        timers.begin(at(0), false);
        assert_eq!(timers.poll_timeout(), None);
        timers.hear(at(5));
        timers.hear_ping();
        timers.hear_ping();
        assert_eq!(timers.poll_timeout(), Some(at(6)));
        assert_eq!(timers.handle_timeout(at(6)), Due::Ping);
        assert_eq!(timers.handle_timeout(at(8)), Due::Over(Reason::HeartbeatTimeout));
        let mut silent = Timers::new(at(0), SECOND, None);
        silent.begin(at(0), false);
        silent.hear_ping();
        assert_eq!(silent.poll_timeout(), None);
    }

    #[test]
    fn silence_after_a_ping_is_the_end() {
        let mut timers = timers(2, Some(SECOND));
        assert_eq!(timers.handle_timeout(at(1)), Due::Ping);
        timers.hear(at(2));
        assert_eq!(timers.handle_timeout(at(2)), Due::Ping);
        assert_eq!(timers.handle_timeout(at(3)), Due::Ping);
        assert_eq!(timers.poll_timeout(), Some(at(4)));
        assert_eq!(timers.handle_timeout(at(4)), Due::Over(Reason::HeartbeatTimeout));
    }

    #[test]
    fn without_a_timeout_silence_is_no_end() {
        let heartbeat = Heartbeat { interval: SECOND, timeout: None, ttl: None };
        let mut timers = Timers::new(at(0), SECOND, Some(heartbeat));
        timers.begin(at(0), true);
        assert_eq!(timers.handle_timeout(at(1)), Due::Ping);
        assert_eq!(timers.handle_timeout(at(1000)), Due::Ping);
    }

    #[test]
    fn who_is_heard_is_not_asked() {
        let mut timers = timers(2, None);
        timers.hear(Nanos(500_000_000));
        assert_eq!(timers.handle_timeout(at(1)), Due::Nothing);
        assert_eq!(timers.poll_timeout(), Some(Nanos(1_500_000_000)));
        assert_eq!(timers.handle_timeout(Nanos(1_500_000_000)), Due::Ping);
    }

    #[test]
    fn a_silent_peer_is_not_asked_for_ever() {
        let mut timers = timers(100, None);
        let asked = (1..50).filter(|second| timers.handle_timeout(at(*second)) == Due::Ping).count();
        assert_eq!(asked, usize::from(UNANSWERED));
        timers.hear(at(50));
        assert_eq!(timers.handle_timeout(at(51)), Due::Ping);
    }

    #[test]
    fn a_ttl_is_obeyed_until_something_is_heard() {
        let mut timers = Timers::new(at(0), SECOND, None);
        timers.begin(at(0), true);
        timers.hear(at(1));
        timers.set_ttl(20);
        assert_eq!(timers.poll_timeout(), Some(at(3)));
        timers.hear(at(2));
        assert_eq!(timers.poll_timeout(), None);
        timers.set_ttl(20);
        assert_eq!(timers.handle_timeout(at(4)), Due::Over(Reason::TtlExpired));
        timers.set_ttl(0);
        assert_eq!(timers.poll_timeout(), None);
    }

    #[test]
    fn who_is_not_read_may_be_silent() {
        let mut timers = timers(2, None);
        assert_eq!(timers.handle_timeout(at(1)), Due::Ping);
        timers.set_ttl(10);
        timers.set_reading(at(1), false);
        assert_eq!(timers.handle_timeout(at(50)), Due::Ping);
        timers.set_reading(at(50), true);
        assert_eq!(timers.poll_timeout(), Some(at(51)));
        assert_eq!(timers.handle_timeout(at(51)), Due::Over(Reason::TtlExpired));
    }

    #[test]
    fn ttls_are_tenths_of_seconds() {
        let heartbeat = |ttl| Heartbeat { interval: SECOND, timeout: Some(SECOND), ttl };
        assert_eq!(heartbeat(None).tenths(), 0);
        assert_eq!(heartbeat(Some(Duration::from_millis(2150))).tenths(), 21);
        assert_eq!(heartbeat(Some(SECOND * 100_000)).tenths(), u16::MAX);
    }
}
