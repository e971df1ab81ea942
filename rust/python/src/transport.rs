//! Selects the ZeroMQ implementation of a role.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use trunkline_engine::TransportError;
use trunkline_engine::libzmq::{Libzmq, load};
use trunkline_engine::zmtp::{lacks, load_sodium, takes_endpoint};
use trunkline_zmtp::curve::Crypto;

use crate::role::RoleOptions;

/// Names the transport that `auto` takes if it suits.
const PREFERRED: &str = "TRUNKLINE_TRANSPORT";

static LIBRARY: OnceLock<PathBuf> = OnceLock::new();

/// An implementation of ZeroMQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// Our own.
    Zmtp,
    /// The one that pyzmq has loaded.
    Libzmq,
    /// The crate of that name.
    Zeromq,
}

impl Chosen {
    const ALL: [Self; 3] = [Self::Zmtp, Self::Libzmq, Self::Zeromq];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Zmtp => "zmtp",
            Self::Libzmq => "libzmq",
            Self::Zeromq => "zeromq",
        }
    }

    /// The one of this name; `None` leaves the choice to us.
    pub(crate) fn named(name: &str) -> PyResult<Option<Self>> {
        if name == "auto" {
            return Ok(None);
        }
        let found = Self::ALL.into_iter().find(|chosen| chosen.name() == name);
        found.map(Some).ok_or_else(|| PyValueError::new_err(format!("there is no transport {name:?}")))
    }

    /// The one asked for, else the preferred one, else the one that suits; and which option ruled ours out.
    pub(crate) fn of(options: &RoleOptions) -> PyResult<(Self, Option<Missing>)> {
        if let Some(asked) = options.transport {
            return Ok((asked, None));
        }
        let name = std::env::var(PREFERRED).unwrap_or_default();
        let preferred = Self::named(if name.is_empty() { "auto" } else { &name }).map_err(|_| {
            PyValueError::new_err(format!("{PREFERRED}={name:?} names no transport: use auto, zmtp, libzmq or zeromq"))
        })?;
        let missing = missing_in_ours(options);
        if options.is_of_libzmq() && libzmq().is_ok() {
            return Ok((Self::Libzmq, None));
        }
        Ok(match preferred {
            Some(Self::Zeromq) if suits_zeromq(options) => (Self::Zeromq, None),
            Some(Self::Libzmq) if libzmq().is_ok() => (Self::Libzmq, None),
            _ if missing.is_some() && libzmq().is_ok() => (Self::Libzmq, missing),
            _ => (Self::Zmtp, None),
        })
    }
}

/// What our own transport lacks for a role.
#[derive(Clone, Debug, PartialEq, Eq, IntoPyObject, IntoPyObjectRef)]
pub(crate) enum Missing {
    /// The socket option of this number.
    Option(i32),
    /// An endpoint, or libsodium.
    Named(String),
}

/// The libsodium that comes with pyzmq's libzmq, or the system's.
pub(crate) fn sodium() -> Option<Arc<dyn Crypto>> {
    load_sodium(LIBRARY.get().map_or_else(|| Path::new(""), PathBuf::as_path))
}

/// What our own transport lacks.
fn missing_in_ours(options: &RoleOptions) -> Option<Missing> {
    let endpoints = options.bind.iter().map(|endpoint| (endpoint, false));
    let mut endpoints = endpoints.chain(options.connect.iter().map(|endpoint| (endpoint, true)));
    let endpoint = endpoints.find(|(endpoint, is_dialled)| !takes_endpoint(endpoint, *is_dialled));
    let sodium = || (options.socket.curve.is_some() && sodium().is_none()).then(|| "libsodium".to_owned());
    let named = endpoint.map(|(endpoint, _)| endpoint.clone()).or_else(sodium);
    named.map(Missing::Named).or_else(|| lacks(&options.socket).map(Missing::Option))
}

/// Whether the crate has all that is asked for.
fn suits_zeromq(options: &RoleOptions) -> bool {
    let is_plain = options.socket.curve.is_none() && options.socket.extra.is_empty() && !options.has_limits;
    is_plain && missing_in_ours(options).is_none() && !options.bind.iter().any(|endpoint| endpoint == "ipc://*")
}

/// The library that pyzmq has loaded.
pub(crate) fn libzmq() -> Result<&'static Libzmq, TransportError> {
    LIBRARY.get().map_or(Err(TransportError::Unsupported("libzmq")), |path| load(path))
}

/// The available transports, and whether each has CURVE.
#[pyfunction]
pub(crate) fn transports() -> Vec<(&'static str, bool)> {
    let curve = |chosen| match chosen {
        Chosen::Zmtp => Some(sodium().is_some()),
        Chosen::Libzmq => libzmq().ok().map(|zmq| zmq.has(c"curve")),
        Chosen::Zeromq => Some(false),
    };
    Chosen::ALL.into_iter().filter_map(|chosen| Some((chosen.name(), curve(chosen)?))).collect()
}

/// Sets the library that pyzmq has loaded.
#[pyfunction]
pub(crate) fn use_libzmq(path: PathBuf) {
    // The first one stays: a process has one pyzmq.
    let _ = LIBRARY.set(path);
}
