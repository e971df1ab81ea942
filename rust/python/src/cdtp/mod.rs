//! CDTP: messages, and the roles that send, receive and record them.

mod driven;
mod message;
mod receiver;
mod sender;

pub(crate) use driven::{receiver_machine, sender_machine};
pub(crate) use message::{Message, PyBatch, decode, encode, recorded, restore, restore_batch};
pub(crate) use receiver::PyReceiver;
pub(crate) use sender::{Outgoing, PySender};
