//! Heartbeats: whether the other end of a data connection is alive (MTL-56 … MTL-58).

use std::time::Duration;

use crate::Nanos;

/// The settings of heartbeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pings {
    /// The silence after which a Ping is sent.
    pub interval: Duration,
    /// The number of silent intervals after which the other end is considered gone; the first is the one before the
    /// Ping.
    pub liveness: u32,
}

impl Default for Pings {
    fn default() -> Self {
        Self { interval: Duration::from_millis(2500), liveness: 3 }
    }
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    Nothing,
    /// Send a Ping: nothing was sent for an interval.
    Ping,
    /// The other end is gone: nothing arrived since the first Ping.
    Dead,
}

/// One end's view of the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heartbeat {
    pings: Pings,
    spoke: Nanos,
    /// The first Ping since the last received message.
    asked: Option<Nanos>,
}

impl Heartbeat {
    pub(super) fn new(now: Nanos, pings: Pings) -> Self {
        Self { pings, spoke: now, asked: None }
    }

    /// A message was received, of any kind.
    pub(super) fn heard(&mut self) {
        self.asked = None;
    }

    /// A message was sent.
    pub(super) fn spoke(&mut self, now: Nanos) {
        self.spoke = now;
    }

    fn patience(&self) -> Duration {
        self.pings.interval * self.pings.liveness.saturating_sub(1).max(1)
    }

    /// When to look again.
    pub(super) fn due(&self) -> Nanos {
        let ping = self.spoke + self.pings.interval;
        self.asked.map_or(ping, |asked| ping.min(asked + self.patience()))
    }

    /// What to do now; the caller is assumed to do it.
    pub(super) fn beat(&mut self, now: Nanos) -> Beat {
        if let Some(asked) = self.asked
            && now >= asked + self.patience()
        {
            // A process that was suspended cannot know whether its peer was: it pings once more.
            if now < asked + self.patience() + self.pings.interval {
                return Beat::Dead;
            }
            self.asked = None;
        } else if now < self.spoke + self.pings.interval {
            return Beat::Nothing;
        }
        self.spoke = now;
        self.asked.get_or_insert(now);
        Beat::Ping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);

    fn beats(heartbeat: &mut Heartbeat, until: u64) -> Vec<(u64, Beat)> {
        let mut seen = vec![];
        loop {
            let due = heartbeat.due();
            if due.0 > until * 1_000_000 {
                return seen;
            }
            seen.push((due.0 / 1_000_000, heartbeat.beat(due)));
        }
    }

    #[test] // req: MTL-57, MTL-58
    fn silence_is_asked_about_and_given_up() {
        let mut heartbeat = Heartbeat::new(Nanos(0), Pings { interval: TENTH, liveness: 3 });
        assert_eq!(heartbeat.beat(Nanos(99_999_999)), Beat::Nothing);
        assert_eq!(beats(&mut heartbeat, 250), [(100, Beat::Ping), (200, Beat::Ping)]);
        assert_eq!(heartbeat.beat(Nanos(0) + 3 * TENTH), Beat::Dead);
        heartbeat.heard();
        assert_eq!(heartbeat.beat(Nanos(0) + 3 * TENTH), Beat::Ping);
    }

    #[test] // req: MTL-57
    fn who_speaks_does_not_ask() {
        let mut heartbeat = Heartbeat::new(Nanos(0), Pings { interval: TENTH, liveness: 3 });
        for step in 1..100 {
            let now = Nanos(0) + step * TENTH / 2;
            heartbeat.spoke(now);
            assert_eq!(heartbeat.beat(now), Beat::Nothing);
        }
    }

    #[test] // req: MTL-58
    fn who_slept_asks_once_more() {
        let mut heartbeat = Heartbeat::new(Nanos(0), Pings { interval: TENTH, liveness: 3 });
        assert_eq!(heartbeat.beat(Nanos(0) + TENTH), Beat::Ping);
        let late = Nanos(0) + 600 * TENTH;
        assert_eq!(heartbeat.beat(late), Beat::Ping);
        assert_eq!(heartbeat.beat(late + 2 * TENTH), Beat::Dead);
    }
}
