//! All folds, for callers that know the name only at run time.

use std::num::{NonZeroU32, NonZeroU64};

use crate::{
    budget::Budget,
    contents::Contents,
    deliveries::Deliveries,
    fold::{Emitter, Fold, Folding},
    gaps::Gaps,
    requests::Requests,
    rollout::Rollout,
    runs::Runs,
    settlements::Settlements,
    topics::Topics,
};

/// The names of the tables.
pub const NAMES: [&str; 6] =
    [Runs::<false>::NAME, Gaps::NAME, Requests::NAME, Topics::NAME, Contents::NAME, Rollout::NAME];

/// Options of some folds.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The length of the windows of topics, in microseconds.
    pub window_us: i64,
    /// Whether maps are JSON text, rather than VARIANTs.
    pub json: bool,
    /// The number of buckets of a stream, if the fold has one of them: it keeps a share of what is open, and gives what
    /// is settled in any order.
    pub buckets: Option<NonZeroU32>,
    /// Whether these are numbered by the partitions of the stream.
    pub is_spread: bool,
    /// How many bytes it may keep; if None 256 MiB, of a bucket its share.
    pub bytes: Option<NonZeroU64>,
}

/// The fold of this name: of a table, or one of its steps.
pub fn folding(name: &str, options: Options) -> Option<Box<dyn Folding>> {
    let Options { window_us, json, buckets, is_spread, bytes } = options;
    let (stream, budget) = ((buckets, is_spread), Budget::of(bytes, buckets));
    Some(match name {
        Contents::NAME => kept(Contents::within(budget), stream, budget),
        Deliveries::NAME => kept(Deliveries::within(budget), stream, budget),
        Gaps::NAME => kept(Gaps::within(budget), stream, budget),
        Requests::NAME => kept(Requests::within(budget), stream, budget),
        Rollout::NAME => kept(Rollout::within(budget), stream, budget),
        Runs::<false>::NAME if json => kept(Runs::<true>::within(budget), stream, budget),
        Runs::<false>::NAME => kept(Runs::<false>::within(budget), stream, budget),
        Settlements::NAME => kept(Settlements::within(budget), stream, budget),
        Topics::NAME => kept(Topics::within(budget, window_us), stream, budget),
        _ => return None,
    })
}

fn kept<F: Fold + 'static>(fold: F, stream: (Option<NonZeroU32>, bool), budget: Budget) -> Box<dyn Folding> {
    Box::new(Emitter::of(fold, stream, budget))
}
