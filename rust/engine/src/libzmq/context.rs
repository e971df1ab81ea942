//! Contexts that no other code can close.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::ffi::{ContextPtr, Libzmq};
use crate::transport::TransportError;

static LIBRARY: OnceLock<Result<Libzmq, String>> = OnceLock::new();

/// One context per process id: a child after fork makes its own, and never touches its parent's.
static SHARED: Mutex<Option<HashMap<u32, ContextPtr>>> = Mutex::new(None);

/// Loads libzmq from `path`, once a process.
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
    /// In the context of this process.
    Process,
    /// In this one, which ends with the transport and so is nobody else's to end.
    Private(ContextPtr),
    /// In someone else's.
    Borrowed(ContextPtr),
}

impl Context {
    /// A new one for a role, or a group of roles that one of them ends.
    ///
    /// # Errors
    /// When libzmq cannot make one.
    pub fn private(zmq: &Libzmq) -> Result<Self, TransportError> {
        zmq.context().map(Self::Private)
    }

    /// The same context for a role that does not end it.
    #[must_use]
    pub fn lent(self) -> Self {
        match self {
            Self::Private(context) => Self::Borrowed(context),
            Self::Process | Self::Borrowed(_) => self,
        }
    }
}

pub(super) fn process(zmq: &Libzmq) -> Result<ContextPtr, TransportError> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let contexts = shared.get_or_insert_default();
    if let Some(context) = contexts.get(&std::process::id()) {
        return Ok(*context);
    }
    let context = zmq.context()?;
    contexts.insert(std::process::id(), context);
    Ok(context)
}

/// Ends the context of this process; waits until what lingers there is sent or given up. Every role must have ended.
pub fn terminate() {
    let context = {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.as_mut().and_then(|contexts| contexts.remove(&std::process::id()))
    };
    if let (Some(context), Some(Ok(zmq))) = (context, LIBRARY.get()) {
        zmq.terminate(context);
    }
}
