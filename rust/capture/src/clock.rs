use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The clock of rows: the wall clock at its start, and monotonic time from then on, which never goes back.
#[derive(Clone, Copy, Debug)]
pub struct RowClock {
    wall_ns: i64,
    origin: Instant,
}

impl RowClock {
    /// One that starts now.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall_ns: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX), origin: Instant::now() }
    }

    /// Unix time in nanoseconds.
    pub fn now_ns(&self) -> i64 {
        self.wall_ns.saturating_add(i64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(i64::MAX))
    }
}
