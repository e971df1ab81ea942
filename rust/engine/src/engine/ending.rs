//! The end of a transport, which may have to wait for peers that read slowly.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use trunkline_wire::Machine;

use crate::shared::Shared;
use crate::transport;

/// A transport that ends, on a thread of its own: the wait for it can be given up.
pub(super) struct Ending(Arc<OnceLock<Over>>);

/// How it ended.
#[derive(Clone, Copy)]
pub(super) struct Over {
    pub(super) at: Instant,
    /// Whether all was sent, where that is known.
    pub(super) all_sent: Option<bool>,
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

    /// How it ended, once it has.
    pub(super) fn over(&self) -> Option<Over> {
        self.0.get().copied()
    }
}
