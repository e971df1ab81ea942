//! MTL messages of both flows as columns.

mod writing;

use std::sync::Arc;

use arrow_array::{
    ArrayRef,
    builder::BooleanBuilder,
    types::{Decimal128Type, Int32Type, Int64Type},
};
use arrow_schema::{DataType, Field, Fields};
use trunkline_wire::{
    DecodeError, Protocol as _,
    mtl::{
        Mtl, Spoken,
        control::Json,
        data::{Kind, Layout},
        lease_hash,
    },
};

use crate::{
    Asked, Builder, ColumnError, ColumnKind, Input, Message, Mode, Need, Setting, Table, Tags,
    faults::Faults,
    item::Fields as ItemFields,
    output::{Bytes, Numbers, Slugs},
    payload::{Column, Fault, Payload, PayloadFrames},
    table::Mismatches,
    tags::{self, TagColumns},
    writing::{StructFields, Writer},
};

/// The digits of an unsigned number in 64 bits.
const DIGITS: u8 = 20;

/// The names of the messages of the control flow.
pub(crate) const COMMAND: &str = "command";
pub(crate) const REPLY: &str = "reply";

/// The options of decoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The columns of the properties of contents.
    pub properties: Tags,
    /// The columns of the bodies of commands and replies.
    pub json: Tags,
    /// The handling of invalid messages.
    pub mode: Mode,
    /// What becomes of the bodies of contents.
    pub payload: Payload,
}

impl Table for Mtl {
    type Options = Options;
    type Rows = Messages;
    type Structs = Messages;

    const OPTIONS: &'static [(&'static str, Setting<Options>)] = &[
        ("properties", Setting::Tags(|options| &mut options.properties)),
        ("json", Setting::Tags(|options| &mut options.json)),
        ("mode", Setting::Mode(|options| &mut options.mode)),
        ("payload", Setting::Payload(|options| &mut options.payload)),
    ];
    const INPUTS: &'static [Input] = &[
        Input { name: "envelope", need: Need::Always },
        Input { name: "header", need: Need::Always },
        Input { name: "payload", need: Need::HeadUnless(&["body"]) },
        // It distinguishes a body that was left out from one that does not exist.
        Input { name: "n_frames", need: Need::Always },
        Input { name: "n_bytes", need: Need::For(&["body_bytes"]) },
        Input { name: "topic", need: Need::For(&["resource"]) },
    ];
    const KEPT: &'static [&'static str] =
        &["capture_id", "segment", "seq", "received_at_ns", "endpoint", "direction", "peer"];
    const COLUMN_KINDS: &'static [ColumnKind] =
        &[ColumnKind::PropertiesExceedVariant, ColumnKind::PayloadExceedsVariant, ColumnKind::MessageTooLarge];

    fn message_types() -> Vec<&'static str> {
        [COMMAND, REPLY].into_iter().chain(Kind::ALL.map(Kind::name)).collect()
    }

    fn settings(_: &Options) -> &() {
        &()
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

    /// A data header has everything except what a response answers, so any other body may be left out.
    #[inline]
    fn read(message: &Message<'_>, (): &()) -> Result<Spoken, DecodeError> {
        match (message.frames, message.n_frames) {
            ([header], Some(2)) => Self::decode(&[*header, &[]], &()),
            (frames, _) => Self::decode(frames, &()),
        }
    }
}

/// The columns of messages, being built; rows and structs have the same.
#[derive(Debug)]
pub struct Messages {
    flow: Slugs,
    name: Bytes,
    status: Numbers<Int32Type>,
    message_type: Slugs,
    sequence: Numbers<Decimal128Type>,
    resource: Bytes,
    lease_hash: Bytes,
    multiple: BooleanBuilder,
    recycle: BooleanBuilder,
    properties: TagColumns,
    json: TagColumns,
    body_bytes: Numbers<Int64Type>,
    body: Column<Bytes>,
    faults: Faults,
    strict: bool,
}

/// The values of a row; missing ones are null.
#[derive(Default)]
struct Row<'a> {
    flow: Option<&'static str>,
    name: Option<&'a str>,
    status: Option<u16>,
    message_type: Option<&'static str>,
    sequence: Option<u64>,
    resource: Option<&'a [u8]>,
    lease: Option<&'a str>,
    multiple: Option<bool>,
    recycle: Option<bool>,
    properties: Option<&'a [u8]>,
    json: Option<&'a Json>,
    body_bytes: Option<usize>,
    /// No frame, or one.
    body: Option<&'a [&'a [u8]]>,
}

impl<'a> Row<'a> {
    #[inline]
    fn of(message: &Message<'a>, said: &'a Spoken) -> Self {
        match said {
            Spoken::Command(command) => {
                Self { name: Some(&command.name), message_type: Some(COMMAND), ..Self::control(&command.body) }
            }
            Spoken::Reply(reply) => {
                Self { status: Some(reply.status), message_type: Some(REPLY), ..Self::control(&reply.body) }
            }
            Spoken::Data(layout) => Self::data(message, layout),
        }
    }

    fn control(json: &'a Json) -> Self {
        let lease = json.get("lease").and_then(|lease| lease.as_str());
        Self { flow: Some("control"), json: Some(json), lease, ..Self::default() }
    }

    #[inline]
    fn data(message: &Message<'a>, layout: &Layout) -> Self {
        let header = message.frames[0];
        let kind = layout.kind;
        let is = |kinds: &[Kind]| kinds.contains(&kind);
        let name = &header[layout.name.clone()];
        let is_content = is(&[Kind::Content]);
        // A lease of one resource need not name it.
        let meant = message.topic.map(str::as_bytes).filter(|_| is_content && name.is_empty());
        let body = message.frames.get(1..2).filter(|_| is_content);
        Self {
            flow: Some("data"),
            status: is(&[Kind::Response]).then_some(layout.status),
            message_type: Some(kind.name()),
            sequence: (!is(&[Kind::Ping, Kind::Pong])).then_some(layout.sequence),
            resource: meant.or_else(|| kind.names_resource().then_some(name)),
            // The decoder has checked that it is text.
            lease: is(&[Kind::Lease]).then(|| str::from_utf8(name).unwrap_or_default()),
            multiple: is(&[Kind::Confirm, Kind::Reject]).then_some(layout.multiple),
            recycle: is(&[Kind::Reject]).then_some(layout.recycle),
            properties: is_content.then(|| &header[layout.table.clone()]),
            body_bytes: is_content.then(|| message.sizes().1 - header.len()),
            body,
            ..Self::default()
        }
    }
}

/// The hash of a lease; if the recording replaced the lease, its replacement.
fn hash_of(lease: &str) -> String {
    let is_hash = |hash: &&str| hash.len() == 16 && hash.bytes().all(|digit| digit.is_ascii_hexdigit());
    let kept = lease.strip_prefix('…').filter(is_hash).map(str::to_owned);
    kept.unwrap_or_else(|| lease_hash(lease).trim_start_matches('…').to_owned())
}

impl Builder<Mtl> for Messages {
    fn fields(options: &Options) -> Fields {
        let text = |name| Field::new(name, DataType::Utf8, true);
        let boolean = |name| Field::new(name, DataType::Boolean, true);
        let mut fields = vec![
            text("flow"),
            text("name"),
            Field::new("status", DataType::Int32, true),
            text("type"),
            Field::new("sequence", DataType::Decimal128(DIGITS, 0), true),
            text("resource"),
            text("lease_hash"),
            boolean("multiple"),
            boolean("recycle"),
        ];
        fields.extend(tags::fields(&options.properties, "property", "properties"));
        fields.extend(tags::fields(&options.json, "json", "json"));
        fields.push(Field::new("body_bytes", DataType::Int64, true));
        let payload = options.payload.fields(|| Field::new("body", DataType::Binary, true));
        fields.extend(payload.iter().map(|field| field.as_ref().clone()));
        fields.extend(Faults::fields(options.mode));
        fields.into()
    }

    fn new(options: &Options, asked: &Asked) -> Self {
        Self {
            flow: Slugs::asked(asked.has("flow")),
            name: Bytes::asked(asked.has("name")),
            status: Numbers::asked(asked.has("status")),
            message_type: Slugs::asked(asked.has("type")),
            sequence: Numbers::asked(asked.has("sequence")),
            resource: Bytes::asked(asked.has("resource")),
            lease_hash: Bytes::asked(asked.has("lease_hash")),
            multiple: BooleanBuilder::new(),
            recycle: BooleanBuilder::new(),
            properties: TagColumns::asked(
                (&options.properties, "property", "properties"),
                ColumnKind::PropertiesExceedVariant,
                options.mode,
                asked,
            ),
            // A command has 1 MiB of it at most, which always fits a VARIANT.
            json: TagColumns::asked((&options.json, "json", "json"), ColumnKind::MessageTooLarge, options.mode, asked),
            body_bytes: Numbers::asked(asked.has("body_bytes")),
            body: Column::new(&options.payload, "body", options.mode, asked),
            faults: Faults::new(options.mode, asked),
            strict: options.mode == Mode::FailFast,
        }
    }

    #[inline]
    fn weight(message: &Message<'_>, _: &Spoken, _: usize) -> (usize, usize) {
        (message.weight + message.topic.map_or(0, str::len), 1)
    }

    fn mismatches(&self) -> Mismatches {
        let found = self.properties.mismatches().chain(self.json.mismatches());
        let mut all = self.body.mismatches();
        for (name, count) in found {
            *all.entry(name.to_owned()).or_default() += count;
        }
        all
    }

    fn bytes(&self) -> usize {
        let texts = [&self.name, &self.resource, &self.lease_hash];
        self.flow.bytes()
            + texts.into_iter().map(Bytes::bytes).sum::<usize>()
            + self.status.bytes()
            + self.message_type.bytes()
            + self.sequence.bytes()
            + self.multiple.values_slice().len()
            + self.recycle.values_slice().len()
            + self.properties.bytes()
            + self.json.bytes()
            + self.body_bytes.bytes()
            + self.body.bytes()
            + self.faults.bytes()
    }

    fn check(&mut self, message: &Message<'_>, said: &Spoken, _: usize) -> Result<(), Fault> {
        self.body.check(Row::of(message, said).body.map(PayloadFrames::of), 1)
    }

    #[inline]
    fn push(&mut self, message: &Message<'_>, said: &Spoken, _: usize) -> Result<(), ColumnError> {
        let fault = self.append(message.row, &Row::of(message, said))?;
        self.faults.push(fault, None)
    }

    fn push_error(&mut self, kind: &'static str, frames: Option<&[&[u8]]>) -> Result<(), ColumnError> {
        self.append(0, &Row::default())?;
        self.faults.push(Some(kind), frames)
    }

    fn push_null(&mut self) -> Result<(), ColumnError> {
        self.append(0, &Row::default())?;
        self.faults.push(None, None)
    }

    fn finish(mut self, _: &Options) -> Result<Vec<ArrayRef>, ColumnError> {
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.flow.finish()?),
            Arc::new(self.name.finish_text()?),
            Arc::new(self.status.finish()?),
            Arc::new(self.message_type.finish()?),
            Arc::new(self.sequence.finish()?.with_precision_and_scale(DIGITS, 0)?),
            Arc::new(self.resource.finish_text()?),
            Arc::new(self.lease_hash.finish_text()?),
            Arc::new(self.multiple.finish()),
            Arc::new(self.recycle.finish()),
        ];
        columns.extend(self.properties.finish()?);
        columns.extend(self.json.finish()?);
        columns.push(Arc::new(self.body_bytes.finish()?));
        columns.extend(self.body.finish()?);
        columns.extend(self.faults.finish()?);
        Ok(columns)
    }
}

impl Messages {
    /// Appends a row, and gives what a column cannot hold of it.
    #[inline]
    fn append(&mut self, row: usize, said: &Row<'_>) -> Result<Option<&'static str>, ColumnError> {
        self.flow.push(said.flow);
        self.name.push(said.name.map(str::as_bytes))?;
        self.status.push(said.status.map(i32::from));
        self.message_type.push(said.message_type);
        self.sequence.push(said.sequence.map(i128::from));
        self.resource.push(said.resource)?;
        self.lease_hash.push(said.lease.map(hash_of).as_deref().map(str::as_bytes))?;
        self.multiple.append_option(said.multiple);
        self.recycle.append_option(said.recycle);
        let properties = said.properties.and_then(ItemFields::of_table);
        let properties_exceed = append(&mut self.properties, row, properties, self.strict)?;
        let json_exceeds = append(&mut self.json, row, said.json.map(ItemFields::of_json), self.strict)?;
        self.body_bytes.push(said.body_bytes.and_then(|bytes| i64::try_from(bytes).ok()));
        let fault = self.body.push(row, said.body, 1, true)?;
        Ok(properties_exceed.or(json_exceeds).map(ColumnKind::slug).or(fault))
    }
}

fn append(
    columns: &mut TagColumns,
    row: usize,
    fields: Option<ItemFields<'_>>,
    strict: bool,
) -> Result<Option<ColumnKind>, ColumnError> {
    match fields {
        Some(fields) => columns.push_fields(row, &fields, strict),
        None => columns.push_null().map(|()| None),
    }
}
