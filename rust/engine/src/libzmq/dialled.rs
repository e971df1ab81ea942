//! The endpoints that a socket dials.

use std::time::{Duration, Instant};

/// How long to wait before an endpoint that has refused us is dialled again: twice as long each time, up to a limit.
const FIRST: Duration = Duration::from_millis(100);
const LAST: Duration = Duration::from_secs(10);

/// The endpoints that a socket dials, and when to redial those that libzmq has given up.
///
/// libzmq retries where no peer listens, but not where a peer refuses the key or breaks the protocol: the other end may
/// mend that while this one runs.
#[derive(Debug, Default)]
pub(super) struct Dialled(Vec<Endpoint>);

#[derive(Debug)]
struct Endpoint {
    name: String,
    pause: Duration,
    due: Option<Instant>,
}

impl Dialled {
    pub(super) fn add(&mut self, name: &str) {
        if self.find(name).is_none() {
            self.0.push(Endpoint { name: name.to_owned(), pause: FIRST, due: None });
        }
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0.retain(|endpoint| endpoint.name != name);
    }

    /// The endpoint, if there is only one.
    pub(super) fn only(&self) -> Option<&str> {
        if let [only] = &*self.0 { Some(&only.name) } else { None }
    }

    /// A handshake with it has succeeded.
    pub(super) fn succeeded(&mut self, name: &str) {
        if let Some(endpoint) = self.find(name) {
            endpoint.pause = FIRST;
        }
    }

    /// It has refused us for good. Gives whether it is one of these and will be redialled.
    pub(super) fn refused(&mut self, name: &str) -> bool {
        let Some(endpoint) = self.find(name) else { return false };
        endpoint.due = Some(Instant::now() + endpoint.pause);
        endpoint.pause = LAST.min(endpoint.pause * 2);
        true
    }

    /// How long until the next redial.
    pub(super) fn wait(&self) -> Option<Duration> {
        let due = self.0.iter().filter_map(|endpoint| endpoint.due).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// The next endpoint to redial now.
    pub(super) fn due(&mut self) -> Option<String> {
        let now = Instant::now();
        let endpoint = self.0.iter_mut().find(|endpoint| endpoint.due.is_some_and(|due| due <= now))?;
        endpoint.due = None;
        Some(endpoint.name.clone())
    }

    fn find(&mut self, name: &str) -> Option<&mut Endpoint> {
        self.0.iter_mut().find(|endpoint| endpoint.name == name)
    }
}
