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
    /// How many bytes it may keep; if None 256 MiB, of a bucket its share.
    pub bytes: Option<NonZeroU64>,
}

/// The fold of this name: of a table, or one of its steps.
pub fn folding(name: &str, options: Options) -> Option<Box<dyn Folding>> {
    let Options { window_us, json, buckets, bytes } = options;
    let budget = Budget::of(bytes, buckets);
    Some(match name {
        Contents::NAME => kept(Contents::within(budget), buckets, budget),
        Deliveries::NAME => kept(Deliveries::within(budget), buckets, budget),
        Gaps::NAME => kept(Gaps::within(budget), buckets, budget),
        Requests::NAME => kept(Requests::within(budget), buckets, budget),
        Rollout::NAME => kept(Rollout::within(budget), buckets, budget),
        Runs::<false>::NAME if json => kept(Runs::<true>::within(budget), buckets, budget),
        Runs::<false>::NAME => kept(Runs::<false>::within(budget), buckets, budget),
        Settlements::NAME => kept(Settlements::within(budget), buckets, budget),
        Topics::NAME => kept(Topics::within(budget, window_us), buckets, budget),
        _ => return None,
    })
}

fn kept<F: Fold + 'static>(fold: F, buckets: Option<NonZeroU32>, budget: Budget) -> Box<dyn Folding> {
    Box::new(Emitter::of(fold, buckets, budget))
}
