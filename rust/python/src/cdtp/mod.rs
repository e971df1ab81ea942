//! CDTP: messages, and the roles that send, receive and record them.

mod message;
mod receiver;
mod sender;

pub(crate) use message::{Message, PyBatch, decode, encode, restore, restore_batch, settings};
pub(crate) use receiver::PyReceiver;
pub(crate) use sender::{Outgoing, PySender};
