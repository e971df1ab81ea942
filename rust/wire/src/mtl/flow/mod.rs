//! A client's data connection: redeems a lease, sends or receives contents, and requests a new lease when the
//! connection is lost (MTL-30 … MTL-61).

mod settings;
mod writing;

pub use self::settings::{Asked, Denial, FlowEvent, FlowOutcome, FlowSettings, FlowSocket, FlowStats, FlowVerb, Grant};

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use self::writing::{Mine, Writing};
use super::data::{self, Kind, Layout};
use super::heartbeat::{Beat, Heartbeat};
use super::redacted;
use super::retries::Retries;
use crate::question::Questions;
use crate::{
    Backlog, CallId, Calling, DropKind, DropReason, Dropped, Frames, Incoming, Label, Lifecycle, Machine, Nanos, Open,
    Origin, Output, SendId, SocketEvent, SocketKind, SocketOptions, Verdict,
};

/// How long the request for a new lease may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How many messages the transport is offered at a time.
const BATCH: usize = 64;

/// How many ordinals of rejected contents are kept: as many as the largest window may have had.
const REJECTS: usize = 100_000;

/// How long a closing reader waits for contents in flight.
const FAREWELL: Duration = Duration::from_secs(1);

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// The lease was redeemed; the answer is due at this time.
    Showing(Nanos),
    /// The lease is accepted.
    Up,
    /// A new lease is requested at this time.
    Away(Nanos),
    /// A new lease was requested.
    Asking,
    /// There will be no new lease.
    Failed,
}

/// A pending call.
#[derive(Debug)]
struct Call {
    asked: Asked,
    until: Nanos,
}

/// What a command in flight is about.
#[derive(Debug)]
enum Sent {
    Lease,
    Summon(String, Option<CallId>),
    Dismiss(Option<CallId>),
}

impl Sent {
    /// Whether it is sent by a closing reader.
    fn is_farewell(&self) -> bool {
        matches!(self, Self::Dismiss(None))
    }
}

/// A client's data connection.
#[derive(Debug)]
pub struct Flow {
    settings: FlowSettings,
    /// The only resource of the lease.
    only: Option<Arc<str>>,
    state: Lifecycle,
    link: Link,
    grant: Grant,
    /// The number of the connection.
    connection: u32,
    retries: Retries,
    heartbeat: Heartbeat,
    is_pressed: bool,
    questions: Questions<()>,
    /// The last sequence used (MTL-61).
    sequence: u64,
    commands: HashMap<u64, Sent>,
    calls: BTreeMap<CallId, Call>,
    /// What is summoned, or will be once there is a lease: then with the pending call.
    summoned: BTreeMap<String, Option<CallId>>,
    /// Contents received, but neither confirmed nor rejected.
    unsettled: BTreeSet<u64>,
    /// The last content received.
    last: u64,
    /// Contents to confirm.
    to_confirm: BTreeSet<u64>,
    /// Of a closing reader, the connection and the sequence of the last content that its user has taken.
    seen: Option<(u32, u64)>,
    /// When a closing reader ends at the latest.
    farewell: Nanos,
    writing: Writing,
    /// Commands to send, before any content.
    outgoing: VecDeque<Frames>,
    /// What the transport has neither taken nor refused: whether each is a content.
    offered: VecDeque<bool>,
    stats: FlowStats,
    outputs: VecDeque<Output<FlowSocket>>,
    events: VecDeque<FlowEvent>,
}

impl Flow {
    /// A data connection that redeems its lease at once.
    pub fn new(now: Nanos, settings: FlowSettings) -> Self {
        let mut flow = Self {
            heartbeat: Heartbeat::new(now, settings.pings),
            writing: Writing::new(settings.is_confirmed),
            grant: settings.grant.clone(),
            only: settings.resources.first().filter(|_| settings.resources.len() == 1).map(|only| only.as_str().into()),
            settings,
            state: Lifecycle::Open,
            link: Link::Asking,
            connection: 0,
            retries: Retries::default(),
            is_pressed: false,
            questions: Questions::new(1, PATIENCE),
            sequence: 0,
            commands: HashMap::new(),
            calls: BTreeMap::new(),
            summoned: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            last: 0,
            to_confirm: BTreeSet::new(),
            seen: None,
            farewell: Nanos(0),
            outgoing: VecDeque::new(),
            offered: VecDeque::new(),
            stats: FlowStats::default(),
            outputs: VecDeque::new(),
            events: VecDeque::new(),
        };
        flow.show(now);
        flow
    }

    fn socket(&self) -> FlowSocket {
        FlowSocket(self.connection)
    }

    fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    fn command(&mut self, what: Sent, frames: impl FnOnce(u64) -> Frames) {
        let sequence = self.next();
        self.commands.insert(sequence, what);
        self.outgoing.push_back(frames(sequence));
    }

    /// Connects, and redeems the lease first (MTL-34).
    fn show(&mut self, now: Nanos) {
        self.outputs.push_back(Output::Open(Box::new(Open {
            socket: self.socket(),
            kind: SocketKind::Dealer,
            bind: vec![],
            connect: vec![self.grant.endpoint.clone()],
            options: SocketOptions { immediate: true, ..self.settings.options.clone() },
        })));
        self.link = Link::Showing(now + self.settings.timeout);
        self.heartbeat = Heartbeat::new(now, self.settings.pings);
        let lease = self.grant.lease.clone();
        self.command(Sent::Lease, |sequence| data::lease(sequence, &lease));
    }

    /// Drops the connection, and gets another (MTL-58).
    fn lose(&mut self, now: Nanos) {
        if !matches!(self.link, Link::Showing(_) | Link::Up) {
            return;
        }
        if self.link == Link::Up {
            self.events.push_back(FlowEvent::Lost);
            self.stats.reconnects += 1;
        }
        self.outputs.push_back(Output::Close { socket: self.socket(), linger: Duration::ZERO });
        self.connection = self.connection.wrapping_add(1);
        self.stay_away(now);
        self.stats.at_risk += self.writing.lose();
        self.outgoing.clear();
        self.offered.clear();
        self.unsettled.clear();
        self.to_confirm.clear();
        self.last = 0;
        for (_, sent) in std::mem::take(&mut self.commands) {
            match sent {
                Sent::Lease => {}
                // It is sent again, unless the resource was dismissed since.
                Sent::Summon(resource, call) => match self.summoned.get_mut(&resource) {
                    Some(waiting) => *waiting = call.or(*waiting),
                    None => self.end(call, FlowOutcome::Done),
                },
                // A new connection has nothing summoned.
                Sent::Dismiss(call) => self.end(call, FlowOutcome::Done),
            }
        }
    }

    /// Requests a new lease after a delay, longer each time.
    fn stay_away(&mut self, now: Nanos) {
        self.link = Link::Away(now + self.retries.wait());
    }

    fn want(&mut self, now: Nanos) {
        if let Ok(token) = self.questions.ask(now, ()) {
            self.link = Link::Asking;
            self.events.push_back(FlowEvent::Wanted(token));
        }
    }

    /// Ends for good.
    fn fail(&mut self, reason: &str) {
        if matches!(self.link, Link::Showing(_) | Link::Up) {
            self.outputs.push_back(Output::Close { socket: self.socket(), linger: Duration::ZERO });
            self.connection = self.connection.wrapping_add(1);
        }
        self.link = Link::Failed;
        for call in std::mem::take(&mut self.calls).into_keys() {
            self.events.push_back(FlowEvent::Ended(call, FlowOutcome::Lost(reason.to_owned())));
        }
        self.events.push_back(FlowEvent::Failed(reason.to_owned()));
    }

    fn end(&mut self, call: Option<CallId>, outcome: FlowOutcome) {
        if let Some(call) = call.filter(|call| self.calls.remove(call).is_some()) {
            self.events.push_back(FlowEvent::Ended(call, outcome));
        }
    }

    fn on_response(&mut self, now: Nanos, sequence: u64, status: u16) {
        if status == 403 && self.needs_lease(sequence) {
            // The server has ended our lease.
            return self.lose(now);
        }
        let is_good = status == 200;
        let outcome = if is_good { FlowOutcome::Done } else { FlowOutcome::Refused(status) };
        match self.commands.remove(&sequence) {
            Some(Sent::Lease) if is_good => self.on_leased(),
            Some(Sent::Lease) => self.on_refused(now, status),
            Some(Sent::Summon(resource, call)) => {
                if !is_good {
                    self.summoned.remove(&resource);
                    if call.is_none_or(|call| !self.calls.contains_key(&call)) {
                        self.events.push_back(FlowEvent::Refused { resource, status });
                    }
                }
                self.end(call, outcome);
            }
            // Refused or not: the server does not have it summoned, and it may be summoned again.
            Some(Sent::Dismiss(call)) => self.end(call, outcome),
            None => {
                // It is about a content.
                let refused = self.writing.settle(now, sequence, false);
                self.rejected(refused);
            }
        }
    }

    /// Whether a 403 to this means that the lease has ended: with a valid lease, it answers nothing that this sequence
    /// may be.
    fn needs_lease(&self, sequence: u64) -> bool {
        match self.commands.get(&sequence) {
            Some(Sent::Summon(..) | Sent::Dismiss(..)) => true,
            Some(Sent::Lease) => false,
            // Of a confirmed connection, contents are refused by a Reject.
            None => sequence == 0 || self.writing.is_unconfirmed(sequence),
        }
    }

    /// Keeps the ordinals of rejected contents.
    fn rejected(&mut self, ordinals: Vec<u64>) {
        if ordinals.is_empty() {
            return;
        }
        self.stats.rejected += ordinals.len() as u64;
        self.events.push_back(FlowEvent::Rejected(ordinals.len() as u64));
        // Copied only while a snapshot of the counters is held.
        let rejects = Arc::make_mut(&mut self.stats.rejects);
        rejects.extend(ordinals);
        let excess = rejects.len().saturating_sub(REJECTS);
        rejects.drain(..excess);
    }

    fn on_leased(&mut self) {
        let is_first = self.retries.is_none();
        self.link = Link::Up;
        if !is_first {
            self.events.push_back(FlowEvent::Found);
        }
        let opened: Vec<_> =
            self.calls.iter().filter(|(_, call)| call.asked == Asked::Open).map(|(id, _)| *id).collect();
        for call in opened {
            self.end(Some(call), FlowOutcome::Done);
        }
        for (resource, call) in self.summoned.clone() {
            self.summon(&resource, call);
        }
    }

    fn summon(&mut self, resource: &str, call: Option<CallId>) {
        self.command(Sent::Summon(resource.to_owned(), call), |sequence| data::summon(sequence, resource));
    }

    fn on_refused(&mut self, now: Nanos, status: u16) {
        let opening: Vec<_> =
            self.calls.iter().filter(|(_, call)| call.asked == Asked::Open).map(|(id, _)| *id).collect();
        for call in opening {
            self.end(Some(call), FlowOutcome::Refused(status));
        }
        self.lose(now);
    }

    fn on_content(&mut self, frames: Frames, layout: Layout) {
        self.stats.contents += 1;
        self.last = layout.sequence;
        if self.settings.is_confirmed {
            self.unsettled.insert(layout.sequence);
        }
        let only = self.only.clone();
        self.events.push_back(FlowEvent::Content { connection: self.connection, frames, layout, only });
    }

    fn ask(&mut self, now: Nanos, call: CallId, asked: Asked, resource: &str, timeout: Option<Duration>) {
        if let Link::Failed = self.link {
            let lost = FlowOutcome::Lost("the lease has ended, and no new one was granted".to_owned());
            return self.events.push_back(FlowEvent::Ended(call, lost));
        }
        let is_summoned = self.summoned.contains_key(resource);
        let forbidden = match asked {
            Asked::Summon | Asked::Dismiss if !self.settings.reads => {
                Some("a writer cannot summon or dismiss resources")
            }
            Asked::Summon | Asked::Dismiss if !self.covers(resource) => Some("the resource is not leased"),
            Asked::Summon if is_summoned => Some("the resource is already summoned"),
            Asked::Dismiss if !is_summoned => Some("the resource is not summoned"),
            Asked::Open | Asked::Summon | Asked::Dismiss => None,
        };
        if let Some(reason) = forbidden {
            return self.events.push_back(FlowEvent::Ended(call, FlowOutcome::Forbidden(reason)));
        }
        self.calls.insert(call, Call { asked, until: now + timeout.unwrap_or(self.settings.timeout) });
        let is_up = self.link == Link::Up;
        match asked {
            Asked::Open if is_up => self.end(Some(call), FlowOutcome::Done),
            Asked::Open => {}
            Asked::Summon => {
                self.summoned.insert(resource.to_owned(), Some(call).filter(|_| !is_up));
                if is_up {
                    self.summon(resource, Some(call));
                }
            }
            Asked::Dismiss if is_up => {
                self.summoned.remove(resource);
                self.command(Sent::Dismiss(Some(call)), |sequence| data::dismiss(sequence, resource));
            }
            Asked::Dismiss => {
                self.summoned.remove(resource);
                self.end(Some(call), FlowOutcome::Done);
            }
        }
    }

    fn covers(&self, resource: &str) -> bool {
        self.settings.resources.is_empty() || self.settings.resources.iter().any(|leased| leased == resource)
    }

    /// Sends confirmations: one for all up to the last, if every earlier content is settled.
    fn confirm(&mut self) {
        let Some(&last) = self.to_confirm.last() else { return };
        if self.unsettled.first().is_none_or(|first| *first > last) {
            self.outgoing.push_back(data::confirm(last, self.to_confirm.len() > 1));
        } else {
            let first = self.unsettled.first().copied().unwrap_or_default();
            let later = self.to_confirm.split_off(&first);
            if let Some(last) = self.to_confirm.last() {
                self.outgoing.push_back(data::confirm(*last, self.to_confirm.len() > 1));
            }
            self.outgoing.extend(later.into_iter().map(|sequence| data::confirm(sequence, false)));
        }
        self.to_confirm.clear();
    }

    /// Takes out the contents that a confirmation or rejection covers.
    fn settled(&mut self, connection: u32, sequence: u64, multiple: bool) -> Vec<u64> {
        if connection != self.connection {
            // It was returned to its resource, and is delivered again.
            return vec![];
        }
        if !multiple {
            return self.unsettled.take(&sequence).into_iter().collect();
        }
        let later = sequence.checked_add(1).map(|next| self.unsettled.split_off(&next)).unwrap_or_default();
        std::mem::replace(&mut self.unsettled, later).into_iter().collect()
    }

    /// The row of a message names its resource.
    fn label_of(&self, frames: &[Bytes], layout: &Layout) -> Label {
        let is_named = matches!(layout.kind, Kind::Summon | Kind::Dismiss | Kind::Content);
        let topic = match &self.only {
            _ if is_named && !layout.name.is_empty() => Some(frames[0].slice(layout.name.clone())),
            Some(only) if layout.kind == Kind::Content => Some(Bytes::copy_from_slice(only.as_bytes())),
            Some(_) | None => None,
        };
        Label { framing: None, topic }
    }

    fn drop(&mut self, reason: DropReason, frames: Frames) {
        let dropped = Dropped::new(reason, Origin::default(), frames);
        dropped.count(&mut self.stats.dropped);
        self.events.push_back(FlowEvent::Dropped(dropped));
    }

    /// Dismisses everything: contents in flight arrive before the answers, and can then be returned.
    fn take_leave(&mut self, now: Nanos) {
        self.farewell = now + FAREWELL;
        if self.link == Link::Up {
            for resource in std::mem::take(&mut self.summoned).into_keys() {
                self.command(Sent::Dismiss(None), |sequence| data::dismiss(sequence, &resource));
            }
        }
        // One by one: contents returned by one message count as never looked at.
        self.confirm();
        let seen = self.seen.map(|(connection, sequence)| self.settled(connection, sequence, true)).unwrap_or_default();
        self.outgoing.extend(seen.into_iter().map(|sequence| data::reject(sequence, false, true)));
    }

    fn is_leaving(&self) -> bool {
        self.commands.values().any(Sent::is_farewell)
    }

    fn is_done(&self) -> bool {
        self.calls.is_empty() && (self.writing.is_idle() || self.link == Link::Failed) && !self.is_leaving()
    }

    /// Pings, if a flush waits to know whether unconfirmed contents have arrived.
    fn ping_after_last(&mut self) {
        if self.link == Link::Up && self.writing.wants_ping() {
            self.writing.asked();
            self.outgoing.push_back(data::ping());
        }
    }

    fn close_if_done(&mut self, now: Nanos) {
        self.ping_after_last();
        let is_done = self.is_done();
        let Some(linger) = self.state.close(now, is_done) else { return };
        for call in std::mem::take(&mut self.calls).into_keys() {
            self.events.push_back(FlowEvent::Ended(call, FlowOutcome::Unanswered));
        }
        self.stats.at_risk += self.writing.unproved();
        if !matches!(self.link, Link::Showing(_) | Link::Up) {
            self.state = Lifecycle::Closed;
            return;
        }
        if self.link == Link::Up && self.settings.reads {
            // Unsettled contents are returned at once, rather than when the server notices our silence.
            self.confirm();
            self.outgoing.extend(self.unsettled.last().map(|last| data::reject(*last, true, true)));
        }
        let socket = self.socket();
        for frames in std::mem::take(&mut self.outgoing) {
            self.outputs.push_back(Output::Send { id: None, socket, to: None, frames: frames.into(), until: None });
        }
        self.outputs.push_back(Output::Close { socket, linger });
    }
}

impl Machine for Flow {
    type Socket = FlowSocket;
    type Event = FlowEvent;
    type Verb = FlowVerb;
    type Stats = FlowStats;

    fn handle_message(&mut self, now: Nanos, incoming: Incoming<FlowSocket>) -> Verdict {
        let Incoming { socket, frames, .. } = incoming;
        self.stats.received += 1;
        self.stats.bytes += crate::nbytes(&frames);
        if socket != self.socket() {
            return Verdict::default();
        }
        self.heartbeat.heard();
        let layout = match data::decode(&frames) {
            Ok(layout) => layout,
            Err(error) => {
                self.drop(error.into(), frames);
                return error.kind.into();
            }
        };
        let label = self.label_of(&frames, &layout);
        if self.link == Link::Up && layout.status != 403 {
            // Reset only now: otherwise a lease that is accepted and ended again would be requested without a pause.
            self.retries = Retries::default();
        }
        match layout.kind {
            Kind::Response => self.on_response(now, layout.sequence, layout.status),
            Kind::Content if self.settings.reads => self.on_content(frames, layout),
            Kind::Confirm | Kind::Reject if !self.settings.reads && self.settings.is_confirmed => {
                let settled = self.writing.settle(now, layout.sequence, layout.multiple);
                if layout.kind == Kind::Confirm {
                    self.stats.confirmed += settled.len() as u64;
                } else {
                    self.rejected(settled);
                }
            }
            Kind::Ping => self.outgoing.push_back(data::pong()),
            Kind::Pong => self.writing.proved(),
            Kind::Lease | Kind::Summon | Kind::Dismiss | Kind::Content | Kind::Confirm | Kind::Reject => {
                self.drop(DropKind::UnexpectedVerb.into(), frames);
            }
        }
        self.close_if_done(now);
        Verdict { error: None, label }
    }

    fn handle_socket(&mut self, now: Nanos, socket: FlowSocket, event: SocketEvent) {
        self.events.extend(event.connection().map(FlowEvent::Connection));
        let is_ours = socket == self.socket();
        match event {
            SocketEvent::Disconnected(_) if is_ours && !self.state.is_closing() => self.lose(now),
            SocketEvent::Sent(id) if is_ours && u64::from(self.connection) == id.0 => {
                self.heartbeat.spoke(now);
                self.stats.sent += 1;
                if self.offered.pop_front() == Some(true) {
                    self.writing.sent();
                }
            }
            SocketEvent::Unsent(id, _) if is_ours && u64::from(self.connection) == id.0 => {
                if !self.state.is_closing() {
                    self.lose(now);
                }
            }
            SocketEvent::Closed if is_ours && self.state.is_closing() => self.state = Lifecycle::Closed,
            SocketEvent::Bound(_)
            | SocketEvent::OpenFailed { .. }
            | SocketEvent::Connected(_)
            | SocketEvent::Disconnected(_)
            | SocketEvent::HandshakeFailed { .. }
            | SocketEvent::Server(_)
            | SocketEvent::Unreachable { .. }
            | SocketEvent::Sent(_)
            | SocketEvent::Unsent(..)
            | SocketEvent::Closed => {}
        }
        self.close_if_done(now);
    }

    fn handle_timeout(&mut self, now: Nanos) {
        let late: Vec<_> = self.calls.iter().filter(|(_, call)| call.until <= now).map(|(id, _)| *id).collect();
        for call in late {
            self.end(Some(call), FlowOutcome::TimedOut);
        }
        if self.farewell <= now {
            self.commands.retain(|_, sent| !sent.is_farewell());
        }
        while self.questions.expired(now).is_some() {
            self.link = Link::Away(now);
        }
        match self.link {
            Link::Showing(until) if until <= now => self.lose(now),
            Link::Away(until) if until <= now => self.want(now),
            Link::Up => {
                if self.is_pressed {
                    // While we do not read, silence means nothing.
                    self.heartbeat.heard();
                }
                match self.heartbeat.beat(now) {
                    Beat::Nothing => {}
                    Beat::Ping => {
                        self.writing.asked();
                        self.outgoing.push_back(data::ping());
                    }
                    Beat::Dead => self.lose(now),
                }
            }
            Link::Showing(_) | Link::Away(_) | Link::Asking | Link::Failed => {}
        }
        self.close_if_done(now);
    }

    fn handle_verb(&mut self, now: Nanos, verb: FlowVerb) {
        match verb {
            FlowVerb::Call { call, .. } if !self.state.is_open() => {
                self.events.push_back(FlowEvent::Ended(call, FlowOutcome::Unanswered));
            }
            FlowVerb::Call { call, asked, resource, timeout } => self.ask(now, call, asked, &resource, timeout),
            FlowVerb::Cancel(call) => {
                self.calls.remove(&call);
            }
            FlowVerb::Send { resource, properties, body } => {
                if self.state.is_open() {
                    self.stats.contents += 1;
                    self.writing.push(now, resource, properties, body);
                }
            }
            FlowVerb::Flush => self.writing.flush(),
            FlowVerb::Confirm { connection, sequence, multiple } => {
                let settled = self.settled(connection, sequence, multiple);
                self.stats.confirmed += settled.len() as u64;
                self.to_confirm.extend(settled);
            }
            FlowVerb::Reject { connection, sequence, multiple, recycle } => {
                let settled = self.settled(connection, sequence, multiple);
                self.stats.rejected += settled.len() as u64;
                // The server must not take confirmed contents for rejected, nor the reverse.
                self.confirm();
                let rejected = settled.into_iter().map(|sequence| data::reject(sequence, false, recycle));
                self.outgoing.extend(rejected);
            }
            FlowVerb::Seen { connection, sequence } => self.seen = Some((connection, sequence)),
            FlowVerb::Granted(token, grant) => {
                if self.questions.answered(token).is_some() && self.link == Link::Asking && !self.state.is_closing() {
                    self.grant = grant;
                    self.show(now);
                }
            }
            FlowVerb::Denied(token, denial) => {
                if self.questions.answered(token).is_some() && self.link == Link::Asking {
                    match denial {
                        Denial::Later => self.stay_away(now),
                        Denial::Never(reason) => self.fail(&reason),
                    }
                }
            }
        }
        self.close_if_done(now);
    }

    /// Waits at most `grace` until sent contents are settled, and closes.
    fn handle_close(&mut self, now: Nanos, grace: Duration) {
        if self.state.drain(now, grace) {
            // A refusal is reported before the end, always.
            self.writing.flush();
            self.take_leave(now);
        }
        self.close_if_done(now);
    }

    fn handle_pressure(&mut self, _now: Nanos, pressed: bool) {
        self.is_pressed = pressed;
    }

    fn poll_output(&mut self) -> Option<Output<FlowSocket>> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if self.state.is_closing() || !matches!(self.link, Link::Showing(_) | Link::Up) || self.offered.len() >= BATCH {
            return None;
        }
        if self.link == Link::Up {
            self.confirm();
        }
        let (frames, is_content) = match self.outgoing.pop_front() {
            Some(frames) => (frames, false),
            None if self.link == Link::Up => {
                let sequence = self.sequence + 1;
                let Mine { resource, properties, body, .. } = self.writing.take(self.settings.window, sequence)?;
                let frames = data::content(sequence, resource, properties, body.clone());
                self.sequence = sequence;
                (frames, true)
            }
            None => return None,
        };
        self.offered.push_back(is_content);
        let id = Some(SendId(self.connection.into()));
        Some(Output::Send { id, socket: self.socket(), to: None, frames: frames.into(), until: None })
    }

    fn label(&self, _socket: FlowSocket, _to: Option<&Bytes>, frames: &[Bytes]) -> Label {
        data::decode(frames).map_or_else(|_| Label::default(), |layout| self.label_of(frames, &layout))
    }

    fn shown(&self, _socket: FlowSocket, frames: &[Bytes]) -> Option<Frames> {
        if self.settings.shows_secrets { None } else { redacted(frames) }
    }

    fn poll_event(&mut self) -> Option<FlowEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.state.is_closing() {
            return None;
        }
        let link = match self.link {
            Link::Showing(until) | Link::Away(until) => Some(until),
            Link::Up => Some(self.heartbeat.due()),
            Link::Asking => self.questions.poll_timeout(),
            Link::Failed => None,
        };
        let calls = self.calls.values().map(|call| call.until).min();
        let farewell = Some(self.farewell).filter(|_| self.is_leaving());
        [link, calls, farewell, self.state.poll_timeout()].into_iter().flatten().min()
    }

    fn backlog(&self) -> Backlog {
        self.writing.backlog()
    }

    fn progress(&self) -> u64 {
        self.stats.contents
    }

    fn stats(&self) -> FlowStats {
        let unconfirmed = if self.settings.reads { self.unsettled.len() } else { self.writing.backlog().messages };
        FlowStats {
            unconfirmed: unconfirmed as u64,
            latency: self.writing.latency.clone(),
            times: Arc::clone(&self.writing.times),
            ..self.stats.clone()
        }
    }

    fn is_closed(&self) -> bool {
        self.state.is_closed()
    }
}

impl Calling for Flow {
    type Outcome = FlowOutcome;

    fn outcome(event: FlowEvent) -> Result<(CallId, FlowOutcome), FlowEvent> {
        match event {
            FlowEvent::Ended(call, outcome) => Ok((call, outcome)),
            FlowEvent::Wanted(_)
            | FlowEvent::Content { .. }
            | FlowEvent::Refused { .. }
            | FlowEvent::Rejected(_)
            | FlowEvent::Failed(_)
            | FlowEvent::Lost
            | FlowEvent::Found
            | FlowEvent::Dropped(_)
            | FlowEvent::Connection(_) => Err(event),
        }
    }

    fn unanswered() -> FlowOutcome {
        FlowOutcome::Unanswered
    }

    fn cost(_: &FlowOutcome) -> usize {
        0
    }
}
