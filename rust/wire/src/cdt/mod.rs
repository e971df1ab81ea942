//! CDT: the configuration of endpoints over NATS. What of it is known so far is how captures hold it.

use crate::{DecodeError, ErrorKind, Protocol, Split};

/// CDT as a framing: the header block of NATS, if any, and a body that is looked into.
#[derive(Clone, Copy, Debug)]
pub struct Cdt;

impl Protocol for Cdt {
    const NAME: &'static str = "cdt";
    const KINDS: &'static [ErrorKind] = &[];
    type Settings = ();
    type Layout = ();

    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        let envelope = usize::from(frames.len() > 1);
        Split { envelope: 0..envelope, header: None, payload: envelope..frames.len(), body: frames.len(), topic: None }
    }

    fn decode(_: &[impl AsRef<[u8]>], (): &()) -> Result<(), DecodeError> {
        Ok(())
    }
}
