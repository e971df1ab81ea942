//! Streams of bytes, over TCP and Unix sockets: listens, dials, and reports which links can be read and written and
//! when a timer is due. It knows no protocol, so any can run on it.

mod address;
mod backoff;
mod links;
mod listener;
mod resolver;
mod slabs;
mod stream;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes};
use foldhash::fast::RandomState;
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use smallvec::{SmallVec, smallvec};
use socket2::SockAddr;
use trunkline_wire::Nanos;

pub(crate) use self::address::Address;
pub(crate) use self::backoff::Backoff;
pub(crate) use self::links::{Link, LinkId, Origin};
pub(crate) use self::listener::check_free;
pub(crate) use self::slabs::{ROOM, SLAB, copied};
pub(crate) use self::stream::{Read, StreamOptions};

use self::links::Links;
use self::listener::Listener;
use self::resolver::Resolver;
use self::slabs::Slabs;
use crate::limits::Limits;
use crate::transport::{TransportError, whole_ms};

/// Connections accepted before others have their turn.
const ACCEPTS: usize = 64;

/// Tokens: links use their numbers, which are smaller.
const WAKER: Token = Token(usize::MAX);
const LISTENERS: usize = 1 << 32;

/// One endpoint to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ListenerId(usize);

/// One endpoint that is dialled, and redialled whenever its link is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DialId(u64);

/// What happened to a stream.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    /// A peer has dialled an endpoint of ours.
    Accepted(ListenerId, LinkId),
    /// A peer was refused at once: why.
    TurnedAway(ListenerId, String),
    /// An endpoint was reached.
    Dialled(DialId, LinkId),
    /// An endpoint cannot be reached: why. Reported once until a [handshake succeeds](Reactor::succeeded).
    Unreachable(DialId, String),
    /// There is something to read, or the end.
    Readable(LinkId),
    /// There is room to write.
    Writable(LinkId),
    /// The time of [`Reactor::set_timer`].
    Due(LinkId),
}

/// An endpoint that is dialled.
#[derive(Debug)]
struct Dial {
    address: Address,
    options: StreamOptions,
    backoff: Backoff,
    link: Option<LinkId>,
    /// When to retry.
    due: Option<Instant>,
    /// Whether it is known that it cannot be reached.
    is_unreachable: bool,
}

impl Dial {
    /// Retries in a while.
    fn again(&mut self, is_final: bool) {
        let spread = self.backoff.spread(getrandom::u32().unwrap_or_default());
        self.due = Some(Instant::now() + self.backoff.next(is_final) + spread);
    }
}

/// Owns the descriptors, and waits on them.
pub(crate) struct Reactor {
    poll: Poll,
    events: Events,
    links: Links,
    listeners: HashMap<usize, Listener, RandomState>,
    next_listener: usize,
    dials: HashMap<DialId, Dial, RandomState>,
    next_dial: u64,
    resolver: Resolver,
    waker: Arc<Waker>,
    slabs: Slabs,
    origin: Instant,
    timers: BTreeSet<(Nanos, LinkId)>,
    pending: VecDeque<LinkEvent>,
    /// Limits of the admitted connections.
    limits: Limits,
}

impl Reactor {
    /// Without streams; with limits of all admitted connections and of those of one host.
    pub(crate) fn new(connections: Option<usize>, by_host: Option<usize>) -> Result<Self, TransportError> {
        let poll = Poll::new().map_err(|error| failed(&error))?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(|error| failed(&error))?);
        Ok(Self {
            resolver: Resolver::new(Arc::clone(&waker)),
            waker,
            poll,
            events: Events::with_capacity(1024),
            links: Links::default(),
            listeners: HashMap::default(),
            next_listener: 0,
            dials: HashMap::default(),
            next_dial: 0,
            slabs: Slabs::default(),
            origin: Instant::now(),
            timers: BTreeSet::new(),
            pending: VecDeque::new(),
            limits: Limits::new(connections, by_host),
        })
    }

    /// The time since it began.
    pub(crate) fn now(&self) -> Nanos {
        Nanos(0) + self.origin.elapsed()
    }

    /// Ends a wait from another thread.
    pub(crate) fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// How many connections were refused.
    pub(crate) fn turned_away(&self) -> u64 {
        self.limits.turned_away()
    }

    /// Listens; gives the real endpoint as well.
    pub(crate) fn listen(
        &mut self,
        address: &Address,
        options: StreamOptions,
    ) -> Result<(ListenerId, String), TransportError> {
        let listener = Listener::open(address, options).map_err(|error| failed(&error))?;
        let number = self.next_listener;
        self.next_listener += 1;
        let token = Token(LISTENERS + number);
        let mut source = SourceFd(&listener.descriptor());
        let registered = self.poll.registry().register(&mut source, token, Interest::READABLE);
        registered.map_err(|error| failed(&error))?;
        let real = listener.endpoint().to_owned();
        self.listeners.insert(number, listener);
        Ok((ListenerId(number), real))
    }

    /// Stops listening; the open links stay.
    pub(crate) fn unlisten(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.remove(&id.0) {
            // Closing the descriptor deregisters it in any case.
            let _ = self.poll.registry().deregister(&mut SourceFd(&listener.descriptor()));
        }
    }

    /// Dials, and redials whenever the link is lost.
    pub(crate) fn dial(&mut self, address: Address, options: StreamOptions, backoff: Backoff) -> DialId {
        let id = DialId(self.next_dial);
        self.next_dial += 1;
        self.dials.insert(
            id,
            Dial { address, options, backoff, link: None, due: Some(Instant::now()), is_unreachable: false },
        );
        self.dial_due();
        id
    }

    /// Stops dialling an endpoint; gives the link to it, which stays open.
    pub(crate) fn hang_up(&mut self, id: DialId) -> Option<LinkId> {
        self.resolver.forget(id.0);
        let link = self.dials.remove(&id)?.link?;
        if self.links.get(link)?.is_connecting {
            self.remove(link);
            return None;
        }
        Some(link)
    }

    /// The handshake with a dialled peer has succeeded: if the link is lost, it is redialled soon.
    pub(crate) fn succeeded(&mut self, link: LinkId) {
        if let Some(Link { origin: Origin::Dialled(dial), .. }) = self.links.get(link)
            && let Some(dial) = self.dials.get_mut(dial)
        {
            dial.backoff.reset();
            dial.is_unreachable = false;
        }
    }

    /// The number of open links.
    pub(crate) fn len(&self) -> usize {
        self.links.len()
    }

    /// A link, while it is open.
    pub(crate) fn link(&self, id: LinkId) -> Option<&Link> {
        self.links.get(id)
    }

    /// Closes a link. A dialled endpoint is redialled; later if the peer has refused us for good.
    pub(crate) fn close(&mut self, id: LinkId, is_final: bool) {
        if let Some(Link { origin: Origin::Dialled(dial), .. }) = self.remove(id)
            && let Some(dial) = self.dials.get_mut(&dial)
        {
            dial.link = None;
            dial.again(is_final);
        }
    }

    /// Ends writing on this side.
    pub(crate) fn end_writing(&self, id: LinkId) {
        if let Some(link) = self.links.get(id) {
            link.end_writing();
        }
    }

    fn remove(&mut self, id: LinkId) -> Option<Link> {
        let link = self.links.remove(id)?;
        link.end();
        // Closing the descriptor deregisters it in any case.
        let _ = self.poll.registry().deregister(&mut SourceFd(&link.descriptor()));
        if let Some(at) = link.timer {
            self.timers.remove(&(at, id));
        }
        if let Origin::Accepted(_) = link.origin {
            self.limits.leave(link.host);
        }
        Some(link)
    }

    /// Asks for one [`LinkEvent::Due`], at this time.
    pub(crate) fn set_timer(&mut self, id: LinkId, at: Option<Nanos>) {
        let Some(link) = self.links.get_mut(id) else { return };
        let before = std::mem::replace(&mut link.timer, at);
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, id));
        }
        if let Some(at) = at {
            self.timers.insert((at, id));
        }
    }

    /// Reads what there is, up to `most` bytes, into the buffer of all links.
    #[inline]
    pub(crate) fn read(&mut self, id: LinkId, most: usize) -> Read<Bytes> {
        let Some(link) = self.links.get_mut(id) else { return Read::Nothing };
        self.slabs.read(most, |slab| link.read(slab))
    }

    /// Whether to copy what is read before it is kept: pieces of it keep too much memory.
    pub(crate) fn is_scarce(&self) -> bool {
        self.slabs.are_scarce()
    }

    /// Reads what there is to where it belongs.
    pub(crate) fn read_to(&mut self, id: LinkId, into: &mut impl BufMut) -> Read<()> {
        self.links.get_mut(id).map_or(Read::Nothing, |link| link.read(into))
    }

    /// Writes the slices as far as there is room, and gives the bytes written. `None` if the peer has closed the link.
    #[inline]
    pub(crate) fn write(&mut self, id: LinkId, slices: &[IoSlice<'_>]) -> Option<usize> {
        self.links.get_mut(id)?.write(slices)
    }

    pub(crate) fn poll_event(&mut self) -> Option<LinkEvent> {
        self.pending.pop_front()
    }

    /// Waits until something happens to a stream, one of `others` can be read, or the time is up. True where one of
    /// `others` was seen to be readable.
    pub(crate) fn wait(
        &mut self,
        others: &[BorrowedFd<'_>],
        timeout: Option<Duration>,
    ) -> Result<bool, TransportError> {
        let mut timeout = timeout.into_iter().chain(self.due_in()).min();
        if !self.pending.is_empty() {
            timeout = Some(Duration::ZERO);
        }
        let mut is_other = false;
        if timeout != Some(Duration::ZERO) {
            let mut polled: SmallVec<[_; 4]> = smallvec![PollFd::new(self.poll.registry().as_fd(), PollFlags::POLLIN)];
            polled.extend(others.iter().map(|other| PollFd::new(*other, PollFlags::POLLIN)));
            match poll(&mut polled, poll_timeout(timeout)) {
                Ok(_) => is_other = polled[1..].iter().any(|other| other.any() == Some(true)),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(failed(&error.into())),
            }
        }
        match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
            Ok(()) => self.collect(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(&error)),
        }
        self.accept();
        self.resolved();
        self.dial_due();
        self.fire();
        Ok(is_other)
    }

    /// How long until the next timer.
    fn due_in(&self) -> Option<Duration> {
        let now = Instant::now();
        let dials = self.dials.values().filter_map(|dial| dial.due);
        let wants = self.listeners.values().filter_map(Listener::due);
        let instant = dials.chain(wants).min().map(|due| due.saturating_duration_since(now));
        let timer = self.timers.first().map(|(at, _)| *at - (Nanos(0) + (now - self.origin)));
        instant.into_iter().chain(timer).min()
    }

    fn collect(&mut self) {
        let mut connecting = vec![];
        for event in &self.events {
            let Token(token) = event.token();
            if event.token() == WAKER {
                continue;
            }
            if let Some(number) = token.checked_sub(LISTENERS) {
                if let Some(listener) = self.listeners.get_mut(&number) {
                    listener.set_ready();
                }
                continue;
            }
            let Some(link) = self.links.at_mut(token) else { continue };
            if link.is_connecting {
                connecting.push(link.id());
            }
            note(link, event, &mut self.pending);
        }
        for id in connecting {
            self.connected(id);
        }
    }

    /// A dialled link is connected, or has failed.
    fn connected(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id) else { return };
        match link.connected() {
            Ok(()) => {
                link.is_connecting = false;
                if let Origin::Dialled(dial) = link.origin {
                    self.pending.push_back(LinkEvent::Dialled(dial, id));
                    self.pending.push_back(LinkEvent::Readable(id));
                }
            }
            // The event came before the connection.
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {}
            Err(error) => {
                if let Origin::Dialled(dial) = link.origin {
                    self.unreachable(dial, &error);
                }
                self.close(id, false);
            }
        }
    }

    fn unreachable(&mut self, id: DialId, error: &io::Error) {
        if let Some(dial) = self.dials.get_mut(&id)
            && !std::mem::replace(&mut dial.is_unreachable, true)
        {
            self.pending.push_back(LinkEvent::Unreachable(id, words(error)));
        }
    }

    fn accept(&mut self) {
        let Self { listeners, limits, links, pending, poll, .. } = self;
        for (number, listener) in listeners {
            let id = ListenerId(*number);
            for _ in 0..ACCEPTS {
                let (socket, address) = match listener.accept() {
                    Ok(Some(accepted)) => accepted,
                    Ok(None) => break,
                    Err(error) => {
                        pending.push_back(LinkEvent::TurnedAway(id, words(&error)));
                        break;
                    }
                };
                let address = address.as_socket();
                // An IPv4 host is the same host at a socket of IPv6.
                let host = address.map(|address| address.ip().to_canonical());
                if let Err(reason) = limits.enter(socket.as_raw_fd(), host) {
                    pending.push_back(LinkEvent::TurnedAway(id, reason));
                    continue;
                }
                let address = address.map(|address| Arc::from(format!("tcp://{address}")));
                let link = links.insert(socket, Origin::Accepted(id), host, address);
                pending.push_back(LinkEvent::Accepted(id, link));
                if let Some(link) = links.get(link) {
                    // A link that cannot be registered has no events, and is given up when its handshake times out.
                    let _ = register(poll, link);
                }
            }
        }
    }

    fn dial_due(&mut self) {
        let now = Instant::now();
        let due = self.dials.iter().filter(|(_, dial)| dial.due.is_some_and(|due| due <= now)).map(|(id, _)| *id);
        let due: Vec<_> = due.collect();
        for id in due {
            let Some(dial) = self.dials.get_mut(&id) else { continue };
            dial.due = None;
            match &dial.address {
                Address::Named { host, port } => self.resolver.ask(id.0, host, *port, dial.options.ipv6),
                Address::Tcp(address) => {
                    let address = (*address).into();
                    self.dial_at(id, Ok(address));
                }
                Address::Unix(path) => {
                    let address = address::unix(path);
                    self.dial_at(id, address);
                }
            }
        }
    }

    fn resolved(&mut self) {
        while let Some((number, address)) = self.resolver.poll() {
            let unknown = || io::Error::other("the host does not resolve");
            self.dial_at(DialId(number), address.map(SockAddr::from).ok_or_else(unknown));
        }
    }

    fn dial_at(&mut self, id: DialId, address: io::Result<SockAddr>) {
        let Some(dial) = self.dials.get_mut(&id) else { return };
        let Self { links, poll, .. } = self;
        let dialled = address.and_then(|address| {
            let socket = stream::open(&address, dial.options)?;
            match socket.connect(&address) {
                Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
                _ => {}
            }
            let host = address.as_socket().map(|address| address.ip());
            let link = links.insert(socket, Origin::Dialled(id), host, None);
            let registered = links.get(link).map_or(Ok(()), |link| register(poll, link));
            registered.inspect_err(|_| drop(links.remove(link)))?;
            Ok(link)
        });
        match dialled {
            Ok(link) => dial.link = Some(link),
            Err(error) => {
                dial.again(false);
                self.unreachable(id, &error);
            }
        }
    }

    fn fire(&mut self) {
        let now = self.now();
        while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, id));
            if let Some(link) = self.links.get_mut(id) {
                link.timer = None;
            }
            self.pending.push_back(LinkEvent::Due(id));
        }
    }
}

fn register(poll: &Poll, link: &Link) -> io::Result<()> {
    let token = Token(link.id().index());
    poll.registry().register(&mut SourceFd(&link.descriptor()), token, Interest::READABLE | Interest::WRITABLE)
}

/// Notes an event of a link.
fn note(link: &mut Link, event: &Event, pending: &mut VecDeque<LinkEvent>) {
    link.is_ended |= event.is_read_closed() || event.is_error();
    if event.is_readable() || link.is_ended {
        link.is_readable = true;
        pending.push_back(LinkEvent::Readable(link.id()));
    }
    if event.is_writable() && !std::mem::replace(&mut link.is_writable, true) {
        pending.push_back(LinkEvent::Writable(link.id()));
    }
}

/// A wait in the form that `poll` takes.
pub(crate) fn poll_timeout(timeout: Option<Duration>) -> PollTimeout {
    PollTimeout::try_from(whole_ms(timeout)).unwrap_or(PollTimeout::MAX)
}

/// The message of a system error, without its number.
pub(crate) fn words(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |number| Errno::from_raw(number).desc().to_owned())
}

pub(crate) fn failed(error: &io::Error) -> TransportError {
    TransportError::Failed { errno: error.raw_os_error().unwrap_or_default(), reason: words(error) }
}
