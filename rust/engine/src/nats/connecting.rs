//! How the connection is made, and made again.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use trunkline_wire::nats::{Connection, Event, Failure, Info, Key, Login, ServerUrl};
use trunkline_wire::{Nanos, Remote, ServerNotice, SocketEvent};

use super::core::NatsTransport;
use super::link::{Link, Open};
use crate::reactor::{self, Address, Backoff, DialId, LinkEvent, LinkId, StreamOptions};
use crate::tls::{Broken, Encrypted};

/// The most that is read of a credentials file.
const CREDENTIALS: u64 = 1 << 20;

impl NatsTransport {
    /// When something is to be done about the connection.
    pub(super) fn due(&self) -> Option<Nanos> {
        match &self.link {
            Link::None if self.sockets.is_empty() => None,
            Link::None => Some(self.servers.due()),
            Link::Dialling(_, until) => Some(*until),
            Link::Open(open) => open.connection.poll_timeout(),
        }
    }

    /// Does what is due about the connection.
    pub(super) fn tick(&mut self) {
        let is_due = self.due().is_some_and(|due| due <= self.now);
        match &mut self.link {
            _ if !is_due => {}
            Link::None => self.dial(),
            Link::Dialling(dial, _) => {
                let dial = *dial;
                self.unreachable(dial, "timed out");
            }
            Link::Open(open) => open.connection.handle_timeout(self.now),
        }
    }

    fn dial(&mut self) {
        let chance = getrandom::u32().unwrap_or_default();
        let Some(url) = self.servers.dial(self.now, chance).cloned() else { return };
        let options = StreamOptions { silence: Some(self.silence()), ..StreamOptions::default() };
        // One attempt: which server is dialled next is not for the reactor to say.
        let dial = self.reactor.dial(address(&url), options, Backoff::new(self.settings.reach, None));
        self.link = Link::Dialling(dial, self.now + self.settings.reach);
    }

    /// How long a server may leave unanswered what was written.
    fn silence(&self) -> std::time::Duration {
        self.settings.connection.ping * (self.settings.connection.unanswered + 1)
    }

    /// The dialled server cannot be reached.
    fn unreachable(&mut self, dial: DialId, reason: &str) {
        if let Some(link) = self.reactor.hang_up(dial) {
            self.reactor.close(link, false);
        }
        self.link = Link::None;
        let endpoint = self.endpoint();
        if self.is_news(reason) {
            self.report(SocketEvent::Unreachable { endpoint, reason: reason.to_owned() });
        }
    }

    /// Whether this is not why the last attempt has failed.
    fn is_news(&mut self, reason: &str) -> bool {
        let is_news = self.last_failure.as_deref() != Some(reason);
        self.last_failure = Some(reason.into());
        is_news
    }

    /// The server that is dialled, or was last.
    fn endpoint(&self) -> String {
        self.servers.current().map(ToString::to_string).unwrap_or_default()
    }

    pub(super) fn take(&mut self, event: LinkEvent) {
        match (event, &mut self.link) {
            (LinkEvent::Dialled(dial, link), Link::Dialling(dialled, _)) if dial == *dialled => {
                self.reached(dial, link);
            }
            (LinkEvent::Unreachable(dial, reason), Link::Dialling(dialled, _)) if dial == *dialled => {
                self.unreachable(dial, &reason);
            }
            // What can be read or written is looked at in each turn.
            _ => {}
        }
    }

    fn reached(&mut self, dial: DialId, link: LinkId) {
        let mut settings = self.settings.connection.clone();
        settings.encrypts |= self.settings.tls.is_some() || self.servers.current().is_some_and(|url| url.encrypts);
        let login = match &self.settings.credentials {
            None => Ok(self.settings.login.clone()),
            Some(path) => read_key(path).map(|key| Login { key: Some(key), ..self.settings.login.clone() }),
        };
        match login {
            Ok(login) => {
                let connection = Connection::new(Arc::new(settings), login, self.now);
                let open = Open { dial, link, connection, tls: None, subscribed: None, is_connected: false };
                self.link = Link::Open(Box::new(open));
            }
            Err(reason) => {
                self.reactor.hang_up(dial);
                self.reactor.close(link, true);
                self.link = Link::None;
                self.refused(reason);
            }
        }
    }

    /// The server was reached, and is of no use.
    fn refused(&mut self, reason: String) {
        let endpoint = self.endpoint();
        if self.is_news(&reason) {
            self.report(SocketEvent::HandshakeFailed { endpoint, reason });
        }
    }

    /// Takes what has happened on the connection. There is no head if it is a message.
    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Message(message) => self.head = self.received(message),
            Event::Encrypt => self.encrypt(),
            Event::Ready => self.begin(),
            Event::Reached(_) => self.reached_barrier(),
            Event::Info => {
                self.learn();
                self.report_max_payload();
            }
            Event::Forbidden(words) => self.report(SocketEvent::Server(ServerNotice::Forbidden(words.into()))),
            Event::Failed(failure) => self.lose(&failure),
        }
    }

    /// The server is known to encrypt.
    fn encrypt(&mut self) {
        let Self { link, servers, settings, trust, .. } = self;
        let Some(open) = link.open() else { return };
        let name = servers.current().map(ServerUrl::name).unwrap_or_default();
        let trusted = match trust {
            Some(trust) => Ok(&*trust),
            None => settings.tls.clone().unwrap_or_default().load().map(|loaded| &*trust.insert(loaded)),
        };
        let encrypted = trusted.map_err(|error| Broken::Untrusted(error.to_string()));
        match encrypted.and_then(|trust| Encrypted::new(trust, name)) {
            Ok(encrypted) => open.tls = Some(Box::new(encrypted)),
            Err(broken) => open.handle_broken(&broken),
        }
    }

    /// The login is over: what a server must know and what waited for one is written.
    fn begin(&mut self) {
        self.servers.succeeded();
        self.report(SocketEvent::Server(ServerNotice::Used(self.endpoint())));
        self.learn();
        self.report_max_payload();
        let Self { link, subscriptions, held, .. } = self;
        let Link::Open(open) = link else { return };
        subscriptions.subscribe_all(&mut open.connection);
        let unfit = held.take().into_iter().filter_map(|[subject, reply_to, block, body]| {
            open.connection.publish(&subject, &reply_to, &block, &body).err()
        });
        let unfit: Vec<_> = unfit.collect();
        open.subscribed = Some(self.next_barrier);
        self.wants_barrier = true;
        for reason in unfit {
            self.report_unsent(&reason.to_string());
        }
    }

    /// Takes what the server says of others and of its own end.
    fn learn(&mut self) {
        let Link::Open(open) = &self.link else { return };
        let Info { connect_urls, ldm, .. } = open.connection.info();
        if let Some(named) = connect_urls {
            self.servers.discover(named);
        }
        if *ldm {
            self.servers.avoid(self.now);
        }
    }

    fn report_max_payload(&mut self) {
        let Link::Open(open) = &self.link else { return };
        let most = open.connection.info().most();
        if self.max_payload.replace(most) != Some(most) {
            self.report(SocketEvent::Server(ServerNotice::MaxPayload(most)));
        }
    }

    /// The server has all that was sent before a barrier of this number.
    pub(super) fn confirm(&mut self, number: u64) {
        let endpoint = self.endpoint();
        let Link::Open(open) = &mut self.link else { return };
        if open.subscribed.is_some_and(|subscribed| subscribed <= number) {
            open.subscribed = None;
            open.is_connected = true;
            self.last_failure = None;
            self.report(SocketEvent::Connected(endpoint.into()));
        }
    }

    fn lose(&mut self, failure: &Failure) {
        let Link::Open(mut open) = std::mem::replace(&mut self.link, Link::None) else { return };
        if open.tls.is_some() {
            // TLS says why it has failed.
            open.write(&mut self.reactor);
        }
        self.reactor.hang_up(open.dial);
        self.reactor.close(open.link, failure.is_final());
        self.lose_barriers();
        if open.subscribed.is_some() || open.is_connected {
            self.report(SocketEvent::Server(ServerNotice::Left));
        }
        // The reason comes before its effect.
        let reason = failure.to_string();
        if !failure.is_final() {
            self.refused(reason);
        } else if self.is_news(&reason) {
            let endpoint = self.endpoint();
            self.report(SocketEvent::Server(ServerNotice::Denied { endpoint, reason }));
        }
        if open.is_connected {
            self.last_failure = None;
            let endpoint = self.endpoint();
            self.report(SocketEvent::Disconnected(Remote::from(endpoint)));
        }
    }

    /// Reports something of the connection.
    fn report(&mut self, event: SocketEvent) {
        // All sockets have the same connection.
        if let Some((_, socket)) = self.sockets.iter_mut().next() {
            socket.events.push_back(event);
        }
    }

    /// Reports that a message is not sent: once for those in a row.
    pub(super) fn report_unsent(&mut self, reason: &str) {
        if let Some((_, socket)) = self.sockets.iter_mut().next() {
            socket.report_unsent(reason);
        }
    }
}

fn address(url: &ServerUrl) -> Address {
    match url.host.parse() {
        Ok(host) => Address::Tcp(std::net::SocketAddr::new(host, url.port)),
        Err(_) => Address::Named { host: url.host.clone(), port: url.port },
    }
}

/// The key of a credentials file, or why there is none.
fn read_key(path: &Path) -> Result<Key, String> {
    let mut text = zeroize::Zeroizing::new(String::new());
    let read = File::open(path).and_then(|file| file.take(CREDENTIALS).read_to_string(&mut text));
    let shown = path.display();
    read.map_err(|error| format!("credentials: {shown}: {}", reactor::words(&error)))?;
    Key::from_credentials(&text).map_err(|error| format!("credentials: {shown}: {error}"))
}
