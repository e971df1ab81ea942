//! What a server of NATS sends, and messages to publish.

use std::collections::HashMap;
use std::io::Write as _;

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};
use trunkline_wire::Frames;
use trunkline_wire::nats::{Head, Inflow, LINE_END};

use crate::machine::{Carried, PyMessages};

/// What a server has sent, however it was cut, and our subscriptions.
#[pyclass(module = "trunkline._native.cdt", name = "Inflow")]
#[derive(Default)]
pub(crate) struct PyInflow {
    inflow: Inflow,
    numbers: HashMap<u64, usize>,
}

#[pymethods]
impl PyInflow {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Takes messages of a subscription from now on, under a number of ours.
    fn take(&mut self, subscription: u64, number: usize) {
        self.numbers.insert(subscription, number);
    }

    /// Stops taking them.
    fn leave(&mut self, subscription: u64) {
        self.numbers.remove(&subscription);
    }

    /// Forgets incomplete data: another connection begins.
    fn reset(&mut self) {
        self.inflow = Inflow::default();
    }

    /// Takes the first bytes of a buffer. Gives the messages of our subscriptions, and everything else that is
    /// complete, as it came, but of several lines of INFO only the last.
    fn feed<'py>(
        &mut self,
        buffer: &Bound<'py, PyByteArray>,
        nbytes: usize,
    ) -> PyResult<(PyMessages, Bound<'py, PyBytes>)> {
        // SAFETY: the GIL is held until this returns, and nothing called meanwhile runs Python code.
        let held = unsafe { buffer.as_bytes() };
        let sent = held
            .get(..nbytes)
            .ok_or_else(|| PyValueError::new_err(format!("a buffer of {} bytes has no {nbytes}", held.len())))?;
        let (mut messages, mut others, mut info) = (PyMessages::default(), vec![], vec![]);
        let Self { inflow, numbers } = self;
        let fed = inflow.feed(sent, |delivery, whole, kept| {
            let ours = delivery.and_then(|delivery| Some((numbers.get(&delivery.subscription)?, delivery)));
            let Some((&socket, delivery)) = ours else {
                // Only the last one counts: to read each of a flood would take longer than to send it.
                if delivery.is_none() && whole.starts_with(b"INFO ") && whole.ends_with(LINE_END) {
                    info.clear();
                    return info.extend_from_slice(whole);
                }
                return others.extend_from_slice(whole);
            };
            let keep = |part: &[u8]| kept.map_or_else(|| Bytes::copy_from_slice(part), |kept| kept.slice_ref(part));
            let frames = [delivery.reply_to, delivery.block, delivery.body].map(keep);
            messages.push(Carried {
                socket,
                number: None,
                peer: keep(delivery.subject),
                frames: Frames::from(frames).into(),
            });
        });
        fed.map_err(|endless| PyValueError::new_err(endless.to_string()))?;
        others.extend_from_slice(&info);
        Ok((messages, PyBytes::new(buffer.py(), &others)))
    }
}

/// Writes messages to publish: to the subject that is their peer, with a reply subject and a body; a header block is
/// not sent.
///
/// Gives the bytes to send, and the positions of messages that cannot be sent: larger than `most` bytes, or of a bad
/// subject.
#[pyfunction]
pub(crate) fn publications<'py>(
    py: Python<'py>,
    messages: &PyMessages,
    most: usize,
) -> PyResult<(Bound<'py, PyBytes>, Vec<usize>)> {
    let (mut heads, mut parts, mut refused) = (vec![], vec![], vec![]);
    for (position, Carried { peer, frames, .. }) in messages.iter().enumerate() {
        let [reply_to, _, body] = &frames[..] else {
            return Err(PyValueError::new_err("a message of NATS has three frames"));
        };
        match Head::new(peer, reply_to, body.len()).filter(|_| body.len() <= most) {
            Some(head) => {
                head.write(&mut heads);
                parts.push((heads.len(), body));
            }
            None => refused.push(position),
        }
    }
    let length = heads.len() + parts.iter().map(|(_, body)| body.len() + LINE_END.len()).sum::<usize>();
    let written = PyBytes::new_with(py, length, |mut left| {
        let mut start = 0;
        for (end, body) in parts {
            for part in [&heads[start..end], body, LINE_END] {
                left.write_all(part)?;
            }
            start = end;
        }
        Ok(())
    })?;
    Ok((written, refused))
}
