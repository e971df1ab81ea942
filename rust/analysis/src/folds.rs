//! The folds there are, for those who know which one at run time only.

use crate::{
    contents::Contents,
    fold::{Fold, Folding},
    gaps::Gaps,
    requests::Requests,
    rollout::Rollout,
    topics::Topics,
};

/// What each fold is called.
pub const NAMES: [&str; 5] = [Gaps::NAME, Requests::NAME, Topics::NAME, Contents::NAME, Rollout::NAME];

/// The fold of this name; the windows of topics take so many microseconds.
pub fn folding(name: &str, window_us: i64) -> Option<Box<dyn Folding>> {
    Some(match name {
        Contents::NAME => Box::<Contents>::default(),
        Gaps::NAME => Box::<Gaps>::default(),
        Requests::NAME => Box::<Requests>::default(),
        Rollout::NAME => Box::<Rollout>::default(),
        Topics::NAME => Box::new(Topics::new(window_us)),
        _ => return None,
    })
}
