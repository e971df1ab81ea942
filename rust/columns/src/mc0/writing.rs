//! Messages of mc0.

use bytes::Bytes;
use trunkline_wire::{
    Frames,
    mc0::{ID, MESSAGE, OWN, TOPIC, TTL, VERSION, Verb, encode},
};

use crate::{
    ColumnError,
    writing::{
        StructFields, Writer,
        struct_fields::{Lists, Maps, Numbers, Texts},
    },
};

pub(crate) struct Messages {
    verb: Texts,
    topic: Texts,
    topics: Lists,
    id: Texts,
    version: Texts,
    ttl_ms: Numbers,
    headers: Maps,
    text: Texts,
    body: Lists,
    body_frames: Numbers,
}

impl Messages {
    pub(crate) fn of(given: StructFields<'_>) -> Result<Self, ColumnError> {
        Ok(Self {
            verb: given.texts("verb")?,
            topic: given.texts("topic")?,
            topics: given.lists("topics")?,
            id: given.texts("id")?,
            version: given.texts("version")?,
            ttl_ms: given.numbers("ttl_ms")?,
            headers: given.maps("headers")?,
            text: given.texts("text")?,
            body: given.lists("body")?,
            body_frames: given.numbers("body_frames")?,
        })
    }
}

impl Writer for Messages {
    fn write(&self, row: usize) -> Result<Option<(Frames, bool)>, String> {
        let name = self.verb.at(row).ok_or("verb is missing")?;
        let verb = Verb::from_frame(name.as_bytes()).ok_or_else(|| format!("verb: there is no {name:?}"))?;
        let has_body = matches!(verb, Verb::Put | Verb::Message);
        if has_body && self.topic.at(row).is_none() {
            return Err("topic is missing".to_owned());
        }
        let ttl = self.ttl_ms.at(row).map(|ttl| ttl.to_string());
        let own = [
            (TOPIC, self.topic.at(row)),
            (ID, self.id.at(row)),
            (VERSION, self.version.at(row)),
            (TTL, ttl.as_deref()),
            (MESSAGE, self.text.at(row)),
        ];
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let mut headers: Vec<_> =
            own.into_iter().filter_map(|(key, value)| Some((Bytes::from_static(key), bytes(value?)))).collect();
        for (key, value) in self.headers.at(row) {
            if !key.as_bytes().starts_with(OWN) {
                return Err(format!("headers: {key:?} does not begin with X-"));
            }
            headers.push((bytes(&key), bytes(&value)));
        }
        let positional = if has_body {
            if self.body.at(row).is_none() && self.body_frames.at(row).unwrap_or_default() > 0 {
                return Err("body is missing: decode with it".to_owned());
            }
            self.body.at(row)
        } else {
            self.topics.at(row)
        };
        let positional: Vec<_> = positional.into_iter().flatten().map(Bytes::copy_from_slice).collect();
        Ok(Some((encode(verb, headers, &positional), true)))
    }
}
