//! CDT: messages, and the machines of the roles.

mod driven;
mod held;
mod message;
mod nats;

pub(crate) use driven::{source_machine, target_machine};
pub(crate) use message::{
    PyConfigNewAvailable, PyConfigPush, PyConfigPushResponse, PyConfigRequest, PyConfigResponse, PyConfigUpdated,
    decode, encode, recorded, restore,
};
pub(crate) use nats::{PyInflow, publications};

use pyo3::prelude::*;
use trunkline_wire::cdt::{Settings, decode as decode_body, subject};

/// Whether a pattern matches a subject.
#[pyfunction]
pub(crate) fn matches(pattern: &str, subject: &str) -> bool {
    subject::matches(pattern, subject)
}

/// Whether a text is one token of a subject (CDT-11).
#[pyfunction]
pub(crate) fn is_token(text: &str) -> bool {
    subject::is_token(text)
}

/// The fault of a message with this subject, by the slug of its kind; None if it has none, or the subject is unknown.
#[pyfunction]
pub(crate) fn fault(
    subject: &str,
    body: &[u8],
    codec: &str,
    bytes_encoding: &str,
    strict: bool,
) -> PyResult<Option<&'static str>> {
    let (codec, bytes_encoding) = (message::codec(codec)?, message::bytes_encoding(bytes_encoding)?);
    let settings = Settings { codec, bytes_encoding, strict, kind: None };
    let parsed = subject::parse(subject);
    // An empty answer reports that the request had no responder.
    let kind = parsed.kind.filter(|_| !(body.is_empty() && parsed.replica.is_some()));
    Ok(kind.and_then(|kind| decode_body(body, kind, &settings).err()).map(|rejected| rejected.fault.kind.slug()))
}

/// The kind of the messages of a subject, and the instance, the replica or the originator that it names.
#[pyfunction]
#[allow(clippy::type_complexity)] // it is read once, in Python
pub(crate) fn told(subject: &str) -> (Option<&'static str>, Option<&str>, Option<&str>, Option<&str>) {
    let parsed = subject::parse(subject);
    (parsed.kind.map(trunkline_wire::cdt::Kind::name), parsed.instance, parsed.replica, parsed.originator)
}
