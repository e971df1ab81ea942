//! Configurations of CDT, from their announcement to the endpoints.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    mem,
};

use arrow_array::{Array, RecordBatch};
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use trunkline_columns::ColumnError;

use crate::{
    budget::Budget,
    fingerprint::fingerprint,
    fold::Fold,
    ordered::Limits,
    rows::{Chosen, number_at, numbers, text, text_at},
    seen::Seen,
    table::{Cell, Columns, Kind},
};

/// How many configurations of endpoints are followed in a whole table, and how many bytes they and their names may
/// take.
const WAYS: usize = 1 << 20;
const WAYS_BYTES: usize = 256 << 20;

/// About what one takes, and a name besides its text, which is stored twice.
const WAY_BYTES: usize = 128;
const NAME_BYTES: usize = 64;

/// How many of a role's own events are remembered, until they come back to it.
const OWN: usize = 1 << 20;

/// Follows each configuration of each endpoint.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rollout {
    ways: Ways,
    events: Events,
    /// What is left to give at the end, the last one first.
    left: Vec<([u32; 3], Way)>,
}

/// The names of an application, an endpoint and a configuration.
pub(crate) type Of<'a> = [Option<&'a str>; 3];

/// The configurations of endpoints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ways {
    #[serde(skip)]
    limits: Limits,
    /// None begins before this moment any more.
    since_ns: i64,
    names: Names,
    /// By the numbers of the names.
    found: BTreeMap<[u32; 3], Way>,
    bytes: usize,
    /// How many messages are of configurations that are not followed.
    #[serde(alias = "evicted")]
    left_out: u64,
}

/// Names by numbers: each is stored once, however many configurations an endpoint has. Zero is for none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Names {
    texts: Vec<Box<str>>,
    /// Rebuilt after a restore.
    #[serde(skip)]
    numbers: HashMap<Box<str>, u32, RandomState>,
}

/// How far a configuration has come.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Way {
    pub(crate) available: Step,
    pub(crate) pulled: Step,
    pub(crate) applied: Step,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Step {
    /// When it was first and last taken.
    pub(crate) seen: Seen,
    count: u32,
}

/// A role's own events, until they come back to it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Events {
    #[serde(skip)]
    budget: Budget,
    /// By the values shared with those that come back.
    own: HashSet<u128, RandomState>,
    order: VecDeque<u128>,
}

/// A message of CDT, except events that came back to their sender.
pub(crate) struct Message<'a> {
    pub(crate) row: usize,
    pub(crate) kind: &'a str,
    /// The names of its application, endpoint and configuration.
    pub(crate) of: Of<'a>,
    pub(crate) status: Option<i64>,
    pub(crate) at_ns: i64,
    pub(crate) is_chosen: bool,
}

impl Message<'_> {
    /// Whether it answers a request with success.
    pub(crate) fn is_success(&self) -> bool {
        self.kind == "ConfigResponse" && self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

impl Step {
    fn take(&mut self, at_ns: i64) {
        self.seen.add(at_ns);
        self.count = self.count.saturating_add(1);
    }

    fn merge(&mut self, other: &Self) {
        self.seen.merge(other.seen);
        self.count = self.count.saturating_add(other.count);
    }
}

impl Way {
    /// When it was last seen.
    fn last_ns(&self) -> Option<i64> {
        [&self.available, &self.pulled, &self.applied].into_iter().filter_map(|step| step.seen.last()).max()
    }

    fn merge(&mut self, other: &Self) {
        self.available.merge(&other.available);
        self.pulled.merge(&other.pulled);
        self.applied.merge(&other.applied);
    }

    /// From the first announcement to the first report, unless that came before.
    pub(crate) fn time_to_applied_ns(&self) -> Option<i64> {
        let steps = self.available.seen.first().zip(self.applied.seen.first());
        steps.map(|(from, to)| to.saturating_sub(from)).filter(|took| *took >= 0)
    }
}

impl Default for Ways {
    fn default() -> Self {
        Self::within(Budget::default())
    }
}

impl Ways {
    fn within(budget: Budget) -> Self {
        let limits = Limits::of(budget, WAYS, WAYS_BYTES);
        Self { limits, since_ns: i64::MIN, names: Names::default(), found: BTreeMap::new(), bytes: 0, left_out: 0 }
    }

    /// Applies a message to the way of its configuration, if it matters.
    pub(crate) fn take(&mut self, message: &Message<'_>, of: Of<'_>) {
        let is_event = matches!(message.kind, "ConfigNewAvailable" | "ConfigUpdated");
        if !is_event && !message.is_success() {
            return;
        }
        let Some(way) = self.way(of, message.at_ns) else { return };
        let step = match message.kind {
            "ConfigNewAvailable" => &mut way.available,
            "ConfigUpdated" => &mut way.applied,
            _ => &mut way.pulled,
        };
        step.take(message.at_ns);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (of, way) in other.found {
            if let Some(mine) = self.way(of.map(|name| other.names.text(name)), i64::MAX) {
                mine.merge(&way);
            }
        }
        self.left_out = self.left_out.saturating_add(other.left_out);
    }

    /// Forgets those not seen since this moment, and their names.
    fn forget(&mut self, before_ns: i64) {
        self.since_ns = self.since_ns.max(before_ns);
        let is_over = |way: &Way| way.last_ns().is_none_or(|last| last < before_ns);
        if !self.found.values().any(is_over) {
            return;
        }
        let fresh = Self { since_ns: i64::MIN, names: Names::default(), found: BTreeMap::new(), bytes: 0, ..*self };
        let mut before = mem::replace(self, fresh);
        for (of, way) in mem::take(&mut before.found) {
            if !is_over(&way)
                && let Some(mine) = self.way(of.map(|name| before.names.text(name)), i64::MAX)
            {
                *mine = way;
            }
        }
        self.since_ns = before.since_ns;
    }

    /// The way of a configuration; None for a new one if there are too many, or it is late.
    fn way(&mut self, of: Of<'_>, at_ns: i64) -> Option<&mut Way> {
        let names = of.map(|name| self.names.number(name));
        let is_known = names.iter().all(Option::is_some);
        let mut numbers = names.map(Option::unwrap_or_default);
        if !is_known || !self.found.contains_key(&numbers) {
            let new = of.iter().zip(names).filter(|(_, number)| number.is_none());
            let weight = WAY_BYTES + new.map(|(name, _)| NAME_BYTES + 2 * name.map_or(0, str::len)).sum::<usize>();
            let Limits { count, bytes } = self.limits;
            let is_full = self.found.len() >= count || self.bytes.saturating_add(weight) > bytes;
            if is_full || at_ns < self.since_ns {
                self.left_out = self.left_out.saturating_add(1);
                return None;
            }
            self.bytes = self.bytes.saturating_add(weight);
            numbers = of.map(|name| self.names.added(name));
        }
        Some(self.found.entry(numbers).or_default())
    }

    /// The configurations with their names, those of an endpoint together.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Of<'_>, &Way)> {
        self.found.iter().map(|(of, way)| (of.map(|name| self.names.text(name)), way))
    }
}

impl Names {
    /// The text of a number.
    fn text(&self, number: u32) -> Option<&str> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        self.texts.get(at).map(|text| &**text)
    }

    /// The number of a text; None if it is new.
    fn number(&mut self, text: Option<&str>) -> Option<u32> {
        if self.numbers.len() < self.texts.len() {
            self.numbers = self.texts.iter().cloned().zip(1..).collect();
        }
        text.map_or(Some(0), |text| self.numbers.get(text).copied())
    }

    /// The number of a text, added if it is new.
    fn added(&mut self, text: Option<&str>) -> u32 {
        self.number(text).or_else(|| text.map(|text| self.add(text))).unwrap_or_default()
    }

    fn add(&mut self, text: &str) -> u32 {
        self.texts.push(text.into());
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.numbers.insert(text.into(), number);
        number
    }
}

impl Events {
    /// The messages of a batch, without the events that came back to their sender.
    pub(crate) fn messages(
        &mut self,
        batch: &RecordBatch,
        mut take: impl FnMut(&Message<'_>),
    ) -> Result<(), ColumnError> {
        let names = ["capture_id", "type", "correlation_id", "app_version_name", "endpoint_id", "config_id"];
        let [capture_id, kinds, correlation_id, app, endpoint, config] = names
            .map(|name| text(batch, name))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?
            .try_into()
            .map_err(|_| ColumnError::Input("a rollout needs six columns of text".into()))?;
        let (received_at_ns, status) = (numbers(batch, "received_at_ns")?, numbers(batch, "status_code")?);
        let (direction, chosen) = (text(batch, "direction")?, Chosen::of(batch)?);
        for row in 0..batch.num_rows() {
            let Some(kind) = text_at(&kinds, row) else { continue };
            if matches!(kind, "ConfigNewAvailable" | "ConfigUpdated") {
                let same = [&capture_id, &kinds, &correlation_id, &app, &endpoint, &config];
                // An event that lacks a name equals no other.
                let is_named = same.iter().all(|column| column.is_valid(row));
                let number =
                    fingerprint(|mut hasher| same.iter().for_each(|column| text_at(column, row).hash(&mut hasher)));
                if text_at(&direction, row) == Some("out") {
                    self.went_out(number);
                } else if is_named && self.own.contains(&number) {
                    continue;
                }
            }
            take(&Message {
                row,
                kind,
                of: [&app, &endpoint, &config].map(|column| text_at(column, row)),
                status: number_at(&status, row),
                at_ns: received_at_ns.value(row),
                is_chosen: chosen.has(row),
            });
        }
        Ok(())
    }

    fn went_out(&mut self, event: u128) {
        if self.own.insert(event) {
            self.order.push_back(event);
        }
        if self.order.len() > self.budget.share(OWN)
            && let Some(oldest) = self.order.pop_front()
        {
            self.own.remove(&oldest);
        }
    }
}

impl Rollout {
    pub(crate) fn within(budget: Budget) -> Self {
        Self { ways: Ways::within(budget), events: Events { budget, ..Events::default() }, left: Vec::new() }
    }
}

impl Fold for Rollout {
    const NAME: &'static str = "rollout";
    const PROTOCOL: &'static str = "cdt";
    const NEEDS: &'static [&'static str] = &[
        "capture_id",
        "received_at_ns",
        "direction",
        "type",
        "correlation_id",
        "app_version_name",
        "endpoint_id",
        "config_id",
        "status_code",
    ];
    const COLUMNS: Columns = &[
        ("app_version_name", Kind::Text),
        ("endpoint_id", Kind::Text),
        ("config_id", Kind::Text),
        ("available_at", Kind::Moment),
        ("pulled_at", Kind::Moment),
        ("applied_at", Kind::Moment),
        ("time_to_applied_ns", Kind::Number),
        ("announcements", Kind::Number),
        ("pulls", Kind::Number),
        ("reports", Kind::Number),
    ];
    const KEY: &'static [&'static str] = &["app_version_name", "endpoint_id", "config_id"];

    fn ingest(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        let Self { ways, events, .. } = self;
        events.messages(batch, |message| {
            if message.is_chosen {
                ways.take(message, message.of);
            }
        })
    }

    fn emit(&mut self, is_end: bool) -> Option<Vec<Cell>> {
        // The fate of a configuration is only known once there are no more rows.
        if !is_end {
            return None;
        }
        let Self { ways: Ways { names, found, .. }, left, .. } = self;
        if !found.is_empty() {
            left.extend(mem::take(found));
            left.sort_unstable_by(|(one, _), (other, _)| {
                let [one, other] = [other, one].map(|of| of.map(|name| names.text(name)));
                one.cmp(&other)
            });
        }
        let (of, way) = left.pop()?;
        let took = way.time_to_applied_ns();
        let steps = [&way.available, &way.pulled, &way.applied];
        let moments = steps.map(|step| step.seen.first().map_or(Cell::Null, |ns| Cell::Moment(ns.div_euclid(1000))));
        let cells = of.map(|name| names.text(name).map(str::to_owned).into()).into_iter().chain(moments);
        Some(cells.chain([took.into()]).chain(steps.map(|step| Cell::Number(step.count.into()))).collect())
    }

    fn forget(&mut self, before_ns: i64) {
        self.ways.forget(before_ns);
    }

    fn resize(&mut self, budget: Budget) {
        self.ways.limits = Limits::of(budget, WAYS, WAYS_BYTES);
        self.events.budget = budget;
    }

    /// New configurations are left out instead.
    fn evicted(&self) -> u64 {
        0
    }

    fn left_out(&self) -> u64 {
        self.ways.left_out
    }
}
