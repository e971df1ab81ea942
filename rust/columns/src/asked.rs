//! What is asked for of a batch: columns that are not are not filled in, as a query of a few reads many rows.

use std::collections::HashSet;

use arrow_buffer::Buffer;

use crate::Mode;

/// What is asked for of a batch.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The columns; all of them if None.
    columns: Option<HashSet<String>>,
    /// The bytes of all payloads, of which columns may be slices.
    payloads: Option<Buffer>,
}

impl Asked {
    /// These columns alone; all of them if None.
    pub(crate) fn only(names: Option<&[String]>) -> Self {
        Self { columns: names.map(|names| names.iter().cloned().collect()), payloads: None }
    }

    /// The same of a batch with these payloads.
    pub(crate) fn of(&self, payloads: Option<Buffer>) -> Self {
        Self { payloads, ..self.clone() }
    }

    /// Whether this column is asked for.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.columns.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Whether one of these columns is, or what is wrong with their values.
    pub(crate) fn has_any<'a>(&self, mut names: impl Iterator<Item = &'a String>, mode: Mode) -> bool {
        mode == Mode::FailFast || self.has("error") || names.any(|name| self.has(name))
    }

    /// The bytes of all payloads, if they are in one buffer.
    pub(crate) const fn payloads(&self) -> Option<&Buffer> {
        self.payloads.as_ref()
    }
}
