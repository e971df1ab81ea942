//! Which rejected delivery of equal contents each of their dead letters is of.

use std::{
    collections::{BinaryHeap, HashSet},
    mem,
    num::NonZeroU32,
};

use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};

use crate::{
    delivered::Delivered,
    ordered::{Id, Ordered},
};

/// How many dead letters of equal contents may be paired anew.
const DEAD_LETTERS: usize = 1 << 8;

/// What is known of equal contents, of one resource and direction. It is kept of every content: of most no more than a
/// number, so that all else has a box.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Fields", into = "Fields")]
pub(crate) struct Known {
    /// The number of the last delivery; None if contents were forgotten before it.
    pub(crate) attempts: Option<NonZeroU32>,
    /// How many may still be settled: also before a dead letter, where the answer to a lease comes late.
    pub(crate) open: u32,
    rejections: Option<Box<Rejections>>,
}

/// The fields of a state.
#[derive(Serialize, Deserialize)]
struct Fields {
    attempts: Option<NonZeroU32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rejected: Vec<Id>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dead: Vec<(i64, Option<Id>)>,
    #[serde(default)]
    open: u32,
}

impl From<Fields> for Known {
    fn from(Fields { attempts, rejected, dead, open }: Fields) -> Self {
        Self { attempts, open, rejections: Rejections { rejected, dead }.boxed() }
    }
}

impl From<Known> for Fields {
    fn from(Known { attempts, open, rejections }: Known) -> Self {
        let Rejections { rejected, dead } = rejections.map_or_else(Rejections::default, |rejections| *rejections);
        Self { attempts, rejected, dead, open }
    }
}

impl Known {
    /// Notes a rejected delivery.
    pub(crate) fn reject(&mut self, id: Id) {
        self.rejections.get_or_insert_default().rejected.push(id);
    }

    /// Notes a dead letter, which is to be paired.
    pub(crate) fn bury(&mut self, seq: i64) {
        self.rejections.get_or_insert_default().dead.push((seq, None));
    }

    pub(crate) fn has_dead_letters(&self) -> bool {
        self.rejections.as_ref().is_some_and(|rejections| !rejections.dead.is_empty())
    }

    /// A delivery is not rejected any more.
    pub(crate) fn take_back(&mut self, id: Id) {
        let mut rejections = mem::take(&mut self.rejections).unwrap_or_default();
        rejections.take_back(id);
        self.rejections = rejections.boxed();
    }

    /// Pairs dead letters each with the latest delivery that was rejected before it, and has none. Gives how many, from
    /// `first` on, are of deliveries that had left.
    pub(crate) fn pair(&mut self, first: i64, delivered: &mut Ordered<Delivered>, changed: &mut Vec<Id>) -> u64 {
        let mut rejections = mem::take(&mut self.rejections).unwrap_or_default();
        let is_lost = rejections.pair(delivered, changed);
        let lost = rejections.dead.iter().filter(|(seq, of)| is_lost && of.is_none() && *seq >= first).count();
        rejections.end(delivered, if self.open == 0 { 0 } else { DEAD_LETTERS });
        self.rejections = rejections.boxed();
        lost as u64
    }

    /// All dead letters stay with the deliveries that they are paired with: gives the rejected ones without.
    pub(crate) fn end(self, delivered: &mut Ordered<Delivered>) -> Vec<Id> {
        let mut rejections = self.rejections.unwrap_or_default();
        rejections.end(delivered, 0);
        rejections.rejected
    }
}

/// The deliveries of equal contents that were rejected, and their dead letters.
#[derive(Clone, Debug, Default)]
struct Rejections {
    /// Rejected deliveries, each of which may become a dead letter.
    rejected: Vec<Id>,
    /// The dead letters, each with the delivery that ended as it: as long as that may change.
    dead: Vec<(i64, Option<Id>)>,
}

impl Rejections {
    /// None if there are none.
    fn boxed(self) -> Option<Box<Self>> {
        (!self.rejected.is_empty() || !self.dead.is_empty()).then(|| Box::new(self))
    }

    fn take_back(&mut self, id: Id) {
        self.rejected.retain(|rejected| *rejected != id);
        for (_, of) in self.dead.iter_mut().filter(|(_, of)| *of == Some(id)) {
            *of = None;
        }
    }

    /// Pairs them anew; gives whether some rejected deliveries had left.
    fn pair(&mut self, delivered: &mut Ordered<Delivered>, changed: &mut Vec<Id>) -> bool {
        let rejected = self.rejected.len();
        self.rejected.retain(|id| delivered.get(*id).is_some());
        // A delivery that has left keeps its dead letter.
        self.dead.retain(|(_, of)| of.is_none_or(|id| delivered.get(id).is_some()));
        self.dead.sort_unstable_by_key(|(seq, _)| *seq);
        let mut rejections = Vec::new();
        for id in &self.rejected {
            if let Some(Delivered { content, .. }) = delivered.get(*id) {
                rejections.push((content.settled.map(|settled| settled.seq), content.seq, *id));
            }
        }
        rejections.sort_unstable();
        let mut rejections = rejections.into_iter().peekable();
        let (mut latest, mut dead) = (BinaryHeap::new(), HashSet::<Id, RandomState>::default());
        for (seq, of) in &mut self.dead {
            while let Some((_, sent, id)) = rejections.next_if(|(settled, ..)| *settled < Some(*seq)) {
                latest.push((sent, id));
            }
            *of = latest.pop().map(|(_, id)| id);
            dead.extend(*of);
        }
        for id in &self.rejected {
            if delivered.get(*id).is_some_and(|delivery| delivery.make_dead(dead.contains(id))) {
                changed.push(*id);
            }
        }
        rejected > self.rejected.len()
    }

    /// All dead letters but the latest stay with the deliveries that they are paired with.
    fn end(&mut self, delivered: &mut Ordered<Delivered>, latest: usize) {
        let ended = self.dead.len().saturating_sub(latest);
        let dead: HashSet<Id, RandomState> = self.dead.drain(..ended).filter_map(|(_, of)| of).collect();
        self.rejected.retain(|id| !dead.contains(id));
        for id in dead {
            delivered.complete(id);
        }
    }
}
