//! mc0: messages, and the roles of its bus.

mod driven;
mod message;
mod middleware;
mod text;

pub(crate) use driven::middleware_machine;
pub(crate) use message::{Message, decode, encode, recorded, restore};
pub(crate) use middleware::PyMiddleware;
