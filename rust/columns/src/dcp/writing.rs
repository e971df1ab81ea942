//! Messages of DCP.

use bytes::Bytes;
use trunkline_wire::{
    Frames,
    dcp::{MessageType, Width, encode_header, encode_register, encode_reply, encode_request},
};

use crate::{
    ColumnError,
    writing::{
        StructFields, Writer,
        struct_fields::{Binaries, Lists, Numbers, Texts},
    },
};

pub(crate) struct Messages {
    kind: Texts,
    service: Binaries,
    client: Binaries,
    metadata: Lists,
    data: Lists,
    data_parts: Numbers,
}

impl Messages {
    pub(crate) fn of(given: StructFields<'_>) -> Result<Self, ColumnError> {
        Ok(Self {
            kind: given.texts("type")?,
            service: given.binaries("service")?,
            client: given.binaries("client")?,
            metadata: given.lists("metadata")?,
            data: given.lists("data")?,
            data_parts: given.numbers("data_parts")?,
        })
    }
}

impl Writer for Messages {
    fn write(&self, row: usize) -> Result<Option<(Frames, bool)>, String> {
        let slug = self.kind.at(row).ok_or("type is missing")?;
        let kind = MessageType::ALL.into_iter().find(|kind| kind.slug() == slug);
        let kind = kind.ok_or_else(|| format!("type: there is no {slug:?}"))?;
        let service = || Ok::<_, String>(Bytes::copy_from_slice(self.service.at(row).ok_or("service is missing")?));
        let client = self.client.at(row).map(Bytes::copy_from_slice);
        let parts = |list: Option<Vec<&[u8]>>| -> Vec<Bytes> {
            list.into_iter().flatten().map(Bytes::copy_from_slice).collect()
        };
        let metadata = parts(self.metadata.at(row));
        if metadata.iter().any(Bytes::is_empty) {
            return Err("metadata: a part is empty".to_owned());
        }
        if self.data.at(row).is_none() && self.data_parts.at(row).unwrap_or_default() > 0 {
            return Err("data is missing: decode with it".to_owned());
        }
        let data = parts(self.data.at(row));
        let frames = match kind {
            MessageType::Register => encode_register(service()?),
            MessageType::Request => encode_request(service()?, client, &metadata, &data),
            MessageType::Reply => encode_reply(client.ok_or("client is missing")?, &metadata, &data),
            MessageType::Ping | MessageType::Pong | MessageType::Reconnect => encode_header(kind, Width::One),
        };
        Ok(Some((frames, true)))
    }
}
