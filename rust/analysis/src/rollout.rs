//! Configurations of CDT on their way to endpoints.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    hash::Hash,
};

use arrow_array::{Array, RecordBatch};
use foldhash::quality::RandomState;
use serde::{Deserialize, Serialize};
use trunkline_columns::ColumnError;

use crate::{
    alike::number,
    fold::Fold,
    rows::{Chosen, number_at, numbers, text, text_at},
    seen::Seen,
    table::{Cell, Columns, Kind},
};

/// How many configurations of endpoints are followed, and how many bytes their names may take.
const WAYS: usize = 1 << 20;
const NAMES_BYTES: usize = 256 << 20;

/// How many events of a role's own are remembered, until they come back to it.
const OWN: usize = 1 << 20;

/// Follows each configuration of each endpoint.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Rollout {
    ways: Ways,
    events: Events,
}

/// The name of an application, an endpoint and a configuration.
pub(crate) type Of = [Option<String>; 3];

/// The configurations of endpoints.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Ways {
    pub(crate) found: BTreeMap<Of, Way>,
    bytes: usize,
    let_go: u64,
}

/// How far a configuration has come.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Way {
    pub(crate) available: Step,
    pub(crate) pulled: Step,
    pub(crate) applied: Step,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Step {
    /// When it was first taken and when last.
    pub(crate) seen: Seen,
    count: i64,
}

/// The events of a role's own, until they come back to it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Events {
    /// By what they have in common with those that come back.
    own: HashSet<u128, RandomState>,
    order: VecDeque<u128>,
    let_go: u64,
}

/// A message of CDT that did not come back to the role that sent it.
pub(crate) struct Message<'a> {
    pub(crate) row: usize,
    pub(crate) kind: &'a str,
    /// The names of its application, endpoint and configuration.
    pub(crate) of: [Option<&'a str>; 3],
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

impl Ways {
    /// A message takes a configuration further, or does not.
    pub(crate) fn take(&mut self, message: &Message<'_>, of: [Option<&str>; 3]) {
        let is_event = matches!(message.kind, "ConfigNewAvailable" | "ConfigUpdated");
        if !is_event && !message.is_success() {
            return;
        }
        let Some(way) = self.way(of.map(|name| name.map(str::to_owned))) else { return };
        let step = match message.kind {
            "ConfigNewAvailable" => &mut way.available,
            "ConfigUpdated" => &mut way.applied,
            _ => &mut way.pulled,
        };
        step.take(message.at_ns);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for (of, way) in other.found {
            if let Some(mine) = self.way(of) {
                mine.merge(&way);
            }
        }
        self.let_go += other.let_go;
    }

    /// The way of a configuration; None of a new one where there are too many.
    fn way(&mut self, of: Of) -> Option<&mut Way> {
        if !self.found.contains_key(&of) {
            let weight = 200 + of.iter().flatten().map(String::len).sum::<usize>();
            if self.found.len() >= WAYS || self.bytes + weight > NAMES_BYTES {
                self.let_go += 1;
                return None;
            }
            self.bytes += weight;
        }
        Some(self.found.entry(of).or_default())
    }
}

impl Events {
    /// The messages of a batch, without the events that came back to the role that sent them.
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
                // An event that lacks a name is equal to no other.
                let is_named = same.iter().all(|column| column.is_valid(row));
                let number = number(|mut hasher| same.iter().for_each(|column| text_at(column, row).hash(&mut hasher)));
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
        if self.order.len() > OWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.own.remove(&oldest);
            self.let_go += 1;
        }
    }
}

impl Fold for Rollout {
    const NAME: &'static str = "rollout";
    const VERSION: u16 = 1;
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

    fn take_in(&mut self, batch: &RecordBatch) -> Result<(), ColumnError> {
        let Self { ways, events } = self;
        events.messages(batch, |message| {
            if message.is_chosen {
                ways.take(message, message.of);
            }
        })
    }

    fn next(&mut self, is_end: bool) -> Option<Vec<Cell>> {
        // What happened to one is only known once there are no more rows.
        let (of, way) = if is_end { self.ways.found.pop_first()? } else { return None };
        let took = way.time_to_applied_ns();
        let steps = [&way.available, &way.pulled, &way.applied];
        let moments = steps.map(|step| step.seen.first().map_or(Cell::Null, |ns| Cell::Moment(ns.div_euclid(1000))));
        let cells = of.map(Cell::from).into_iter().chain(moments);
        Some(cells.chain([took.into()]).chain(steps.map(|step| Cell::Number(step.count))).collect())
    }

    fn let_go(&self) -> u64 {
        self.ways.let_go + self.events.let_go
    }
}
