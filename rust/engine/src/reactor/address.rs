//! Endpoints, as ZeroMQ writes them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use socket2::SockAddr;

/// Where something listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// An address; port 0 is any free port.
    Tcp(SocketAddr),
    /// A host by its name, which is looked up for each dial.
    Named {
        /// The name.
        host: String,
        port: u16,
    },
    /// A path; an abstract name of Linux begins with a zero byte. Empty is any free path.
    Unix(PathBuf),
}

impl Address {
    /// An endpoint to listen on. An address may be the name of a network interface or of a host, `*` all addresses;
    /// with `ipv6` those of IPv6 as well, or first.
    pub(crate) fn to_listen(endpoint: &str, ipv6: bool) -> io::Result<Self> {
        let (host, port) = match split(endpoint)? {
            Split::Unix(path) => return Ok(Self::Unix(path)),
            Split::Tcp(host, port) => (host, port),
        };
        let port = if port == "*" { 0 } else { number(port)? };
        let host = match (host, ipv6) {
            ("*", false) => Ipv4Addr::UNSPECIFIED.into(),
            ("*", true) => Ipv6Addr::UNSPECIFIED.into(),
            _ => match bare(host).parse() {
                Ok(host) => host,
                Err(_) => match of_interface(host) {
                    Ok(host) => host,
                    Err(error) => look_up(host, port, ipv6).map_err(|_| error)?.ip(),
                },
            },
        };
        Ok(Self::Tcp(SocketAddr::new(host, port)))
    }

    /// Whether this is an endpoint. The network interface or the port of one to listen on may not exist yet.
    pub(crate) fn is_one(endpoint: &str, is_dialled: bool) -> bool {
        if is_dialled {
            Self::to_dial(endpoint).is_ok()
        } else {
            split(endpoint).is_ok_and(|split| match split {
                Split::Tcp(host, _) => !host.contains('%'),
                Split::Unix(_) => true,
            })
        }
    }

    /// An endpoint to dial.
    pub(crate) fn to_dial(endpoint: &str) -> io::Result<Self> {
        let (host, port) = match split(endpoint)? {
            Split::Unix(path) if path.as_os_str().is_empty() => return Err(Errno::EINVAL.into()),
            Split::Unix(path) => {
                unix(&path)?;
                return Ok(Self::Unix(path));
            }
            Split::Tcp(host, port) => (host, number(port)?),
        };
        // An address to dial from, no host, or an address with a zone.
        if port == 0 || host.contains([';', '%']) || host.is_empty() || host == "*" {
            return Err(Errno::EINVAL.into());
        }
        match bare(host).parse::<IpAddr>() {
            Ok(address) => Ok(Self::Tcp(SocketAddr::new(address, port))),
            Err(_) if is_name(host) => Ok(Self::Named { host: host.to_owned(), port }),
            Err(_) => Err(Errno::EINVAL.into()),
        }
    }
}

enum Split<'a> {
    Tcp(&'a str, &'a str),
    Unix(PathBuf),
}

fn split(endpoint: &str) -> io::Result<Split<'_>> {
    if let Some(path) = endpoint.strip_prefix("ipc://") {
        return match path {
            "" => Err(Errno::EINVAL.into()),
            "*" => Ok(Split::Unix(PathBuf::new())),
            _ => Ok(Split::Unix(path.strip_prefix('@').map_or_else(|| path.into(), |name| format!("\0{name}").into()))),
        };
    }
    let address = endpoint.strip_prefix("tcp://").ok_or(Errno::EPROTONOSUPPORT)?;
    let (host, port) = address.rsplit_once(':').ok_or(Errno::EINVAL)?;
    Ok(Split::Tcp(host, port))
}

/// Whether a name can be looked up: letters, digits, `-`, `.` and `_`, the first of them no sign, as libzmq has it.
fn is_name(host: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    host.bytes().all(is_part) && host.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
}

fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn number(port: &str) -> io::Result<u16> {
    port.parse().map_err(|_| Errno::EINVAL.into())
}

/// The first address of an interface, of IPv4 where it has one.
fn of_interface(name: &str) -> io::Result<IpAddr> {
    let interfaces = getifaddrs()?.filter(|interface| interface.interface_name == name);
    let address = |address: nix::sys::socket::SockaddrStorage| {
        let four = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
    };
    let addresses = interfaces.filter_map(|interface| interface.address.and_then(address));
    addresses.min_by_key(IpAddr::is_ipv6).ok_or_else(|| Errno::ENODEV.into())
}

/// The first address of a host: an IPv4 one if there is any, as libzmq does, or an IPv6 one with `ipv6`. The system may
/// take long.
pub(super) fn look_up(host: &str, port: u16, ipv6: bool) -> io::Result<SocketAddr> {
    let addresses = (host, port).to_socket_addrs()?;
    addresses.min_by_key(|address| address.is_ipv6() != ipv6).ok_or_else(|| Errno::EHOSTUNREACH.into())
}

/// The system's address of a path.
pub(super) fn unix(path: &Path) -> io::Result<SockAddr> {
    // A path that is too long gets an error that says so.
    SockAddr::unix(path).map_err(|_| Errno::ENAMETOOLONG.into())
}

/// A path as an endpoint.
pub(super) fn unix_endpoint(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    match bytes.split_first() {
        Some((0, name)) => format!("ipc://@{}", String::from_utf8_lossy(name)),
        _ => format!("ipc://{}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read() {
        let listen = |endpoint| Address::to_listen(endpoint, false).expect("an endpoint");
        let tcp = |address: &str| Address::Tcp(address.parse().expect("an address"));
        assert_eq!(listen("tcp://*:*"), tcp("0.0.0.0:0"));
        assert_eq!(Address::to_listen("tcp://*:7", true).expect("an endpoint"), tcp("[::]:7"));
        assert_eq!(listen("tcp://[::1]:*"), tcp("[::1]:0"));
        assert_eq!(listen("tcp://lo:8"), tcp("127.0.0.1:8"));
        assert_eq!(listen("tcp://localhost:8"), tcp("127.0.0.1:8"));
        assert_eq!(listen("ipc:///tmp/a b"), Address::Unix("/tmp/a b".into()));
        assert_eq!(listen("ipc://@name"), Address::Unix("\0name".into()));
        let dial = |endpoint| Address::to_dial(endpoint).expect("an endpoint");
        assert_eq!(dial("tcp://127.0.0.1:5"), tcp("127.0.0.1:5"));
        assert_eq!(dial("tcp://example.org:5"), Address::Named { host: "example.org".to_owned(), port: 5 });
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        let errno = |result: io::Result<Address>| result.expect_err("no endpoint").raw_os_error();
        let is = |errno: Errno| Some(errno as i32);
        for endpoint in ["tcp://127.0.0.1", "tcp://127.0.0.1:x", "tcp://127.0.0.1:70000", "ipc://"] {
            assert_eq!(errno(Address::to_listen(endpoint, false)), is(Errno::EINVAL), "{endpoint}");
        }
        for endpoint in
            ["tcp://*:5", "tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "tcp://:5", "ipc://*", "tcp://[fe80::1%lo]:5"]
        {
            assert_eq!(errno(Address::to_dial(endpoint)), is(Errno::EINVAL), "{endpoint}");
        }
        for host in
            ["/127.0.0.1", "a b", "user@127.0.0.1", "127.0.0.1/", "h,other", "-x", "http://h", "localhost ", "ä"]
        {
            let endpoint = format!("tcp://{host}:5");
            assert_eq!(errno(Address::to_dial(&endpoint)), is(Errno::EINVAL), "{endpoint}");
        }
        for endpoint in ["tcp://my_host-1.example.org:5", "tcp://1and1.com:5"] {
            assert!(matches!(Address::to_dial(endpoint), Ok(Address::Named { .. })), "{endpoint}");
        }
        assert_eq!(errno(Address::to_listen("tcp://nosuchcard:5", false)), is(Errno::ENODEV));
        assert_eq!(errno(Address::to_dial("pgm://a:5")), is(Errno::EPROTONOSUPPORT));
        assert_eq!(errno(Address::to_dial(&format!("ipc:///{}", "x".repeat(200)))), is(Errno::ENAMETOOLONG));
    }

    #[test]
    fn paths_are_written_as_they_were_read() {
        for endpoint in ["ipc:///run/a", "ipc://@a"] {
            let Ok(Address::Unix(path)) = Address::to_dial(endpoint) else { panic!("{endpoint}") };
            assert_eq!(unix_endpoint(&path), endpoint);
        }
    }
}
