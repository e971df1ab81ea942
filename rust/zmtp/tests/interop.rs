//! Connections against those of libzmq, over TCP.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the tests own the sockets

mod common;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, ErrorKind, IoSlice, Lines, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use common::crypto::{Pure, keys};
use trunkline_wire::{Frames, Nanos};
use trunkline_zmtp::curve::{ClientKeys, ServerKeys};
use trunkline_zmtp::{Connection, Event, Heartbeat, Reason, Security, Settings, Side, SocketType};

const CLIENT: u8 = 0xc1;
const SERVER: u8 = 0x51;

const PATIENCE: Duration = Duration::from_secs(60);

/// A process with sockets of libzmq.
struct Libzmq {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Libzmq {
    fn start() -> Self {
        let python = std::env::var_os("TRUNKLINE_PYTHON").expect("TRUNKLINE_PYTHON has pyzmq: `make test` sets it");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop.py");
        let keys = [[CLIENT; 32], [SERVER; 32], keys(SERVER).public];
        let hex = keys.map(|key| key.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}")));
        let mut command = Command::new(python);
        let mut process =
            command.arg(script).args(hex).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let input = process.stdin.take().expect("a pipe");
        let output = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        Self { process, input, output }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("it listens");
    }

    fn hear(&mut self) -> String {
        self.output.next().expect("it has not ended").expect("it can be read")
    }
}

impl Drop for Libzmq {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A connection and its socket.
struct Peer {
    stream: TcpStream,
    connection: Connection,
    start: Instant,
    buffer: Vec<u8>,
}

impl Peer {
    fn new(stream: TcpStream, settings: Settings, side: Side) -> Self {
        stream.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        let connection = Connection::new(Arc::new(settings), side, Nanos(0));
        Self { stream, connection, start: Instant::now(), buffer: vec![0; 65_536] }
    }

    fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    fn write(&mut self) {
        loop {
            let mut slices = [IoSlice::new(b""); 8];
            let count = self.connection.slices(&mut slices);
            if count == 0 {
                return;
            }
            match self.stream.write_vectored(&slices[..count]) {
                Ok(written) => self.connection.handle_written(written),
                Err(_) => return self.connection.refuse(Reason::HungUp),
            }
        }
    }

    /// The next event.
    fn next(&mut self) -> Event {
        loop {
            assert!(self.start.elapsed() < PATIENCE, "nothing happens any more");
            if let Some(event) = self.connection.poll_event() {
                return event;
            }
            self.write();
            self.connection.handle_timeout(self.now());
            match self.stream.read(&mut self.buffer) {
                Ok(0) => self.connection.handle_eof(),
                Ok(read) => self.take(read),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => self.connection.handle_eof(),
            }
        }
    }

    fn take(&mut self, read: usize) {
        let (now, mut rest) = (self.now(), &self.buffer[..read]);
        if let Some(mut landing) = self.connection.landing() {
            let (landed, more) = rest.split_at(landing.remaining_mut().min(rest.len()));
            landing.put_slice(landed);
            self.connection.handle_landed(now);
            rest = more;
        }
        self.connection.receive(now, Bytes::copy_from_slice(rest));
    }

    fn message(&mut self) -> Frames {
        match self.next() {
            Event::Message(frames) => frames,
            event @ (Event::Authenticate(_) | Event::Failed(_) | Event::Ready(_)) => panic!("{event:?}"),
        }
    }

    fn send(&mut self, frames: &[Bytes]) {
        assert!(self.connection.send(frames));
        self.write();
    }
}

/// The next connection.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).expect("a socket");
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(false).expect("a socket");
            return stream;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("nobody comes");
}

fn settings(socket: SocketType, is_secure: bool, is_server: bool) -> Settings {
    let crypto = Arc::<Pure>::default();
    let security = match (is_secure, is_server) {
        (false, _) => Security::Null,
        (true, false) => {
            Security::CurveClient(Arc::new(ClientKeys { crypto, keys: keys(CLIENT), server: keys(SERVER).public }))
        }
        (true, true) => Security::CurveServer(Arc::new(ServerKeys { crypto, keys: keys(SERVER) })),
    };
    let millis = Duration::from_millis;
    let heartbeat = Some(Heartbeat { interval: millis(20), timeout: Some(millis(10_000)), ttl: None });
    Settings { security, heartbeat, ..Settings::new(socket, Bytes::new()) }
}

fn bytes(number: usize, size: usize) -> Bytes {
    vec![u8::try_from(number % 251).expect("it is small"); size].into()
}

/// One socket of ours and one of libzmq's, whichever is bound: all sizes go from the one that asks, or sends, to the
/// other.
fn meet(libzmq: &mut Libzmq, ours: SocketType, theirs: SocketType, what: &str, is_bound: bool, is_secure: bool) {
    let sizes = [0, 1, 100, 222, 223, 253, 254, 255, 256, 4095, 4096, 8192, 65_535, 65_536];
    // Our encryption is slow in debug builds.
    let most = if is_secure && cfg!(debug_assertions) { 300_000 } else { 20 << 20 };
    let sizes = [&sizes[..], &[most]].concat();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("a port").port().to_string();
    let (place, security) = (if is_bound { &port } else { "bind" }, if is_secure { "curve" } else { "null" });
    let mut line = format!("{} {what} {place} {security}", theirs.name());
    for size in &sizes {
        write!(line, " {size}").expect("it is text");
    }
    libzmq.say(&line);
    let mut peer = if is_bound {
        Peer::new(accept(&listener), settings(ours, is_secure, true), Side::Accepted)
    } else {
        let port = libzmq.hear().parse().expect("a port");
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it is there");
        Peer::new(stream, settings(ours, is_secure, false), Side::Dialled)
    };
    if is_secure && is_bound {
        assert_eq!(peer.next(), Event::Authenticate(keys(CLIENT).public));
        peer.connection.allow(Some(Bytes::from_static(b"ada")));
    }
    let Event::Ready(ready) = peer.next() else { panic!("{line}") };
    assert_eq!((ready.socket_type, ready.minor), (theirs, 1));
    let many = std::iter::once(Bytes::new()).chain((0..1000).map(|_| Bytes::from_static(b"x"))).collect();
    let one = |(number, size): (usize, &usize)| Frames::from_iter([Bytes::new(), bytes(number, *size)]);
    for message in sizes.iter().enumerate().map(one).chain(Some(many)) {
        if matches!(what, "echo" | "receive") {
            peer.send(&message);
        }
        if what != "receive" {
            let got = peer.message();
            assert!(got == message, "{line}: {} frames", got.len());
        }
        if what == "ask" {
            peer.send(&message);
        }
    }
    peer.write();
    assert_eq!(libzmq.hear(), "done");
    assert_eq!(peer.connection.backlog().messages, 0);
    libzmq.say("goodbye");
}

fn meet_all(is_secure: bool) {
    use SocketType::{Dealer, Pull, Push, Rep, Req, Router};
    let mut libzmq = Libzmq::start();
    for is_bound in [true, false] {
        for (ours, theirs, what) in [
            (Dealer, Router, "echo"),
            (Router, Dealer, "ask"),
            (Dealer, Dealer, "ask"),
            (Req, Rep, "echo"),
            (Rep, Req, "ask"),
            (Router, Req, "ask"),
            (Pull, Push, "send"),
            (Push, Pull, "receive"),
        ] {
            meet(&mut libzmq, ours, theirs, what, is_bound, is_secure);
        }
    }
}

#[test]
fn sockets_meet_those_of_libzmq() {
    meet_all(false);
}

#[test]
fn sockets_meet_those_of_libzmq_with_curve() {
    meet_all(true);
}

/// A DEALER of libzmq connects to a ROUTER of ours.
fn visit(libzmq: &mut Libzmq, what: &str, security: &str, is_secure: bool) -> Peer {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("a port").port();
    libzmq.say(&format!("DEALER {what} {port} {security}"));
    Peer::new(accept(&listener), settings(SocketType::Router, is_secure, true), Side::Accepted)
}

#[test]
fn libzmq_knows_when_it_is_refused() {
    let mut libzmq = Libzmq::start();
    // With the server's own key in place of a client's.
    let mut peer = visit(&mut libzmq, "refused", "other", true);
    assert_eq!(peer.next(), Event::Authenticate(keys(SERVER).public));
    peer.connection.deny();
    peer.write();
    let Event::Failed(failure) = peer.next() else { panic!("it was let in") };
    assert_eq!(failure.reason, Reason::Denied);
    assert_eq!(libzmq.hear(), "done");
}

#[test]
fn libzmq_is_refused_without_the_security_that_is_asked_for() {
    for (security, is_secure) in [("null", true), ("curve", false)] {
        let mut libzmq = Libzmq::start();
        let mut peer = visit(&mut libzmq, "ask", security, is_secure);
        let Event::Failed(failure) = peer.next() else { panic!("it was let in") };
        // Whichever side first sees the other mechanism.
        assert!(matches!(failure.reason, Reason::OtherMechanism | Reason::HandshakeCut), "{failure}");
    }
}
