//! The machines of DCP, driven by Python.

use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::Snapshot;
use trunkline_wire::CallId;
use trunkline_wire::dcp::{
    Broker, BrokerEvent, BrokerSettings, BrokerStats, Client, ClientEvent, ClientSettings, ClientStats, ClientVerb,
    Worker, WorkerEvent, WorkerSettings, WorkerVerb, Working, WorkingEvent, WorkingStats, WorkingVerb,
};

use super::asking::request;
use super::request::Answers;
use super::{PyRequest, broker, client, heartbeat, worker};
use crate::counters::{add_connected, add_listening, counters};
use crate::errors::ended;
use crate::machine::{Given, Make, Spoken, VerbQueue, maker, no_verb};

/// The largest frame, the default of roles.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

pub(crate) fn broker_machine(given: &Given<'_>) -> PyResult<Make> {
    let settings = given.whole::<broker::Given<'_>>()?.settings()?;
    let settings = BrokerSettings { bind: given.extract("bind")?, ..settings };
    Ok(maker(move |_, _| Broker::new(settings.clone())))
}

pub(crate) fn worker_machine(given: &Given<'_>) -> PyResult<Make> {
    let (interval_s, liveness) = (given.extract("heartbeat_interval_s")?, given.extract("liveness")?);
    let settings = worker::settings(&given.any("service")?, given.extract("concurrency")?, interval_s, liveness)?;
    let settings = WorkerSettings { connect: given.extract("connect")?, ..settings };
    let asks = ClientSettings { timeout: Duration::MAX, ..ClientSettings::default() };
    Ok(maker(move |now, seed| Working::new(Worker::new(now, settings.clone(), seed), Client::new(asks.clone(), seed))))
}

pub(crate) fn client_machine(given: &Given<'_>) -> PyResult<Make> {
    let (heartbeat_interval, liveness) = heartbeat(given.extract("heartbeat_interval_s")?, given.extract("liveness")?)?;
    // Without a timeout it waits forever.
    let (connect, timeout) = (given.extract("connect")?, Duration::MAX);
    let settings = ClientSettings { connect, timeout, heartbeat_interval, liveness, ..ClientSettings::default() };
    Ok(maker(move |_, seed| Client::new(settings.clone(), seed)))
}

/// Verbs of a client.
fn asking(name: &str, given: &Given<'_>) -> PyResult<ClientVerb> {
    let call = CallId(given.extract("call")?);
    match name {
        "request" => {
            let asked = (&given.any("service")?, &given.any("data")?, &given.any("metadata")?);
            let timeout_s = given.optional("timeout_s")?.map(|timeout| timeout.extract()).transpose()?;
            let (request, _) = request(asked, timeout_s, given.extract("retries")?, MAX_MESSAGE_BYTES)?;
            Ok(request(call))
        }
        "cancel" => Ok(ClientVerb::Cancel(call)),
        other => no_verb(other),
    }
}

impl Answers for VerbQueue {
    fn ask(&self, verb: WorkerVerb) {
        self.put(WorkingVerb::Work(verb));
    }

    fn ended(&self) -> Option<PyErr> {
        self.is_over().then(|| ended("trunkline-dcp-worker", None))
    }
}

impl Spoken for Broker {
    fn verb(name: &str, _given: &Given<'_>) -> PyResult<Self::Verb> {
        no_verb(name)
    }

    fn notice<'py>(py: Python<'py>, event: BrokerEvent, _: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        broker::notice(py, event).map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &BrokerStats) -> PyResult<Bound<'py, PyDict>> {
        let stats = counters(py, stats)?;
        add_listening(&stats, &Snapshot::<()>::default(), 0)?;
        Ok(stats)
    }
}

impl Spoken for Client {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<ClientVerb> {
        asking(name, given)
    }

    fn notice<'py>(py: Python<'py>, event: ClientEvent, _: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        client::notice(py, event).map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &ClientStats) -> PyResult<Bound<'py, PyDict>> {
        let stats = counters(py, stats)?;
        add_connected(&stats, &Snapshot::<()>::default())?;
        Ok(stats)
    }
}

impl Spoken for Working {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<WorkingVerb> {
        asking(name, given).map(WorkingVerb::Call)
    }

    fn notice<'py>(
        py: Python<'py>,
        event: WorkingEvent,
        verbs: &Arc<VerbQueue>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        match event {
            WorkingEvent::Work(WorkerEvent::Request { job, frames, body }) => {
                let request = PyRequest::new(verbs.clone(), MAX_MESSAGE_BYTES, job, frames, body);
                ("request", request).into_pyobject(py).map(Some)
            }
            WorkingEvent::Work(event) => worker::notice(py, event),
            WorkingEvent::Call(event) => client::notice(py, event).map(Some),
        }
    }

    fn counters<'py>(py: Python<'py>, stats: &WorkingStats) -> PyResult<Bound<'py, PyDict>> {
        let stats = worker::stats_dict(py, stats)?;
        add_connected(&stats, &Snapshot::<()>::default())?;
        Ok(stats)
    }
}
