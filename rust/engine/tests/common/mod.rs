//! A small echo protocol for testing the engine, and what the tests of all transports share.
#![allow(dead_code)] // each file of tests takes what it needs

pub(crate) mod nats;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use smallvec::smallvec;
use trunkline_engine::libzmq::{Connections, Context, Libzmq, LibzmqTransport, load};
use trunkline_engine::zeromq::ZeromqTransport;
use trunkline_engine::zmtp::{Admission, ZmtpSettings, ZmtpTransport, load_sodium};
use trunkline_engine::{Guard, Handle, Hold as _, Queued, Running as _, Settings, Transport, TransportError};
use trunkline_wire::zap::Rule;
use trunkline_wire::{
    Event, Frames, Framing, Incoming, Label, Machine, Nanos, Open, Output, SendId, SocketEvent, SocketKind,
    SocketOptions, Unsent, Verdict, Weight,
};

/// Every wait of a test ends here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A transport under test.
pub(crate) trait Tested: Transport {
    /// What it cannot do, of what tests are about.
    const LACKS: &'static [Need] = &[];

    fn make(context: Context) -> Result<Self, TransportError>
    where
        Self: Sized;

    /// One whose CURVE clients are admitted by a rule; only for those that have CURVE.
    fn guarded(_rule: Rule) -> (Making<Self>, Guard)
    where
        Self: Sized,
    {
        unreachable!("it has no CURVE")
    }
}

/// What a test needs of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Curve,
    /// A full peer refuses a send instead of keeping it waiting.
    RefusalOfFullPeers,
}

/// Makes a transport on the thread that it is to run on.
pub(crate) type Making<T> = Box<dyn FnOnce() -> Result<T, TransportError> + Send>;

pub(crate) fn libzmq() -> &'static Libzmq {
    let path = std::env::var_os("TRUNKLINE_LIBZMQ")
        .expect("TRUNKLINE_LIBZMQ names the library to test with: `make test` sets it");
    load(&PathBuf::from(path)).expect("the library loads")
}

/// A context for one role.
pub(crate) fn context() -> Context {
    Context::new(libzmq()).expect("a context")
}

impl Tested for LibzmqTransport {
    fn make(context: Context) -> Result<Self, TransportError> {
        Ok(Self::new(libzmq(), context, vec![], Connections::default()))
    }

    fn guarded(rule: Rule) -> (Making<Self>, Guard) {
        let context = context();
        let guard = Guard::start(libzmq(), context, rule).expect("the guard starts");
        (Box::new(move || Self::make(context)), guard)
    }
}

impl Tested for ZeromqTransport {
    const LACKS: &'static [Need] = &[Need::Curve, Need::RefusalOfFullPeers];

    fn make(_context: Context) -> Result<Self, TransportError> {
        Self::new()
    }
}

impl Tested for ZmtpTransport {
    fn make(_context: Context) -> Result<Self, TransportError> {
        Self::new(settings())
    }

    fn guarded(rule: Rule) -> (Making<Self>, Guard) {
        let admission = Arc::new(Admission::new().expect("a descriptor"));
        let guard = Guard::asked_by(Arc::clone(&admission), rule).expect("the guard starts");
        let settings = ZmtpSettings { admission: Some(admission), ..settings() };
        (Box::new(move || Self::new(settings)), guard)
    }
}

/// The settings of our own transport, with the libsodium of the library under test.
pub(crate) fn settings() -> ZmtpSettings {
    let path = std::env::var_os("TRUNKLINE_LIBZMQ").expect("as above");
    let crypto = load_sodium(&PathBuf::from(path));
    assert!(crypto.is_some(), "pyzmq's wheel carries libsodium");
    ZmtpSettings { crypto, ..ZmtpSettings::default() }
}

pub(crate) fn start<T: Tested, M: Machine + Send + 'static>(machine: M) -> Handle<M> {
    start_in::<T, M>(machine, context(), Settings::default())
}

pub(crate) fn start_in<T: Tested, M: Machine + Send + 'static>(
    machine: M,
    context: Context,
    settings: Settings,
) -> Handle<M> {
    Handle::start(machine, move || T::make(context), Queued, settings).expect("the role starts")
}

/// Reads events until `enough`.
pub(crate) fn read_until<M: Machine + Send + 'static>(
    handle: &Handle<M>,
    enough: impl Fn(&[M::Event]) -> bool,
) -> Vec<M::Event> {
    let end = Instant::now() + PATIENCE;
    let mut all = vec![];
    let mut events = VecDeque::new();
    while !enough(&all) {
        assert!(Instant::now() < end, "only {} events came", all.len());
        let goes_on = handle.read(&mut events);
        if events.is_empty() {
            assert!(goes_on, "the role ended: {:?}", handle.end());
            handle.events().wait(|| handle.has_events() || handle.is_over(), Some(Duration::from_millis(100)));
        }
        all.extend(events.drain(..));
    }
    all
}

/// Closes a role and waits for its end.
pub(crate) fn close<M: Machine + Send + 'static>(handle: &Handle<M>) {
    handle.close(Duration::from_secs(1));
    handle.join();
}

/// What both echo machines report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    Message(Vec<Bytes>),
    Socket(u32, SocketEvent),
}

impl Event for Reported {
    fn weight(&self) -> Weight {
        match self {
            Self::Message(frames) => Weight::Lossless(frames.iter().map(Bytes::len).sum()),
            Self::Socket(..) => Weight::Notice(0),
        }
    }
}

/// What both echo machines are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Listen(u32, String),
    Close(u32),
    Send {
        to: Option<Bytes>,
        frames: Vec<Bytes>,
        id: Option<u64>,
    },
    /// A fault of the machine itself.
    Panic,
}

/// Sends every message back on a ROUTER, or talks to one through a DEALER; as many sockets as asked for.
#[derive(Debug)]
pub(crate) struct Echo {
    kind: SocketKind,
    options: SocketOptions,
    outputs: VecDeque<Output<u32>>,
    events: VecDeque<Reported>,
    open: Vec<u32>,
    answers: bool,
    tells: bool,
    closing: bool,
    messages: u64,
}

impl Echo {
    pub(crate) fn server(endpoint: &str, options: SocketOptions) -> Self {
        let mut echo = Self::new(SocketKind::Router, options);
        echo.listen(0, endpoint);
        echo
    }

    pub(crate) fn client(endpoint: &str, options: SocketOptions) -> Self {
        let mut echo = Self::new(SocketKind::Dealer, options);
        echo.open(0, vec![], vec![endpoint.to_owned()]);
        echo
    }

    /// Reports the messages of subjects of NATS, each socket those of its own.
    pub(crate) fn subscriber(sockets: &[&[&str]]) -> Self {
        let mut echo = Self::new(SocketKind::Nats, SocketOptions::default());
        for (socket, subjects) in (0..).zip(sockets) {
            echo.open(socket, subjects.iter().map(|subject| (*subject).to_owned()).collect(), vec![]);
        }
        echo.tells = true;
        echo
    }

    /// Reports messages and answers none.
    pub(crate) fn listener(mut self) -> Self {
        (self.answers, self.tells) = (false, true);
        self
    }

    fn new(kind: SocketKind, options: SocketOptions) -> Self {
        Self {
            kind,
            options,
            outputs: VecDeque::new(),
            events: VecDeque::new(),
            open: vec![],
            answers: kind == SocketKind::Router,
            tells: kind == SocketKind::Dealer,
            closing: false,
            messages: 0,
        }
    }

    /// What this machine knows: messages of several frames are of another framing, and their topic is the last frame.
    fn label_of(frames: &[Bytes]) -> Label {
        let last = frames.last().filter(|_| frames.len() > 1);
        Label { framing: last.map(|_| Framing::Mc0), topic: last.cloned() }
    }

    fn listen(&mut self, socket: u32, endpoint: &str) {
        self.open(socket, vec![endpoint.to_owned()], vec![]);
    }

    fn open(&mut self, socket: u32, bind: Vec<String>, connect: Vec<String>) {
        self.open.push(socket);
        let options = self.options.clone();
        self.outputs.push_back(Output::Open(Box::new(Open { socket, kind: self.kind, bind, connect, options })));
    }
}

impl Machine for Echo {
    type Socket = u32;
    type Event = Reported;
    type Verb = Ask;
    type Stats = u64;

    fn handle_message(&mut self, _now: Nanos, incoming: Incoming<u32>) -> Verdict {
        self.messages += 1;
        let label = Self::label_of(&incoming.frames);
        if self.tells {
            self.events.push_back(Reported::Message(incoming.frames.to_vec()));
        }
        if self.answers {
            let Incoming { socket, peer: to, frames, .. } = incoming;
            self.outputs.push_back(Output::Send { id: None, socket, to, frames: frames.into(), until: None });
        }
        Verdict { error: None, label }
    }

    fn handle_socket(&mut self, _now: Nanos, socket: u32, event: SocketEvent) {
        if event == SocketEvent::Closed {
            self.open.retain(|open| *open != socket);
        }
        self.events.push_back(Reported::Socket(socket, event));
    }

    fn handle_timeout(&mut self, _now: Nanos) {}

    fn handle_verb(&mut self, _now: Nanos, verb: Ask) {
        match verb {
            Ask::Listen(socket, endpoint) => self.listen(socket, &endpoint),
            Ask::Close(socket) => self.outputs.push_back(Output::Close { socket, linger: Duration::ZERO }),
            Ask::Send { to, frames, id } => self.outputs.push_back(Output::Send {
                id: id.map(SendId),
                socket: 0,
                to,
                frames: frames.into_iter().collect::<Frames>().into(),
                until: None,
            }),
            Ask::Panic => panic!("on purpose"),
        }
    }

    fn handle_close(&mut self, _now: Nanos, _grace: Duration) {
        self.closing = true;
        for socket in self.open.clone() {
            self.outputs.push_back(Output::Close { socket, linger: Duration::ZERO });
        }
    }

    fn poll_output(&mut self) -> Option<Output<u32>> {
        self.outputs.pop_front()
    }

    fn label(&self, _socket: u32, _to: Option<&Bytes>, frames: &[Bytes]) -> Label {
        Self::label_of(frames)
    }

    fn poll_event(&mut self) -> Option<Reported> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    fn progress(&self) -> u64 {
        self.messages
    }

    fn stats(&self) -> u64 {
        self.messages
    }

    fn is_closed(&self) -> bool {
        self.closing && self.open.is_empty()
    }
}

/// A send of one number.
pub(crate) fn number(number: u64) -> Ask {
    Ask::Send { to: None, frames: vec![Bytes::copy_from_slice(&number.to_be_bytes())], id: None }
}

pub(crate) fn messages(events: &[Reported]) -> usize {
    events.iter().filter(|event| matches!(event, Reported::Message(_))).count()
}

pub(crate) fn is_unreachable(event: &Reported, id: u64) -> bool {
    *event == Reported::Socket(0, SocketEvent::Unsent(SendId(id), Unsent::Unreachable))
}

/// One frame of this size.
pub(crate) fn frame(bytes: usize) -> Vec<Bytes> {
    vec![Bytes::from(vec![7; bytes])]
}

/// The frames of a CDTP message with header S.
pub(crate) fn cdtp(sequence: u32) -> Frames {
    let header = b"\xa5CDTP\x01\xa3Det\xd6\xff\x65\x53\xf1\x00\x80";
    smallvec![Bytes::from_static(header), Bytes::copy_from_slice(&sequence.to_be_bytes())]
}
