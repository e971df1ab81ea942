//! Python's exceptions, raised from Rust.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::import_exception;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use trunkline_capture::CaptureError as CaptureFault;
use trunkline_engine::{End, StartError, TransportError};
use trunkline_wire::{DecodeError as DecodeFault, Dropped};

use crate::frames;

import_exception!(trunkline.errors, AuthenticationError);
import_exception!(trunkline.errors, CaptureError);
import_exception!(trunkline.errors, ClosedError);
import_exception!(trunkline.errors, DecodeError);
import_exception!(trunkline.errors, LeaseRefusedError);
import_exception!(trunkline.errors, LocalProtocolError);
import_exception!(trunkline.errors, MiddlewareError);
import_exception!(trunkline.errors, PeerLostError);
import_exception!(trunkline.errors, RemoteProtocolError);
import_exception!(trunkline.errors, TimeoutError);

pub(crate) fn decode_error(protocol: &'static str, error: DecodeFault) -> PyErr {
    DecodeError::new_err((protocol, error.kind.slug(), error.frame, error.offset, error.kind.meaning()))
}

/// What is told of a message that came to nothing: its error or None, the kind, the frames and the peer or None.
pub(crate) fn dropped<'py>(
    py: Python<'py>,
    protocol: &'static str,
    dropped: &Dropped,
) -> PyResult<Bound<'py, PyTuple>> {
    let Dropped { reason, peer, frames, place } = dropped;
    let error = reason.error().map(|error| decode_error(protocol, error).into_value(py));
    let peer = peer.as_ref().map(|peer| PyBytes::new(py, peer));
    let frames = frames::tuple(py, frames.iter())?;
    ("dropped", error, reason.slug(), frames, peer, place.endpoint.as_deref(), place.seq).into_pyobject(py)
}

pub(crate) fn capture_error(error: &CaptureFault) -> PyErr {
    CaptureError::new_err(error.to_string())
}

pub(crate) fn start_error(error: StartError) -> PyErr {
    let text = error.to_string();
    match error {
        StartError::Transport(TransportError::Unsupported(_))
        | StartError::Open { error: TransportError::Unsupported(_) | TransportError::WrongSocket { .. }, .. } => {
            LocalProtocolError::new_err(text)
        }
        StartError::Open {
            endpoint,
            error: TransportError::Failed { errno: libc::EINVAL | libc::EPROTONOSUPPORT, .. },
        } if !endpoint.is_empty() => LocalProtocolError::new_err(format!(
            "{text}: an endpoint looks like tcp://127.0.0.1:23999 or ipc:///tmp/data"
        )),
        StartError::Transport(TransportError::Terminated) => ClosedError::new_err(text),
        StartError::Open { error: TransportError::Failed { errno, .. }, .. } => {
            let text = match advice(errno) {
                Some(advice) => format!("{text}: {advice}"),
                None => text,
            };
            pyo3::exceptions::PyOSError::new_err((errno, text))
        }
        StartError::Transport(_) | StartError::Open { .. } => pyo3::exceptions::PyOSError::new_err(text),
        StartError::System(error) => error.into(),
        StartError::Panicked(words) => panicked(&words),
    }
}

/// An error about a value, with the argument it came in.
pub(crate) fn naming(argument: &str, py: Python<'_>, error: PyErr) -> PyErr {
    let kind = error.get_type(py);
    let is_plain = [py.get_type::<PyTypeError>(), py.get_type::<PyValueError>(), py.get_type::<PyOverflowError>()];
    if is_plain.iter().any(|plain| plain.is(&kind)) {
        PyErr::from_type(kind, format!("{argument}: {}", error.value(py)))
    } else {
        error
    }
}

/// What to do about an endpoint that cannot be had.
fn advice(errno: i32) -> Option<&'static str> {
    match errno {
        libc::EADDRINUSE => Some("choose another port, or * for a free one"),
        libc::EADDRNOTAVAIL => Some("bind to an address of this machine, or to 0.0.0.0 for all of them"),
        libc::ENODEV => Some("bind to an address or interface of this machine, or to 0.0.0.0 for all of them"),
        _ => None,
    }
}

pub(crate) fn ended(end: Option<&End>) -> PyErr {
    match end {
        None | Some(End::Closed) => ClosedError::new_err("this role is closed"),
        Some(End::Terminated) => ClosedError::new_err("the ZeroMQ context of this role was terminated"),
        Some(End::Transport(reason)) => ClosedError::new_err(format!("the transport failed: {reason}")),
        Some(End::Capture(reason)) => CaptureError::new_err(reason.clone()),
        Some(End::Panicked(words)) => panicked(words),
    }
}

fn panicked(words: &str) -> PyErr {
    ClosedError::new_err(format!("the engine of this role has failed, which is a bug in trunkline: {words}"))
}
