//! CDTP: messages, and the roles that send, receive and record them.

mod message;
mod receiver;
mod sender;

pub(crate) use message::{Message, PyBatch, decode, encode, restore, restore_batch};
pub(crate) use receiver::PyReceiver;
pub(crate) use sender::{Outgoing, PySender};

use pyo3::prelude::*;

use crate::rooms::Room;

pub(crate) static ROOM: Room = Room { name: "cdtp", decode: Some(message::recorded) };

#[pymodule(submodule, name = "cdtp")]
pub(crate) mod module {
    #[pymodule_export]
    use super::{Message, Outgoing, PyBatch, PyReceiver, PySender, decode, encode, restore, restore_batch};
}
