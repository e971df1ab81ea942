//! The configurations of CDT: which is where, how long each took, and which requests were answered with an error.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
};

use arrow_array::RecordBatch;
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use trunkline_columns::ColumnError;

use super::{
    Scope, Section,
    names::{NAMES_MAX, cut, within},
    series::{Series, Times},
};
use crate::{
    divide::{Choice, Key},
    fold::Fold,
    rollout::{Events, Rollout, Way, Ways},
    rows::{Chosen, text, text_at},
    seen::Seen,
};

/// How many versions, endpoints that lag, and errors are listed.
const VERSIONS: usize = 200;
const LAGGING: usize = 100;
const REFUSED: usize = 100;

/// The kinds of messages, in the order of a configuration's way.
const KINDS: [&str; 6] =
    ["ConfigNewAvailable", "ConfigRequest", "ConfigResponse", "ConfigUpdated", "ConfigPush", "ConfigPushResponse"];

/// Counts messages and follows configurations.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Cdt {
    events: Events,
    ways: Ways,
    rates: BTreeMap<i32, Series>,
    pulls: u64,
    refused: HashMap<(i64, Option<String>), Refusal, RandomState>,
    refused_count: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Refusal {
    errors: u64,
    endpoints: HashSet<String, RandomState>,
    seen: Seen,
}

#[derive(Serialize)]
pub(super) struct Found {
    versions: Vec<Version>,
    version_count: usize,
    endpoints: usize,
    lagging: Vec<Lagging>,
    lagging_count: usize,
    pulls: u64,
    refused: Vec<Refused>,
    refused_count: u64,
    rates: BTreeMap<i32, Series>,
    latencies: Series,
}

/// A configuration of an application, or others together.
#[derive(Serialize)]
struct Version {
    app_version_name: Option<String>,
    config_id: Option<String>,
    announced: usize,
    pulled: usize,
    applied: usize,
    in_use: usize,
    first_received_at_ns: i64,
    p50_ns: Option<i64>,
    p99_ns: Option<i64>,
    max_ns: Option<i64>,
    others: usize,
}

/// An endpoint, or others together: the one that lags most of these.
#[derive(Default, Serialize)]
struct Lagging {
    app_version_name: Option<String>,
    endpoint_id: Option<String>,
    announced: Option<String>,
    announced_at_ns: i64,
    pulled: Option<bool>,
    applied: Option<String>,
    others: usize,
}

/// Answers of one status and reason, or others together.
#[derive(Serialize)]
struct Refused {
    status_code: Option<i64>,
    reason_phrase: Option<String>,
    errors: u64,
    endpoints: usize,
    first_received_at_ns: Option<i64>,
    last_received_at_ns: Option<i64>,
    others: usize,
}

/// What is summed over the endpoints of a version.
#[derive(Default)]
struct Sums {
    announced: usize,
    pulled: usize,
    applied: usize,
    in_use: usize,
    first_ns: Option<i64>,
    took: Times,
}

impl Section for Cdt {
    const PROTOCOL: &'static str = "cdt";
    const KEY: Key = &[&[Choice::always("app_version_name")], &[Choice::always("endpoint_id")]];
    const NEEDS: &'static [&'static [&'static str]] = &[Rollout::NEEDS, &["reason_phrase"]];
    const VERSION: u16 = 4;
    type Found = Found;

    fn record(&mut self, batch: &RecordBatch, _chosen: &Chosen, scope: &Scope) -> Result<(), ColumnError> {
        let reasons = text(batch, "reason_phrase")?;
        let Self { events, ways, rates, pulls, refused, refused_count } = self;
        events.messages(batch, |message| {
            if !message.is_chosen {
                return;
            }
            let of = message.of.map(|name| name.map(cut));
            if let Some(kind) = KINDS.iter().zip(0..).find_map(|(kind, at)| (*kind == message.kind).then_some(at)) {
                rates.entry(kind).or_default().add(scope.clock.bucket(message.at_ns), 1);
            }
            // Only announcements, answers and reports together show which endpoint has what.
            if !scope.is_cut {
                ways.take(message, of);
            }
            if message.is_success() {
                *pulls += 1;
            } else if message.kind == "ConfigResponse"
                && let Some(status) = message.status
            {
                *refused_count += 1;
                let key = (status, text_at(&reasons, message.row).map(|reason| cut(reason).to_owned()));
                if let Some(refusal) = within(refused, key) {
                    refusal.errors += 1;
                    refusal.seen.add(message.at_ns);
                    if let [_, Some(endpoint), _] = of
                        && refusal.endpoints.len() < NAMES_MAX
                        && !refusal.endpoints.contains(endpoint)
                    {
                        refusal.endpoints.insert(endpoint.to_owned());
                    }
                }
            }
        })
    }

    fn finish(&mut self, _scope: &Scope) {
        self.events = Events::default();
    }

    fn merge(&mut self, other: Self) {
        self.ways.merge(other.ways);
        for (kind, series) in other.rates {
            self.rates.entry(kind).or_default().merge(&series);
        }
        self.pulls = self.pulls.saturating_add(other.pulls);
        self.refused_count = self.refused_count.saturating_add(other.refused_count);
        for (key, theirs) in other.refused {
            if let Some(mine) = within(&mut self.refused, key) {
                mine.merge(&theirs);
            }
        }
    }

    fn halve(&mut self) {
        self.rates.values_mut().for_each(Series::halve);
    }

    fn evaluate(&self, _scope: &Scope, _buckets: i32) -> Found {
        let mut versions: BTreeMap<(&str, &str), Sums> = BTreeMap::new();
        let (mut lagging, mut endpoints) = (Vec::new(), 0);
        let ways: Vec<_> = self.ways.iter().filter_map(|(of, way)| Some((of, of[2]?, way))).collect();
        // Those of an endpoint are adjacent.
        for fleet in ways.chunk_by(|(one, ..), (other, ..)| one[..2] == other[..2]) {
            let wanted = fleet.iter().filter_map(|(.., way)| way.available.seen.last()).max();
            let in_use = fleet.iter().filter_map(|(_, id, way)| Some((way.applied.seen.last()?, *id))).max();
            let is_known = |way: &Way| way.available.seen.first().is_some() || way.applied.seen.first().is_some();
            endpoints += usize::from(fleet.iter().any(|(.., way)| is_known(way)));
            for (of, id, way) in fleet {
                let is_last = |last: Option<i64>, of_all: Option<i64>| last.is_some() && last == of_all;
                let is_in_use = is_last(way.applied.seen.last(), in_use.map(|(last, _)| last));
                let app = of[0].unwrap_or_default();
                versions.entry((app, id)).or_default().add(way, is_in_use);
                if is_last(way.available.seen.last(), wanted)
                    && !is_in_use
                    && let Some(announced_at_ns) = way.available.seen.last()
                {
                    lagging.push(Lagging {
                        app_version_name: Some(app.to_owned()),
                        endpoint_id: Some(of[1].unwrap_or_default().to_owned()),
                        announced: Some((*id).to_owned()),
                        announced_at_ns,
                        pulled: Some(way.pulled.seen.first().is_some()),
                        applied: in_use.map(|(_, id)| id.to_owned()),
                        others: 0,
                    });
                }
            }
        }
        let mut latencies = Series::default();
        for sums in versions.values() {
            latencies.merge(sums.took.classes());
        }
        let mut sorted: Vec<_> = versions.iter().collect();
        sorted.sort_by_key(|(_, sums)| Reverse(sums.first_ns));
        let order = |one: &Lagging| (one.announced_at_ns, one.app_version_name.clone(), one.endpoint_id.clone());
        lagging.sort_by_cached_key(order);
        let lagging_count = lagging.len();
        if let Some(Lagging { announced_at_ns, .. }) = lagging.get(LAGGING) {
            let others = lagging_count - LAGGING;
            let rest = Lagging { announced_at_ns: *announced_at_ns, others, ..Lagging::default() };
            lagging.truncate(LAGGING);
            lagging.push(rest);
        }
        let (listed, others) = sorted.split_at(sorted.len().min(VERSIONS));
        let mut rows: Vec<_> = listed.iter().map(|((app, id), sums)| sums.row(Some(app), Some(id))).collect();
        if !others.is_empty() {
            let mut all = Sums::default();
            for (_, sums) in others {
                all.merge(sums);
            }
            rows.push(Version { others: others.len(), ..all.row(None, None) });
        }
        let mut refused: Vec<_> = self.refused.iter().collect();
        refused.sort_unstable_by_key(|(key, refusal)| (Reverse(refusal.errors), *key));
        Found {
            versions: rows,
            version_count: versions.len(),
            endpoints,
            lagging,
            lagging_count,
            pulls: self.pulls,
            refused: self.rows_of(&refused),
            refused_count: self.refused_count,
            rates: self.rates.clone(),
            latencies,
        }
    }
}

impl Cdt {
    /// The first statuses and reasons, and the others together; all that were too many to be told apart are among these.
    fn rows_of(&self, refused: &[(&(i64, Option<String>), &Refusal)]) -> Vec<Refused> {
        let (listed, others) = refused.split_at(refused.len().min(REFUSED));
        let row = |((status, reason), refusal): &(&(i64, Option<String>), &Refusal)| {
            refusal.row(Some(*status), reason.clone())
        };
        let mut rows: Vec<_> = listed.iter().map(row).collect();
        if !others.is_empty() {
            let mut all = Refusal::default();
            for (_, refusal) in others {
                all.merge(refusal);
            }
            all.errors = rows.iter().fold(self.refused_count, |left, row| left.saturating_sub(row.errors));
            rows.push(Refused { others: others.len(), ..all.row(None, None) });
        }
        rows
    }
}

impl Sums {
    fn merge(&mut self, other: &Self) {
        self.announced += other.announced;
        self.pulled += other.pulled;
        self.applied += other.applied;
        self.in_use += other.in_use;
        self.first_ns = self.first_ns.into_iter().chain(other.first_ns).min();
        self.took.merge(other.took.clone());
    }

    fn add(&mut self, way: &Way, is_in_use: bool) {
        let steps = [&way.available, &way.pulled, &way.applied];
        for (sum, step) in [&mut self.announced, &mut self.pulled, &mut self.applied].into_iter().zip(steps) {
            *sum += usize::from(step.seen.first().is_some());
        }
        self.in_use += usize::from(is_in_use);
        let first = steps.iter().filter_map(|step| step.seen.first()).min();
        self.first_ns = self.first_ns.into_iter().chain(first).min();
        if let Some(took) = way.time_to_applied_ns() {
            self.took.add(took);
        }
    }

    fn row(&self, app: Option<&str>, id: Option<&str>) -> Version {
        let [p50_ns, p99_ns] = self.took.percentiles([0.5, 0.99]);
        Version {
            app_version_name: app.map(str::to_owned),
            config_id: id.map(str::to_owned),
            announced: self.announced,
            pulled: self.pulled,
            applied: self.applied,
            in_use: self.in_use,
            first_received_at_ns: self.first_ns.unwrap_or_default(),
            p50_ns,
            p99_ns,
            max_ns: self.took.max_ns(),
            others: 0,
        }
    }
}

impl Refusal {
    fn merge(&mut self, other: &Self) {
        self.errors = self.errors.saturating_add(other.errors);
        self.seen.merge(other.seen);
        self.endpoints.extend(other.endpoints.iter().cloned());
    }

    fn row(&self, status_code: Option<i64>, reason_phrase: Option<String>) -> Refused {
        Refused {
            status_code,
            reason_phrase,
            errors: self.errors,
            endpoints: self.endpoints.len(),
            first_received_at_ns: self.seen.first(),
            last_received_at_ns: self.seen.last(),
            others: 0,
        }
    }
}
