//! What a server of NATS has sent, and what is published.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use trunkline_wire::nats::{First, Head, LINE_END, first};

/// Bodies of less are pieces together with what stands around them.
const COPY_BELOW: usize = 4096;

/// A message of a subscription: our number of it, subject, and reply subject, header block and body.
type Delivered<'py> = (usize, Bound<'py, PyBytes>, (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>));

/// Takes the messages of our subscriptions off the start of what a server has sent. `numbers` says which are ours.
///
/// Gives them, how many bytes they took, and how many more at least a message takes that has only begun; 0 where something else is next.
#[pyfunction]
#[allow(clippy::type_complexity)] // it is read once, in Python
pub(crate) fn deliveries<'py>(
    sent: &Bound<'py, PyBytes>,
    numbers: &Bound<'py, PyDict>,
) -> PyResult<(Vec<Delivered<'py>>, usize, usize)> {
    let (py, bytes) = (sent.py(), sent.as_bytes());
    let (mut messages, mut taken) = (vec![], 0);
    loop {
        match first(&bytes[taken..]) {
            First::Message(delivery, length) => {
                let Some(number) = numbers.get_item(delivery.subscription)? else { break };
                let frames = [delivery.reply_to, delivery.block, delivery.body].map(|part| PyBytes::new(py, part));
                messages.push((number.extract()?, PyBytes::new(py, delivery.subject), frames.into()));
                taken += length;
            }
            First::Part(length) => return Ok((messages, taken, length)),
            First::Other => break,
        }
    }
    Ok((messages, taken, 0))
}

/// Writes messages as they are published, each given as socket, number, subject, and reply subject, header block and body.
///
/// Gives the pieces of what is to be sent, and the positions of messages that cannot be: larger than `most` bytes, or of a bad subject.
#[pyfunction]
#[allow(clippy::type_complexity, clippy::needless_pass_by_value)] // it is called once, in Python, which gives it away
pub(crate) fn publications<'py>(
    py: Python<'py>,
    messages: Vec<(usize, Option<u64>, Bound<'py, PyBytes>, Bound<'py, PyTuple>)>,
    most: usize,
) -> PyResult<(Vec<Bound<'py, PyBytes>>, Vec<usize>)> {
    let (mut pieces, mut bytes, mut refused) = (vec![], vec![], vec![]);
    for (position, (_, _, subject, frames)) in messages.iter().enumerate() {
        let (reply_to, _, body): (Bound<'_, PyBytes>, Bound<'_, PyAny>, Bound<'py, PyBytes>) = frames.extract()?;
        let size = body.as_bytes().len();
        let head = Head::new(subject.as_bytes(), reply_to.as_bytes(), size).filter(|_| size <= most);
        let Some(head) = head else {
            refused.push(position);
            continue;
        };
        head.write(&mut bytes);
        if size < COPY_BELOW {
            bytes.extend_from_slice(body.as_bytes());
        } else {
            pieces.extend([PyBytes::new(py, &bytes), body]);
            bytes.clear();
        }
        bytes.extend_from_slice(LINE_END);
    }
    if !bytes.is_empty() {
        pieces.push(PyBytes::new(py, &bytes));
    }
    Ok((pieces, refused))
}
