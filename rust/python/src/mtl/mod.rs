//! MTL: messages of both flows, field tables, and the roles.

mod client;
mod driven;
mod flow;
mod json;
mod message;
mod server;
mod table;

pub(crate) use client::PyClient;
pub(crate) use driven::{client_machine, server_machine};
pub(crate) use flow::flow_machine;
pub(crate) use flow::{PyContent, PyFlow, PyOutbound};
pub(crate) use message::{PyCommand, PyMessage, PyReply, decode, encode, recorded, restore};
pub(crate) use server::PyServer;
pub(crate) use table::{decode_table, encode_table};
