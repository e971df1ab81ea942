//! Which server is dialled next, and when.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use zeroize::Zeroizing;

use super::login::Login;
use crate::Nanos;

/// The port of a server that names none.
const PORT: u16 = 4222;

/// The servers that are remembered beyond those that were given.
const DISCOVERED: usize = 64;

/// The longest name of a host: DNS allows 253 bytes.
const HOST: usize = 255;

/// The shortest and the longest time between two attempts at the same server.
const FIRST: Duration = Duration::from_millis(250);
const LAST: Duration = Duration::from_secs(2);

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    /// Whether it is to encrypt.
    pub encrypts: bool,
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
    /// The name that its certificate has, if it is another: a cluster names its servers by their addresses.
    pub certified: Option<String>,
}

/// A text is not the URL of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadServer {
    /// The text, without a login.
    pub text: String,
}

impl fmt::Display for BadServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a URL of a NATS server: use nats://HOST:PORT", self.text)
    }
}

impl std::error::Error for BadServer {}

impl ServerUrl {
    /// Reads `nats://HOST:PORT`, `tls://HOST:PORT` or `HOST:PORT`, and the login in it, if any: a token, or a name and
    /// a password, percent-encoded.
    ///
    /// # Errors
    /// If it is none.
    pub fn read(text: &str) -> Result<(Self, Option<Login>), BadServer> {
        let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Some(scheme), rest));
        let (who, rest) = rest.rsplit_once('@').map_or((None, rest), |(who, rest)| (Some(who), rest));
        let bad = || BadServer { text: scheme.map_or_else(|| rest.to_owned(), |scheme| format!("{scheme}://{rest}")) };
        let encrypts = match scheme.map(str::to_ascii_lowercase).as_deref() {
            None | Some("nats") => false,
            Some("tls") => true,
            Some(_) => return Err(bad()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // Without a scheme it may be anything that has no port.
        let (host, port) = split(authority).filter(|(_, port)| scheme.is_some() || port.is_some()).ok_or_else(bad)?;
        Ok((Self { encrypts, host, port: port.unwrap_or(PORT), certified: None }, who.map(login)))
    }

    /// The name or address that its certificate must have.
    pub fn name(&self) -> &str {
        self.certified.as_ref().unwrap_or(&self.host)
    }

    fn is_at(&self, other: &Self) -> bool {
        self.host == other.host && self.port == other.port
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { encrypts, host, port, .. } = self;
        let scheme = if *encrypts { "tls" } else { "nats" };
        if host.contains(':') { write!(f, "{scheme}://[{host}]:{port}") } else { write!(f, "{scheme}://{host}:{port}") }
    }
}

/// The host and the port of `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`.
fn split(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<std::net::Ipv6Addr>().ok()?;
        (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
    } else {
        let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_part) {
            return None;
        }
        (host, port)
    };
    let port = match port {
        // A sign before a number would be read as well.
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port > 0)?)
        }
        Some(_) => return None,
        None => None,
    };
    (host.len() <= HOST).then(|| (host.to_owned(), port))
}

fn login(who: &str) -> Login {
    match who.split_once(':') {
        Some((user, password)) => {
            Login { user: Some((decoded(user).to_string(), decoded(password))), ..Login::default() }
        }
        None => Login { token: Some(decoded(who)), ..Login::default() },
    }
}

/// A text without its percent-encoding.
fn decoded(text: &str) -> Zeroizing<String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len()));
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = if first == b'%' { after.get(..2) } else { None };
        let value = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let value = value.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok());
        bytes.push(value.unwrap_or(first));
        rest = if value.is_some() { &after[2..] } else { after };
    }
    Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned())
}

/// A server, and what became of the attempts at it.
#[derive(Debug)]
struct Server {
    url: ServerUrl,
    /// Whether the user named it, not another server.
    is_given: bool,
    /// Attempts since the last success.
    failures: u32,
    /// It is not dialled before.
    due: Nanos,
}

/// The servers of a role.
#[derive(Debug)]
pub struct Servers {
    all: Vec<Server>,
    /// The one that is dialled, or was last.
    at: usize,
}

impl Servers {
    /// Those that the user named, of which there must be one.
    pub fn new(urls: Vec<ServerUrl>) -> Self {
        let server = |url| Server { url, is_given: true, failures: 0, due: Nanos(0) };
        let all: Vec<_> = urls.into_iter().map(server).collect();
        // The first comes after the last.
        Self { at: all.len().saturating_sub(1), all }
    }

    /// The server that is dialled, or was last.
    pub fn current(&self) -> Option<&ServerUrl> {
        self.all.get(self.at).map(|server| &server.url)
    }

    /// The servers that the user named.
    pub fn given(&self) -> impl Iterator<Item = &ServerUrl> {
        self.all.iter().filter(|server| server.is_given).map(|server| &server.url)
    }

    /// When [`dial`](Self::dial) gives a server.
    pub fn due(&self) -> Nanos {
        self.all.iter().map(|server| server.due).min().unwrap_or_default()
    }

    /// The server to dial now: the one due first, of several the next in turn. `None` before one is due. `chance` is
    /// any number; it keeps the clients of a server that ended from all dialling it at once.
    pub fn dial(&mut self, now: Nanos, chance: u32) -> Option<&ServerUrl> {
        let count = self.all.len();
        let in_turn = (1..=count).map(|step| (self.at + step) % count);
        let next = in_turn.min_by_key(|at| self.all[*at].due).filter(|at| self.all[*at].due <= now)?;
        self.at = next;
        let server = &mut self.all[next];
        server.failures = server.failures.saturating_add(1);
        let wait = LAST.min(FIRST * 2_u32.saturating_pow(server.failures - 1).min(1 << 8));
        server.due = now + wait + FIRST.mul_f64(f64::from(chance) / f64::from(u32::MAX));
        Some(&server.url)
    }

    /// The login at the dialled server was over: the next attempt at it comes soon.
    pub fn succeeded(&mut self) {
        if let Some(server) = self.all.get_mut(self.at) {
            server.failures = 0;
        }
    }

    /// The dialled server will end soon: the others come before it.
    pub fn avoid(&mut self, now: Nanos) {
        if let Some(server) = self.all.get_mut(self.at) {
            server.due = server.due.max(now + LAST);
        }
    }

    /// The dialled server has named those of its cluster, as `HOST:PORT`. They encrypt if it does, and replace those
    /// named before; what is none is ignored.
    pub fn discover(&mut self, named: &[String]) {
        let Some(current) = self.current().cloned() else { return };
        let named: Vec<_> = named.iter().filter_map(|authority| split(authority)).collect();
        let named: Vec<_> = named
            .into_iter()
            .map(|(host, port)| {
                let is_address = host.parse::<IpAddr>().is_ok();
                let certified = is_address.then(|| current.name().to_owned()).filter(|name| *name != host);
                ServerUrl { encrypts: current.encrypts, host, port: port.unwrap_or(PORT), certified }
            })
            .collect();
        let is_named = |server: &Server| named.iter().any(|url| url.is_at(&server.url));
        self.all.retain(|server| server.is_given || server.url == current || is_named(server));
        for url in named {
            let is_known = |server: &Server| server.url.is_at(&url);
            let discovered = self.all.iter().filter(|server| !server.is_given).count();
            if discovered < DISCOVERED && !self.all.iter().any(is_known) {
                self.all.push(Server { url, is_given: false, failures: 0, due: Nanos(0) });
            }
        }
        self.at = self.all.iter().position(|server| server.url == current).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn url(text: &str) -> ServerUrl {
        ServerUrl::read(text).unwrap().0
    }

    fn servers(texts: &[&str]) -> Servers {
        Servers::new(texts.iter().map(|text| url(text)).collect())
    }

    fn ms(milliseconds: u64) -> Nanos {
        Nanos(milliseconds * 1_000_000)
    }

    /// The port of the server dialled then, if one is.
    fn dialled(servers: &mut Servers, at: u64) -> Option<u16> {
        servers.dial(ms(at), 0).map(|url| url.port)
    }

    #[test]
    fn urls_are_read() {
        for (text, shown) in [
            ("nats://127.0.0.1:4223", "nats://127.0.0.1:4223"),
            ("nats://a", "nats://a:4222"),
            ("TLS://a-b.example_1:1", "tls://a-b.example_1:1"),
            ("a:7", "nats://a:7"),
            ("nats://[::1]", "nats://[::1]:4222"),
            ("[::1]:65535", "nats://[::1]:65535"),
            ("nats://a:1/x?y#z", "nats://a:1"),
            ("nats://u:p@a:1", "nats://a:1"),
        ] {
            assert_eq!(url(text).to_string(), shown, "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for text in [
            "",
            "foo",
            "nats://",
            "nats://:4222",
            "http://a:1",
            "ws://a:1",
            "nats://a:0",
            "nats://a:99999",
            "nats://a:+1",
            "nats://a:",
            "nats://a b:1",
            "nats://[a]:1",
            "nats://[::1",
            "nats://[::1]1",
            "nats://::1:4222",
            "nats://\u{e9}:1",
        ] {
            assert!(ServerUrl::read(text).is_err(), "{text}");
        }
        let bad = ServerUrl::read("http://u:hidden@a:1").unwrap_err();
        assert_eq!(bad.to_string(), r#""http://a:1" is not a URL of a NATS server: use nats://HOST:PORT"#);
    }

    #[test]
    fn logins_of_urls_are_decoded() {
        let login = |text: &str| ServerUrl::read(text).unwrap().1;
        let user = |text| login(text).and_then(|login| login.user).map(|(user, word)| (user, word.to_string()));
        let both = |user: &str, word: &str| Some((user.to_owned(), word.to_owned()));
        assert_eq!(user("nats://u%20:p%40%3A@a"), both("u ", "p@:"));
        assert_eq!(user("nats://u:p@q%@a"), both("u", "p@q%"));
        assert_eq!(
            login("nats://t%2b@a").and_then(|login| login.token).map(|token| token.to_string()),
            Some("t+".into())
        );
        assert!(login("nats://a").is_none());
    }

    #[test]
    fn each_has_its_turn_and_none_is_dialled_often() {
        let mut servers = servers(&["a:1", "b:2"]);
        let mut times = vec![];
        for at in 0..10_000 {
            while let Some(port) = dialled(&mut servers, at) {
                times.push((port, at));
            }
        }
        assert_eq!(times[..4], [(1, 0), (2, 0), (1, 250), (2, 250)]);
        let first: Vec<_> = times.iter().filter(|(port, _)| *port == 1).map(|(_, at)| *at).collect();
        assert_eq!(first, [0, 250, 750, 1750, 3750, 5750, 7750, 9750]);
        servers.succeeded();
        assert_eq!(dialled(&mut servers, 20_000), Some(1));
    }

    #[test]
    fn one_that_ends_comes_last() {
        let mut servers = servers(&["a:1", "b:2"]);
        assert_eq!(dialled(&mut servers, 1), Some(1));
        servers.succeeded();
        servers.avoid(ms(1000));
        assert_eq!((dialled(&mut servers, 1000), dialled(&mut servers, 1000)), (Some(2), None));
        assert_eq!(servers.due(), ms(1250));
    }

    #[test]
    fn those_of_a_cluster_are_dialled_too() {
        let mut servers = servers(&["tls://a:1"]);
        assert_eq!(dialled(&mut servers, 1), Some(1));
        servers.discover(&["a:1", "b:2", "b:2", "no port:x", "", "[::1]:3"].map(str::to_owned));
        assert_eq!(
            (dialled(&mut servers, 1), dialled(&mut servers, 1), dialled(&mut servers, 1)),
            (Some(2), Some(3), None)
        );
        let current = servers.current().unwrap();
        assert_eq!((current.to_string().as_str(), current.name()), ("tls://[::1]:3", "a"));
        // One that is not named any more is left when another is dialled.
        servers.discover(&["c:4".to_owned()]);
        let known = |servers: &Servers| servers.all.iter().map(|server| server.url.port).collect::<Vec<_>>();
        assert_eq!(known(&servers), [1, 3, 4]);
        assert_eq!((dialled(&mut servers, 5), dialled(&mut servers, 5)), (Some(4), None));
        servers.discover(&[]);
        assert_eq!((known(&servers), servers.given().count()), (vec![1, 4], 1));
        let many: Vec<_> = (1..1000).map(|port| format!("h:{port}")).collect();
        servers.discover(&many);
        assert!(servers.all.len() <= DISCOVERED + 2);
    }

    proptest! {
        /// At no time is a server dialled twice within the shortest wait, and one is always due within the longest.
        #[test]
        fn waits(steps in proptest::collection::vec((0_u64..3000, any::<u32>(), any::<bool>()), 1..100)) {
            let mut servers = servers(&["a:1", "b:2", "c:3"]);
            let (mut now, mut last) = (0, std::collections::HashMap::new());
            for (step, chance, is_good) in steps {
                now += step;
                prop_assert!(servers.due() <= ms(now) + LAST + FIRST);
                let Some(port) = servers.dial(ms(now), chance).map(|url| url.port) else { continue };
                if let Some(before) = last.insert(port, now) {
                    prop_assert!(now - before >= 250);
                }
                if is_good {
                    servers.succeeded();
                }
            }
        }

        #[test]
        fn no_text_breaks_the_reader(text: String) {
            let _ = ServerUrl::read(&text);
            let mut servers = servers(&["a:1"]);
            let _ = servers.dial(ms(0), 0);
            servers.discover(&[text]);
        }
    }
}
