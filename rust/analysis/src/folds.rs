//! All folds, for callers that know the name only at run time.

use std::num::NonZeroU32;

use crate::{
    contents::Contents,
    fold::{Fold, Folding, Kept},
    gaps::Gaps,
    requests::Requests,
    rollout::Rollout,
    room::Room,
    runs::Runs,
    topics::Topics,
};

/// The names of the folds.
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
}

/// The fold of this name.
pub fn folding(name: &str, Options { window_us, json, buckets }: Options) -> Option<Box<dyn Folding>> {
    let room = Room::of(buckets);
    Some(match name {
        Contents::NAME => kept(Contents::in_room(room)),
        Gaps::NAME => kept(Gaps::in_room(room)),
        Requests::NAME => kept(Requests::in_room(room)),
        Rollout::NAME => kept(Rollout::in_room(room)),
        Runs::<false>::NAME if json => kept(Runs::<true>::in_room(room)),
        Runs::<false>::NAME => kept(Runs::<false>::in_room(room)),
        Topics::NAME => kept(Topics::in_room(room, window_us)),
        _ => return None,
    })
}

fn kept<F: Fold + 'static>(fold: F) -> Box<dyn Folding> {
    Box::new(Kept::of(fold))
}
