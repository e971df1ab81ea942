//! CDT: configurations of endpoints over NATS. Targets store them, sources pull and push them; both announce changes
//! by events.

mod avro;
mod body;
mod content;
mod draft;
mod fields;
mod framing;
mod json;
mod message;
mod plain;
mod recorder;
mod settings;
mod source;
pub mod subject;
mod target;
mod values;
mod watches;

use std::str::Utf8Error;

use ascii::AsAsciiStr;
use bytes::Bytes;

use crate::Fault;

pub use body::Body;
pub use content::Content;
pub use framing::Cdt;
pub use message::{Kind, Message, Received, Rejected};
pub use recorder::{Recorder, RecorderEvent, RecorderSettings, RecorderStats};
pub use settings::{Part, SourceStats, TargetStats};
pub use source::{Confirm, Ended, Hearing, Pull, Push, Source, SourceEvent, SourceSettings, SourceVerb};
pub use target::{Answer, Config, Listening, Target, TargetEvent, TargetSettings, TargetVerb};

/// The encoding of bodies: one for each deployment, and never guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Codec {
    /// JSON, as in the examples of the specification.
    #[default]
    Json,
    /// Binary Avro.
    Avro,
}

/// The encoding of bytes in JSON. A message does not show which one it uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BytesEncoding {
    /// Base64, as in the examples of the specification.
    #[default]
    Base64,
    /// One character per byte, as in the JSON encoding of Avro.
    Latin1,
}

/// How bodies are decoded and encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub codec: Codec,
    /// The encoding of bytes in JSON.
    pub bytes_encoding: BytesEncoding,
    /// Whether messages without a timeout, and content that is not declared as bytes, are refused.
    pub strict: bool,
    /// The kind of all messages, if their subjects are not known.
    pub kind: Option<Kind>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { codec: Codec::Json, bytes_encoding: BytesEncoding::Base64, strict: true, kind: None }
    }
}

/// Decodes the body of a message of a kind.
///
/// # Errors
/// If it is not one, with the fields that could be read.
pub fn decode<'a>(body: &'a [u8], kind: Kind, settings: &Settings) -> Result<Message<'a>, Rejected<'a>> {
    match settings.codec {
        Codec::Json => json::decode(body, kind, *settings),
        Codec::Avro => avro::decode(body, kind, *settings),
    }
}

/// Decodes a shared body; the content borrows from it.
///
/// # Errors
/// As those of [`decode`].
pub fn decode_shared<'a>(body: &'a Bytes, kind: Kind, settings: &Settings) -> Result<Message<'a>, Rejected<'a>> {
    let mut message = decode(body, kind, settings)?;
    if let Some(Content::Part(part)) = message.content {
        message.content = Some(body.slice_ref(part).into());
    }
    Ok(message)
}

/// The fault of a message with this subject; none if the subject is unknown.
pub fn fault(subject: &str, body: &[u8], settings: &Settings) -> Option<Fault> {
    let parsed = subject::parse(subject);
    // An empty answer reports that the request had no responder.
    let kind = parsed.kind.filter(|_| !(body.is_empty() && parsed.replica.is_some()))?;
    decode(body, kind, settings).err().map(|rejected| rejected.fault)
}

/// Encodes the body of a message.
pub fn encode(message: &Message<'_>, settings: &Settings) -> Vec<u8> {
    body(message, settings).into_bytes()
}

/// The body of a message, to be written to a buffer.
pub fn body<'a>(message: &'a Message<'_>, settings: &Settings) -> Body<'a> {
    match settings.codec {
        Codec::Json => json::encode(message, settings.bytes_encoding),
        Codec::Avro => avro::encode(message),
    }
}

/// The text of bytes. For short ASCII text, the most frequent, this takes a third of the time.
#[inline]
fn utf8(bytes: &[u8]) -> Result<&str, Utf8Error> {
    match bytes.as_ascii_str() {
        Ok(text) => Ok(text.as_str()),
        Err(_) => str::from_utf8(bytes),
    }
}
