//! One connection to a server, from its INFO to its end.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes};

use super::codec::{Head, Inflow, LINE_END, Message, Whole, is_word, put_number};
use super::info::Info;
use super::login::{Login, connect};
use super::outgoing::Outgoing;
use super::reason::{Failure, Reason};
use crate::Nanos;

/// The longest words of a server that are kept.
const WORDS: usize = 512;

/// PINGs that are answered before the server has read any answer.
const PINGS: u32 = 1000;

/// The settings of a connection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name that the server shows for it.
    pub name: Option<String>,
    /// Whether to encrypt. Without, it is encrypted if the server wants that.
    pub encrypts: bool,
    /// How long the server may take until the login is over.
    pub handshake: Duration,
    /// The time between two PINGs, and how many of them may be unanswered.
    pub ping: Duration,
    pub unanswered: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            encrypts: false,
            handshake: Duration::from_secs(5),
            ping: Duration::from_secs(10),
            unanswered: 2,
        }
    }
}

/// What has happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Everything from now on is encrypted: [`Connection::handle_encrypted`] follows once that is agreed on.
    Encrypt,
    /// The login is over.
    Ready,
    /// A message for a subscription.
    Message(Message),
    /// The server has everything that was sent before this [barrier](Connection::barrier), and has refused what it
    /// refuses of it.
    Reached(u64),
    /// The server has said something of itself again: see [`Connection::info`].
    Info,
    /// The server forbids a subject, in these words, and the connection goes on.
    Forbidden(Box<str>),
    /// The connection is over.
    Failed(Failure),
}

/// Why a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A subject that would end a word or a line.
    Subject,
    /// It is larger than the server takes.
    TooLarge,
    /// The server knows no headers.
    Headers,
    /// The login is not over, or the connection is.
    NotReady,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Subject => "its subject is invalid",
            Self::TooLarge => "it is larger than the server accepts",
            Self::Headers => "the server does not know headers",
            Self::NotReady => "there is no connection to a NATS server",
        })
    }
}

impl std::error::Error for Unfit {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The server's INFO comes.
    Greeting,
    /// Encryption is being agreed on.
    Encrypting,
    /// The answer to our login comes.
    LoggingIn,
    Ready,
    Over,
}

/// A PING of ours that is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Login,
    Heartbeat,
    Barrier(u64),
}

/// One connection to a server.
#[derive(Debug)]
pub struct Connection {
    settings: Arc<Settings>,
    login: Login,
    stage: Stage,
    info: Info,
    inflow: Inflow,
    /// What has come and is not handled yet, and where the first of it lies in all that came.
    input: Bytes,
    offset: u64,
    /// Whether nothing more comes.
    is_eof: bool,
    out: Outgoing,
    events: VecDeque<Event>,
    asked: VecDeque<Asked>,
    barriers: u64,
    /// Answers to PINGs since nothing was left to be written.
    answers: u32,
    /// When the login must be over; then, when the next PING is due.
    due: Nanos,
    unanswered: u32,
    is_reading: bool,
}

impl Connection {
    /// A connection that was just made.
    pub fn new(settings: Arc<Settings>, login: Login, now: Nanos) -> Self {
        let due = now + settings.handshake;
        Self {
            settings,
            login,
            stage: Stage::Greeting,
            info: Info::default(),
            inflow: Inflow::default(),
            input: Bytes::new(),
            offset: 0,
            is_eof: false,
            out: Outgoing::default(),
            events: VecDeque::new(),
            asked: VecDeque::new(),
            barriers: 0,
            answers: 0,
            due,
            unanswered: 0,
            is_reading: true,
        }
    }

    /// What the server has said of itself.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Whether messages can be sent.
    pub fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Takes what came. What came before must be handled: see [`poll_event`](Self::poll_event). Nothing is taken while
    /// encryption is agreed on, or once it is over.
    pub fn receive(&mut self, bytes: Bytes) {
        if matches!(self.stage, Stage::Encrypting | Stage::Over) {
            return;
        }
        debug_assert!(self.input.is_empty(), "what came before is not handled");
        self.unanswered = 0;
        self.input = bytes;
    }

    /// Nothing more comes.
    pub fn handle_eof(&mut self) {
        self.is_eof = true;
    }

    /// What is written and read from now on is encrypted.
    pub fn handle_encrypted(&mut self) {
        if self.stage == Stage::Encrypting {
            self.log_in();
        }
    }

    /// Encryption has failed, for this reason.
    pub fn handle_tls_failure(&mut self, reason: Reason, detail: &str) {
        self.fail(reason, Some(detail.as_bytes()));
    }

    /// Reading goes on, or pauses: a server that is not read may be silent.
    pub fn handle_reading(&mut self, is_reading: bool) {
        if is_reading && !self.is_reading {
            self.unanswered = 0;
        }
        self.is_reading = is_reading;
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Nanos> {
        (self.stage != Stage::Over).then_some(self.due)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if now < self.due {
            return;
        }
        match self.stage {
            Stage::Greeting | Stage::Encrypting | Stage::LoggingIn => self.fail(Reason::HandshakeTimeout, None),
            Stage::Ready if self.is_reading && self.unanswered >= self.settings.unanswered => {
                self.fail(Reason::Silent, None);
            }
            Stage::Ready => {
                self.unanswered += 1;
                // One that waits to be written will do.
                if !self.asked.contains(&Asked::Heartbeat) {
                    self.ask(Asked::Heartbeat);
                }
                self.due = now + self.settings.ping;
            }
            Stage::Over => {}
        }
    }

    /// The next that has happened, if anything has.
    #[inline]
    pub fn poll_event(&mut self, now: Nanos) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match self.stage {
                Stage::Greeting | Stage::LoggingIn | Stage::Ready => {}
                Stage::Encrypting if self.is_eof => self.fail(Reason::HandshakeCut, None),
                Stage::Encrypting | Stage::Over => return None,
            }
            match self.inflow.take(&mut self.input) {
                Ok(Some(Whole { message, bytes })) => {
                    let message = self.handle(now, message, &bytes);
                    self.offset += bytes.len() as u64;
                    if message.is_some() {
                        return message;
                    }
                }
                Ok(None) if !self.is_eof => return None,
                Ok(None) if self.stage == Stage::Ready => self.fail(Reason::HungUp, None),
                Ok(None) => self.fail(Reason::HandshakeCut, None),
                Err(_) => self.fail(Reason::TooLong, None),
            }
        }
    }

    fn handle(&mut self, now: Nanos, message: Option<Message>, whole: &[u8]) -> Option<Event> {
        let Some(line) = whole.strip_suffix(LINE_END) else {
            let reason = if message.is_some() { Reason::BadMessage } else { Reason::TooLong };
            self.fail(reason, None);
            return None;
        };
        if let Some(message) = message {
            if self.stage == Stage::Ready {
                return Some(Event::Message(message));
            }
            self.fail(Reason::Unexpected, None);
            return None;
        }
        let end = line.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
        let (verb, rest) = line.split_at(end);
        match (verb, self.stage) {
            (b"INFO", _) => self.handle_info(rest),
            (b"-ERR", _) => self.handle_error(rest),
            (_, Stage::Greeting) => self.fail(Reason::NotNats, None),
            (b"PING", _) => self.answer(),
            (b"PONG", _) => self.handle_pong(now),
            (b"+OK", _) => {}
            (b"MSG" | b"HMSG", _) => self.fail(Reason::BadMessage, None),
            _ => self.fail(Reason::BadLine, None),
        }
        None
    }

    fn handle_info(&mut self, json: &[u8]) {
        let Some(info) = Info::read(json) else { return self.fail(Reason::BadInfo, None) };
        self.inflow.set_max_payload(info.most());
        self.info = info;
        if self.stage != Stage::Greeting {
            return self.events.push_back(Event::Info);
        }
        let can_encrypt = self.info.tls_required || self.info.tls_available;
        if self.settings.encrypts && !can_encrypt {
            self.fail(Reason::Unencrypted, None);
        } else if self.settings.encrypts || self.info.tls_required {
            self.stage = Stage::Encrypting;
            // What came along is not encrypted: it may be another's.
            self.input = Bytes::new();
            self.events.push_back(Event::Encrypt);
        } else {
            self.log_in();
        }
    }

    fn log_in(&mut self) {
        self.stage = Stage::LoggingIn;
        let login = connect(&self.login, self.settings.name.as_deref(), &self.info);
        self.out.put_with(|out| {
            for part in [b"CONNECT ".as_slice(), &login, LINE_END] {
                out.put_slice(part);
            }
        });
        self.ask(Asked::Login);
    }

    fn handle_error(&mut self, words: &[u8]) {
        let words = words.trim_ascii();
        let words = words.strip_prefix(b"'").and_then(|words| words.strip_suffix(b"'")).unwrap_or(words);
        let lower = words.to_ascii_lowercase();
        let says = |what: &[u8]| memchr::memmem::find(&lower, what).is_some();
        if self.stage == Stage::Ready && says(b"permissions violation") {
            return self.events.push_back(Event::Forbidden(shown(words)));
        }
        let is_denied = says(b"authorization") || says(b"authentication");
        self.fail(if is_denied { Reason::Denied } else { Reason::Ended }, Some(words));
    }

    fn answer(&mut self) {
        if self.out.len() == 0 {
            self.answers = 0;
        }
        self.answers += 1;
        if self.answers > PINGS {
            return self.fail(Reason::Flooded, None);
        }
        self.out.put_with(|out| out.put_slice(b"PONG\r\n"));
    }

    fn handle_pong(&mut self, now: Nanos) {
        match self.asked.pop_front() {
            Some(Asked::Login) => {
                self.stage = Stage::Ready;
                self.due = now + self.settings.ping;
                self.events.push_back(Event::Ready);
            }
            Some(Asked::Barrier(number)) => self.events.push_back(Event::Reached(number)),
            // An answer that nothing was asked for says nothing.
            Some(Asked::Heartbeat) | None => {}
        }
    }

    fn ask(&mut self, what: Asked) {
        self.asked.push_back(what);
        self.out.put_with(|out| out.put_slice(b"PING\r\n"));
    }

    fn fail(&mut self, reason: Reason, detail: Option<&[u8]>) {
        if self.stage == Stage::Over {
            return;
        }
        self.stage = Stage::Over;
        self.input = Bytes::new();
        self.events.push_back(Event::Failed(Failure { reason, offset: self.offset, detail: detail.map(shown) }));
    }

    /// Asks that the server confirms all that was sent before: [`Event::Reached`] follows, with the number that this
    /// gives.
    ///
    /// # Errors
    /// If the login is not over.
    pub fn barrier(&mut self) -> Result<u64, Unfit> {
        if self.stage != Stage::Ready {
            return Err(Unfit::NotReady);
        }
        self.barriers += 1;
        self.ask(Asked::Barrier(self.barriers));
        Ok(self.barriers)
    }

    /// Subscribes to a subject, under a number of the caller's. One member of each queue group gets a message; an empty
    /// one is none.
    ///
    /// # Errors
    /// If a subject is none, or the login is not over.
    pub fn subscribe(&mut self, number: u64, subject: &[u8], queue: &[u8]) -> Result<(), Unfit> {
        if self.stage != Stage::Ready {
            return Err(Unfit::NotReady);
        }
        if !is_word(subject) || !(queue.is_empty() || is_word(queue)) {
            return Err(Unfit::Subject);
        }
        self.out.put_with(|out| {
            for word in [b"SUB", subject, queue].into_iter().filter(|word| !word.is_empty()) {
                out.put_slice(word);
                out.put_u8(b' ');
            }
            put_number(out, number);
            out.put_slice(LINE_END);
        });
        Ok(())
    }

    /// Ends a subscription. Messages that are on their way may still come.
    ///
    /// # Errors
    /// If the login is not over.
    pub fn unsubscribe(&mut self, number: u64) -> Result<(), Unfit> {
        if self.stage != Stage::Ready {
            return Err(Unfit::NotReady);
        }
        self.out.put_with(|out| {
            out.put_slice(b"UNSUB ");
            put_number(out, number);
            out.put_slice(LINE_END);
        });
        Ok(())
    }

    /// Publishes a message. The reply subject and the header block may be empty.
    ///
    /// # Errors
    /// If it cannot be sent; the connection goes on.
    #[inline]
    pub fn publish(&mut self, subject: &[u8], reply_to: &[u8], block: &Bytes, body: &Bytes) -> Result<(), Unfit> {
        if self.stage != Stage::Ready {
            return Err(Unfit::NotReady);
        }
        if !block.is_empty() && !self.info.headers {
            return Err(Unfit::Headers);
        }
        if block.len().checked_add(body.len()).is_none_or(|size| size > self.info.most()) {
            return Err(Unfit::TooLarge);
        }
        let head = Head::new(subject, reply_to, body.len()).ok_or(Unfit::Subject)?.with_block(block.len());
        self.out.put_with(|out| {
            head.write(out);
            out.put_slice(block);
        });
        self.out.put(body);
        self.out.put_with(|out| out.put_slice(LINE_END));
        Ok(())
    }

    /// The bytes that are to be written.
    pub fn pending(&self) -> usize {
        self.out.len()
    }

    /// The first bytes to be written, as far as there are slices for them. Gives how many slices are used.
    pub fn slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        self.out.slices(into)
    }

    /// So many bytes were written.
    pub fn handle_written(&mut self, count: usize) {
        self.out.handle_written(count);
    }
}

/// A server's words as they are shown: without signs that control a terminal, and not too long.
fn shown(words: &[u8]) -> Box<str> {
    let words = String::from_utf8_lossy(&words[..words.len().min(WORDS)]);
    words.chars().map(|sign| if sign.is_control() { ' ' } else { sign }).collect::<String>().into()
}
