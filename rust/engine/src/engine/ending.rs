//! The end of a transport, which may have to wait for peers that read slowly.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use trunkline_wire::{Machine, Nanos};

use super::MARGIN;
use crate::shared::{Order, Shared};
use crate::transport;

/// How long a transport may take to end when it has nothing more to send.
const PARTING: Duration = Duration::from_secs(1);

/// A transport that ends, on a thread of its own: the wait for it can be given up.
pub(super) struct Ending(Arc<OnceLock<Over>>);

struct Over {
    at: Instant,
    /// Whether all was sent, where that is known.
    all_sent: Option<bool>,
}

impl Ending {
    /// Begins to wait; wakes the engine when the transport has ended.
    pub(super) fn start<M: Machine + Send + 'static>(ending: transport::Ending, shared: &Arc<Shared<M>>) -> Self {
        let over = Arc::new(OnceLock::new());
        let (ended, shared) = (Arc::clone(&over), Arc::clone(shared));
        let wait = move || {
            let all_sent = ending();
            // Only this thread sets it.
            let _ = ended.set(Over { at: Instant::now(), all_sent });
            shared.engine.notify();
        };
        // Without a thread the end stays unknown, as if it came too late.
        let _ = thread::Builder::new().name("trunkline-close".to_owned()).spawn(wait);
        Self(over)
    }

    /// Waits until the transport has ended, at most until what its sockets had taken must be sent. Gives whether all was
    /// sent.
    pub(super) fn wait<M: Machine>(&self, shared: &Shared<M>, origin: Instant, lingers: Option<Nanos>) -> bool {
        let now = || Nanos(0) + origin.elapsed();
        let lingers = lingers.map(|until| until + MARGIN / 2);
        // Another role needs the endpoints that are listened on.
        let mut until = lingers.max(Some(now() + PARTING)).unwrap_or_default();
        let (mut verbs, mut orders) = (vec![], vec![]);
        while self.0.get().is_none() && now() < until {
            let ready = || self.0.get().is_some() || !shared.is_outbox_empty();
            shared.engine.wait(ready, Some(until - now()));
            let handed = shared.take_outbox(&mut verbs, &mut orders);
            verbs.clear();
            for order in orders.drain(..) {
                if let Order::Close(grace) = order {
                    until = until.min(now() + grace);
                }
            }
            shared.settle(handed);
        }
        // If the transport does not know whether all was sent, a late end counts as given up.
        let is_in_time = |at: Instant| lingers.is_none_or(|until| Nanos(0) + (at - origin) <= until);
        self.0.get().is_some_and(|over| over.all_sent.unwrap_or_else(|| is_in_time(over.at)))
    }
}
