//! The role that distributes messages.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::{Hold, Queued};
use trunkline_wire::mc0::{
    Clients, Entry, Middleware, MiddlewareEvent, MiddlewareSettings, MiddlewareVerb, Overflow, Policy, Settings,
};
use trunkline_wire::{Framing, Pattern};

use crate::counters::counters;
use crate::errors::{client, dropped};
use crate::role::{Role, RoleOptions, connection, notices, run};

/// A middleware's engine.
#[pyclass(frozen, extends = Role, module = "trunkline._native.mc0", name = "Middleware")]
pub(crate) struct PyMiddleware {
    handle: Arc<dyn Hold<Middleware>>,
}

/// An entry of a policy: a client and whether that is a name and no pattern, what it may publish and subscribe to.
type PolicyEntry = (Vec<u8>, bool, Vec<Vec<u8>>, Vec<Vec<u8>>);

/// The settings of a middleware beyond those of every role.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Arguments {
    policy: Option<Vec<PolicyEntry>>,
    overflow: String,
    client_queue_messages: usize,
    client_queue_bytes: usize,
    max_ttl: u64,
    max_topics: usize,
    status: bool,
}

impl Arguments {
    fn settings(self) -> PyResult<MiddlewareSettings> {
        let overflow = match self.overflow.as_str() {
            "drop-newest" => Overflow::DropNewest,
            "drop-oldest" => Overflow::DropOldest,
            "disconnect" => Overflow::Disconnect,
            other => {
                let text = format!("overflow must be 'drop-newest', 'drop-oldest' or 'disconnect', not {other:?}");
                return Err(PyValueError::new_err(text));
            }
        };
        Ok(MiddlewareSettings {
            decode: Settings { max_ttl_ms: self.max_ttl },
            policy: self.policy.map(policy),
            overflow,
            client_queue_messages: self.client_queue_messages,
            client_queue_bytes: self.client_queue_bytes,
            max_topics: self.max_topics,
            status: self.status,
            ..MiddlewareSettings::default()
        })
    }
}

fn policy(entries: Vec<PolicyEntry>) -> Policy {
    let patterns = |texts: Vec<Vec<u8>>| texts.iter().map(|text| Pattern::new(text)).collect();
    let entry = |(client, is_name, publish, subscribe): PolicyEntry| Entry {
        clients: match (is_name, &client[..]) {
            (true, _) => Clients::Named(client.into()),
            (false, b"*") => Clients::All,
            (false, _) => Clients::Like(Pattern::new(&client)),
        },
        publish: patterns(publish),
        subscribe: patterns(subscribe),
    };
    Policy(entries.into_iter().map(entry).collect())
}

#[pymethods]
impl PyMiddleware {
    #[new]
    fn new(py: Python<'_>, options: RoleOptions, settings: Arguments) -> PyResult<PyClassInitializer<Self>> {
        let (bind, socket) = (options.bind.clone(), options.socket.clone());
        // What is pending for all clients together has a limit here, and another in the transport.
        let queue_bytes = options.outbox_bytes;
        let settings = MiddlewareSettings { bind, options: socket, queue_bytes, ..settings.settings()? };
        let make = move |_, _| Middleware::new(settings.clone());
        let (handle, role) = run(py, make, Queued, options, Framing::Mc0, "trunkline-mc0-middleware")?;
        Ok(PyClassInitializer::from(role).add_subclass(Self { handle }))
    }

    /// Applies these entries as the policy from the next message on; without any, everything is allowed.
    #[pyo3(signature = (entries))]
    fn enforce(slf: &Bound<'_, Self>, entries: Option<Vec<PolicyEntry>>) -> PyResult<()> {
        let role = slf.as_super().get();
        if role.ours()?.is_over() {
            return Err(role.ended());
        }
        slf.get().handle.ask(MiddlewareVerb::Enforce(entries.map(policy)));
        Ok(())
    }

    /// Notices since the last call, each `(kind, *details)`.
    fn notices<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        notices(py, &*self.handle, notice)
    }

    /// Counters, by name.
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let (this, py) = (slf.get(), slf.py());
        let snapshot = py.detach(|| this.handle.stats());
        let stats = counters(py, &snapshot.machine)?;
        slf.as_super().get().add_listening_to(&stats, &snapshot)?;
        Ok(stats)
    }
}

fn notice(py: Python<'_>, event: MiddlewareEvent) -> PyResult<Bound<'_, PyTuple>> {
    match event {
        MiddlewareEvent::Joined { client: joined } => ("joined", client(py, joined)).into_pyobject(py),
        MiddlewareEvent::Forgotten { client: gone, why } => {
            ("forgotten", client(py, gone), why.slug()).into_pyobject(py)
        }
        MiddlewareEvent::Curtailed { client: curtailed, subscriptions } => {
            ("curtailed", client(py, curtailed), subscriptions).into_pyobject(py)
        }
        MiddlewareEvent::Dropped(dropped) => self::dropped(py, "mc0", &dropped),
        MiddlewareEvent::Connection(what) => connection(what).into_pyobject(py),
    }
}
