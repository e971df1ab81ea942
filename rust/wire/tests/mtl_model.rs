//! The queue profile of MTL compared with a model: whatever happens, each content is in exactly one place.
#![allow(clippy::unwrap_used)] // a surprise fails the test

mod mtl;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use mtl::{Bench, CONTROL, EMPTY_TABLE, durable, settings};
use proptest::prelude::*;
use serde_json::json;
use trunkline_wire::mtl::data::{self, Kind};
use trunkline_wire::mtl::server::{
    Bounds, Op, Restored, Server, ServerEvent, ServerSettings, ServerVerb, StoredContent,
};
use trunkline_wire::{Frames, Machine as _, Nanos, Output, SocketKind};

const READERS: u8 = 3;
const WRITERS: u8 = 2;
/// The capacity of a queue.
const MOST: usize = 12;
const MAX_RECYCLE: u32 = 2;
/// The number of the queue that is written to.
const JOBS: u64 = 1;
const TTL: Duration = Duration::from_secs(20);
/// Shorter than the time before a server pings.
const SLICE: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
enum Step {
    Write(u8),
    Join(u8, u64),
    Confirm(u8, u8, bool),
    Reject(u8, u8, bool, bool),
    Dismiss(u8),
    Summon(u8),
    /// A client closes.
    Leave(u8),
    /// A client falls silent.
    Die(u8),
    /// A reader takes the dead letters.
    Bury,
    Pass(u8),
    /// This many batches are stored.
    Store(u8),
    /// The next batch fails.
    Fail,
    /// The server is killed, and starts from what was stored.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let reader = 0..READERS;
    prop_oneof![
        8 => (0..WRITERS).prop_map(Step::Write),
        4 => (reader.clone(), 1u64..5).prop_map(|(reader, window)| Step::Join(reader, window)),
        4 => (reader.clone(), any::<u8>(), any::<bool>()).prop_map(|(reader, at, multiple)| Step::Confirm(reader, at, multiple)),
        4 => (reader.clone(), any::<u8>(), any::<bool>(), any::<bool>()).prop_map(|(reader, at, multiple, recycle)| Step::Reject(reader, at, multiple, recycle)),
        1 => reader.clone().prop_map(Step::Dismiss),
        2 => reader.clone().prop_map(Step::Summon),
        1 => reader.clone().prop_map(Step::Leave),
        1 => reader.prop_map(Step::Die),
        2 => Just(Step::Bury),
        2 => (1u8..20).prop_map(Step::Pass),
        6 => (1u8..5).prop_map(Step::Store),
        2 => Just(Step::Fail),
        1 => Just(Step::Restart),
    ]
}

/// A reader's own view.
#[derive(Debug)]
struct Reader {
    peer: String,
    window: usize,
    unsettled: BTreeMap<u64, u64>,
    last: u64,
    /// The last command.
    sequence: u64,
    is_summoned: bool,
    is_alive: bool,
}

/// The content of the store.
#[derive(Debug, Default)]
struct Store {
    queues: BTreeMap<u64, Vec<u8>>,
    contents: BTreeMap<(u64, u64), StoredContent>,
    /// Places of contents that are gone for good.
    gone: BTreeSet<(u64, u64)>,
}

impl Store {
    fn apply(&mut self, ops: Vec<Op>) {
        for op in ops {
            match op {
                Op::Define { queue, description } => drop(self.queues.insert(queue, description)),
                Op::Delete { queue } => {
                    self.queues.remove(&queue);
                    self.contents.retain(|(of, _), _| *of != queue);
                }
                Op::Put { queue, position, attempts, expires_at_ms, properties, body } => {
                    assert!(!self.gone.contains(&(queue, position)), "what is gone comes back");
                    let content = StoredContent { queue, position, attempts, expires_at_ms, properties, body };
                    self.contents.insert((queue, position), content);
                }
                Op::Attempts { queue, position, attempts } => {
                    if let Some(content) = self.contents.get_mut(&(queue, position)) {
                        content.attempts = attempts;
                    }
                }
                Op::Remove { queue, position } => {
                    self.contents.remove(&(queue, position));
                    self.gone.insert((queue, position));
                }
            }
        }
    }
}

struct World {
    bench: Bench,
    is_durable: bool,
    ttl: Option<Duration>,
    store: Store,
    /// The last batch that was stored or failed.
    fated: u64,
    readers: Vec<Option<Reader>>,
    /// Sequences of writers, and their unanswered contents.
    writers: Vec<(u64, BTreeMap<u64, u64>)>,
    names: u32,
    contents: u64,
    written: BTreeMap<u64, Nanos>,
    /// Contents being stored, with their queues.
    storing: BTreeMap<u64, u64>,
    /// Contents that could not be stored, but are with a reader.
    failed: BTreeSet<u64>,
    /// Queued contents, and how often each was delivered.
    waiting: BTreeSet<u64>,
    delivered: BTreeMap<u64, u32>,
    marked: BTreeSet<u64>,
    accepted: BTreeSet<u64>,
    /// Where contents have ended.
    confirmed: BTreeSet<u64>,
    dead: BTreeSet<u64>,
    /// All contents that were ever dead letters.
    buried: BTreeSet<u64>,
    dropped: BTreeSet<u64>,
}

fn start(is_durable: bool, ttl: Option<Duration>, restored: Restored) -> Bench {
    let base = if is_durable { durable(restored) } else { settings() };
    let mut profiles = base.profiles;
    profiles[1].resources = vec!["jobs".to_owned(), "jobs.dead".to_owned()];
    let bounds = Bounds { max_messages: MOST as u64, ttl, ..Bounds::default() };
    Bench::new(ServerSettings { profiles, bounds, max_recycle: MAX_RECYCLE, ..base })
}

fn id(body: &[u8]) -> u64 {
    std::str::from_utf8(body).unwrap().parse().unwrap()
}

impl World {
    fn new(is_durable: bool, ttl: Option<Duration>) -> Self {
        let mut world = Self {
            bench: start(is_durable, ttl, Restored::default()),
            is_durable,
            ttl,
            store: Store::default(),
            fated: 0,
            readers: (0..READERS).map(|_| None).collect(),
            writers: vec![],
            names: 0,
            contents: 0,
            written: BTreeMap::new(),
            storing: BTreeMap::new(),
            failed: BTreeSet::new(),
            waiting: BTreeSet::new(),
            delivered: BTreeMap::new(),
            marked: BTreeSet::new(),
            accepted: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            dead: BTreeSet::new(),
            buried: BTreeSet::new(),
            dropped: BTreeSet::new(),
        };
        world.settle(usize::MAX);
        world.connect_writers();
        world
    }

    fn connect_writers(&mut self) {
        self.writers = (0..WRITERS).map(|_| (1, BTreeMap::new())).collect();
        for at in 0..WRITERS {
            let peer = Self::writer(at);
            self.bench.writer(&peer, &["jobs"], "full");
        }
    }

    fn writer(at: u8) -> String {
        format!("w{at}")
    }

    fn unsettled(&self) -> usize {
        self.readers.iter().flatten().map(|reader| reader.unsettled.len()).sum()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Write(at) => self.write(at),
            Step::Join(at, window) => self.join(usize::from(at), window),
            Step::Confirm(at, which, multiple) => self.confirm(usize::from(at), which, multiple),
            Step::Reject(at, which, multiple, recycle) => self.reject(usize::from(at), which, multiple, recycle),
            Step::Dismiss(at) => self.turn(usize::from(at), false),
            Step::Summon(at) => self.turn(usize::from(at), true),
            Step::Leave(at) => self.leave(usize::from(at)),
            Step::Die(at) => {
                if let Some(reader) = &mut self.readers[usize::from(at)] {
                    reader.is_alive = false;
                }
            }
            Step::Bury => self.take_the_dead(),
            Step::Pass(slices) => (0..slices).for_each(|_| self.pass()),
            Step::Store(count) => self.settle(count.into()),
            Step::Fail => self.fail(),
            Step::Restart => self.restart(),
        }
        self.absorb();
        self.check();
    }

    fn write(&mut self, at: u8) {
        self.contents += 1;
        let id = self.contents;
        let peer = Self::writer(at);
        let (sequence, open) = &mut self.writers[usize::from(at)];
        *sequence += 1;
        open.insert(*sequence, id);
        let frames = data::content(*sequence, "", &EMPTY_TABLE, Bytes::from(id.to_string()));
        let is_full = self.waiting.len() + self.unsettled() >= MOST;
        self.bench.take(CONTROL, &peer, None, frames);
        self.written.insert(id, self.bench.now);
        if is_full {
            // It is rejected.
            return;
        }
        self.waiting.insert(id);
        if self.is_durable {
            self.storing.insert(id, JOBS);
        }
    }

    fn join(&mut self, at: usize, window: u64) {
        if self.readers[at].is_some() {
            return;
        }
        self.names += 1;
        let peer = format!("r{}", self.names);
        self.bench.reader(&peer, "jobs", "full", window);
        let window = usize::try_from(window).unwrap();
        let (unsettled, last, sequence) = (BTreeMap::new(), 0, 2);
        self.readers[at] = Some(Reader { peer, window, unsettled, last, sequence, is_summoned: true, is_alive: true });
    }

    /// Takes from a reader what this settles, if the reader is alive.
    fn settled(&mut self, at: usize, which: u8, multiple: bool) -> Option<(String, u64, Vec<u64>)> {
        let reader = self.readers[at].as_mut().filter(|reader| reader.is_alive)?;
        let sequences: Vec<_> = reader.unsettled.keys().copied().collect();
        let sequence = *sequences.get(usize::from(which) % sequences.len().max(1))?;
        let all = sequences.into_iter().filter(|other| *other == sequence || multiple && *other < sequence);
        let ids = all.map(|sequence| reader.unsettled.remove(&sequence).unwrap()).collect();
        Some((reader.peer.clone(), sequence, ids))
    }

    fn confirm(&mut self, at: usize, which: u8, multiple: bool) {
        let Some((peer, sequence, ids)) = self.settled(at, which, multiple) else { return };
        self.done(&ids);
        // The second has no effect.
        for _ in 0..2 {
            self.bench.take(CONTROL, &peer, None, data::confirm(sequence, multiple));
        }
    }

    fn reject(&mut self, at: usize, which: u8, multiple: bool, recycle: bool) {
        let Some((peer, sequence, ids)) = self.settled(at, which, multiple) else { return };
        let is_unread = multiple && recycle && !self.readers[at].as_ref().unwrap().is_summoned;
        for id in ids.into_iter().rev() {
            if is_unread {
                *self.delivered.get_mut(&id).unwrap() -= 1;
            }
            if recycle { self.give_back(id) } else { self.bury(id) }
        }
        self.bench.take(CONTROL, &peer, None, data::reject(sequence, multiple, recycle));
    }

    /// Readers have settled these.
    fn done(&mut self, ids: &[u64]) {
        self.confirmed.extend(ids);
        for id in ids {
            self.storing.remove(id);
            self.failed.remove(id);
        }
    }

    fn give_back(&mut self, id: u64) {
        if self.delivered[&id] > MAX_RECYCLE {
            self.bury(id);
        } else if !self.failed.remove(&id) {
            self.marked.insert(id);
            self.waiting.insert(id);
        }
    }

    fn bury(&mut self, id: u64) {
        if self.dead.len() < MOST {
            self.dead.insert(id);
            self.buried.insert(id);
            // It is stored among the dead letters sooner or later, whatever its writer's answer is.
            self.failed.remove(&id);
        } else if !self.failed.remove(&id) {
            self.dropped.insert(id);
            self.storing.remove(&id);
        }
        self.written.insert(id, self.bench.now);
    }

    fn turn(&mut self, at: usize, summon: bool) {
        let Some(reader) = self.readers[at].as_mut().filter(|reader| reader.is_alive) else { return };
        reader.sequence += 1;
        let sequence = reader.sequence;
        let status = if reader.is_summoned == summon { 400 } else { 200 };
        reader.is_summoned = summon;
        let frames = if summon { data::summon(sequence, "jobs") } else { data::dismiss(sequence, "jobs") };
        let peer = reader.peer.clone();
        self.bench.take(CONTROL, &peer, None, frames);
        let said = self.bench.said(&peer);
        assert_eq!(said[0], data::response(sequence, status));
        assert!(summon || said.len() == 1, "nothing comes after a dismissal");
        self.read(at, said.into_iter().skip(1).collect());
    }

    fn leave(&mut self, at: usize) {
        self.turn(at, false);
        let last = self.readers[at].as_ref().map_or(0, |reader| reader.unsettled.len());
        if last > 0 {
            self.reject(at, u8::try_from(last - 1).unwrap(), true, true);
        }
        if let Some(reader) = &mut self.readers[at] {
            reader.is_alive = false;
        }
    }

    fn take_the_dead(&mut self) {
        self.names += 1;
        let peer = format!("d{}", self.names);
        self.bench.reader(&peer, "jobs.dead", "full", 1000);
        let said = self.bench.said(&peer);
        let taken: Vec<_> = said.iter().map(|frames| id(&frames[1])).collect();
        assert_eq!(taken.iter().copied().collect::<BTreeSet<_>>(), std::mem::take(&mut self.dead));
        self.confirmed.extend(&taken);
        self.bench.take(CONTROL, &peer, None, data::confirm(taken.len() as u64, true));
        self.bench.take(CONTROL, &peer, None, data::dismiss(3, "jobs.dead"));
        assert_eq!(self.bench.said(&peer), [data::response(3, 200)]);
    }

    fn pass(&mut self) {
        let readers = self.readers.iter().flatten().filter(|reader| reader.is_alive).map(|reader| reader.peer.clone());
        let writers = (0..WRITERS).map(Self::writer);
        for peer in readers.chain(writers).collect::<Vec<_>>() {
            self.bench.take(CONTROL, &peer, None, data::ping());
        }
        self.bench.pass(SLICE);
        self.absorb();
    }

    /// Stores batches, all at once.
    fn settle(&mut self, count: usize) {
        let mut stored = vec![];
        while stored.len() < count && !self.bench.batches.is_empty() {
            stored.push(self.bench.batches.remove(0));
        }
        let Some(last) = stored.last().map(|batch| batch.number) else { return };
        for batch in stored {
            self.fated += 1;
            assert_eq!(batch.number, self.fated);
            for op in &batch.ops {
                if let Op::Put { queue, body, .. } = op
                    && self.storing.get(&id(body)) == Some(queue)
                {
                    self.storing.remove(&id(body));
                }
            }
            self.store.apply(batch.ops);
        }
        self.bench.verb(ServerVerb::Stored(last));
    }

    fn fail(&mut self) {
        if self.bench.batches.is_empty() {
            return;
        }
        let batch = self.bench.batches.remove(0);
        self.fated += 1;
        for op in &batch.ops {
            if let Op::Put { queue, body, .. } = op
                && self.storing.get(&id(body)) == Some(queue)
            {
                let id = id(body);
                self.storing.remove(&id);
                let is_held =
                    self.readers.iter().flatten().any(|reader| reader.unsettled.values().any(|held| *held == id));
                if !self.waiting.remove(&id) && is_held {
                    self.failed.insert(id);
                }
            }
        }
        self.bench.verb(ServerVerb::Unstored(batch.number, "no space".to_owned()));
    }

    fn restart(&mut self) {
        if !self.is_durable {
            return;
        }
        self.absorb();
        let stored: Vec<_> = self.store.contents.values().map(|content| (content.queue, id(&content.body))).collect();
        let ids: BTreeSet<_> = stored.iter().map(|(_, id)| *id).collect();
        assert_eq!(ids.len(), stored.len(), "each once");
        let ended = |id: &&u64| self.confirmed.contains(id) || self.dropped.contains(id);
        let lost: Vec<_> = self.accepted.iter().filter(|id| !ended(id) && !ids.contains(id)).collect();
        assert!(lost.is_empty(), "{lost:?} were confirmed, and are gone");
        let restored = Restored {
            queues: self.store.queues.clone().into_iter().collect(),
            contents: self.store.contents.values().cloned().collect(),
            was_clean: false,
        };
        let now = self.bench.now;
        self.bench = start(true, self.ttl, restored);
        self.bench.now = now;
        let jobs = *self.store.queues.keys().next().unwrap();
        self.fated = 0;
        self.store.gone.clear();
        self.readers.iter_mut().for_each(|reader| *reader = None);
        self.storing.clear();
        self.failed.clear();
        self.delivered.clear();
        self.waiting = stored.iter().filter(|(queue, _)| *queue == jobs).map(|(_, id)| *id).collect();
        self.dead = stored.iter().filter(|(queue, _)| *queue != jobs).map(|(_, id)| *id).collect();
        // A confirmation that was not stored may be lost, and the content is delivered again.
        for ended in [&mut self.confirmed, &mut self.dropped] {
            ended.retain(|id| !ids.contains(id));
        }
        self.accepted.extend(&ids);
        self.marked = ids;
        self.connect_writers();
    }

    /// Processes all messages sent to peers.
    fn absorb(&mut self) {
        let mut ended = false;
        while let Some(event) = self.bench.events.pop_front() {
            let ServerEvent::LeaseEnded { client, .. } = event else { continue };
            let at = self.readers.iter().position(|reader| {
                reader.as_ref().is_some_and(|reader| client.peer.as_deref() == Some(reader.peer.as_bytes()))
            });
            // A reader of dead letters ends after a while, too.
            let Some(at) = at else { continue };
            let said = self.bench.said(&self.readers[at].as_ref().unwrap().peer.clone());
            self.read(at, said);
            let reader = self.readers[at].take().unwrap();
            assert!(!reader.is_alive);
            for id in reader.unsettled.into_values().rev() {
                self.give_back(id);
            }
            ended = true;
        }
        for at in 0..WRITERS {
            let peer = Self::writer(at);
            for frames in self.bench.said(&peer) {
                self.answered(at, &frames);
            }
        }
        let before: BTreeSet<_> = self.waiting.clone();
        for at in 0..self.readers.len() {
            if let Some(peer) = self.readers[at].as_ref().map(|reader| reader.peer.clone()) {
                let said = self.bench.said(&peer);
                self.read(at, said);
            }
        }
        let (now, ttl) = (self.bench.now, self.ttl);
        let is_late = |id: &u64| ttl.is_some_and(|ttl| self.written[id] + ttl <= now);
        let late: Vec<_> = self.waiting.iter().chain(&self.dead).copied().filter(is_late).collect();
        for id in late {
            self.waiting.remove(&id);
            self.dead.remove(&id);
            self.dropped.insert(id);
        }
        let handed = before.difference(&self.waiting).max();
        if let (Some(handed), Some(next), false) = (handed, self.waiting.first(), ended) {
            assert!(handed < next, "what waits for longer is handed out first");
        }
    }

    fn answered(&mut self, at: u8, frames: &Frames) {
        let layout = data::decode(frames).unwrap();
        let open = &mut self.writers[usize::from(at)].1;
        match layout.kind {
            Kind::Confirm => {
                let covered =
                    open.keys().filter(|open| **open == layout.sequence || layout.multiple && **open < layout.sequence);
                let covered: Vec<_> = covered.copied().collect();
                assert!(!covered.is_empty());
                for sequence in covered {
                    let id = open.remove(&sequence).unwrap();
                    let is_safe = !self.storing.contains_key(&id) && !self.failed.contains(&id);
                    assert!(is_safe, "it is confirmed, and neither stored nor done with");
                    self.accepted.insert(id);
                }
            }
            Kind::Reject => {
                let id = open.remove(&layout.sequence).unwrap();
                let is_held =
                    self.readers.iter().flatten().any(|reader| reader.unsettled.values().any(|held| *held == id));
                assert!(!is_held && !self.waiting.contains(&id), "it is rejected, and there");
                let is_done = self.confirmed.contains(&id) && !self.buried.contains(&id);
                assert!(!is_done, "it is rejected, and done with");
            }
            Kind::Ping | Kind::Pong => {}
            Kind::Lease | Kind::Response | Kind::Summon | Kind::Dismiss | Kind::Content => {
                panic!("a writer is sent {:?}", layout.kind)
            }
        }
    }

    fn read(&mut self, at: usize, said: Vec<Frames>) {
        for frames in said {
            let layout = data::decode(&frames).unwrap();
            if matches!(layout.kind, Kind::Ping | Kind::Pong) {
                continue;
            }
            assert_eq!(layout.kind, Kind::Content);
            let id = id(&frames[1]);
            let is_marked = frames[0].windows(11).any(|some| some == b"redelivered");
            assert!(self.waiting.remove(&id), "{id} is not there to be handed out");
            assert_eq!(is_marked, self.marked.contains(&id));
            *self.delivered.entry(id).or_default() += 1;
            let reader = self.readers[at].as_mut().unwrap();
            assert!(reader.is_summoned, "it was not asked for");
            reader.last += 1;
            assert_eq!(layout.sequence, reader.last);
            let is_rising = reader.unsettled.values().last().is_none_or(|last| *last < id);
            assert!(is_rising || is_marked, "order is lost");
            reader.unsettled.insert(layout.sequence, id);
            assert!(reader.unsettled.len() <= reader.window, "more than its window");
        }
    }

    fn check(&mut self) {
        let has_room = |reader: &Reader| reader.is_summoned && reader.unsettled.len() < reader.window;
        if self.readers.iter().flatten().any(has_room) {
            assert!(self.waiting.is_empty(), "{:?} wait, and somebody has room", self.waiting);
        }
        let jobs = self.bench.info("jobs");
        let said = |name: &str| usize::try_from(jobs[name].as_u64().unwrap()).unwrap();
        assert_eq!(said("messages"), self.waiting.len());
        assert_eq!(said("unconfirmed"), self.unsettled());
        assert_eq!(said("readers"), self.readers.iter().flatten().filter(|reader| reader.is_summoned).count());
        assert_eq!(said("writers"), usize::from(WRITERS));
        assert_eq!(self.bench.info("jobs.dead")["messages"], json!(self.dead.len()));
        // Each content confirmed to its writer is in one place.
        for id in &self.accepted {
            let unsettled = self.readers.iter().flatten().flat_map(|reader| reader.unsettled.values());
            let places = unsettled.filter(|held| *held == id).count()
                + [&self.waiting, &self.confirmed, &self.dead, &self.dropped]
                    .iter()
                    .filter(|place| place.contains(id))
                    .count();
            assert_eq!(places, 1, "{id}");
        }
    }

    /// Once readers take everything, all contents have arrived.
    fn end(&mut self) {
        for at in 0..READERS {
            self.step(Step::Leave(at));
        }
        self.settle(usize::MAX);
        for _ in 0..30 {
            self.step(Step::Pass(1));
            self.settle(usize::MAX);
        }
        self.absorb();
        self.join(0, 1000);
        self.absorb();
        assert!(self.waiting.is_empty() && self.storing.is_empty() && self.failed.is_empty());
        let held: Vec<_> = self.readers[0].as_ref().unwrap().unsettled.values().copied().collect();
        assert!(held.is_sorted());
        for (_, open) in &self.writers {
            assert!(open.is_empty(), "{open:?} have no answer");
        }
        self.confirm(0, u8::try_from(held.len().max(1) - 1).unwrap(), true);
        self.step(Step::Pass(1));
        self.settle(usize::MAX);
        if self.is_durable {
            assert_eq!(self.store.contents.len(), self.dead.len(), "only dead letters are left");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    // req: MTL-03, MTL-38, MTL-42, MTL-44, MTL-48, MTL-51, MTL-52, MTL-53, MTL-54, MTL-55, MTL-58
    #[test]
    fn each_content_is_in_one_place(steps in prop::collection::vec(step(), 0..120), expires: bool) {
        let mut world = World::new(false, expires.then_some(TTL));
        for step in steps {
            world.step(step);
        }
        world.end();
    }

    // req: MTL-51, MTL-53, MTL-54, MTL-58
    #[test]
    fn what_was_confirmed_survives_failures_and_restarts(steps in prop::collection::vec(step(), 0..120)) {
        let mut world = World::new(true, None);
        for step in steps {
            world.step(step);
        }
        world.end();
    }
}

// req: MTL-04
#[test]
fn servers_listen_with_routers() {
    let mut server = Server::new(ServerSettings { data_bind: vec!["tcp://127.0.0.1:*".to_owned()], ..settings() });
    for _ in 0..2 {
        let Some(Output::Open(open)) = server.poll_output() else { panic!("it opens its sockets first") };
        assert_eq!(open.kind, SocketKind::Router);
    }
}
