//! mc0: messages, and the roles of its bus.

mod message;
mod text;

pub(crate) use message::{Message, decode, encode, recorded, restore};
