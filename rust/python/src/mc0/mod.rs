//! mc0: messages, and the roles of its bus.

mod connector;
mod driven;
mod message;
mod middleware;
mod text;

pub(crate) use connector::{OutgoingPut, PyConnector};
pub(crate) use driven::{connector_machine, middleware_machine};
pub(crate) use message::{Message, decode, encode, recorded, restore};
pub(crate) use middleware::PyMiddleware;
