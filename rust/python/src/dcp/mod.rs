//! DCP: messages, and the roles that broker, do and request work.

mod asking;
mod broker;
mod client;
mod message;
mod request;
mod worker;

pub(crate) use broker::PyBroker;
pub(crate) use client::PyClient;
pub(crate) use message::{Message, PyReply, decode, encode, restore};
pub(crate) use request::PyRequest;
pub(crate) use worker::PyWorker;

use std::time::Duration;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use trunkline_wire::MAX_FRAMES;

use crate::errors::LocalProtocolError;
use crate::frames::{self, within};
use crate::rooms::Room;

/// The interval of heartbeats, and how many a peer may miss.
fn heartbeat(interval_s: f64, liveness: u32) -> PyResult<(Duration, u32)> {
    let interval = crate::role::seconds("heartbeat_interval_s", interval_s)?;
    // libzmq counts milliseconds.
    let longest = Duration::from_millis(i32::MAX as u64);
    if interval < Duration::from_millis(1) || liveness == 0 || interval.saturating_mul(liveness) > longest {
        return Err(PyValueError::new_err(
            "heartbeat_interval_s must be at least 0.001, liveness at least 1, and their product at most a few weeks",
        ));
    }
    Ok((interval, liveness))
}

/// The most parts of metadata and data together: a message also has frames for the protocol, addresses, delimiters and
/// the number of the request.
const PARTS: usize = MAX_FRAMES - 8;

/// One part of data, or a sequence of them: none larger than a peer takes, nor more than fit beside so many of
/// metadata.
fn parts(object: &Bound<'_, PyAny>, metadata: usize, max_message_bytes: u64) -> PyResult<Vec<Bytes>> {
    let parts = frames::one_or_more("data", object)?.into_vec();
    within(parts.iter(), max_message_bytes)?;
    let count = metadata + parts.len();
    if count > PARTS {
        return Err(LocalProtocolError::new_err(format!("a message has at most {PARTS} parts, not {count}")));
    }
    Ok(parts)
}

/// Parts of metadata, which are not empty: an empty frame ends them (DCP-22).
fn metadata(object: &Bound<'_, PyAny>) -> PyResult<Vec<Bytes>> {
    let parts = frames::one_or_more("metadata", object)?.into_vec();
    if parts.iter().any(Bytes::is_empty) {
        return Err(LocalProtocolError::new_err("metadata must not have an empty part: leave it out"));
    }
    Ok(parts)
}

pub(crate) static ROOM: Room = Room { name: "dcp", decode: Some(message::recorded) };

#[pymodule(submodule, name = "dcp")]
pub(crate) mod module {
    #[pymodule_export]
    use super::{Message, PyBroker, PyClient, PyReply, PyRequest, PyWorker, decode, encode, restore};
}
