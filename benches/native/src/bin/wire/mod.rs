//! A connection over TCP: outgoing bytes are gathered, and incoming ones are read as they are.
#![allow(dead_code)] // no load needs all of it

pub(crate) mod zmtp;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

/// Gathered bytes after which they are sent.
pub(crate) const FULL: usize = 64 << 10;

pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) out: Vec<u8>,
    pub(crate) read: Vec<u8>,
}

impl Wire {
    /// Dials `tcp://host:port`.
    pub(crate) fn open(endpoint: &str) -> Self {
        let stream = TcpStream::connect(endpoint.trim_start_matches("tcp://")).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        Self { stream, out: vec![], read: vec![] }
    }

    pub(crate) fn flush(&mut self) {
        if !self.out.is_empty() {
            self.stream.write_all(&self.out).expect("written");
            self.out.clear();
        }
    }

    /// Sends what was gathered once it is much.
    pub(crate) fn flush_if_full(&mut self) {
        if self.out.len() >= FULL {
            self.flush();
        }
    }

    pub(crate) fn fill(&mut self) {
        let start = self.read.len();
        self.read.resize(start + FULL, 0);
        let count = match self.stream.read(&mut self.read[start..]) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) => panic!("read: {error}"),
        };
        self.read.truncate(start + count);
    }

    /// Waits for incoming bytes, and reads them.
    pub(crate) fn wait(&mut self, timeout: Duration) {
        let mut polled = libc::pollfd { fd: self.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = i32::try_from(timeout.as_millis()).expect("short");
        // SAFETY: the pointer is to one live entry.
        if unsafe { libc::poll(&raw mut polled, 1, timeout) } > 0 {
            self.fill();
        }
    }

    /// Takes what `packet` finds, which gives the value of the first packet and where it ends.
    pub(crate) fn take<T>(&mut self, packet: impl Fn(&[u8]) -> Option<(T, usize)>, mut taken: impl FnMut(T)) {
        let mut start = 0;
        while let Some((found, end)) = packet(&self.read[start..]) {
            start += end;
            taken(found);
        }
        self.read.drain(..start);
    }
}
