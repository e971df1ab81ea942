//! Runs: what was received of each sender from one BOR to the next (CDTP-21).

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::ops::BitOr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::decode::is_map;
use super::{Accept, Head, Layout, MessageType, Settings, decode_header};
use crate::{
    ErrorKind,
    msgpack::{Reader, Value},
};

/// Senders to follow at a time; names come from the network, so that memory must have a bound.
pub const SENDERS: usize = 1000;

/// The longest name of a sender to follow, and the longest id of a run to keep.
const NAME_BYTES: usize = 1024;

/// What a run takes beside its sender's name and its maps, in memory and stored: an estimate.
const RUN_COST: usize = 512;

/// Gaps of a run to keep, to distinguish late messages from duplicates.
const GAPS: usize = 1024;

/// The map of a BOR or EOR is kept unless its message is larger.
pub const MAP_BYTES: u64 = 64 << 10;

/// How long a sender may be silent before its run counts as over without an EOR.
const SILENCE_NS: i64 = 600_000_000_000;

/// What is said of a run in place of its condition while it goes on.
const IN_PROGRESS: &str = "IN_PROGRESS";

/// The condition of a run, in Constellation's terms: any of these flags, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Condition(u8);

impl Condition {
    /// No flag.
    pub const GOOD: Self = Self(0);
    /// The sender marks its data as unreliable.
    pub const TAINTED: Self = Self(0x01);
    /// Messages are missing, or came outside BOR and EOR.
    pub const INCOMPLETE: Self = Self(0x02);
    /// The sender was interrupted.
    pub const INTERRUPTED: Self = Self(0x04);
    /// There is no EOR.
    pub const ABORTED: Self = Self(0x08);
    /// Parts of the sender did not take part.
    pub const DEGRADED: Self = Self(0x10);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::TAINTED, "TAINTED"),
        (Self::INCOMPLETE, "INCOMPLETE"),
        (Self::INTERRUPTED, "INTERRUPTED"),
        (Self::ABORTED, "ABORTED"),
        (Self::DEGRADED, "DEGRADED"),
    ];

    /// The condition's number, without unknown flags.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The condition of this number; unknown flags are dropped.
    pub const fn from_code(code: i64) -> Self {
        Self(code.to_le_bytes()[0] & 0x1f)
    }

    /// Names separated by bars; unknown ones are skipped.
    fn from_names(text: &str) -> Self {
        let flag = |name: &str| Self::NAMES.iter().find(|(_, known)| *known == name);
        let found = text.split('|').filter_map(|name| flag(name.trim_matches(' ')));
        found.fold(Self::GOOD, |all, (flag, _)| all | *flag)
    }
}

impl BitOr for Condition {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.iter().filter(|(flag, _)| self.0 & flag.0 != 0).map(|(_, name)| *name);
        f.write_str(names.next().unwrap_or("GOOD"))?;
        names.try_for_each(|name| write!(f, "|{name}"))
    }
}

/// Follows the numbers of one run: `missed += seq − 1 − last`, where `last` is the highest so far. A late number does
/// not reduce it. The EOR has the number of the last DAT or the one after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Follower {
    last: Option<u64>,
}

impl Follower {
    /// A follower at the start.
    pub const fn new() -> Self {
        Self { last: None }
    }

    /// Follows the next message. Returns how many numbers before it were skipped.
    pub fn follow(&mut self, message_type: MessageType, sequence: u64) -> u64 {
        if message_type == MessageType::Bor {
            self.last = Some(sequence);
            return 0;
        }
        let missed = self.last.map_or(0, |last| sequence.saturating_sub(last).saturating_sub(1));
        self.last = self.last.max(Some(sequence));
        missed
    }
}

/// The sequence numbers of a message. The two records of a CDTP2 BOR or EOR have numbers too: the first one counts.
pub(super) fn numbers(layout: &Layout) -> impl Iterator<Item = (MessageType, u64)> {
    let (single, records) = match layout {
        Layout::Single(Head { message_type, sequence, .. }) => (message_type.zip(*sequence), None),
        Layout::Batch(batch) => {
            let counted = if batch.message_type == MessageType::Dat { batch.records.len() } else { 1 };
            (None, Some(batch.records.iter().take(counted).map(|record| (batch.message_type, record.sequence))))
        }
    };
    single.into_iter().chain(records.into_iter().flatten())
}

/// The largest number that runs can order.
const LAST: u64 = i64::MAX.cast_unsigned();

/// A row of a capture, as far as runs need it.
#[derive(Clone, Copy, Debug)]
pub struct RunRow<'a> {
    /// The segment it is in.
    pub segment: u64,
    /// Its number in the capture.
    pub seq: u64,
    /// When it was received.
    pub received_at_ns: i64,
    /// The bytes of all its frames.
    pub n_bytes: u64,
    /// How many frames it has.
    pub n_frames: usize,
    /// The first frame.
    pub header: &'a [u8],
    /// The second one.
    pub payload: Option<&'a [u8]>,
}

/// A message of a variant with runs, as far as they need it.
#[derive(Clone, Copy, Debug)]
pub struct RunMessage<'a> {
    /// The segment its row is in.
    pub segment: u64,
    /// The number of its row.
    pub seq: u64,
    /// When it was received.
    pub received_at_ns: i64,
    /// The bytes of all its frames.
    pub n_bytes: u64,
    pub message_type: MessageType,
    /// The map of a BOR or EOR, as [`boundary_map`] finds it.
    pub map: Option<&'a [u8]>,
}

/// A BOR or an EOR.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// The segment its row is in.
    pub segment: u64,
    /// The number of its row.
    pub seq: u64,
    /// Its MessagePack map, the configuration or the metadata; `None` if it is invalid, if its message exceeds 64 KiB,
    /// or if it was dropped.
    pub map: Option<Bytes>,
    /// Whether the map was dropped because it is stored.
    pub is_map_written: bool,
    /// The condition that the map states.
    pub said: Condition,
    /// The string `run_id` of the map, of at most 1024 bytes.
    pub run_id: Option<Box<str>>,
    /// The number `data_records` of the map: how many data messages the sender claims to have sent.
    pub data_records: Option<u64>,
}

/// What was received of a sender from one BOR to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Which of the sender's BORs began it, counted from 1; 0 for messages before the first.
    pub ordinal: u64,
    /// The number of its first row.
    pub first_seq: u64,
    /// The number of its latest row.
    pub last_seq: u64,
    /// The BOR.
    pub begin: Option<Boundary>,
    /// The first EOR.
    pub end: Option<Boundary>,
    /// Whether more came after the EOR.
    pub goes_on: bool,
    /// DAT messages; each CDTP2 record counts.
    pub messages: u64,
    /// Bytes of all frames, including BOR and EOR.
    pub bytes: u64,
    /// Skipped numbers.
    pub missed: u64,
    /// DAT messages whose number had occurred before.
    pub duplicates: u64,
    /// DAT messages whose number is not above the highest so far, and had not occurred.
    pub out_of_order: u64,
    /// The earliest receipt.
    pub first_received_at_ns: i64,
    /// The latest receipt.
    pub last_received_at_ns: i64,
    /// The highest number so far.
    pub highest: Option<u64>,
    /// Missing ranges below it, the lowest first, both ends included.
    pub gaps: Vec<(u64, u64)>,
}

impl Run {
    /// Whether it has begun, and not ended.
    pub fn is_open(&self) -> bool {
        self.begin.is_some() && self.end.is_none()
    }

    /// Whether its sender may go on with it at this moment, as far as the run says: it has no EOR, and the sender was not
    /// silent for [`SILENCE_NS`].
    pub fn may_go_on(&self, now_ns: i64) -> bool {
        self.end.is_none() && now_ns.saturating_sub(self.last_received_at_ns) < SILENCE_NS
    }

    /// The condition in words, and its number. While the run goes on it has none.
    pub fn said(&self, is_in_progress: bool) -> (String, Option<u8>) {
        if is_in_progress {
            return (IN_PROGRESS.to_owned(), None);
        }
        let condition = self.condition();
        (condition.to_string(), Some(condition.code()))
    }

    /// The sender's condition combined with what was observed, once the run is over.
    pub fn condition(&self) -> Condition {
        let mut condition = self.end.as_ref().map_or(Condition::GOOD, |end| end.said);
        let said = self.end.as_ref().and_then(|end| end.data_records);
        let is_cut = self.highest.zip(said).is_some_and(|(highest, said)| highest < said);
        if self.missed > 0 || is_cut || self.begin.is_none() || self.goes_on {
            condition = condition | Condition::INCOMPLETE;
        }
        if self.end.is_none() {
            condition = condition | Condition::ABORTED;
        }
        condition
    }

    /// The string `run_id` of the metadata, or else of the configuration; of at most 1024 bytes.
    pub fn run_id(&self) -> Option<&str> {
        [&self.end, &self.begin].into_iter().flatten().find_map(|boundary| boundary.run_id.as_deref())
    }

    /// The configuration in the BOR, a MessagePack map.
    pub fn config(&self) -> Option<&[u8]> {
        self.begin.as_ref()?.map.as_deref()
    }

    /// The metadata in the EOR, a MessagePack map.
    pub fn metadata(&self) -> Option<&[u8]> {
        self.end.as_ref()?.map.as_deref()
    }

    /// The run of a sender's first message. Its numbers are still to be followed, as in [`take`](Self::take).
    pub fn first(message: &RunMessage<'_>) -> Self {
        let mut run = Self::of(u64::from(message.message_type == MessageType::Bor), message);
        run.count(message);
        run
    }

    /// Takes the next message of the same sender; then [`follow`](Self::follow) each of its numbers. A BOR makes this
    /// the next run, and returns the one that is over.
    pub fn take(&mut self, message: &RunMessage<'_>) -> Option<Self> {
        let begins = message.message_type == MessageType::Bor;
        let over = begins.then(|| mem::replace(self, Self::of(self.ordinal.saturating_add(1), message)));
        self.count(message);
        over
    }

    fn of(ordinal: u64, message: &RunMessage<'_>) -> Self {
        Self {
            ordinal,
            first_seq: message.seq,
            last_seq: message.seq,
            first_received_at_ns: message.received_at_ns,
            last_received_at_ns: message.received_at_ns,
            ..Self::default()
        }
    }

    fn count(&mut self, message: &RunMessage<'_>) {
        self.last_seq = message.seq;
        self.bytes = self.bytes.saturating_add(message.n_bytes);
        self.first_received_at_ns = self.first_received_at_ns.min(message.received_at_ns);
        self.last_received_at_ns = self.last_received_at_ns.max(message.received_at_ns);
        match message.message_type {
            MessageType::Dat => self.goes_on |= self.end.is_some(),
            MessageType::Bor => self.begin = Some(Boundary::of(message)),
            MessageType::Eor if self.end.is_none() => self.end = Some(Boundary::of(message)),
            MessageType::Eor => self.goes_on = true,
        }
    }

    /// Follows a number of a message that was taken.
    pub fn follow(&mut self, message_type: MessageType, sequence: u64) {
        let is_data = message_type == MessageType::Dat;
        // A stored run may have any count.
        self.messages = self.messages.saturating_add(u64::from(is_data));
        // Numbers beyond a table's BIGINT are cut to its maximum, as in the table: they cannot be distinguished.
        let is_known = sequence <= LAST;
        let sequence = sequence.min(LAST);
        let before = self.highest;
        let mut follower = Follower { last: before };
        self.missed = self.missed.saturating_add(follower.follow(message_type, sequence));
        self.highest = follower.last;
        match before {
            Some(highest) if sequence <= highest && !(is_data && is_known) => {}
            Some(highest) if sequence <= highest => {
                if self.fill(sequence) {
                    self.out_of_order = self.out_of_order.saturating_add(1);
                } else {
                    self.duplicates = self.duplicates.saturating_add(1);
                }
            }
            // The EOR may have the number of a DAT.
            _ => self
                .leave(before.map_or(0, |highest| highest + 1), sequence + u64::from(message_type == MessageType::Eor)),
        }
    }

    /// Keeps the gap from `from` to before `to`.
    fn leave(&mut self, from: u64, to: u64) {
        if from < to {
            self.gaps.push((from, to - 1));
            if self.gaps.len() > GAPS {
                self.gaps.remove(0);
            }
        }
    }

    /// Removes a number from its gap; false if it is in none.
    fn fill(&mut self, sequence: u64) -> bool {
        let at = self.gaps.partition_point(|(_, end)| *end < sequence);
        let Some(&(start, end)) = self.gaps.get(at).filter(|(start, _)| *start <= sequence) else { return false };
        let left = (start < sequence).then(|| (start, sequence - 1));
        let right = (sequence < end).then(|| (sequence + 1, end));
        self.gaps.splice(at..=at, left.into_iter().chain(right));
        if self.gaps.len() > GAPS {
            self.gaps.remove(0);
        }
        true
    }
}

/// The condition stated by a sender's metadata: its number, or else its names.
pub(super) fn said(metadata: &[u8]) -> Condition {
    match (member(metadata, b"condition_code"), member(metadata, b"condition")) {
        (Some(Value::Signed(code)), _) => Condition::from_code(code),
        (_, Some(Value::String(names))) => Condition::from_names(names),
        _ => Condition::GOOD,
    }
}

/// The string `run_id` of the map of a BOR or EOR, unless it is too long.
pub(super) fn run_id(map: &[u8]) -> Option<&str> {
    match member(map, b"run_id") {
        Some(Value::String(id)) if id.len() <= NAME_BYTES => Some(id),
        _ => None,
    }
}

/// The number `data_records` of the map of an EOR.
fn data_records(map: &[u8]) -> Option<u64> {
    match member(map, b"data_records") {
        Some(Value::Unsigned(number)) => Some(number),
        Some(Value::Signed(number)) => u64::try_from(number).ok(),
        _ => None,
    }
}

/// A member of a map that was checked before; the last of equal names.
fn member<'a>(map: &'a [u8], name: &[u8]) -> Option<Value<'a>> {
    let mut reader = Reader::new(map, ErrorKind::BadHeader);
    let mut found = None;
    for _ in 0..reader.map(ErrorKind::BadHeader).ok()? {
        let is_it = reader.string_bytes(ErrorKind::BadHeader).ok()? == name;
        if is_it {
            found = reader.clone().value().ok();
        }
        reader.pass().ok()?;
    }
    found
}

/// A run that is over: the sender's next one has begun, or the sender is no longer followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    pub sender: Box<str>,
    pub run: Run,
}

/// The runs of all senders of a capture, built from its rows in order.
#[derive(Clone, Debug, Default)]
pub struct RunBook {
    latest: Vec<(Box<str>, Run)>,
    by_name: HashMap<Box<str>, usize>,
    recent: usize,
    closed: Vec<Closed>,
    unwritten: usize,
    unfollowed: Unfollowed,
}

/// What a book leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unfollowed {
    /// How often a sender was dropped because there were too many; its later messages count as from a new sender.
    pub senders: u64,
    /// Messages of senders whose names are too long.
    pub messages: u64,
}

impl RunBook {
    /// Adds a row. Rows that are invalid or of a variant without runs change nothing.
    pub fn record(&mut self, row: &RunRow<'_>) {
        // A header without runs is skipped before its tags are checked.
        let settings = Settings { accept: Accept::RUNS, ..Settings::default() };
        let Ok(layout) = decode_header(row.header, Some(row.n_frames), &settings) else { return };
        let Some((message_type, _)) = numbers(&layout).next() else { return };
        let Ok(name) = std::str::from_utf8(&row.header[layout.sender()]) else { return };
        let &RunRow { segment, seq, received_at_ns, n_bytes, .. } = row;
        let map = map(row.header, row.payload, &layout);
        self.unwritten += map.filter(|_| n_bytes <= MAP_BYTES).map_or(0, <[u8]>::len);
        let Some(run) = self.take(name, &RunMessage { segment, seq, received_at_ns, n_bytes, message_type, map })
        else {
            return;
        };
        for (message_type, sequence) in numbers(&layout) {
            run.follow(message_type, sequence);
        }
    }

    /// The run of a message, which now includes it.
    fn take(&mut self, name: &str, message: &RunMessage<'_>) -> Option<&mut Run> {
        if self.latest.get(self.recent).is_none_or(|(known, _)| **known != *name) {
            match self.by_name.get(name) {
                Some(&at) => self.recent = at,
                None => return self.add(name, Run::first(message)),
            }
        }
        let (_, run) = self.latest.get_mut(self.recent)?;
        if let Some(over) = run.take(message) {
            self.unwritten += name.len() + RUN_COST;
            self.closed.push(Closed { sender: name.into(), run: over });
        }
        Some(run)
    }

    fn add(&mut self, name: &str, run: Run) -> Option<&mut Run> {
        if name.len() > NAME_BYTES {
            self.unfollowed.messages = self.unfollowed.messages.saturating_add(1);
            return None;
        }
        self.recent = self.latest.len();
        if self.latest.len() < SENDERS {
            self.latest.push((name.into(), run));
        } else {
            // The sender silent for longest is the least likely to continue.
            let silent = self.latest.iter().enumerate().min_by_key(|(_, (_, run))| run.last_seq);
            self.recent = silent.map_or(0, |(at, _)| at);
            let (sender, over) = mem::replace(&mut self.latest[self.recent], (name.into(), run));
            self.by_name.remove(&sender);
            self.unwritten += sender.len() + RUN_COST;
            self.closed.push(Closed { sender, run: over });
            self.unfollowed.senders = self.unfollowed.senders.saturating_add(1);
        }
        self.by_name.insert(name.into(), self.recent);
        Some(&mut self.latest[self.recent].1)
    }

    /// Restores a run returned by [`latest`](Self::latest).
    pub fn restore(&mut self, sender: &str, run: Run) {
        self.add(sender, run);
    }

    /// The latest run of each sender.
    pub fn latest(&self) -> impl Iterator<Item = (&str, &Run)> {
        self.latest.iter().map(|(name, run)| (&**name, run))
    }

    /// The runs that are over and were not forgotten.
    pub fn closed(&self) -> &[Closed] {
        &self.closed
    }

    /// The approximate bytes kept until they are stored: runs that are over, and maps.
    pub fn unwritten_bytes(&self) -> usize {
        self.unwritten
    }

    /// Forgets runs that are over and maps of open ones, as they are stored now.
    pub fn forget_written(&mut self) {
        self.closed.clear();
        self.unwritten = 0;
        let boundaries = self.latest.iter_mut().flat_map(|(_, run)| [&mut run.begin, &mut run.end]);
        for boundary in boundaries.flatten() {
            boundary.is_map_written |= boundary.map.take().is_some();
        }
    }

    /// The segments with the BORs of open runs, from `from` on; one per run.
    pub fn open_segments(&self, from: u64) -> impl Iterator<Item = u64> {
        let open = self.latest.iter().filter(|(_, run)| run.is_open());
        open.filter_map(|(_, run)| run.begin.as_ref())
            .map(|begin| begin.segment)
            .filter(move |segment| *segment >= from)
    }

    /// What the book has left out.
    pub fn unfollowed(&self) -> Unfollowed {
        self.unfollowed
    }

    /// Restores the counters of what was left out.
    pub fn restore_unfollowed(&mut self, unfollowed: Unfollowed) {
        self.unfollowed = unfollowed;
    }
}

impl Boundary {
    fn of(message: &RunMessage<'_>) -> Self {
        let map = message.map.filter(|_| message.n_bytes <= MAP_BYTES);
        Self::new(message.segment, message.seq, map.map(Bytes::copy_from_slice))
    }

    /// The boundary of a row with this map, if that is valid.
    pub fn new(segment: u64, seq: u64, map: Option<Bytes>) -> Self {
        let map = map.filter(|map| is_map(map));
        let run_id = map.as_deref().and_then(run_id).map(Box::from);
        let data_records = map.as_deref().and_then(data_records);
        let said = map.as_deref().map_or(Condition::GOOD, said);
        Self { segment, seq, said, run_id, data_records, map, is_map_written: false }
    }
}

/// The map of a BOR or EOR with this header and payload frame, if any.
pub fn boundary_map<'a>(header: &'a [u8], payload: Option<&'a [u8]>) -> Option<&'a [u8]> {
    let layout = decode_header(header, None, &Settings::default()).ok()?;
    map(header, payload, &layout)
}

/// A and B have the map as payload, CDTP2 as the tags of its second record.
pub(super) fn map<'a>(header: &'a [u8], payload: Option<&'a [u8]>, layout: &Layout) -> Option<&'a [u8]> {
    match layout {
        Layout::Single(head) if head.message_type == Some(MessageType::Dat) => None,
        Layout::Single(_) => payload.filter(|payload| is_map(payload)),
        Layout::Batch(batch) => batch.records.get(1).map(|record| &header[record.tags.clone()]),
    }
}
