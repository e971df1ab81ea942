//! The requests of each service of DCP.

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trunkline_columns::ColumnError;

use super::{
    OWN, Scope, Section,
    names::{Names, by_name, coloured, common_role, cut_bytes},
    series::{Merge, Series, Times},
};
use crate::{
    divide::{Choice, Key},
    fold::Fold,
    requests::{Outcome, Request, Requests, Role},
    rows::Chosen,
};

/// How many services are listed.
const SERVICES: usize = 200;

/// Counts requests.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Dcp {
    requests: Requests,
    /// By the service's name and, in the last byte, the role that saw them.
    services: Names<Service>,
    left_out: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Service {
    requests: u64,
    replies: u64,
    forwards: u64,
    times: Times,
    rates: Series,
    over: Series,
}

#[derive(Serialize)]
pub(super) struct Found {
    services: Vec<Row>,
    service_count: usize,
    beyond: u64,
    left_out: bool,
    rates: Vec<(i32, Series)>,
    over: Vec<(i32, Series)>,
    latencies: Vec<(i32, Series)>,
}

/// A service, or others together.
#[derive(Serialize)]
struct Row {
    service: Option<ByteBuf>,
    seen_by: Option<&'static str>,
    requests: u64,
    replies: u64,
    forwards: u64,
    p50_ns: Option<i64>,
    p90_ns: Option<i64>,
    p99_ns: Option<i64>,
    max_ns: Option<i64>,
    others: usize,
}

impl Merge for Service {
    fn merge(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.replies = self.replies.saturating_add(other.replies);
        self.forwards = self.forwards.saturating_add(other.forwards);
        self.times.merge(other.times);
        self.rates.merge(&other.rates);
        self.over.merge(&other.over);
    }

    fn halve(&mut self) {
        self.rates.halve();
        self.over.halve();
    }
}

impl Section for Dcp {
    const PROTOCOL: &'static str = "dcp";
    // The address of the client, which only the rows of a broker have, and the metadata.
    const KEY: Key = &[
        &[Choice::always("capture_id")],
        &[
            Choice { column: "client", when: &[("peer", None)] },
            Choice { column: "peer", when: &[("direction", Some("in")), ("type", Some("request"))] },
        ],
        &[Choice::always("metadata")],
    ];
    const NEEDS: &'static [&'static [&'static str]] = &[Requests::NEEDS];
    const VERSION: u16 = 4;
    type Found = Found;

    fn record(&mut self, batch: &RecordBatch, _chosen: &Chosen, scope: &Scope) -> Result<(), ColumnError> {
        self.requests.ingest(batch)?;
        self.count(scope, false);
        Ok(())
    }

    fn finish(&mut self, scope: &Scope) {
        self.count(scope, true);
        self.requests = Requests::default();
    }

    fn merge(&mut self, other: Self) {
        self.services.merge(other.services);
        self.left_out |= other.left_out;
    }

    fn halve(&mut self) {
        self.services.halve();
    }

    fn evaluate(&self, _scope: &Scope, _buckets: i32) -> Found {
        let sorted = self.services.sorted(|service| service.requests, by_name);
        let every = || sorted.iter().map(|(_, service)| *service).chain([self.services.rest()]);
        let mut services: Vec<_> = sorted.iter().take(SERVICES).map(|(name, service)| service.named(name)).collect();
        if let Some((others, sum)) = self.services.others(&sorted, SERVICES) {
            let role = common_role(sorted.iter().skip(SERVICES).map(|(name, _)| *name));
            services.push(Row { others, ..sum.row(None, role) });
        }
        Found {
            services,
            service_count: self.services.len(),
            beyond: self.services.beyond(),
            left_out: self.left_out,
            rates: coloured(every().map(|service| &service.rates)),
            over: coloured(every().map(|service| &service.over)),
            latencies: coloured(every().map(|service| service.times.classes())),
        }
    }
}

impl Dcp {
    fn count(&mut self, scope: &Scope, is_end: bool) {
        while let Some(request) = self.requests.next_request(is_end) {
            let service = request.service.as_ref().map_or(&[][..], |service| service);
            if !scope.has_own && service.starts_with(OWN.as_bytes()) {
                self.left_out = true;
                continue;
            }
            let mut name = cut_bytes(service).to_vec();
            name.push(request.role as u8);
            self.services.of(&name).add(&request, scope);
        }
    }
}

impl Service {
    fn add(&mut self, request: &Request, scope: &Scope) {
        self.requests += 1;
        let outcome = request.outcome();
        self.replies += u64::from(outcome == Outcome::Reply);
        self.forwards += u64::from(outcome == Outcome::Forward);
        self.rates.add(scope.clock.bucket(request.at_ns), 1);
        if let Some(latency_ns) = request.latency_ns() {
            self.times.add(latency_ns);
        }
        // A forwarded or undeliverable request is over with the worker's response.
        let queued_ns = request.queued_ns().unwrap_or_default();
        let worked = request.worked_ns().map(|worked_ns| worked_ns.saturating_add(queued_ns));
        if let Some(took) = request.latency_ns().or(worked) {
            self.over.add(scope.clock.bucket(request.at_ns.saturating_add(took)), 1);
        }
    }

    fn named(&self, name: &[u8]) -> Row {
        let (role, service) = name.split_last().unwrap_or((&(Role::Broker as u8), &[]));
        self.row(Some(ByteBuf::from(service)), Some(*role))
    }

    fn row(&self, service: Option<ByteBuf>, role: Option<u8>) -> Row {
        let [p50_ns, p90_ns, p99_ns] = self.times.percentiles([0.5, 0.9, 0.99]);
        Row {
            service,
            seen_by: role.map(|role| Role::of(role).name()),
            requests: self.requests,
            replies: self.replies,
            forwards: self.forwards,
            p50_ns,
            p90_ns,
            p99_ns,
            max_ns: self.times.max_ns(),
            others: 0,
        }
    }
}
