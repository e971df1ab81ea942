//! What a broker answers to those who ask how it is.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::BrokerStats;
use crate::Nanos;

/// The service that a broker offers itself.
pub const STATUS: &[u8] = b"trunkline.status";

/// How long an answer is as good as a new one: who asks without end costs no more than who asks now and then.
const FRESH: Duration = Duration::from_millis(100);

/// The latest answer.
#[derive(Debug, Default)]
pub(super) struct Status(Option<(Nanos, Bytes)>);

impl Status {
    /// The answer as of now, or of a moment ago.
    pub(super) fn at(&mut self, now: Nanos, stats: impl FnOnce() -> BrokerStats) -> Bytes {
        match &self.0 {
            Some((made, text)) if *made + FRESH > now => text.clone(),
            _ => {
                let text = Bytes::from(told(&stats()).to_string());
                self.0 = Some((now, text.clone()));
                text
            }
        }
    }
}

fn told(stats: &BrokerStats) -> Value {
    let services = stats.services.iter().map(|service| {
        json!({
            "service": String::from_utf8_lossy(&service.service),
            "queued": service.queued,
            "workers": service.workers,
            "free": service.free,
            "requests": service.requests,
            "replies": service.replies,
            "expired": service.expired,
        })
    });
    json!({
        "received": stats.received,
        "sent": stats.sent,
        "dropped": stats.dropped,
        "peers": stats.peers,
        "queued": stats.queued,
        "lost": stats.lost,
        "services": services.collect::<Vec<_>>(),
    })
}
