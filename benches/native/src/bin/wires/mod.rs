//! The smallest clients of NATS, MQTT 3.1.1 and mc0 for a load, over TCP; of MQTT with a quality of 0.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use crate::wire::{FULL, Wire, zmtp};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Nats,
    Mqtt,
    Mc0,
}

/// Connections to one server.
pub(crate) struct Wires {
    protocol: Protocol,
    all: Vec<Wire>,
}

fn mqtt(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut length: usize = parts.iter().map(|part| part.len()).sum();
    let mut packet = vec![kind];
    loop {
        let digit = u8::try_from(length % 128).expect("seven bits");
        length /= 128;
        packet.push(if length > 0 { digit | 128 } else { digit });
        if length == 0 {
            break;
        }
    }
    for part in parts {
        packet.extend_from_slice(part);
    }
    packet
}

fn length(text: &[u8]) -> [u8; 2] {
    u16::try_from(text.len()).expect("short").to_be_bytes()
}

impl Wires {
    /// Dials `tcp://host:port` this many times.
    pub(crate) fn open(protocol: Protocol, endpoint: &str, count: usize) -> Self {
        let open = |number: usize| {
            let name = format!("load-{}-{number}-{:?}", std::process::id(), std::thread::current().id());
            let name = name.as_bytes();
            let hello = match protocol {
                Protocol::Nats => b"CONNECT {\"verbose\":false}\r\n".to_vec(),
                Protocol::Mqtt => mqtt(0x10, &[b"\0\x04MQTT\x04\x02\0\0", &length(name), name]),
                Protocol::Mc0 => zmtp::handshake("DEALER"),
            };
            let mut wire = Wire::open(endpoint);
            wire.out = hello;
            wire.flush();
            if protocol == Protocol::Mc0 {
                zmtp::skip_greeting(&mut wire);
            }
            wire
        };
        Self { protocol, all: (0..count).map(open).collect() }
    }

    pub(crate) fn subscribe(&mut self, topic: &[u8]) {
        for wire in &mut self.all {
            let packet = match self.protocol {
                Protocol::Nats => [b"SUB ", topic, b" 1\r\n"].concat(),
                Protocol::Mqtt => mqtt(0x82, &[b"\0\x01", &length(topic), topic, b"\0"]),
                Protocol::Mc0 => {
                    let mut packet = vec![];
                    zmtp::message(&mut packet, &[b"", b"SUB", b"", topic]);
                    packet
                }
            };
            wire.out.extend_from_slice(&packet);
            wire.flush();
        }
    }

    pub(crate) fn put(&mut self, at: usize, topic: &[u8], body: &[u8]) {
        let wire = &mut self.all[at];
        match self.protocol {
            Protocol::Nats => {
                wire.out.extend_from_slice(b"PUB ");
                wire.out.extend_from_slice(topic);
                write!(wire.out, " {}\r\n", body.len()).expect("written");
                wire.out.extend_from_slice(body);
                wire.out.extend_from_slice(b"\r\n");
            }
            Protocol::Mqtt => wire.out.extend_from_slice(&mqtt(0x30, &[&length(topic), topic, body])),
            Protocol::Mc0 => zmtp::message(&mut wire.out, &[b"", b"PUT", b"TOPIC", topic, b"", body]),
        }
        if wire.out.len() >= FULL {
            wire.flush();
        }
    }

    pub(crate) fn flush(&mut self) {
        self.all.iter_mut().for_each(Wire::flush);
    }

    /// Waits for so long at most, and gives each body with the number of its receiver.
    pub(crate) fn hear(&mut self, timeout: Duration, mut heard: impl FnMut(usize, &[u8])) {
        let listen = |wire: &Wire| libc::pollfd { fd: wire.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<_> = self.all.iter().map(listen).collect();
        let timeout = i32::try_from(timeout.as_millis()).expect("short");
        // SAFETY: pointer and length are those of the vector.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        for (at, _) in polled.iter().enumerate().filter(|(_, polled)| polled.revents != 0) {
            let wire = &mut self.all[at];
            wire.fill();
            let mut start = 0;
            while let Some((body, end)) = packet(self.protocol, &wire.read[start..]) {
                if let Some((from, to)) = body {
                    heard(at, &wire.read[start + from..start + to]);
                } else if wire.read[start..].starts_with(b"PING") {
                    wire.out.extend_from_slice(b"PONG\r\n");
                }
                start += end;
            }
            wire.read.drain(..start);
            wire.flush();
        }
    }
}

/// The first packet: where its body is, if it is a message, and where it ends.
fn packet(protocol: Protocol, bytes: &[u8]) -> Option<(Option<(usize, usize)>, usize)> {
    match protocol {
        Protocol::Nats => {
            let line = bytes.iter().position(|byte| *byte == b'\n')? + 1;
            if !bytes.starts_with(b"MSG ") {
                return Some((None, line));
            }
            let size = bytes[..line - 2].rsplit(|byte| *byte == b' ').next()?;
            let size: usize = std::str::from_utf8(size).ok()?.parse().ok()?;
            (bytes.len() >= line + size + 2).then_some((Some((line, line + size)), line + size + 2))
        }
        Protocol::Mqtt => {
            let (mut length, mut at) = (0, 1);
            loop {
                let digit = usize::from(*bytes.get(at)?);
                length |= (digit & 127) << (7 * (at - 1));
                at += 1;
                if digit < 128 {
                    break;
                }
            }
            let end = at + length;
            let packet = bytes.get(at..end)?;
            let body =
                (bytes[0] & 0xf0 == 0x30).then(|| at + 2 + usize::from(u16::from_be_bytes([packet[0], packet[1]])));
            Some((body.map(|body| (body, end)), end))
        }
        Protocol::Mc0 => zmtp::last_frame(bytes),
    }
}
