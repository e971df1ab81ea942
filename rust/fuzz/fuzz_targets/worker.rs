//! A worker of DCP, at any time and in any order.
#![no_main]

use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use trunkline_fuzz::{Calls, Input, drive, messages};
use trunkline_wire::dcp::{JobId, Worker, WorkerEvent, WorkerSettings, WorkerVerb};
use trunkline_wire::{Frames, Nanos};

#[derive(Default)]
struct Any {
    jobs: Vec<JobId>,
}

impl Calls<Worker> for Any {
    fn message(&mut self, input: &mut Input<'_>) -> Option<(Option<Bytes>, Frames)> {
        messages::dcp(input).map(|frames| (None, frames))
    }

    fn verb(&mut self, input: &mut Input<'_>) -> Option<WorkerVerb> {
        let how = input.byte()?;
        let at = usize::from(how >> 2) % self.jobs.len().max(1);
        // One that it never gave, or gave and has its answer, does no harm either.
        let job = self.jobs.get(at).copied().unwrap_or(JobId(u64::from(how)));
        let data = input.several(Input::bytes)?;
        Some(match how % 4 {
            0 => WorkerVerb::Reply { job, data },
            1 => WorkerVerb::Fail { job, data },
            2 => WorkerVerb::Forward { job, service: messages::service(input)?, data },
            _ => WorkerVerb::Abandon(job),
        })
    }

    fn told(&mut self, event: WorkerEvent) {
        if let WorkerEvent::Request { job, .. } = event {
            self.jobs.push(job);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let Some(how) = input.byte() else { return };
    let settings = WorkerSettings {
        service: Bytes::from_static(b"echo"),
        connect: (0..=how % 3).map(|port| format!("tcp://127.0.0.1:{}", port + 1)).collect(),
        concurrency: usize::from(how >> 2 & 3) + 1,
        heartbeat_interval: Duration::from_millis(2500),
        ..WorkerSettings::default()
    };
    drive(Worker::new(Nanos(0), settings, [how; 32]), Any::default(), input.0);
});
