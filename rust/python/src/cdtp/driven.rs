//! The machines of CDTP, driven by Python.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use trunkline_engine::{Announcing, Either, Snapshot, Together};
use trunkline_wire::SocketOptions;
use trunkline_wire::cdtp::{
    BatchBounds, Layout, ReceiverEvent, ReceiverSettings, ReceiverStats, ReceiverVerb, Sender, SenderEvent,
    SenderSettings, SenderStats, SenderVerb,
};
use trunkline_wire::chirp::{Beacon, BeaconStats, BeaconVerb};

use super::message::{Headers, Message, settings, variant};
use super::receiver::{self, FindingSenders, finding};
use super::sender::{self, Announced};
use crate::chirp::BeaconOptions;
use crate::counters::{add_listening, counters};
use crate::frames::Frame;
use crate::machine::{Given, Make, Spoken, VerbQueue, maker, no_verb};
use crate::role::seconds;

/// Makes a beacon beside each machine, if it needs one.
fn beacons(given: &Given<'_>) -> PyResult<impl Fn([u8; 32]) -> Option<Beacon> + Send + use<>> {
    let options: Option<BeaconOptions> = given.optional("beacon")?.map(|beacon| beacon.extract()).transpose()?;
    let settings = options.map(BeaconOptions::settings);
    Ok(move |seed| settings.clone().map(|settings| Beacon::new(settings, seed)))
}

pub(crate) fn sender_machine(given: &Given<'_>) -> PyResult<Make> {
    let settings = SenderSettings {
        name: given.extract("name")?,
        variant: variant(&given.extract::<String>("header")?)?,
        bind: given.extract("bind")?,
        connect: given.extract("connect")?,
        options: SocketOptions::default(),
        batch: BatchBounds {
            bytes: given.extract("batch_bytes")?,
            time: seconds("batch_s", given.extract("batch_s")?)?,
        },
    };
    let beacon = beacons(given)?;
    Ok(maker(move |_, seed| Together::new(Sender::new(settings.clone()), beacon(seed), Announcing::default())))
}

pub(crate) fn receiver_machine(given: &Given<'_>) -> PyResult<Make> {
    let accept: Headers = given.extract("accept")?;
    let number = |name| given.optional(name)?.map(|count| count.extract::<u64>()).transpose();
    let (limit, message_limit) = (number("limit")?, number("message_limit")?);
    let settings = ReceiverSettings {
        bind: given.extract("bind")?,
        connect: given.extract("connect")?,
        finds: given.optional("beacon")?.is_some(),
        options: SocketOptions::default(),
        decode: settings(accept.slugs(), given.extract("strict")?)?,
        deliver: true,
        limit,
    };
    let beacon = beacons(given)?;
    Ok(maker(move |_, seed| finding(settings.clone(), message_limit, beacon(seed))))
}

impl Spoken for Announced {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<Either<SenderVerb, BeaconVerb>> {
        let optional = |name| given.optional(name);
        let verb = match name {
            "data" => {
                let header = variant(&given.extract::<String>("header")?)?;
                let (tags, timestamp_ns) = (optional("tags")?, optional("timestamp_ns")?);
                sender::data(header, &given.any("payload")?, tags.as_ref(), timestamp_ns.as_ref())?
            }
            "begin_run" => sender::begin_run(&given.any("config")?, optional("timestamp_ns")?.as_ref())?,
            "end_run" => sender::end_run(&given.any("metadata")?, optional("timestamp_ns")?.as_ref())?,
            "raw" => sender::raw(&given.any("frames")?)?,
            "flush" => SenderVerb::Flush,
            other => return no_verb(other),
        };
        Ok(Either::First(verb))
    }

    fn notice<'py>(py: Python<'py>, event: SenderEvent, _: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        sender::notice(event).into_pyobject(py).map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &(SenderStats, BeaconStats)) -> PyResult<Bound<'py, PyDict>> {
        let stats = counters(py, &stats.0)?;
        add_listening(&stats, &Snapshot::<()>::default(), 0)?;
        Ok(stats)
    }
}

impl Spoken for FindingSenders {
    fn verb(name: &str, given: &Given<'_>) -> PyResult<Either<ReceiverVerb, BeaconVerb>> {
        match name {
            "limit" => Ok(Either::First(ReceiverVerb::Limit(given.extract("count")?))),
            other => no_verb(other),
        }
    }

    /// Messages stay together as they came.
    fn notice<'py>(py: Python<'py>, event: ReceiverEvent, _: &Arc<VerbQueue>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let messages = match event {
            ReceiverEvent::Message { frames, layout: Layout::Single(head) } => {
                vec![Message::single(frames.into_iter().map(Frame::Native), head)]
            }
            ReceiverEvent::Message { frames, layout: Layout::Batch(batch) } => {
                let records = batch.records.iter();
                records.filter_map(|record| Some(Message::record(frames.first()?, &batch, record))).collect()
            }
            notice @ (ReceiverEvent::Dropped(_)
            | ReceiverEvent::Found(_)
            | ReceiverEvent::Departed(_)
            | ReceiverEvent::Connection(_)
            | ReceiverEvent::Run { .. }) => return receiver::notice(py, notice),
        };
        ("messages", messages).into_pyobject(py).map(Some)
    }

    fn counters<'py>(py: Python<'py>, stats: &(ReceiverStats, BeaconStats)) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = Snapshot { machine: stats.clone(), ..Snapshot::default() };
        let stats = receiver::stats_dict(py, &snapshot, 0)?;
        add_listening(&stats, &snapshot, 0)?;
        Ok(stats)
    }
}
