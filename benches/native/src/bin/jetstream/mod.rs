//! The smallest client of NATS for a load of one stream of `JetStream`: publishes that are acknowledged, and a
//! consumer.

use std::io::Write as _;
use std::time::Duration;

use crate::wire::Wire;

const STREAM: &str = "bench";
const DELIVER: &str = "deliver";
const INBOX: &str = "inbox";

pub(crate) struct JetStream {
    wire: Wire,
    put: u64,
}

/// The subject of a message, the subject of its answer, its body.
type Message<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// The first message, or nothing for any other line, and where it ends.
fn message(bytes: &[u8]) -> Option<(Option<Message<'_>>, usize)> {
    let line = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    if !bytes.starts_with(b"MSG ") {
        return Some((None, line));
    }
    let mut words = bytes[4..line - 2].split(|byte| *byte == b' ');
    let (subject, _, third) = (words.next()?, words.next()?, words.next()?);
    let (reply, size) = words.next().map_or((&[][..], third), |size| (third, size));
    let size: usize = std::str::from_utf8(size).ok()?.parse().ok()?;
    let body = bytes.get(line..line + size + 2)?;
    Some((Some((subject, reply, &body[..size])), line + size + 2))
}

impl JetStream {
    pub(crate) fn open(endpoint: &str) -> Self {
        let mut wire = Wire::open(endpoint);
        wire.out.extend_from_slice(b"CONNECT {\"verbose\":false}\r\n");
        wire.flush();
        Self { wire, put: 0 }
    }

    /// Creates the stream and its consumer: a content is gone when it is acknowledged.
    pub(crate) fn create(&mut self, is_durable: bool) {
        self.subscribe(&format!("{INBOX}.*"));
        let storage = if is_durable { "file" } else { "memory" };
        self.ask(
            &format!("$JS.API.STREAM.CREATE.{STREAM}"),
            &format!(
                r#"{{"name":"{STREAM}","subjects":["{STREAM}"],"storage":"{storage}","retention":"interest","num_replicas":1}}"#
            ),
        );
        self.ask(
            &format!("$JS.API.CONSUMER.DURABLE.CREATE.{STREAM}.reader"),
            &format!(
                r#"{{"stream_name":"{STREAM}","config":{{"durable_name":"reader","deliver_subject":"{DELIVER}","ack_policy":"all","max_ack_pending":1000}}}}"#
            ),
        );
    }

    /// Subscribes to what the consumer is given.
    pub(crate) fn consume(&mut self) {
        self.subscribe(DELIVER);
        self.wire.flush();
    }

    fn subscribe(&mut self, subject: &str) {
        write!(self.wire.out, "SUB {subject} 1\r\n").expect("written");
    }

    fn ask(&mut self, subject: &str, body: &str) {
        write!(self.wire.out, "PUB {subject} {INBOX}.0 {}\r\n{body}\r\n", body.len()).expect("written");
        self.wire.flush();
        let mut said = None;
        while said.is_none() {
            self.wire.fill();
            self.take(|_, _, body| said = Some(String::from_utf8_lossy(body).into_owned()));
        }
        let said = said.unwrap_or_default();
        assert!(!said.contains(r#""error""#), "{said}");
    }

    /// Takes all messages; a Ping is answered with the next flush.
    fn take(&mut self, mut taken: impl FnMut(&[u8], &[u8], &[u8])) {
        let mut start = 0;
        while let Some((found, end)) = message(&self.wire.read[start..]) {
            match found {
                Some((subject, reply, body)) => taken(subject, reply, body),
                None if self.wire.read[start..].starts_with(b"PING") => self.wire.out.extend_from_slice(b"PONG\r\n"),
                None => {}
            }
            start += end;
        }
        self.wire.read.drain(..start);
    }

    pub(crate) fn publish(&mut self, body: &[u8]) {
        self.put += 1;
        write!(self.wire.out, "PUB {STREAM} {INBOX}.{} {}\r\n", self.put, body.len()).expect("written");
        self.wire.out.extend_from_slice(body);
        self.wire.out.extend_from_slice(b"\r\n");
        self.wire.flush_if_full();
    }

    pub(crate) fn flush(&mut self) {
        self.wire.flush();
    }

    /// Waits for acknowledgements of publishes, and gives their numbers.
    pub(crate) fn confirmed(&mut self, timeout: Duration, mut confirmed: impl FnMut(u64, bool)) {
        self.wire.wait(timeout);
        self.take(|subject, _, body| {
            assert!(!body.windows(7).any(|word| word == b"\"error\""), "{}", String::from_utf8_lossy(body));
            let number = std::str::from_utf8(&subject[INBOX.len() + 1..]).ok().and_then(|number| number.parse().ok());
            confirmed(number.expect("the number of a publish"), false);
        });
    }

    /// Receives contents and acknowledges them all; gives their number.
    pub(crate) fn consumed(&mut self, timeout: Duration) -> usize {
        self.wire.wait(timeout);
        let (mut count, mut last) = (0, vec![]);
        self.take(|_, reply, _| {
            count += 1;
            last.clear();
            last.extend_from_slice(reply);
        });
        if count > 0 {
            self.wire.out.extend_from_slice(b"PUB ");
            self.wire.out.extend_from_slice(&last);
            self.wire.out.extend_from_slice(b" 4\r\n+ACK\r\n");
        }
        self.wire.flush();
        count
    }
}
