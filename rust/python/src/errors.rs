//! Python's exceptions, raised from Rust.

use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::import_exception;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use trunkline_capture::CaptureError as CaptureFault;
use trunkline_engine::{End, StartError, TransportError};
use trunkline_wire::{DecodeError as DecodeFault, Dropped, Origin};

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

/// A dropped message in Python: its error or None, the kind, the frames, and where it came from.
pub(crate) fn dropped<'py>(
    py: Python<'py>,
    protocol: &'static str,
    dropped: &Dropped,
) -> PyResult<Bound<'py, PyTuple>> {
    let Dropped { reason, frames, origin } = dropped;
    let error = reason.error().map(|error| decode_error(protocol, error).into_value(py));
    let frames = frames::tuple(py, frames.iter())?;
    let peer = origin.peer.as_ref().map(|peer| PyBytes::new(py, peer));
    let (endpoint, seq) = (origin.endpoint.as_deref(), origin.seq);
    let (user, address) = (user(origin), origin.address.as_deref());
    ("dropped", error, reason.slug(), frames, peer, endpoint, seq, user, address).into_pyobject(py)
}

/// A peer in Python: its routing id, its user or None, and its address or None.
pub(crate) type Client<'py> = (Bound<'py, PyBytes>, Option<String>, Option<String>);

/// The peer of an event.
pub(crate) fn client(py: Python<'_>, origin: Origin) -> Client<'_> {
    (PyBytes::new(py, &origin.peer.clone().unwrap_or_default()), user(&origin), origin.address.map(Into::into))
}

fn user(origin: &Origin) -> Option<String> {
    origin.user.as_ref().map(|user| String::from_utf8_lossy(user).into_owned())
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
        StartError::Open { endpoint, error: TransportError::Failed { errno, .. } } => {
            let text = match advice(errno, &endpoint) {
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

/// What to do about an endpoint that is not available.
fn advice(errno: i32, endpoint: &str) -> Option<&'static str> {
    match errno {
        libc::EADDRINUSE if endpoint.starts_with("ipc:") => Some("another role listens there: choose another path"),
        libc::EEXIST => Some("choose another path, or remove what is there"),
        libc::EADDRINUSE => Some("choose another port, or * for a free one"),
        libc::EADDRNOTAVAIL => Some("bind to an address of this machine, or to 0.0.0.0 for all of them"),
        libc::ENODEV => Some("bind to an address or interface of this machine, or to 0.0.0.0 for all of them"),
        _ => None,
    }
}

/// Why the role of this name is over.
pub(crate) fn ended(name: &str, end: Option<&End>) -> PyErr {
    match end {
        None | Some(End::Closed) => ClosedError::new_err(format!("this {} is closed", title(name))),
        Some(End::Terminated) => {
            ClosedError::new_err(format!("the ZeroMQ context of this {} was terminated", title(name)))
        }
        Some(End::Transport(reason)) => ClosedError::new_err(format!("the transport failed: {reason}")),
        Some(End::Capture(reason)) => CaptureError::new_err(reason.clone()),
        Some(End::Panicked(words)) => panicked(words),
    }
}

/// The name of a role in Python: `dcp.Client` for that of the thread `trunkline-dcp-client`.
pub(crate) fn title(name: &str) -> String {
    let words: Vec<_> = name.split('-').skip(1).collect();
    match words[..] {
        [protocol, role] => format!("{protocol}.{}{}", role[..1].to_uppercase(), &role[1..]),
        _ => "role".to_owned(),
    }
}

fn panicked(words: &str) -> PyErr {
    ClosedError::new_err(format!("the engine of this role has failed, which is a bug in trunkline: {words}"))
}
