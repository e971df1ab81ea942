//! The machines of mc0, driven by Python.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::Snapshot;
use trunkline_wire::CallId;
use trunkline_wire::mc0::{
    Asked, Connector, ConnectorEvent, ConnectorSettings, ConnectorStats, ConnectorVerb, Middleware, MiddlewareEvent,
    MiddlewareSettings, MiddlewareStats, MiddlewareVerb,
};

use super::{connector, middleware};
use crate::counters::{add_connected, add_listening, counters};
use crate::machine::{Given, Make, Spoken, VerbQueue, maker, no_verb};
use crate::role::seconds;

/// The largest frame, the default of roles.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

pub(crate) fn connector_machine(given: &Given<'_>) -> PyResult<Make> {
    let settings = connector::settings(given.extract("ttl_ms")?, given.extract("leading_delimiter")?);
    let settings = ConnectorSettings { connect: given.extract("connect")?, ..settings };
    Ok(maker(move |now, seed| Connector::new(now, settings.clone(), seed)))
}

pub(crate) fn middleware_machine(given: &Given<'_>) -> PyResult<Make> {
    let settings = given.whole::<middleware::Given>()?.settings()?;
    let settings = MiddlewareSettings { bind: given.extract("bind")?, ..settings };
    Ok(maker(move |_, _| Middleware::new(settings.clone())))
}

impl Spoken for Connector {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<ConnectorVerb> {
        let topics = || PyResult::Ok(connector::topics(&given.any("topics")?, MAX_MESSAGE_BYTES)?.0);
        let put = || {
            let (topic, body, headers) = (given.any("topic")?, given.any("body")?, given.any("headers")?);
            PyResult::Ok(connector::put(&topic, &body, &headers, MAX_MESSAGE_BYTES)?.0)
        };
        let asked = match name {
            "put" => return put().map(ConnectorVerb::Put),
            "cancel" => return given.extract("call").map(|call| ConnectorVerb::Cancel(CallId(call))),
            "subscribe" => Asked::Subscribe(topics()?),
            "unsubscribe" => Asked::Unsubscribe(topics()?),
            "submit" => Asked::Put(put()?),
            "ping" => Asked::Ping,
            other => return no_verb(other),
        };
        let timeout_s: Option<f64> = given.optional("timeout_s")?.map(|timeout| timeout.extract()).transpose()?;
        let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?;
        Ok(ConnectorVerb::Call { call: CallId(given.extract("call")?), asked, timeout })
    }

    fn notice<'py>(
        py: Python<'py>,
        event: ConnectorEvent,
        _: &Arc<VerbQueue>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        connector::notice(py, event).map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &ConnectorStats) -> PyResult<Bound<'py, PyDict>> {
        let stats = counters(py, stats)?;
        add_connected(&stats, &Snapshot::<()>::default())?;
        Ok(stats)
    }
}

impl Spoken for Middleware {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<MiddlewareVerb> {
        match name {
            "enforce" => Ok(MiddlewareVerb::Enforce(middleware::given_policy(&given.any("policy")?)?)),
            other => no_verb(other),
        }
    }

    fn notice<'py>(
        py: Python<'py>,
        event: MiddlewareEvent,
        _: &Arc<VerbQueue>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        middleware::notice(py, event).map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &MiddlewareStats) -> PyResult<Bound<'py, PyDict>> {
        let stats = counters(py, stats)?;
        add_listening(&stats, &Snapshot::<()>::default(), 0)?;
        Ok(stats)
    }
}
