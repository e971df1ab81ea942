//! A message of Python's, with the body that it was read from.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trunkline_wire::Fault;
use trunkline_wire::cdt::{self, Kind, Message, Received, Settings};

use crate::frames::Frame;

/// A message, and its encoded body if it was read from one.
pub(super) struct Held {
    /// It may borrow from the body: no reference to it may outlive a call.
    message: Message<'static>,
    body: Frame,
    settings: Option<Settings>,
    originator: Option<Box<str>>,
}

impl Held {
    #[inline]
    pub(super) fn decoded(body: Frame, kind: Kind, settings: Settings) -> Result<Self, Fault> {
        // SAFETY: a frame never changes, and stays in place while it is held, wherever the frame itself moves. The
        // message is kept beside it, and lent for no longer than both are.
        let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(body.as_ptr(), body.len()) };
        let message = cdt::decode(bytes, kind, &settings).map_err(|rejected| rejected.fault)?;
        Ok(Self { message, body, settings: Some(settings), originator: None })
    }

    #[inline]
    pub(super) fn received(received: Received) -> Self {
        let Received { message, body, settings, originator } = received;
        Self { message, body: Frame::Native(body), settings: Some(settings), originator }
    }

    pub(super) fn built(message: Message<'static>) -> Self {
        Self { message, body: Frame::Native(Bytes::new()), settings: None, originator: None }
    }

    #[inline]
    pub(super) fn message(&self) -> &Message<'_> {
        &self.message
    }

    /// The same, for an event that this service has sent.
    pub(super) fn sent_by(self, originator: Option<Box<str>>) -> Self {
        Self { originator, ..self }
    }

    /// The service that sent it; none if unknown.
    pub(super) fn originator(&self) -> Option<&str> {
        self.originator.as_deref()
    }

    /// The settings it was read with; none if it was built.
    pub(super) fn settings(&self) -> Option<Settings> {
        self.settings
    }

    /// Its body, bit for bit if the settings are those it was read with.
    pub(super) fn encoded<'py>(&self, py: Python<'py>, settings: Settings) -> PyResult<Bound<'py, PyBytes>> {
        let is_kept = |read: &Settings| (read.codec, read.bytes_encoding) == (settings.codec, settings.bytes_encoding);
        match &self.settings {
            Some(read) if is_kept(read) => Ok(self.body.object(py)),
            _ => {
                let body = cdt::body(self.message(), &settings);
                PyBytes::new_with(py, body.length(), |place| {
                    body.write(place);
                    Ok(())
                })
            }
        }
    }
}
