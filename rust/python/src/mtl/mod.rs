//! MTL: messages of both flows, field tables, and the roles.

mod client;
mod flow;
mod json;
mod message;
mod server;
mod table;

pub(crate) use client::PyClient;
pub(crate) use flow::{PyContent, PyFlow, PyOutbound};
pub(crate) use message::{PyCommand, PyMessage, PyReply, decode, encode, restore};
pub(crate) use server::{PyServer, define_queues};
pub(crate) use table::{decode_table, encode_table};

use pyo3::prelude::*;

use crate::rooms::Room;

pub(crate) static ROOM: Room = Room { name: "mtl", decode: Some(message::recorded) };

#[pymodule(submodule, name = "mtl")]
pub(crate) mod module {
    #[pymodule_export]
    use super::{
        PyClient, PyCommand, PyContent, PyFlow, PyMessage, PyOutbound, PyReply, PyServer, decode, decode_table,
        define_queues, encode, encode_table, restore,
    };
}
