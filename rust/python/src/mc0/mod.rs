//! mc0: messages, and the roles of its bus.

mod connector;
mod message;
mod middleware;
mod text;

pub(crate) use connector::{OutgoingPut, PyConnector};
pub(crate) use message::{Message, decode, encode, restore};
pub(crate) use middleware::PyMiddleware;

use pyo3::prelude::*;

use crate::rooms::Room;

pub(crate) static ROOM: Room = Room { name: "mc0", decode: Some(message::recorded) };

#[pymodule(submodule, name = "mc0")]
pub(crate) mod module {
    #[pymodule_export]
    use super::{Message, OutgoingPut, PyConnector, PyMiddleware, decode, encode, restore};
}
