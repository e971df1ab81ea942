//! Payloads that are a record in binary Avro.

mod columns;
mod reading;
mod schema;

pub(super) use columns::Columns;
pub(super) use schema::Schema;
