//! One delivery of a content, as a row has it.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::{
    ordered::Weigh,
    settlements::{Content, Fate},
    table::Cell,
};

/// One delivery of a content.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delivered {
    pub(crate) content: Content,
    /// Which one it is; None if what had to be known for that had made way.
    attempts: Option<NonZeroU32>,
    is_dead: bool,
    /// Whether it was emitted as it is.
    pub(crate) is_emitted: bool,
}

impl Weigh for Delivered {
    fn weight(&self) -> usize {
        self.content.weight() + 16
    }
}

impl Delivered {
    pub(crate) const fn of(content: Content, attempts: Option<NonZeroU32>) -> Self {
        Self { content, attempts, is_dead: false, is_emitted: false }
    }

    /// Its fate; None if it is open, or its dead letter is another content.
    pub(crate) fn fate(&self) -> Option<Fate> {
        self.content.settled.map(|settled| settled.fate).filter(|_| !self.is_dead)
    }

    /// Makes it one that ended as a dead letter, or none any more; whether it was another.
    pub(crate) fn make_dead(&mut self, is_dead: bool) -> bool {
        let is_other = self.is_dead != is_dead;
        self.is_dead = is_dead;
        self.is_emitted &= !is_other;
        is_other
    }

    /// Whether it ended as a dead letter.
    pub(crate) const fn is_dead(&self) -> bool {
        self.is_dead
    }

    pub(crate) fn latency_ns(&self) -> Option<i64> {
        self.content.settled.map(|settled| settled.at_ns.saturating_sub(self.content.at_ns))
    }

    pub(crate) fn cells(self) -> Vec<Cell> {
        let (latency, fate) = (self.latency_ns(), self.fate());
        let Self { content, attempts, is_dead, .. } = self;
        let settled = content.settled;
        let fate = match fate {
            _ if is_dead => "dead_lettered",
            None if content.is_evicted => "evicted",
            None => "open",
            Some(fate) => fate.name(),
        };
        vec![
            content.capture_id.into(),
            content.endpoint.into(),
            content.peer.into(),
            Cell::Word(if content.is_out { "out" } else { "in" }),
            content.resource.into(),
            content.sequence.map_or(Cell::Null, Cell::Decimal),
            content.body_bytes.into(),
            Cell::Flag(content.is_redelivered),
            attempts.map(|attempts| i64::from(attempts.get())).into(),
            Cell::Word(fate),
            settled.and_then(|settled| settled.status).map(i64::from).into(),
            latency.into(),
            content.seq.into(),
            settled.map(|settled| settled.seq).into(),
            content.at_ns.into(),
            settled.map(|settled| settled.at_ns).into(),
        ]
    }
}
