//! The control flow: a name or a status, and a JSON object.

use bytes::Bytes;
use serde_json::error::Category;
use serde_json::{Map, Value};

use super::{printable, status};
use crate::{DecodeError, ErrorKind, Frames};

/// The most bytes of JSON that a server parses of a command: it may take thirty times as much memory, and any client
/// may send one.
pub const COMMAND_BYTES: usize = 1 << 20;

/// The most values in JSON, counted by the marks before them: each takes thirty times its bytes in memory, and as much
/// again as a Python object.
pub const VALUES: usize = 1_000_000;

/// A JSON object; members keep their order, and the last of several with one name counts.
pub type Json = Map<String, Value>;

/// A command (MTL-07). Any name is valid here; the server decides which commands it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The name, as received.
    pub name: String,
    /// The arguments.
    pub body: Json,
}

/// A reply (MTL-08).
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The status, from 200 to 599.
    pub status: u16,
    /// The results.
    pub body: Json,
}

/// Reads a command from its two frames; the first is frame `at` of the message.
///
/// # Errors
/// If they are not a command: `bad_command`, `bad_json`.
pub fn command(name: &[u8], body: &[u8], at: usize) -> Result<Command, DecodeError> {
    let bad = |offset| DecodeError { kind: ErrorKind::BadCommand, frame: at, offset };
    let name = printable(name).map_err(bad)?;
    if name.is_empty() {
        return Err(bad(0));
    }
    Ok(Command { name: name.to_owned(), body: json(body, at + 1)? })
}

/// Reads a reply from its two frames; the first is frame `at` of the message.
///
/// # Errors
/// If they are not a reply: `bad_status`, `bad_json`.
pub fn reply(code: &[u8], body: &[u8], at: usize) -> Result<Reply, DecodeError> {
    let bad = DecodeError { kind: ErrorKind::BadStatus, frame: at, offset: 0 };
    Ok(Reply { status: status(code).ok_or(bad)?, body: json(body, at + 1)? })
}

impl Command {
    /// The class and the method, if the name has both.
    pub fn parts(&self) -> Option<(&str, &str)> {
        self.name.split_once('.').filter(|(class, method)| !class.is_empty() && !method.is_empty())
    }

    pub fn frames(&self) -> Frames {
        Frames::from_iter([Bytes::copy_from_slice(self.name.as_bytes()), written(&self.body)])
    }
}

impl Reply {
    pub fn frames(&self) -> Frames {
        Frames::from_iter([Bytes::from(self.status.to_string()), written(&self.body)])
    }
}

/// JSON that every parser accepts: no numbers out of range, no lone surrogates, at most 128 levels and [`VALUES`]
/// values.
fn json(bytes: &[u8], frame: usize) -> Result<Json, DecodeError> {
    if let Some(offset) = beyond(bytes) {
        return Err(DecodeError { kind: ErrorKind::BadJson, frame, offset });
    }
    serde_json::from_slice(bytes).map_err(|error| DecodeError {
        kind: ErrorKind::BadJson,
        frame,
        offset: offset_of(bytes, &error),
    })
}

/// Where JSON is not what was to be read.
pub fn offset_of(bytes: &[u8], error: &serde_json::Error) -> usize {
    match error.classify() {
        Category::Eof => bytes.len(),
        // Valid JSON, but not an object.
        Category::Data => bytes.len() - bytes.trim_ascii_start().len(),
        Category::Syntax | Category::Io => {
            // Lines and columns count from one; a column is a byte of its line.
            let lines = bytes.split_inclusive(|byte| *byte == b'\n').take(error.line().max(1) - 1);
            let before: usize = lines.map(<[u8]>::len).sum();
            (before + error.column().saturating_sub(1)).min(bytes.len())
        }
    }
}

/// Where JSON exceeds [`VALUES`] values; checked before any value is built.
pub fn beyond(bytes: &[u8]) -> Option<usize> {
    // Each takes at least a byte.
    if bytes.len() <= VALUES {
        return None;
    }
    let (mut count, mut at) = (0, 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = end_of_text(bytes, at),
            // One of these stands before each value but the first.
            b',' | b':' | b'[' | b'{' => count += 1,
            _ => {}
        }
        if count > VALUES {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// Where the text that begins here ends.
fn end_of_text(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at;
        }
        at += 2;
    }
    bytes.len()
}

fn written(body: &Json) -> Bytes {
    serde_json::to_vec(body).map(Bytes::from).expect("text and numbers can be written")
}
