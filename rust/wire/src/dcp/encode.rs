//! Writing messages. Parts are shared with the caller, not copied.

use bytes::Bytes;
use smallvec::smallvec;

use super::{MessageType, Width};
use crate::Frames;

static PROTOCOL: &[u8] = b"DGBX\x01";

/// A message with only a header: a ping, a pong or a reconnect.
pub fn encode_header(message_type: MessageType, width: Width) -> Frames {
    smallvec![Bytes::new(), Bytes::from_static(PROTOCOL), message_type.frame(width)]
}

pub fn encode_register(service: Bytes) -> Frames {
    let mut frames = encode_header(MessageType::Register, Width::One);
    frames.push(service);
    frames
}

/// A request; without `client` the broker inserts the sender's address. Metadata parts must not be empty.
pub fn encode_request(service: Bytes, client: Option<Bytes>, metadata: &[Bytes], data: &[Bytes]) -> Frames {
    let mut frames = start(MessageType::Request, metadata.len() + data.len());
    frames.push(service);
    frames.extend(client);
    end(&mut frames, metadata, data);
    frames
}

/// A reply. Metadata parts must not be empty.
pub fn encode_reply(client: Bytes, metadata: &[Bytes], data: &[Bytes]) -> Frames {
    let mut frames = start(MessageType::Reply, metadata.len() + data.len());
    frames.push(client);
    end(&mut frames, metadata, data);
    frames
}

/// A header with room for two addresses, two delimiters and the parts.
fn start(message_type: MessageType, parts: usize) -> Frames {
    let mut frames = Frames::with_capacity(7 + parts);
    frames.extend(encode_header(message_type, Width::One));
    frames
}

fn end(frames: &mut Frames, metadata: &[Bytes], data: &[Bytes]) {
    frames.push(Bytes::new());
    frames.extend(metadata.iter().cloned());
    frames.push(Bytes::new());
    frames.extend(data.iter().cloned());
}
