//! Contexts: each role has its own; its end shows that the system has all that was sent.

use std::path::Path;
use std::sync::{Once, OnceLock};

use super::ffi::{ContextPtr, Libzmq};
use crate::transport::TransportError;

static LIBRARY: OnceLock<Result<Libzmq, String>> = OnceLock::new();

/// Loads libzmq from `path`, once in a process.
///
/// # Errors
/// What the dynamic loader says.
pub fn load(path: &Path) -> Result<&'static Libzmq, TransportError> {
    LIBRARY
        .get_or_init(|| Libzmq::load(path))
        .as_ref()
        .map_err(|reason| TransportError::Failed { errno: libc::ENOENT, reason: reason.clone() })
}

/// Where a role's sockets live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// In its own context, which ends with the transport.
    Own(ContextPtr),
    /// In one that ends with its owner: another role, or the user.
    Borrowed(ContextPtr),
}

impl Context {
    /// A new one. It has neither threads nor descriptors before its first socket.
    ///
    /// # Errors
    /// When libzmq cannot make one.
    pub fn new(zmq: &Libzmq) -> Result<Self, TransportError> {
        seed();
        zmq.context().map(Self::Own)
    }

    /// The same context, for a role that does not end it.
    #[must_use]
    pub fn borrowed(self) -> Self {
        match self {
            Self::Own(context) | Self::Borrowed(context) => Self::Borrowed(context),
        }
    }

    pub(super) fn pointer(self) -> ContextPtr {
        match self {
            Self::Own(context) | Self::Borrowed(context) => context,
        }
    }
}

/// Seeds the C library's `rand`, once in a process: libzmq numbers peers without a routing id from it, and a peer that
/// knows the next number can claim it.
fn seed() {
    static SEEDED: Once = Once::new();
    SEEDED.call_once(|| {
        let mut seed = [0; 4];
        // Without the system's random numbers libzmq's own seed stays.
        if getrandom::fill(&mut seed).is_ok() {
            // SAFETY: sets a number under a lock of the C library.
            unsafe { libc::srand(u32::from_ne_bytes(seed)) };
        }
    });
}
