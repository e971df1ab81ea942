//! The control flow: commands and their replies (MTL-07 … MTL-29).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::flows::Terms;
use super::sessions::{Address, Asker, Caller, Culprit, Exchange, Held, STEPS};
use super::settings::{Answer, Login, Question, Routing, ServerEvent, User};
use super::{Hanging, REPLY, Server};
use crate::mtl::control::{COMMAND_BYTES, Command, Json, Reply, command};
use crate::mtl::printable;
use crate::question::Token;
use crate::slab::Slot;
use crate::{DecodeError, DropKind, ECHO_BYTES, ErrorKind, Frames, Nanos, Output, Parcel};

/// The mechanisms, the strongest first.
const SCRAM: &str = "SCRAM-SHA-256";
const EXTERNAL: &str = "EXTERNAL";
const PLAIN: &str = "PLAIN";
const ANONYMOUS: &str = "ANONYMOUS";

/// Unused leases at most: of one session, and of all.
const LEASES: usize = 1000;
const ALL_LEASES: usize = 100_000;

/// Resources that a lease may name, and that all leases may name together, used or not.
const LEASED: usize = 1000;
const ALL_LEASED: usize = 200_000;

/// The largest window a reader may request.
const WINDOW: u64 = 100_000;

/// The window of a confirming reader that requests none.
const DEFAULT_WINDOW: usize = 1000;

/// Bytes of JSON that are parsed of a peer that has not logged in.
const STRANGER_BYTES: usize = 16 << 10;

/// Bytes of custom commands that may await their replies.
const COMMANDS_BYTES: usize = 16 << 20;

/// JSON of more bytes than this counts against its peer's budget of parsing.
const SMALL: usize = 4 << 10;

/// The longest name of a resource, in bytes (MTL-59).
const NAME: usize = 255;

/// A JSON object.
pub(super) fn object(value: Value) -> Json {
    match value {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Json::new(),
    }
}

/// A reply with only a status.
pub(super) fn says(status: u16, text: &str) -> Reply {
    Reply { status, body: object(json!({ "status": text })) }
}

pub(super) fn ok() -> Reply {
    says(200, "OK")
}

/// The reply to a command; `None` if it comes later.
pub(super) type Outcome = Option<Reply>;

/// A command, its sender and its session.
pub(super) struct Asked<'a> {
    pub(super) asker: &'a Asker,
    pub(super) session: Slot,
    pub(super) command: &'a Command,
    /// The bytes of its JSON as received.
    pub(super) bytes: usize,
}

/// The text of a member.
pub(super) fn text<'a>(body: &'a Json, name: &str) -> Result<&'a str, Reply> {
    match body.get(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(says(400, &format!("{name:?} is no string"))),
        None => Err(says(400, &format!("{name:?} is missing"))),
    }
}

/// Checks that a resource's name fits the data flow.
pub(super) fn resource_name(name: &str) -> Result<&str, Reply> {
    if name.is_empty() || name.len() > NAME || printable(name.as_bytes()).is_err() {
        return Err(says(400, "a resource has a printable name of up to 255 bytes"));
    }
    Ok(name)
}

impl Server {
    /// Handles a message of the control flow.
    pub(super) fn on_control(
        &mut self,
        now: Nanos,
        address: Address,
        origin: Caller,
        frames: &Frames,
    ) -> Result<(), DecodeError> {
        let wrong = |frame| DecodeError { kind: ErrorKind::BadFrameCount, frame, offset: 0 };
        let empty = frames.iter().position(Bytes::is_empty).ok_or_else(|| wrong(frames.len()))?;
        let at = empty + 1;
        let [name, body] = &frames[at..] else { return Err(wrong(frames.len().min(at + 2))) };
        if frames[..at].iter().map(Bytes::len).sum::<usize>() > ECHO_BYTES {
            let client = self.client(&address, origin);
            self.drop(DropKind::EchoTooLong.into(), client, frames.clone());
            return Ok(());
        }
        let asker = Asker { address, envelope: frames[..at].iter().cloned().collect() };
        let reply = match self.may_parse(now, &asker.address, &origin, (name, body.len())) {
            Ok(()) => {
                let command = command(name, body, at)?;
                self.on_command(now, &asker, origin, (&command, body.len()))
            }
            Err(reply) => Err(reply),
        };
        if let Some(reply) = reply.unwrap_or_else(Some) {
            self.reply(&asker, &reply);
        }
        Ok(())
    }

    /// Whether this much JSON may be parsed for a peer: it delays all others, and takes up to forty times its memory.
    fn may_parse(
        &mut self,
        now: Nanos,
        address: &Address,
        origin: &Caller,
        (name, bytes): (&[u8], usize),
    ) -> Result<(), Reply> {
        if bytes > COMMAND_BYTES {
            return Err(says(400, &format!("a command has up to {COMMAND_BYTES} bytes of JSON")));
        }
        let session = self.sessions.of_peer(address, origin);
        let stranger = session.filter(|session| self.sessions.get(*session).user.is_none());
        if bytes > STRANGER_BYTES && (session.is_none() || stranger.is_some()) {
            return Err(match stranger {
                _ if name.eq_ignore_ascii_case(b"connection.open") => {
                    says(400, &format!("this command has up to {STRANGER_BYTES} bytes of JSON"))
                }
                Some(session) => self.unauthorized(session),
                None => says(400, "Open first"),
            });
        }
        let amount = u32::try_from(bytes).unwrap_or(u32::MAX);
        if bytes > SMALL && !self.parsing.allows(now, &address.1, amount) {
            return Err(says(503, "too much JSON at a time: wait a second"));
        }
        Ok(())
    }

    /// Sends a reply.
    pub(super) fn reply(&mut self, asker: &Asker, reply: &Reply) {
        let (socket, to) = asker.address.clone();
        let mut frames = asker.envelope.clone();
        frames.extend(reply.frames());
        self.outputs.push_back(Output::Send {
            id: Some(REPLY),
            socket,
            to: Some(to),
            frames: Parcel::Own(frames),
            until: None,
        });
    }

    fn on_command(
        &mut self,
        now: Nanos,
        asker: &Asker,
        origin: Caller,
        (command, bytes): (&Command, usize),
    ) -> Result<Outcome, Reply> {
        let name = command.name.to_ascii_lowercase();
        if origin.user_id.as_ref().is_some_and(|user| self.barred.contains(user)) {
            // It connected while its key was valid; nothing else ends this connection.
            return Err(Reply { status: 401, body: object(json!({ "status": "Unauthorized", "mechanisms": [] })) });
        }
        if name == "connection.open" {
            return self.open(now, asker, origin, &command.body).map(Some);
        }
        let session = self.sessions.heard(now, &asker.address, &origin);
        let session = session.ok_or_else(|| says(400, "Open first"))?;
        let what = Asked { asker, session, command, bytes };
        if name == "connection.authorize" {
            return self.authorize(now, &what);
        }
        if self.sessions.get(session).user.is_none() {
            return Ok(Some(self.unauthorized(session)));
        }
        match name.as_str() {
            "connection.profile" => self.select_profile(&what).map(Some),
            "connection.reader" => self.lease(now, &what, true).map(Some),
            "connection.writer" => self.lease(now, &what, false).map(Some),
            _ => self.on_profile_command(now, &what, &name),
        }
    }

    /// A command of a profile's class (MTL-22).
    fn on_profile_command(&mut self, now: Nanos, asked: &Asked<'_>, name: &str) -> Result<Outcome, Reply> {
        let not_implemented = || says(501, "Not implemented");
        if asked.command.parts().is_none() {
            return Err(not_implemented());
        }
        let session = self.sessions.get(asked.session);
        let Some(profile) = session.profile else {
            // A command of no profile does not exist; any other needs its profile selected.
            let is_known = self.settings.profiles.iter().any(|profile| {
                profile.commands.contains(name) || profile.managed && super::queue::COMMANDS.contains(&name)
            });
            return Err(if is_known { says(400, "Select a profile first") } else { not_implemented() });
        };
        let settings = &self.settings.profiles[profile];
        if settings.commands.contains(name) {
            let question = Question::Command {
                profile: settings.name.clone(),
                name: asked.command.name.clone(),
                body: asked.command.body.clone(),
                user: session.user.as_ref().map(|user| user.name.clone()).filter(|name| !name.is_empty()),
                virtual_host: self.settings.virtual_hosts[session.virtual_host].clone(),
            };
            let bytes = asked.asker.envelope.iter().map(Bytes::len).sum::<usize>() + asked.bytes;
            if self.commands_bytes + bytes > COMMANDS_BYTES && self.commands_bytes > 0 {
                return Err(says(503, "Busy"));
            }
            self.ask(now, Hanging::Command { asker: asked.asker.clone(), bytes }, question)?;
            self.commands_bytes += bytes;
            return Ok(None);
        }
        if settings.managed {
            return self.on_queue_command(asked, profile, name);
        }
        Err(not_implemented())
    }

    fn ask(&mut self, now: Nanos, what: Hanging, question: Question) -> Result<Token, Reply> {
        let token = self.questions.ask(now, what).map_err(|_| says(503, "Busy"))?;
        self.events.push_back(ServerEvent::Asked(token, question));
        Ok(token)
    }

    fn open(&mut self, now: Nanos, asker: &Asker, origin: Caller, body: &Json) -> Result<Reply, Reply> {
        let Some(Value::Object(protocol)) = body.get("protocol") else {
            return Err(says(400, "\"protocol\" is missing, or no object"));
        };
        if text(protocol, "name")? != "MTL" {
            return Err(says(400, "the protocol is MTL"));
        }
        let version = protocol.get("version");
        match version.and_then(Value::as_u64) {
            Some(1) => {}
            Some(2..) => return Err(says(501, "the version is 1")),
            // Whole numbers beyond 64 bits are later versions too.
            None if version.and_then(Value::as_f64).is_some_and(|version| version >= 18_446_744_073_709_551_616.0) => {
                return Err(says(501, "the version is 1"));
            }
            Some(_) | None => return Err(says(400, "the version is 1")),
        }
        let name = text(body, "virtual-host")?;
        let virtual_host = self.settings.virtual_hosts.iter().position(|host| host == name);
        let virtual_host = virtual_host.ok_or_else(|| says(404, "there is no such virtual host"))?;
        if let Some(before) = self.sessions.at(&asker.address) {
            if self.sessions.get(before).origin == origin {
                self.end_session(now, before);
            } else {
                self.sessions.disown(before);
            }
        }
        self.end_excess(now);
        let session = self.sessions.open(now, asker.address.clone(), origin, virtual_host);
        if self.settings.access.is_some() {
            return Ok(self.unauthorized(session));
        }
        self.sessions.welcome(session, User::default());
        Ok(self.ready(session))
    }

    fn ready(&mut self, session: Slot) -> Reply {
        let profiles: Vec<_> = self.settings.profiles.iter().map(|profile| profile.name.as_str()).collect();
        let reply = Reply { status: 201, body: object(json!({ "status": "Ready", "profiles": profiles })) };
        let client = self.sessions.get(session).client();
        self.events.push_back(ServerEvent::LoggedIn { client });
        reply
    }

    /// The mechanisms for this client (MTL-14).
    fn mechanisms(&self, session: Slot) -> Vec<&'static str> {
        let session = self.sessions.get(session);
        let Some(access) = self.settings.access else { return vec![] };
        let is_private = self.is_private(session.address.0);
        let offers = [
            (SCRAM, access.passwords),
            (EXTERNAL, access.external && session.origin.user_id.is_some()),
            (PLAIN, access.passwords && is_private),
            (ANONYMOUS, access.anonymous),
        ];
        offers.into_iter().filter(|(_, is_on)| *is_on).map(|(name, _)| name).collect()
    }

    /// Ends a login in progress: the client has to start again.
    fn unauthorized(&mut self, session: Slot) -> Reply {
        self.sessions.take_exchange(session);
        let body = object(json!({ "status": "Unauthorized", "mechanisms": self.mechanisms(session) }));
        Reply { status: 401, body }
    }

    fn authorize(&mut self, now: Nanos, asked: &Asked<'_>) -> Result<Outcome, Reply> {
        let slot = asked.session;
        if self.settings.access.is_none() {
            return Ok(Some(self.ready(slot)));
        }
        let address = &asked.asker.address;
        let session = self.sessions.get(slot);
        // A client that opens a new session still has to wait for its delayed refusal.
        if session.asked.is_some() || self.delays.holds(&Culprit::Peer(address, session.origin.host.as_deref())) {
            return Err(says(400, "one step at a time"));
        }
        // Any fault in a step ends the login.
        let exchange = self.sessions.take_exchange(slot);
        let body = &asked.command.body;
        let (mechanism, response) = (text(body, "mechanism")?, text(body, "response")?);
        let response = STANDARD.decode(response).map_err(|_| says(400, "the response is no BASE64"))?;
        let known = self.mechanisms(slot).into_iter().find(|known| known.eq_ignore_ascii_case(mechanism));
        let Some(mechanism) = known else { return Err(self.unauthorized(slot)) };
        let exchange = exchange.filter(|exchange| exchange.mechanism == mechanism).unwrap_or_default();
        if exchange.steps >= STEPS {
            return Err(self.unauthorized(slot));
        }
        let login = Login {
            mechanism: mechanism.to_owned(),
            response: response.into(),
            state: exchange.state,
            is_private: self.is_private(asked.asker.address.0),
            user_id: self.sessions.get(slot).origin.user_id.clone(),
        };
        let hanging =
            Hanging::Login { asker: asked.asker.clone(), mechanism: mechanism.to_owned(), steps: exchange.steps + 1 };
        let token = self.ask(now, hanging, Question::Login(login))?;
        self.sessions.get_mut(slot).asked = Some(token);
        Ok(None)
    }

    /// Handles the answer to a question.
    pub(super) fn on_answer(&mut self, now: Nanos, token: Token, answer: Answer) {
        let Some(hanging) = self.questions.answered(token) else { return };
        self.settle_question(now, token, hanging, answer);
    }

    pub(super) fn settle_question(&mut self, now: Nanos, token: Token, hanging: Hanging, answer: Answer) {
        match hanging {
            Hanging::Command { asker, bytes } => {
                self.commands_bytes -= bytes;
                let reply = if let Answer::Reply(reply) = answer { reply } else { says(500, "Internal error") };
                self.reply(&asker, &reply);
            }
            Hanging::Login { asker, mechanism, steps } => {
                let exchange = Exchange { mechanism, state: Bytes::new(), steps };
                self.judge(now, token, asker, exchange, answer);
            }
        }
    }

    /// Counts a failure. After many failures answers are delayed, correct ones too: otherwise a guess that gets no
    /// quick answer would be known to be wrong.
    fn judge(&mut self, now: Nanos, token: Token, asker: Asker, exchange: Exchange, answer: Answer) {
        let (user, is_wrong) = match &answer {
            Answer::Refused(user) => (user.clone(), true),
            Answer::Challenge { proven, .. } => (proven.clone(), false),
            Answer::Welcome(user) => (Some(user.name.clone()), false),
            Answer::Failed | Answer::Reply(_) => (None, false),
        };
        let host = self.sessions.at(&asker.address).and_then(|slot| self.sessions.get(slot).origin.host.clone());
        let address = asker.address.clone();
        let mut culprits = vec![Culprit::Peer(&address, host.as_deref())];
        culprits.extend(user.as_deref().map(|user| Culprit::User(user, host.as_deref())));
        if is_wrong {
            self.stats.refused += 1;
            let session = self.sessions.at(&asker.address);
            let client = session.map(|slot| self.sessions.get(slot).client());
            let client = client.unwrap_or_else(|| Some(asker.address.1.clone()).into());
            self.events.push_back(ServerEvent::Refused { client, user: user.clone() });
            self.delays.failed(now, &culprits);
        }
        let tells = is_wrong || user.is_some();
        let Some(until) = self.delays.until(now, &culprits).filter(|_| tells) else {
            return self.conclude(now, token, &asker, exchange, answer);
        };
        if self.delays.has_room(&culprits) {
            self.delays.hold(until, &culprits, token, (asker, exchange, answer));
        } else {
            self.conclude(now, token, &asker, Exchange::default(), Answer::Failed);
        }
    }

    /// The delay of an answer is over.
    pub(super) fn release(&mut self, now: Nanos, held: Held) {
        let Held { token, asker, exchange, answer, .. } = held;
        self.conclude(now, token, &asker, exchange, answer);
    }

    /// Applies an answer, unless the session that asked was replaced.
    fn conclude(&mut self, now: Nanos, token: Token, asker: &Asker, exchange: Exchange, answer: Answer) {
        // A session opened since then is not logged in by this answer: it has its own token.
        let session = self.sessions.at(&asker.address);
        let Some(slot) = session.filter(|slot| self.sessions.get(*slot).asked == Some(token)) else {
            return self.reply(asker, &says(400, if session.is_some() { "Opened anew since" } else { "Open first" }));
        };
        self.sessions.get_mut(slot).asked = None;
        match answer {
            Answer::Challenge { challenge, state, .. } => {
                let body = object(json!({
                    "status": "Challenged", "mechanism": exchange.mechanism, "challenge": STANDARD.encode(challenge),
                }));
                self.sessions.set_exchange(slot, Exchange { state, ..exchange });
                self.reply(asker, &Reply { status: 402, body });
                self.end_excess(now);
            }
            Answer::Welcome(user) => {
                if self.sessions.welcome(slot, user) {
                    // The profile and the leases of another user are not this user's.
                    self.sessions.get_mut(slot).profile = None;
                    self.revoke_leases(now, slot);
                }
                let reply = self.ready(slot);
                self.reply(asker, &reply);
            }
            Answer::Refused(_) => {
                let reply = self.unauthorized(slot);
                self.reply(asker, &reply);
            }
            Answer::Failed | Answer::Reply(_) => self.reply(asker, &says(503, "logins cannot be checked now")),
        }
    }

    fn select_profile(&mut self, asked: &Asked<'_>) -> Result<Reply, Reply> {
        let name = text(&asked.command.body, "profile")?;
        let profile = self.settings.profiles.iter().position(|profile| profile.name.eq_ignore_ascii_case(name));
        let profile = profile.ok_or_else(|| says(400, "there is no such profile"))?;
        self.sessions.get_mut(asked.session).profile = Some(profile);
        Ok(ok())
    }

    /// Grants a reader or writer the lease of a data connection (MTL-23 … MTL-27).
    fn lease(&mut self, now: Nanos, asked: &Asked<'_>, reads: bool) -> Result<Reply, Reply> {
        let session = self.sessions.get(asked.session);
        let profile = session.profile.ok_or_else(|| says(400, "Select a profile first"))?;
        let body = &asked.command.body;
        let mut resources: Vec<String> = vec![];
        match body.get("resources") {
            None => {}
            Some(Value::Array(names)) if names.len() > LEASED => {
                let text = format!("a lease names up to {LEASED} resources: leave \"resources\" out for all");
                return Err(says(400, &text));
            }
            Some(Value::Array(names)) => {
                for name in names {
                    let Value::String(name) = name else { return Err(says(400, "a resource is no string")) };
                    resource_name(name)?;
                    if self.realm.find(session.virtual_host, profile, name).is_none() {
                        return Err(says(404, &format!("there is no resource {name:?}")));
                    }
                    let may = if reads { session.rights.may_read(name) } else { session.rights.may_write(name) };
                    if !may {
                        return Err(says(403, &format!("you may not use the resource {name:?}")));
                    }
                    resources.push(name.clone());
                }
                resources.sort_unstable();
                resources.dedup();
            }
            Some(_) => return Err(says(400, "\"resources\" is no list")),
        }
        let is_confirmed = match body.get("confirm").map(Value::as_str) {
            None | Some(Some("none")) => false,
            Some(Some("full")) => true,
            Some(_) => return Err(says(400, "\"confirm\" is neither \"none\" nor \"full\"")),
        };
        if is_confirmed && self.settings.profiles[profile].routing == Routing::Fanout {
            return Err(says(501, "Not implemented"));
        }
        let window = match body.get("window") {
            None => {
                if is_confirmed {
                    DEFAULT_WINDOW
                } else {
                    usize::MAX
                }
            }
            Some(window) => {
                let window = window.as_u64().filter(|window| (1..=WINDOW).contains(window));
                let window = window.and_then(|window| usize::try_from(window).ok());
                window.ok_or_else(|| says(400, &format!("\"window\" is a number from 1 to {WINDOW}")))?
            }
        };
        let are_many = self.leased_names + resources.len() > ALL_LEASED;
        if session.leases.len() >= LEASES || self.leases.len() >= ALL_LEASES || are_many {
            return Err(says(503, "too many leases wait to be used"));
        }
        let terms = Terms {
            session: asked.session,
            reads,
            virtual_host: session.virtual_host,
            profile,
            topic: resources.first().map(|first| Bytes::copy_from_slice(first.as_bytes())),
            resources,
            is_confirmed,
            window,
        };
        let socket = asked.asker.address.0;
        let endpoint = self.data_endpoint(socket).ok_or_else(|| says(503, "nothing listens for data"))?;
        let port = port(&endpoint);
        let lease = (self.settings.entropy)().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        self.sessions.get_mut(asked.session).leases.insert(lease.clone());
        self.lease_due.push_back((now + self.settings.lease_idle, lease.clone()));
        self.leased_names += terms.resources.len();
        self.leases.insert(lease.clone(), terms);
        let mut body = object(json!({ "status": "Data Lease", "port": port.unwrap_or(0), "lease": lease }));
        if port.is_none() {
            body.insert("endpoint".to_owned(), endpoint.into());
        } else if !self.given(socket).starts_with("tcp://") {
            // A port alone means nothing to a client that did not connect by TCP.
            body.insert("endpoint".to_owned(), local(&endpoint).into());
        }
        // A larger message would end its connection without an answer.
        if let Some(most) = self.settings.options.max_message_bytes.filter(|_| !reads) {
            body.insert("max-message-bytes".to_owned(), most.into());
        }
        Ok(Reply { status: 202, body })
    }
}

/// Where a client on this host finds an endpoint that listens on all networks.
fn local(endpoint: &str) -> String {
    endpoint.replacen("://0.0.0.0:", "://127.0.0.1:", 1).replacen("://[::]:", "://[::1]:", 1)
}

/// The port of a TCP endpoint.
fn port(endpoint: &str) -> Option<u16> {
    endpoint.strip_prefix("tcp://")?.rsplit_once(':')?.1.parse().ok()
}
