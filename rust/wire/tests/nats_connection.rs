//! One connection to a server of NATS, played by hand.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use trunkline_wire::Nanos;
use trunkline_wire::nats::{Connection, Event, Login, Message, Reason, Settings, Unfit};
use zeroize::Zeroizing;

const INFO: &[u8] = b"INFO {\"max_payload\":1000,\"headers\":true}\r\n";
const NOW: Nanos = Nanos(0);

fn at(seconds: u64) -> Nanos {
    NOW + Duration::from_secs(seconds)
}

fn fresh(settings: Settings) -> Connection {
    Connection::new(Arc::new(settings), Login::default(), NOW)
}

fn events(connection: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| connection.poll_event(NOW)).collect()
}

/// Hears something; gives what happens.
fn hear(connection: &mut Connection, bytes: &[u8]) -> Vec<Event> {
    connection.receive(Bytes::copy_from_slice(bytes));
    events(connection)
}

/// All that is to be written.
fn written(connection: &mut Connection) -> String {
    let mut slices = [IoSlice::new(&[]); 1024];
    let count = connection.slices(&mut slices);
    let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
    connection.handle_written(bytes.len());
    String::from_utf8(bytes).expect("what is said is text")
}

/// A connection whose login is over.
fn ready() -> Connection {
    let mut connection = fresh(Settings::default());
    assert_eq!(hear(&mut connection, INFO), []);
    assert!(written(&mut connection).ends_with("}\r\nPING\r\n"));
    assert_eq!(hear(&mut connection, b"PONG\r\n"), [Event::Ready]);
    connection
}

fn message(subscription: u64, subject: &'static str, body: &'static str) -> Event {
    let (subject, body) = (Bytes::from(subject), Bytes::from(body));
    Event::Message(Message { subscription, subject, body, ..Message::default() })
}

/// Why it is over, and where.
fn failure(events: &[Event]) -> Option<(Reason, u64)> {
    events.iter().find_map(|event| if let Event::Failed(why) = event { Some((why.reason, why.offset)) } else { None })
}

#[test]
fn a_login_is_over_with_its_pong() {
    let settings = Settings { name: Some("me".to_owned()), ..Settings::default() };
    let login = Login { token: Some(Zeroizing::new("secret".to_owned())), ..Login::default() };
    let mut connection = Connection::new(Arc::new(settings), login, NOW);
    assert_eq!(connection.subscribe(1, b"a", b""), Err(Unfit::NotReady));
    assert_eq!(connection.publish(b"a", b"", &Bytes::new(), &Bytes::new()), Err(Unfit::NotReady));
    assert_eq!(connection.barrier(), Err(Unfit::NotReady));
    assert_eq!(hear(&mut connection, INFO), []);
    assert!(!format!("{connection:?}").contains("secret"));
    let said = written(&mut connection);
    let connect = said.strip_prefix("CONNECT ").and_then(|said| said.strip_suffix("\r\nPING\r\n")).unwrap();
    let connect: serde_json::Value = serde_json::from_str(connect).unwrap();
    assert_eq!((&connect["auth_token"], &connect["name"]), (&"secret".into(), &"me".into()));
    // Some servers say again who they are, and ask at once.
    assert_eq!(hear(&mut connection, &[INFO, b"+OK\r\nPING\r\n"].concat()), [Event::Info]);
    assert!(!connection.is_ready());
    assert_eq!(written(&mut connection), "PONG\r\n");
    assert_eq!(hear(&mut connection, b"PONG\r\n"), [Event::Ready]);
    assert!(connection.is_ready());
}

#[test]
fn what_is_asked_for_is_written() {
    let mut connection = ready();
    let (none, body) = (Bytes::new(), Bytes::from("{}"));
    connection.subscribe(7, b"a.>", b"").unwrap();
    connection.subscribe(18_446_744_073_709_551_615, b"a.*", b"all").unwrap();
    connection.unsubscribe(0).unwrap();
    connection.publish(b"a.b", b"", &none, &body).unwrap();
    connection.publish(b"a.b", b"r", &none, &none).unwrap();
    connection.publish(b"a", b"", &Bytes::from("NATS/1.0\r\n\r\n"), &body).unwrap();
    connection.publish(b"a", b"r", &Bytes::from("NATS/1.0\r\n\r\n"), &body).unwrap();
    assert_eq!(connection.barrier(), Ok(1));
    let said = "SUB a.> 7\r\nSUB a.* all 18446744073709551615\r\nUNSUB 0\r\nPUB a.b 2\r\n{}\r\nPUB a.b r 0\r\n\r\n\
                HPUB a 12 14\r\nNATS/1.0\r\n\r\n{}\r\nHPUB a r 12 14\r\nNATS/1.0\r\n\r\n{}\r\nPING\r\n";
    assert_eq!(connection.pending(), said.len());
    assert_eq!(written(&mut connection), said);
}

#[test]
fn what_does_not_fit_is_not_written() {
    let mut connection = ready();
    let none = Bytes::new();
    for bad in ["", "a b", "a\r\nPUB b 0", "\t", "\0"] {
        assert_eq!(connection.publish(bad.as_bytes(), b"", &none, &none), Err(Unfit::Subject), "{bad:?}");
        assert_eq!(connection.subscribe(1, bad.as_bytes(), b""), Err(Unfit::Subject), "{bad:?}");
    }
    assert_eq!(connection.publish(b"a", b"r s", &none, &none), Err(Unfit::Subject));
    assert_eq!(connection.subscribe(1, b"a", b"q\r\n"), Err(Unfit::Subject));
    let block = Bytes::from("NATS/1.0\r\n\r\n");
    assert_eq!(connection.publish(b"a", b"", &block, &vec![0; 989].into()), Err(Unfit::TooLarge));
    assert_eq!(connection.publish(b"a", b"", &none, &vec![0; 1001].into()), Err(Unfit::TooLarge));
    assert_eq!(connection.pending(), 0);
    // The server changes its mind.
    assert_eq!(hear(&mut connection, b"INFO {\"max_payload\":2000}\r\n"), [Event::Info]);
    assert_eq!(connection.publish(b"a", b"", &none, &vec![0; 2000].into()), Ok(()));
    assert_eq!(connection.publish(b"a", b"", &block, &none), Err(Unfit::Headers));
}

#[test]
fn what_a_server_refuses_is_known_before_the_barrier() {
    let mut connection = ready();
    connection.subscribe(1, b"x.>", b"").unwrap();
    let barrier = connection.barrier().unwrap();
    let said = b"-ERR 'Permissions Violation for Subscription to \"x.>\"'\r\nPONG\r\nPONG\r\nMSG a 1 2\r\n{}\r\n";
    let forbidden = "Permissions Violation for Subscription to \"x.>\"";
    let expected = [Event::Forbidden(forbidden.into()), Event::Reached(barrier), message(1, "a", "{}")];
    assert_eq!(hear(&mut connection, said), expected);
    assert!(connection.is_ready());
}

#[test]
fn errors_say_what_is_wrong_and_where() {
    let long = [b"INFO ".as_slice(), &b"a".repeat(100_000)].concat();
    let greetings: &[(&[u8], Reason)] = &[
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", Reason::NotNats),
        (b"SSH-2.0-x\r\n", Reason::NotNats),
        (b"\r\n", Reason::NotNats),
        (b"info {}\r\n", Reason::NotNats),
        (b"MSG a 1 0\r\n\r\n", Reason::Unexpected),
        (b"INFO\r\n", Reason::BadInfo),
        (b"INFO []\r\n", Reason::BadInfo),
        (b"INFO null\r\n", Reason::BadInfo),
        (b"INFO {\"max_payload\": null}\r\n", Reason::BadInfo),
        (&long, Reason::TooLong),
        (b"MSG a 1 99999999999\r\n", Reason::TooLong),
        (b"-ERR\r\n", Reason::Ended),
        (b"-ERR 'maximum connections exceeded'\r\n", Reason::Ended),
        (b"-ERR 'Authorization Violation'\r\n", Reason::Denied),
    ];
    for (bytes, reason) in greetings {
        let mut connection = fresh(Settings::default());
        assert_eq!(
            failure(&hear(&mut connection, bytes)),
            Some((*reason, 0)),
            "{}",
            bytes[..20.min(bytes.len())].escape_ascii()
        );
        assert!(connection.is_over() && connection.poll_timeout().is_none());
        assert_eq!((hear(&mut connection, INFO), connection.pending()), (vec![], 0));
    }
    let later: &[(&[u8], Reason)] = &[
        (b"NONSENSE\r\n", Reason::BadLine),
        (b"ping\r\n", Reason::BadLine),
        (b"MSG a 1 2\r\n{}x\n", Reason::BadMessage),
        (b"MSG a x 2\r\n", Reason::BadMessage),
        (b"HMSG a 1 3 2\r\n", Reason::BadMessage),
        (b"MSG a 1 18446744073709551615\r\n", Reason::BadMessage),
        (b"MSG a 1 1100000\r\n", Reason::TooLong),
        (b"INFO {x\r\n", Reason::BadInfo),
        (b"-ERR '\xff'\r\n", Reason::Ended),
        (b"-ERR 'Stale Connection'\r\n", Reason::Ended),
        (b"-ERR 'User Authentication Expired'\r\n", Reason::Denied),
    ];
    for (bytes, reason) in later {
        let mut connection = ready();
        let offset = (INFO.len() + 2 * b"PONG\r\n".len()) as u64;
        let heard = hear(&mut connection, &[b"PONG\r\n", *bytes].concat());
        assert_eq!(failure(&heard), Some((*reason, offset)), "{}", bytes.escape_ascii());
    }
    let mut connection = ready();
    let [Event::Failed(failure)] = &hear(&mut connection, b"-ERR 'a \x1b[31m'\r\n")[..] else { panic!("it goes on") };
    assert_eq!((failure.to_string().as_str(), failure.is_final()), ("a  [31m", false));
}

#[test]
fn an_end_is_one_of_the_login_or_of_the_connection() {
    let mut connection = fresh(Settings::default());
    connection.receive(Bytes::from_static(b"INFO {"));
    connection.handle_eof();
    assert_eq!(failure(&events(&mut connection)), Some((Reason::HandshakeCut, 0)));
    let mut connection = ready();
    connection.receive(Bytes::from_static(b"MSG a 1 2\r\n{}\r\nPI"));
    connection.handle_eof();
    let heard = events(&mut connection);
    assert_eq!((&heard[0], failure(&heard).map(|(reason, _)| reason)), (&message(1, "a", "{}"), Some(Reason::HungUp)));
}

#[test]
fn a_login_that_takes_too_long_is_given_up() {
    for greeting in [b"".as_slice(), INFO] {
        let mut connection = fresh(Settings::default());
        hear(&mut connection, greeting);
        assert_eq!(connection.poll_timeout(), Some(at(5)));
        connection.handle_timeout(at(4));
        assert_eq!(events(&mut connection), []);
        connection.handle_timeout(at(5));
        assert_eq!(failure(&events(&mut connection)).map(|(reason, _)| reason), Some(Reason::HandshakeTimeout));
    }
}

#[test]
fn a_server_that_is_silent_is_given_up() {
    let mut connection = ready();
    assert_eq!(connection.poll_timeout(), Some(at(10)));
    connection.handle_timeout(at(10));
    assert_eq!(written(&mut connection), "PING\r\n");
    // Anything shows that it is there.
    assert_eq!(hear(&mut connection, b"+OK\r\n"), []);
    for seconds in [20, 30] {
        connection.handle_timeout(at(seconds));
        assert_eq!(written(&mut connection), "", "one PING is enough");
    }
    connection.handle_timeout(at(40));
    assert_eq!(failure(&events(&mut connection)).map(|(reason, _)| reason), Some(Reason::Silent));
}

#[test]
fn a_server_that_is_not_read_may_be_silent() {
    let mut connection = ready();
    connection.handle_reading(false);
    for seconds in 1..10 {
        connection.handle_timeout(at(10 * seconds));
    }
    connection.handle_reading(true);
    connection.handle_timeout(at(100));
    assert_eq!(events(&mut connection), []);
    connection.handle_timeout(at(110));
    connection.handle_timeout(at(120));
    assert_eq!(failure(&events(&mut connection)).map(|(reason, _)| reason), Some(Reason::Silent));
}

#[test]
fn answers_do_not_pile_up() {
    let mut connection = ready();
    for _ in 0..5 {
        assert_eq!(hear(&mut connection, &b"PING\r\n".repeat(1000)), []);
        assert_eq!(written(&mut connection).len(), 6000);
    }
    let heard = hear(&mut connection, &b"PING\r\n".repeat(100_000));
    assert_eq!(failure(&heard).map(|(reason, _)| reason), Some(Reason::Flooded));
    assert!(connection.pending() <= 6000);
}

#[test]
fn nothing_is_said_before_it_is_encrypted() {
    let wanted = Settings { encrypts: true, ..Settings::default() };
    let offers =
        [("{\"tls_available\":true}", true), ("{\"tls_required\":true}", true), ("{\"tls_required\":true}", false)];
    for (info, encrypts) in offers {
        let mut connection = fresh(if encrypts { wanted.clone() } else { Settings::default() });
        // What comes along in clear text does not count.
        let heard = hear(&mut connection, format!("INFO {info}\r\nPONG\r\nNONSENSE\r\n").as_bytes());
        assert_eq!((heard, connection.pending()), (vec![Event::Encrypt], 0), "{info}");
        connection.handle_encrypted();
        assert!(written(&mut connection).starts_with("CONNECT {"));
        assert_eq!(hear(&mut connection, b"PONG\r\n"), [Event::Ready]);
    }
    let mut connection = fresh(wanted.clone());
    let heard = hear(&mut connection, INFO);
    assert_eq!((failure(&heard), connection.pending()), (Some((Reason::Unencrypted, 0)), 0));
    let mut connection = fresh(wanted);
    hear(&mut connection, b"INFO {\"tls_required\":true}\r\n");
    connection.handle_tls_failure(Reason::Untrusted, "UnknownIssuer");
    let [Event::Failed(failure)] = &events(&mut connection)[..] else { panic!("it goes on") };
    assert!(failure.is_final());
    assert_eq!(failure.to_string(), "its certificate is not trusted: UnknownIssuer");
}

/// The pieces of a stream, each of some bytes.
fn pieces(stream: &[u8], sizes: &[usize]) -> Vec<Bytes> {
    let (mut rest, mut sizes, mut pieces) = (stream, sizes.iter().cycle(), vec![]);
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(sizes.next().map_or(rest.len(), |size| rest.len().min(*size)));
        pieces.push(Bytes::copy_from_slice(piece));
        rest = more;
    }
    pieces
}

/// All that happens, and all that is said.
fn read(pieces: Vec<Bytes>) -> (Vec<Event>, String) {
    let (mut connection, mut happened) = (fresh(Settings::default()), vec![]);
    for piece in pieces {
        connection.receive(piece);
        happened.extend(events(&mut connection));
    }
    connection.handle_eof();
    happened.extend(events(&mut connection));
    assert!(connection.is_over());
    (happened, written(&mut connection))
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => ("[a-z.]{1,9}", 0_u64..5, "[a-z]{0,5}", vec(any::<u8>(), 0..40)).prop_map(|(subject, number, reply_to, body)| {
            [format!("MSG {subject} {number} {reply_to} {}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat()
        }),
        2 => ("[a-z.]{1,9}", vec(any::<u8>(), 0..20), vec(any::<u8>(), 0..20)).prop_map(|(subject, block, body)| {
            let (block_size, size) = (block.len(), block.len() + body.len());
            [format!("HMSG {subject} 1 {block_size} {size}\r\n").as_bytes(), &block, &body, b"\r\n"].concat()
        }),
        2 => Just(b"PING\r\n".to_vec()),
        1 => Just(b"PONG\r\n".to_vec()),
        1 => Just(b"+OK\r\n".to_vec()),
        1 => Just(INFO.to_vec()),
        1 => Just(b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n".to_vec()),
    ]
}

proptest! {
    /// Where the stream of a server is cut makes no difference.
    #[test]
    fn cuts(lines in vec(line(), 0..30), sizes in vec(1_usize..200, 1..20)) {
        let stream = [INFO.to_vec(), b"PONG\r\n".to_vec(), lines.concat()].concat();
        let whole = read(vec![Bytes::from(stream.clone())]);
        prop_assert_eq!(&read(pieces(&stream, &sizes)), &whole);
        prop_assert_eq!(failure(&whole.0), Some((Reason::HungUp, stream.len() as u64)));
    }

    /// Nor does it where the server says anything: it is over once, for one reason.
    #[test]
    fn anything(start in 0_usize..3, lines in vec(line(), 0..5), noise: Vec<u8>, sizes in vec(1_usize..200, 1..20)) {
        let handshake = [INFO, b"PONG\r\n"][..start.min(2)].concat();
        let stream = [handshake, lines.concat(), noise].concat();
        let whole = read(vec![Bytes::from(stream.clone())]);
        prop_assert_eq!(&read(pieces(&stream, &sizes)), &whole);
        prop_assert_eq!(whole.0.iter().filter(|event| matches!(event, Event::Failed(_))).count(), 1);
    }
}
