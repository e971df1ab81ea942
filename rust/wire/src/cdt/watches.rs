//! Who keeps up with the configuration of an endpoint, and when they look for it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use crate::{CallId, Nanos};

/// Who looks more often than this asks one question after the other.
const RESYNC: Duration = Duration::from_secs(1);

/// The version of the application, and the endpoint.
type Endpoint = (String, String);

#[derive(Debug)]
struct Watch {
    endpoint: Endpoint,
    /// What it has handed out last.
    config_id: Option<String>,
    /// When it looks; `None` while it waits for an answer.
    due: Option<Nanos>,
    /// Whether something changed while it waits for one.
    again: bool,
    /// How often in a row it had none.
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

    /// The next one that is to look now; it waits for an answer from then on.
    pub(super) fn due(&mut self, now: Nanos) -> Option<(CallId, Endpoint)> {
        let &(at, call) = self.due.first().filter(|(at, _)| *at <= now)?;
        self.due.remove(&(at, call));
        let watch = self.all.get_mut(&call)?;
        (watch.due, watch.again) = (None, false);
        Some((call, watch.endpoint.clone()))
    }

    /// When the next one is to look.
    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        self.due.first().map(|(at, _)| *at)
    }

    /// There is a configuration for this endpoint.
    pub(super) fn announced(&mut self, now: Nanos, endpoint: &Endpoint, config_id: &str) {
        for call in self.of.get(endpoint).cloned().unwrap_or_default() {
            if self.all.get(&call).is_some_and(|watch| watch.config_id.as_deref() != Some(config_id)) {
                self.hurry(now, call);
            }
        }
    }

    /// Has all of them look.
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

    /// It has this configuration; whether that is another one than before.
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

    /// There is none.
    pub(super) fn none(&mut self, now: Nanos, call: CallId) {
        if let Some(watch) = self.all.get_mut(&call) {
            watch.failures = 0;
        }
        self.answered(now, call, self.resync);
    }

    /// It had no answer, or none that is of use.
    pub(super) fn failed(&mut self, now: Nanos, call: CallId) {
        let Some(watch) = self.all.get_mut(&call) else { return };
        let (first, longest) = self.backoff;
        let wait = first.saturating_mul(1 << watch.failures.min(16)).min(longest);
        watch.failures += 1;
        // What hurries may be what failed: it is looked for all the same, but not in a circle.
        watch.again = false;
        self.plan(now + wait, call);
    }
}
