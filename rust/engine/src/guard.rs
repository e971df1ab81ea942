//! Who is let in to the sockets of one context.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use trunkline_wire::zap::{Authenticator, Key, Refused};

use crate::handle::{Handle, Settings, StartError};
use crate::libzmq::{Context, Libzmq, LibzmqTransport};

/// Answers libzmq's questions about CURVE clients (ZAP 1.0), on a thread of its own: a busy role lets nobody wait.
pub struct Guard {
    handle: Arc<Handle<Authenticator>>,
    context: Context,
}

impl Guard {
    /// Lets in the holders of these keys. The sockets to guard live in [`context`](Self::context): a private one, unless
    /// `context` is somebody else's.
    ///
    /// # Errors
    /// When the context has an authenticator already, or cannot be made.
    pub fn start(zmq: &'static Libzmq, context: Context, allowed: HashSet<Key>) -> Result<Self, StartError> {
        let own = match context {
            Context::Borrowed(_) => context,
            Context::Process | Context::Private(_) => Context::private(zmq).map_err(StartError::Transport)?,
        };
        let settings = Settings { name: "trunkline-zap".to_owned(), ..Settings::default() };
        let transport = move || LibzmqTransport::new(zmq, own, vec![]);
        let handle = Handle::start(Authenticator::new(allowed), transport, settings)?;
        Ok(Self { handle: Arc::new(handle), context: own.lent() })
    }

    /// The role that it is: to wait for refusals.
    pub fn handle(&self) -> &Arc<Handle<Authenticator>> {
        &self.handle
    }

    /// Where the sockets to guard must live.
    pub fn context(&self) -> Context {
        self.context
    }

    /// Lets in the holders of these keys from now on; who is in stays in.
    pub fn allow(&self, keys: HashSet<Key>) {
        self.handle.ask(keys);
    }

    /// Who was refused since the last call.
    pub fn read(&self) -> VecDeque<Refused> {
        let mut refused = VecDeque::new();
        self.handle.read(&mut refused);
        refused
    }

    /// How many were refused since the start.
    pub fn refused(&self) -> u64 {
        self.handle.stats().machine
    }

    /// Ends it, and its context; every socket it guards must be closed.
    pub fn end(&self) {
        self.handle.close(Duration::ZERO);
        self.handle.join();
    }
}
