//! Messages of CDT.

use bytes::Bytes;
use trunkline_wire::{
    Frames,
    cdt::{Content, Kind, Message, Settings, encode},
};

use crate::{
    ColumnError,
    writing::{
        StructFields, Writer,
        struct_fields::{Binaries, Numbers, Texts},
    },
};

pub(crate) struct Messages {
    settings: Settings,
    kind: Texts,
    correlation_id: Texts,
    timestamp_ms: Numbers,
    timeout_ms: Numbers,
    endpoint_message_id: Texts,
    app_version_name: Texts,
    endpoint_id: Texts,
    config_id: Texts,
    content_type: Texts,
    status_code: Numbers,
    reason_phrase: Texts,
    originator_replica_id: Texts,
    content_bytes: Numbers,
    content: Binaries,
}

impl Messages {
    pub(crate) fn of(settings: Settings, given: StructFields<'_>) -> Result<Self, ColumnError> {
        Ok(Self {
            settings,
            kind: given.texts("type")?,
            correlation_id: given.texts("correlation_id")?,
            timestamp_ms: given.numbers("timestamp_ms")?,
            timeout_ms: given.numbers("timeout_ms")?,
            endpoint_message_id: given.texts("endpoint_message_id")?,
            app_version_name: given.texts("app_version_name")?,
            endpoint_id: given.texts("endpoint_id")?,
            config_id: given.texts("config_id")?,
            content_type: given.texts("content_type")?,
            status_code: given.numbers("status_code")?,
            reason_phrase: given.texts("reason_phrase")?,
            originator_replica_id: given.texts("originator_replica_id")?,
            content_bytes: given.numbers("content_bytes")?,
            content: given.binaries("content")?,
        })
    }
}

impl Writer for Messages {
    fn write(&self, row: usize) -> Result<Option<(Frames, bool)>, String> {
        // A message of another subject, or an empty answer, has no kind.
        let Some(name) = self.kind.at(row) else { return Ok(None) };
        let kind = Kind::named(name).ok_or_else(|| format!("type: there is no {name:?}"))?;
        if self.content.at(row).is_none() && self.content_bytes.at(row).unwrap_or_default() > 0 {
            return Err("content is missing: decode with it".to_owned());
        }
        let status = self.status_code.at(row).unwrap_or_default();
        let empty = (self.content_bytes.at(row) == Some(0)).then_some(&[][..]);
        let text = |column: &'_ Texts| column.at(row).map(str::to_owned).unwrap_or_default().into();
        let message = Message {
            kind,
            correlation_id: text(&self.correlation_id),
            timestamp_ms: self.timestamp_ms.at(row).ok_or("timestamp_ms is missing")?,
            timeout_ms: self.timeout_ms.at(row).unwrap_or_default(),
            endpoint_message_id: text(&self.endpoint_message_id),
            app_version_name: text(&self.app_version_name),
            endpoint_id: text(&self.endpoint_id),
            config_id: text(&self.config_id),
            content_type: text(&self.content_type),
            status_code: i32::try_from(status).map_err(|_| format!("status_code: there is no {status}"))?,
            reason_phrase: text(&self.reason_phrase),
            originator_replica_id: text(&self.originator_replica_id),
            content: self.content.at(row).or(empty).map(Content::Part),
        };
        Ok(Some((Frames::from_iter([Bytes::from(encode(&message, &self.settings))]), true)))
    }
}
