//! The folds there are, for those who know which one at run time only.

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

/// What each fold is called.
pub const NAMES: [&str; 6] =
    [Runs::<false>::NAME, Gaps::NAME, Requests::NAME, Topics::NAME, Contents::NAME, Rollout::NAME];

/// What some folds can be asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long the windows of topics are, in microseconds.
    pub window_us: i64,
    /// Whether maps are JSON text, rather than VARIANTs.
    pub json: bool,
    /// It is of one of so many buckets of a stream: it keeps a share of what is open, and gives what is settled in any order.
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
