//! Which implementation of ZeroMQ a role runs over.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use trunkline_engine::TransportError;
use trunkline_engine::libzmq::{Libzmq, load};
use trunkline_engine::zmtp::{load_sodium, takes, takes_endpoint};
use trunkline_zmtp::curve::Crypto;

use crate::role::RoleOptions;

/// Names the transport that `auto` takes where it suits.
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

    /// The one of this name; `None` is left to us.
    pub(crate) fn named(name: &str) -> PyResult<Option<Self>> {
        if name == "auto" {
            return Ok(None);
        }
        let found = Self::ALL.into_iter().find(|chosen| chosen.name() == name);
        found.map(Some).ok_or_else(|| PyValueError::new_err(format!("there is no transport {name:?}")))
    }

    /// The one that is asked for, or else preferred, or else that suits.
    pub(crate) fn of(options: &RoleOptions) -> PyResult<Self> {
        if let Some(asked) = options.transport {
            return Ok(asked);
        }
        let is_libzmq_preferred = match std::env::var(PREFERRED).as_deref() {
            Err(_) | Ok("" | "auto" | "zmtp") => false,
            Ok("libzmq") => true,
            Ok(other) => {
                let text = format!("{PREFERRED}={other:?} names no transport to prefer: use auto, zmtp or libzmq");
                return Err(PyValueError::new_err(text));
            }
        };
        Ok(match libzmq() {
            Ok(_) if is_libzmq_preferred || !suit_ours(options) => Self::Libzmq,
            _ if suit_ours(options) => Self::Zmtp,
            _ => Self::Zeromq,
        })
    }
}

/// The libsodium that comes with pyzmq's libzmq, or the system's.
pub(crate) fn sodium() -> Option<Arc<dyn Crypto>> {
    load_sodium(LIBRARY.get().map_or_else(|| Path::new(""), PathBuf::as_path))
}

/// Whether our own transport does all that is asked for.
fn suit_ours(options: &RoleOptions) -> bool {
    let binds = options.bind.iter().all(|endpoint| takes_endpoint(endpoint, false));
    let endpoints = binds && options.connect.iter().all(|endpoint| takes_endpoint(endpoint, true));
    let is_alone = options.context.is_none() && options.adopted.is_empty();
    let curve = options.socket.curve.is_none() || sodium().is_some();
    endpoints && is_alone && curve && takes(&options.socket)
}

/// The library that pyzmq has loaded.
pub(crate) fn libzmq() -> Result<&'static Libzmq, TransportError> {
    LIBRARY.get().map_or(Err(TransportError::Unsupported("libzmq")), |path| load(path))
}

/// The transports that there are, and whether each has CURVE.
#[pyfunction]
pub(crate) fn transports() -> Vec<(&'static str, bool)> {
    let curve = |chosen| match chosen {
        Chosen::Zmtp => Some(sodium().is_some()),
        Chosen::Libzmq => libzmq().ok().map(|zmq| zmq.has(c"curve")),
        Chosen::Zeromq => Some(false),
    };
    Chosen::ALL.into_iter().filter_map(|chosen| Some((chosen.name(), curve(chosen)?))).collect()
}

/// Says which library pyzmq has loaded.
#[pyfunction]
pub(crate) fn use_libzmq(path: PathBuf) {
    // The first one stays: there is one pyzmq a process.
    let _ = LIBRARY.set(path);
}
