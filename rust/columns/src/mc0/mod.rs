//! mc0 messages as columns.

mod writing;

use std::sync::Arc;

use arrow_array::{
    ArrayRef,
    types::{Int32Type, Int64Type},
};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::mc0::{Layout, Mc0, OWN, Settings, Verb};

use crate::{
    Asked, Builder, ColumnError, ColumnKind, Input, Message, Mode, Need, Setting, Table,
    faults::Faults,
    output::{Bytes, BytesLists, Numbers, Slugs, TextMaps, list_type, map_type},
    payload::{Column, Fault, Payload, PayloadFrames},
    table::Mismatches,
    writing::{StructFields, Writer},
};

/// The options of decoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The settings of valid frames.
    pub settings: Settings,
    /// The handling of invalid messages.
    pub mode: Mode,
    /// What becomes of the frames of the body.
    pub payload: Payload,
}

impl Table for Mc0 {
    type Options = Options;
    type Rows = Messages;
    type Structs = Messages;

    const OPTIONS: &'static [(&'static str, Setting<Options>)] = &[
        ("mode", Setting::Mode(|options| &mut options.mode)),
        ("payload", Setting::Payload(|options| &mut options.payload)),
    ];
    const INPUTS: &'static [Input] = &[
        Input { name: "envelope", need: Need::Always },
        Input { name: "header", need: Need::Always },
        Input { name: "payload", need: Need::HeadUnless(&["body"]) },
        Input { name: "n_frames", need: Need::For(&["body_frames"]) },
        Input { name: "n_bytes", need: Need::For(&["body_bytes"]) },
    ];
    const KEPT: &'static [&'static str] =
        &["capture_id", "segment", "seq", "received_at_ns", "endpoint", "direction", "peer"];
    const COLUMN_KINDS: &'static [ColumnKind] = &[ColumnKind::PayloadExceedsVariant, ColumnKind::MessageTooLarge];

    fn message_types() -> Vec<&'static str> {
        Verb::ALL.map(Verb::name).into()
    }

    fn settings(options: &Options) -> &Settings {
        &options.settings
    }

    fn mode(options: &Options) -> Mode {
        options.mode
    }

    fn payload(options: &mut Options) -> &mut Payload {
        &mut options.payload
    }

    fn writer(_: &Options, given: StructFields<'_>) -> Result<Box<dyn Writer>, ColumnError> {
        Ok(Box::new(writing::Messages::of(given)?))
    }
}

/// The columns of messages, being built; rows and structs have the same.
#[derive(Debug)]
pub struct Messages {
    verb: Slugs,
    topic: Bytes,
    topics: BytesLists,
    id: Bytes,
    version: Bytes,
    ttl_ms: Numbers<Int64Type>,
    headers: TextMaps,
    text: Bytes,
    body_frames: Numbers<Int32Type>,
    body_bytes: Numbers<Int64Type>,
    body: Column<BytesLists>,
    faults: Faults,
}

impl Builder<Mc0> for Messages {
    fn fields(options: &Options) -> Fields {
        let text = |name| Field::new(name, DataType::Utf8, true);
        let frames = || list_type(DataType::Binary);
        let mut fields = vec![
            text("verb"),
            text("topic"),
            Field::new("topics", list_type(DataType::Utf8), true),
            text("id"),
            text("version"),
            Field::new("ttl_ms", DataType::Int64, true),
            Field::new("headers", map_type(), true),
            text("text"),
            Field::new("body_frames", DataType::Int32, true),
            Field::new("body_bytes", DataType::Int64, true),
        ];
        let payload = options.payload.fields(|| Field::new("body", frames(), true));
        fields.extend(payload.iter().map(|field| field.as_ref().clone()));
        fields.extend(Faults::fields(options.mode));
        fields.into()
    }

    fn new(options: &Options, asked: &Asked) -> Self {
        Self {
            verb: Slugs::asked(asked.has("verb")),
            topic: Bytes::asked(asked.has("topic")),
            topics: BytesLists::asked(asked.has("topics")),
            id: Bytes::asked(asked.has("id")),
            version: Bytes::asked(asked.has("version")),
            ttl_ms: Numbers::asked(asked.has("ttl_ms")),
            headers: TextMaps::asked(asked.has("headers")),
            text: Bytes::asked(asked.has("text")),
            body_frames: Numbers::asked(asked.has("body_frames")),
            body_bytes: Numbers::asked(asked.has("body_bytes")),
            body: Column::new(&options.payload, "body", options.mode, asked),
            faults: Faults::new(options.mode, asked),
        }
    }

    fn bytes(&self) -> usize {
        let texts = [&self.topic, &self.id, &self.version, &self.text];
        self.verb.bytes()
            + texts.into_iter().map(Bytes::bytes).sum::<usize>()
            + self.ttl_ms.bytes()
            + self.headers.bytes()
            + self.body_frames.bytes()
            + self.body_bytes.bytes()
            + self.topics.bytes()
            + self.body.bytes()
            + self.faults.bytes()
    }

    fn mismatches(&self) -> Mismatches {
        self.body.mismatches()
    }

    fn check(&mut self, message: &Message<'_>, layout: &Layout, _: usize) -> Result<(), Fault> {
        let has_body = matches!(layout.verb, Verb::Put | Verb::Message);
        let is_whole = has_body && message.sizes().0 == message.frames.len();
        self.body.check(is_whole.then(|| PayloadFrames::of(&message.frames[layout.body..])), layout.body)
    }

    #[inline]
    fn push(&mut self, message: &Message<'_>, layout: &Layout, _: usize) -> Result<(), ColumnError> {
        let (frames, verb) = (message.frames, layout.verb);
        let is_about_topics = matches!(verb, Verb::Sub | Verb::Unsub);
        let has_body = matches!(verb, Verb::Put | Verb::Message);
        // A message may have parts that its verb does not use.
        let value = |at: Option<usize>, is_there| at.filter(|_| is_there).map(|at| frames[at]);
        self.verb.push(Some(verb.name()));
        self.topic.push_text(value(layout.topic, has_body))?;
        if is_about_topics {
            self.topics.push_text(frames[layout.positional()].iter().copied())?;
        } else {
            self.topics.push_null()?;
        }
        self.id.push_text(layout.id.map(|id| frames[id]))?;
        self.version.push_text(value(layout.version, verb == Verb::Connect))?;
        self.ttl_ms.push(layout.ttl.and_then(|ttl| i64::try_from(ttl.as_millis()).ok()));
        self.push_headers(frames, layout)?;
        self.text.push_text(value(layout.text, verb == Verb::Error))?;
        if has_body {
            let (n_frames, n_bytes) = message.sizes();
            let (head, body) = frames.split_at(layout.body);
            let before: usize = head.iter().map(|frame| frame.len()).sum();
            self.body_frames.push(i32::try_from(n_frames - head.len()).ok());
            self.body_bytes.push(i64::try_from(n_bytes - before).ok());
            let is_whole = n_frames == frames.len();
            let fault = self.body.push(message.row, Some(body), head.len(), is_whole)?;
            return self.faults.push(fault, None);
        }
        self.skip_body()?;
        self.faults.push(None, None)
    }

    fn push_error(&mut self, kind: &'static str, frames: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        self.skip()?;
        self.faults.push(Some(kind), frames)
    }

    fn push_null(&mut self) -> Result<(), ColumnError> {
        self.skip()?;
        self.faults.push(None, None)
    }

    fn finish(mut self, _: &Options) -> Result<Vec<ArrayRef>, ColumnError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.verb.finish()?),
            Arc::new(self.topic.finish_text()?),
            self.topics.finish_text()?,
            Arc::new(self.id.finish_text()?),
            Arc::new(self.version.finish_text()?),
            Arc::new(self.ttl_ms.finish()?),
            self.headers.finish()?,
            Arc::new(self.text.finish_text()?),
            Arc::new(self.body_frames.finish()?),
            Arc::new(self.body_bytes.finish()?),
        ];
        columns.extend(self.body.finish()?);
        columns.extend(self.faults.finish()?);
        Ok(columns)
    }
}

impl Messages {
    /// The headers that are not the protocol's own; of equal names the last, as Spark refuses a map with duplicates.
    #[inline]
    fn push_headers(&mut self, frames: &[&[u8]], layout: &Layout) -> Result<(), ColumnError> {
        let own = || layout.keys().filter(|key| frames[*key].starts_with(OWN));
        if own().nth(1).is_none() {
            return self.headers.push(own().map(|key| (frames[key], frames[key + 1])));
        }
        // Different names may become the same text when invalid bytes are replaced.
        let mut named: Vec<_> = own().map(|key| (String::from_utf8_lossy(frames[key]), key)).collect();
        named.sort_unstable();
        let last = named.chunk_by(|(one, _), (next, _)| one == next).filter_map(<[_]>::last);
        // In the order of the message.
        let mut last: Vec<_> = last.map(|(_, key)| *key).collect();
        last.sort_unstable();
        self.headers.push(last.into_iter().map(|key| (frames[key], frames[key + 1])))
    }

    fn skip(&mut self) -> Result<(), ColumnError> {
        self.verb.push(None);
        for column in [&mut self.topic, &mut self.id, &mut self.version, &mut self.text] {
            column.push(None)?;
        }
        self.topics.push_null()?;
        self.ttl_ms.push(None);
        self.headers.push_null()?;
        self.skip_body()
    }

    fn skip_body(&mut self) -> Result<(), ColumnError> {
        self.body_frames.push(None);
        self.body_bytes.push(None);
        self.body.push_null()
    }
}
