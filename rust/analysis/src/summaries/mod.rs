//! The counts of each protocol in a report, as values that can be added to, merged in any order, and saved as bytes.

mod batches;
mod cdt;
mod cdtp;
mod dcp;
mod mc0;
mod mtl;
mod names;
mod series;
mod waiting;

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use trunkline_columns::{ColumnError, ColumnKind};

use self::series::{Kinds, Series};
pub use self::{
    names::{COLOURS, NAMES_MAX, OTHERS},
    series::{Clock, DECADE},
};
use crate::{
    divide::Key,
    rows::{Chosen, numbers, size_at, text, text_at},
    seen::Seen,
    state::{StateError, load, save},
};

/// The prefix of trunkline's own services and topics.
const OWN: &str = "trunkline.";

/// What limits the counts.
#[allow(clippy::struct_excessive_bools)] // they are independent
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// The buckets of time.
    pub clock: Clock,
    /// Whether one of trunkline's own services or topics is selected by its name: else they are left out.
    pub has_own: bool,
    /// Whether the selection may leave out the answers of messages.
    pub is_cut: bool,
    /// Whether single records of messages of CDTP are selected.
    pub has_records: bool,
    /// Whether each sender's sequence numbers are covered without holes.
    pub has_sequences: bool,
}

/// The counts of one protocol.
trait Section: Default + Serialize + DeserializeOwned + Send {
    const PROTOCOL: &'static str;
    /// The columns it reads besides the common ones, in lists.
    const NEEDS: &'static [&'static [&'static str]];
    /// What its related rows have in common.
    const KEY: Key;
    /// The version of its state.
    const VERSION: u16;
    type Found: Serialize;

    /// Counts more rows.
    fn record(&mut self, batch: &RecordBatch, chosen: &Chosen, scope: &Scope) -> Result<(), ColumnError>;

    /// Counts what is open: nothing more comes.
    fn finish(&mut self, scope: &Scope);

    /// Adds the counts of another that has nothing open.
    fn merge(&mut self, other: Self);

    /// Merges every two buckets of time.
    fn halve(&mut self);

    /// The counts, in so many buckets of time.
    fn evaluate(&self, scope: &Scope, buckets: i32) -> Self::Found;
}

/// The counts common to all protocols.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Traffic {
    rows: u64,
    bytes: u64,
    received: Seen,
    volumes: Series,
    errors: Kinds,
    /// The row counted last, by number and time: a message with several records counts once.
    last: Option<(i64, i64)>,
}

/// The counts of any protocol.
pub trait Summary: Send {
    /// The columns it reads.
    fn needs(&self) -> Vec<&'static str>;
    /// Counts more rows, in recorded order.
    fn record(&mut self, batch: &RecordBatch) -> Result<(), ColumnError>;
    /// Counts what is open: nothing more comes.
    fn finish(&mut self);
    /// Adds the counts of another that has finished.
    fn merge(&mut self, state: &[u8]) -> Result<(), StateError>;
    /// Widens the buckets of time, until no more than this many lead up to a moment.
    fn widen(&mut self, last_ns: i64, buckets: i32);
    /// Its state, as bytes.
    fn state(&self) -> Vec<u8>;
    /// Restores such a state.
    fn restore(&mut self, state: &[u8]) -> Result<(), StateError>;
    /// The counts, in so many buckets of time, as MessagePack.
    fn evaluate(&self, buckets: i32) -> Vec<u8>;
}

#[derive(Debug, Serialize, Deserialize)]
struct Counted<S> {
    scope: Scope,
    traffic: Traffic,
    section: S,
}

/// The counts common to all protocols, and those of one.
#[derive(Serialize)]
struct Found<'a, T> {
    rows: u64,
    bytes: u64,
    first_received_at_ns: Option<i64>,
    last_received_at_ns: Option<i64>,
    volumes: &'a Series,
    errors: &'a Kinds,
    bucket_ns: i64,
    section: T,
}

const NEEDS: [&str; 4] = ["seq", "received_at_ns", "n_bytes", "error"];

impl<S: Section> Summary for Counted<S> {
    fn needs(&self) -> Vec<&'static str> {
        let mut needs = NEEDS.to_vec();
        for name in S::NEEDS.iter().copied().flatten() {
            if !needs.contains(name) {
                needs.push(name);
            }
        }
        needs
    }

    fn record(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        let chosen = Chosen::of(batch)?;
        self.traffic.record(batch, &chosen, &self.scope.clock)?;
        self.section.record(batch, &chosen, &self.scope)
    }

    fn finish(&mut self) {
        self.section.finish(&self.scope);
    }

    fn merge(&mut self, state: &[u8]) -> Result<(), StateError> {
        let mut other = Self::load(state)?;
        if self.scope.clock.first_ns != other.scope.clock.first_ns {
            return Err(StateError::Damaged("its time begins at another moment".into()));
        }
        while self.scope.clock.bucket_ns < other.scope.clock.bucket_ns {
            self.halve();
        }
        while other.scope.clock.bucket_ns < self.scope.clock.bucket_ns {
            other.halve();
        }
        if self.scope != other.scope {
            return Err(StateError::Damaged("it is of another selection".into()));
        }
        self.traffic.merge(&other.traffic);
        self.section.merge(other.section);
        Ok(())
    }

    fn widen(&mut self, last_ns: i64, buckets: i32) {
        while self.scope.clock.bucket(last_ns) >= buckets.max(1) && self.scope.clock.bucket_ns < i64::MAX {
            self.halve();
        }
    }

    fn state(&self) -> Vec<u8> {
        save(S::PROTOCOL, S::VERSION, self)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), StateError> {
        *self = Self::load(state)?;
        Ok(())
    }

    fn evaluate(&self, buckets: i32) -> Vec<u8> {
        let Traffic { rows, bytes, received, volumes, errors, .. } = &self.traffic;
        let found = Found {
            rows: *rows,
            bytes: *bytes,
            first_received_at_ns: received.first(),
            last_received_at_ns: received.last(),
            volumes,
            errors,
            bucket_ns: self.scope.clock.bucket_ns,
            section: self.section.evaluate(&self.scope, buckets),
        };
        // Numbers, bytes, lists and maps, which always fit MessagePack.
        rmp_serde::to_vec_named(&found).unwrap_or_default()
    }
}

impl<S: Section> Counted<S> {
    fn of(scope: Scope) -> Box<dyn Summary>
    where
        S: 'static,
    {
        Box::new(Self { scope, traffic: Traffic::default(), section: S::default() })
    }

    fn load(state: &[u8]) -> Result<Self, StateError> {
        let found: Self = load(S::PROTOCOL, S::VERSION..=S::VERSION, state)?;
        if found.scope.clock.bucket_ns < 1 {
            return Err(StateError::Damaged("its buckets of time have no width".into()));
        }
        Ok(found)
    }

    fn halve(&mut self) {
        self.scope.clock.bucket_ns = self.scope.clock.bucket_ns.saturating_mul(2);
        self.traffic.volumes.halve();
        self.section.halve();
    }
}

impl Traffic {
    fn record(&mut self, batch: &RecordBatch, chosen: &Chosen, clock: &Clock) -> Result<(), ColumnError> {
        let (seq, at_ns) = (numbers(batch, "seq")?, numbers(batch, "received_at_ns")?);
        let (sizes, errors) = (numbers(batch, "n_bytes")?, text(batch, "error")?);
        for row in (0..batch.num_rows()).filter(|row| chosen.has(*row)) {
            if let Some(kind) = text_at(&errors, row).filter(|kind| !is_emptied(kind)) {
                self.errors.add(kind, 1);
            }
            let this = (seq.value(row), at_ns.value(row));
            if self.last.replace(this) == Some(this) {
                continue;
            }
            let size = size_at(&sizes, row);
            self.rows += 1;
            self.bytes = self.bytes.saturating_add(size);
            self.received.add(at_ns.value(row));
            self.volumes.add(clock.bucket(at_ns.value(row)), size);
        }
        Ok(())
    }

    fn merge(&mut self, other: &Self) {
        self.rows = self.rows.saturating_add(other.rows);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.received.merge(other.received);
        self.volumes.merge(&other.volumes);
        self.errors.merge(&other.errors);
    }
}

/// Whether messages with this kind of error decode: a value is more than its column holds. A message that is too large
/// itself has no values.
fn is_emptied(kind: &str) -> bool {
    kind != ColumnKind::MessageTooLarge.slug() && ColumnKind::ALL.iter().any(|emptied| emptied.slug() == kind)
}

/// A protocol that is counted.
struct Listed {
    name: &'static str,
    key: Key,
    summary: fn(Scope) -> Box<dyn Summary>,
}

impl Listed {
    const fn of<S: Section + 'static>() -> Self {
        Self { name: S::PROTOCOL, key: S::KEY, summary: Counted::<S>::of }
    }

    fn named(name: &str) -> Option<&'static Self> {
        PROTOCOLS.iter().find(|listed| listed.name == name)
    }
}

/// Every protocol that is counted.
static PROTOCOLS: &[Listed] = &[
    Listed::of::<cdtp::Cdtp>(),
    Listed::of::<dcp::Dcp>(),
    Listed::of::<mc0::Mc0>(),
    Listed::of::<mtl::Mtl>(),
    Listed::of::<cdt::Cdt>(),
];

/// What related rows of the protocol of this name have in common.
pub fn key(protocol: &str) -> Option<Key> {
    Listed::named(protocol).map(|listed| listed.key)
}

/// What is counted of the protocol of this name.
pub fn summary(protocol: &str, scope: Scope) -> Option<Box<dyn Summary>> {
    Listed::named(protocol).map(|listed| (listed.summary)(scope))
}
