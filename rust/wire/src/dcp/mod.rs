//! DCP: clients send requests to services. A broker queues them and passes them to workers as those become free.

mod broker;
mod client;
mod credit;
mod decode;
mod encode;
mod framing;
mod layout;
mod list;
mod worker;
mod working;

pub use broker::{
    Broker, BrokerEvent, BrokerSettings, BrokerStats, BrokerVerb, ClientAddress, Front, Overflow, ServiceStats,
};
pub use client::{Asking, Client, ClientEvent, ClientSettings, ClientStats, ClientVerb, Outcome};
pub use decode::decode;
pub use encode::{encode_header, encode_register, encode_reply, encode_request};
pub use framing::Dcp;
pub use layout::{Body, Layout, MessageType, Role, Settings, Width};
pub use worker::{Back, JobId, LEAVING, Worker, WorkerEvent, WorkerSettings, WorkerStats, WorkerVerb};
pub use working::{Working, WorkingEvent, WorkingStats, WorkingVerb};
