//! How a connector is set up, and what it counts.

use std::time::Duration;

use serde::Serialize;

use crate::{DropCounts, Latencies, SocketOptions};

/// How a connector is set up.
#[derive(Clone, Debug)]
pub struct ConnectorSettings {
    /// Where middlewares listen. One is dialled at a time, the next one when it cannot be reached, is gone or falls silent.
    /// None where the socket is the user's: that is not dialled at all.
    pub connect: Vec<String>,
    /// What is set on the socket.
    pub options: SocketOptions,
    /// How long either end may be silent, a millisecond at least; for ever where there is none.
    pub ttl: Option<Duration>,
    /// Whether an empty frame leads what is sent (MC0-07).
    pub leading_delimiter: bool,
    /// How long an endpoint may take to connect, where there are several.
    pub patience: Duration,
    /// How long to wait before dialling again, at first; twice as long each further time.
    pub reconnect_after: Duration,
    /// The longest such wait.
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
    /// Whole messages off the socket.
    pub received: u64,
    /// Messages the transport has taken.
    pub sent: u64,
    /// Those that came and are no use, by kind.
    pub dropped: DropCounts,
    /// Bytes of all frames that came.
    pub bytes: u64,
    /// Messages of subscribed topics.
    pub messages: u64,
    /// Messages put.
    pub put: u64,
    /// Those that the middleware has confirmed.
    pub confirmed: u64,
    /// From when the transport took a message to its confirmation.
    pub latency: Latencies,
    /// ERRORs that came.
    pub errors: u64,
    /// Connections that were lost, or fell silent, and are made anew.
    pub reconnects: u64,
    /// What waits to be sent, or to be confirmed.
    pub queued: u64,
    /// Its frames' bytes, and 64 for each frame.
    pub queued_bytes: u64,
}
