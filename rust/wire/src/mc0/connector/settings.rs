//! The settings and counters of a connector.

use std::time::Duration;

use serde::Serialize;

use crate::{DropCounts, Latencies, SocketOptions};

#[derive(Clone, Debug)]
pub struct ConnectorSettings {
    /// Where middlewares listen. One is dialled at a time; the next if it cannot be reached, is gone or falls silent.
    /// Empty if the user supplies the socket, which is never dialled.
    pub connect: Vec<String>,
    pub options: SocketOptions,
    /// How long either end may be silent, at least a millisecond; `None` for no limit.
    pub ttl: Option<Duration>,
    /// Whether messages have the leading empty frame (MC0-07).
    pub leading_delimiter: bool,
    /// How long an endpoint may take to connect, if there are several.
    pub patience: Duration,
    /// The first delay before dialling again; each further one is twice as long.
    pub reconnect_after: Duration,
    /// The longest such delay.
    pub reconnect_at_most: Duration,
}

impl Default for ConnectorSettings {
    fn default() -> Self {
        Self {
            connect: vec![],
            options: SocketOptions::default(),
            ttl: None,
            leading_delimiter: true,
            patience: Duration::from_millis(2500),
            reconnect_after: Duration::from_millis(100),
            reconnect_at_most: Duration::from_secs(10),
        }
    }
}

/// Counters of a connector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConnectorStats {
    /// Messages received, valid or not.
    pub received: u64,
    /// Messages the transport has taken.
    pub sent: u64,
    /// Dropped messages, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames received.
    pub bytes: u64,
    /// Messages of subscribed topics.
    pub messages: u64,
    pub put: u64,
    /// Messages that the middleware has confirmed.
    pub confirmed: u64,
    /// The time from sending a message to its confirmation.
    pub latency: Latencies,
    /// ERRORs received.
    pub errors: u64,
    /// Connections that were lost or fell silent, and are re-established.
    pub reconnects: u64,
    /// Messages queued or unconfirmed.
    pub queued: u64,
    /// The bytes of their frames, and 64 for each frame.
    pub queued_bytes: u64,
}
