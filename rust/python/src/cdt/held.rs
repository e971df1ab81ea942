//! A message of Python's, with the body that it was read from.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use trunkline_wire::Fault;
use trunkline_wire::cdt::{self, Kind, Message, Received, Settings};

use crate::frames::Frame;

/// A message, and how its body is written if it was read from one.
pub(super) struct Held {
    /// What it says may be parts of the body: nobody else is to have it for longer than a look.
    message: Message<'static>,
    body: Frame,
    settings: Option<Settings>,
    originator: Option<Box<str>>,
}

impl Held {
    #[inline]
    pub(super) fn decoded(body: Frame, kind: Kind, settings: Settings) -> Result<Self, Fault> {
        // SAFETY: what is in a frame never changes, and stays where it is for as long as anybody has the frame, wherever
        // that moves to. The message is kept beside it, and lent for no longer than both are.
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

    /// The same, of an event that this service has sent.
    pub(super) fn sent_by(self, originator: Option<Box<str>>) -> Self {
        Self { originator, ..self }
    }

    /// The service that sent it; none if that is not known.
    pub(super) fn originator(&self) -> Option<&str> {
        self.originator.as_deref()
    }

    /// How it was read; none if it was built.
    pub(super) fn settings(&self) -> Option<Settings> {
        self.settings
    }

    /// Its body, bit for bit where it is wanted as it was.
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
