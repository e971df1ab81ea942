//! Contents on their way out, until they are settled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::mtl::{REDELIVERED, table};
use crate::{Backlog, FRAME_COST, Nanos};

/// A content to send.
#[derive(Clone, Debug)]
pub(super) struct Mine {
    /// When it was given.
    since: Nanos,
    pub(super) resource: String,
    pub(super) properties: Bytes,
    pub(super) body: Bytes,
}

impl Mine {
    fn cost(&self) -> usize {
        self.resource.len() + self.properties.len() + self.body.len() + 2 * FRAME_COST
    }
}

/// A content that was sent.
#[derive(Debug)]
struct Open {
    sequence: u64,
    /// The how manieth it is of all.
    ordinal: u64,
    mine: Mine,
}

/// Contents, in their order.
#[derive(Debug)]
pub(super) struct Writing {
    is_confirmed: bool,
    /// Those that were not sent on this connection, each with its ordinal.
    waiting: VecDeque<(u64, Mine)>,
    /// Those that were, and are not settled; where nothing is confirmed, until the transport has them.
    open: VecDeque<Open>,
    /// How many were given so far.
    count: u64,
    bytes: usize,
    /// What left on this connection without anything showing that it arrived, and how much of it before a Ping.
    unproved: u64,
    before_ping: u64,
    /// Pings that have no answer.
    pings: u64,
    /// Unconfirmed contents by their sequence, so that a refusal finds its ordinal.
    recent: VecDeque<(u64, u64)>,
    /// How long the last ones took from when they were given until they were settled.
    pub(super) times: Arc<VecDeque<Duration>>,
}

/// Refusals of unconfirmed contents are told by ordinal for so many after they left, and times of so many are kept.
const RECENT: usize = 10_000;

impl Writing {
    pub(super) fn new(is_confirmed: bool) -> Self {
        Self {
            is_confirmed,
            waiting: VecDeque::new(),
            open: VecDeque::new(),
            count: 0,
            bytes: 0,
            unproved: 0,
            before_ping: 0,
            pings: 0,
            recent: VecDeque::new(),
            times: Arc::default(),
        }
    }

    pub(super) fn push(&mut self, now: Nanos, resource: String, properties: Bytes, body: Bytes) {
        let mine = Mine { since: now, resource, properties, body };
        self.count += 1;
        self.bytes += mine.cost();
        self.waiting.push_back((self.count, mine));
    }

    /// The next one, which goes with this sequence, if the window has room for it.
    pub(super) fn take(&mut self, window: usize, sequence: u64) -> Option<&Mine> {
        if self.is_confirmed && self.open.len() >= window {
            return None;
        }
        let (ordinal, mine) = self.waiting.pop_front()?;
        self.open.push_back(Open { sequence, ordinal, mine });
        self.open.back().map(|open| &open.mine)
    }

    /// The transport has taken the first of those it was asked to.
    pub(super) fn sent(&mut self) {
        if self.is_confirmed {
            return;
        }
        if let Some(open) = self.open.pop_front() {
            self.bytes -= open.mine.cost();
            self.unproved += 1;
            self.recent.push_back((open.sequence, open.ordinal));
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
    }

    /// The server says what became of this one, or of all up to it: their ordinals.
    pub(super) fn settle(&mut self, now: Nanos, sequence: u64, multiple: bool) -> Vec<u64> {
        if !self.is_confirmed {
            let at = self.recent.binary_search_by_key(&sequence, |(sequence, _)| *sequence);
            return at.ok().and_then(|at| self.recent.get(at)).map(|(_, ordinal)| *ordinal).into_iter().collect();
        }
        if multiple {
            let count = self.open.partition_point(|open| open.sequence <= sequence);
            let settled: Vec<_> = self.open.drain(..count).collect();
            for open in &settled {
                self.bytes -= open.mine.cost();
                self.measure(now - open.mine.since);
            }
            return settled.into_iter().map(|open| open.ordinal).collect();
        }
        let at = self.open.binary_search_by_key(&sequence, |open| open.sequence);
        let Some(open) = at.ok().and_then(|at| self.open.remove(at)) else { return vec![] };
        self.bytes -= open.mine.cost();
        self.measure(now - open.mine.since);
        vec![open.ordinal]
    }

    /// Whether this is a content that waits to be confirmed.
    pub(super) fn is_unconfirmed(&self, sequence: u64) -> bool {
        self.is_confirmed && self.open.binary_search_by_key(&sequence, |open| open.sequence).is_ok()
    }

    fn measure(&mut self, time: Duration) {
        // Copied only where somebody looks at them just now.
        let times = Arc::make_mut(&mut self.times);
        times.push_back(time);
        if times.len() > RECENT {
            times.pop_front();
        }
    }

    /// A Ping was said.
    pub(super) fn asked(&mut self) {
        // The next Pong answers the first of them.
        if self.pings == 0 {
            self.before_ping = self.unproved;
        }
        self.pings += 1;
    }

    /// It was answered: what went before it has arrived.
    pub(super) fn proved(&mut self) {
        self.pings = self.pings.saturating_sub(1);
        self.unproved -= std::mem::take(&mut self.before_ping);
    }

    /// The connection is lost: what is not settled goes again. Gives how many went unconfirmed of which nobody knows.
    pub(super) fn lose(&mut self) -> u64 {
        for Open { ordinal, mut mine, .. } in std::mem::take(&mut self.open).into_iter().rev() {
            if self.is_confirmed {
                self.bytes -= mine.cost();
                mine.properties = table::with_flag(&mine.properties, REDELIVERED);
                self.bytes += mine.cost();
            }
            self.waiting.push_front((ordinal, mine));
        }
        self.recent.clear();
        (self.before_ping, self.pings) = (0, 0);
        std::mem::take(&mut self.unproved)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.open.is_empty()
    }

    pub(super) fn backlog(&self) -> Backlog {
        Backlog { messages: self.waiting.len() + self.open.len(), bytes: self.bytes }
    }
}
