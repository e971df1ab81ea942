//! The resources of MTL, and refused logins.

use std::collections::{HashMap, HashSet};

use arrow_array::RecordBatch;
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trunkline_columns::ColumnError;

use super::{
    Scope, Section,
    names::{COLOURS, Names, coloured, cut, cut_bytes, within},
    series::{Clock, Merge, Series, Times},
    waiting::{Level, Waiting},
};
use crate::{
    contents::Contents,
    delivered::Delivered,
    divide::{Choice, Key},
    fingerprint::fingerprint_of,
    fold::Fold,
    latencies::Latencies,
    rows::{Chosen, binary, bytes_at, numbers, small, text, text_at},
    seen::Seen,
    settlements::Fate,
};

/// How many resources and how many peers with refused logins are listed.
const RESOURCES: usize = 200;
const LOGINS: usize = 100;

/// How many connections are followed.
const CONNECTIONS: usize = 1 << 17;

/// Counts contents and logins.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Mtl {
    contents: Contents,
    resources: Names<Resource>,
    /// The connections and directions on which anything was settled.
    settling: HashSet<u128, RandomState>,
    /// The connections whose last command was a step of a login.
    authorizing: HashSet<u128, RandomState>,
    logins: HashMap<Option<ByteBuf>, Login, RandomState>,
    logins_refused: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Resource {
    received: u64,
    sent: u64,
    bytes: i64,
    confirmed: u64,
    redelivered: u64,
    rejected: u64,
    discarded: u64,
    dead_lettered: u64,
    read: Times,
    stored: Latencies,
    came: Series,
    went: Series,
    waiting: Waiting,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Login {
    refused: u64,
    seen: Seen,
}

#[derive(Serialize)]
pub(super) struct Found {
    resources: Vec<Row>,
    resource_count: usize,
    beyond: u64,
    received: u64,
    sent: u64,
    redelivered: u64,
    dead_lettered: u64,
    rates: Vec<(i32, Series)>,
    latencies: Vec<(i32, Series)>,
    levels: Vec<Vec<Level>>,
    logins: Vec<Refused>,
    logins_refused: u64,
}

/// A resource, or others together.
#[derive(Serialize)]
struct Row {
    resource: Option<String>,
    received: u64,
    sent: u64,
    bytes: i64,
    confirmed: u64,
    redelivered: u64,
    rejected: u64,
    discarded: u64,
    dead_lettered: u64,
    p50_ns: Option<i64>,
    p99_ns: Option<i64>,
    max_ns: Option<i64>,
    stored_p99_ns: Option<i64>,
    others: usize,
}

/// The refused logins of a peer, or of others together.
#[allow(clippy::struct_field_names)] // as Python has them
#[derive(Serialize)]
struct Refused {
    peer: Option<ByteBuf>,
    refused: u64,
    first_received_at_ns: Option<i64>,
    last_received_at_ns: Option<i64>,
    others: usize,
}

impl Merge for Resource {
    fn merge(&mut self, other: Self) {
        self.received = self.received.saturating_add(other.received);
        self.sent = self.sent.saturating_add(other.sent);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.confirmed = self.confirmed.saturating_add(other.confirmed);
        self.redelivered = self.redelivered.saturating_add(other.redelivered);
        self.rejected = self.rejected.saturating_add(other.rejected);
        self.discarded = self.discarded.saturating_add(other.discarded);
        self.dead_lettered = self.dead_lettered.saturating_add(other.dead_lettered);
        self.read.merge(other.read);
        self.stored.merge(other.stored);
        self.came.merge(&other.came);
        self.went.merge(&other.went);
        self.waiting.merge(other.waiting);
    }

    fn halve(&mut self) {
        self.came.halve();
        self.went.halve();
        self.waiting.halve();
    }
}

impl Section for Mtl {
    const PROTOCOL: &'static str = "mtl";
    // A dead letter is a content of another connection.
    const KEY: Key = &[&[Choice::always("capture_id")]];
    const NEEDS: &'static [&'static [&'static str]] = &[Contents::NEEDS, &["name"]];
    const VERSION: u16 = 5;
    type Found = Found;

    fn record(&mut self, batch: &RecordBatch, chosen: &Chosen, scope: &Scope) -> Result<(), ColumnError> {
        self.contents.ingest(batch)?;
        self.count(scope, false);
        self.log_in(batch, chosen)
    }

    fn finish(&mut self, scope: &Scope) {
        self.count(scope, true);
        self.contents = Contents::default();
        self.authorizing.clear();
    }

    fn merge(&mut self, other: Self) {
        self.resources.merge(other.resources);
        self.settling.extend(other.settling);
        self.logins_refused = self.logins_refused.saturating_add(other.logins_refused);
        for (peer, login) in other.logins {
            if let Some(mine) = within(&mut self.logins, peer) {
                mine.refused = mine.refused.saturating_add(login.refused);
                mine.seen.merge(login.seen);
            }
        }
    }

    fn halve(&mut self) {
        self.resources.halve();
    }

    fn evaluate(&self, scope: &Scope, buckets: i32) -> Found {
        let sorted = self.resources.sorted(Resource::contents, <[u8]>::cmp);
        let every = || sorted.iter().map(|(_, resource)| *resource).chain([self.resources.rest()]);
        let sum = |count: fn(&Resource) -> u64| self.resources.all().map(count).fold(0, u64::saturating_add);
        let received = sum(|resource| resource.received);
        let came = |resource: &Resource| if received > 0 { resource.came.clone() } else { resource.went.clone() };
        let series: Vec<_> = every().map(came).collect();
        let levels = sorted.iter().take(COLOURS);
        let levels = levels.map(|(_, resource)| resource.waiting.levels(&self.settling, &scope.clock, buckets));
        let mut logins: Vec<_> = self.logins.iter().collect();
        logins.sort_unstable_by(|(peer, one), (other_peer, other)| {
            other.refused.cmp(&one.refused).then_with(|| peer.cmp(other_peer))
        });
        let name_of = |name: &[u8]| Some(String::from_utf8_lossy(name).into_owned());
        let listed = sorted.iter().take(RESOURCES);
        let mut resources: Vec<_> = listed.map(|(name, resource)| resource.row(name_of(name))).collect();
        let others = self.resources.others(&sorted, RESOURCES);
        resources.extend(others.map(|(others, sum)| Row { others, ..sum.row(None) }));
        Found {
            resources,
            resource_count: self.resources.len(),
            beyond: self.resources.beyond(),
            received,
            sent: sum(|resource| resource.sent),
            redelivered: sum(|resource| resource.redelivered),
            dead_lettered: sum(|resource| resource.dead_lettered),
            rates: coloured(series.iter()),
            latencies: coloured(every().map(|resource| resource.read.classes())),
            levels: levels.collect(),
            logins: self.rows_of(&logins),
            logins_refused: self.logins_refused,
        }
    }
}

impl Mtl {
    /// The first peers, and the others together; all that were too many to be told apart are among these.
    fn rows_of(&self, logins: &[(&Option<ByteBuf>, &Login)]) -> Vec<Refused> {
        let (listed, others) = logins.split_at(logins.len().min(LOGINS));
        let mut rows: Vec<_> = listed.iter().map(|(peer, login)| login.row(peer.as_ref())).collect();
        if !others.is_empty() {
            let mut seen = Seen::default();
            for (_, login) in others {
                seen.merge(login.seen);
            }
            let refused = rows.iter().fold(self.logins_refused, |left, row| left.saturating_sub(row.refused));
            rows.push(Refused { others: others.len(), ..Login { refused, seen }.row(None) });
        }
        rows
    }

    fn count(&mut self, scope: &Scope, is_end: bool) {
        while let Some(delivered) = self.contents.next_delivery(is_end) {
            let content = &delivered.content;
            let connection = fingerprint_of(&[
                Some(content.capture_id.as_bytes()),
                content.endpoint.as_deref().map(str::as_bytes),
                content.peer.as_ref().map(|peer| &peer[..]),
                Some(&[content.is_out.into()]),
            ]);
            if content.settled.is_some() && self.settling.len() < CONNECTIONS {
                self.settling.insert(connection);
            }
            if content.is_chosen {
                let name = cut(content.resource.as_deref().unwrap_or_default());
                let is_settling = self.settling.contains(&connection);
                self.resources.of(name.as_bytes()).add(&delivered, (!is_settling).then_some(connection), &scope.clock);
            }
        }
    }

    /// Counts the replies that refused steps of logins.
    fn log_in(&mut self, batch: &RecordBatch, chosen: &Chosen) -> Result<(), ColumnError> {
        let [capture_id, endpoint, kinds, names] =
            [text(batch, "capture_id")?, text(batch, "endpoint")?, text(batch, "type")?, text(batch, "name")?];
        let (peers, status, at_ns) =
            (binary(batch, "peer")?, small(batch, "status")?, numbers(batch, "received_at_ns")?);
        for row in 0..batch.num_rows() {
            let is_reply = match text_at(&kinds, row) {
                Some("command") => false,
                Some("reply") => true,
                _ => continue,
            };
            let peer = bytes_at(&peers, row);
            let [capture, at] = [&capture_id, &endpoint].map(|column| text_at(column, row).map(str::as_bytes));
            let connection = fingerprint_of(&[capture, at, peer]);
            match text_at(&names, row).map(|name| name.eq_ignore_ascii_case("connection.authorize")) {
                Some(true) if self.authorizing.len() < CONNECTIONS => drop(self.authorizing.insert(connection)),
                Some(false) => drop(self.authorizing.remove(&connection)),
                _ => {}
            }
            let is_refused = is_reply && arrow_array::Array::is_valid(&status, row) && status.value(row) == 401;
            if is_refused && chosen.has(row) && self.authorizing.contains(&connection) {
                self.logins_refused += 1;
                if let Some(login) = within(&mut self.logins, peer.map(cut_bytes).map(ByteBuf::from)) {
                    login.refused += 1;
                    login.seen.add(at_ns.value(row));
                }
            }
        }
        Ok(())
    }
}

impl Resource {
    const fn contents(&self) -> u64 {
        self.received.saturating_add(self.sent)
    }

    /// Counts a content; `unsettled` is its connection if that has settled nothing so far.
    fn add(&mut self, delivered: &Delivered, unsettled: Option<u128>, clock: &Clock) {
        let (content, fate, is_dead) = (&delivered.content, delivered.fate(), delivered.is_dead());
        let confirmed_ns = delivered.latency_ns().filter(|_| fate == Some(Fate::Confirmed));
        self.dead_lettered += u64::from(is_dead);
        if !content.is_out {
            self.received += 1;
            self.bytes = self.bytes.saturating_add(content.body_bytes.unwrap_or_default());
            let is_refused = matches!(fate, Some(Fate::Rejected | Fate::Refused));
            self.rejected += u64::from(is_refused);
            self.came.add(clock.bucket(content.at_ns), 1);
            if !is_refused {
                self.waiting.come(content.at_ns, clock);
            }
            if let Some(latency_ns) = confirmed_ns {
                self.stored.add(latency_ns);
            }
            return;
        }
        self.sent += 1;
        self.confirmed += u64::from(fate == Some(Fate::Confirmed));
        self.redelivered += u64::from(content.is_redelivered);
        self.discarded += u64::from(fate == Some(Fate::Rejected));
        self.went.add(clock.bucket(content.at_ns), 1);
        if let Some(latency_ns) = confirmed_ns {
            self.read.add(latency_ns);
        }
        if let Some(connection) = unsettled {
            self.waiting.go(connection, content.at_ns, clock);
        } else if (is_dead || matches!(fate, Some(Fate::Confirmed | Fate::Rejected)))
            && let Some(settled) = content.settled
        {
            self.waiting.leave(settled.at_ns, clock);
        }
    }

    fn row(&self, resource: Option<String>) -> Row {
        let [p50_ns, p99_ns] = self.read.percentiles([0.5, 0.99]);
        Row {
            resource,
            received: self.received,
            sent: self.sent,
            bytes: self.bytes,
            confirmed: self.confirmed,
            redelivered: self.redelivered,
            rejected: self.rejected,
            discarded: self.discarded,
            dead_lettered: self.dead_lettered,
            p50_ns,
            p99_ns,
            max_ns: self.read.max_ns(),
            stored_p99_ns: self.stored.percentile(0.99),
            others: 0,
        }
    }
}

impl Login {
    fn row(&self, peer: Option<&ByteBuf>) -> Refused {
        Refused {
            peer: peer.cloned(),
            refused: self.refused,
            first_received_at_ns: self.seen.first(),
            last_received_at_ns: self.seen.last(),
            others: 0,
        }
    }
}
