//! mc0: a bus of topics. Connectors subscribe to topics and put messages; the middleware delivers them to subscribers.

mod connector;
mod decode;
mod encode;
mod framing;
mod layout;
mod middleware;
mod policy;

pub use connector::{
    Asked, Bus, Connector, ConnectorEvent, ConnectorSettings, ConnectorStats, ConnectorVerb, Outcome, Put,
};
pub use decode::{decode, id};
pub use encode::{Header, ID, MESSAGE, OWN, TOPIC, TTL, VERSION, encode};
pub use framing::Mc0;
pub use layout::{Layout, Settings, Verb};
pub use middleware::{
    Farewell, Front, Middleware, MiddlewareEvent, MiddlewareSettings, MiddlewareStats, MiddlewareVerb, Overflow,
    TopicStats,
};
pub use policy::{Clients, Entry, Policy};
