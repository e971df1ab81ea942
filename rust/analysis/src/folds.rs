//! The folds there are, for those who know which one at run time only.

use crate::{
    contents::Contents,
    fold::{Fold, Folding},
    gaps::Gaps,
    requests::Requests,
    rollout::Rollout,
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
}

/// The fold of this name.
pub fn folding(name: &str, Options { window_us, json }: Options) -> Option<Box<dyn Folding>> {
    Some(match name {
        Contents::NAME => Box::<Contents>::default(),
        Gaps::NAME => Box::<Gaps>::default(),
        Requests::NAME => Box::<Requests>::default(),
        Rollout::NAME => Box::<Rollout>::default(),
        Runs::<false>::NAME if json => Box::<Runs<true>>::default(),
        Runs::<false>::NAME => Box::<Runs<false>>::default(),
        Topics::NAME => Box::new(Topics::new(window_us)),
        _ => return None,
    })
}
