//! Roles over NATS, beside a server that is played by hand.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the server is written by hand

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::nats::{bodies, is, saw, send, start_with, urls};
use common::{Ask, Echo, PATIENCE, Reported, close, read_until};
use trunkline_engine::{Bounds, Handle, Hold as _, Offered, Running as _};
use trunkline_wire::{SendId, ServerNotice, SocketEvent, Unsent};

const INFO: &str = "INFO {\"headers\":true,\"max_payload\":100000}\r\n";

/// A server whose lines are written by hand.
struct Server(TcpListener);

impl Server {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").expect("a port"))
    }

    fn address(&self) -> String {
        self.0.local_addr().expect("bound").to_string()
    }

    fn accept(&self) -> Client {
        let (stream, _) = self.0.accept().expect("it dials");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Client(BufReader::new(stream))
    }

    /// Accepts a client, and answers until it has subscribed; gives what it has said after its login.
    fn welcome(&self, info: &str) -> (Client, Vec<String>) {
        let mut client = self.accept();
        client.say(info);
        assert!(client.hear().starts_with("CONNECT {"));
        assert_eq!(client.hear(), "PING");
        client.say("PONG\r\n");
        let said = client.hear_until("PING");
        client.say("PONG\r\n");
        (client, said)
    }
}

/// A client of that server.
struct Client(BufReader<TcpStream>);

impl Client {
    fn say(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).expect("it reads");
    }

    /// A line; empty at the end.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it writes");
        line.trim_end().to_owned()
    }

    fn hear_until(&mut self, end: &str) -> Vec<String> {
        let mut lines = vec![];
        loop {
            match self.hear() {
                line if line == end => return lines,
                line if line.is_empty() && lines.last().is_some_and(String::is_empty) => panic!("it ended: {lines:?}"),
                line => lines.push(line),
            }
        }
    }
}

fn start(server: &Server, sockets: &[&[&str]]) -> Handle<Echo> {
    start_with(urls(&[server.address()]), sockets, Bounds::default())
}

fn connected(server: &Server) -> SocketEvent {
    SocketEvent::Connected(format!("nats://{}", server.address()).into())
}

fn disconnected(server: &Server) -> SocketEvent {
    SocketEvent::Disconnected(format!("nats://{}", server.address()).into())
}

#[test]
fn a_connection_counts_once_the_server_has_its_subscriptions() {
    let server = Server::new();
    let role = start(&server, &[&["a.>", "b q"], &["c"]]);
    let mut client = server.accept();
    client.say(INFO);
    assert_eq!(client.hear_until("PING").len(), 1);
    client.say("PONG\r\n");
    assert_eq!(client.hear_until("PING"), ["SUB a.> 1", "SUB b q 2", "SUB c 3"]);
    client.say("-ERR 'Permissions Violation for Subscription to \"c\"'\r\nPONG\r\n");
    let events = saw(&role, &connected(&server));
    let said: Vec<_> = events
        .iter()
        .filter_map(|reported| {
            if let Reported::Socket(0, SocketEvent::Server(notice)) = reported { Some(notice.clone()) } else { None }
        })
        .collect();
    let forbidden = "Permissions Violation for Subscription to \"c\"".to_owned();
    let used = ServerNotice::Used(format!("nats://{}", server.address()));
    assert_eq!(said, [used, ServerNotice::MaxPayload(100_000), ServerNotice::Forbidden(forbidden)]);
    assert_eq!(role.endpoints(), [format!("nats://{}", server.address())]);
    client.say("MSG a.b 1 r.s 2\r\n{}\r\nHMSG b 2 12 14\r\nNATS/1.0\r\n\r\n[]\r\n");
    let events = read_until(&role, |events| bodies(events).len() == 2);
    let messages: Vec<_> = events
        .into_iter()
        .filter_map(|reported| if let Reported::Message(frames) = reported { Some(frames) } else { None })
        .collect();
    assert_eq!(
        messages,
        [["r.s", "", "{}"], ["", "NATS/1.0\r\n\r\n", "[]"]].map(|parts| parts.map(Bytes::from).to_vec())
    );
    client.say("INFO {\"max_payload\":5}\r\n");
    saw(&role, &SocketEvent::Server(ServerNotice::MaxPayload(5)));
    role.ask(send("a", "123456", Some(1)));
    let events =
        saw(&role, &SocketEvent::Server(ServerNotice::Unsent("it is larger than the server accepts".to_owned())));
    assert!(events.iter().any(|reported| is(reported, &SocketEvent::Unsent(SendId(1), Unsent::Unreachable))));
    close(&role);
}

#[test]
fn messages_of_all_subscriptions_keep_their_order() {
    let server = Server::new();
    let role = start(&server, &[&["a"], &["b"], &["c"]]);
    let (mut client, _) = server.welcome(INFO);
    let lines: Vec<_> = (0..3000).map(|at| format!("MSG x {} 4\r\n{at:04}\r\n", at % 3 + 1)).collect();
    client.say(&lines.concat());
    let events = read_until(&role, |events| bodies(events).len() == 3000);
    let expected: Vec<_> = (0..3000).map(|at| Bytes::from(format!("{at:04}"))).collect();
    assert_eq!(bodies(&events), expected);
    close(&role);
}

#[test]
fn a_send_is_confirmed_by_the_server_alone() {
    let server = Server::new();
    let role = start(&server, &[&["a"]]);
    let (mut client, _) = server.welcome(INFO);
    saw(&role, &connected(&server));
    role.ask(send("x", "1", Some(1)));
    assert_eq!(client.hear_until("PING"), ["PUB x 1", "1"]);
    role.ask(send("x", "2", Some(2)));
    assert_eq!(client.hear_until("PING"), ["PUB x 1", "2"]);
    client.say("PONG\r\nMSG a 1 0\r\n\r\n");
    let events = read_until(&role, |events| !bodies(events).is_empty());
    let sent: Vec<_> =
        events.iter().filter(|reported| matches!(reported, Reported::Socket(0, SocketEvent::Sent(_)))).collect();
    assert_eq!(sent, [&Reported::Socket(0, SocketEvent::Sent(SendId(1)))]);
    drop(client);
    // Nobody knows whether the second has arrived.
    saw(&role, &SocketEvent::Unsent(SendId(2), Unsent::Unreachable));
    close(&role);
}

#[test]
fn what_is_said_to_be_unsent_is_not_sent_later() {
    let server = Server::new();
    let role = start(&server, &[&["a"]]);
    let (client, _) = server.welcome(INFO);
    saw(&role, &connected(&server));
    drop(client);
    let events = saw(&role, &disconnected(&server));
    assert!(role.endpoints().is_empty());
    let reason = "the NATS server closed the connection".to_owned();
    let endpoint = format!("nats://{}", server.address());
    assert!(events.iter().any(|reported| is(
        reported,
        &SocketEvent::HandshakeFailed { endpoint: endpoint.clone(), reason: reason.clone() }
    )));
    role.ask(send("x", "held", None));
    role.ask(send("x", "refused", Some(1)));
    role.ask(send("x", vec![b'y'; 3 << 20], None));
    role.ask(send("x", "held too", None));
    let room = "there is no connection, and no room for what waits for one".to_owned();
    saw(&role, &SocketEvent::Server(ServerNotice::Unsent(room)));
    let (_client, said) = server.welcome(INFO);
    assert_eq!(said, ["SUB a 1", "PUB x 4", "held", "PUB x 8", "held too"]);
    saw(&role, &connected(&server));
    close(&role);
}

#[test]
fn a_server_that_says_something_odd_is_tried_again() {
    let server = Server::new();
    let role = start(&server, &[&["a"]]);
    for greeting in ["", "INFO []\r\n", "-ERR 'maximum connections exceeded'\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"] {
        server.accept().say(greeting);
    }
    let (mut client, _) = server.welcome(INFO);
    let events = saw(&role, &connected(&server));
    let reasons = events
        .iter()
        .filter(|reported| matches!(reported, Reported::Socket(_, SocketEvent::HandshakeFailed { .. })))
        .count();
    assert_eq!(reasons, 4);
    client.say("NONSENSE\r\n");
    let (_client, said) = server.welcome(INFO);
    assert_eq!(said, ["SUB a 1"]);
    close(&role);
}

#[test]
fn servers_of_the_cluster_take_over() {
    let (first, second) = (Server::new(), Server::new());
    let unused = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let role = start_with(urls(&[unused, first.address()]), &[&["a"]], Bounds::default());
    let info = format!("INFO {{\"connect_urls\":[\"{}\",\"{}\"]}}\r\n", first.address(), second.address());
    let (mut client, _) = first.welcome(&info);
    let events = saw(&role, &connected(&first));
    assert!(events.iter().any(|reported| matches!(reported, Reported::Socket(_, SocketEvent::Unreachable { .. }))));
    // It ends soon, and then does.
    client.say("INFO {\"ldm\":true}\r\n");
    drop(client);
    let (_client, said) = second.welcome(INFO);
    assert_eq!(said, ["SUB a 1"]);
    saw(&role, &connected(&second));
    close(&role);
}

#[test]
fn a_server_is_not_read_while_the_user_does_not_read() {
    const EACH: usize = 50_000;
    let server = Server::new();
    let role = start_with(urls(&[server.address()]), &[&["a"]], Bounds { messages: 10, ..Bounds::default() });
    let (client, _) = server.welcome(INFO);
    let mut stream = client.0.into_inner();
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a socket");
    let message = format!("MSG a 1 {EACH}\r\n{}\r\n", "x".repeat(EACH));
    let mut written = 0;
    while stream.write_all(message.as_bytes()).is_ok() {
        written += 1;
        assert!(written < 10_000, "all is read");
    }
    let events = read_until(&role, |events| bodies(events).len() >= written);
    assert!(bodies(&events).iter().all(|body| body.len() == EACH));
    role.close(Duration::ZERO);
    role.join();
}

#[test]
fn what_was_sent_has_arrived_when_a_role_is_closed() {
    let server = Server::new();
    let role = start(&server, &[&["a"]]);
    let (mut client, _) = server.welcome(INFO);
    saw(&role, &connected(&server));
    let heard = std::thread::spawn(move || {
        let mut heard = client.hear_until("PING");
        client.say("PONG\r\n");
        heard.retain(|line| line.starts_with("PUB"));
        heard.len()
    });
    for _ in 0..1000 {
        role.ask(send("x", vec![b'y'; 10_000], None));
    }
    role.close(PATIENCE);
    role.join();
    assert_eq!(heard.join().expect("it hears"), 1000);
    assert!(!role.is_unsent());
}

#[test]
fn the_user_waits_while_the_server_does_not_read() {
    let server = Server::new();
    let role = start_with(urls(&[server.address()]), &[&["a"]], Bounds { bytes: 1 << 20, ..Bounds::default() });
    let (client, _) = server.welcome(INFO);
    saw(&role, &connected(&server));
    let mut taken = 0;
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        match role.offer(send("x", vec![b'y'; 50_000], None), 50_000) {
            Offered::Taken => taken += 1,
            Offered::Full(_) | Offered::Over(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        assert!(taken < 1000, "all is taken");
    }
    assert!(!role.has_room());
    let mut stream = client.0.into_inner();
    let reading = std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
    role.changes().wait(|| role.has_room(), Some(PATIENCE));
    assert!(role.has_room());
    role.close(Duration::ZERO);
    role.join();
    let read = reading.join().expect("it reads");
    assert!(read.is_ok_and(|bytes| bytes > 1 << 20));
}

#[test]
fn a_server_that_does_not_read_holds_up_no_end() {
    let server = Server::new();
    let role = start(&server, &[&["a"]]);
    let (_client, _) = server.welcome(INFO);
    saw(&role, &connected(&server));
    for _ in 0..1000 {
        role.ask(send("x", vec![b'y'; 50_000], None));
    }
    let began = Instant::now();
    close(&role);
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
    assert!(role.is_unsent());
}

#[test]
fn subjects_that_are_none_are_refused() {
    let server = Server::new();
    let role = start(&server, &[&["a"]]);
    role.ask(Ask::Listen(1, "a\r\nPUB b 0".to_owned()));
    read_until(&role, |events| {
        events.iter().any(|reported| matches!(reported, Reported::Socket(1, SocketEvent::OpenFailed { .. })))
    });
    close(&role);
}

#[test]
fn a_server_that_breaks_encryption_is_tried_again() {
    let server = Server::new();
    let role = start(&server, &[&["a"]]);
    let mut reasons = vec![];
    for junk in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let mut client = server.accept();
        client.say("INFO {\"tls_required\":true}\r\n");
        // The beginning of a handshake of TLS, and no login.
        assert_eq!(client.0.fill_buf().expect("it writes")[0], 22);
        client.say(junk);
        drop(client);
        let failed = |reported: &Reported| match reported {
            Reported::Socket(_, SocketEvent::HandshakeFailed { reason, .. }) => Some(reason.clone()),
            Reported::Socket(..) | Reported::Message(_) => None,
        };
        let events = read_until(&role, |events| events.iter().any(|reported| failed(reported).is_some()));
        reasons.extend(events.iter().find_map(failed));
    }
    assert!(reasons[0].starts_with("encryption has failed: "), "{reasons:?}");
    assert_eq!(reasons[1], "it hung up before the login was over");
    let (_client, said) = server.welcome(INFO);
    assert_eq!(said, ["SUB a 1"]);
    close(&role);
}
