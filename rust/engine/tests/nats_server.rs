//! Roles over a real server of NATS, which `TRUNKLINE_NATS_SERVER` names: `make rust-test` sets it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // it is a process that is waited for

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::nats::{bodies, is, saw, send, start_with, urls};
use common::{Ask, Echo, PATIENCE, Reported, close, read_until};
use tempfile::TempDir;
use trunkline_engine::nats::{NatsSettings, NatsTransport};
use trunkline_engine::tls::Tls;
use trunkline_engine::{Bounds, Handle, Hold as _};
use trunkline_wire::nats::{Key, Login};
use trunkline_wire::{SendId, ServerNotice, SocketEvent};
use zeroize::Zeroizing;

/// The seed of the bytes from 0 to 31, and its public half.
const SEED: &str = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y";
const PUBLIC: &str = "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK";

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port()
}

/// A server that can be stopped and started again at its port.
struct Server {
    binary: PathBuf,
    folder: TempDir,
    port: u16,
    process: Option<Child>,
}

impl Server {
    /// One with these lines of configuration; `None`, and a line that says so, where no binary is named.
    #[allow(clippy::print_stderr)] // who runs the tests must see it
    fn start(lines: &str) -> Option<Self> {
        let Some(binary) = std::env::var_os("TRUNKLINE_NATS_SERVER") else {
            eprintln!("SKIPPED: TRUNKLINE_NATS_SERVER names no nats-server: `make rust-test` does");
            return None;
        };
        let port = free_port();
        let folder = tempfile::tempdir().expect("a folder");
        let config = format!("listen: \"127.0.0.1:{port}\"\n{lines}\n");
        std::fs::write(folder.path().join("nats.conf"), config).expect("it is written");
        let mut server = Self { binary: binary.into(), folder, port, process: None };
        server.resume();
        Some(server)
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn resume(&mut self) {
        let config = self.folder.path().join("nats.conf");
        let mut command = Command::new(&self.binary);
        let command = command.arg("-c").arg(config).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("it starts"));
        let until = Instant::now() + PATIENCE;
        let mut greeting = [0; 4];
        while !TcpStream::connect(self.address()).is_ok_and(|mut stream| stream.read_exact(&mut greeting).is_ok()) {
            assert!(Instant::now() < until, "nats-server does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().and_then(|()| process.wait()).expect("it ends");
        }
    }

    fn role(&self, sockets: &[&[&str]], login: Login) -> Handle<Echo> {
        let settings = NatsSettings { login, ..urls(&[self.address()]) };
        start_with(settings, sockets, Bounds::default())
    }

    fn connected(&self) -> SocketEvent {
        SocketEvent::Connected(format!("nats://{}", self.address()).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a script of Python with a folder for what it makes.
fn made_by(script: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let python = std::env::var_os("TRUNKLINE_PYTHON").expect("`make rust-test` sets TRUNKLINE_PYTHON");
    let made = Command::new(python).arg("-c").arg(script).arg(folder.path()).status().expect("it runs");
    assert!(made.success());
    folder
}

/// Certificates of an authority: the server's, a client's, and another authority.
fn certified() -> TempDir {
    made_by(
        r"
import sys, pathlib, trustme
folder = pathlib.Path(sys.argv[1])
authority = trustme.CA()
authority.cert_pem.write_to_path(folder / 'ca.pem')
trustme.CA().cert_pem.write_to_path(folder / 'other.pem')
for file, name in ('server', '127.0.0.1'), ('client', 'client@example.org'):
    issued = authority.issue_cert(name)
    issued.cert_chain_pems[0].write_to_path(folder / f'{file}.pem')
    issued.private_key_pem.write_to_path(folder / f'{file}.key')
",
    )
}

/// An operator, an account and a user of it, each by its JWT: the lines of a server that knows them, and the user's
/// credentials.
fn operated() -> TempDir {
    made_by(
        r"
import base64, json, os, pathlib, sys, nkeys
folder = pathlib.Path(sys.argv[1])
def made(kind):
    seed = nkeys.encode_seed(os.urandom(32), kind)
    pair = nkeys.from_seed(bytearray(seed))
    return seed, pair, pair.public_key.decode()
def packed(data):
    return base64.urlsafe_b64encode(data).rstrip(b'=')
def jwt(issuer, subject, name, **claims):
    head = {'typ': 'JWT', 'alg': 'ed25519-nkey'}
    body = {'jti': name, 'iat': 1, 'iss': issuer.public_key.decode(), 'name': name, 'sub': subject}
    text = b'.'.join(packed(json.dumps(part).encode()) for part in (head, body | {'nats': claims | {'version': 2}}))
    return (text + b'.' + packed(issuer.sign(text))).decode()
limits = dict(subs=-1, data=-1, payload=-1)
_, operator, operator_key = made(nkeys.PREFIX_BYTE_OPERATOR)
_, account, account_key = made(nkeys.PREFIX_BYTE_ACCOUNT)
seed, _, user_key = made(nkeys.PREFIX_BYTE_USER)
of_account = jwt(operator, account_key, 'account', type='account', limits=limits | dict(conn=-1, leaf=-1, imports=-1, exports=-1, wildcards=True))
of_user = jwt(account, user_key, 'user', type='user', **limits)
of_operator = jwt(operator, operator_key, 'operator', type='operator')
(folder / 'server.conf').write_text(f'operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {account_key}: {of_account} }}\n')
(folder / 'user.creds').write_text('\n'.join([
    '-----BEGIN NATS USER JWT-----', of_user, '------END NATS USER JWT------', '',
    '-----BEGIN USER NKEY SEED-----', seed.decode(), '------END USER NKEY SEED------', '']))
",
    )
}

/// The lines of a server that encrypts.
fn encrypting(folder: &TempDir, more: &str) -> String {
    let file = |name: &str| folder.path().join(name).display().to_string();
    format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\"{more} }}",
        file("server.pem"),
        file("server.key"),
        file("ca.pem")
    )
}

fn trusting(folder: &TempDir) -> Tls {
    Tls { ca: Some(folder.path().join("ca.pem")), ..Tls::default() }
}

/// Why a role that encrypts so is not connected.
fn refusal(settings: NatsSettings) -> String {
    let role = start_with(settings, &[&["a"]], Bounds::default());
    let refused = |reported: &Reported| match reported {
        Reported::Socket(
            _,
            SocketEvent::HandshakeFailed { reason, .. } | SocketEvent::Server(ServerNotice::Denied { reason, .. }),
        ) => Some(reason.clone()),
        Reported::Socket(..) | Reported::Message(_) => None,
    };
    let events = read_until(&role, |events| events.iter().any(|reported| refused(reported).is_some()));
    close(&role);
    events.iter().find_map(refused).expect("it was read")
}

fn user(name: &str, password: &str) -> Login {
    Login { user: Some((name.to_owned(), Zeroizing::new(password.to_owned()))), ..Login::default() }
}

#[test]
fn roles_talk_through_a_server() {
    let Some(mut server) = Server::start("") else { return };
    let hearing = server.role(&[&["a.*"], &["q.>"]], Login::default());
    saw(&hearing, &server.connected());
    let saying = server.role(&[&["r"]], Login::default());
    saw(&saying, &server.connected());
    for at in 0..1000_u32 {
        saying.ask(send("a.b", at.to_be_bytes().to_vec(), None));
    }
    saying.ask(send("q.x.y", vec![b'z'; 1 << 20], Some(7)));
    saw(&saying, &SocketEvent::Sent(SendId(7)));
    let events = read_until(&hearing, |events| bodies(events).len() == 1001);
    let expected: Vec<_> = (0..1000_u32).map(|at| Bytes::from(at.to_be_bytes().to_vec())).collect();
    assert_eq!(bodies(&events)[..1000], expected);
    assert_eq!(bodies(&events)[1000].len(), 1 << 20);
    // Nobody answers a request.
    let frames = vec!["r".into(), Bytes::new(), Bytes::new()];
    saying.ask(Ask::Send { to: Some("nobody".into()), frames, id: None });
    let events = read_until(&saying, |events| !bodies(events).is_empty());
    let is_none =
        |reported: &Reported| matches!(reported, Reported::Message(frames) if frames[1].starts_with(b"NATS/1.0 503"));
    assert!(events.iter().any(is_none));
    // After an outage, all is as before.
    server.stop();
    let gone = SocketEvent::Disconnected(format!("nats://{}", server.address()).into());
    saw(&hearing, &gone);
    saw(&saying, &gone);
    server.resume();
    saw(&hearing, &server.connected());
    saw(&saying, &server.connected());
    saying.ask(send("a.c", "again", Some(8)));
    saw(&saying, &SocketEvent::Sent(SendId(8)));
    assert_eq!(bodies(&read_until(&hearing, |events| !bodies(events).is_empty())), ["again"]);
    close(&hearing);
    close(&saying);
}

#[test]
fn members_of_a_queue_group_share() {
    let Some(server) = Server::start("") else { return };
    let members = [(); 2].map(|()| server.role(&[&["a q"]], Login::default()));
    for member in &members {
        saw(member, &server.connected());
    }
    let saying = server.role(&[&["r"]], Login::default());
    saw(&saying, &server.connected());
    for at in 0..200 {
        saying.ask(send("a", vec![at], None));
    }
    saying.ask(send("a", "end", Some(1)));
    saw(&saying, &SocketEvent::Sent(SendId(1)));
    let until = Instant::now() + PATIENCE;
    while members.iter().map(|member| member.stats().machine).sum::<u64>() < 201 {
        assert!(Instant::now() < until, "some are lost");
        std::thread::sleep(Duration::from_millis(5));
    }
    for role in members.iter().chain([&saying]) {
        assert!(role.stats().machine > 0 || std::ptr::eq(role, &raw const saying));
        close(role);
    }
}

#[test]
fn who_has_no_login_is_refused() {
    let lines = format!(
        "authorization {{ users: [\n\
         {{user: u, password: \"p d\", permissions: {{publish: \"a\", subscribe: \"a\"}}}}\n\
         {{nkey: {PUBLIC}}}\n] }}"
    );
    let Some(server) = Server::start(&lines) else { return };
    let endpoint = format!("nats://{}", server.address());
    for wrong in [Login::default(), user("u", "x")] {
        let role = server.role(&[&["a"]], wrong);
        let reason = "Authorization Violation".to_owned();
        saw(&role, &SocketEvent::Server(ServerNotice::Denied { endpoint: endpoint.clone(), reason }));
        close(&role);
    }
    let key = || Login { key: Some(Key::from_seed(SEED).expect("a seed")), ..Login::default() };
    for right in [user("u", "p d"), key()] {
        let role = server.role(&[&["a"]], right);
        saw(&role, &server.connected());
        close(&role);
    }
    let role = server.role(&[&["a"], &["b"]], user("u", "p d"));
    let events = saw(&role, &server.connected());
    let forbidden =
        |what: &str| SocketEvent::Server(ServerNotice::Forbidden(format!("Permissions Violation for {what} to \"b\"")));
    assert!(events.iter().any(|reported| is(reported, &forbidden("Subscription"))));
    // The server has it, and has said before that it does not pass it on.
    role.ask(send("b", "1", Some(1)));
    let events = saw(&role, &SocketEvent::Sent(SendId(1)));
    assert!(events.iter().any(|reported| is(reported, &forbidden("Publish"))));
    close(&role);
}

#[test]
fn tokens_and_credentials_are_logins() {
    let Some(server) = Server::start("authorization { token: \"t%\" }") else { return };
    let token = Login { token: Some(Zeroizing::new("t%".to_owned())), ..Login::default() };
    let role = server.role(&[&["a"]], token.clone());
    saw(&role, &server.connected());
    close(&role);
    // A credentials file is read for each connection.
    let path = server.folder.path().join("user.creds");
    let settings = NatsSettings { credentials: Some(path.clone()), login: token, ..urls(&[server.address()]) };
    let role = start_with(settings, &[&["a"]], Bounds::default());
    let failed = |reason: &str| SocketEvent::HandshakeFailed {
        endpoint: format!("nats://{}", server.address()),
        reason: format!("credentials: {}: {reason}", path.display()),
    };
    saw(&role, &failed("No such file or directory"));
    std::fs::File::create(&path).and_then(|mut file| file.write_all(b"x")).expect("it is written");
    saw(&role, &failed("it is not a NATS credentials file"));
    let text = format!("-----BEGIN NATS USER JWT-----\na.b.c\n-----BEGIN USER NKEY SEED-----\n{SEED}\n");
    std::fs::write(&path, text).expect("it is written");
    saw(&role, &server.connected());
    close(&role);
}

#[test]
fn encrypted_roles_talk() {
    let folder = certified();
    let Some(server) = Server::start(&encrypting(&folder, "")) else { return };
    let encrypted = |scheme: &str, tls| NatsSettings { tls, ..urls(&[format!("{scheme}://{}", server.address())]) };
    let nobody_known = Tls { verify: false, ..Tls::default() };
    let hearing = start_with(encrypted("tls", Some(trusting(&folder))), &[&["a"]], Bounds::default());
    let saying = start_with(encrypted("nats", Some(nobody_known)), &[&["r"]], Bounds::default());
    saw(&hearing, &SocketEvent::Connected(format!("tls://{}", server.address()).into()));
    saw(&saying, &server.connected());
    let sizes = [0, 1, 100, 20_000, 1 << 20, 5];
    for round in 0..20 {
        for size in sizes {
            saying.ask(send("a", vec![round; size], None));
        }
    }
    saying.ask(send("a", "end", Some(1)));
    saw(&saying, &SocketEvent::Sent(SendId(1)));
    let heard = bodies(&read_until(&hearing, |events| bodies(events).len() == 20 * sizes.len() + 1));
    for (at, body) in heard.iter().take(20 * sizes.len()).enumerate() {
        let round = u8::try_from(at / sizes.len()).expect("there are few");
        assert!(body.len() == sizes[at % sizes.len()] && body.iter().all(|byte| *byte == round), "{at}");
    }
    close(&hearing);
    close(&saying);
}

#[test]
fn servers_that_are_not_trusted_are_refused() {
    let folder = certified();
    let Some(server) = Server::start(&encrypting(&folder, "")) else { return };
    let settings = |address: String, tls| NatsSettings { tls, ..urls(&[address]) };
    let untrusted = refusal(settings(server.address(), None));
    assert!(untrusted.starts_with("its certificate is not trusted: "), "{untrusted}");
    let other = Tls { ca: Some(folder.path().join("other.pem")), ..Tls::default() };
    let untrusted = refusal(settings(server.address(), Some(other)));
    assert_eq!(untrusted, "its certificate is not trusted: its issuer is unknown");
    let address = format!("localhost:{}", server.port);
    let untrusted = refusal(settings(address, Some(trusting(&folder))));
    assert_eq!(untrusted, "its certificate is not trusted: it is not for the host localhost");
}

#[test]
fn a_server_that_does_not_encrypt_hears_no_login() {
    let Some(server) = Server::start("authorization { user: u, password: p }") else { return };
    let login = user("u", "p");
    for (scheme, tls) in [("tls", None), ("nats", Some(Tls { verify: false, ..Tls::default() }))] {
        let address = format!("{scheme}://{}", server.address());
        let refused = refusal(NatsSettings { login: login.clone(), tls, ..urls(&[address]) });
        assert_eq!(refused, "the server does not encrypt: set up TLS there, or leave out tls and tls://");
    }
}

#[test]
fn clients_have_certificates() {
    let folder = certified();
    let Some(server) = Server::start(&encrypting(&folder, ", verify: true")) else { return };
    let settings = |tls| NatsSettings { tls: Some(tls), ..urls(&[server.address()]) };
    let refused = refusal(settings(trusting(&folder)));
    assert!(refused.starts_with("encryption has failed: received fatal alert: "), "{refused}");
    let file = |name: &str| Some(folder.path().join(name));
    let tls = Tls { certificate: file("client.pem"), key: file("client.key"), ..trusting(&folder) };
    let role = start_with(settings(tls), &[&["a"]], Bounds::default());
    saw(&role, &server.connected());
    close(&role);
}

#[test]
fn files_of_tls_that_cannot_be_used_are_named() {
    let folder = certified();
    let file = |name: &str| Some(folder.path().join(name));
    std::fs::write(folder.path().join("empty.pem"), "").expect("it is written");
    let shown = |name: &str| folder.path().join(name).display().to_string();
    for (tls, reason) in [
        (
            Tls { ca: file("none.pem"), ..Tls::default() },
            format!("ca: {}: No such file or directory", shown("none.pem")),
        ),
        (
            Tls { ca: file("empty.pem"), ..Tls::default() },
            format!("ca: {}: there is no certificate of PEM in it", shown("empty.pem")),
        ),
        (Tls { key: file("client.key"), ..Tls::default() }, "key: it needs certificate= as well".to_owned()),
        (
            Tls { certificate: file("client.pem"), ..Tls::default() },
            format!("key: {}: there is no key of PEM in it", shown("client.pem")),
        ),
        (
            Tls { certificate: file("client.pem"), key: file("server.key"), ..trusting(&folder) },
            "certificate: keys may not be consistent: KeyMismatch".to_owned(),
        ),
    ] {
        let settings = NatsSettings { tls: Some(tls), ..urls(&["127.0.0.1:1".to_owned()]) };
        assert_eq!(NatsTransport::new(settings).err().map(|error| error.to_string()), Some(reason));
    }
}

#[test]
fn users_of_an_operator_have_credentials() {
    let folder = operated();
    let lines = std::fs::read_to_string(folder.path().join("server.conf")).expect("it was written");
    let Some(server) = Server::start(&lines) else { return };
    assert_eq!(refusal(urls(&[server.address()])), "Authorization Violation");
    let settings = NatsSettings { credentials: Some(folder.path().join("user.creds")), ..urls(&[server.address()]) };
    let role = start_with(settings, &[&["a"]], Bounds::default());
    saw(&role, &server.connected());
    close(&role);
}

#[test]
fn another_of_the_cluster_takes_over() {
    let ports = [free_port(), free_port()];
    let lines = |own: usize| {
        let (own, other) = (ports[own], ports[1 - own]);
        format!("cluster {{ name: c, listen: \"127.0.0.1:{own}\", routes: [\"nats://127.0.0.1:{other}\"] }}")
    };
    let (Some(mut first), Some(second)) = (Server::start(&lines(0)), Server::start(&lines(1))) else { return };
    let role = first.role(&[&["a"]], Login::default());
    saw(&role, &first.connected());
    // The first is only known to name the second once it does so to others.
    let until = Instant::now() + PATIENCE;
    let names = || {
        let stream = TcpStream::connect(first.address()).expect("it listens");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("it greets");
        line.contains(&second.address())
    };
    while !names() {
        assert!(Instant::now() < until, "the servers do not know each other");
        std::thread::sleep(Duration::from_millis(20));
    }
    role.ask(send("b", "", Some(1)));
    saw(&role, &SocketEvent::Sent(SendId(1)));
    first.stop();
    saw(&role, &second.connected());
    close(&role);
}
