//! The smallest client of AMQP 0-9-1 for a load of one queue: publisher confirms, and contents that are acknowledged.

use std::time::Duration;

use crate::wire::Wire;

const METHOD: u8 = 1;
const BODY: u8 = 3;
const END: u8 = 0xce;

// Classes and methods.
const START_OK: [u8; 4] = [0, 10, 0, 11];
const TUNE: [u8; 4] = [0, 10, 0, 30];
const TUNE_OK: [u8; 4] = [0, 10, 0, 31];
const CONNECTION_OPEN: [u8; 4] = [0, 10, 0, 40];
const CHANNEL_OPEN: [u8; 4] = [0, 20, 0, 10];
const DECLARE: [u8; 4] = [0, 50, 0, 10];
const QOS: [u8; 4] = [0, 60, 0, 10];
const CONSUME: [u8; 4] = [0, 60, 0, 20];
const PUBLISH: [u8; 4] = [0, 60, 0, 40];
const DELIVER: [u8; 4] = [0, 60, 0, 60];
const ACK: [u8; 4] = [0, 60, 0, 80];
const SELECT: [u8; 4] = [0, 85, 0, 10];

/// A connection with one channel.
pub(crate) struct Amqp {
    wire: Wire,
    is_durable: bool,
    /// The name of its queue, after its length.
    queue: Vec<u8>,
}

/// The first frame: its kind and contents, and where it ends.
fn frame(bytes: &[u8]) -> Option<((u8, &[u8]), usize)> {
    let length = u32::from_be_bytes(*bytes.get(3..)?.first_chunk()?) as usize;
    let payload = bytes.get(7..7 + length + 1)?;
    assert_eq!(payload[length], END, "the end of a frame");
    Some(((bytes[0], &payload[..length]), 7 + length + 1))
}

impl Amqp {
    /// Logs in as the guest; the queue is `classic`, or a `quorum` one.
    pub(crate) fn open(endpoint: &str, kind: &str, is_durable: bool) -> Self {
        let name = format!("{kind}-{is_durable}");
        let queue = [&[u8::try_from(name.len()).expect("a short name")], name.as_bytes()].concat();
        let mut amqp = Self { wire: Wire::open(endpoint), is_durable, queue };
        amqp.wire.out.extend_from_slice(b"AMQP\0\0\x09\x01");
        amqp.said();
        amqp.method(0, START_OK, &[&[0; 4], b"\x05PLAIN", b"\0\0\0\x0c\0guest\0guest", b"\x05en_US"]);
        let tune = amqp.said();
        assert_eq!(tune[..4], TUNE, "a Tune");
        // As many channels and as large frames as the server offers, and no heartbeats.
        amqp.method(0, TUNE_OK, &[&tune[4..10], &[0, 0]]);
        amqp.method(0, CONNECTION_OPEN, &[b"\x01/", &[0, 0]]);
        amqp.said();
        amqp.call(CHANNEL_OPEN, &[&[0]]);
        let arguments = [b"\x0cx-queue-type".as_slice(), b"S", &be(kind.len()), kind.as_bytes()].concat();
        let queue = amqp.queue.clone();
        amqp.call(DECLARE, &[&[0, 0], &queue, &[u8::from(is_durable) * 2], &be(arguments.len()), &arguments]);
        amqp
    }

    /// Asks for confirms of what is published.
    pub(crate) fn confirms(&mut self) {
        self.call(SELECT, &[&[0]]);
    }

    /// Subscribes to the contents, with so many unacknowledged.
    pub(crate) fn consume(&mut self, window: u16) {
        self.call(QOS, &[&[0; 4], &window.to_be_bytes(), &[0]]);
        let queue = self.queue.clone();
        self.call(CONSUME, &[&[0, 0], &queue, &[0, 0], &[0; 4]]);
    }

    fn method(&mut self, channel: u8, method: [u8; 4], arguments: &[&[u8]]) {
        let length: usize = arguments.iter().map(|part| part.len()).sum();
        let out = &mut self.wire.out;
        out.extend_from_slice(&[METHOD, 0, channel]);
        out.extend_from_slice(&be(length + 4));
        out.extend_from_slice(&method);
        for part in arguments {
            out.extend_from_slice(part);
        }
        out.push(END);
    }

    fn call(&mut self, method: [u8; 4], arguments: &[&[u8]]) {
        self.method(1, method, arguments);
        let said = self.said();
        assert_eq!(said[..4], [method[0], method[1], method[2], method[3] + 1], "{method:?} is answered");
    }

    /// The arguments of the next method.
    fn said(&mut self) -> Vec<u8> {
        self.wire.flush();
        loop {
            if let Some(((_, said), end)) = frame(&self.wire.read) {
                let said = said.to_vec();
                self.wire.read.drain(..end);
                return said;
            }
            self.wire.fill();
        }
    }

    pub(crate) fn publish(&mut self, body: &[u8]) {
        let queue = std::mem::take(&mut self.queue);
        self.method(1, PUBLISH, &[&[0, 0], &[0], &queue, &[0]]);
        self.queue = queue;
        let out = &mut self.wire.out;
        // The size of the body, and whether it is persistent.
        out.extend_from_slice(&[2, 0, 1]);
        out.extend_from_slice(&be(15));
        out.extend_from_slice(&[0, 60, 0, 0]);
        out.extend_from_slice(&(body.len() as u64).to_be_bytes());
        out.extend_from_slice(&[0x10, 0, if self.is_durable { 2 } else { 1 }]);
        out.extend_from_slice(&[END, BODY, 0, 1]);
        out.extend_from_slice(&be(body.len()));
        out.extend_from_slice(body);
        out.push(END);
        self.wire.flush_if_full();
    }

    pub(crate) fn flush(&mut self) {
        self.wire.flush();
    }

    /// Waits for confirms: each of a number, or of all up to it.
    pub(crate) fn confirmed(&mut self, timeout: Duration, mut confirmed: impl FnMut(u64, bool)) {
        self.wire.wait(timeout);
        let packet = |bytes: &[u8]| {
            let ((_, said), end) = frame(bytes)?;
            assert_eq!(said[..4], ACK, "nothing but confirms");
            Some(((u64::from_be_bytes(*said[4..].first_chunk()?), said[12] & 1 == 1), end))
        };
        self.wire.take(packet, |(number, multiple)| confirmed(number, multiple));
    }

    /// Receives contents and acknowledges them all; gives their number.
    pub(crate) fn consumed(&mut self, timeout: Duration) -> usize {
        self.wire.wait(timeout);
        // A content is a method, a header and a body: an incomplete one waits for the rest.
        let content = |bytes: &[u8]| {
            let ((_, deliver), header) = frame(bytes)?;
            let (_, length) = frame(&bytes[header..])?;
            let ((kind, _), end) = frame(&bytes[header + length..])?;
            assert!(deliver[..4] == DELIVER && kind == BODY, "a content with its body in one frame");
            let tag = 5 + usize::from(deliver[4]);
            Some((u64::from_be_bytes(*deliver[tag..].first_chunk()?), header + length + end))
        };
        let (mut count, mut last) = (0, None);
        self.wire.take(content, |tag| {
            count += 1;
            last = Some(tag);
        });
        if let Some(last) = last {
            self.method(1, ACK, &[&last.to_be_bytes(), &[1]]);
            self.wire.flush();
        }
        count
    }
}

fn be(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("short").to_be_bytes()
}
