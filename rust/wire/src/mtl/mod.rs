//! MTL: commands, and a leased flow of data. What of it is known so far is how captures hold it.

use crate::{DecodeError, ErrorKind, Protocol, Split};

const NAME: &str = "mtl";

/// The commands and replies of MTL as a framing: an envelope that ends in an empty frame, a command or status, JSON.
#[derive(Clone, Copy, Debug)]
pub struct Control;

impl Protocol for Control {
    const NAME: &'static str = NAME;
    const KINDS: &'static [ErrorKind] = &[];
    type Settings = ();
    type Layout = ();

    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        let envelope = frames.iter().position(|frame| frame.as_ref().is_empty()).map_or(0, |empty| empty + 1);
        Split::after(envelope, frames.len())
    }

    fn decode(_: &[impl AsRef<[u8]>], (): &()) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// The data flow of MTL as a framing: a header and a body.
#[derive(Clone, Copy, Debug)]
pub struct Data;

impl Protocol for Data {
    const NAME: &'static str = NAME;
    const KINDS: &'static [ErrorKind] = &[];
    type Settings = ();
    type Layout = ();

    fn split(frames: &[impl AsRef<[u8]>]) -> Split {
        Split::after(0, frames.len()).opaque()
    }

    fn decode(_: &[impl AsRef<[u8]>], (): &()) -> Result<(), DecodeError> {
        Ok(())
    }
}
