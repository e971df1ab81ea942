//! MTL: commands with replies, and a data flow under leases (MTL-01 … MTL-62).

pub mod client;
pub mod control;
pub mod data;
pub mod flow;
mod framing;
mod heartbeat;
mod retries;
mod secrets;
pub mod server;
pub mod table;

pub(crate) use framing::is_data;
pub use framing::{Control, Data, Mtl, Spoken, decode};
pub use heartbeat::Pings;
pub use secrets::lease_hash;
pub(crate) use secrets::redacted;

/// The property of a content that may have been delivered before.
pub(crate) const REDELIVERED: &str = "redelivered";

/// The first byte of a data header is below this; that of a name or status is not.
pub(crate) const FIRST_OF_CONTROL: u8 = 0x20;

/// Text without control characters (MTL-59), or the place of the first byte that keeps it from being that.
pub(crate) fn printable(bytes: &[u8]) -> Result<&str, usize> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.valid_up_to())?;
    match text.bytes().position(|byte| byte < b' ' || byte == 0x7f) {
        Some(at) => Err(at),
        None => Ok(text),
    }
}

/// The three digits of a status between 200 and 599 (MTL-08).
pub(crate) fn status(digits: &[u8]) -> Option<u16> {
    let [hundreds @ b'2'..=b'5', tens, ones] = digits else { return None };
    let digit = |byte: &u8| byte.is_ascii_digit().then(|| u16::from(byte - b'0'));
    Some(digit(hundreds)? * 100 + digit(tens)? * 10 + digit(ones)?)
}
