//! Watches: which endpoints' configurations are followed, and when each is pulled.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::{CallId, Nanos};

/// A watch that pulls more often than this waits for each answer first.
const RESYNC: Duration = Duration::from_secs(1);

/// The version of the application, and the endpoint.
type Endpoint = (String, String);

#[derive(Debug)]
struct Watch {
    endpoint: Endpoint,
    /// The configuration it last reported.
    config_id: Option<String>,
    /// When to pull; `None` while an answer is pending.
    due: Option<Nanos>,
    /// Whether a change was announced while an answer was pending.
    again: bool,
    /// Failed attempts in a row.
    failures: u32,
}

/// All watches of a source.
#[derive(Debug)]
pub(super) struct Watches {
    all: HashMap<CallId, Watch>,
    of: HashMap<Endpoint, Vec<CallId>>,
    due: BTreeSet<(Nanos, CallId)>,
    resync: Duration,
    backoff: (Duration, Duration),
}

impl Watches {
    pub(super) fn new(resync: Duration, backoff: (Duration, Duration)) -> Self {
        Self { all: HashMap::new(), of: HashMap::new(), due: BTreeSet::new(), resync: resync.max(RESYNC), backoff }
    }

    pub(super) fn add(&mut self, now: Nanos, call: CallId, endpoint: Endpoint) {
        self.of.entry(endpoint.clone()).or_default().push(call);
        let watch = Watch { endpoint, config_id: None, due: Some(now), again: false, failures: 0 };
        self.all.insert(call, watch);
        self.due.insert((now, call));
    }

    pub(super) fn remove(&mut self, call: CallId) {
        let Some(watch) = self.all.remove(&call) else { return };
        if let Some(due) = watch.due {
            self.due.remove(&(due, call));
        }
        if let Some(calls) = self.of.get_mut(&watch.endpoint) {
            calls.retain(|one| *one != call);
            if calls.is_empty() {
                self.of.remove(&watch.endpoint);
            }
        }
    }

    /// The next watch that is due; its answer counts as pending from now on.
    pub(super) fn due(&mut self, now: Nanos) -> Option<(CallId, Endpoint)> {
        let &(at, call) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&(at, call));
        let watch = self.all.get_mut(&call)?;
        (watch.due, watch.again) = (None, false);
        Some((call, watch.endpoint.clone()))
    }

    /// When the next watch is due.
    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        self.due.first().map(|(at, _)| *at)
    }

    /// A configuration was announced for this endpoint.
    pub(super) fn announced(&mut self, now: Nanos, endpoint: &Endpoint, config_id: &str) {
        for call in self.of.get(endpoint).cloned().unwrap_or_default() {
            if self.all.get(&call).is_some_and(|watch| watch.config_id.as_deref() != Some(config_id)) {
                self.hurry(now, call);
            }
        }
    }

    /// Makes all of them due.
    pub(super) fn all(&mut self, now: Nanos) {
        let all: Vec<_> = self.all.keys().copied().collect();
        for call in all {
            self.hurry(now, call);
        }
    }

    fn hurry(&mut self, now: Nanos, call: CallId) {
        let Some(watch) = self.all.get_mut(&call) else { return };
        if watch.due.is_some() {
            self.plan(now, call);
        } else {
            watch.again = true;
        }
    }

    fn plan(&mut self, at: Nanos, call: CallId) {
        let Some(watch) = self.all.get_mut(&call) else { return };
        if let Some(before) = watch.due.replace(at) {
            self.due.remove(&(before, call));
        }
        self.due.insert((at, call));
    }

    fn answered(&mut self, now: Nanos, call: CallId, after: Duration) {
        let again = self.all.get(&call).is_some_and(|watch| watch.again);
        self.plan(if again { now } else { now + after }, call);
    }

    /// It received this configuration. Returns whether that is a new one.
    pub(super) fn found(&mut self, now: Nanos, call: CallId, config_id: &str) -> bool {
        let Some(watch) = self.all.get_mut(&call) else { return false };
        watch.failures = 0;
        let is_new = watch.config_id.as_deref() != Some(config_id);
        if is_new {
            watch.config_id = Some(config_id.to_owned());
        }
        self.answered(now, call, self.resync);
        is_new
    }

    /// There is no configuration.
    pub(super) fn none(&mut self, now: Nanos, call: CallId) {
        if let Some(watch) = self.all.get_mut(&call) {
            watch.failures = 0;
        }
        self.answered(now, call, self.resync);
    }

    /// It received no answer, or no useful one.
    pub(super) fn failed(&mut self, now: Nanos, call: CallId) {
        let Some(watch) = self.all.get_mut(&call) else { return };
        let (first, longest) = self.backoff;
        let wait = first.saturating_mul(1 << watch.failures.min(16)).min(longest);
        watch.failures += 1;
        // An announcement may have caused the failure: pulling at once could repeat it endlessly.
        watch.again = false;
        self.plan(now + wait, call);
    }
}
