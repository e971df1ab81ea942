//! Messages of both flows of MTL.

use bytes::Bytes;
use trunkline_wire::{
    Frames,
    mtl::{
        control::{Command, Reply},
        data::{self, Kind},
    },
};

use super::{COMMAND, REPLY};
use crate::{
    ColumnError,
    writing::{
        StructFields, Writer,
        struct_fields::{Binaries, Flags, Members, Numbers, Texts, Unsigned},
        value::{to_json, to_table},
    },
};

/// The most bytes of the name of a resource, or of a lease.
const NAME: usize = u8::MAX as usize;

pub(crate) struct Messages {
    name: Texts,
    status: Numbers,
    kind: Texts,
    sequence: Unsigned,
    resource: Texts,
    lease_hash: Texts,
    multiple: Flags,
    recycle: Flags,
    properties: Members,
    json: Members,
    body_bytes: Numbers,
    body: Binaries,
}

impl Messages {
    pub(crate) fn of(given: StructFields<'_>) -> Result<Self, ColumnError> {
        Ok(Self {
            name: given.texts("name")?,
            status: given.numbers("status")?,
            kind: given.texts("type")?,
            sequence: given.unsigned("sequence")?,
            resource: given.texts("resource")?,
            lease_hash: given.texts("lease_hash")?,
            multiple: given.flags("multiple")?,
            recycle: given.flags("recycle")?,
            properties: given.members("properties", "property")?,
            json: given.members("json", "json")?,
            body_bytes: given.numbers("body_bytes")?,
            body: given.binaries("body")?,
        })
    }

    fn status(&self, row: usize) -> Result<u16, String> {
        let status = self.status.at(row).and_then(|status| u16::try_from(status).ok());
        status.filter(|status| (200..600).contains(status)).ok_or_else(|| "status is missing, or none".to_owned())
    }

    fn data(&self, row: usize, kind: Kind) -> Result<Frames, String> {
        let sequence = || self.sequence.at(row).ok_or_else(|| "sequence is missing".to_owned());
        let resource = || short("resource", self.resource.at(row));
        let flag = |name, flags: &Flags| flags.at(row).ok_or_else(|| format!("{name} is missing"));
        Ok(match kind {
            Kind::Lease => {
                let hash = self.lease_hash.at(row).ok_or("lease_hash is missing")?;
                // The replacement of a lease in a recording.
                data::lease(sequence()?, short("lease_hash", Some(&format!("…{hash}")))?)
            }
            Kind::Response => data::response(sequence()?, self.status(row)?),
            Kind::Summon => data::summon(sequence()?, resource()?),
            Kind::Dismiss => data::dismiss(sequence()?, resource()?),
            Kind::Content => {
                let properties = self.properties.at(row)?;
                let table = to_table(&properties).map_err(|error| format!("properties: {error:?}"))?;
                if self.body.at(row).is_none() && self.body_bytes.at(row).unwrap_or_default() > 0 {
                    return Err("body is missing: decode with it".to_owned());
                }
                let body = Bytes::copy_from_slice(self.body.at(row).unwrap_or_default());
                data::content(sequence()?, resource()?, &table, body)
            }
            Kind::Confirm => data::confirm(sequence()?, flag("multiple", &self.multiple)?),
            Kind::Reject => {
                data::reject(sequence()?, flag("multiple", &self.multiple)?, flag("recycle", &self.recycle)?)
            }
            Kind::Ping => data::ping(),
            Kind::Pong => data::pong(),
        })
    }
}

impl Writer for Messages {
    fn write(&self, row: usize) -> Result<Option<(Frames, bool)>, String> {
        let slug = self.kind.at(row).ok_or("type is missing")?;
        let body = || to_json(&self.json.at(row)?).map_err(|error| format!("json: {error}"));
        // The frames of a command and of a reply come after the empty one.
        let control = |frames: Frames| [Bytes::new()].into_iter().chain(frames).collect();
        let frames: Frames = match slug {
            COMMAND => {
                let name = self.name.at(row).ok_or("name is missing")?.to_owned();
                control(Command { name, body: body()? }.frames())
            }
            REPLY => control(Reply { status: self.status(row)?, body: body()? }.frames()),
            _ => {
                let kind = Kind::ALL.into_iter().find(|kind| kind.name() == slug);
                self.data(row, kind.ok_or_else(|| format!("type: there is no {slug:?}"))?)?
            }
        };
        Ok(Some((frames, true)))
    }
}

fn short<'a>(name: &str, text: Option<&'a str>) -> Result<&'a str, String> {
    let text = text.ok_or_else(|| format!("{name} is missing"))?;
    if text.len() > NAME { Err(format!("{name} has more than {NAME} bytes")) } else { Ok(text) }
}
