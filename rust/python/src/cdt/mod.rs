//! CDT: messages, and the machines of the roles.

mod driven;
mod message;

pub(crate) use driven::{source_machine, target_machine};
pub(crate) use message::{
    PyConfigNewAvailable, PyConfigPush, PyConfigPushResponse, PyConfigRequest, PyConfigResponse, PyConfigUpdated,
    decode, encode, restore,
};

use pyo3::prelude::*;
use trunkline_wire::cdt::subject;

/// Whether a subject is one of those that a pattern means.
#[pyfunction]
pub(crate) fn matches(pattern: &str, subject: &str) -> bool {
    subject::matches(pattern, subject)
}

/// Whether a text is one token of a subject (CDT-11).
#[pyfunction]
pub(crate) fn is_token(text: &str) -> bool {
    subject::is_token(text)
}

/// The kind of the messages of a subject, and the instance, the replica or the originator that it names.
#[pyfunction]
#[allow(clippy::type_complexity)] // it is read once, in Python
pub(crate) fn told(subject: &str) -> (Option<&'static str>, Option<&str>, Option<&str>, Option<&str>) {
    let told = subject::told(subject);
    (told.kind.map(trunkline_wire::cdt::Kind::name), told.instance, told.replica, told.originator)
}
