//! How long to wait before a server is connected to again.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(8);

/// The failed attempts since the last useful one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retries(u32);

impl Retries {
    /// Whether nothing has failed yet.
    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    /// How long to wait now: twice as long each time.
    pub(super) fn wait(&mut self) -> Duration {
        let wait = (FIRST * (1 << self.0.min(10))).min(LONGEST);
        self.0 = self.0.saturating_add(1);
        wait
    }
}
