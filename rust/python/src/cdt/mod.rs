//! CDT: messages, and the machines of the roles.

mod held;
mod message;
mod options;
mod recorder;
mod source;
mod target;
mod watch;

pub(crate) use message::{
    PyConfigNewAvailable, PyConfigPush, PyConfigPushResponse, PyConfigRequest, PyConfigResponse, PyConfigUpdated,
    decode, encode, restore,
};
pub(crate) use recorder::PyRecorder;
pub(crate) use source::PySource;
pub(crate) use target::PyTarget;
pub(crate) use watch::PyWatch;

use pyo3::prelude::*;
use trunkline_wire::cdt::subject;

use crate::rooms::Room;

/// Whether a text is one token of a subject (CDT-11).
#[pyfunction]
pub(crate) fn is_token(text: &str) -> bool {
    subject::is_token(text)
}

pub(crate) static ROOM: Room = Room { name: "cdt", decode: Some(message::recorded) };

#[pymodule(submodule, name = "cdt")]
pub(crate) mod module {
    #[pymodule_export]
    use super::{
        PyConfigNewAvailable, PyConfigPush, PyConfigPushResponse, PyConfigRequest, PyConfigResponse, PyConfigUpdated,
        PyRecorder, PySource, PyTarget, PyWatch, decode, encode, is_token, restore,
    };
}
