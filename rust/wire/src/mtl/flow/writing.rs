//! Contents to send, until they are settled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::mtl::{REDELIVERED, table};
use crate::{Backlog, FRAME_COST, Latencies, Nanos};

/// A content to send.
#[derive(Clone, Debug)]
pub(super) struct Mine {
    /// When the user sent it.
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
    /// Its number among all contents.
    ordinal: u64,
    mine: Mine,
}

/// Contents, in their order.
#[derive(Debug)]
pub(super) struct Writing {
    is_confirmed: bool,
    /// Contents not sent on this connection, each with its ordinal.
    waiting: VecDeque<(u64, Mine)>,
    /// Contents sent, but not settled; without confirmations, until the transport has taken them.
    open: VecDeque<Open>,
    /// How many were accepted so far.
    count: u64,
    bytes: usize,
    /// How many were sent unconfirmed on this connection, and how many of them a Pong has shown to have arrived.
    left: u64,
    proved: u64,
    /// For each pending Ping, how many were sent before it.
    pings: VecDeque<u64>,
    /// Whether contents sent unconfirmed count as pending until a Pong follows them.
    is_flushing: bool,
    /// Unconfirmed contents by their sequence, so that a refusal finds its ordinal.
    recent: VecDeque<(u64, u64)>,
    /// How long the last contents took until they were settled.
    pub(super) times: Arc<VecDeque<Duration>>,
    /// How long all of them took.
    pub(super) latency: Latencies,
}

/// Refusals find the ordinal of an unconfirmed content for this many after it, and this many times are kept.
const RECENT: usize = 10_000;

impl Writing {
    pub(super) fn new(is_confirmed: bool) -> Self {
        Self {
            is_confirmed,
            waiting: VecDeque::new(),
            open: VecDeque::new(),
            count: 0,
            bytes: 0,
            left: 0,
            proved: 0,
            pings: VecDeque::new(),
            is_flushing: false,
            recent: VecDeque::new(),
            times: Arc::default(),
            latency: Latencies::default(),
        }
    }

    pub(super) fn push(&mut self, now: Nanos, resource: String, properties: Bytes, body: Bytes) {
        let mine = Mine { since: now, resource, properties, body };
        self.count += 1;
        self.bytes += mine.cost();
        self.waiting.push_back((self.count, mine));
    }

    /// The next content, to be sent with this sequence, if the window has room.
    pub(super) fn take(&mut self, window: usize, sequence: u64) -> Option<&Mine> {
        if self.is_confirmed && self.open.len() >= window {
            return None;
        }
        let (ordinal, mine) = self.waiting.pop_front()?;
        self.open.push_back(Open { sequence, ordinal, mine });
        self.open.back().map(|open| &open.mine)
    }

    /// The transport has taken the first content of those offered.
    pub(super) fn sent(&mut self) {
        if self.is_confirmed {
            return;
        }
        if let Some(open) = self.open.pop_front() {
            self.bytes -= open.mine.cost();
            self.left += 1;
            self.recent.push_back((open.sequence, open.ordinal));
            if self.recent.len() > RECENT {
                self.recent.pop_front();
            }
        }
    }

    /// The server settles this content, or all up to it. Returns their ordinals.
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

    /// Whether this is a content that awaits its confirmation.
    pub(super) fn is_unconfirmed(&self, sequence: u64) -> bool {
        self.is_confirmed && self.open.binary_search_by_key(&sequence, |open| open.sequence).is_ok()
    }

    fn measure(&mut self, time: Duration) {
        self.latency.add(time);
        // Copied only while a snapshot of the counters is held.
        let times = Arc::make_mut(&mut self.times);
        times.push_back(time);
        if times.len() > RECENT {
            times.pop_front();
        }
    }

    /// A Ping was sent.
    pub(super) fn asked(&mut self) {
        self.pings.push_back(self.left);
    }

    /// The first Ping was answered: all contents before it have arrived, and any refusals of them came before the Pong.
    pub(super) fn proved(&mut self) {
        self.proved = self.pings.pop_front().unwrap_or(self.proved);
        self.is_flushing &= !self.is_idle();
    }

    /// Counts contents sent unconfirmed as pending until they are known to have arrived.
    pub(super) fn flush(&mut self) {
        self.is_flushing = !self.is_confirmed;
        self.is_flushing &= !self.is_idle();
    }

    /// Whether a Ping is due: all contents are sent, and no Ping followed the last.
    pub(super) fn wants_ping(&self) -> bool {
        let asked = self.pings.back().copied().unwrap_or(self.proved);
        self.is_flushing && self.waiting.is_empty() && self.open.is_empty() && asked < self.left
    }

    /// How many were sent unconfirmed, and may not have arrived.
    pub(super) fn unproved(&self) -> u64 {
        self.left - self.proved
    }

    /// The connection is lost: unsettled contents are sent again. Returns how many unconfirmed ones may be lost.
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
        let unproved = self.unproved();
        (self.left, self.proved) = (0, 0);
        self.pings.clear();
        unproved
    }

    pub(super) fn is_idle(&self) -> bool {
        self.backlog().messages == 0
    }

    pub(super) fn backlog(&self) -> Backlog {
        let unproved = if self.is_flushing { usize::try_from(self.unproved()).unwrap_or(usize::MAX) } else { 0 };
        Backlog { messages: self.waiting.len() + self.open.len() + unproved, bytes: self.bytes }
    }
}
