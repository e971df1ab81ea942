//! Admission of clients to the sockets of one context.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use trunkline_wire::question::Token;
use trunkline_wire::zap::{Allowed, Authenticator, Rule, ZapEvent, ZapVerb};

use crate::handle::{Handle, Hold, Running, Settings};
use crate::libzmq::{Connections, Context, Libzmq, LibzmqTransport};
use crate::settings::StartError;
use crate::sink::Queued;
use crate::transport::{Transport, TransportError};
use crate::zmtp::{Admission, Asking};

/// Answers a transport's questions about CURVE clients (ZAP 1.0), on its own thread: clients do not wait for a busy
/// role.
pub struct Guard {
    handle: Arc<Handle<Authenticator>>,
    /// Where a transport of ours asks.
    admission: Option<Arc<Admission>>,
}

impl Guard {
    /// Admits clients by `rule` at the sockets of this context. The guard ends with the context.
    ///
    /// # Errors
    /// When the context has an authenticator already.
    pub fn start(zmq: &'static Libzmq, context: Context, rule: Rule) -> Result<Self, StartError> {
        let transport = move || Ok(LibzmqTransport::new(zmq, context.borrowed(), vec![], Connections::default()));
        Self::over(transport, rule, None)
    }

    /// Admits clients by `rule`, where `admission` asks.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn asked_by(admission: Arc<Admission>, rule: Rule) -> Result<Self, StartError> {
        let asked = Arc::clone(&admission);
        Self::over(move || Ok(Asking::new(asked)), rule, Some(admission))
    }

    fn over<T: Transport>(
        transport: impl FnOnce() -> Result<T, TransportError> + Send + 'static,
        rule: Rule,
        admission: Option<Arc<Admission>>,
    ) -> Result<Self, StartError> {
        let settings = Settings { name: "trunkline-zap".to_owned(), ..Settings::default() };
        let handle = Handle::start(Authenticator::new(rule), transport, Queued, settings)?;
        Ok(Self { handle: Arc::new(handle), admission })
    }

    /// Its role, to wait for its events.
    pub fn handle(&self) -> &Arc<Handle<Authenticator>> {
        &self.handle
    }

    /// Admits the holders of these keys from now on, and cuts off the others. Over libzmq connected clients stay: it
    /// has no way to close the connection of one.
    pub fn allow(&self, allowed: Allowed) {
        if let Some(admission) = &self.admission {
            admission.change(Some(Arc::new(allowed.clone())));
        }
        self.handle.ask(ZapVerb::Allow(allowed));
    }

    /// Asks about the connected clients again, and cuts off those that are refused; not over libzmq.
    pub fn ask_again(&self) {
        if let Some(admission) = &self.admission {
            admission.change(None);
        }
    }

    /// Answers a question: with the client's name if it is admitted.
    pub fn answer(&self, token: Token, name: Option<String>) {
        self.handle.ask(ZapVerb::Answer(token, name));
    }

    /// The clients that were refused, and those asked about, since the last call.
    pub fn read(&self) -> VecDeque<ZapEvent> {
        let mut events = VecDeque::new();
        self.handle.read(&mut events);
        events
    }

    /// How many were refused since the start.
    pub fn refused(&self) -> u64 {
        self.handle.stats().machine
    }

    /// Ends it; every socket it guards must be closed.
    pub fn end(&self) {
        self.handle.close(Duration::ZERO);
        self.handle.join();
    }
}
