//! The requests of each service of DCP.

use arrow_array::RecordBatch;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use trunkline_columns::ColumnError;

use super::{
    OWN, Scope, Section,
    names::{Names, by_name, coloured, cut_bytes},
    series::{Merge, Series, Times},
};
use crate::{
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

#[derive(Serialize)]
struct Row {
    service: ByteBuf,
    seen_by: &'static str,
    requests: u64,
    replies: u64,
    forwards: u64,
    p50_ns: Option<i64>,
    p90_ns: Option<i64>,
    p99_ns: Option<i64>,
    max_ns: Option<i64>,
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
    const NEEDS: &'static [&'static [&'static str]] = &[Requests::NEEDS];
    const VERSION: u16 = 3;
    type Found = Found;

    fn record(&mut self, batch: &RecordBatch, _chosen: &Chosen, scope: &Scope) -> Result<(), ColumnError> {
        self.requests.take_in(batch)?;
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
        Found {
            services: sorted.iter().take(SERVICES).map(|(name, service)| service.row(name)).collect(),
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
        while let Some(request) = self.requests.leave(is_end) {
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

    fn row(&self, name: &[u8]) -> Row {
        let (role, service) =
            name.split_last().map_or((Role::Broker, &[][..]), |(role, service)| (Role::of(*role), service));
        let [p50_ns, p90_ns, p99_ns] = self.times.percentiles([0.5, 0.9, 0.99]);
        Row {
            service: ByteBuf::from(service),
            seen_by: role.name(),
            requests: self.requests,
            replies: self.replies,
            forwards: self.forwards,
            p50_ns,
            p90_ns,
            p99_ns,
            max_ns: self.times.max_ns(),
        }
    }
}
