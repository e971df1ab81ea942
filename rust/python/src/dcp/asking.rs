//! Requests and their outcomes, shared by clients and workers.

use pyo3::prelude::*;
use trunkline_wire::dcp::{Client, ClientVerb, Outcome, Working, WorkingVerb};
use trunkline_wire::{CallId, cost};

use super::{PyReply, metadata, parts};
use crate::caller::{Called, Reply};
use crate::frames::{self, within};
use crate::role::seconds;

impl Called for Client {
    fn reply(py: Python<'_>, outcome: Outcome) -> PyResult<Reply> {
        Ok(match outcome {
            Outcome::Reply { frames, body } => Reply::Value(Py::new(py, PyReply::of(&frames, &body))?.into_any()),
            Outcome::TimedOut => Reply::TimedOut,
            Outcome::Unanswered => Reply::Unanswered,
        })
    }

    fn cancel(call: CallId) -> ClientVerb {
        ClientVerb::Cancel(call)
    }
}

impl Called for Working {
    fn reply(py: Python<'_>, outcome: Outcome) -> PyResult<Reply> {
        Client::reply(py, outcome)
    }

    fn cancel(call: CallId) -> WorkingVerb {
        WorkingVerb::Call(ClientVerb::Cancel(call))
    }
}

/// A request as Python gives it: the service, the data and the metadata.
pub(super) type Asked<'a, 'py> = (&'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>, &'a Bound<'py, PyAny>);

/// A request without a number yet, whose frames are no larger than a peer takes, and its size.
pub(super) fn request(
    (service, data, metadata): Asked<'_, '_>,
    timeout_s: Option<f64>,
    retries: u32,
    max_message_bytes: u64,
) -> PyResult<(impl FnOnce(CallId) -> ClientVerb + use<>, usize)> {
    let service = frames::frame("service", service)?;
    let metadata = self::metadata(metadata)?;
    let data = parts(data, metadata.len(), max_message_bytes)?;
    within(metadata.iter().chain([&service]), max_message_bytes)?;
    let bytes = cost(&metadata) + cost(&data) + cost(&[&service]);
    let timeout = timeout_s.map(|timeout| seconds("timeout_s", timeout)).transpose()?;
    Ok((move |call| ClientVerb::Request { call, service, metadata, data, timeout, retries }, bytes))
}
